//! `explain`: its figures are those of the runs that it stands for.

use serde_json::Value;

use super::small::{folder, tonnage};

fn json(folder: &std::path::Path, args: &[&str], threads: &str) -> Value {
    let output = tonnage(folder, args).env("RAYON_NUM_THREADS", threads).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn lever<'a>(explained: &'a Value, name: &str) -> &'a Value {
    let levers = explained["levers"].as_array().unwrap();
    let found = levers.iter().find(|lever| lever["name"] == name);
    assert!(found.is_some(), "{name}");
    found.unwrap()
}

#[test]
fn every_lever_is_the_run_that_it_stands_for() {
    let folder = folder();
    let explained =
        json(folder.path(), &["explain", "s.toml", "--json", "--vary", "watermark=0.2"], "2");
    assert_eq!(
        explained,
        json(folder.path(), &["explain", "s.toml", "--json", "--vary", "watermark=0.2"], "1")
    );
    let base = json(folder.path(), &["replay", "s.toml", "--json"], "1");
    assert_eq!(explained["fleet"]["figures"], base["fleet"]["figures"]);
    assert_eq!(explained["binds"], base["binds"]);
    for (name, set) in [
        ("one more replica", "fleet.replicas=2"),
        ("long_prefill_token_threshold 512", "long_prefill_token_threshold=512"),
        ("max_num_seqs 512", "max_num_seqs=512"),
        ("watermark 0.2", "watermark=0.2"),
    ] {
        let run = json(folder.path(), &["replay", "s.toml", "--json", "--set", set], "1");
        let lever = lever(&explained, name);
        assert_eq!(lever["fleet"]["figures"], run["fleet"]["figures"], "{name}");
        let p90 = |run: &Value| run["fleet"]["figures"]["latency"]["task_llm"]["p90"].as_f64();
        let change = p90(&run).unwrap() - p90(&base).unwrap();
        assert_eq!(lever["changed"]["p90_task_llm_s"].as_f64(), Some(change), "{name}");
    }
}

#[test]
fn a_lever_that_cannot_be_moved_says_why() {
    let folder = folder();
    let explained = json(folder.path(), &["explain", "s.toml", "--json"], "2");
    for (name, why) in [
        ("KV cache in FP8", "number of KV blocks is given"),
        ("gpu_memory_utilization 0.95", "number of KV blocks is given"),
        ("session affinity off (random)", "one replica"),
    ] {
        let told = lever(&explained, name)["cannot"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains(why), "{name}: {told}");
    }
    // Eight KV heads and 32 heads go on 32 GPUs, but those are no single node.
    let explained = json(
        folder.path(),
        &["explain", "s.toml", "--json", "--set", "gpu=l40s", "--set", "tensor_parallel_size=8"],
        "2",
    );
    let told = lever(&explained, "tensor parallel 16")["cannot"].as_str().unwrap().to_owned();
    assert!(told.contains("16"), "{told}");
    let output =
        tonnage(folder.path(), &["explain", "s.toml", "--vary", "load.developers=1,2"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("same load"));
}

#[test]
fn the_parts_of_a_task_add_up() {
    let folder = folder();
    let run = json(folder.path(), &["replay", "s.toml", "--json"], "1");
    let figures = &run["fleet"]["figures"];
    let time = &figures["time"];
    let sum = |key: &str| -> f64 {
        let parts = time["parts"].as_array().unwrap();
        parts
            .iter()
            .filter(|part| part.get(key).is_some())
            .map(|p| p["mean_s"].as_f64().unwrap())
            .sum()
    };
    let mean = |name: &str| figures["latency"][name]["mean"].as_f64().unwrap();
    assert!((sum("of_task_llm") - mean("task_llm")).abs() < 1e-6, "{time}");
    assert!((sum("of_session") - mean("session")).abs() < 1e-6, "{time}");
    let part = |name: &str| {
        let parts = time["parts"].as_array().unwrap();
        parts.iter().find(|part| part["name"] == name).unwrap()["mean_s"].as_f64().unwrap()
    };
    // Six people on 9,600 tokens: contexts of other sessions are evicted during a pause.
    assert!(part("re_prefill") > 0.0 && part("prefill") > 0.0 && part("human") > 9.0, "{time}");
}
