//! The floors: who may import from whom.

use std::collections::{BTreeMap, BTreeSet};

use super::Offence;
use super::source::{Source, is_word};

/// Every module at the root of the crate and the floor that it stands on.
const FLOORS: [(&str, u8); 19] = [
    ("units", 0),
    ("rng", 0),
    ("diag", 0),
    ("document", 1),
    ("queue", 1),
    ("stats", 1),
    ("trace", 2),
    ("workload", 3),
    ("config", 3),
    ("engine", 4),
    ("gateway", 4),
    ("autoscale", 4),
    ("observe", 4),
    ("fleet", 5),
    ("sizing", 6),
    ("validate", 6),
    ("report", 7),
    ("cli", 8),
    // The program itself stands on the command line.
    ("main", 9),
];

fn floor(module: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

/// The module at the root of the crate that a file belongs to; none for files outside `src/` and
/// for the root of the library, which only lists the modules.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let module = inside.split('/').next()?;
    let module = module.strip_suffix(".rs").unwrap_or(module);
    (module != "lib").then_some(module)
}

/// Whether a file is part of the simulator and not of what shows its results.
pub fn is_below_reports(path: &str) -> bool {
    let module = module_of(path);
    path.starts_with("src/") && module.and_then(floor).is_none_or(|floor| floor < 7)
}

/// Every path into the crate goes to a lower floor, or stays in its module.
pub fn imports(source: &Source) -> Vec<Offence> {
    let Some(module) = module_of(&source.path) else { return Vec::new() };
    let Some(own) = floor(module) else {
        return vec![Offence::new(1, format!("`{module}` has no floor; give it one"))];
    };
    let mut offences = Vec::new();
    for (line, name) in references(source) {
        let message = match floor(&name) {
            _ if name == module => continue,
            Some(floor) if floor < own => continue,
            Some(floor) => {
                format!("`{module}` (floor {own}) imports from `{name}` (floor {floor})")
            }
            None => format!("`crate::{name}` is no module with a floor"),
        };
        offences.push(Offence::new(line, message));
    }
    offences
}

/// The root modules that a file names, with the line where it does.
fn references(source: &Source) -> Vec<(usize, String)> {
    let root = if source.path == "src/main.rs" { "tonnage" } else { "crate" };
    let depth = source.path.matches('/').count();
    let mut found = Vec::new();
    for index in source.indices() {
        let continues = index >= 2 && source.reads(index - 2, &[":", ":"]);
        let mut after = index;
        if source.text(index) == root {
            after += 1;
        } else if source.text(index) == "super" && !continues {
            while source.reads(after, &["super", ":", ":", "super"]) {
                after += 3;
            }
            let climbs = (after - index) / 3 + 1;
            if climbs < depth {
                continue;
            }
            after += 1;
        } else {
            continue;
        }
        if source.reads(after, &[":", ":"]) {
            let names = names_at(source, after + 2);
            found.extend(names.into_iter().map(|name| (source.tokens[index].line, name)));
        }
    }
    found
}

/// The first name of a path, or of each path in braces.
fn names_at(source: &Source, at: usize) -> Vec<String> {
    if source.text(at) != "{" {
        return vec![source.text(at).to_owned()];
    }
    let mut names = Vec::new();
    let end = source.closing(at);
    let (mut index, mut first) = (at + 1, true);
    while index < end {
        match source.text(index) {
            "{" => index = source.closing(index),
            "," => first = true,
            name if first => {
                names.push(name.to_owned());
                first = false;
            }
            _ => {}
        }
        index += 1;
    }
    names.retain(|name| name != "self");
    names
}

/// The table in the documentation of the crate names every module, on its floor.
pub fn documentation(sources: &[&Source]) -> Vec<Offence> {
    let Some(root) = sources.iter().find(|source| source.path == "src/lib.rs") else {
        return vec![Offence::new(1, "there is no src/lib.rs")];
    };
    let modules: BTreeSet<&str> =
        sources.iter().filter_map(|s| module_of(&s.path)).filter(|name| *name != "main").collect();
    let mut offences = Vec::new();
    let mut documented = BTreeMap::new();
    for (index, line) in root.raw.lines().enumerate() {
        let Some((number, names)) = row(line) else { continue };
        for name in names {
            let real = floor(name);
            if !modules.contains(name) {
                offences.push(Offence::new(index + 1, format!("there is no module `{name}`")));
            } else if real != Some(number) {
                let message = format!("`{name}` stands on floor {real:?}, not {number}");
                offences.push(Offence::new(index + 1, message));
            }
            documented.insert(name, number);
        }
    }
    let missing = modules.into_iter().filter(|name| !documented.contains_key(name));
    offences.extend(missing.map(|name| Offence::new(1, format!("no floor is given of `{name}`"))));
    offences
}

/// The floor and the linked names of a row of the table.
fn row(line: &str) -> Option<(u8, Vec<&str>)> {
    let (number, names) = line.strip_prefix("//! | ")?.split_once(" |")?;
    let names = names.split("[`").skip(1).filter_map(|rest| {
        let length = rest.find(|c| !is_word(c))?;
        Some(&rest[..length])
    });
    Some((number.parse().ok()?, names.collect()))
}

#[test]
fn an_import_from_the_same_or_a_higher_floor_offends() {
    let at = |path, text| super::lines(&imports(&Source::new(path, text)));
    assert!(at("src/stats.rs", "use crate::units::Span;").is_empty());
    assert!(at("src/stats.rs", "use crate::stats::quantile;").is_empty());
    assert_eq!(at("src/stats.rs", "\nuse crate::queue::Queue;"), [2]);
    assert_eq!(at("src/stats.rs", "fn f() { crate::fleet::run() }"), [1]);
    assert_eq!(at("src/stats.rs", "use crate::{units::{Span, Time}, trace::x, diag};"), [1]);
    assert_eq!(at("src/stats.rs", "use crate::surprise::X;"), [1]);
    assert_eq!(at("src/stats.rs", "use crate::*;"), [1]);
    assert_eq!(at("src/surprise.rs", ""), [1]);
    assert!(at("src/lib.rs", "pub use crate::fleet::run;").is_empty());
}

#[test]
fn climbing_out_of_a_module_offends_like_a_path_from_the_root() {
    let at = |path, text| super::lines(&imports(&Source::new(path, text)));
    assert_eq!(at("src/stats.rs", "use super::fleet::run;"), [1]);
    assert!(at("src/stats/a.rs", "use super::fleet::run;").is_empty());
    assert_eq!(at("src/stats/a.rs", "use super::super::fleet::run;"), [1]);
    assert!(at("src/stats/a/b.rs", "use super::super::fleet::run;").is_empty());
    assert!(at("src/main.rs", "use tonnage::cli::run;").is_empty());
}

#[test]
fn tests_and_comments_import_what_they_like() {
    let text = "//! [`crate::fleet`]\n#[cfg(test)]\nmod tests { use crate::fleet::run; }";
    assert!(imports(&Source::new("src/stats.rs", text)).is_empty());
}

#[test]
fn a_wrong_table_offends() {
    let table = "//! | floor | modules |\n//! |---|---|\n//! | 0 | [`units`], [`stats`] |\n\
                 //! | 2 | [`trace`](crate::trace) |\n";
    let paths = ["src/units.rs", "src/stats/a.rs", "src/cli.rs", "src/main.rs"];
    let mut sources: Vec<Source> = paths.into_iter().map(|path| Source::new(path, "")).collect();
    sources.push(Source::new("src/lib.rs", table));
    let offences = documentation(&sources.iter().collect::<Vec<_>>());
    let messages: Vec<&str> = offences.iter().map(|offence| offence.message.as_str()).collect();
    let wrong = "`stats` stands on floor Some(1), not 0";
    let expected = [wrong, "there is no module `trace`", "no floor is given of `cli`"];
    assert_eq!(messages, expected);
}

#[test]
fn the_root_of_the_library_is_below_the_reports() {
    assert!(is_below_reports("src/lib.rs") && is_below_reports("src/fleet/a.rs"));
    assert!(!is_below_reports("src/report.rs") && !is_below_reports("tests/main.rs"));
}
