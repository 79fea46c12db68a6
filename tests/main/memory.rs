//! `tonnage memory` as its users see it.

use assert_cmd::Command;
use serde_json::Value;

fn tonnage(args: &str) -> Command {
    let mut command = Command::cargo_bin("tonnage").unwrap();
    command.args(args.split_whitespace());
    command
}

fn json(args: &str) -> Value {
    let output = tonnage(&format!("{args} --json")).assert().success().get_output().clone();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(args: &str) -> String {
    let output = tonnage(args).assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

const GIB: u64 = 1 << 30;

/// With the model's own 4 KV heads; with 8 it would be 12 GiB.
#[test]
fn qwen3_coder_30b_takes_6_gib_for_131072_tokens_in_fp8() {
    let args = "memory --model Qwen/Qwen3-Coder-30B-A3B-Instruct --gpu h100-sxm --tp 2 \
                --quantization fp8 --kv-cache-dtype fp8 --context 131072";
    let answer = json(args);
    assert_eq!(answer["sequence_bytes"], 6 * GIB);
    assert_eq!(answer["kv_per_token_bytes"], 49_152);
    let output = tonnage(args).assert().success().get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("6.00 GiB      6.44 GB"), "{text}");
    assert!(text.contains("2 x 48 layers x 4 KV heads x 128 x 1 B (0.0469 MiB)"), "{text}");
    let help = tonnage("memory --help").assert().success().get_output().clone();
    assert!(String::from_utf8(help.stdout).unwrap().contains("the model has 4"));
}

/// vLLM's own message for this model and length says 62.00 GiB.
#[test]
fn qwen3_coder_480b_takes_62_gib_for_262144_tokens_in_bf16() {
    let answer = json(
        "memory --model Qwen3-Coder-480B-A35B --gpu b300 --tp 8 --kv-cache-dtype bf16 \
         --context 262144",
    );
    assert_eq!(answer["sequence_bytes"], 62 * GIB);
}

/// The engine's log says 2,588 blocks.
#[test]
fn rtx_4090_has_the_blocks_of_the_log_within_5_percent() {
    let answer = json(
        "memory --model Llama-3.1-8B --gpu rtx4090 --gpu-memory-utilization 0.9 \
         --max-num-batched-tokens 2048 --max-num-seqs 256 --vllm-version 0.19 --context 8192",
    );
    let blocks = answer["num_gpu_blocks"].as_f64().unwrap();
    assert!((blocks / 2_588.0 - 1.0).abs() < 0.05, "{blocks}");
    assert_eq!(answer["sequences_that_fit"], 5);
}

#[test]
fn the_terms_add_up() {
    let answer = json("memory --model gpt-oss-120b --gpu h200 --tp 2 --context 60000");
    let gpu = |key: &str| answer["per_gpu_bytes"][key].as_u64().unwrap();
    assert_eq!(gpu("pool"), gpu("budget") - gpu("weights") - gpu("reserve"));
    let peak = gpu("reserve_sampler").max(gpu("reserve_activations"));
    let fixed = gpu("reserve_runtime") + gpu("reserve_collectives") + gpu("reserve_cuda_graphs");
    assert_eq!(gpu("reserve"), fixed + peak);
    let block = gpu("kv_per_token") * answer["block_size_tokens"].as_u64().unwrap();
    assert_eq!(answer["num_gpu_blocks"].as_u64().unwrap(), gpu("pool") / block);
    assert!(answer["warnings"][0].as_str().unwrap().contains("hybrid KV cache groups"));
}

#[test]
fn blocks_given_by_the_user_win() {
    let answer = json(
        "memory --model Llama-3.1-8B --gpu rtx4090 --num-gpu-blocks-override 1001 --context 16000",
    );
    assert_eq!(answer["num_gpu_blocks"], 1_001);
    assert_eq!(answer["max_model_len_tokens"], 16_000);
    assert_eq!(answer["sequences_that_fit"], 1);
}

#[test]
fn what_does_not_fit_says_why_and_what_would() {
    let text = stderr("memory --model Llama-3.1-70B --gpu h100");
    assert!(text.contains("weights take 131.41 GiB (141.10 GB)"), "{text}");
    assert!(text.contains("help: it fits with tp 2"), "{text}");
    let text = stderr("memory --model Llama-3.1-8B --gpu rtx4090");
    assert!(text.contains("max_model_len: one sequence of 131072 tokens needs 8192"), "{text}");
    assert!(text.contains("the largest max_model_len that fits is"), "{text}");
}

#[test]
fn wrong_names_and_numbers_are_refused() {
    let text = stderr("memory --model Llama-3.1-9B --gpu h100");
    assert!(text.contains("did you mean `Llama-3.1-8B`?"), "{text}");
    let text = stderr("memory --model Llama-3.1-8B --gpu h101");
    assert!(text.contains("gpu: unknown GPU `h101`"), "{text}");
    let text = stderr("memory --model Llama-3.1-8B --gpu h100 --quantization fp7");
    assert!(text.contains("quantization: unknown weight precision `fp7`"), "{text}");
    let text = stderr("memory --model DeepSeek-V3.2 --gpu h200 --tp 8");
    assert!(text.contains("sparse attention, which is not modelled"), "{text}");
    let text = stderr("memory --model Llama-3.1-8B --gpu h100 --tp 3");
    assert!(text.contains("a divisor of the 32 attention heads"), "{text}");
}

/// A reader that stops early is no fault of the program.
#[test]
fn a_closed_pipe_is_no_panic() {
    use std::process::{Command, Stdio};
    let program = assert_cmd::cargo::cargo_bin("tonnage");
    let mut child = Command::new(program)
        .args(["memory", "--model", "Qwen3-8B", "--gpu", "h200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
