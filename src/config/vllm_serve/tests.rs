use std::fmt::Write as _;

use super::tables::{Flag, GONE, IGNORED, MODELLED, REFUSED, SHORT};
use super::*;
use crate::config::models;
use crate::config::scenario::KEYS;
use crate::units::{Blocks, Tokens};

fn read(text: &str) -> CommandLine {
    CommandLine::read(text).unwrap()
}

fn refusal(text: &str) -> String {
    CommandLine::read(text).unwrap_err().to_string()
}

fn value(line: &CommandLine, key: &str) -> Option<String> {
    let setting = line.settings.iter().find(|setting| setting.key == key);
    setting.map(|setting| setting.value.as_str().map_or(setting.value.to_string(), str::to_owned))
}

/// The values of these keys.
fn values(text: &str, keys: &[&str]) -> Vec<String> {
    let line = read(text);
    keys.iter().map(|key| value(&line, &format!("engine.{key}")).unwrap_or_default()).collect()
}

#[test]
fn every_spelling_of_a_value_is_read() {
    let text = "vllm serve 'Qwen/Qwen3-30B-A3B' \\\n  --max_model_len=128k -tp 2 -q=fp8 \\\r\n  \
                --no-enable-prefix-caching --gpu-memory-utilization \"0.90\" # a comment";
    let keys = [
        "model",
        "max_model_len",
        "tensor_parallel_size",
        "quantization",
        "enable_prefix_caching",
        "gpu_memory_utilization",
    ];
    assert_eq!(values(text, &keys), ["Qwen/Qwen3-30B-A3B", "128000", "2", "fp8", "false", "0.9"]);
    let ranks = ["tensor_parallel_size", "data_parallel_size", "enable_expert_parallel"];
    assert_eq!(values("vllm serve M -tp 2 -dp=4 -ep", &ranks), ["2", "4", "true"]);
    let model = |text| values(text, &["model"]).concat();
    assert_eq!(model("/opt/bin/vllm serve --port 1 --model M"), "M");
    assert_eq!(model("--model M --max-num-seqs 8"), "M");
    assert_eq!(model("CUDA_VISIBLE_DEVICES=0,1 VLLM_LOGGING_LEVEL=INFO vllm serve M"), "M");
    assert_eq!(model("vllm serve M --hf-config-path ./config.json"), "./config.json");
    assert_eq!(model("vllm serve --served-model-name a b --port 80 M"), "M");
}

#[test]
fn what_the_user_should_know_is_noted() {
    let line = read(
        "vllm serve M --host 0.0.0.0 --port 8000 --api-key a b --port 9 --max-num-seqs 4 \
         --max-num-seqs 8 --structured-outputs-config.backend xgrammar",
    );
    let ignored = "ignored vllm serve flags: --host, --port, --api-key, \
                   --structured-outputs-config";
    assert_eq!(
        line.notes,
        ["given more than once, of which the last counts: --max-num-seqs", ignored]
    );
    assert_eq!(value(&line, "engine.max_num_seqs").as_deref(), Some("8"));
    let line = read("vllm serve M --model N");
    assert_eq!(line.notes, ["--model gives way to M, which stands by itself"]);
    let line = read("python -m vllm.entrypoints.openai.api_server --model M");
    assert!(line.notes[0].contains("is deprecated"), "{:?}", line.notes);
}

#[test]
fn what_is_not_modelled_is_refused_unless_it_switches_nothing_on() {
    for text in [
        "-pp 1 -dp=1 -dcp 1 --no-enable-expert-parallel --kv-transfer-config {}",
        "--enable-chunked-prefill --dtype bfloat16 --cpu-offload-gb 0 -O2 --no-enforce-eager",
        "--limit-mm-per-prompt '{\"image\": 0}' --attention-backend auto",
        "--pipeline-parallel-size 4 --pipeline-parallel-size 1",
    ] {
        read(&format!("vllm serve M {text}"));
    }
    for (flags, start) in [
        ("-pp 2", "vllm serve --pipeline-parallel-size: pipeline parallelism is not modelled"),
        ("-dpl 4", "vllm serve --data-parallel-size-local: ranks on several machines"),
        ("-dph", "vllm serve --data-parallel-hybrid-lb: ranks on several machines"),
        ("-dpn 1", "vllm serve --data-parallel-rank: ranks that are balanced from outside"),
        ("--enable-elastic-ep", "vllm serve --enable-elastic-ep: ranks that come and go"),
        ("--prefill-schedule-interval 8", "vllm serve --prefill-schedule-interval: prefill in"),
        ("-O3", "vllm serve --optimization-level: other graphs and fusions"),
        ("-O 0", "vllm serve --optimization-level: other graphs and fusions"),
        ("-cc.mode 0", "vllm serve --compilation-config: other graphs and fusions"),
        ("--no-enable-chunked-prefill", "vllm serve --enable-chunked-prefill: prompts that"),
        ("--dtype float32", "vllm serve --dtype: activations of 32 bits"),
        ("--speculative-config '{\"method\": \"ngram\"}'", "vllm serve --speculative-config: spec"),
        ("--enforce-eager", "vllm serve --enforce-eager: steps without CUDA graphs"),
        ("--lora-modules a=b c=d", "vllm serve --lora-modules: LoRA adapters"),
        ("--config x.yaml", "vllm serve --config: flags from a file"),
    ] {
        let text = refusal(&format!("vllm serve M {flags}"));
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("help: leave the flag out"), "{text}");
    }
    let text = refusal("vllm serve M --kv-cache-memory-bytes 24G");
    assert!(text.contains("--num-gpu-blocks-override"), "{text}");
}

#[test]
fn slips_are_pointed_out() {
    for (line, part) in [
        ("vllm serve M --max-model-length 1", "did you mean `--max-model-len`?"),
        ("vllm serve M --tensor-parallel 2", "did you mean `--tensor-parallel-size`?"),
        ("vllm serve M --no-max-num-seqs", "`--no-max-num-seqs` is no flag of vllm serve"),
        ("vllm serve M -model N", "`-model` is no flag of vllm serve"),
        ("vllm serve M --max-num-seqs", "--max-num-seqs: its value is missing"),
        ("vllm serve M --block-size --port 1", "--block-size: its value is missing"),
        ("vllm serve M --max-num-seqs 1k", "found `1k`, allowed: a whole number"),
        ("vllm serve M --max-model-len auto", "a length chosen by vLLM is not modelled"),
        ("vllm serve M --max-model-len -1", "a length chosen by vLLM is not modelled"),
        ("vllm serve M --async-scheduling=true", "--async-scheduling: takes no value"),
        ("vllm serve M --max-num-partial-prefills 2", "vLLM 0.29 has no `--max-num-partial"),
        ("vllm serve M --swap-space 0", "preempted requests are always computed again"),
        ("vllm serve M extra", "`extra` follows no flag"),
        ("vllm serve $MODEL", "`$MODEL` is a variable"),
        ("vllm serve M --max-num-seqs ${N}", "`${N}` is a variable"),
        ("VLLM_ATTENTION_BACKEND=X vllm serve M", "`VLLM_ATTENTION_BACKEND` may change"),
        ("vllm serve 'M", "a quote is not closed"),
        ("vllm bench M", "found `vllm bench M`, allowed: a line such as `vllm serve MODEL"),
        ("", "found ``, allowed: a line such as"),
        ("vllm serve --port 80", "the line names no model"),
    ] {
        let text = refusal(line);
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn the_log_gives_the_number_of_blocks() {
    let blocks = |model: &str, text: &str, length| {
        log::blocks(text, &models::find(model).unwrap(), 16, Tokens(length))
    };
    let llama = |text, length| blocks("Llama-3.1-8B", text, length).map(|blocks| blocks.0);
    let line = "INFO 09-12 10:00:00 [kv_cache_utils.py:864] GPU KV cache size: 1,391,552 tokens";
    assert_eq!(llama(line, 131_072), Ok(86_972));
    assert_eq!(llama("# GPU blocks: 2588, # CPU blocks: 0", 8_192), Ok(2_588));
    assert_eq!(llama("cache_config_info{a=\"1\",num_gpu_blocks=\"77\"} 1.0", 8_192), Ok(77));
    // A context that leaves most of its last block empty: int(1000 / 7 x 97) of 1000 blocks.
    assert_eq!(llama("GPU KV cache size: 13,857 tokens", 97), Ok(1_000));
    let with_length = "GPU KV cache size: 13,857 tokens\nMaximum concurrency for 97 tokens per \
                       request: 142.86x";
    assert_eq!(llama(with_length, 131_072), Ok(1_000));
    let twice = format!("{line}\n{line}");
    assert_eq!(llama(&twice, 131_072), Ok(86_972));

    let text = llama("GPU KV cache size: 16 tokens\nGPU KV cache size: 32 tokens", 64);
    assert!(text.unwrap_err().message().contains("several sizes: 16, 32"));
    let text = llama("Available KV cache memory: 5 GiB", 64).unwrap_err();
    assert!(text.message().contains("allowed: a line of vLLM's log such as"), "{text}");
    let text = blocks("gpt-oss-120b", line, 131_072).unwrap_err().to_string();
    assert!(text.contains("vllm:cache_config_info"), "{text}");
    assert_eq!(blocks("gpt-oss-120b", "# GPU blocks: 9", 16), Ok(Blocks(9)));
}

#[test]
fn the_tables_hold_each_flag_once_and_lead_to_keys() {
    let mut names: Vec<&str> = Flag::names().chain(GONE.iter().map(|flag| flag.name)).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for (short, long) in SHORT {
        assert!(names.contains(long), "-{short}");
    }
    let is_key =
        |key: &str| KEYS.iter().any(|(known, _)| *known == key) || key.contains("_queued_");
    for flag in MODELLED {
        assert!(is_key(flag.key), "{}", flag.key);
    }
}

/// The lists of `docs/vllm-serve.md`.
#[test]
fn the_documentation_has_the_tables() {
    let mut modelled = "| flag | short | key |\n|---|---|---|\n".to_owned();
    for flag in MODELLED {
        let short = SHORT.iter().find(|(_, long)| *long == flag.name);
        let short = short.map_or(String::new(), |(short, _)| format!("`-{short}`"));
        writeln!(modelled, "| `--{}` | {short} | `{}` |", flag.name, flag.key).unwrap();
    }
    let mut refused = "| flag | would bring | passes with |\n|---|---|---|\n".to_owned();
    for flag in REFUSED {
        let neutral = flag.neutral.iter().filter(|value| !value.is_empty());
        let neutral: Vec<String> = neutral.map(|value| format!("`{value}`")).collect();
        writeln!(refused, "| `--{}` | {} | {} |", flag.name, flag.what, neutral.join(", "))
            .unwrap();
    }
    let mut gone = "| flag | what became of it |\n|---|---|\n".to_owned();
    for flag in GONE {
        writeln!(gone, "| `--{}` | {} |", flag.name, flag.note).unwrap();
    }
    let mut ignored = String::new();
    for group in IGNORED {
        let names: Vec<String> =
            group.flags.iter().map(|(name, _)| format!("`--{name}`")).collect();
        writeln!(ignored, "- {}: {}", group.about, names.join(", ")).unwrap();
    }
    let page = include_str!("../../../docs/vllm-serve.md");
    for list in [modelled, refused, gone, ignored] {
        assert!(page.contains(&list), "docs/vllm-serve.md should have\n\n{list}");
    }
}
