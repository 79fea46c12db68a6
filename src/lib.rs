//! tonnage tells the people who run LLM inference how big the fleet must be when the users are
//! agents.
//!
//! A trace of real sessions goes in (LiteLLM SpendLogs, public traces), a fleet of vLLM replicas
//! is simulated event by event, and the smallest fleet that meets task-latency targets comes out.
//!
//! The modules stand on floors; each imports only from those below it:
//!
//! | floor | modules |
//! |---|---|
//! | 0 | [`units`], [`rng`], [`diag`] |
//! | 1 | [`document`], [`queue`], [`stats`] |
//! | 2 | [`trace`] |
//! | 3 | [`config`], [`workload`] |
//! | 4 | [`engine`], [`gateway`], [`autoscale`], [`observe`] |
//! | 5 | [`fleet`] |
//! | 6 | [`sizing`], [`validate`] |
//! | 7 | [`report`] |
//! | 8 | [`cli`] |

pub mod autoscale;
pub mod cli;
pub mod config;
pub mod diag;
pub mod document;
pub mod engine;
pub mod fleet;
pub mod gateway;
pub mod observe;
pub mod queue;
pub mod report;
pub mod rng;
pub mod sizing;
pub mod stats;
pub mod trace;
pub mod units;
pub mod validate;
pub mod workload;
