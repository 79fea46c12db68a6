//! Autoscalers: what makes pods and replicas more and fewer, and how late they come.
//!
//! Pure controllers. The world tells a controller at each of its periods what the metrics are, gets
//! a desired number, hands that to [`fleet::Scaled`], and does what comes back: start this one,
//! which is ready then; drain that one. Nothing here knows what is scaled, gateway pods or replicas
//! of an engine.
//!
//! - [`hpa`]: the horizontal pod autoscaler of Kubernetes, on CPU.
//! - [`keda`]: KEDA's triggers: requests and tokens per second of the gateway, waiting requests and
//!   KV-cache use of the engines.
//! - [`rate`]: a rate as Prometheus sees it: counted at completion, scraped now and then.
//! - [`fleet`]: members that start late, serve, drain.
//!
//! A replica that comes has nothing cached and no session pinned to it, and one that goes takes its
//! cache along: the world makes a new engine for each [`fleet::Action::Start`]. The settings are in
//! [`crate::config::autoscale`].

pub mod fleet;
pub mod hpa;
pub mod keda;
pub mod rate;
