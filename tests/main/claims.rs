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
    /// The figures that reproduce it.
    reproduced: Option<[f64; 2]>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Reproduced,
    Contested,
    NotModelled,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Unit {
    #[serde(rename = "%")]
    Percent,
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
            Self::Percent => 100.0 * value,
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
            Self::Percent => " %",
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

    fn find(&self, figures: &BTreeMap<String, Value>) -> Found {
        let name = self.name();
        match (&self.figure, &self.test, &self.not_modelled) {
            (Some(figure), None, None) => {
                let value = expression::value(figure, figures)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                let unit = self.unit.unwrap_or_else(|| panic!("{name}: no unit"));
                let [least, most] = self.reproduced.unwrap_or_else(|| panic!("{name}: no bounds"));
                let verdict = match (least..=most).contains(&unit.of(value)) {
                    true => Verdict::Reproduced,
                    false => Verdict::Contested,
                };
                Found { shown: unit.show(value, self.digits), verdict }
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
fn numbers_are_shown_as_people_write_them() {
    assert_eq!(Unit::Percent.show(0.9873, 1), "98.7 %");
    assert_eq!(Unit::Tokens.show(1_234_567.0, 0), "1,234,567 tokens");
    assert_eq!(Unit::None.show(-1234.5, 2), "-1,234.50");
    assert_eq!(Unit::Gibibytes.show(12_884_901_888.0, 2), "12.00 GiB");
}
