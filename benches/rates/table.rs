//! The table in Markdown.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::work::{self, Work};
use super::{WHOLE_SECS_MAX, instructions, known};

const HEAD: &str = "\
| work | calls simulated | CPU s, simulation | CPU s, whole process | calls per CPU-second | \
whole process | peak memory | instructions a call |
|---|---:|---:|---:|---:|---:|---:|---:|
";

/// Measures the rows that the words name, or all, and prints or writes the table.
pub fn print(words: &[&str]) {
    let mut rows: Vec<&Work> = Vec::new();
    let (mut count, mut file) = (true, None);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--no-instructions" => count = false,
            "-o" => file = words.next(),
            name => rows.push(known(name)),
        }
    }
    if rows.is_empty() {
        rows = work::ALL.iter().collect();
    }
    let count = count && has_valgrind();
    let mut text = format!("{}\n\n{HEAD}", about());
    let mut notes = String::new();
    for work in rows {
        let measured = measure(work);
        let instructions = if count && work.short { instructions(work.name) } else { None };
        let line = line(work, &measured, instructions);
        eprint!("{line}");
        text += &line;
        notes += &note(work, &measured);
    }
    if !notes.is_empty() {
        let _ = write!(text, "\n{notes}");
    }
    match file {
        Some(file) => std::fs::write(file, text).expect("the table can be written"),
        None => print!("{text}"),
    }
}

fn has_valgrind() -> bool {
    let output = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    let there = output.is_ok_and(|status| status.success());
    if !there {
        eprintln!("without instructions a call: there is no valgrind");
    }
    there
}

/// What was measured: version, commit and how.
fn about() -> String {
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    format!(
        "tonnage {}, commit {}. Release build, user + system CPU time. *Simulation*: reading \
         apart. *Whole\nprocess*: `tonnage replay` from the canonical trace, a row a call and a \
         task written, JSON. The best of\nup to ten runs each. Rejected calls are not counted.",
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or_default(),
    )
}

/// A process of its own measures a row, so that peaks are of that row alone.
fn measure(work: &Work) -> Value {
    let program = std::env::current_exe().expect("it runs");
    let output = Command::new(program).args(["--row", work.name]).stderr(Stdio::inherit()).output();
    let output = output.expect("it runs again");
    assert!(output.status.success(), "the row {} failed", work.name);
    serde_json::from_slice(&output.stdout).expect("a row is JSON")
}

fn line(work: &Work, measured: &Value, instructions: Option<f64>) -> String {
    let number = |key: &str| measured[key].as_f64().expect("a number");
    let rate = |secs: f64| grouped(number("calls") / secs, 1_000.0);
    let whole = measured["whole_s"].as_f64();
    format!(
        "| {} | {} | {:.3} | {} | {} | {} | {} MiB | {} |\n",
        work.what,
        grouped(number("calls"), 1.0),
        number("alone_s"),
        whole.map_or_else(|| format!("over {WHOLE_SECS_MAX}"), |secs| format!("{secs:.3}")),
        rate(number("alone_s")),
        whole.map_or_else(|| "-".to_owned(), rate),
        number("peak_mib"),
        instructions.map_or_else(|| "-".to_owned(), |count| grouped(count, 100.0)),
    )
}

fn note(work: &Work, measured: &Value) -> String {
    let count = |key: &str| measured[key].as_u64().unwrap_or_default();
    let parts = [(count("rejected"), "rejected"), (count("preemptions"), "preemptions")];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count as f64, 1.0)))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("- {}: {}\n", work.what, parts.join(", "))
    }
}

/// A number rounded to a multiple of `unit`, with commas between thousands.
fn grouped(number: f64, unit: f64) -> String {
    let digits = format!("{:.0}", (number / unit).round() * unit);
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
