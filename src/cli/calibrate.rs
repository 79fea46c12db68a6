//! `tonnage calibrate`: multipliers of the step time from measurements of your own.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::Outcome;
use super::replaced::refuse_own_outputs;
use super::scenario::show;
use super::validate::Filter;
use crate::config::calibration::Calibration;
use crate::diag::{Error, Result};
use crate::trace::canonical::new_file::NewFile;
use crate::validate::calibrate::scrape::{Page, between};
use crate::validate::calibrate::{Fitted, Point, bench, fit};
use crate::validate::requests;
use crate::validate::rules::as_measured;
use crate::validate::runs::Run;
use crate::validate::table::{Form, Table};

/// Arguments of `tonnage calibrate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Measurements: tables as `tonnage validate` reads (.csv), results of `vllm bench serve
    /// --save-result` (.json), or pairs of scrapes of /metrics (any other ending)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Calibration file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    host: Host,
    /// Seconds between the two scrapes of a pair
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Most multipliers that are fitted apart
    #[arg(long, value_name = "N", default_value_t = 3)]
    multipliers: usize,
    /// Seed of drawn lengths and arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// What served, for files that do not say it.
#[derive(Debug, clap::Args)]
struct Host {
    /// GPU; needed for .json files and scrapes
    #[arg(long)]
    gpu: Option<String>,
    /// Model; what the file names if left out
    #[arg(long)]
    model: Option<String>,
    /// GPUs of the tensor-parallel group; 1
    #[arg(long, value_name = "GPUS")]
    tp: Option<u32>,
    /// Data-parallel ranks, each of --tp GPUs, which share the experts; 1
    #[arg(long, value_name = "RANKS")]
    dp: Option<u32>,
    /// Precision of the weights; the checkpoint's own if left out
    #[arg(long)]
    precision: Option<String>,
    /// Precision of the KV cache; the model's own 16-bit format if left out
    #[arg(long)]
    kv_cache_dtype: Option<String>,
    /// KV blocks from the engine's log
    #[arg(long, value_name = "BLOCKS")]
    num_gpu_blocks: Option<u64>,
    /// Token budget of a step
    #[arg(long, value_name = "TOKENS")]
    max_num_batched_tokens: Option<u64>,
    /// Most running requests
    #[arg(long, value_name = "SEQS")]
    max_num_seqs: Option<u64>,
}

const HELP: &str = "\
A calibration holds for one deployment: model, GPU, group size, precisions. Scenarios name the file
(calibration = \"calibration.toml\"). One to three multipliers are tried - host time; weights,
element-wise work and network; attention - and the number that predicts points left out of the fit
best is written. Refused: points of several deployments, points that contradict each other, factors
with which a step would beat the data sheet.

Examples:
  tonnage calibrate mine.csv -o calibration.toml
  tonnage calibrate c1.json c8.json c32.json --gpu h100 --tp 2 -o calibration.toml
  tonnage calibrate before.txt after.txt --seconds 600 --gpu h200 -o calibration.toml";

/// Runs the command.
pub fn run(args: &Args) -> Result<Outcome> {
    if !(1..=3).contains(&args.multipliers) {
        return Err(Error::found(args.multipliers, "1 to 3").in_field("--multipliers"));
    }
    check_use(args)?;
    refuse_own_outputs(std::slice::from_ref(&args.output), &args.files)?;
    let points = points(args)?;
    let fitted = fit(&points, args.multipliers, args.seed)?;
    let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let comment = format!("Fitted by `tonnage calibrate` to {}.", names.join(", "));
    let text = fitted.calibration.to_toml(&comment);
    let mut file = NewFile::create(&args.output)?;
    file.write_all(text.as_bytes()).map_err(|error| Error::io(&args.output, "write", &error))?;
    file.commit()?;
    show(|out| report(&points, &fitted, &args.output, out))?;
    Ok(Outcome::Met)
}

fn ending(file: &Path, wanted: &str) -> bool {
    file.extension().is_some_and(|found| found.eq_ignore_ascii_case(wanted))
}

/// Refuses options that none of the files heeds.
fn check_use(args: &Args) -> Result<()> {
    let Host { gpu, model, tp, dp, precision, kv_cache_dtype, num_gpu_blocks, .. } = &args.host;
    let Host { max_num_batched_tokens, max_num_seqs, .. } = &args.host;
    let host = [gpu, model, precision, kv_cache_dtype].iter().any(|text| text.is_some())
        || [tp, dp].iter().any(|size| size.is_some())
        || [num_gpu_blocks, max_num_batched_tokens, max_num_seqs].iter().any(|n| n.is_some());
    let files = || args.files.iter();
    let tables = files().filter(|file| ending(file, "csv")).count();
    let results = files().filter(|file| ending(file, "json")).count();
    let scrapes = args.files.len() - tables - results;
    for (given, heeded, field, what) in [
        (host, results + scrapes, "--gpu, --model, ...", "a table says itself what served"),
        (args.seconds.is_some(), scrapes, "--seconds", "there is no pair of scrapes"),
        (args.filter.is_given(), tables, "--only-...", "there is no table to choose from"),
    ] {
        if given && heeded == 0 {
            return Err(Error::new(format!("without effect: {what}")).in_field(field));
        }
    }
    Ok(())
}

fn points(args: &Args) -> Result<Vec<Point>> {
    let (mut points, mut scrapes) = (Vec::new(), Vec::new());
    for file in &args.files {
        if ending(file, "csv") {
            points.extend(table(file, args)?);
        } else if ending(file, "json") {
            points.push(Point::Run(bench::read(file, &host(args, file)?)?));
        } else {
            scrapes.push(file);
        }
    }
    if scrapes.is_empty() {
        return Ok(points);
    }
    let pages = scrapes.iter().map(|file| page(file)).collect::<Result<Vec<Page>>>()?;
    if scrapes.len() % 2 == 1 {
        let text = format!("{} scrapes, allowed: pairs, the earlier one first", scrapes.len());
        return Err(Error::new(text));
    }
    let seconds = args.seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    let seconds = seconds.ok_or_else(|| {
        Error::new("scrapes need the time between them, more than 0").in_field("--seconds")
    })?;
    for (pair, files) in pages.chunks(2).zip(scrapes.chunks(2)) {
        if let ([first, second], [_, file]) = (pair, files) {
            let host = host(args, file)?;
            let run = between(first, second, seconds, &host)?;
            points.push(Point::Run(run));
        }
    }
    Ok(points)
}

/// A file that is neither a table nor a result by its name.
fn page(file: &Path) -> Result<Page> {
    Page::read(file).map_err(|error| {
        error.help(
            "understood are tables of `tonnage validate` (.csv), results of `vllm bench serve \
             --save-result` (.json) and, under any other name, pairs of scrapes of vLLM's /metrics",
        )
    })
}

/// The rows of a table that can be simulated; doubtful ones are left out.
fn table(file: &Path, args: &Args) -> Result<Vec<Point>> {
    let table = Table::read(file)?;
    let points: Vec<Point> = match table.form {
        Form::Requests => requests::read(&table)?.into_iter().map(Point::Log).collect(),
        Form::Runs => {
            let read = |row| Ok(Point::Run(as_measured(Run::read(&row)?)));
            table.rows().map(read).collect::<Result<_>>()?
        }
        Form::Sweeps => {
            return Err(Error::new("a sweep of hit rates tells nothing of step times")
                .in_file(file.display()));
        }
    };
    let taken = |point: &Point| args.filter.takes(point.run()) && !point.run().is_doubtful();
    Ok(points.into_iter().filter(taken).collect())
}

fn host(args: &Args, file: &Path) -> Result<Run> {
    let host = &args.host;
    let gpu = host.gpu.as_deref().ok_or_else(|| {
        Error::new("the file does not say on which GPU: give --gpu").in_file(file.display())
    })?;
    let name = file.display().to_string();
    let model = host.model.as_deref().unwrap_or_default();
    let precision = host.precision.as_deref().unwrap_or_default();
    Ok(Run {
        dp: host.dp.unwrap_or(1),
        kv_cache_dtype: host.kv_cache_dtype.clone(),
        num_gpu_blocks: host.num_gpu_blocks,
        max_batched_tokens: host.max_num_batched_tokens,
        max_num_seqs: host.max_num_seqs,
        ..Run::bare(&name, gpu, model, precision, host.tp.unwrap_or(1))
    })
}

fn report(
    points: &[Point],
    fitted: &Fitted,
    output: &Path,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let Calibration { model, gpu, tensor_parallel_size: tp, weights, fit, .. } =
        &fitted.calibration;
    let ranks = match fitted.calibration.data_parallel_size {
        1 => String::new(),
        ranks => format!("{ranks} ranks of "),
    };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let signed = |share: Option<f64>| {
        share.map_or("-".to_owned(), |share| format!("{:+.1} %", share * 100.0))
    };
    writeln!(out, "{model} in {} on {ranks}{tp} x {gpu}, {} points", weights.name(), points.len())?;
    writeln!(out, "mean error without calibration: {}\n", percent(fit.error_before))?;
    writeln!(out, "multipliers   host  linear  attention   error  left out")?;
    for tried in &fitted.tried {
        let mark = if tried.multipliers as u64 == fit.multipliers { "  <- chosen" } else { "" };
        let left_out = tried.left_out.map_or("-".to_owned(), percent);
        writeln!(
            out,
            "{:>11} {:>6.3} {:>7.3} {:>10.3} {:>7} {left_out:>9}{mark}",
            tried.multipliers,
            tried.factors.host,
            tried.factors.linear,
            tried.factors.attention,
            percent(tried.error),
        )?;
    }
    writeln!(out)?;
    for (point, (itl, e2e)) in points.iter().zip(&fitted.errors) {
        writeln!(out, "{}: itl {}, e2e {}", point.name(), signed(*itl), signed(*e2e))?;
    }
    writeln!(out)?;
    fitted.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    if fit.error_left_out.is_none() {
        writeln!(out, "\nOne point: how well it predicts others is not known. Give more.")?;
    }
    writeln!(
        out,
        "\nStep times of other runs: {} to {} of the simulated ones. Written to {}.",
        signed(Some(fit.band_low)),
        signed(Some(fit.band_high)),
        output.display()
    )
}
