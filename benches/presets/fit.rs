//! The fit: constants that are sums of what all rows, an architecture and a weight format have in
//! common, in logarithms, so that a model, a GPU or a format without rows of its own is told by the
//! others.
//!
//! Damped least squares on the logarithm of predicted over measured; beyond 15 % a row pulls with
//! constant force, and each departure from the centre costs as much as an error of some percent.

use super::rows::Row;
use super::terms::{CONSTANTS, Constants};

/// A constant that is fitted: where it starts, the standard deviation of its logarithm, bounds, and
/// what it may depend on.
struct Prior {
    centre: f64,
    spread: f64,
    low: f64,
    high: f64,
    varies: Varies,
}

/// What a constant may depend on. Fewer ways to fit it tell models that were not seen better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Varies {
    /// The architecture, and the format of the weights: how fast they are read and multiplied, and
    /// what a layer's kernels take besides.
    WithBoth,
    /// The architecture alone: the host's start of a step, and the link, which carries 16 bits
    /// whatever the format of the weights is.
    WithArch,
    /// Nothing: the host's work for each sequence.
    Nowhere,
}

impl Varies {
    fn with(self, group: Group) -> bool {
        match group {
            Group::All => true,
            Group::Arch(_) => self != Self::Nowhere,
            Group::Format(_) => self == Self::WithBoth,
        }
    }
}

const fn prior(centre: f64, spread: f64, low: f64, high: f64, varies: Varies) -> Prior {
    Prior { centre, spread, low, high, varies }
}

/// In the order of the first fields of [`Constants`].
const PRIORS: [Prior; CONSTANTS] = [
    prior(0.88, 0.12, 0.5, 0.95, Varies::WithBoth),
    prior(0.80, 0.3, 0.3, 0.95, Varies::WithBoth),
    prior(0.60, 0.2, 0.25, 0.85, Varies::WithBoth),
    prior(0.45, 0.4, 0.15, 0.95, Varies::WithArch),
    prior(0.35, 1.0, 0.02, 4.0, Varies::WithArch),
    prior(42.0, 0.4, 10.0, 120.0, Varies::WithBoth),
    prior(25.0, 0.8, 1.0, 150.0, Varies::WithBoth),
    prior(11.0, 0.6, 1.0, 60.0, Varies::Nowhere),
    prior(6.0, 0.8, 0.5, 40.0, Varies::WithArch),
];
/// What a departure of one standard deviation costs, in squares of [`UNIT`].
const STIFFNESS: f64 = 0.1;
/// The error of a row that counts as one.
const UNIT: f64 = 0.1;
/// The logarithmic error beyond which a row pulls no harder.
const ROBUST: f64 = 0.15;
/// Rows of a model on one GPU up to which each counts in full; more count by their root.
const FULL_ROWS: f64 = 10.0;
const ROUNDS: usize = 200;
/// Damping of the first round. Many fits are nearly as good as the best; short steps from the
/// centre find one near it.
const DAMPING: f64 = 100.0;

/// What rows have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    All,
    Arch(&'static str),
    Format(&'static str),
}

fn groups_of(arch: &'static str, format: &'static str) -> [Group; 3] {
    [Group::All, Group::Arch(arch), Group::Format(format)]
}

/// A fit, with what each group adds to the logarithm of each constant.
pub struct Fit {
    groups: Vec<Group>,
    values: Vec<f64>,
}

impl Fit {
    /// Fits the constants to these rows.
    pub fn to(rows: &[&Row]) -> Self {
        let mut groups: Vec<Group> = rows.iter().flat_map(|row| row_groups(row)).collect();
        groups.sort_unstable();
        groups.dedup();
        let problem = Problem::new(rows, &groups);
        let values = problem.solve();
        Self { groups, values }
    }

    /// The constants of an architecture and a format. Groups without rows add nothing.
    pub fn constants(&self, arch: &'static str, format: &'static str) -> Constants {
        let places = groups_of(arch, format)
            .map(|group| self.groups.iter().position(|known| *known == group));
        let places: Vec<usize> = places.into_iter().flatten().collect();
        constants(&self.values, &self.groups, &places)
    }

    /// The predicted time of a row.
    pub fn predict(&self, row: &Row) -> f64 {
        row.predicted(&self.constants(row.gpu.arch.name(), row.weights.name()))
    }
}

fn row_groups(row: &Row) -> [Group; 3] {
    groups_of(row.gpu.arch.name(), row.weights.name())
}

fn constants(values: &[f64], groups: &[Group], places: &[usize]) -> Constants {
    Constants(std::array::from_fn(|constant| {
        let Prior { centre, spread, low, high, varies } = PRIORS[constant];
        let with = places.iter().filter(|place| varies.with(groups[**place]));
        let offset: f64 = with.map(|place| values[place * CONSTANTS + constant]).sum();
        (centre * (spread * offset).exp()).clamp(low, high)
    }))
}

/// Rows with the same groups, and how much each counts.
struct Cell<'a> {
    places: [usize; 3],
    rows: Vec<(&'a Row, f64)>,
}

struct Problem<'a> {
    cells: Vec<Cell<'a>>,
    groups: &'a [Group],
    unknowns: usize,
}

impl<'a> Problem<'a> {
    fn new(rows: &[&'a Row], groups: &'a [Group]) -> Self {
        let mut cells: Vec<Cell<'a>> = Vec::new();
        for &row in rows {
            let alike = rows
                .iter()
                .filter(|other| other.cell() == row.cell() && other.model == row.model)
                .count() as f64;
            // The root of the weight, as residuals are squared.
            let weight = (FULL_ROWS / alike).min(1.0).powf(0.25);
            let places = row_groups(row).map(|group| {
                groups.binary_search(&group).expect("the groups were collected from these rows")
            });
            match cells.iter_mut().find(|cell| cell.places == places) {
                Some(cell) => cell.rows.push((row, weight)),
                None => cells.push(Cell { places, rows: vec![(row, weight)] }),
            }
        }
        Self { cells, groups, unknowns: groups.len() * CONSTANTS }
    }

    fn residuals(cell: &Cell, constants: &Constants, out: &mut Vec<f64>) {
        for (row, weight) in &cell.rows {
            let error = (row.predicted(constants) / row.measured).ln();
            let size = error.abs();
            let bent = if size < ROBUST { size } else { (ROBUST * (2.0 * size - ROBUST)).sqrt() };
            out.push(bent.copysign(error) * weight / UNIT);
        }
    }

    fn loss(&self, values: &[f64]) -> f64 {
        let mut residuals = Vec::new();
        for cell in &self.cells {
            let constants = constants(values, self.groups, &cell.places);
            Self::residuals(cell, &constants, &mut residuals);
        }
        let pulled: f64 = values.iter().map(|value| value * value).sum();
        residuals.iter().map(|residual| residual * residual).sum::<f64>() + STIFFNESS * pulled
    }

    /// The normal equations at `values`: the matrix row by row, and the gradient.
    fn normal(&self, values: &[f64]) -> (Vec<f64>, Vec<f64>) {
        const STEP: f64 = 1e-4;
        let n = self.unknowns;
        let (mut matrix, mut gradient) = (vec![0.0; n * n], vec![0.0; n]);
        for cell in &self.cells {
            let places = cell.places;
            let mut base = Vec::new();
            Self::residuals(cell, &constants(values, self.groups, &places), &mut base);
            // All groups that move a constant move it alike, so one slope serves them all; one of
            // all rows is among them.
            let all = places.into_iter().find(|place| self.groups[*place] == Group::All);
            let slopes: Vec<Vec<f64>> = (0..CONSTANTS)
                .map(|constant| {
                    let mut moved = values.to_vec();
                    moved[all.unwrap_or(0) * CONSTANTS + constant] += STEP;
                    let mut there = Vec::new();
                    Self::residuals(cell, &constants(&moved, self.groups, &places), &mut there);
                    there.iter().zip(&base).map(|(new, old)| (new - old) / STEP).collect()
                })
                .collect();
            let moves = |place: usize, constant: usize| -> bool {
                PRIORS[constant].varies.with(self.groups[place])
            };
            for (first, slope) in slopes.iter().enumerate() {
                let pull: f64 = slope.iter().zip(&base).map(|(a, b)| a * b).sum();
                for place in places.into_iter().filter(|place| moves(*place, first)) {
                    gradient[place * CONSTANTS + first] += pull;
                }
                for (second, other) in slopes.iter().enumerate() {
                    let product: f64 = slope.iter().zip(other).map(|(a, b)| a * b).sum();
                    for row in places.into_iter().filter(|place| moves(*place, first)) {
                        for column in places.into_iter().filter(|place| moves(*place, second)) {
                            matrix[(row * CONSTANTS + first) * n + column * CONSTANTS + second] +=
                                product;
                        }
                    }
                }
            }
        }
        for (unknown, value) in values.iter().enumerate() {
            matrix[unknown * n + unknown] += STIFFNESS;
            gradient[unknown] += STIFFNESS * value;
        }
        (matrix, gradient)
    }

    fn solve(&self) -> Vec<f64> {
        let n = self.unknowns;
        let mut values = vec![0.0; n];
        let (mut damping, mut loss) = (DAMPING, self.loss(&values));
        for _ in 0..ROUNDS {
            let (matrix, gradient) = self.normal(&values);
            let better = (0..10).find_map(|_| {
                let mut damped = matrix.clone();
                (0..n).for_each(|unknown| damped[unknown * n + unknown] += damping);
                let step = cholesky(damped, &gradient)?;
                let moved: Vec<f64> = values.iter().zip(&step).map(|(v, s)| v - s).collect();
                let new = self.loss(&moved);
                if new < loss {
                    return Some((moved, new));
                }
                damping *= 6.0;
                None
            });
            let Some((moved, new)) = better else { break };
            let gained = loss - new;
            (values, loss) = (moved, new);
            damping = f64::max(damping / 6.0, 1e-6);
            if gained < 1e-9 * loss {
                break;
            }
        }
        values
    }
}

/// Solves a positive definite system; `None` if it is none.
fn cholesky(mut matrix: Vec<f64>, right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    for row in 0..n {
        for column in 0..=row {
            let done: f64 = (0..column).map(|k| matrix[row * n + k] * matrix[column * n + k]).sum();
            let rest = matrix[row * n + column] - done;
            matrix[row * n + column] = if row == column {
                if rest <= 0.0 {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / matrix[column * n + column]
            };
        }
    }
    let mut solution = right.to_vec();
    for row in 0..n {
        let done: f64 = (0..row).map(|k| matrix[row * n + k] * solution[k]).sum();
        solution[row] = (solution[row] - done) / matrix[row * n + row];
    }
    for row in (0..n).rev() {
        let done: f64 = (row + 1..n).map(|k| matrix[k * n + row] * solution[k]).sum();
        solution[row] = (solution[row] - done) / matrix[row * n + row];
    }
    Some(solution)
}
