//! Fitting multipliers of the step time to measurements of one deployment.
//!
//! Each measurement is simulated as it was made, so that queueing, batching and caching are those
//! of the real run. The multipliers minimise the squares of the relative errors of the time between
//! tokens and of the time of a request, pulled to 1 with a weight of 0.05 x sqrt(points). One, two
//! or three multipliers are tried; the number that predicts points left out of the fit best wins.
//!
//! Host time of requests is part of E2E and of TTFT, and what is told of it depends on the steps:
//! both are fitted in turn, so that errors are those with the host time that is written.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::accuracy::{Quantity, configuration};
use super::requests::Log;
use super::rules::{Deployment, Plan, Times};
use super::runs::{Latencies, Offered, Run};
use super::simulated::{Simulated, simulate};
use crate::config::api_time::ApiTime;
use crate::config::calibration::{ApiTimes, Calibration, Fit};
use crate::diag::{Error, Result};
use crate::engine::step_time::{Factors, StepCost};
use api::{ApiFit, Outcomes};

pub mod api;
pub mod bench;
pub mod scrape;
mod squares;

/// One measurement.
#[derive(Clone, Debug)]
pub enum Point {
    /// The means of a run.
    Run(Run),
    /// A run, request by request.
    Log(Log),
}

impl Point {
    /// Set-up and measured means.
    #[must_use]
    pub fn run(&self) -> &Run {
        match self {
            Self::Run(run) => run,
            Self::Log(log) => &log.head,
        }
    }

    /// The name of its experiment, else its line.
    #[must_use]
    pub fn name(&self) -> String {
        let run = self.run();
        match (run.experiment.as_str(), run.line) {
            ("", line) => format!("line {line}"),
            (name, _) => name.to_owned(),
        }
    }

    /// Simulates it.
    ///
    /// # Errors
    /// Why it cannot be simulated.
    pub fn simulate(&self, times: Times, seed: u64) -> Result<Simulated> {
        match self {
            Self::Run(run) => simulate(run, times, seed),
            Self::Log(log) => log.simulate(times.factors),
        }
    }
}

/// A fitted calibration, and what was tried.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// What was chosen.
    pub calibration: Calibration,
    /// Every number of multipliers that was tried, in order.
    pub tried: Vec<Tried>,
    /// What was told of the host time of requests, and what was not.
    pub notes: Vec<String>,
    /// The error of each point with what was chosen, in the order of the points: ITL, then E2E.
    pub errors: Vec<(Option<f64>, Option<f64>)>,
}

/// One number of multipliers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// How many.
    pub multipliers: usize,
    /// What came out.
    pub factors: Factors,
    /// Mean absolute error of the points.
    pub error: f64,
    /// The same of points left out in turn; none with one point.
    pub left_out: Option<f64>,
}

/// Pull of each multiplier to 1, times the root of the number of points.
const PULL: f64 = 0.05;
/// Rounds of linearising and solving.
const ROUNDS: usize = 4;
/// How often multipliers are fitted at most, each time with the host time that the last ones told.
const TURNS: usize = 5;
/// Host time is settled once a turn changes it by no more than this share, and this in its unit.
const SETTLED: (f64, f64) = (5e-3, 1e-3);
/// Step by which derivatives are taken.
const NUDGE: f64 = 0.02;
/// Measurements of one configuration that differ by more than this contradict each other: five
/// times what runs differ by when they are repeated.
const CONTRADICTION: f64 = 0.15;
/// A mean error above this after the fit means that the points follow no such multipliers.
const HOPELESS: f64 = 0.25;
/// More multipliers must be better than fewer by this on points left out.
const WORTHWHILE: f64 = 0.0025;
/// The largest multiplier.
const LARGEST: f64 = 20.0;

/// Fits a calibration; `most` limits the multipliers.
///
/// # Errors
/// Points of several deployments, points that cannot be simulated or contradict each other, or too
/// few of them.
pub fn fit(points: &[Point], most: usize, seed: u64) -> Result<Fitted> {
    let deployment = deployment(points, seed)?;
    check_agreement(points)?;
    let bounds = bounds(&points[0], seed)?;
    let mut solver = Solver { points, seed, bounds, api: ApiTime::default(), told: None };
    let error_before = mean_abs(&solver.errors(Factors::default())?);
    let mut api = ApiFit::default();
    let mut turn = 1;
    let (tried, chosen, ratios, fit) = loop {
        let tried = solver.attempts(most)?;
        let chosen = choose(&tried);
        let ratios = solver.simulate_all(chosen.factors)?;
        let fit = summary(points, &chosen, error_before, &ratios);
        let all: Vec<&Point> = points.iter().collect();
        let error = fit.expected_error();
        let next = solver.host_time(&all, &ratios, error)?;
        let settled = are_near(&api.times, &next.times);
        if settled || turn == TURNS {
            // What is written is what was simulated with.
            if settled {
                api.notes = next.notes;
            }
            break (tried, chosen, ratios, fit);
        }
        (solver.api, solver.told) = (next.times.or_default(), Some(error));
        (api, turn) = (next, turn + 1);
    };
    refuse_hopeless(&chosen, error_before)?;
    let calibration = Calibration {
        file: String::new(),
        model: deployment.model,
        gpu: deployment.gpu.to_owned(),
        tensor_parallel_size: deployment.tp,
        data_parallel_size: deployment.dp,
        weights: deployment.weights,
        kv_dtype: deployment.kv_dtype,
        host: rounded(chosen.factors.host),
        linear: rounded(chosen.factors.linear),
        attention: rounded(chosen.factors.attention),
        api: api.times,
        fit,
    };
    let errors = points.iter().zip(&ratios).map(|(point, simulated)| {
        let measured = &point.run().measured;
        (Quantity::Itl.error(simulated, measured), Quantity::E2e.error(simulated, measured))
    });
    Ok(Fitted { errors: errors.collect(), calibration, tried, notes: api.notes })
}

/// Six digits, so that a file says what was fitted and no more.
fn rounded(factor: f64) -> f64 {
    // Upwards, so that a factor at its bound stays allowed.
    (factor * 1e6).ceil() / 1e6
}

fn are_near(before: &ApiTimes, after: &ApiTimes) -> bool {
    let near = |before: Option<f64>, after: Option<f64>| match (before, after) {
        (Some(a), Some(b)) => (a - b).abs() <= SETTLED.0 * b + SETTLED.1,
        (a, b) => a == b,
    };
    near(before.request_ms, after.request_ms)
        && near(before.prompt_token_us, after.prompt_token_us)
        && near(before.output_token_us, after.output_token_us)
}

fn choose(tried: &[Tried]) -> Tried {
    let mut best = tried[0];
    for next in &tried[1..] {
        if let (Some(now), Some(then)) = (next.left_out, best.left_out)
            && now < then - WORTHWHILE
        {
            best = *next;
        }
    }
    best
}

fn refuse_hopeless(chosen: &Tried, before: f64) -> Result<()> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let left_out = chosen.left_out.unwrap_or(chosen.error);
    if chosen.error > HOPELESS {
        let text = format!(
            "the points contradict any multipliers: the mean error is still {} (without \
             calibration {})",
            percent(chosen.error),
            percent(before)
        );
        return Err(Error::new(text).help("check model, GPU, precision and load of each point"));
    }
    if left_out > before + 0.01 {
        let text = format!(
            "the points contradict each other: those left out of the fit are {} off, and without \
             calibration they are {} off",
            percent(left_out),
            percent(before)
        );
        return Err(Error::new(text).help("leave out what was measured under other conditions"));
    }
    Ok(())
}

fn summary(points: &[Point], chosen: &Tried, error_before: f64, simulated: &[Latencies]) -> Fit {
    let ratios = points.iter().zip(simulated).flat_map(|(point, simulated)| {
        let measured = point.run().measured;
        let itl = Quantity::Itl.error(simulated, &measured);
        itl.or(Quantity::E2e.error(simulated, &measured)).map(|error| 1.0 / (1.0 + error) - 1.0)
    });
    let ratios: Vec<f64> = ratios.collect();
    let seqs = points.iter().map(|point| in_flight(point.run()));
    let seqs: Vec<f64> = seqs.collect();
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let runs = || points.iter().map(Point::run);
    // One point meets itself: what others will do is as uncertain as before.
    let band = match points.len() {
        1 => (-error_before, error_before),
        _ => (least(&ratios), largest(&ratios)),
    };
    Fit {
        points: points.len() as u64,
        multipliers: chosen.multipliers as u64,
        error_before,
        error: chosen.error,
        error_left_out: chosen.left_out,
        band_low: band.0,
        band_high: band.1,
        seqs: (least(&seqs), largest(&seqs)),
        context: (
            runs().map(|run| run.isl).min().unwrap_or(0),
            runs().map(|run| run.isl + run.osl).max().unwrap_or(0),
        ),
    }
}

/// Requests in flight: of a closed loop those of its clients, else by Little's law.
#[must_use]
pub fn in_flight(run: &Run) -> f64 {
    match run.offered {
        Offered::Concurrency(seqs) => seqs as f64,
        Offered::Rate(rate) | Offered::Random(rate) => {
            let Latencies { ttft_ms, itl_ms, e2e_ms, .. } = run.measured;
            let decode = itl_ms.map(|itl| itl * run.osl as f64 + ttft_ms.unwrap_or(0.0));
            e2e_ms.or(decode).map_or(0.0, |ms| rate * ms / 1e3)
        }
    }
}

/// The one deployment of all points.
fn deployment(points: &[Point], seed: u64) -> Result<Deployment> {
    let mut found: BTreeMap<String, Deployment> = BTreeMap::new();
    for point in points {
        let name = point.name();
        if [Quantity::Itl, Quantity::E2e].iter().all(|q| q.of(&point.run().measured).is_none()) {
            let text = format!("{name}: neither the time between tokens nor that of a request");
            return Err(Error::new(text).help("nothing can be fitted to the first token alone"));
        }
        let simulated = point.simulate(Times::default(), seed);
        let deployment = simulated.map_err(|error| at(&name, &error))?.deployment;
        let Deployment { model, gpu, tp, dp, weights, kv_dtype, .. } = &deployment;
        let ranks = if *dp > 1 { format!("{dp} ranks of ") } else { String::new() };
        let (weights, kv) = (weights.name(), kv_dtype.name());
        let text = format!("{model} in {weights}, {kv} KV, on {ranks}{tp} x {gpu}");
        found.entry(text).or_insert(deployment);
    }
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    match names.len() {
        0 => Err(Error::new("too few points: there is none")
            .help("give measurements of the deployment that is to be calibrated")),
        1 => found.into_values().next().ok_or_else(|| Error::new("no deployment")),
        _ => {
            Err(Error::new(format!("points of {} deployments: {}", names.len(), names.join("; ")))
                .help("a calibration holds for one: choose with --model, --gpu, --tp, --precision"))
        }
    }
}

fn at(name: &str, error: &Error) -> Error {
    Error::new(format!("{name}: {}", error.message()))
}

/// Refuses measurements of one configuration that do not agree.
fn check_agreement(points: &[Point]) -> Result<()> {
    let mut same: BTreeMap<String, Vec<&Point>> = BTreeMap::new();
    for point in points.iter().filter(|point| matches!(point, Point::Run(_))) {
        same.entry(configuration(point.run())).or_default().push(point);
    }
    for group in same.values() {
        let itl = |point: &&Point| point.run().measured.itl_ms;
        let known = || group.iter().filter_map(|point| Some((itl(point)?, point)));
        let least = known().min_by(|a, b| a.0.total_cmp(&b.0));
        let most = known().max_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(least), Some(most)) = (least, most)
            && most.0 / least.0 - 1.0 > CONTRADICTION
        {
            let text = format!(
                "{} and {} contradict each other: the same configuration, {} and {} ms between \
                 tokens",
                least.1.name(),
                most.1.name(),
                least.0,
                most.0
            );
            return Err(Error::new(text).help("leave one of them out"));
        }
    }
    Ok(())
}

/// The least multipliers with which no step beats the data sheet: host, linear, attention.
fn bounds(point: &Point, seed: u64) -> Result<[f64; 3]> {
    let cost = match point {
        Point::Run(run) => Plan::of(run, Times::default(), seed)?.server.cost,
        Point::Log(log) => log.server(Factors::default())?.cost,
    };
    let least = |with: fn(f64) -> Factors| least_allowed(&cost, with);
    Ok([
        1e-3,
        least(|linear| Factors { linear, ..Factors::default() }),
        least(|attention| Factors { attention, ..Factors::default() }),
    ])
}

/// By halving: a multiplier is allowed from some value up to 1 on.
fn least_allowed(cost: &StepCost, with: impl Fn(f64) -> Factors) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        match cost.clone().with_factors(with(middle)) {
            Ok(_) => high = middle,
            Err(_) => low = middle,
        }
    }
    high
}

struct Solver<'a> {
    points: &'a [Point],
    seed: u64,
    bounds: [f64; 3],
    /// Host time of requests.
    api: ApiTime,
    /// The error of the steps with which that was told; none where it is the default.
    told: Option<f64>,
}

/// Which multipliers move together: by host, linear and attention.
fn groups(multipliers: usize) -> [usize; 3] {
    match multipliers {
        1 => [0, 0, 0],
        2 => [0, 1, 1],
        _ => [0, 1, 2],
    }
}

fn factors(multipliers: usize, values: &[f64]) -> Factors {
    let [host, linear, attention] = groups(multipliers).map(|group| values[group]);
    Factors { host, linear, attention }
}

impl Solver<'_> {
    fn simulate_all(&self, factors: Factors) -> Result<Vec<Latencies>> {
        let times = Times { factors, api: self.api };
        let one = |point: &Point| Ok(point.simulate(times, self.seed)?.latencies);
        self.points.par_iter().map(one).collect()
    }

    /// The error of each point: of ITL and E2E, whichever are known.
    fn errors(&self, factors: Factors) -> Result<Vec<Vec<f64>>> {
        let simulated = self.simulate_all(factors)?;
        let pairs = self.points.iter().zip(&simulated);
        Ok(pairs.map(|(point, simulated)| errors_of(point, simulated)).collect())
    }

    /// What these points tell of the host time.
    fn host_time(&self, points: &[&Point], simulated: &[Latencies], error: f64) -> Result<ApiFit> {
        let Self { api, seed, .. } = *self;
        api::fit(Outcomes { points, simulated, api, error, seed })
    }

    fn attempts(&self, most: usize) -> Result<Vec<Tried>> {
        let count = self.points.len();
        // A multiplier more than there are points, or as many, is no fit but a copy.
        let fits = |multipliers: &usize| *multipliers == 1 || count > *multipliers;
        (1..=most.min(3)).take_while(fits).map(|multipliers| self.attempt(multipliers)).collect()
    }

    fn attempt(&self, multipliers: usize) -> Result<Tried> {
        let bound = |group: usize| {
            let own = groups(multipliers).into_iter().zip(self.bounds);
            own.filter(|(other, _)| *other == group).map(|(_, bound)| bound).fold(0.0, f64::max)
        };
        let bounds: Vec<f64> = (0..multipliers).map(bound).collect();
        let mut values = vec![1.0; multipliers];
        let mut rows = Vec::new();
        for _ in 0..ROUNDS {
            rows = self.linearised(multipliers, &values)?;
            values = solve(rows.iter().flatten(), &values, &bounds, self.points.len());
        }
        let chosen = factors(multipliers, &values);
        let simulated = self.simulate_all(chosen)?;
        let pairs = self.points.iter().zip(&simulated);
        let errors: Vec<Vec<f64>> = pairs.map(|(point, found)| errors_of(point, found)).collect();
        let error = mean_abs(&errors);
        let left_out = if self.points.len() > 1 {
            let start = Start { values: &values, bounds: &bounds, simulated: &simulated };
            Some(self.left_out(multipliers, &rows, &start)?)
        } else {
            None
        };
        Ok(Tried { multipliers, factors: chosen, error, left_out })
    }

    /// For each point the error and its derivatives, at these values.
    fn linearised(&self, multipliers: usize, values: &[f64]) -> Result<Vec<Vec<Equation>>> {
        let here = self.errors(factors(multipliers, values))?;
        let mut nudged = Vec::new();
        for at in 0..multipliers {
            let mut values = values.to_vec();
            values[at] *= 1.0 + NUDGE;
            nudged.push(self.errors(factors(multipliers, &values))?);
        }
        let equations = here.iter().enumerate().map(|(point, errors)| {
            let weight = 1.0 / (errors.len() as f64).sqrt();
            let equation = |(which, &error): (usize, &f64)| {
                let slope =
                    |at: usize| (nudged[at][point][which] - error) / (NUDGE * values[at]) * weight;
                let slopes: Vec<f64> = (0..multipliers).map(slope).collect();
                let moved: f64 = slopes.iter().zip(values).map(|(slope, at)| slope * at).sum();
                Equation { slopes, wanted: moved - error * weight }
            };
            errors.iter().enumerate().map(equation).collect()
        });
        Ok(equations.collect())
    }

    /// The mean error of points that had no part in the fit, each simulated with what the others
    /// gave.
    fn left_out(
        &self,
        multipliers: usize,
        rows: &[Vec<Equation>],
        start: &Start<'_>,
    ) -> Result<f64> {
        let one = |(left, point): (usize, &Point)| {
            let others = rows.iter().enumerate().filter(|(at, _)| *at != left);
            let others = others.flat_map(|(_, equations)| equations);
            let values = solve(others, start.values, start.bounds, self.points.len() - 1);
            let api = match self.told {
                Some(error) => self.told_without(left, start.simulated, error)?,
                None => self.api,
            };
            let times = Times { factors: factors(multipliers, &values), api };
            let simulated = point.simulate(times, self.seed)?;
            Ok(errors_of(point, &simulated.latencies))
        };
        let errors: Result<Vec<Vec<f64>>> = self.points.par_iter().enumerate().map(one).collect();
        Ok(mean_abs(&errors?))
    }

    /// The host time as all points but one tell it.
    fn told_without(&self, left: usize, simulated: &[Latencies], error: f64) -> Result<ApiTime> {
        let pairs = self.points.iter().zip(simulated).enumerate();
        let others = pairs.filter(|(at, _)| *at != left).map(|(_, (point, found))| (point, *found));
        let (points, simulated): (Vec<&Point>, Vec<Latencies>) = others.unzip();
        Ok(self.host_time(&points, &simulated, error)?.times.or_default())
    }
}

/// Where a fit of fewer points starts: what all of them gave.
struct Start<'a> {
    values: &'a [f64],
    bounds: &'a [f64],
    simulated: &'a [Latencies],
}

/// One linear equation: the slopes times the multipliers are what is wanted.
#[derive(Clone, Debug)]
struct Equation {
    slopes: Vec<f64>,
    wanted: f64,
}

/// Solves equations and the pull to 1 within bounds.
fn solve<'a>(
    equations: impl Iterator<Item = &'a Equation>,
    start: &[f64],
    bounds: &[f64],
    points: usize,
) -> Vec<f64> {
    let pull = PULL * (points as f64).sqrt();
    let mut all: Vec<(Vec<f64>, f64)> =
        equations.map(|equation| (equation.slopes.clone(), equation.wanted)).collect();
    for at in 0..start.len() {
        let mut slopes = vec![0.0; start.len()];
        slopes[at] = pull;
        all.push((slopes, pull));
    }
    squares::least_within(&all, start, bounds, LARGEST)
}

fn errors_of(point: &Point, simulated: &Latencies) -> Vec<f64> {
    let measured = &point.run().measured;
    [Quantity::Itl, Quantity::E2e].iter().filter_map(|q| q.error(simulated, measured)).collect()
}

/// Each point counts the same, whatever is known of it.
fn mean_abs(errors: &[Vec<f64>]) -> f64 {
    let of_point = |errors: &Vec<f64>| {
        errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len().max(1) as f64
    };
    errors.iter().map(of_point).sum::<f64>() / errors.len().max(1) as f64
}
