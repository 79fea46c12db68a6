//! Measured serving runs against the simulator, and calibrations made of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn tonnage(args: &[&str]) -> assert_cmd::Command {
    let mut run = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(root()).args(args);
    run
}

fn stdout(args: &[&str]) -> String {
    let output = tonnage(args).assert().success().get_output().clone();
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).unwrap()
}

fn stderr(args: &[&str]) -> String {
    let output = tonnage(args).assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn bless() -> bool {
    std::env::var_os("TONNAGE_BLESS").is_some_and(|value| value == "1")
}

const RUNS: &str = "tests/data/serving/runs.csv";
const REQUESTS: &str = "tests/data/serving/requests.csv";

/// A table of runs on one H100, 8B in 16 bits: concurrency, ITL, TTFT.
fn table(folder: &TempDir, rows: &[(u32, f64, f64)]) -> PathBuf {
    let mut text =
        "gpu,model,precision,tp,isl,osl,concurrency,itl_mean_ms,ttft_mean_ms\n".to_owned();
    for (concurrency, itl, ttft) in rows {
        text += &format!("H100,Llama-3.1-8B,bf16,1,1000,200,{concurrency},{itl},{ttft}\n");
    }
    let path = folder.path().join("runs.csv");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_errors_of_the_sample_are_as_they_were() {
    let found = stdout(&["validate", RUNS, "--json", "--rows"]);
    let file = root().join("tests/data/serving/accuracy.json");
    if bless() {
        fs::write(&file, &found).unwrap();
    }
    let advice = "if that is meant, run with TONNAGE_BLESS=1 and say so in CHANGELOG.md";
    assert!(found == fs::read_to_string(&file).unwrap_or_default(), "errors changed; {advice}");
    let answer: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(answer["overall"]["rows"], 25);
    assert_eq!(answer["doubtful"]["rows"], 1);
    assert_eq!(answer["noise_floor"]["rows"], 2);
    let reasons: Vec<&str> = answer["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["another engine than vllm"]);
    // Far below what linear regression reaches, far above what a row fitted by itself would.
    let itl = answer["overall"]["itl"]["median"].as_f64().unwrap();
    assert!((0.005..0.12).contains(&itl), "{itl}");
}

#[test]
fn threads_do_not_change_a_byte() {
    let run = |threads: &str| {
        let mut run = tonnage(&["validate", RUNS, "--json", "--rows"]);
        run.env("RAYON_NUM_THREADS", threads).output().unwrap().stdout
    };
    assert!(run("1") == run("3"));
}

/// The page shows the table of the sample, made by the command that it names.
#[test]
fn the_page_shows_the_table_of_the_sample() {
    let page = root().join("docs/accuracy.md");
    let text = fs::read_to_string(&page).unwrap();
    let (begin, end) = ("<!-- sample -->\n", "<!-- end of sample -->\n");
    let from = text.find(begin).expect("the page marks the table") + begin.len();
    let to = text.find(end).expect("the page marks the end of the table");
    let command = "tonnage validate tests/data/serving/runs.csv --markdown";
    assert!(text.contains(command), "the page does not say how the table is made");
    let table = stdout(&["validate", RUNS, "--markdown"]);
    if bless() {
        fs::write(&page, format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains(&table), "the table of docs/accuracy.md is old: TONNAGE_BLESS=1");
    for dimension in tonnage::validate::accuracy::DIMENSIONS {
        assert!(text.contains(&format!("| {dimension}: ")), "no group of {dimension}");
    }
}

/// Three real runs, request by request, the last one on two data-parallel ranks: within 5 % of E2E,
/// 10 % of TTFT and 3 % of the makespan once one multiplier is fitted to the run.
#[test]
fn real_runs_are_met_after_one_multiplier() {
    let folder = TempDir::new().unwrap();
    let with_ranks = "RTXPRO6000/Qwen3-30B-A3B-Instruct-2507";
    for run in ["RTX4090/Llama-3.1-8B", "RTXPRO6000/Llama-3.1-8B", with_ranks] {
        let file = folder.path().join("calibration.toml");
        let file = file.to_str().unwrap();
        let fit = ["calibrate", REQUESTS, "--only-experiment", run, "--multipliers", "1", "-o"];
        let report = stdout(&[&fit[..], &[file]].concat());
        assert!(report.contains("how well it predicts others is not known"), "{report}");
        let with = ["--only-experiment", run, "--calibration", file, "--json"];
        let answer = json(&[&["validate", REQUESTS], &with[..]].concat());
        let error = |quantity: &str| answer["overall"][quantity]["mean"].as_f64().unwrap();
        assert!(error("e2e") < 0.05 && error("ttft") < 0.10, "{run}: {answer}");
        let text = fs::read_to_string(file).unwrap();
        assert_eq!(text.contains("data_parallel_size = 2"), run == with_ranks, "{text}");
        // As many requests in the makespan: the error of the one is that of the other.
        assert!(error("throughput") < 0.03, "{run}: {answer}");
    }
}

#[test]
fn the_largest_fall_of_a_sweep_is_shown() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sweep.csv");
    let text = "series,concurrency,ttft_ms,prefix_hit_pct\nrouter,64,654.2,92.9\n\
                router,128,861.7,86.4\nrouter,256,70593,29\nrouter,512,112766,18.9\n";
    fs::write(&path, text).unwrap();
    let shown = stdout(&["validate", path.to_str().unwrap()]);
    let line = "128 -> 256 in flight: hit 86.4 -> 29.0 %, first token 862 -> 70593 ms (x 81.9)";
    assert!(shown.contains(line) && shown.contains("COLLAPSE"), "{shown}");
    let error = stderr(&["validate", path.to_str().unwrap(), "--rows"]);
    assert!(error.contains("a sweep of concurrency is not simulated"), "{error}");
    assert!(stderr(&["validate", REQUESTS, "--seed", "2"]).contains("nothing is drawn"));
}

#[test]
fn wrong_tables_are_refused_with_the_place() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.csv");
    let shown = path.to_str().unwrap();
    let head = "gpu,model,precision,tp,isl,osl,concurrency,itl_mean_ms\n";
    let row = "H100,Llama-3.1-8B,bf16,1,1000,200,4,7.5\n";
    for (text, what) in [
        (
            format!("{}{row}", head.replace("itl_mean_ms", "itl_mean")),
            "did you mean `itl_mean_ms`?",
        ),
        (format!("{}{row}", head.replace("osl", "isl")), "the column `isl` is there twice"),
        ("a,b\n1,2\n".to_owned(), "of no known table"),
        (head.to_owned(), "no row below the header"),
        (format!("{head}{}", row.replace(",4,", ",0,")), ":2:7: concurrency: found `0`"),
        (format!("{head}{}", row.replace("7.5", "-1")), ":2:8: itl_mean_ms: found `-1`"),
        (format!("{head}{}", row.replace("7.5", "")), "nothing to compare with"),
        (format!("{head}{row}H100\n"), ":3: found 1 fields, allowed: 8"),
        (format!("{head}{}", row.replace("Llama", "Lama")), "1 rows: unknown model `Lama-3.1-8B`"),
        (format!("{head}{}", row.replace(",1,1000", ",3,1000")), "no row can be simulated"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = stderr(&["validate", shown]);
        assert!(error.contains(what) && error.contains("t.csv"), "{what}: {error}");
    }
    let error = stderr(&["validate", RUNS, "--only-gpu", "h300"]);
    assert!(error.contains("no row passes the filters"), "{error}");
}

/// Times that the simulator itself gives with known factors are met again, also at loads that had
/// no part in the fit. The factors themselves need not be: at small batches host time and reading
/// weights are both constants.
#[test]
fn known_factors_are_fitted() {
    use tonnage::config::calibration::Calibration;
    use tonnage::engine::step_time::Factors;
    use tonnage::validate::runs::{Offered, Run};
    let times = |seqs: u32, factors: Factors| {
        let run = Run {
            isl: 1_000,
            osl: 200,
            offered: Offered::Concurrency(u64::from(seqs)),
            ..Run::bare("", "H100", "Llama-3.1-8B", "bf16", 1)
        };
        let found =
            tonnage::validate::simulated::simulate(&run, factors.into(), 1).unwrap().latencies;
        (seqs, found.itl_ms.unwrap(), found.ttft_ms.unwrap())
    };
    let truth = Factors { host: 2.0, linear: 1.2, attention: 1.2 };
    let folder = TempDir::new().unwrap();
    let path = table(&folder, &[1, 4, 16, 64].map(|seqs| times(seqs, truth)));
    let out = folder.path().join("c.toml");
    let report = stdout(&["calibrate", path.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    let Calibration { host, linear, attention, fit, .. } = Calibration::read(&out).unwrap();
    assert!(fit.error < 0.01 && fit.error_left_out.unwrap() < 0.02, "{report}");
    assert!(fit.error_before > 0.15, "{report}");
    for seqs in [2, 8, 32] {
        let found = times(seqs, Factors { host, linear, attention }).1;
        let error = found / times(seqs, truth).1 - 1.0;
        assert!(error.abs() < 0.02, "{seqs}: {error}; {report}");
    }
}

/// 20 ms before the queue and 12 us for each prompt token, 100 us after each output token, where
/// the simulation has 8 ms, 2 us and 46 us; a scenario that names the file goes by what was told.
#[test]
fn host_times_of_requests_are_told_and_used() {
    use tonnage::config::calibration::Calibration;
    use tonnage::engine::step_time::Factors;
    use tonnage::validate::runs::{Offered, Run};
    let mut text =
        "gpu,model,precision,tp,isl,osl,concurrency,itl_mean_ms,ttft_mean_ms,e2e_mean_ms\n"
            .to_owned();
    for (isl, seqs) in [(100u32, 1), (1_000, 1), (1_000, 16)] {
        let run = Run {
            isl: u64::from(isl),
            osl: 200,
            offered: Offered::Concurrency(seqs),
            ..Run::bare("", "H100", "Llama-3.1-8B", "bf16", 1)
        };
        let plain = Factors::default().into();
        let found = tonnage::validate::simulated::simulate(&run, plain, 1).unwrap().latencies;
        let itl = found.itl_ms.unwrap();
        let ttft = found.ttft_ms.unwrap() + 12.0 + 0.010 * f64::from(isl);
        let e2e = ttft + 199.0 * itl + 200.0 * 0.1;
        text += &format!("H100,Llama-3.1-8B,bf16,1,{isl},200,{seqs},{itl},{ttft},{e2e}\n");
    }
    let folder = TempDir::new().unwrap();
    let (path, out) = (folder.path().join("runs.csv"), folder.path().join("c.toml"));
    fs::write(&path, text).unwrap();
    let report = stdout(&["calibrate", path.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert!(report.contains("told by 2 of the points"), "{report}");
    let api = Calibration::read(&out).unwrap().api;
    let near = |value: Option<f64>, wanted: f64, by: f64| (value.unwrap() - wanted).abs() < by;
    assert!(near(api.request_ms, 20.0, 1.0), "{report}{api:?}");
    assert!(near(api.prompt_token_us, 12.0, 2.0), "{report}{api:?}");
    assert!(near(api.output_token_us, 100.0, 0.01), "{report}{api:?}");

    let scenario = folder.path().join("s.toml");
    let text = "calibration = \"c.toml\"\n[engine]\nmodel = \"Llama-3.1-8B\"\ngpu = \"h100\"\n\
                max_model_len = 65536\n[fleet]\non_overflow = \"compact\"\n[load]\n\
                kind = \"developers\"\ndevelopers = 5\n[run]\nwarmup_s = 60\nwindow_s = 900\n";
    fs::write(&scenario, text).unwrap();
    let figures = |sets: &[String]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> =
            ["replay", scenario.to_str().unwrap(), "--json"].into_iter().chain(sets).collect();
        json(&args)["fleet"]["figures"].clone()
    };
    let named = [
        ("request_ms", api.request_ms),
        ("prompt_token_us", api.prompt_token_us),
        ("output_token_us", api.output_token_us),
    ];
    let told = named.map(|(key, value)| format!("api.{key}={:?}", value.unwrap()));
    let found = figures(&[]);
    assert_eq!(found, figures(&told), "what was told goes without being set");
    assert_ne!(found, figures(&["api.request_ms=8".to_owned()]), "what is set goes first");
}

/// Host time that was told is no step time: where steps are as simulated and answers are short, the
/// factors stay 1, and the errors of the fit are those of the file that is written.
#[test]
fn errors_of_a_fit_are_those_of_its_file() {
    use tonnage::config::calibration::Calibration;
    use tonnage::engine::step_time::Factors;
    use tonnage::validate::runs::{Offered, Run};
    let mut text = "experiment,gpu,model,precision,tp,isl,osl,concurrency,itl_mean_ms,\
                    ttft_mean_ms,e2e_mean_ms\n"
        .to_owned();
    for isl in [100u32, 400, 1_000] {
        let run = Run {
            isl: u64::from(isl),
            osl: 20,
            offered: Offered::Concurrency(1),
            ..Run::bare("", "H100", "Llama-3.1-8B", "bf16", 1)
        };
        let plain = Factors::default().into();
        let found = tonnage::validate::simulated::simulate(&run, plain, 1).unwrap().latencies;
        let itl = found.itl_ms.unwrap();
        let ttft = found.ttft_ms.unwrap() + 22.0 + 0.010 * f64::from(isl);
        let e2e = ttft + 19.0 * itl + 20.0 * 0.3;
        text += &format!("p{isl},H100,Llama-3.1-8B,bf16,1,{isl},20,1,{itl},{ttft},{e2e}\n");
    }
    let folder = TempDir::new().unwrap();
    let (path, out) = (folder.path().join("runs.csv"), folder.path().join("c.toml"));
    fs::write(&path, text).unwrap();
    let (path, file) = (path.to_str().unwrap(), out.to_str().unwrap());
    let report = stdout(&["calibrate", path, "--multipliers", "1", "-o", file]);
    let Calibration { host, fit, .. } = Calibration::read(&out).unwrap();
    assert!((host - 1.0).abs() < 0.005, "{report}");
    assert!(fit.error < 0.005 && fit.error_before > 0.05, "{report}");
    assert!(fit.band_low.abs().max(fit.band_high) < 0.005, "{report}");

    let answer = json(&["validate", path, "--calibration", file, "--json"]);
    let mean = |quantity: &str| answer["overall"][quantity]["mean"].as_f64().unwrap();
    let error = f64::midpoint(mean("itl"), mean("e2e"));
    assert!((error - fit.error).abs() < 1e-4, "{error} {}; {report}", fit.error);
    assert!(mean("ttft") < 0.05, "{answer}");
}

#[test]
fn points_that_do_not_agree_are_refused_and_nothing_is_written() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("c.toml");
    let refused = |path: &Path, more: &[&str]| {
        let file = path.to_str().unwrap();
        let args = [&["calibrate", file, "-o", out.to_str().unwrap()], more].concat();
        let error = stderr(&args);
        assert!(!out.exists(), "{error}");
        error
    };
    let twice = table(&folder, &[(4, 7.5, 30.0), (4, 9.5, 30.0)]);
    assert!(refused(&twice, &[]).contains("contradict each other: the same configuration"));
    let wild = table(&folder, &[(1, 7.5, 30.0), (4, 30.0, 30.0), (16, 8.0, 30.0)]);
    assert!(refused(&wild, &[]).contains("contradict"));
    let of_two = ["--only-gpu", "H200,H100", "--only-model", "Llama-3.1-70B,MiniMax-M2.5"];
    let error = refused(&root().join(RUNS), &of_two);
    assert!(error.contains("points of 2 deployments: Llama-3.1-70B in fp8"), "{error}");
    let error = refused(&root().join(RUNS), &["--only-gpu", "none"]);
    assert!(error.contains("too few points: there is none"), "{error}");
    assert!(refused(&twice, &["--gpu", "h100"]).contains("--gpu, --model, ...: without effect"));
    assert!(refused(&twice, &["--seconds", "60"]).contains("--seconds: without effect"));
    assert!(refused(&twice, &["--multipliers", "4"]).contains("allowed: 1 to 3"));
    // A file of no form that is known.
    let readme = refused(&root().join("README.md"), &[]);
    assert!(readme.contains("README.md") && readme.contains("understood are tables"), "{readme}");
    assert!(readme.contains("vllm bench serve") && readme.contains("/metrics"), "{readme}");
}

#[test]
fn a_scenario_names_its_calibration() {
    let folder = TempDir::new().unwrap();
    let path = table(&folder, &[(1, 7.5, 30.0), (16, 9.0, 60.0), (64, 15.5, 150.0)]);
    let out = folder.path().join("c.toml");
    stdout(&["calibrate", path.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    let scenario = folder.path().join("s.toml");
    let text = "calibration = \"c.toml\"\n[engine]\nmodel = \"Llama-3.1-8B\"\ngpu = \"h100\"\n\
                max_model_len = 65536\n[fleet]\non_overflow = \"compact\"\n[load]\n\
                kind = \"developers\"\ndevelopers = 5\n[run]\nwarmup_s = 60\nwindow_s = 900\n";
    fs::write(&scenario, text).unwrap();
    let scenario = scenario.to_str().unwrap();
    let shown = stdout(&["replay", scenario]);
    assert!(shown.contains("Trust: calibrated by "), "{shown}");
    assert!(shown.contains("BEYOND the 1,200"), "{shown}");
    let answer = json(&["replay", scenario, "--json"]);
    assert_eq!(answer["step_time"]["calibrated"], true);
    assert_eq!(answer["fleet"]["trust"]["context_inside"], false);
    let plain =
        json(&["replay", scenario, "--json", "--set", "gpu=h200", "--set", "calibration=none"]);
    assert_eq!(plain["step_time"]["calibrated"], false);
    let error = stderr(&["replay", scenario, "--set", "gpu=h200"]);
    assert!(error.contains("measured with gpu = H100-SXM, and this is H200-SXM"), "{error}");
}
