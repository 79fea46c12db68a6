//! The claims of the field: each is worked out afresh, and `docs/claims.md` must say what came out.
//!
//! `TONNAGE_BLESS=1 cargo test --test main claims` writes the page. The claims, the commands that
//! show them and what counts as reproduced are in `tests/data/claims/claims.toml`.

#![allow(clippy::panic, reason = "a list of claims that is wrong fails its test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

mod expression;
mod page;
mod runs;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file of claims.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Vec<Run>,
    section: Vec<Section>,
}

/// A command that figures are read from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    name: String,
    /// What it shows.
    what: String,
    command: String,
    /// Where it must end in an error: words of it.
    refused: Option<String>,
    /// Whether figures are also read from its calls, one by one.
    #[serde(default)]
    calls: bool,
    /// It is run under so many seeds, from 1 on; without, once and as it stands.
    seeds: Option<u64>,
}

/// Claims about one thing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    title: String,
    claim: Vec<Claim>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    number: u32,
    what: String,
    published: String,
    source: String,
    /// An expression over figures of runs.
    figure: Option<String>,
    unit: Option<Unit>,
    #[serde(default)]
    digits: usize,
    /// What the source says, of which the figures follow that reproduce it.
    claimed: Option<Claimed>,
    /// How words without a figure are read.
    #[serde(default)]
    read_as: String,
    /// A test that shows it where no command does, as file and function.
    test: Option<[String; 2]>,
    /// What that test comes to, and whether that is what was claimed.
    shown: Option<String>,
    verdict: Option<Verdict>,
    /// Why nothing shows it.
    not_modelled: Option<String>,
    /// What is to be said about it; {an expression: unit} is a figure.
    #[serde(default)]
    note: String,
}

/// What a source says. The bounds follow from it by one rule, whatever comes out here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Claimed {
    /// From one figure to another: these.
    Range([f64; 2]),
    /// More than a figure.
    Least(f64),
    /// At most a figure.
    Most(f64),
    /// One figure, or about one: a tenth to either side; of a share a tenth of the smaller of what
    /// it holds and what it leaves.
    Figure(f64),
    /// A figure that follows from others by arithmetic: all that is printed alike.
    Printed(String),
    /// Words, as they are read here.
    Reading([f64; 2]),
}

impl Claimed {
    fn bounds(&self, unit: Unit) -> [f64; 2] {
        match self {
            Self::Range(bounds) | Self::Reading(bounds) => *bounds,
            Self::Least(least) => [*least, f64::INFINITY],
            Self::Most(most) => [f64::NEG_INFINITY, *most],
            Self::Figure(figure) => {
                let of = match unit {
                    Unit::Percent => figure.min(100.0 - figure),
                    _ => *figure,
                };
                [figure - 0.1 * of, figure + 0.1 * of]
            }
            Self::Printed(text) => {
                let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                let (figure, half) =
                    (text.parse::<f64>().unwrap(), 0.5 * 0.1f64.powi(decimals as i32));
                [figure - half, figure + half]
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Reproduced,
    Contested,
    NotModelled,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Unit {
    /// A share.
    #[serde(rename = "%")]
    Percent,
    /// A gain, which is no share.
    #[serde(rename = "% more")]
    More,
    /// The word "refused" for 1.
    #[serde(rename = "refused")]
    Refused,
    #[serde(rename = "")]
    None,
    #[serde(rename = "x")]
    Times,
    #[serde(rename = "GiB")]
    Gibibytes,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "GB")]
    Gigabytes,
    #[serde(rename = "tokens")]
    Tokens,
    #[serde(rename = "tok/s")]
    Rate,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "min")]
    Minutes,
}

impl Unit {
    /// A figure of JSON in this unit: shares in per cent, bytes in what is asked for.
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Percent | Self::More => 100.0 * value,
            Self::Gibibytes => value / f64::from(1 << 30),
            Self::Mebibytes => value / f64::from(1 << 20),
            Self::Gigabytes => value / 1e9,
            Self::Minutes => value / 60.0,
            _ => value,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Refused | Self::None => "",
            Self::Percent | Self::More => " %",
            Self::Times => " x",
            Self::Gibibytes => " GiB",
            Self::Mebibytes => " MiB",
            Self::Gigabytes => " GB",
            Self::Tokens => " tokens",
            Self::Rate => " tok/s",
            Self::Seconds => " s",
            Self::Minutes => " min",
        }
    }

    fn show(self, value: f64, digits: usize) -> String {
        if matches!(self, Self::Refused) {
            return if value == 1.0 { "refused" } else { "runs" }.to_owned();
        }
        format!("{}{}", grouped(self.of(value), digits), self.word())
    }
}

/// A number with its thousands apart.
fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut out = sign.to_owned();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// What came out of a claim.
struct Found {
    shown: String,
    verdict: Verdict,
}

impl Claim {
    fn name(&self) -> String {
        format!("claim {} ({})", self.number, self.what)
    }

    fn find(&self, figures: &Figures) -> Found {
        let name = self.name();
        match (&self.figure, &self.test, &self.not_modelled) {
            (Some(figure), None, None) => {
                let values =
                    figures.values(figure).unwrap_or_else(|error| panic!("{name}: {error}"));
                let unit = self.unit.unwrap_or_else(|| panic!("{name}: no unit"));
                let claimed = self.claimed.as_ref().unwrap_or_else(|| panic!("{name}: no claim"));
                let [least, most] = claimed.bounds(unit);
                let inside = |value: &f64| (least..=most).contains(&unit.of(*value));
                let verdict = match values.iter().all(inside) {
                    true => Verdict::Reproduced,
                    false => Verdict::Contested,
                };
                Found { shown: spread(&values, unit, self.digits), verdict }
            }
            (None, Some(test), None) => {
                holds_test(test, &name);
                let shown = self.shown.clone().unwrap_or_else(|| panic!("{name}: nothing shown"));
                let verdict = self.verdict.unwrap_or_else(|| panic!("{name}: no verdict"));
                Found { shown, verdict }
            }
            (None, None, Some(_)) => Found { shown: "-".to_owned(), verdict: Verdict::NotModelled },
            _ => panic!("{name}: either a figure, a test, or why it is not modelled"),
        }
    }
}

/// The mean over seeds, and the least and the most of them.
fn spread(values: &[f64], unit: Unit, digits: usize) -> String {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let shown = unit.show(mean, digits);
    if values.len() == 1 {
        return shown;
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bare = |value: f64| grouped(unit.of(value), digits);
    format!("{shown}; {} to {}", bare(least), bare(most))
}

/// What every run prints, seed by seed. What is run once is the same under all of them.
struct Figures(Vec<BTreeMap<String, Value>>);

impl Figures {
    /// An expression under every seed, or once if that is enough.
    fn values(&self, text: &str) -> Result<Vec<f64>, String> {
        let values: Vec<f64> = self
            .0
            .iter()
            .map(|figures| expression::value(text, figures))
            .collect::<Result<_, _>>()?;
        let same = values.iter().all(|value| *value == values[0]);
        Ok(if same { vec![values[0]] } else { values })
    }

    /// Its mean.
    fn mean(&self, text: &str) -> Result<f64, String> {
        let values = self.values(text)?;
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// A test that a claim rests on is there and is run.
fn holds_test([file, function]: &[String; 2], name: &str) {
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    let is_there = text.contains(&format!("#[test]\nfn {function}()"))
        || text.contains(&format!("#[test]\n    fn {function}()"));
    assert!(is_there, "{name}: there is no test {function} in {file}");
}

fn read() -> File {
    let text = fs::read_to_string(root().join("tests/data/claims/claims.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

#[test]
fn the_page_of_claims_is_what_comes_out() {
    let file = read();
    let figures = runs::all(&file.run);
    let made = page::page(&file, &figures);
    let path = root().join("docs/claims.md");
    if std::env::var_os("TONNAGE_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    let advice = "TONNAGE_BLESS=1 writes it afresh; read what it says before you commit it";
    assert!(made == kept, "docs/claims.md is not what comes out; {advice}: {differs:#?}");
}

#[test]
fn every_run_is_used_and_every_contradiction_explained() {
    let file = read();
    let claims = || file.section.iter().flat_map(|section| &section.claim);
    let text: String = claims()
        .map(|claim| format!("{} {} ", claim.figure.as_deref().unwrap_or(""), claim.note))
        .collect();
    for run in &file.run {
        assert!(text.contains(&format!("{}:", run.name)), "no claim reads {}", run.name);
    }
    let names: BTreeSet<&str> = file.run.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names.len(), file.run.len(), "two runs have one name");
    for claim in claims() {
        assert!(!claim.published.is_empty() && !claim.source.is_empty(), "{}", claim.name());
    }
}

#[test]
fn bounds_follow_from_what_is_claimed() {
    let near = |claimed: Claimed, unit, expected: [f64; 2]| {
        let bounds = claimed.bounds(unit);
        let off = bounds.iter().zip(expected).map(|(bound, expected)| (bound - expected).abs());
        assert!(off.fold(0.0, f64::max) < 1e-9, "{claimed:?}: {bounds:?}");
    };
    near(Claimed::Range([1.0, 2.0]), Unit::None, [1.0, 2.0]);
    near(Claimed::Figure(40.0), Unit::Times, [36.0, 44.0]);
    near(Claimed::Figure(98.0), Unit::Percent, [97.8, 98.2]);
    near(Claimed::Figure(8.0), Unit::Percent, [7.2, 8.8]);
    near(Claimed::Figure(93.0), Unit::More, [83.7, 102.3]);
    near(Claimed::Printed("43.3".to_owned()), Unit::Gibibytes, [43.25, 43.35]);
    near(Claimed::Printed("15".to_owned()), Unit::Gigabytes, [14.5, 15.5]);
    assert_eq!(Claimed::Least(96.0).bounds(Unit::Percent), [96.0, f64::INFINITY]);
    assert_eq!(Claimed::Most(4.0).bounds(Unit::None)[1], 4.0);
}

#[test]
fn numbers_are_shown_as_people_write_them() {
    assert_eq!(Unit::Percent.show(0.9873, 1), "98.7 %");
    assert_eq!(Unit::Tokens.show(1_234_567.0, 0), "1,234,567 tokens");
    assert_eq!(Unit::None.show(-1234.5, 2), "-1,234.50");
    assert_eq!(Unit::Gibibytes.show(12_884_901_888.0, 2), "12.00 GiB");
}
