//! Files, functions and lines that fit into a head.

use super::Offence;
use super::source::Source;

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const LINE_COLUMNS: usize = 100;

/// A comment that lets a table be longer, if a reason follows: for a file among its first lines,
/// for a function inside it or right above.
const MARKER: &str = "// tidy: long table: ";
const HEAD_LINES: usize = 20;

/// Whether one of the lines gives the reason for a long table.
fn excused<'a>(mut lines: impl Iterator<Item = &'a str>) -> bool {
    lines.any(|line| {
        let reason = line.trim_start().strip_prefix(MARKER);
        reason.is_some_and(|reason| reason.split_whitespace().count() >= 3)
    })
}

pub fn file_length(source: &Source) -> Vec<Offence> {
    let length = source.raw.lines().count();
    if length <= FILE_LINES || excused(source.raw.lines().take(HEAD_LINES)) {
        return Vec::new();
    }
    vec![Offence::new(FILE_LINES + 1, format!("{length} lines, {FILE_LINES} are allowed"))]
}

pub fn function_length(source: &Source) -> Vec<Offence> {
    let text: Vec<&str> = source.raw.lines().collect();
    let mut offences = Vec::new();
    for function in source.functions() {
        let length = function.lines.len();
        let first = function.lines.start - 1;
        // Comments and attributes right above belong to the function.
        let above = text[..first].iter().rev().take_while(|line| {
            let line = line.trim_start();
            line.starts_with("//") || line.starts_with("#[")
        });
        let inside = &text[first..function.lines.end - 1];
        if length > FUNCTION_LINES && !excused(above.chain(inside).copied()) {
            let message =
                format!("`{}` takes {length} lines, {FUNCTION_LINES} are allowed", function.name);
            offences.push(Offence::new(function.lines.start, message));
        }
    }
    offences
}

pub fn line_width(source: &Source) -> Vec<Offence> {
    let widths = source.raw.lines().map(|line| line.chars().count()).enumerate();
    widths
        .filter(|(_, width)| *width > LINE_COLUMNS)
        .map(|(index, width)| {
            Offence::new(index + 1, format!("{width} columns, {LINE_COLUMNS} are allowed"))
        })
        .collect()
}

#[test]
fn a_long_file_offends_unless_it_says_why() {
    let at = |text: &str| super::lines(&file_length(&Source::new("src/x.rs", text)));
    assert!(at(&"\n".repeat(600)).is_empty());
    assert_eq!(at(&"\n".repeat(601)), [601]);
    let reason = format!("{MARKER}one row for each GPU\n");
    assert!(at(&(reason.clone() + &"\n".repeat(601))).is_empty());
    assert_eq!(at(&("\n".repeat(601) + &reason)), [601]);
    assert_eq!(at(&(format!("{MARKER}\n") + &"\n".repeat(601))), [601]);
}

#[test]
fn a_long_function_offends_unless_it_says_why() {
    let at = |text: &str| super::lines(&function_length(&Source::new("src/x.rs", text)));
    let body = |lines| "    one();\n".repeat(lines);
    assert!(at(&format!("fn a() {{\n{}}}\n", body(68))).is_empty());
    assert_eq!(at(&format!("\nfn a() {{\n{}}}\n", body(69))), [2]);
    let reason = format!("{MARKER}one row for each GPU\n");
    assert!(at(&format!("{reason}#[x]\nfn a() {{\n{}}}\n", body(69))).is_empty());
    assert!(at(&format!("fn a() {{\n    {reason}{}}}\n", body(69))).is_empty());
    assert_eq!(at(&format!("{reason}\nfn a() {{\n{}}}\n", body(69))), [3]);
}

#[test]
fn a_wide_line_offends() {
    let text = format!("{}\n{}\n", "ü".repeat(100), "x".repeat(101));
    assert_eq!(super::lines(&line_width(&Source::new("src/x.rs", &text))), [2]);
}
