//! Words that must not stand in the simulator.

use super::Offence;
use super::floors::is_below_reports;
use super::source::Source;

/// Lines of code below the reports where `offends` holds at a token.
fn below_reports(
    source: &Source,
    message: &str,
    offends: impl Fn(&Source, usize) -> bool,
) -> Vec<Offence> {
    if !is_below_reports(&source.path) {
        return Vec::new();
    }
    let found = source.indices().filter(|&index| offends(source, index));
    found.map(|index| Offence::new(source.tokens[index].line, message)).collect()
}

pub fn printing(source: &Source) -> Vec<Offence> {
    const MACROS: [&str; 5] = ["print", "println", "eprint", "eprintln", "dbg"];
    below_reports(source, "only reports and the command line print", |source, index| {
        MACROS.contains(&source.text(index)) && source.text(index + 1) == "!"
    })
}

pub fn wall_clock(source: &Source) -> Vec<Offence> {
    const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];
    below_reports(source, "simulated time only", |source, index| {
        let now = source.reads(index, &[":", ":", "now"]);
        CLOCKS.contains(&source.text(index)) || now
    })
}

pub fn single_precision(source: &Source) -> Vec<Offence> {
    below_reports(source, "floats are doubles", |source, index| {
        // A type, or the suffix of a number.
        let number = source.text(index).strip_suffix("f32");
        number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit() || c == '_'))
    })
}

/// Everywhere: a test that does not run holds nothing.
pub fn ignored_tests(source: &Source) -> Vec<Offence> {
    let found = (0..source.tokens.len()).filter(|&i| source.reads(i, &["#", "[", "ignore"]));
    found.map(|i| Offence::new(source.tokens[i].line, "a test is ignored")).collect()
}

fn at(rule: fn(&Source) -> Vec<Offence>, path: &str, text: &str) -> Vec<usize> {
    super::lines(&rule(&Source::new(path, text)))
}

#[test]
fn printing_offends() {
    let text = "fn f() {\n println!(\"\");\n dbg!(1);\n}\n#[test]\nfn g() { println!(\"\"); }";
    assert_eq!(at(printing, "src/fleet.rs", text), [2, 3]);
    assert_eq!(at(printing, "src/lib.rs", text), [2, 3]);
    assert!(at(printing, "src/cli/size.rs", text).is_empty());
    assert!(at(printing, "src/fleet.rs", "// println!()\nfn print() { print() }").is_empty());
}

#[test]
fn the_clock_on_the_wall_offends() {
    let text =
        "use std::time::{Duration, Instant};\nlet t = SystemTime::now();\njiff::Zoned::now()";
    assert_eq!(at(wall_clock, "src/queue.rs", text), [1, 2, 2, 3]);
    assert!(at(wall_clock, "src/queue.rs", "fn now() -> Time { self.now }").is_empty());
}

#[test]
fn single_precision_offends() {
    let text = "let a: f32 = 1.0;\nlet b = 1_f32;\nlet c = 2.5f32;\nlet d = to_f32;\nlet e: f64;";
    assert_eq!(at(single_precision, "src/engine/step.rs", text), [1, 2, 3]);
}

#[test]
fn an_ignored_test_offends() {
    let text = "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n#[test]\n#[ignore]\nfn g() {}";
    assert_eq!(at(ignored_tests, "tests/main/x.rs", text), [2, 5]);
    assert!(at(ignored_tests, "src/x.rs", "fn ignore() {}").is_empty());
}
