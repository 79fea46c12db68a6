//! Settings of autoscaling: what makes gateway pods and replicas more and fewer, and how late they
//! come.
//!
//! The defaults are those of Kubernetes and KEDA unless a field says where its figure is from.

use crate::units::Span;

pub mod read;

/// What is scaled in a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// What makes the gateway's pods more and fewer, if anything does. Goes with a gateway only.
    pub pods: Option<PodScaling>,
    /// What makes replicas more and fewer, if anything does.
    pub replicas: Option<ReplicaScaling>,
    /// How often requests and tokens are scraped for the triggers that go by them.
    pub scrape: Span,
    /// Over how long they are averaged. An assumption, as in `rate(...[1m])`.
    pub rate_window: Span,
}

impl Default for Scaling {
    /// Nothing is scaled.
    fn default() -> Self {
        Self {
            pods: None,
            replicas: None,
            scrape: Span::from_secs(15),
            rate_window: Span::from_secs(60),
        }
    }
}

/// What scales the gateway's pods.
#[derive(Clone, Debug, PartialEq)]
pub struct PodScaling {
    /// By what.
    pub rule: PodRule,
    /// How a pod comes and goes.
    pub lifecycle: Lifecycle,
}

/// By what pods are scaled.
#[derive(Clone, Debug, PartialEq)]
pub enum PodRule {
    /// By the CPU that each uses, over what it may use.
    Cpu(Hpa),
    /// By triggers on metrics.
    Keda(Keda),
}

/// What scales the replicas of a fleet that begins with as many as its setup says.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaScaling {
    /// By which triggers. There must always be one replica: without any nothing waits in one, so
    /// nothing would ever bring one back.
    pub keda: Keda,
    /// How a replica comes and goes.
    pub lifecycle: Lifecycle,
}

/// How a member comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    /// From the decision until it could serve: a node, the image, the model into the GPU.
    pub startup: Span,
    /// How often it is asked whether it does.
    pub probe_period: Span,
    /// Probes after which a member that does not serve is started anew.
    pub probe_failures: u32,
    /// How long it may take to end (`terminationGracePeriodSeconds`).
    pub grace: Span,
}

impl Lifecycle {
    /// A gateway pod: ready 10 to 20 s after its start, as measured, probed every 10 s up to 30
    /// times as the Helm chart does, ended within Kubernetes' 30 s.
    pub const GATEWAY: Self = Self {
        startup: Span::from_secs(15),
        probe_period: Span::from_secs(10),
        probe_failures: 30,
        grace: Span::from_secs(30),
    };

    /// A replica of an engine that loads its model for so long, with an hour for the streams that
    /// it still has when it goes.
    #[must_use]
    pub const fn engine(model_load: Span) -> Self {
        Self {
            startup: model_load,
            probe_period: Span::from_secs(10),
            probe_failures: 360,
            grace: Span::from_secs(3_600),
        }
    }

    /// From the decision to the probe that finds it serving; `None` if it is started anew for ever
    /// because it takes longer than its probes allow.
    #[must_use]
    pub fn ready_after(&self) -> Option<Span> {
        if self.probe_period.0 == 0 {
            return Some(self.startup);
        }
        let probes = self.startup.0.div_ceil(self.probe_period.0);
        let is_in_time = probes <= u64::from(self.probe_failures);
        is_in_time.then(|| Span(probes * self.probe_period.0))
    }
}

/// Settings of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hpa {
    /// Fewest members.
    pub min: u32,
    /// Most members.
    pub max: u32,
    /// What the mean of the metric should be, as a share of what was asked for: the Helm chart of
    /// LiteLLM sets 60 % of the requested CPU.
    pub target: f64,
    /// How often it looks.
    pub sync: Span,
    /// Deviations from the target that are left alone.
    pub tolerance: f64,
    /// How long a higher number is held before fewer are wanted.
    pub down_stabilization: Span,
    /// The same before more are wanted.
    pub up_stabilization: Span,
    /// Within this time ...
    pub up_period: Span,
    /// ... at most so many come, or
    pub up_pods: u32,
    /// ... so many percent of those that were there, whichever is more.
    pub up_percent: u32,
}

impl Default for Hpa {
    /// Kubernetes' defaults around 60 % of CPU, between 1 and 100 members.
    fn default() -> Self {
        Self {
            min: 1,
            max: 100,
            target: 0.6,
            sync: Span::from_secs(15),
            tolerance: 0.1,
            down_stabilization: Span::from_secs(300),
            up_stabilization: Span::ZERO,
            up_period: Span::from_secs(15),
            up_pods: 4,
            up_percent: 100,
        }
    }
}

/// Settings of a scaled object.
#[derive(Clone, Debug, PartialEq)]
pub struct Keda {
    /// The horizontal pod autoscaler that KEDA sets up, with at least one member.
    pub hpa: Hpa,
    /// Fewest members; may be none.
    pub min: u32,
    /// How often metrics are asked for while there is no member (`pollingInterval`).
    pub polling_interval: Span,
    /// How long nothing must go on before the last members go (`cooldownPeriod`).
    pub cooldown_period: Span,
    /// The triggers.
    pub triggers: Vec<Trigger>,
}

/// One trigger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trigger {
    /// What is measured.
    pub metric: Metric,
    /// What one member should have of it.
    pub threshold: f64,
    /// Above this there is something going on at all.
    pub activation: f64,
}

/// A metric, summed over all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Requests that the gateway completes in a second (`targetRequestsPerSecond`).
    RequestsPerSecond,
    /// Tokens of requests that it completes (`targetTokensPerSecond`).
    TokensPerSecond,
    /// `vllm:num_requests_waiting`.
    RequestsWaiting,
    /// `vllm:kv_cache_usage_perc`, from 0 to 1.
    KvCacheUsage,
}

impl Keda {
    /// Engines as the vLLM production stack scales them: five waiting requests for each member,
    /// asked for every 15 s, six minutes of quiet before the last ones go.
    #[must_use]
    pub fn engines(min: u32, max: u32) -> Self {
        Self {
            hpa: Hpa { min: min.max(1), max, ..Hpa::default() },
            min,
            polling_interval: Span::from_secs(15),
            cooldown_period: Span::from_secs(360),
            triggers: vec![Trigger {
                metric: Metric::RequestsWaiting,
                threshold: 5.0,
                activation: 0.0,
            }],
        }
    }

    /// The same with a member for each `usage` of KV cache in use, which fills before anything
    /// waits.
    #[must_use]
    pub fn with_kv_cache(mut self, usage: f64) -> Self {
        self.triggers.push(Trigger {
            metric: Metric::KvCacheUsage,
            threshold: usage,
            activation: 0.0,
        });
        self
    }

    /// Gateway pods as the Helm chart of LiteLLM scales them with KEDA: asked for every 30 s, five
    /// minutes of quiet.
    #[must_use]
    pub fn gateway(min: u32, max: u32, triggers: Vec<Trigger>) -> Self {
        Self {
            hpa: Hpa { min: min.max(1), max, ..Hpa::default() },
            min,
            polling_interval: Span::from_secs(30),
            cooldown_period: Span::from_secs(300),
            triggers,
        }
    }
}
