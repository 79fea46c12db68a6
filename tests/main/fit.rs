//! Profiles learnt from traces: what went in comes out, and what cannot is said.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;
use tonnage::stats::quantile;
use tonnage::trace::canonical::{self, Compression, Writer};
use tonnage::trace::record::{Session, Trace};
use tonnage::workload::catalogue;
use tonnage::workload::fit::{
    self, About, Comparison, Learnt, Play, Quantity, Readings, Share, Verdict,
};
use tonnage::workload::generate::{Generated, Generator, Request};
use tonnage::workload::people::Population;
use tonnage::workload::profile::{Hours, Key, Mark, Profile};

use super::property::{any_trace, config};

fn tonnage(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.current_dir(folder).args(args);
    command
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn request(profile: Profile, sessions: u64, seed: u64) -> Request {
    Request {
        mix: vec![(profile, 1.0)],
        population: Population::Sessions { sessions, per_hour: 60.0, users: 100 },
        seed,
        start_hour: 0,
        tokens_per_s: 60.0,
    }
}

fn read(trace: &Trace) -> Readings {
    let mut readings = Readings::default();
    trace.contexts.iter().for_each(|context| readings.context(context));
    trace.sessions.iter().for_each(|session| readings.session(session));
    readings.finish().unwrap();
    readings
}

/// What is generated, read.
fn made(request: &Request) -> Readings {
    let mut readings = Readings::default();
    for item in Generator::new(request) {
        match item {
            Generated::Context(context, _) => readings.context(&context),
            Generated::Session(made) => readings.session(&made.session),
        }
    }
    readings.finish().unwrap();
    readings
}

fn about() -> About {
    About { name: "learnt".into(), source: "a test".into(), start_hour: Some(0) }
}

/// Generates 2,000 sessions of a built-in profile, learns them, and generates as many again.
fn there_and_back(name: &str) -> (Learnt, Comparison) {
    let readings = made(&request(catalogue::profile(name).unwrap(), 2_000, 7));
    let learnt = fit::learn(&readings, &about());
    let how = Play { sessions: 2_000, seed: 8, start_hour: 0 };
    let played = fit::play(&learnt.profile, &readings, &how, || ()).unwrap();
    let comparison = fit::compare(&readings, &played);
    (learnt, comparison)
}

/// Fails unless distances are within these bounds: Kolmogorov and Smirnov's of what is learnt, and
/// of what comes of it; the relative difference of mean prompts and of the input per output.
fn hold(comparison: &Comparison, learnt_ks: f64, derived_ks: f64, prompts: f64) {
    // Which of the two a prompt is that starts anew is told by its length alone.
    let told_by_length = [Quantity::Compacted, Quantity::ReplacedTokens];
    for row in comparison.rows.iter().filter(|row| row.trace.n >= 1_000) {
        // Groups of subagents that are drawn on one call by chance are read as one.
        if row.quantity == Quantity::SpawnsTogether {
            assert_eq!(row.trace.p50, row.generated.unwrap().p50);
            continue;
        }
        let (name, distance) = (row.quantity.name(), row.distance.unwrap());
        let bound = if row.quantity.is_drawn() { learnt_ks } else { derived_ks };
        assert!(distance.ks <= bound, "{name}: {} above {bound}", distance.ks);
        let (wanted, found) = (row.trace, row.generated.unwrap());
        if row.quantity.is_drawn() && !told_by_length.contains(&row.quantity) {
            let off = (0.05 * wanted.p50).max(1.0);
            assert!((wanted.p50 - found.p50).abs() <= off, "{name}: {wanted:?}, {found:?}");
        }
        if row.quantity == Quantity::Prompt {
            let off = prompts * wanted.mean;
            assert!((wanted.mean - found.mean).abs() <= off, "{name}: {wanted:?}, {found:?}");
        }
    }
    let share = |share: Share| {
        let row = comparison.shares.iter().find(|row| row.share == share).unwrap();
        (row.trace, row.generated.unwrap(), row.verdict)
    };
    let (wanted, found, _) = share(Share::Hit);
    assert!((wanted - found).abs() < 0.01, "hit: {wanted}, {found}");
    let (wanted, found, _) = share(Share::TotalRatio);
    assert!((found / wanted - 1.0).abs() <= prompts, "input per output: {wanted}, {found}");
    assert_ne!(share(Share::SingleTurn).2, Verdict::Off);
    assert_eq!(share(Share::Prefix).2, Verdict::Close);
}

#[test]
fn copilot_sessions_come_back() {
    let (learnt, comparison) = there_and_back("copilot");
    hold(&comparison, 0.05, 0.05, 0.06);
    let profile = learnt.profile;
    for (key, expected, within) in [
        (Key::Tools, 12_000.0, 0.0),
        (Key::System, 2_800.0, 0.0),
        (Key::Versions, 3.0, 0.0),
        (Key::SingleTurn, 0.585, 0.03),
        (Key::GrowthFollows, 0.77, 0.03),
        (Key::FailedCalls, 0.002, 0.001),
        (Key::Switch, 0.02, 0.005),
    ] {
        let found = profile.dist(key).unwrap().quantile(0.5);
        assert!((found - expected).abs() <= within, "{}: {found}", key.spec().name);
    }
    // The longest prompt before a compaction is the limit, less the growth that would have passed.
    let limit = profile.dist(Key::Limit).unwrap().quantile(0.5);
    assert!((112_000.0..=119_000.0).contains(&limit), "{limit}");
}

#[test]
fn agentx_sessions_come_back() {
    let (learnt, comparison) = there_and_back("agentx");
    hold(&comparison, 0.05, 0.06, 0.10);
    let share = learnt.profile.number(Key::SubagentSessions);
    assert!((share - 0.44).abs() < 0.03, "{share}");
    // Its contexts are replaced at any length, which is no limit.
    assert!(learnt.profile.get(Key::Limit).is_none());
    let replaced = learnt.profile.number(Key::Replaced);
    assert!((replaced - 0.02).abs() < 0.003, "{replaced}");
}

#[test]
fn people_and_their_hours_are_found() {
    for (_, hours) in Hours::WORDS {
        let mut profile = catalogue::profile("chat").unwrap();
        profile.hours = hours;
        let population = Population::Developers { developers: 100, days: 14 };
        let start_hour = 24 * 2;
        let request = Request { population, start_hour, ..request(profile, 0, 3) };
        let readings = made(&request);
        let learnt = fit::learn(&readings, &About { start_hour: Some(start_hour), ..about() });
        let (built_in, learnt) = (&request.mix[0].0, learnt.profile);
        assert_eq!(learnt.hours, hours);
        for (key, within) in [(Key::StartsPerHour, 0.05), (Key::BurstCv, 0.05), (Key::Team, 0.1)] {
            let (wanted, found) = (built_in.number(key), learnt.number(key));
            assert!((found / wanted - 1.0).abs() < within, "{}: {found}", key.spec().name);
        }
        let how = Play { sessions: 500, seed: 8, start_hour };
        let played = fit::play(&learnt, &readings, &how, || ()).unwrap();
        let peak = |readings: &Readings| readings.value(Share::PeakStarts).unwrap().0;
        let (ours, theirs) = (peak(&readings), peak(&played));
        assert!((theirs / ours - 1.0).abs() < 0.15, "{hours:?}: {ours}, {theirs}");
    }
}

/// The eight percentiles of a table are those of the values, counted here in another way.
fn table_is_exact(profile: &Profile, key: Key, values: &mut [u64]) {
    values.sort_unstable();
    let dist = profile.dist(key).unwrap();
    for share in [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99] {
        let direct = quantile(values, share).unwrap() as f64;
        let found = dist.quantile(share);
        assert!((found / direct - 1.0).abs() < 1e-9, "p{share}: {found}, counted {direct}");
    }
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
    assert!((dist.mean() / mean - 1.0).abs() < 0.01, "mean {} for {mean}", dist.mean());
    assert!(dist.quantile(1.0 - 1e-12) <= values[values.len() - 1] as f64);
}

fn growths_after_tools(session: &Session) -> Vec<u64> {
    let main: Vec<_> = session.calls.iter().filter(|call| call.lane == 0).collect();
    let pairs = main.windows(2).filter(|pair| pair[0].turn == pair[1].turn);
    pairs.map(|pair| pair[1].prompt_tokens.0.saturating_sub(pair[0].prompt_tokens.0)).collect()
}

#[test]
fn tables_of_real_sessions_have_the_percentiles_of_their_values() {
    let trace = canonical::read_all(&repository("traces/bundled.csv.zst")).unwrap();
    let learnt = fit::learn(&read(&trace), &about());
    let sessions = || trace.sessions.iter();
    let mut first: Vec<u64> = sessions().map(|session| session.calls[0].prompt_tokens.0).collect();
    table_is_exact(&learnt.profile, Key::First, &mut first);
    let calls = || sessions().flat_map(|session| &session.calls);
    let mut output: Vec<u64> =
        calls().map(|call| call.output_tokens.0).filter(|n| *n > 0).collect();
    table_is_exact(&learnt.profile, Key::Output, &mut output);
    assert_eq!(learnt.profile.get(Key::First).unwrap().mark, Mark::Measured);
    // Of three compactions nothing is measured.
    assert_eq!(learnt.profile.get(Key::Limit).unwrap().mark, Mark::Assumed);
}

#[test]
fn the_command_learns_from_an_import_and_what_it_writes_generates() {
    let folder = TempDir::new().unwrap();
    let data = repository("tests/data/weka/mini.jsonl.gz");
    let data = data.to_str().unwrap();
    tonnage(folder.path(), &["import", "weka", data, "-o", "mini.csv"]).assert().success();
    let args = ["fit", "mini.csv", "-o", "mini.toml", "--json"];
    let first = tonnage(folder.path(), &args).assert().success().get_output().clone();
    let text = fs::read_to_string(folder.path().join("mini.toml")).unwrap();
    let again = tonnage(folder.path(), &args).assert().success().get_output().clone();
    assert_eq!(first.stdout, again.stdout);
    assert_eq!(text, fs::read_to_string(folder.path().join("mini.toml")).unwrap());
    let profile = Profile::parse(&text, "mini.toml").unwrap();
    assert_eq!(profile.name, "mini");

    let trace = canonical::read_all(&folder.path().join("mini.csv")).unwrap();
    let mut growths: Vec<u64> = trace.sessions.iter().flat_map(growths_after_tools).collect();
    growths.sort_unstable();
    growths.retain(|growth| *growth > 0);
    let direct = quantile(&growths, 0.5).unwrap() as f64;
    let learnt = profile.dist(Key::GrowthTool).unwrap().quantile(0.5);
    // A few prompts continue an older call than the last, or start anew.
    assert!((learnt / direct - 1.0).abs() < 0.05, "{learnt}, counted {direct}");

    let distances: Value = serde_json::from_slice(&first.stdout).unwrap();
    let fitted = &distances["fits"][0];
    assert_eq!((&fitted["sessions"], &fitted["calls"]), (&30.into(), &732.into()));
    let rows = fitted["quantities"].as_array().unwrap();
    let output = rows.iter().find(|row| row["quantity"] == "output").unwrap();
    assert_eq!(output["trace"]["p50"], 243.0);
    assert!(output["ks"].as_f64().unwrap() < 0.1);
    let page = fs::read_to_string(repository("docs/fit.md")).unwrap();
    for object in [fitted, &rows[0], &fitted["shares"][0], &fitted["couplings"][0]] {
        for key in object.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{key}`")), "the page on fits lacks `{key}`");
        }
    }

    let generate = ["generate", "./mini.toml", "--sessions", "40", "-o", "again.csv.gz"];
    let run = tonnage(folder.path(), &generate).assert().success();
    let report = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(report.contains("calls_per_session p50"), "{report}");
    tonnage(folder.path(), &["stats", "again.csv.gz"]).assert().success();
}

const MIXED: &str = "\
session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
prompt_tokens,output_tokens,tools,status
a,0,0,,0,user,0,0,m,red,,chat,,0,900,10,,ok
b,0,1,,0,user,0,0,m,red,,agent/long,,0,5000,70,,ok
b,1,4,0,1,tool,0,0,m,red,,agent/long,0,5070,6000,70,,ok
c,0,2,,0,user,0,0,m,blue,,chat,,0,800,20,,ok
";

#[test]
fn mixed_profiles_are_learnt_together_with_a_warning_or_apart() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("t.csv"), MIXED).unwrap();
    let name_of = |file: &str| {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        let profile = Profile::parse(&text, file).unwrap();
        (profile.name.clone(), profile.dist(Key::First).unwrap().quantile(0.9))
    };
    let run = tonnage(folder.path(), &["fit", "t.csv", "-o", "all.toml"]).assert().success();
    let report = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(report.contains("mixes profiles (`agent/long` 1, `chat` 2)"), "{report}");
    assert_eq!(name_of("all.toml"), ("t".to_owned(), 5_000.0));
    tonnage(folder.path(), &["fit", "t.csv", "--each", "-o", "x.toml"]).assert().success();
    assert_eq!(name_of("x-chat.toml"), ("chat".to_owned(), 900.0));
    assert_eq!(name_of("x-agent-long.toml"), ("agent-long".to_owned(), 5_000.0));
    let one = ["fit", "t.csv", "--tenant", "blue", "--name", "blue", "-o", "blue.toml"];
    tonnage(folder.path(), &one).assert().success();
    assert_eq!(name_of("blue.toml"), ("blue".to_owned(), 800.0));
}

#[test]
fn what_cannot_be_learnt_is_an_error_and_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("t.csv"), MIXED).unwrap();
    let head = MIXED.lines().next().unwrap();
    fs::write(folder.path().join("empty.csv"), format!("{head}\n")).unwrap();
    for (args, said) in [
        (&["t.csv", "--profile-column", "chats"][..], "did you mean `chat`?"),
        (&["t.csv", "--tenant", "bleu"][..], "did you mean `blue`?"),
        (&["t.csv", "--name", "a b"][..], "letters, digits"),
        (&["empty.csv"][..], "empty.csv"),
        (&["none.csv"][..], "none.csv"),
    ] {
        let mut run = tonnage(folder.path(), &["fit"]);
        let run = run.args(args).args(["-o", "out.toml"]).assert().code(2);
        let error = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(error.contains(said), "{error}");
        assert!(!folder.path().join("out.toml").exists());
    }
}

/// The largest numbers that a trace can hold, empty prompts and names, no main agent.
const EXTREME: &str = "\
@x,,,,,,,,,,,,,0,1000000000,,,
a,0,0,,0,user,0,0,,,u,,@x,1000000000,1000000000,1000000000,1000000,ok
a,1,3000000000,0,3000000000,tool,0,0,,,u,,,0,0,0,,ok
a,2,3000000000,1,0,tool,1000000,0,m,,u,,0,900000000,1000000000,0,,failed
b,0,3100000000,,0,user,0,0,,,u,,@x,0,0,0,0,aborted
c,0,3100000000,,0,tool,3,1000000,,,u,,@x,0,0,0,0,aborted
d,0,3100000000,,0,user,7,0,m,,u,,,0,1,1,0,ok
d,1,3100000000,,3000000000,user,8,0,m,,u,,0,1,1000000000,5,0,ok
";

#[test]
fn extreme_traces_are_learnt_too() {
    let folder = TempDir::new().unwrap();
    let head = MIXED.lines().next().unwrap();
    fs::write(folder.path().join("t.csv"), format!("{head}\n{EXTREME}")).unwrap();
    let run = tonnage(folder.path(), &["fit", "t.csv", "-o", "t.toml"]).assert().success();
    let report = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(report.contains("without a main agent, left out: 1\n"), "{report}");
    let generate = ["generate", "./t.toml", "--sessions", "50", "-o", "again.csv"];
    tonnage(folder.path(), &generate).assert().success();
}

proptest! {
    #![proptest_config(config(200))]

    /// Whatever the trace, its profile reads back, and generates a trace that keeps the rules.
    #[test]
    fn any_trace_can_be_learnt(trace in any_trace(), seed in 0u64..1_000) {
        let readings = read(&trace);
        let mut learnt = fit::learn(&readings, &about());
        let how = Play { sessions: 10, seed, start_hour: 0 };
        let played = fit::play(&learnt.profile, &readings, &how, || ()).unwrap();
        let comparison = fit::compare(&readings, &played);
        learnt.profile.targets = fit::targets(&comparison, "a test");
        let parsed = Profile::parse(&learnt.profile.to_toml(), "t.toml");
        let parsed = parsed.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&parsed, &learnt.profile);
        let request = request(parsed, 10, seed);
        let mut writer = Writer::from_write(std::io::sink(), Compression::None, "sink").unwrap();
        for item in Generator::new(&request) {
            let written = match &item {
                Generated::Context(context, _) => writer.context(context),
                Generated::Session(made) => writer.session(&made.session),
            };
            written.map_err(|error| TestCaseError::fail(error.to_string()))?;
        }
        // What was drawn lies within what was there.
        let ends = |readings: &Readings, quantity: Quantity| {
            let cells = readings.sample(quantity).unwrap().cells(1.0, false);
            (cells.min(), cells.max())
        };
        let (ours, theirs) = (ends(&readings, Quantity::First), ends(&played, Quantity::First));
        prop_assert!(ours.0 <= theirs.0.max(1.0) && theirs.1 <= ours.1.max(65.0));
    }
}
