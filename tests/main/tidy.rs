//! Holds the rules of the house by reading the source tree.
//!
//! Each rule is a function over one file that returns what offends it, with a test beside it that
//! shows it can fail. Here they meet the tree.

use std::sync::LazyLock;

#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/hash.rs"]
mod hash;
#[path = "tidy/size.rs"]
mod size;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/text.rs"]
mod text;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use source::Source;
use tree::TextFile;

/// What offends a rule, and on which line.
#[derive(Debug, PartialEq, Eq)]
struct Offence {
    line: usize,
    message: String,
}

impl Offence {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}

/// The lines of offences, for the rules' own tests.
fn lines(offences: &[Offence]) -> Vec<usize> {
    offences.iter().map(|offence| offence.line).collect()
}

static TEXT_FILES: LazyLock<Vec<TextFile>> = LazyLock::new(tree::text_files);
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let rust = TEXT_FILES.iter().filter(|file| file.path.ends_with(".rs"));
    rust.map(|file| Source::new(&file.path, &file.text)).collect()
});

/// Fails with every offence of the tree, one a line, as an editor can jump to it.
fn hold(offences: impl Iterator<Item = (&'static str, Vec<Offence>)>) {
    let list: Vec<String> = offences
        .flat_map(|(path, list)| list.into_iter().map(move |offence| (path, offence)))
        .map(|(path, Offence { line, message })| format!("{path}:{line}: {message}"))
        .collect();
    assert!(list.is_empty(), "the house rules are broken:\n{}\n", list.join("\n"));
}

fn hold_sources(rule: fn(&Source) -> Vec<Offence>) {
    hold(SOURCES.iter().map(|source| (source.path.as_str(), rule(source))));
}

fn hold_texts(rule: fn(&str, &str) -> Vec<Offence>) {
    hold(TEXT_FILES.iter().map(|file| (file.path.as_str(), rule(&file.path, &file.text))));
}

/// A walk that misses the tree would find it tidy.
#[test]
fn the_tree_is_found() {
    let paths: Vec<&str> = TEXT_FILES.iter().map(|file| file.path.as_str()).collect();
    for path in ["Cargo.toml", "src/lib.rs", "src/sizing/slo.rs", "tests/main/tidy.rs"] {
        assert!(paths.contains(&path), "{path} is not among {paths:?}");
    }
    assert!(!paths.iter().any(|path| path.starts_with("target/")));
}

#[test]
fn modules_import_from_lower_floors_only() {
    hold_sources(floors::imports);
}

#[test]
fn the_floors_in_the_crate_documentation_are_the_real_ones() {
    let of_crate: Vec<&Source> =
        SOURCES.iter().filter(|source| source.path.starts_with("src/")).collect();
    hold(std::iter::once(("src/lib.rs", floors::documentation(&of_crate))));
}

#[test]
fn files_are_short() {
    hold_sources(size::file_length);
}

#[test]
fn functions_are_short() {
    hold_sources(size::function_length);
}

#[test]
fn lines_are_short() {
    hold_sources(size::line_width);
}

#[test]
fn only_the_top_floors_print() {
    hold_sources(words::printing);
}

#[test]
fn no_simulation_reads_the_clock_on_the_wall() {
    hold_sources(words::wall_clock);
}

#[test]
fn floats_are_doubles() {
    hold_sources(words::single_precision);
}

#[test]
fn no_result_depends_on_the_order_of_a_hash_map() {
    hold_sources(hash::iteration);
}

#[test]
fn no_test_is_ignored() {
    hold_sources(words::ignored_tests);
}

#[test]
fn nothing_is_left_to_do() {
    hold_texts(text::unfinished);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    hold_texts(text::machine_paths);
}

#[test]
fn no_file_names_a_package_registry() {
    hold_texts(text::registries);
}
