//! Scenario files, the gateway's settings, and the catalogue of GPUs and models.

pub mod api_time;
pub mod autoscale;
pub mod calibration;
pub mod defaults;
pub mod drawing;
pub mod faults;
pub mod gateway;
pub mod generated;
pub mod geometry;
pub mod gpus;
mod keys;
pub mod litellm;
pub mod load;
pub mod memory;
pub mod model_config;
pub mod models;
pub mod pools;
pub mod precision;
pub mod presets;
pub mod prices;
pub mod reshape;
pub mod router;
pub mod scenario;
pub mod serving;
pub mod vary;
pub mod vllm_serve;
