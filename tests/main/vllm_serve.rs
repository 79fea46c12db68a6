//! `--vllm` and `--vllm-log` as their users see them.

use std::fs;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use tonnage::config::scenario::Scenario;

/// The engine that an article on sizing for agents ends with.
const ARTICLE: &str = "vllm serve Qwen/Qwen3-Coder-30B \\
  --tensor-parallel-size 2 \\
  --max-model-len 131072 \\
  --kv-cache-dtype fp8 \\
  --long-prefill-token-threshold 512 \\
  --max-num-queued-reqs 64 \\
  --gpu-memory-utilization 0.90";

const FILE: &str = "\
[engine]
model = 'Llama-3.1-8B'
gpu = 'h100-sxm'
max_num_seqs = 64
block_size = 32
";

fn tonnage(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tonnage"));
    command.args(args);
    command
}

fn stderr(args: &[&str]) -> String {
    let output = tonnage(args).assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// A scenario with these assignments of the command line.
fn scenario(file: &str, assignments: &[(&str, &str)]) -> Result<Scenario, String> {
    let given: Vec<String> =
        assignments.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Scenario::parse(file, "s.toml", &given).map_err(|error| error.to_string())
}

#[test]
fn the_line_of_the_article_reads() {
    let serving = scenario(FILE, &[("engine.vllm_serve", ARTICLE)]).unwrap().serving;
    assert_eq!(serving.model.name, "Qwen3-Coder-30B-A3B");
    assert_eq!((serving.tensor_parallel_size, serving.kv_dtype.bytes()), (2, 1));
    assert_eq!(serving.max_model_len.0, 131_072);
    assert_eq!(serving.long_prefill_token_threshold.0, 512);
    assert_eq!(serving.max_num_queued_reqs, Some(64));
}

#[test]
fn the_line_wins_over_the_file_and_a_setting_over_the_line() {
    let line = "vllm serve Qwen3-30B-A3B --max-num-seqs 8 --host x";
    let given = [("engine.vllm_serve", line), ("max_num_batched_tokens", "4096")];
    let serving = scenario(FILE, &given).unwrap().serving;
    assert_eq!(serving.model.name, "Qwen3-30B-A3B");
    assert_eq!(serving.max_num_seqs, 8);
    assert_eq!(serving.max_num_batched_tokens.0, 4_096);
    assert_eq!(serving.memory.block_size, 16, "the line does not name it: vLLM's default");
    assert_eq!(
        serving.notes,
        [
            "ignored vllm serve flags: --host",
            "the vllm line stands in for these keys of the scenario: engine.model, \
             engine.block_size, engine.max_num_seqs",
        ]
    );
    let serving = scenario(FILE, &[given[0], ("engine.max_num_seqs", "4")]).unwrap().serving;
    assert_eq!(serving.max_num_seqs, 4);
}

#[test]
fn a_scenario_may_hold_the_line() {
    let file = "[engine]\ngpu = 'h100-sxm'\nvllm_serve = '''\nvllm serve Llama-3.1-8B \\\n  \
                --max-num-seqs 8'''\n";
    assert_eq!(scenario(file, &[]).unwrap().serving.max_num_seqs, 8);
    let text = scenario(&format!("{file}block_size = 32\n"), &[]).unwrap_err();
    assert!(text.starts_with("s.toml:6:1: engine.block_size: stands beside"), "{text}");
    let text = scenario(&file.replace("--max", "--mxa"), &[]).unwrap_err();
    assert!(text.starts_with("s.toml:3:1: engine.vllm_serve: `--mxa-num-seqs` is no"), "{text}");
    let text = scenario(&file.replace("seqs 8", "seqs 0"), &[]).unwrap_err();
    let start = "s.toml:3:1: vllm serve --max-num-seqs: found `0`, allowed: a whole number from 1";
    assert!(text.starts_with(start), "{text}");
    let text = scenario(&file.replace("gpu = 'h100-sxm'\n", ""), &[]).unwrap_err();
    assert!(text.contains("does not say on which GPU it runs"), "{text}");
    assert!(text.contains("--set engine.gpu=h100-sxm"), "{text}");
    let text = scenario(&file.replace("--max-num-seqs 8", "-pp 2"), &[]).unwrap_err();
    assert!(text.contains("pipeline parallelism is not modelled: found `2`"), "{text}");
}

#[test]
fn a_logged_size_is_the_pool() {
    let log = "INFO GPU KV cache size: 320,000 tokens";
    let blocks = |file: &str, given: &[(&str, &str)]| {
        scenario(file, given).map(|scenario| scenario.serving.memory.num_gpu_blocks.0)
    };
    // Blocks of 32 tokens in the file, of 16 in the line.
    assert_eq!(blocks(FILE, &[("engine.vllm_log", log)]), Ok(10_000));
    let line = ("engine.vllm_serve", "vllm serve Llama-3.1-8B");
    assert_eq!(blocks(FILE, &[line, ("engine.vllm_log", log)]), Ok(20_000));
    // The log of one engine says nothing about another.
    let logged = format!("{FILE}vllm_log = '{log}'\n");
    assert_eq!(blocks(&logged, &[]), Ok(10_000));
    assert_ne!(blocks(&logged, &[line]), Ok(20_000));
    // The command line wins over the file; two of equal rank contradict each other.
    let fixed = format!("{FILE}num_gpu_blocks_override = 9000\n");
    assert_eq!(blocks(&fixed, &[("engine.vllm_log", log)]), Ok(10_000));
    assert_eq!(blocks(&logged, &[("num_gpu_blocks_override", "9000")]), Ok(9_000));
    let text = blocks(&format!("{fixed}vllm_log = '{log}'\n"), &[]).unwrap_err();
    assert!(text.contains("engine.vllm_log: stands beside"), "{text}");
    let text = blocks(FILE, &[("engine.vllm_log", "\"10000\"")]).unwrap_err();
    assert!(text.contains("found `10000`, allowed: a line of vLLM's log such as"), "{text}");
}

#[test]
fn the_commands_take_both() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("s.toml");
    fs::write(&path, FILE).unwrap();
    let path = path.to_str().unwrap();
    for command in ["replay", "size"] {
        let text = stderr(&[command, path, "--vllm", "vllm serve M --max-num-seq 1"]);
        assert!(text.contains("did you mean `--max-num-seqs`?"), "{text}");
        let text = stderr(&[command, path, "--vllm", "vllm serve M -tp x"]);
        assert!(text.contains("vllm serve --tensor-parallel-size: found `x`"), "{text}");
        let text = stderr(&[command, path, "--vllm", "vllm serve M -tp 0"]);
        assert!(text.contains("vllm serve MODEL: unknown model `M`"), "{text}");
        let text = stderr(&[command, path, "--vllm-log", "nothing"]);
        assert!(text.contains("--vllm-log: found `nothing`, allowed"), "{text}");
    }
    let log = "GPU KV cache size: 2,097,152 tokens";
    let line = format!("{ARTICLE} --port 80");
    let args = ["memory", "--gpu", "h100", "--vllm", &line, "--vllm-log", log, "--json"];
    let output = tonnage(&args).assert().success().get_output().clone();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["tp"], &answer["context_tokens"]), (&2.into(), &131_072.into()));
    assert_eq!(answer["num_gpu_blocks"], 131_072);
    assert_eq!(answer["sequences_that_fit"], 15);
    assert_eq!(answer["notes"][0], "ignored vllm serve flags: --port");
    let text = stderr(&["memory", "--gpu", "h100", "--vllm", "vllm serve M", "--tp", "2"]);
    assert!(text.contains("cannot be used with"), "{text}");
}

#[test]
fn the_report_shows_the_notes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("t.csv");
    let head = "session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,\
                kept_tokens,prompt_tokens,output_tokens,tools,status,seen_duration_s\n";
    fs::write(&path, format!("{head}one,0,0,,0,user,0,0,m,,,,,0,40,10,,ok,4\n")).unwrap();
    let args = ["replay", "--trace", path.to_str().unwrap(), "--set", "load.kind=trace"];
    let args =
        [&args[..], &["--vllm", "vllm serve Qwen3-Coder-30B --max-model-len 4k --port 1"]].concat();
    let output = tonnage(&args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("  note      ignored vllm serve flags: --port\n"), "{text}");
}
