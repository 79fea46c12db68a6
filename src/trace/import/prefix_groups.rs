//! Importer of requests with shared prefixes: a table of single requests, each of a group whose
//! prompts begin alike, with a suffix of its own. Simulators draw such loads to measure what prefix
//! caches are worth.
//!
//! Every request is a session of one call. A group's prefix becomes a shared context.

use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::{Names, origin};
use super::table::{Column, Row, Table};
use super::{BadRows, Count, Done, Job, Report, flat, plain_call};
use crate::diag::{Error, Result};
use crate::trace::canonical::Sink;
use crate::trace::check::{TIME_MAX, TOKENS_MAX, numbered_id};
use crate::trace::meta::Meta;
use crate::trace::record::{Base, Name, Session, SharedContext};
use crate::units::{Span, Tokens};

const REQUEST: usize = 0;
const ARRIVAL: usize = 1;
const GROUP: usize = 2;
const PREFIX: usize = 3;
const SUFFIX: usize = 4;
const OUTPUT: usize = 5;

const COLUMNS: &[Column] = &[
    Column::required("request_id"),
    Column::required("arrival_us"),
    Column::required("prefix_group"),
    Column::required("prefix_tokens"),
    Column::required("suffix_tokens"),
    Column::required("output_tokens"),
];

/// A row that was checked.
#[derive(Clone, Debug)]
struct Request {
    id: Name,
    at: Span,
    /// Its group, by number; it means nothing without a prefix.
    group: u32,
    prefix: Tokens,
    prompt: Tokens,
    output: Tokens,
}

/// What the files hold.
#[derive(Default)]
struct Found {
    read: u64,
    bad: BadRows,
    requests: Vec<Request>,
    ids: FxHashSet<Name>,
    /// Numbers of groups by name, with their names and the longest of their prefixes.
    numbers: FxHashMap<Name, u32>,
    groups: Vec<(Name, Tokens)>,
    names: Names,
    unknown: Vec<String>,
}

/// Reads the requests of all files, in the order of their arrival, into a sink.
///
/// # Errors
/// A file that cannot be read or is of another form, rows that cannot be used (unless they are
/// skipped), nothing to import, and those of the sink.
pub fn read(job: &Job, sink: &mut dyn Sink) -> Result<Done> {
    let mut found = Found::default();
    for file in &job.files {
        let mut table = Table::open(job, file, COLUMNS)?;
        found.unknown.append(&mut table.unknown);
        while let Some(row) = table.next()? {
            found.read += 1;
            if let Err(error) = row.is_whole().and_then(|()| found.add(&row)) {
                found.bad.add(row.placed(error));
            }
        }
    }
    found.bad.settle(job.options.skip_bad)?;
    if found.requests.is_empty() {
        return Err(Error::new(format!("no call to import: {} rows read", found.read)));
    }
    // Stable: requests of one instant stay in the order of the files.
    found.requests.sort_by_key(|request| request.at);
    let (first, start) = origin(found.requests[0].at);
    let shared = found.deliver(job, first, sink)?;
    let report = found.report(job, shared);
    let meta = Meta {
        source: Some(format!("requests with shared prefixes: {}", job.file_names())),
        licence: job.options.licence.clone(),
        start,
        notes: report.notes(),
        ..Meta::default()
    };
    Ok(Done { meta, report })
}

impl Found {
    fn add(&mut self, row: &Row<'_>) -> Result<()> {
        let id = row.name(REQUEST)?;
        if id.is_empty() || id.starts_with('@') {
            return Err(row.unfit(REQUEST, id, "an id without a leading `@`"));
        }
        if self.ids.contains(id) {
            let error = Error::new(format!("the request `{id}` is given twice"));
            return Err(row.wrong(REQUEST, error));
        }
        let at = arrival(row)?;
        let group = row.name(GROUP)?;
        let prefix = row.tokens(PREFIX)?;
        if group.starts_with('@') {
            return Err(row.unfit(GROUP, group, "a name without a leading `@`"));
        }
        if group.is_empty() && prefix > Tokens::ZERO {
            return Err(row.unfit(GROUP, group, "the group that shares the prefix"));
        }
        let suffix = row.tokens(SUFFIX)?;
        let prompt = prefix + suffix;
        if prompt > TOKENS_MAX {
            let allowed = format!("at most {TOKENS_MAX} with the prefix");
            return Err(row.unfit(SUFFIX, &suffix.to_string(), allowed));
        }
        let output = row.tokens(OUTPUT)?;
        // Nothing below fails, so a bad row leaves no trace.
        let group = self.group(group, prefix);
        let id = self.names.get(id);
        self.ids.insert(Name::clone(&id));
        self.requests.push(Request { id, at, group, prefix, prompt, output });
        Ok(())
    }

    /// The number of a group, whose prefix is at least so long.
    fn group(&mut self, name: &str, prefix: Tokens) -> u32 {
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                let number = self.groups.len() as u32;
                let name = Name::from(name);
                self.numbers.insert(Name::clone(&name), number);
                self.groups.push((name, Tokens::ZERO));
                number
            }
        };
        let longest = &mut self.groups[number as usize].1;
        *longest = prefix.max(*longest);
        number
    }

    /// Hands all requests over, and each group's context before its first; how many there are.
    fn deliver(&self, job: &Job, first: Span, sink: &mut dyn Sink) -> Result<u64> {
        let mut contexts: Vec<Option<Name>> = vec![None; self.groups.len()];
        let mut declared = 0;
        for (number, request) in self.requests.iter().enumerate() {
            let at = request.at.saturating_sub(first);
            let mut call = plain_call(at, request.prompt, request.output);
            if request.prefix > Tokens::ZERO && !job.options.no_sharing {
                let context = &mut contexts[request.group as usize];
                if context.is_none() {
                    let (name, prompt_tokens) = &self.groups[request.group as usize];
                    let name = match job.options.keep_ids {
                        true => Name::clone(name),
                        false => Name::from(format!("c{declared:04}")),
                    };
                    declared += 1;
                    sink.context(&SharedContext {
                        name: Name::clone(&name),
                        base: None,
                        kept_tokens: Tokens::ZERO,
                        prompt_tokens: *prompt_tokens,
                    })?;
                    *context = Some(name);
                }
                call.base = context.as_ref().map_or(Base::None, |name| Base::Shared(name.clone()));
                call.kept_tokens = request.prefix;
            }
            let id = match job.options.keep_ids {
                true => Name::clone(&request.id),
                false => numbered_id(number as u64),
            };
            sink.session(&Session { id, calls: vec![call] })?;
        }
        Ok(declared)
    }

    fn report(self, job: &Job, contexts: u64) -> Report {
        let prompt: u64 = self.requests.iter().map(|request| request.prompt.0).sum();
        let output: u64 = self.requests.iter().map(|request| request.output.0).sum();
        let count = |is: fn(&Request) -> bool| {
            self.requests.iter().filter(|request| is(request)).count() as u64
        };
        let shared = match job.options.no_sharing {
            true => "none, as asked for: prompts share nothing".to_owned(),
            false => contexts.to_string(),
        };
        Report {
            unit: "rows",
            files: job.files.len() as u64,
            read: self.read,
            kept: self.requests.len() as u64,
            figures: vec![
                ("calls", format!("{}, each a session of its own", self.requests.len())),
                ("tokens", format!("{prompt} of prompts, {output} of outputs")),
                ("shared contexts", shared),
            ],
            assumed: vec![
                Count::new(count(|request| request.prompt.0 == 0), "calls have an empty prompt"),
                Count::new(count(|request| request.output.0 == 0), "calls have no output"),
            ],
            warnings: flat::unknown_columns(&self.unknown),
            bad: self.bad,
            ..Report::default()
        }
    }
}

/// When a request came.
fn arrival(row: &Row<'_>) -> Result<Span> {
    let micros = row.number(ARRIVAL)?;
    let at = micros.checked_mul(1_000).map(Span).filter(|at| *at <= TIME_MAX);
    at.ok_or_else(|| row.unfit(ARRIVAL, &micros.to_string(), "microseconds of at most 100 years"))
}
