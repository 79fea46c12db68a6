//! Replicas of several data-parallel ranks, from the command line.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

use super::small;

fn tonnage(args: &[&str]) -> Command {
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    run.current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).args(args);
    run
}

fn bytes(args: &[&str]) -> Vec<u8> {
    let output = tonnage(args).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    output.stdout
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&bytes(args)).unwrap()
}

const THRESHOLD: &str = "scenarios/ranks/threshold.toml";

/// Output tokens a second of the scenario with these changes.
fn rate(changes: &[&str]) -> f64 {
    let sets = changes.iter().flat_map(|change| ["--set", change]);
    let args: Vec<&str> = ["replay", THRESHOLD, "--json"].into_iter().chain(sets).collect();
    json(&args)["fleet"]["figures"]["throughput"]["output_tokens_per_s"].as_f64().unwrap()
}

/// A cap of 512 tokens is worth 12 to 47 % where eight ranks wait for each other, as published for
/// loads of one call in fifteen with 60,000 new tokens; one group of eight GPUs gains nothing.
#[test]
fn a_cap_on_long_prompts_pays_where_ranks_wait() {
    let gain = |group: &[&str]| {
        let with = |cap| rate(&[group, &[cap]].concat());
        with("long_prefill_token_threshold=512") / with("long_prefill_token_threshold=0")
    };
    let ranks = gain(&["developers=64"]);
    assert!((1.12..=1.47).contains(&ranks), "{ranks}");
    let one = gain(&["tensor_parallel_size=8", "data_parallel_size=1"]);
    assert!((0.97..=1.03).contains(&one), "{one}");
}

#[test]
fn every_step_threads_and_a_command_line_of_vllm_give_the_same_bytes() {
    let short = ["replay", THRESHOLD, "--json", "--set", "run.window_s=200"];
    let found = bytes(&short);
    assert!(found.len() > 2_000);
    assert!(found == bytes(&[&short[..], &["--every-step"]].concat()));
    let line = "vllm serve MiniMaxAI/MiniMax-M2.5 -dp 8 -ep --kv-cache-dtype fp8 -q modelopt_fp4 \
                --max-model-len 131072 --max-num-batched-tokens 8192 --max-num-seqs 128";
    let mut by_line = json(&[&short[..], &["--vllm", line]].concat());
    let mut by_keys: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!(by_keys["fleet"]["figures"]["gpus"], 8);
    assert_eq!(by_keys["data_parallel_size"], 8);
    (by_line["notes"], by_keys["notes"]) = (Value::Null, Value::Null);
    assert_eq!(by_line, by_keys);
}

/// Two ranks of one GPU each hold the experts of Qwen3-30B-A3B by halves and everything else twice:
/// 48 layers x 128 experts x 3 x 2,048 x 768 weights of 2 bytes are 57,982,058,496 bytes.
#[test]
fn memory_has_the_experts_on_all_gpus() {
    let memory = |ranks: &str| {
        let on = "memory --model Qwen3-30B-A3B --gpu b200 --context 8192 --json --dp";
        let args: Vec<&str> = on.split(' ').chain([ranks]).collect();
        json(&args)
    };
    let (one, two) = (memory("1"), memory("2"));
    let weights = |answer: &Value| answer["per_gpu_bytes"]["weights"].as_u64().unwrap();
    assert_eq!(weights(&one) - weights(&two), 57_982_058_496 / 2);
    assert_eq!((two["dp"].as_u64(), two["gpus"].as_u64()), (Some(2), Some(2)));
    assert_eq!(one["gpus"], Value::Null);
    let text = String::from_utf8(bytes(
        &"memory --model Qwen3-30B-A3B --gpu b200 --context 8192 --dp 2"
            .split(' ')
            .collect::<Vec<_>>(),
    ));
    let text = text.unwrap();
    assert!(text.contains("on 2 ranks of 1 x B200-SXM"), "{text}");
    assert!(text.contains("of the experts 1/2 on each GPU"), "{text}");
}

#[test]
fn what_is_no_group_of_ranks_is_refused() {
    let folder = small::folder();
    let refused = |sets: &[&str], what: &str| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["replay", "s.toml"].into_iter().chain(sets).collect();
        let output = small::tonnage(folder.path(), &args).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(what), "{text}");
    };
    refused(&["data_parallel_size=2"], "no experts that its ranks could share");
    refused(&["data_parallel_size=2"], "each rank is a replica by itself");
    refused(&["enable_expert_parallel=true"], "has no experts");
    let moe = "model='Qwen3-30B-A3B'";
    refused(&[moe, "data_parallel_size=16"], "at most 8 with tp 1");
    refused(&[moe, "tensor_parallel_size=2", "data_parallel_size=5"], "at most 4 with tp 2");
    refused(&[moe, "data_parallel_size=0"], "engine.data_parallel_size: found `0`");
}

/// The router that looks into caches asks all ranks, and the best of them answers.
#[test]
fn a_router_that_knows_caches_sees_replicas_with_ranks() {
    let changes = ["replicas=2", "data_parallel_size=4", "developers=16", "run.window_s=100"];
    let hit = |router: &str| {
        let sets = changes.iter().chain([&router]).flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["replay", THRESHOLD, "--json"].into_iter().chain(sets).collect();
        let answer = json(&args);
        let fleet = &answer["fleet"]["figures"];
        assert_eq!((fleet["replicas"].as_u64(), fleet["gpus"].as_u64()), (Some(2), Some(8)));
        assert_eq!(bytes(&args), bytes(&[&args[..], &["--every-step"]].concat()));
        fleet["hit"]["engine_counter"].as_f64().unwrap()
    };
    assert!(hit("router=prefix_aware") > 0.5);
}
