//! What a file is, by its content: the columns of a table, or the fields of its first JSON value.
//!
//! A kind is known by names that must be there. Where the names of several kinds are there, the
//! kind that asks for all that another asks for and more is meant; otherwise nobody can tell.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::{Format, Progress, lines};
use crate::diag::{Error, Result, nearest};

mod fields;
mod kinds;
#[cfg(test)]
mod tests;

use fields::Shape;
use kinds::{KINDS, Signature};

/// How much of a file is looked at. The first session of a trace with block ids is long.
const HEAD_BYTES: u64 = 16 << 20;

/// What a file can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The canonical trace itself.
    Canonical,
    /// Rows of LiteLLM's SpendLogs, in one of their forms.
    SpendLogs,
    /// Run-length JSONL of sessions with block ids, or the original JSON of one session.
    Weka,
    /// The same form, made of LMCache's agent traces.
    Lmcache,
    /// Mooncake's rows.
    Mooncake,
    /// Agentic Mooncake.
    AgenticMooncake,
    /// Qwen-Bailian's rows.
    Bailian,
    /// Azure's LLM inference traces.
    Azure,
    /// BurstGPT.
    BurstGpt,
    /// Steps of mini-swe-agent.
    MiniSweAgent,
    /// TraceLab's rounds.
    TraceLab,
    /// Sessions of inference-lab.
    InferenceLab,
    /// Single requests with shared prefixes.
    PrefixGroups,
}

impl Kind {
    /// Its name, which is that of the subcommand that imports it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Canonical => "canonical",
            Self::SpendLogs => "spendlogs",
            Self::Weka => "weka",
            Self::Lmcache => "lmcache",
            Self::Mooncake => "mooncake",
            Self::AgenticMooncake => "agentic-mooncake",
            Self::Bailian => "bailian",
            Self::Azure => "azure",
            Self::BurstGpt => "burstgpt",
            Self::MiniSweAgent => "mini-swe-agent",
            Self::TraceLab => "tracelab",
            Self::InferenceLab => "inference-lab",
            Self::PrefixGroups => "prefix-groups",
        }
    }

    /// The format that reads it, if it is one of the table of formats.
    #[must_use]
    pub fn format(self) -> Option<Format> {
        Format::named(self.name())
    }
}

/// What a file was found to be, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// The same in words, with the form.
    pub what: &'static str,
    /// The fields that say so.
    pub fields: Vec<&'static str>,
}

/// Finds out what a file is.
///
/// # Errors
/// If it cannot be read, is none of the kinds, or could be several.
pub fn detect(path: &Path) -> Result<Found> {
    // Whoever imports it then begins at its start again.
    lines::check_rereadable(path)?;
    let mut head = Vec::new();
    let source = lines::open(path, &Arc::new(Progress::default()))?;
    source
        .take(HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(|error| lines::unreadable(path, &error))?;
    recognise(&head).map_err(|error| error.in_file(path.display()))
}

/// Finds out what a file is that begins so.
fn recognise(head: &[u8]) -> Result<Found> {
    let shape = Shape::of(head)?;
    let matching: Vec<&Signature> = KINDS.iter().filter(|kind| kind.fits(&shape)).collect();
    let special = |kind: &&&Signature| {
        let others = matching.iter().filter(|other| !std::ptr::eq(**other, **kind));
        others.into_iter().all(|other| kind.says_more_than(other))
    };
    match (matching.iter().find(special), matching.is_empty()) {
        (Some(kind), _) => {
            Ok(Found { kind: kind.kind, what: kind.what, fields: kind.needs.to_vec() })
        }
        (None, true) => Err(unknown(&shape)),
        (None, false) => Err(ambiguous(&matching)),
    }
}

fn ambiguous(matching: &[&Signature]) -> Error {
    let names = matching.iter().map(|kind| format!("{} ({})", kind.what, kind.needs.join(", ")));
    let names: Vec<String> = names.collect();
    Error::new(format!("the content may be {}", names.join(" or ")))
        .help("name the format: tonnage import FORMAT")
}

/// No field of a known format has a longer name.
const NAME_BYTES_SHOWN: usize = 40;

/// What was looked for, and what came nearest.
fn unknown(shape: &Shape) -> Error {
    // Long names are no fields but data, such as hashes of keys.
    let short = |name: &&str| name.len() <= NAME_BYTES_SHOWN;
    let found = match shape.names().filter(short).take(8).collect::<Vec<_>>() {
        names if names.is_empty() => "no names of fields".to_owned(),
        names => names.join(", ").escape_debug().to_string(),
    };
    let mut error = Error::new(format!("no known format: {} with {found}", shape.form_name()));
    if let Some((kind, absent)) = nearest_kind(shape) {
        let (had, all) = (kind.needs.len() - absent.len(), kind.needs.len());
        let text = format!("nearest is {}: {had} of {all} fields, without", kind.what);
        error = error.help(format!("{text} {}", absent.join(", ")));
        for name in absent {
            let others = shape.names().filter(|other| !kind.needs.contains(other));
            if let Some(like) = nearest(name, others) {
                error = error.help(format!("`{}` is like `{name}`", like.escape_debug()));
            }
        }
    }
    for kind in KINDS {
        let needs = kind.needs.join(", ");
        error = error.help(format!("looked for {}: {} of {needs}", kind.what, kind.form.name()));
    }
    error
}

/// The kind of which the largest share of names is there, with those that are not.
fn nearest_kind(shape: &Shape) -> Option<(&'static Signature, Vec<&'static str>)> {
    let absent = |kind: &'static Signature| {
        let absent = kind.needs.iter().copied().filter(|name| !shape.has(name));
        (kind, absent.collect::<Vec<_>>())
    };
    let some = KINDS.iter().map(absent).filter(|(kind, absent)| absent.len() < kind.needs.len());
    // Shares are compared without fractions: a/b > c/d as a*d > c*b.
    some.reduce(|best, next| {
        let had = |(kind, absent): &(&Signature, Vec<&str>)| kind.needs.len() - absent.len();
        let (one, other) = (had(&next) * best.0.needs.len(), had(&best) * next.0.needs.len());
        if one > other { next } else { best }
    })
}
