//! No iteration over hash maps: its order is no property of the simulated fleet.
//!
//! A heuristic over one file: it finds the names that are bound to a hash map or set (fields,
//! parameters, variables, functions that return one, aliases of the type) and then the places
//! where one of them is walked. A map that reaches another file under another name goes unseen.

use std::collections::BTreeSet;

use super::Offence;
use super::floors::is_below_reports;
use super::source::{Source, is_word};

const TYPES: [&str; 4] = ["HashMap", "HashSet", "FxHashMap", "FxHashSet"];
/// What a type may be wrapped in and still be walked like it.
const WRAPPERS: [&str; 6] = ["Option", "Box", "Rc", "Arc", "RefCell", "Mutex"];
const WALKS: [&str; 15] = [
    "iter",
    "iter_mut",
    "into_iter",
    "keys",
    "into_keys",
    "values",
    "values_mut",
    "into_values",
    "drain",
    "retain",
    "extract_if",
    "union",
    "intersection",
    "difference",
    "symmetric_difference",
];

pub fn iteration(source: &Source) -> Vec<Offence> {
    if !is_below_reports(&source.path) {
        return Vec::new();
    }
    let types = hash_types(source);
    let names = hash_names(source, &types);
    let offence = |index: usize| {
        let message = format!("`{}` is walked in the order of its hashes", source.text(index));
        Offence::new(source.tokens[index].line, message)
    };
    let walked = source.indices().filter(|&index| {
        names.contains(source.text(index)) && (is_walked(source, index) || is_looped(source, index))
    });
    walked.map(offence).collect()
}

/// The hash types and their names in this file.
fn hash_types(source: &Source) -> BTreeSet<String> {
    let mut types: BTreeSet<String> = TYPES.map(str::to_owned).into();
    for index in source.indices() {
        if source.text(index) == "type" {
            let equals = (index..index + 40).find(|&at| source.text(at) == "=");
            if equals.is_some_and(|equals| is_hash_type(source, equals + 1, &types)) {
                types.insert(source.text(index + 1).to_owned());
            }
        }
        if types.contains(source.text(index)) && source.text(index + 1) == "as" {
            types.insert(source.text(index + 2).to_owned());
        }
    }
    types
}

/// Whether the type or the expression at `at` begins with a hash type.
fn is_hash_type(source: &Source, mut at: usize, types: &BTreeSet<String>) -> bool {
    loop {
        let text = source.text(at);
        if types.contains(text) {
            return true;
        }
        at += match text {
            "&" | "mut" | "dyn" | "impl" => 1,
            "'" => 2,
            _ if WRAPPERS.contains(&text) && source.text(at + 1) == "<" => 2,
            _ if text.starts_with(is_word) && source.reads(at + 1, &[":", ":"]) => 3,
            _ => return false,
        };
    }
}

/// Every name in the file that stands for a hash map or set.
fn hash_names(source: &Source, types: &BTreeSet<String>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for index in source.indices() {
        let name = source.text(index);
        let annotated = name.starts_with(is_word)
            && source.text(index + 1) == ":"
            && source.text(index + 2) != ":"
            && is_hash_type(source, index + 2, types);
        if annotated {
            names.insert(name.to_owned());
        }
        if name == "let" {
            let at = index + 1 + usize::from(source.text(index + 1) == "mut");
            if source.text(at + 1) == "=" && is_hash_value(source, at + 2, types) {
                names.insert(source.text(at).to_owned());
            }
        }
        if name == "fn" {
            let arrow = (index..index + 200)
                .take_while(|&at| !["{", ";", ""].contains(&source.text(at)))
                .filter(|&at| source.reads(at, &["-", ">"]))
                .last();
            if arrow.is_some_and(|arrow| is_hash_type(source, arrow + 2, types)) {
                names.insert(source.text(index + 1).to_owned());
            }
        }
    }
    names
}

/// Whether the expression at `at` makes a hash map: by its type's name, or by collecting into it.
fn is_hash_value(source: &Source, at: usize, types: &BTreeSet<String>) -> bool {
    if is_hash_type(source, at, types) {
        return true;
    }
    let mut end = at;
    while !["", ";"].contains(&source.text(end)) {
        if ["(", "[", "{"].contains(&source.text(end)) {
            end = source.closing(end);
        }
        if source.reads(end, &["collect", ":", ":", "<"]) && is_hash_type(source, end + 4, types) {
            return true;
        }
        end += 1;
    }
    false
}

/// `name.keys()`, `name().keys()`
fn is_walked(source: &Source, index: usize) -> bool {
    let mut after = index + 1;
    while source.text(after) == "(" || source.text(after) == "?" {
        after = source.closing(after) + 1;
    }
    source.text(after) == "." && WALKS.contains(&source.text(after + 1))
}

/// `for … in &self.name {`
fn is_looped(source: &Source, index: usize) -> bool {
    if source.text(index + 1) != "{" {
        return false;
    }
    let before = source.tokens[..index].iter().rev().map(|token| token.text.as_str());
    let mut path = before.skip_while(|text| {
        ["&", "mut", ".", "self"].contains(text) || (text.starts_with(is_word) && *text != "in")
    });
    path.next() == Some("in")
}

fn at(text: &str) -> Vec<usize> {
    super::lines(&iteration(&Source::new("src/fleet.rs", text)))
}

#[test]
fn a_walked_field_offends() {
    let text = "struct S { by_hash: FxHashMap<u64, u32>, list: Vec<u32> }\n\
                impl S { fn f(&self) {\n self.list.iter();\n self.by_hash.get(&1);\n\
                self.by_hash\n   .keys();\n for (a, b) in &self.by_hash {}\n } }";
    assert_eq!(at(text), [5, 7]);
    assert!(iteration(&Source::new("src/cli.rs", text)).is_empty());
}

#[test]
fn a_walked_variable_offends() {
    let text = "let mut a = FxHashMap::default();\nfor x in a {}\n\
                let b = list.iter().map(|x| (x, 1)).collect::<HashMap<_, _>>();\nb.values();\n\
                let c: std::collections::HashSet<u8> = d.collect();\nc.drain();\n\
                let e = Vec::new();\ne.iter();\nfor x in e {}\nfor x in 0..a.len() {}";
    assert_eq!(at(text), [2, 4, 6]);
}

#[test]
fn a_walked_parameter_or_result_offends() {
    let text = "fn f(a: &'x mut Option<HashMap<u8, u8>>, b: &[u8]) -> FxHashSet<u8> {\n\
                a.iter_mut();\n b.iter();\n}\nfn g() {\n f(1, 2).into_iter();\n}";
    assert_eq!(at(text), [2, 6]);
}

#[test]
fn another_name_of_the_type_is_no_way_out() {
    let text = "use rustc_hash::FxHashMap as Fast;\ntype Index = Fast<u64, u32>;\n\
                struct S { index: Index }\nfn f(s: &S) { s.index.values() }";
    assert_eq!(at(text), [4]);
}

#[test]
fn ordered_maps_and_lists_of_maps_are_walked_freely() {
    let text = "let a: BTreeMap<u8, u8> = b;\na.iter();\nlet c: Vec<FxHashMap<u8, u8>> = d;\n\
                c.iter();\n#[cfg(test)]\nmod t { fn f(m: HashMap<u8, u8>) { m.iter(); } }";
    assert!(at(text).is_empty());
}
