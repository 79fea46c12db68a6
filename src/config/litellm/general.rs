//! `general_settings`: admission, keys, the database, spend rows.

use super::Reading;
use super::yaml::Section;
use crate::config::gateway::{Admission, Database};
use crate::diag::Result;

pub(super) fn read(reading: &mut Reading<'_>, section: &Section<'_>) -> Result<()> {
    let environment = reading.environment;
    reading.gateway.admission = admission(reading, section)?;
    let auth = &mut reading.gateway.auth;
    if let Some(ttl) = section.seconds("user_api_key_cache_ttl", environment)? {
        auth.ttl = ttl;
    }
    if let Some(size) = section.whole("user_api_key_cache_max_size", 1, environment)? {
        auth.capacity = size;
    }
    let spend = &mut reading.gateway.spend;
    if let Some(interval) = section.seconds("proxy_batch_write_at", environment)? {
        if interval.0 == 0
            && let Some(value) = section.get("proxy_batch_write_at")
        {
            return Err(section.wrong(value, "proxy_batch_write_at", "seconds above 0"));
        }
        spend.write_interval = interval;
    }
    if section.switch("disable_spend_logs", environment)? == Some(true) {
        spend.enabled = false;
    }
    let mut database = Database::default();
    if let Some(pool) = section.whole("database_connection_pool_limit", 1, environment)? {
        database.pool = pool;
    }
    for key in ["database_connection_timeout", "database_connection_pool_timeout"] {
        if let Some(timeout) = section.seconds(key, environment)? {
            database.pool_timeout = timeout;
        }
    }
    reading.gateway.database = Some(database);
    Ok(())
}

fn admission(reading: &Reading<'_>, section: &Section<'_>) -> Result<Option<Admission>> {
    let environment = reading.environment;
    let most = section.whole("max_in_flight_requests_per_worker", 1, environment)?;
    let queued = section.whole("max_queued_requests_per_worker", 0, environment)?;
    let timeout = section.seconds("admission_queue_timeout_seconds", environment)?;
    let Some(most) = most else {
        for key in ["max_queued_requests_per_worker", "admission_queue_timeout_seconds"] {
            if let Some(value) = section.get(key) {
                let text = "has no effect without max_in_flight_requests_per_worker";
                return Err(section.error(value, key, text));
            }
        }
        return Ok(None);
    };
    let mut admission = Admission::new(most);
    if let Some(queued) = queued {
        admission.max_queued = queued;
    }
    if let Some(timeout) = timeout {
        admission.timeout = timeout;
    }
    if admission.timeout.0 == 0 && queued.is_some_and(|queued| queued > 0) {
        let key = "admission_queue_timeout_seconds";
        if let Some(value) = section.get(key) {
            let text = "a wait of 0 s contradicts places to wait";
            return Err(section
                .error(value, key, text)
                .help("or max_queued_requests_per_worker: 0"));
        }
    }
    Ok(Some(admission))
}
