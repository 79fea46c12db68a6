//! What a GPU costs: the scenario's price, or the low end of the GPU table.

use super::gpus;
use super::serving::Serving;
use crate::diag::{Error, Result};
use crate::document::Document;

/// The section whose keys are names of GPUs.
pub const SECTION: &str = "prices";
/// The key that gives one price, whatever the GPU is.
pub const ONE_PRICE: &str = "cost.usd_per_gpu_hour";
/// More than any GPU costs; a larger number is a slip.
const PRICE_MAX: f64 = 1e4;

/// Price of one pod of the gateway for an hour; `None` if nobody named one.
///
/// # Errors
/// A price out of range, or one without a gateway.
pub fn read_pod(document: &Document, has_gateway: bool) -> Result<Option<f64>> {
    const KEY: &str = "cost.usd_per_gateway_replica_hour";
    let price = document.number(KEY, 0.0, PRICE_MAX)?;
    match price {
        Some(_) if !has_gateway => {
            Err(document.at(KEY, Error::new("there is no gateway: only goes with [gateway]")))
        }
        price => Ok(price),
    }
}

/// Price of one GPU of this replica for an hour, and where it comes from; `None` if unknown.
///
/// # Errors
/// A price out of range, or one of a GPU that does not exist.
pub fn read(document: &Document, serving: &Serving) -> Result<Option<(f64, String)>> {
    let prefix = format!("{SECTION}.");
    let mut own = None;
    for key in document.keys().filter(|key| key.starts_with(&prefix)) {
        let gpu = gpus::find(&key[prefix.len()..]);
        let gpu = gpu.map_err(|error| document.at(key, error.without_place()))?;
        let price = document.number(key, 0.0, PRICE_MAX)?;
        if gpu.name == serving.gpu.name {
            own = price;
        }
    }
    if let Some(price) = document.number(ONE_PRICE, 0.0, PRICE_MAX)?.or(own) {
        return Ok(Some((price, "the scenario".to_owned())));
    }
    let listed = serving.gpu.price_low_usd_h;
    Ok(listed.map(|price| (price, format!("low end of the {} price table", serving.gpu.name))))
}
