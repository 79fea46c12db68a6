//! Block ids as runs of consecutive numbers.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Consecutive block ids: `first`, `first + 1`, … (`count` of them, at least one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace::import) struct IdRun {
    pub(in crate::trace::import) first: u64,
    pub(in crate::trace::import) count: u64,
}

/// The number of ids in a prompt.
pub(in crate::trace::import) fn blocks(runs: &[IdRun]) -> u64 {
    runs.iter().map(|run| run.count).sum()
}

/// An array of ids, folded into runs while it is read.
#[derive(Debug, Default)]
pub(in crate::trace::import) struct IdList(pub(in crate::trace::import) Vec<IdRun>);

impl<'de> Deserialize<'de> for IdList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(IdListVisitor)
    }
}

struct IdListVisitor;

impl<'de> Visitor<'de> for IdListVisitor {
    type Value = IdList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of block ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<IdList, A::Error> {
        let mut runs: Vec<IdRun> = Vec::new();
        while let Some(id) = seq.next_element::<u64>()? {
            if id == u64::MAX {
                return Err(A::Error::custom(format!("block id {id} is out of range")));
            }
            match runs.last_mut() {
                Some(run) if run.first + run.count == id => run.count += 1,
                _ => runs.push(IdRun { first: id, count: 1 }),
            }
        }
        Ok(IdList(runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_become_runs() {
        let IdList(runs) = serde_json::from_str("[7, 8, 9, 3, 18446744073709551614]").unwrap();
        let pairs: Vec<_> = runs.iter().map(|run| (run.first, run.count)).collect();
        assert_eq!(pairs, [(7, 3), (3, 1), (u64::MAX - 1, 1)]);
        assert_eq!(blocks(&runs), 5);
        for bad in ["[18446744073709551615]", "[-1]", "[1.5]", "[\"a\"]", "5"] {
            assert!(serde_json::from_str::<IdList>(bad).is_err(), "{bad}");
        }
    }
}
