//! Holds the documentation to the program: keys, figures, columns, targets and commands that a
//! page names exist, and those that exist are named.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use clap::error::ErrorKind;
use serde_json::Value;
use tempfile::TempDir;
use tonnage::cli::Cli;
use tonnage::config::pools::FIELDS as POOL_FIELDS;
use tonnage::config::scenario::{KEYS, Scenario};
use tonnage::config::serving::UNMODELLED;
use tonnage::fleet::Progress;
use tonnage::report::Format;
use tonnage::report::csv::{Files, Rows};
use tonnage::report::json::Json;
use tonnage::sizing::bands::Bands;
use tonnage::sizing::candidates::{Comparison, Refused, Sized};
use tonnage::sizing::capacity::Capacity;
use tonnage::sizing::case::Case;
use tonnage::sizing::explain::{Explanation, Lever};
use tonnage::sizing::replicates::Replicates;
use tonnage::sizing::search::Search;
use tonnage::sizing::slo::{Metric, Segment, Slo};
use tonnage::trace::canonical;
use tonnage::trace::record::Trace;
use tonnage::workload::catalogue;
use tonnage::workload::profile::{KEYS as PROFILE_KEYS, Mark, Profile};
use tonnage::workload::target::Quantity;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page of the documentation.
struct Page {
    path: PathBuf,
    text: String,
}

/// A fenced block of a page, with the line that its first line is on.
struct Block<'a> {
    line: usize,
    text: Vec<&'a str>,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        Self { path, text }
    }

    fn named(name: &str) -> Self {
        Self::read(root().join("docs").join(name))
    }

    /// The fenced blocks of this language.
    fn blocks(&self, language: &str) -> Vec<Block<'_>> {
        let (mut blocks, mut open) = (Vec::new(), None::<(bool, Block<'_>)>);
        for (index, line) in self.text.lines().enumerate() {
            match (&mut open, line.trim_start().strip_prefix("```")) {
                (None, Some(found)) => {
                    let block = Block { line: index + 2, text: Vec::new() };
                    open = Some((found.trim() == language, block));
                }
                (None, None) => {}
                (Some(_), Some(_)) => {
                    let closed = open.take();
                    blocks.extend(closed.filter(|(wanted, _)| *wanted).map(|(_, block)| block));
                }
                (Some((_, block)), None) => block.text.push(line),
            }
        }
        assert!(open.is_none(), "{}: a fence is not closed", self.path.display());
        blocks
    }

    fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    /// Fails with the names that do not stand in backticks on the page.
    fn has_all<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let missing: Vec<&str> =
            names.into_iter().filter(|name| !self.text.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{} lacks {missing:?}", self.path.display());
    }
}

/// Every page under `docs/`, and the readme once there is one.
fn pages() -> Vec<Page> {
    let files = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        files.filter(|path| path.extension() == Some("md".as_ref())).collect();
    paths.extend(Some(root().join("README.md")).filter(|path| path.exists()));
    paths.sort();
    paths.into_iter().map(Page::read).collect()
}

#[test]
fn every_key_of_a_scenario_is_explained() {
    let page = Page::named("scenario.md");
    page.has_all(KEYS.iter().map(|(key, _)| *key));
    page.has_all(UNMODELLED.iter().map(|flag| flag.key));
    let pools: Vec<String> =
        POOL_FIELDS.iter().map(|(field, _)| format!("pools.NAME.{field}")).collect();
    page.has_all(pools.iter().map(String::as_str));
}

#[test]
fn every_example_of_a_scenario_is_one() {
    let pages = pages();
    let mut found = 0;
    for page in &pages {
        for block in page.blocks("toml") {
            let parsed = Scenario::parse(&block.text.join("\n"), &page.at(block.line), &[]);
            let scenario = parsed.map_err(|error| error.to_string()).unwrap();
            for target in &scenario.targets {
                Slo::parse(target)
                    .map_err(|error| format!("{}: {error}", page.at(block.line)))
                    .unwrap();
            }
            found += 1;
        }
    }
    assert!(found > 2, "{found} examples");
}

#[test]
fn every_key_and_quantity_of_a_profile_is_explained() {
    let page = Page::named("generate.md");
    page.has_all(PROFILE_KEYS.iter().map(|spec| spec.name));
    page.has_all(Quantity::ALL.iter().map(|quantity| quantity.name()));
    page.has_all(catalogue::PROFILES.iter().map(|(name, _)| *name));
    page.has_all(Mark::WORDS.map(|(word, _)| word));
    for spec in PROFILE_KEYS {
        let row = page.text.lines().find(|line| line.starts_with(&format!("| `{}` |", spec.name)));
        let cells = format!("| {} |", spec.unit);
        assert!(row.is_some_and(|row| row.contains(&cells)), "{}: unit {}", spec.name, spec.unit);
        assert!(row.is_some_and(|row| row.contains(spec.meaning)), "{}", spec.name);
    }
}

#[test]
fn every_example_of_a_profile_is_one() {
    let mut found = 0;
    for page in &pages() {
        for block in page.blocks("profile") {
            let parsed = Profile::parse(&block.text.join("\n"), &page.at(block.line));
            parsed.map_err(|error| error.to_string()).unwrap();
            found += 1;
        }
    }
    assert!(found > 0, "no example");
}

#[test]
fn every_example_of_a_target_is_one() {
    let page = Page::named("metrics.md");
    let blocks = page.blocks("slo");
    let targets: Vec<Slo> = blocks
        .iter()
        .flat_map(|block| &block.text)
        .map(|line| Slo::parse(line).map_err(|error| error.to_string()).unwrap())
        .collect();
    let shown: Vec<Metric> = targets.iter().map(|target| target.metric).collect();
    assert!(Metric::ALL.iter().all(|metric| shown.contains(metric)), "a metric has no example");
    page.has_all(Metric::ALL.map(Metric::name));
    page.has_all(Segment::ALL.map(Segment::name));
}

#[test]
fn every_command_line_is_understood() {
    let pages = pages();
    let mut found = 0;
    for page in &pages {
        for block in page.blocks("console").into_iter().chain(page.blocks("sh")) {
            for command in block.text.join("\n").replace("\\\n", " ").lines() {
                let words = shell_words(command.trim_start().trim_start_matches("$ "));
                if words.first().is_none_or(|word| word != "tonnage") {
                    continue;
                }
                found += 1;
                let Err(error) = Cli::try_parse_from(&words) else { continue };
                let shown =
                    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                assert!(shown, "{}: {command}\n{error}", page.at(block.line));
            }
        }
    }
    assert!(found > 5, "{found} commands");
}

/// The words of the first command on a line: quotes and backslashes as a shell takes them, up to a
/// comment, a pipe, a redirection or the next command.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '#') if word.is_none() => break,
            (None, '|' | '<' | '>' | ';' | '&') => break,
            (None, ' ') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn a_shell_line_is_split_as_a_shell_splits_it() {
    let line = r#"tonnage replay --slo "p95 ttft <= 10 s" --set name='a b' x\ y # no"#;
    let words = ["tonnage", "replay", "--slo", "p95 ttft <= 10 s", "--set", "name=a b", "x y"];
    assert_eq!(shell_words(line), words);
    assert_eq!(shell_words("tonnage size --json | jq '.met' > x"), ["tonnage", "size", "--json"]);
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    for page in pages() {
        for (at, _) in page.text.match_indices("](") {
            let target = page.text[at + 2..].split([')', '#']).next().unwrap();
            let is_file = !target.is_empty() && !target.contains("://");
            let path = page.path.with_file_name(target);
            assert!(!is_file || path.exists(), "{}: {target}", page.path.display());
        }
    }
}

/// The anchor that a heading gets: small letters, digits, `-` and `_`, with spaces as hyphens.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// The anchors of all headings of a page; of several headings alike the later ones are numbered.
fn anchors(page: &str) -> BTreeSet<String> {
    let (mut anchors, mut is_code) = (BTreeSet::new(), false);
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading == line || !heading.starts_with(' ') {
            continue;
        }
        let plain = anchor(heading);
        let numbered = (1..).map(|number| format!("{plain}-{number}"));
        let mut names = [plain.clone()].into_iter().chain(numbered);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

#[test]
fn every_link_to_a_heading_finds_it() {
    let text = "# One: `a.b` (c) & _d_\n```sh\n# no\n```\n## x\n### x\n#y\n";
    assert_eq!(Vec::from_iter(anchors(text)), ["one-ab-c--_d_", "x", "x-1"]);
    let mut pages = pages();
    pages.extend(["CONTRIBUTING.md", "CHANGELOG.md"].map(|name| Page::read(root().join(name))));
    let (mut found, mut lost) = (0, Vec::new());
    for page in &pages {
        for (at, _) in page.text.match_indices("](") {
            let link = page.text[at + 2..].split(')').next().unwrap();
            let Some((file, heading)) = link.split_once('#').filter(|_| !link.contains("://"))
            else {
                continue;
            };
            let path = match file {
                "" => page.path.clone(),
                file => page.path.with_file_name(file),
            };
            let target = fs::read_to_string(path).unwrap_or_default();
            found += 1;
            if !anchors(&target).contains(heading) {
                lost.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(lost.is_empty(), "no such heading: {lost:#?}");
    assert!(found > 50, "{found} links");
}

#[test]
fn every_page_is_in_the_index() {
    let index = Page::named("README.md");
    for page in pages().iter().filter(|page| page.path.starts_with(root().join("docs"))) {
        let name = page.path.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || index.text.contains(&format!("({name})")), "{name}");
    }
}

/// Two tenants, two models, several turns, a subagent, a failed call and one that is too long.
const TRACE: &str = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
kept_tokens,prompt_tokens,output_tokens,tools,status
@tools,,,,,,,,,,,,,0,3200,,,
s1,0,0,,0,user,0,0,large,web,ann,copilot,@tools,3200,4000,200,,ok
s1,1,9,0,1.5,tool,0,0,large,web,ann,copilot,0,4200,5000,90,,ok
s1,2,10,1d,0.5,subagent,0,1,small,web,ann,copilot,@tools,3200,3500,60,,ok
s1,3,30,1;2,4.5,tool,0,0,small,web,ann,copilot,1,5090,6000,100,,ok
s1,4,40,3,1,tool,0,0,large,web,ann,copilot,3,6100,6500,40,,failed
s1,5,60,4,20,user,1,0,large,web,ann,copilot,3,6100,6600,150,,ok
s2,0,2,,0,user,0,0,large,lab,bob,batch,@tools,3200,3300,100,,ok
s2,1,9,0,2,tool,0,0,large,lab,bob,batch,0,3400,90000,10,,ok
";

const SCENARIO: &str = "\
[engine]
model = 'Llama-3.1-8B'
gpu = 'h100-sxm'
max_model_len = 32768
";

fn trace() -> Trace {
    canonical::read_from(TRACE.as_bytes(), "trace").unwrap()
}

/// The same fleet in two pools.
fn pools() -> Replicates {
    let (trace, targets) = (trace(), ["p95 ttft <= 10 s".to_owned()]);
    let pools = "[pools.large]\nmodels = ['large']\nreplicas = 1\n\
                 [pools.rest]\nrest = true\nreplicas = 1\n";
    let scenario = Scenario::parse(&format!("{SCENARIO}{pools}"), "scenario", &[]).unwrap();
    let case = Case::new(scenario, &trace, &targets).unwrap();
    Replicates::of(case, 1, |case, scenario| case.sibling(scenario, &trace, &targets)).unwrap()
}

fn case() -> Case {
    let trace = trace();
    let scenario = Scenario::parse(SCENARIO, "scenario", &[]).unwrap();
    Case::new(scenario, &trace, &[]).unwrap()
}

/// The same under two seeds.
fn replicates() -> Replicates {
    let trace = trace();
    let targets = ["p95 ttft <= 10 s", "p90 stretch <= 2"].map(str::to_owned);
    let scenario = Scenario::parse(SCENARIO, "scenario", &[]).unwrap();
    let case = Case::new(scenario, &trace, &targets).unwrap();
    Replicates::of(case, 2, |case, scenario| case.sibling(scenario, &trace, &targets)).unwrap()
}

/// All keys of a JSON value. Nothing may be null or empty, or its keys would go unseen.
fn keys_of(value: &Value, at: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                keys.insert(key.clone());
                keys_of(value, &format!("{at}.{key}"), keys);
            }
        }
        Value::Array(items) => {
            let may_be_empty = ["warnings", "notes", "failing_above_answer", "not_monotone"]
                .iter()
                .any(|name| at.ends_with(name));
            assert!(
                !items.is_empty() || may_be_empty,
                "{at} is empty: the example shows too little"
            );
            items.iter().for_each(|item| keys_of(item, at, keys));
        }
        Value::Null => {
            assert!(!at.contains("figures"), "{at} is null: the example shows too little");
        }
        _ => {}
    }
}

#[test]
fn every_key_of_the_json_is_explained() {
    let case = case();
    let judged = case.judge(&case.run(1, &Progress::default()).unwrap());
    let mut keys = BTreeSet::new();
    let mut out = Vec::new();
    Json.replay(&case, &judged, &mut out).unwrap();
    keys_of(&serde_json::from_slice(&out).unwrap(), "", &mut keys);
    let (replicates, progress) = (replicates(), Progress::default());
    let search = Search::run(&replicates, 1, &progress).unwrap();
    let bands = Some(Bands::of(&search, &replicates, &progress).unwrap());
    let sized = Sized { name: "one".to_owned(), replicates, search, bands };
    let refused = Refused { name: "other".to_owned(), reason: "does not fit".to_owned() };
    out.clear();
    Json.size(&Comparison { sized: vec![sized], refused: vec![refused] }, &mut out).unwrap();
    keys_of(&serde_json::from_slice(&out).unwrap(), "", &mut keys);
    let of_pools = pools();
    let search = Search::run(&of_pools, 4, &progress).unwrap();
    let sized = Sized { name: "pools".to_owned(), replicates: of_pools, search, bands: None };
    out.clear();
    Json.size(&Comparison { sized: vec![sized], refused: Vec::new() }, &mut out).unwrap();
    let size: Value = serde_json::from_slice(&out).unwrap();
    keys_of(&size["pools"], "", &mut keys);
    keys_of(&size["tried"][0]["figures"]["by_pool"], "", &mut keys);
    let trace = trace();
    let replicates = self::replicates();
    let targets = ["p95 ttft <= 10 s", "p90 stretch <= 2"].map(str::to_owned);
    let sibling = |case: &Case, scenario| case.sibling(scenario, &trace, &targets);
    let capacity = Capacity::find(&replicates, &sibling, &progress).unwrap();
    out.clear();
    Json.capacity(&replicates, &capacity, &mut out).unwrap();
    keys_of(&serde_json::from_slice(&out).unwrap(), "", &mut keys);
    let base = replicates.judge(1, &progress).unwrap();
    let explanation = Explanation::of(
        base,
        &replicates,
        Lever::of(&replicates.case().scenario),
        |_| Ok(self::replicates()),
        &progress,
    );
    out.clear();
    Json.explain(&replicates, &explanation, &mut out).unwrap();
    keys_of(&serde_json::from_slice(&out).unwrap(), "", &mut keys);
    assert!(keys.len() > 80, "{} keys", keys.len());
    Page::named("metrics.md").has_all(keys.iter().map(String::as_str));
}

#[test]
fn every_column_of_the_tables_is_explained() {
    let (progress, folder) = (Arc::default(), TempDir::new().unwrap());
    let rows = Rows::new(Files::create(folder.path(), false).unwrap(), Arc::clone(&progress));
    let pools = ["a", "b"].map(str::to_owned).to_vec();
    let rows = rows.with_pools(pools);
    case().run_with(1, rows, &progress).unwrap().records.finish().unwrap();
    let page = Page::named("metrics.md");
    for table in ["calls.csv", "tasks.csv"] {
        let text = fs::read_to_string(folder.path().join(table)).unwrap();
        assert!(text.lines().count() > 1);
        page.has_all(text.lines().next().unwrap().split(','));
    }
}
