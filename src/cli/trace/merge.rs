//! `tonnage trace merge`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::cut::start_of;
use super::files::{Input, Output, made_by, of_option, tell};
use crate::cli::Outcome;
use crate::diag::{Error, Result};
use crate::trace::check::TIME_MAX;
use crate::trace::meta::Meta;
use crate::trace::record::Name;
use crate::trace::tools::merge::{Merged, Part, merge};
use crate::units::Span;

const HELP: &str = "\
Each trace becomes a tenant: its name is the tenant of calls that have none, and stands as NAME/
before the names of sessions, shared contexts, users, keys and other tenants. So no two traces share
anything. Model groups and profiles keep their names.

All traces begin together unless --offset or --clock says otherwise.

Examples:
  tonnage trace merge web.csv.zst batch.csv.zst -o both.csv.zst
  tonnage trace merge a.csv b.csv --tenant web,batch --offset 1800 -o both.csv
  tonnage trace merge a.csv b.csv c.csv --clock -o all.csv.gz";

/// Arguments of `tonnage trace merge`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Canonical traces: CSV, plain, gzip or zstd
    #[arg(required = true, num_args = 2.., value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Their names, in the same order [default: the files', without their endings]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    tenant: Vec<String>,
    /// How many seconds after the first trace each of the others begins; negative: before it
    #[arg(long, value_name = "SECONDS,…", value_delimiter = ',', allow_hyphen_values = true)]
    offset: Vec<Offset>,
    /// Begin each trace at the start that its sidecar gives
    #[arg(long, conflicts_with = "offset")]
    clock: bool,
    /// The trace to write: X.csv, X.csv.gz or X.csv.zst; X.meta.json is put beside it
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

/// Nanoseconds after the start of the first trace, or before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset(i128);

impl std::str::FromStr for Offset {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.strip_prefix('-') {
            Some(text) => super::seconds(text).map(|span| Self(-i128::from(span.0))),
            None => super::seconds(text).map(|span| Self(i128::from(span.0))),
        }
    }
}

/// Runs the tool.
pub fn run(args: &Args) -> Result<Outcome> {
    let open = args.traces.iter().map(|path| Input::open(path));
    let inputs = open.collect::<Result<Vec<_>>>()?;
    let metas = inputs.iter().map(Input::meta).collect::<Result<Vec<_>>>()?;
    let tenants = args.tenants()?;
    let (offsets, start) = args.offsets(&metas)?;
    let mut output = Output::create(&args.output, &args.traces)?;
    let named = inputs.iter().zip(&tenants).zip(&offsets);
    let parts: Vec<Part<'_>> = named
        .map(|((source, tenant), &offset)| Part { source, tenant: Name::clone(tenant), offset })
        .collect();
    let merged = merge(&parts, &mut output).map_err(|error| of_option(error, "tenant"))?;
    drop(parts);
    drop(inputs);
    let mut meta = sidecar(&metas, &tenants);
    meta.start = start.map(|start| start.to_string());
    meta.made_by = Some(args.made_by(&metas, &tenants, &offsets));
    output.finish(&meta)?;
    tell(&told(&merged, &tenants, &offsets, &args.output));
    Ok(Outcome::Met)
}

impl Args {
    fn tenants(&self) -> Result<Vec<Name>> {
        if self.tenant.is_empty() {
            return Ok(self.traces.iter().map(|path| stem(path).into()).collect());
        }
        if self.tenant.len() != self.traces.len() {
            let error = Error::found(
                self.tenant.join(","),
                format!("{} names, one for each trace", self.traces.len()),
            );
            return Err(error.in_field("--tenant"));
        }
        Ok(self.tenant.iter().map(|name| Name::from(name.as_str())).collect())
    }

    /// How long after the start of the new trace each begins, and that start on the clock.
    fn offsets(&self, metas: &[Meta]) -> Result<(Vec<Span>, Option<Timestamp>)> {
        let mut offsets = vec![0; metas.len()];
        if self.clock {
            for ((offset, meta), path) in offsets.iter_mut().zip(metas).zip(&self.traces) {
                let start = start_of(meta).map_err(|error| error.in_file(path.display()))?;
                let start = start.ok_or_else(|| {
                    Error::new("its sidecar does not give the start of the trace")
                        .in_file(path.display())
                        .help("without --clock all traces begin together")
                })?;
                *offset = start.as_nanosecond();
            }
        } else if !self.offset.is_empty() {
            if self.offset.len() + 1 != metas.len() {
                let (found, needed) = (self.offset.len(), metas.len() - 1);
                let allowed = format!("{needed}, one for each trace after the first");
                return Err(Error::found(format!("{found} times"), allowed).in_field("--offset"));
            }
            offsets[1..].iter_mut().zip(&self.offset).for_each(|(at, Offset(by))| *at = *by);
        }
        let first = offsets.iter().copied().min().unwrap_or(0);
        let start = self.clock.then(|| Timestamp::from_nanosecond(first).ok()).flatten();
        let spans = offsets.into_iter().map(|offset| {
            u64::try_from(offset - first).ok().map(Span).filter(|span| *span <= TIME_MAX)
        });
        let spans: Option<Vec<Span>> = spans.collect();
        let error = || Error::new("the traces begin more than 100 years apart");
        Ok((spans.ok_or_else(error)?, start))
    }

    fn made_by(&self, metas: &[Meta], tenants: &[Name], offsets: &[Span]) -> String {
        let inputs: Vec<&Path> = self.traces.iter().map(PathBuf::as_path).collect();
        let offsets: Vec<String> = offsets.iter().map(|offset| offset.secs_text()).collect();
        let options =
            format!(" --tenant {}, beginning at {} s", tenants.join(","), offsets.join(", "));
        let before = metas.iter().zip(tenants).filter_map(|(meta, tenant)| {
            meta.made_by.as_ref().map(|made_by| format!("{tenant}: {made_by}"))
        });
        let before = before.collect::<Vec<_>>().join("; ");
        let before = Some(&*before).filter(|before| !before.is_empty());
        made_by(before, "merge", &inputs, &options)
    }
}

/// A file's name without what says that it is a trace.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    stem.strip_suffix(".csv").unwrap_or(stem).to_owned()
}

/// What the sidecars say together: what is the same in all, and what each says of its own.
fn sidecar(metas: &[Meta], tenants: &[Name]) -> Meta {
    let texts = |of: fn(&Meta) -> &Option<String>| {
        let texts: Vec<(&Name, &String)> = tenants
            .iter()
            .zip(metas.iter().map(of))
            .filter_map(|(t, x)| Some((t, x.as_ref()?)))
            .collect();
        let same =
            texts.len() == metas.len() && texts.windows(2).all(|pair| pair[0].1 == pair[1].1);
        match texts.first() {
            Some((_, text)) if same => Some((*text).clone()),
            Some(_) => {
                let all = texts.iter().map(|(tenant, text)| format!("{tenant}: {text}"));
                Some(all.collect::<Vec<_>>().join("; "))
            }
            None => None,
        }
    };
    let mut meta = Meta {
        source: texts(|meta| &meta.source),
        licence: texts(|meta| &meta.licence),
        time_zone: same(metas, |meta| meta.time_zone.clone()),
        origin_block_size: same(metas, |meta| meta.origin_block_size),
        partial_block: same(metas, |meta| meta.partial_block),
        ..Meta::default()
    };
    for (own, tenant) in metas.iter().zip(tenants) {
        let sizes = (own.origin_block_size, own.partial_block);
        if let Some(size) = own.origin_block_size
            && sizes != (meta.origin_block_size, meta.partial_block)
        {
            meta.notes.push(format!("{tenant}: the origin had blocks of {size} tokens"));
        }
        meta.notes.extend(own.notes.iter().map(|note| format!("{tenant}: {note}")));
    }
    meta
}

/// What all sidecars say alike.
fn same<T: PartialEq>(metas: &[Meta], of: impl Fn(&Meta) -> Option<T>) -> Option<T> {
    let first = metas.first().and_then(&of);
    if metas.iter().all(|meta| of(meta) == first) { first } else { None }
}

fn told(merged: &[Merged], tenants: &[Name], offsets: &[Span], output: &Path) -> String {
    let mut text = format!(
        "{:24} {:>12} {:>9} {:>9} {:>9}\n",
        "tenant", "begins at s", "sessions", "calls", "contexts"
    );
    for ((merged, tenant), offset) in merged.iter().zip(tenants).zip(offsets) {
        let Merged { sessions, calls, contexts } = merged;
        let offset = offset.secs_text();
        text += &format!("{tenant:24} {offset:>12} {sessions:9} {calls:9} {contexts:9}\n");
    }
    text + &format!("written: {}\n", output.display())
}
