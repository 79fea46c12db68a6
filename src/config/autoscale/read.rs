//! `[autoscale.gateway]` and `[autoscale.engines]` of a scenario.

use super::{Hpa, Keda, Lifecycle, Metric, PodRule, PodScaling, ReplicaScaling, Scaling, Trigger};
use crate::diag::{Error, Result};
use crate::document::Document;
use crate::units::Span;

/// A hundred years: a longer time is a slip.
const MAX_SECONDS: f64 = 3.2e9;
/// More members than any set has.
const MANY: u64 = 10_000;

const GATEWAY: &str = "autoscale.gateway";
const ENGINES: &str = "autoscale.engines";

/// What of a fleet is scaled. Where a scenario names no fewest members, those are as many as it
/// begins with, which `size` looks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Autoscale {
    pods: Option<PodScaling>,
    replicas: Option<ReplicaScaling>,
    pods_from_start: bool,
    replicas_from_start: bool,
}

impl Autoscale {
    /// Reads both sections, of a scenario that begins with so many pods (none without a gateway)
    /// and replicas.
    ///
    /// # Errors
    /// A value out of range, keys that exclude each other, numbers that contradict the start.
    pub(in crate::config) fn read(
        document: &Document,
        pods: Option<u32>,
        replicas: u32,
    ) -> Result<Self> {
        let mut autoscale = Self::default();
        if let Some(key) = first_of(document, GATEWAY) {
            let Some(pods) = pods else {
                let error = Error::new("there is no gateway: only goes with [gateway]");
                return Err(document.at(&key, error));
            };
            let reader = Reader { document, section: GATEWAY };
            autoscale.pods_from_start = !document.has(&reader.key("min_replicas"));
            autoscale.pods = Some(reader.gateway(pods)?);
        }
        if first_of(document, ENGINES).is_some() {
            let reader = Reader { document, section: ENGINES };
            autoscale.replicas_from_start = !document.has(&reader.key("min_replicas"));
            autoscale.replicas = Some(reader.engines(replicas)?);
        }
        Ok(autoscale)
    }

    /// The scaling of a fleet that begins with so many pods and replicas.
    #[must_use]
    pub fn from(&self, pods: u32, replicas: u32) -> Scaling {
        let (mut pod_scaling, mut replica_scaling) = (self.pods.clone(), self.replicas.clone());
        if let Some(scaling) = &mut pod_scaling {
            match &mut scaling.rule {
                PodRule::Cpu(hpa) => bound(hpa, self.pods_from_start, pods),
                PodRule::Keda(keda) => {
                    bound(&mut keda.hpa, self.pods_from_start, pods);
                    keda.min = keda.hpa.min;
                }
            }
        }
        if let Some(ReplicaScaling { keda, .. }) = &mut replica_scaling {
            bound(&mut keda.hpa, self.replicas_from_start, replicas);
            keda.min = keda.hpa.min;
        }
        Scaling { pods: pod_scaling, replicas: replica_scaling, ..Scaling::default() }
    }

    /// Whether pods of the gateway are scaled.
    #[must_use]
    pub const fn scales_pods(&self) -> bool {
        self.pods.is_some()
    }

    /// Whether replicas are scaled.
    #[must_use]
    pub const fn scales_replicas(&self) -> bool {
        self.replicas.is_some()
    }
}

/// Fewest and most members of a set that begins with so many.
fn bound(hpa: &mut Hpa, from_start: bool, start: u32) {
    if from_start {
        hpa.min = start;
    }
    hpa.max = hpa.max.max(start);
}

/// The first key of a section, if it is there.
fn first_of(document: &Document, section: &str) -> Option<String> {
    let found = document.first_of_table(section).map(str::to_owned);
    found.or_else(|| document.has(section).then(|| section.to_owned()))
}

struct Reader<'a> {
    document: &'a Document,
    section: &'static str,
}

impl Reader<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    fn seconds(&self, name: &str, into: &mut Span) -> Result<()> {
        if let Some(number) = self.document.number(&self.key(name), 0.0, MAX_SECONDS)? {
            *into = Span::from_secs_f64(number);
        }
        Ok(())
    }

    fn number(&self, name: &str, most: f64) -> Result<Option<f64>> {
        self.document.number(&self.key(name), 1e-6, most)
    }

    /// Fewest and most members of a set that begins with so many.
    fn members(&self, start: u32, most: Option<u32>) -> Result<(u32, u32)> {
        let (min_key, max_key) = (self.key("min_replicas"), self.key("max_replicas"));
        if self.document.whole(&min_key, 0, MANY)? == Some(0) {
            let text = "scaling to none is not modelled: without a member nothing waits in one, \
                        so that nothing would ever start one";
            return Err(self.document.at(&min_key, Error::new(text).help("1 at least")));
        }
        let min = self.document.whole(&min_key, 1, MANY)?.map_or(start, |min| min as u32);
        let given = self.document.whole(&max_key, 1, MANY)?.map(|max| max as u32);
        let Some(max) = given.or(most) else {
            let text = format!("this section needs {max_key}");
            return Err(self.document.at(&max_key, Error::new(text)));
        };
        if min > start {
            let text = format!("{min} at least, and the run begins with {start}");
            return Err(self.document.at(&min_key, Error::new(text)));
        }
        if max < start {
            let text = format!("{max} at most, and the run begins with {start}");
            return Err(self.document.at(&max_key, Error::new(text)));
        }
        Ok((min, max))
    }

    fn lifecycle(&self, mut lifecycle: Lifecycle) -> Result<Lifecycle> {
        self.seconds("startup_s", &mut lifecycle.startup)?;
        self.seconds("grace_s", &mut lifecycle.grace)?;
        if lifecycle.ready_after().is_none() {
            let most = u64::from(lifecycle.probe_failures) * lifecycle.probe_period.0;
            let text = format!(
                "its probes give up after {} s and start it anew: it would never serve",
                Span(most).secs()
            );
            return Err(self.document.at(&self.key("startup_s"), Error::new(text)));
        }
        Ok(lifecycle)
    }

    fn gateway(&self, pods: u32) -> Result<PodScaling> {
        let (min, max) = self.members(pods, Some(pods.max(100)))?;
        let triggers = [
            ("requests_per_second", Metric::RequestsPerSecond),
            ("tokens_per_second", Metric::TokensPerSecond),
        ];
        let mut found = Vec::new();
        for (name, metric) in triggers {
            if let Some(threshold) = self.number(name, 1e9)? {
                found.push(Trigger { metric, threshold, activation: 0.0 });
            }
        }
        let target = self.number("target_cpu", 1.0)?;
        if target.is_some() && !found.is_empty() {
            let text = "pods are scaled by CPU or by KEDA's triggers: not both";
            return Err(self.document.at(&self.key("target_cpu"), Error::new(text)));
        }
        let mut hpa = Hpa { min, max, ..Hpa::default() };
        self.seconds("down_stabilization_s", &mut hpa.down_stabilization)?;
        let rule = match found.is_empty() {
            true => PodRule::Cpu(Hpa { target: target.unwrap_or(hpa.target), ..hpa }),
            false => {
                let keda = Keda::gateway(min, max, found);
                PodRule::Keda(Keda { hpa, ..keda })
            }
        };
        Ok(PodScaling { rule, lifecycle: self.lifecycle(Lifecycle::GATEWAY)? })
    }

    fn engines(&self, replicas: u32) -> Result<ReplicaScaling> {
        let (min, max) = self.members(replicas, None)?;
        let mut keda = Keda::engines(min, max);
        self.seconds("down_stabilization_s", &mut keda.hpa.down_stabilization)?;
        if let Some(waiting) = self.number("requests_waiting", 1e9)? {
            keda.triggers.iter_mut().for_each(|trigger| trigger.threshold = waiting);
        }
        if let Some(usage) = self.number("kv_cache_usage", 1.0)? {
            keda = keda.with_kv_cache(usage);
        }
        let lifecycle = self.lifecycle(Lifecycle::engine(Span::from_secs(300)))?;
        Ok(ReplicaScaling { keda, lifecycle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, pods: Option<u32>) -> Result<Autoscale> {
        Autoscale::read(&Document::parse(text, "s.toml").unwrap(), pods, 2)
    }

    fn complaint(text: &str, pods: Option<u32>) -> String {
        read(text, pods).unwrap_err().to_string()
    }

    #[test]
    fn without_a_section_nothing_is_scaled() {
        assert_eq!(read("", None).unwrap().from(1, 2), Scaling::default());
    }

    #[test]
    fn fewest_members_are_those_of_the_start_unless_named() {
        let text = "[autoscale.engines]\nmax_replicas = 6\nkv_cache_usage = 0.8\n";
        let keda = |scaling: Scaling| scaling.replicas.unwrap().keda;
        let engines = keda(read(text, None).unwrap().from(1, 3));
        assert_eq!((engines.min, engines.hpa.max, engines.triggers.len()), (3, 6, 2));
        let named = format!("{text}min_replicas = 1\n");
        let engines = keda(read(&named, None).unwrap().from(1, 9));
        assert_eq!((engines.min, engines.hpa.max), (1, 9));
    }

    #[test]
    fn pods_go_by_cpu_or_by_triggers() {
        let pods = |text: &str| read(text, Some(1)).unwrap().from(1, 2).pods.unwrap();
        let empty = pods("[autoscale.gateway]\n");
        assert_eq!(empty.rule, PodRule::Cpu(Hpa { max: 100, ..Hpa::default() }));
        let by_requests = pods("[autoscale.gateway]\nrequests_per_second = 5\n");
        assert!(matches!(by_requests.rule, PodRule::Keda(_)));
    }

    #[test]
    fn contradictions_are_told_with_their_place() {
        for (text, pods, said) in [
            ("[autoscale.gateway]\nmax_replicas = 3\n", None, "only goes with [gateway]"),
            ("[autoscale.engines]\nstartup_s = 9\n", None, "needs autoscale.engines.max_replicas"),
            ("[autoscale.engines]\nmax_replicas = 1\n", None, ":2:1: autoscale.engines.max"),
            ("[autoscale.gateway]\nmin_replicas = 4\n", Some(2), "begins with 2"),
            ("[autoscale.engines]\nmax_replicas = 3\nmin_replicas = 0\n", None, "to none is not"),
            ("[autoscale.gateway]\nstartup_s = 301\n", Some(2), "never serve"),
            ("[autoscale.gateway]\ntarget_cpu = 0.5\ntokens_per_second = 9\n", Some(2), "not both"),
        ] {
            let found = complaint(text, pods);
            assert!(found.contains(said), "{text}: {found}");
        }
    }
}
