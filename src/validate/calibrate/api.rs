//! Host time of a request outside the engine's steps, as far as measurements tell it apart.
//!
//! Before the queue: what the first token of a request to an idle server takes besides the steps.
//! How much of it each prompt token takes is told by prompts of several lengths only. After the
//! last token: what a request takes besides its first token and the time between tokens. A
//! measurement that is derived from the others tells nothing of it.

use super::super::rules::{Plan, Times};
use super::super::runs::{Latencies, Offered, Run};
use super::{Point, in_flight};
use crate::config::api_time::ApiTime;
use crate::config::calibration::ApiTimes;
use crate::diag::Result;
use crate::units::Tokens;

/// How far whole steps that prefill are off against kernel tables.
const PREFILL_ERROR: f64 = 0.08;
/// A time is told if it is uncertain by no more than half of it, or by this many milliseconds.
const CERTAIN_MS: f64 = 2.0;
/// The same of a prompt token, in milliseconds.
const CERTAIN_TOKEN_MS: f64 = 0.5e-3;
/// Longest over shortest prompt from which lengths differ.
const SPREAD: f64 = 2.0;
/// E2E is TTFT and ITL added up if it differs from their sum by no more than this share.
const ADDED_UP: f64 = 2e-3;
/// Share by which the times for each output token may differ from their mean, and milliseconds.
const SCATTER: (f64, f64) = (0.5, 10e-3);

/// What was told, and why the rest was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiFit {
    /// What was told.
    pub times: ApiTimes,
    /// What it rests on, and what could not be told.
    pub notes: Vec<String>,
}

/// Points with what their simulation gave.
#[derive(Clone, Copy, Debug)]
pub struct Outcomes<'a> {
    /// The measurements.
    pub points: &'a [&'a Point],
    /// What calibrated steps give, for each of them.
    pub simulated: &'a [Latencies],
    /// The host time with which that was simulated.
    pub api: ApiTime,
    /// How far off the steps are to be expected.
    pub error: f64,
    /// Seed of drawn lengths.
    pub seed: u64,
}

/// Fits what can be told, rounded as a file has it.
///
/// # Errors
/// A point that cannot be simulated.
pub fn fit(outcomes: Outcomes<'_>) -> Result<ApiFit> {
    let mut found = ApiFit::default();
    match before(outcomes)? {
        Ok(before) => {
            found.times.request_ms = Some(before.request_ms);
            found.times.prompt_token_us = before.prompt_token_us;
            found.notes.extend(before.notes);
        }
        Err(reason) => found.notes.push(format!("host time before the queue not told: {reason}")),
    }
    match after(outcomes.points) {
        Ok((us, told_by)) => {
            found.times.output_token_us = Some(us);
            found.notes.push(format!(
                "host time after each output token: told by {told_by} of the points"
            ));
        }
        Err(reason) => found.notes.push(format!("host time after each token not told: {reason}")),
    }
    found.times = found.times.rounded();
    Ok(found)
}

/// What a request to an idle server takes before the steps.
struct Before {
    request_ms: f64,
    prompt_token_us: Option<f64>,
    notes: Vec<String>,
}

/// One measurement at an idle server.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    prompt: f64,
    /// Measured time to the first token without that of the engine, in ms.
    rest_ms: f64,
    /// One over the square of how far that may be off.
    weight: f64,
}

impl Quiet {
    fn off(&self) -> f64 {
        self.weight.sqrt().recip()
    }
}

/// At most one request at a time.
fn is_quiet(run: &Run) -> bool {
    match run.offered {
        Offered::Concurrency(seqs) => seqs == 1,
        Offered::Rate(_) | Offered::Random(_) => in_flight(run) <= 0.5,
    }
}

fn quiet(outcomes: Outcomes<'_>) -> Result<Vec<Quiet>> {
    let Outcomes { points, simulated, api, error, seed } = outcomes;
    let mut found = Vec::new();
    for (point, simulated) in points.iter().zip(simulated) {
        let Point::Run(run) = point else { continue };
        let (Some(measured), Some(told)) = (run.measured.ttft_ms, simulated.ttft_ms) else {
            continue;
        };
        if !is_quiet(run) {
            continue;
        }
        let asks = Plan::of(run, Times::default(), seed)?.asks;
        let prompts: f64 = asks.iter().map(|ask| ask.prompt.as_f64()).sum();
        let prompt = prompts / asks.len().max(1) as f64;
        let own = api.before_queue(Tokens(0)).as_f64() + api.prompt_token.as_f64() * prompt;
        let engine_ms = told - own / 1e6;
        let off = engine_ms * error.max(PREFILL_ERROR);
        let weight = 1.0 / (off * off).max(1e-6);
        found.push(Quiet { prompt, rest_ms: measured - engine_ms, weight });
    }
    Ok(found)
}

fn before(outcomes: Outcomes<'_>) -> Result<std::result::Result<Before, String>> {
    if outcomes.points.iter().all(|point| matches!(point, Point::Log(_))) {
        let text = "the times of a log start in the engine's queue, behind it";
        return Ok(Err(text.to_owned()));
    }
    let quiet = quiet(outcomes)?;
    Ok(told_by(&quiet))
}

fn told_by(quiet: &[Quiet]) -> std::result::Result<Before, String> {
    if quiet.is_empty() {
        let text = "no first token of an idle server is measured (one request at a time, with the \
                    time to the first token)";
        return Err(text.to_owned());
    }
    let sum =
        |of: &dyn Fn(&Quiet) -> f64| quiet.iter().map(|one| one.weight * of(one)).sum::<f64>();
    let weights = sum(&|_| 1.0);
    let (prompt, rest) = (sum(&|one| one.prompt) / weights, sum(&|one| one.rest_ms) / weights);
    // Steps that prefill are off by one share in all of them: more points do not make up for it.
    let off = sum(&Quiet::off) / weights;
    if rest <= 0.0 {
        return Err(format!(
            "steps alone take {:.1} ms longer than the first token: they are too slow there",
            -rest
        ));
    }
    if off > (rest / 2.0).max(CERTAIN_MS) {
        return Err(format!(
            "it would be {rest:.1} ms and is uncertain by {off:.1} ms, the error of the steps: \
             measure shorter prompts"
        ));
    }
    let spread = sum(&|one| (one.prompt - prompt).powi(2));
    let slope = sum(&|one| (one.prompt - prompt) * (one.rest_ms - rest)) / spread.max(1e-9);
    // That share is another one for short prompts than for long ones, but not from point to point.
    let side = |sign: f64| sum(&|one| ((one.prompt - prompt) * sign).max(0.0) * one.off());
    let slope_off = side(1.0).hypot(side(-1.0)) / spread.max(1e-9);
    let shortest = quiet.iter().map(|one| one.prompt).fold(f64::INFINITY, f64::min);
    let longest = quiet.iter().map(|one| one.prompt).fold(0.0, f64::max);
    let differ = longest >= SPREAD * shortest;
    let default_ms = ApiTime::default().prompt_token.as_f64() / 1e6;
    let certain = slope_off <= (slope.abs() / 2.0).max(CERTAIN_TOKEN_MS);
    let told = differ && certain;
    // Neither part is negative, nor are both together more than was measured.
    let most_ms = rest / prompt;
    let lowered = !told && most_ms < default_ms;
    let token_ms = if told { slope.clamp(0.0, most_ms) } else { default_ms.min(most_ms) };
    let mut notes = vec![format!(
        "host time before the queue: told by {} of the points, {rest:.1} ms at a mean prompt of \
         {prompt:.0} tokens, uncertain by {off:.1} ms",
        quiet.len()
    )];
    if !told {
        let why = match differ {
            false => "all prompts are about as long".to_owned(),
            true => format!("it is uncertain by {:.1} us", slope_off * 1e3),
        };
        let left = match lowered {
            false => "left as it was".to_owned(),
            true => format!(
                "lowered to {:.1} us, because {:.1} us would be more than all of it",
                token_ms * 1e3,
                default_ms * 1e3
            ),
        };
        notes.push(format!("of it for each prompt token: not told, {why}; {left}"));
    }
    Ok(Before {
        request_ms: (rest - token_ms * prompt).max(0.0),
        prompt_token_us: (told || lowered).then_some(token_ms * 1e3),
        notes,
    })
}

/// Microseconds for each output token, and by how many points they are told.
fn after(points: &[&Point]) -> std::result::Result<(f64, usize), String> {
    if !points.is_empty() && points.iter().all(|point| matches!(point, Point::Log(_))) {
        return Err("the times of a log end with the engine's last token".to_owned());
    }
    let mut found = Vec::new();
    let mut derived = 0;
    for point in points {
        let Point::Run(run) = point else { continue };
        let Latencies { ttft_ms, itl_ms, e2e_ms, .. } = run.measured;
        let (Some(ttft), Some(itl), Some(e2e)) = (ttft_ms, itl_ms, e2e_ms) else { continue };
        let rest = e2e - ttft - itl * run.osl.saturating_sub(1) as f64;
        // A benchmark client takes its time for a token from E2E and TTFT.
        if run.line == 0 || rest.abs() <= ADDED_UP * e2e {
            derived += 1;
        } else {
            found.push(rest / run.osl as f64);
        }
    }
    if found.is_empty() {
        return Err(match derived {
            0 => "no run has its time to the first token, between tokens and of a request".into(),
            _ => "the time of a request is that to the first token and that between tokens added \
                  up"
            .to_owned(),
        });
    }
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    let scatter = (SCATTER.0 * mean.abs()).max(SCATTER.1);
    if let Some(other) = found.iter().find(|value| (*value - mean).abs() > scatter) {
        return Err(format!(
            "the points contradict each other: {:.0} us and {:.0} us in the mean",
            other * 1e3,
            mean * 1e3
        ));
    }
    match mean < 0.0 {
        true => Err("requests end before their last token".to_owned()),
        false => Ok((mean * 1e3, found.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares of 8 % of 10 ms and of 40 ms: 0.8 and 3.2 ms.
    fn quiet(prompt: f64, rest_ms: f64, off: f64) -> Quiet {
        Quiet { prompt, rest_ms, weight: 1.0 / (off * off) }
    }

    #[test]
    fn two_lengths_tell_both_parts() {
        // 9 ms and 3 us a token.
        let told = told_by(&[quiet(100.0, 9.3, 0.2), quiet(4_000.0, 21.0, 1.0)]).unwrap();
        assert!((told.request_ms - 9.0).abs() < 1e-9, "{}", told.request_ms);
        assert!((told.prompt_token_us.unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn one_length_tells_their_sum() {
        let told = told_by(&[quiet(1_000.0, 12.0, 1.0), quiet(1_000.0, 14.0, 1.0)]).unwrap();
        // 13 ms less 2 us for each of 1,000 tokens.
        assert!((told.request_ms - 11.0).abs() < 1e-9);
        assert_eq!(told.prompt_token_us, None);
        assert!(told.notes[1].contains("all prompts are about as long"), "{:?}", told.notes);
    }

    #[test]
    fn what_steps_hide_is_refused() {
        let refused = |quiet: &[Quiet]| told_by(quiet).err().unwrap();
        assert!(refused(&[]).contains("no first token of an idle server"));
        assert!(refused(&[quiet(8_000.0, 20.0, 25.0)]).contains("uncertain by 25.0 ms"));
        assert!(refused(&[quiet(8_000.0, -5.0, 1.0)]).contains("5.0 ms longer"));
        // The token's part is lost in the error of long prompts, the sum is not.
        let told = told_by(&[quiet(100.0, 9.0, 0.2), quiet(9_000.0, 40.0, 30.0)]).unwrap();
        assert!(told.prompt_token_us.is_none() && told.notes[1].contains("uncertain by 3.4 us"));
    }

    /// The error of the steps is one for all points of a deployment: measuring again takes none of
    /// it away.
    #[test]
    fn points_that_are_repeated_are_no_more_certain() {
        let refused = told_by(&[quiet(4_000.0, 20.0, 12.0); 4]).err().unwrap();
        assert!(refused.contains("uncertain by 12.0 ms"), "{refused}");
        let (short, long) = (quiet(1_000.0, 10.0, 2.0), quiet(2_000.0, 12.0, 4.0));
        let once = told_by(&[short, long]).unwrap();
        let often = told_by(&[[short; 36], [long; 36]].concat()).unwrap();
        for told in [once, often] {
            assert_eq!(told.prompt_token_us, None);
            assert!(told.notes[1].contains("uncertain by 4.5 us"), "{:?}", told.notes);
        }
    }

    /// 12 ms at 10,000 tokens are less than 2 us for each of them.
    #[test]
    fn no_more_is_told_than_was_measured() {
        let told = told_by(&[quiet(10_000.0, 12.0, 1.0)]).unwrap();
        let token_us = told.prompt_token_us.expect("the default does not fit in");
        assert!((token_us - 1.2).abs() < 1e-9 && told.request_ms < 1e-9, "{token_us}");
        assert!(told.notes[1].contains("lowered to 1.2 us"), "{:?}", told.notes);
    }

    fn run(line: u64, e2e_ms: f64) -> Point {
        let measured = Latencies {
            ttft_ms: Some(30.0),
            itl_ms: Some(10.0),
            e2e_ms: Some(e2e_ms),
            rate_rps: None,
        };
        Point::Run(Run { line, osl: 101, measured, ..Run::bare("", "h100", "", "", 1) })
    }

    #[test]
    fn what_is_added_up_tells_nothing_of_the_end() {
        let refused = |points: &[Point]| after(&points.iter().collect::<Vec<_>>()).unwrap_err();
        assert!(refused(&[run(2, 1_030.0)]).contains("added"));
        assert!(refused(&[run(0, 1_035.05)]).contains("added"), "a benchmark client's");
        assert!(refused(&[]).contains("no run has"));
        assert!(refused(&[run(2, 1_035.0), run(3, 1_060.0)]).contains("contradict"));
        assert!(refused(&[run(2, 1_000.0)]).contains("before their last token"));
        // 5.05 ms for 101 tokens.
        let (us, count) = after(&[&run(2, 1_035.05), &run(3, 1_035.05)]).unwrap();
        assert!((us - 50.0).abs() < 1e-6 && count == 2);
    }
}
