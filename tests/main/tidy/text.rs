//! What no text file of the repository may say.
//!
//! The words are put together from halves here, or this file would offend.

use super::Offence;
use super::source::is_word;

/// Lines on which `offends` holds.
fn on_lines(text: &str, message: &str, offends: impl Fn(&str) -> bool) -> Vec<Offence> {
    let lines = text.lines().enumerate().filter(|(_, line)| offends(line));
    lines.map(|(index, _)| Offence::new(index + 1, message)).collect()
}

/// Whether the line has this word, not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

pub fn unfinished(_path: &str, text: &str) -> Vec<Offence> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!")];
    on_lines(text, "nothing is left for later", |line| {
        let unfinished = macros.iter().any(|name| line.contains(name));
        unfinished || words.iter().any(|word| has_word(line, word))
    })
}

pub fn machine_paths(_path: &str, text: &str) -> Vec<Offence> {
    let roots = ["home", "root", "Users", "work", "tmp"].map(|root| format!("/{root}/"));
    on_lines(text, "a path of one machine", |line| {
        let drive = line.contains(concat!(":\\Us", "ers\\"));
        drive || roots.iter().any(|root| has_root(line, root))
    })
}

/// Whether a path in the line starts at this root: `a/tmp/b`, `./tmp/` and `$X/tmp/` do not.
fn has_root(line: &str, root: &str) -> bool {
    line.match_indices(root)
        .any(|(at, _)| !line[..at].ends_with(|c| is_word(c) || ".-~}])*".contains(c)))
}

pub fn registries(path: &str, text: &str) -> Vec<Offence> {
    let index = concat!("registry+https://github.com/rust-lang/crates", ".io-index");
    let hosts = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("python", "hosted.org"),
        concat!("npm", "js.org"),
        concat!("proxy.go", "lang.org"),
        concat!("j", "frog.io"),
    ];
    let lock = path == "Cargo.lock";
    on_lines(text, "a package registry", |line| {
        let line = if lock { line.replace(index, "") } else { line.to_owned() };
        let other_source = lock && line.starts_with("source = \"") && line != "source = \"\"";
        other_source || hosts.iter().any(|host| line.contains(host))
    })
}

fn at(rule: fn(&str, &str) -> Vec<Offence>, path: &str, text: &str) -> Vec<usize> {
    super::lines(&rule(path, text))
}

#[test]
fn unfinished_work_offends() {
    let text = ["// TO", "DO: more\nto", "do!()\n(XX", "X)\nXX", "XX\na to-do list"].concat();
    assert_eq!(at(unfinished, "a.md", &text), [1, 2, 3]);
}

#[test]
fn a_path_of_one_machine_offends() {
    let text = ["see /ho", "me/me/x\nfile:///tm", "p/x\nC:\\Us", "ers\\me\nsrc/tm", "p/x"].concat();
    assert_eq!(at(machine_paths, "a.md", &text), [1, 2, 3]);
    assert!(at(machine_paths, "a.md", "https://a.org/home/x ./tmp/x $X/tmp").is_empty());
}

#[test]
fn a_registry_offends() {
    let text = ["pip install -i https://py", "pi.org/simple", "\nother.org"].concat();
    assert_eq!(at(registries, "docs/a.md", &text), [1]);
}

#[test]
fn a_lock_file_knows_the_usual_index_only() {
    let usual = ["registry+https://github.com/rust-lang/crates", ".io-index"].concat();
    let text = format!("source = \"{usual}\"\nsource = \"registry+https://mirror.local/i\"\n");
    assert_eq!(at(registries, "Cargo.lock", &text), [2]);
    assert_eq!(at(registries, "README.md", &usual), [1]);
}
