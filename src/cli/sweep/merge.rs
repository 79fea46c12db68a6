//! `tonnage sweep merge`: the shards of a sweep, put together.

use std::path::PathBuf;

use super::super::Outcome;
use super::super::scenario::show;
use super::write_results;
use crate::diag::{Error, Result};
use crate::sizing::sweep::store::{Found, Manifest, Store};

/// Arguments of `tonnage sweep merge`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders of the shards
    #[arg(required = true, value_name = "SHARD")]
    shards: Vec<PathBuf>,
    /// Folder for all cells and results.csv; may be one of the shards'
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    let shards = args.shards.iter().map(|folder| Store::open(folder));
    let shards = shards.collect::<Result<Vec<(Store, Manifest)>>>()?;
    let [(first, manifest), others @ ..] = shards.as_slice() else {
        return Err(Error::new("there is nothing to merge"));
    };
    for (store, other) in others {
        if other != manifest {
            let what = match other.model_version == manifest.model_version {
                true => "another scenario, trace or list of values".to_owned(),
                false => format!("version {} of the model", other.model_version),
            };
            let error = format!("not a shard of the sweep in {}: {what}", first.folder().display());
            return Err(Error::new(error).in_file(store.folder().display()));
        }
    }
    // All cells are looked at before anything is written.
    let missing = manifest.cells.iter().filter_map(|row| row.cell.as_deref());
    let missing = missing.map(|cell| Ok(found(&shards, cell)?.is_none()));
    let missing = missing.collect::<Result<Vec<bool>>>()?.into_iter().filter(|missing| *missing);
    let missing = missing.count();
    if missing > 0 {
        let cells = manifest.cells.len();
        let error = format!("{missing} of {cells} cells are in none of these folders");
        return Err(
            Error::new(error).help("run the missing shards, or those that were interrupted")
        );
    }
    let out = Store::create(&args.out)?;
    out.begin(manifest)?;
    let mut cells = 0;
    for cell in manifest.cells.iter().filter_map(|row| row.cell.as_deref()) {
        if let Some(result) = found(&shards, cell)? {
            out.write(cell, &result)?;
            cells += 1;
        }
    }
    write_results(&out, manifest)?;
    show(|text| {
        writeln!(text, "{cells} cells of {} folders put together", shards.len())?;
        writeln!(text, "results in {}", out.results().display())
    })?;
    Ok(Outcome::Met)
}

/// What was kept of a cell in any of the folders.
fn found(shards: &[(Store, Manifest)], cell: &str) -> Result<Option<serde_json::Value>> {
    let mut kept = None;
    for (store, _) in shards {
        let Found::Whole(result) = store.read(cell)? else { continue };
        if kept.as_ref().is_some_and(|kept| *kept != result) {
            let error = format!("the cell {cell} has other figures than in a folder before");
            return Err(Error::new(error).in_file(store.folder().display()));
        }
        kept = Some(result);
    }
    Ok(kept)
}
