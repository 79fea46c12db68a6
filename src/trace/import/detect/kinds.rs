//! By what each kind of file is known.

use super::Kind;
use super::fields::{Form, Shape};

/// The names that make a kind.
pub(super) struct Signature {
    pub(super) kind: Kind,
    pub(super) what: &'static str,
    pub(super) form: Form,
    /// Names that must be there; `a[].b` is field `b` of the objects in array `a`, and `a = b` a
    /// field `a` with that text.
    pub(super) needs: &'static [&'static str],
}

impl Signature {
    /// Whether all that it needs is there.
    pub(super) fn fits(&self, shape: &Shape) -> bool {
        self.form == shape.form && self.needs.iter().all(|name| shape.has(name))
    }

    /// Whether it asks for all that the other does, and more.
    pub(super) fn says_more_than(&self, other: &Self) -> bool {
        self.needs.len() > other.needs.len()
            && other.needs.iter().all(|name| self.needs.contains(name))
    }
}

const fn kind(
    kind: Kind,
    what: &'static str,
    form: Form,
    needs: &'static [&'static str],
) -> Signature {
    Signature { kind, what, form, needs }
}

/// All kinds.
pub(super) const KINDS: &[Signature] = &[
    kind(
        Kind::Canonical,
        "a canonical trace",
        Form::Csv,
        &["session", "call", "at_s", "after", "gap_s", "prompt_tokens", "output_tokens"],
    ),
    kind(
        Kind::Azure,
        "an Azure LLM inference trace",
        Form::Csv,
        &["TIMESTAMP", "ContextTokens", "GeneratedTokens"],
    ),
    kind(
        Kind::BurstGpt,
        "BurstGPT",
        Form::Csv,
        &["Timestamp", "Model", "Request tokens", "Response tokens", "Log Type"],
    ),
    kind(
        Kind::MiniSweAgent,
        "steps of mini-swe-agent",
        Form::Csv,
        &["session", "step", "t_s", "prompt_tokens", "completion_tokens", "cached_tokens"],
    ),
    kind(
        Kind::SpendLogs,
        "SpendLogs as CSV",
        Form::Csv,
        &["request_id", "call_type", "startTime", "endTime", "prompt_tokens"],
    ),
    kind(
        Kind::SpendLogs,
        "SpendLogs in the text format of COPY, with a header",
        Form::Tabs,
        &["request_id", "call_type", "startTime", "endTime", "prompt_tokens"],
    ),
    kind(
        Kind::SpendLogs,
        "SpendLogs in the text format of COPY, without a header",
        Form::Tabs,
        &["(call type)", "(two times)", "(metadata)"],
    ),
    kind(
        Kind::SpendLogs,
        "SpendLogs as CSV without a header",
        Form::Csv,
        &["(call type)", "(two times)", "(metadata)"],
    ),
    kind(
        Kind::SpendLogs,
        "a page of /spend/logs/v2",
        Form::Json,
        &["data[].request_id", "data[].startTime", "data[].prompt_tokens"],
    ),
    kind(
        Kind::SpendLogs,
        "an array of SpendLogs rows, as /spend/logs gives it",
        Form::Json,
        &["[].request_id", "[].startTime", "[].prompt_tokens"],
    ),
    kind(
        // The reader of SpendLogs says what is wrong with them, and what to ask for instead.
        Kind::SpendLogs,
        "sums per day, as /spend/logs gives them without summarize=false",
        Form::Json,
        &["[].users", "[].models", "[].startTime"],
    ),
    kind(
        Kind::SpendLogs,
        "SpendLogs, one row_to_json object a line",
        Form::Json,
        &["request_id", "call_type", "startTime", "prompt_tokens"],
    ),
    kind(
        Kind::SpendLogs,
        "StandardLoggingPayload of LiteLLM's loggers",
        Form::Json,
        &["id", "trace_id", "call_type", "startTime", "endTime", "prompt_tokens"],
    ),
    kind(
        Kind::SpendLogs,
        "an array of StandardLoggingPayload",
        Form::Json,
        &["[].id", "[].trace_id", "[].call_type", "[].startTime", "[].prompt_tokens"],
    ),
    kind(
        Kind::Weka,
        "agent sessions with block ids as runs (cc-weka)",
        Form::Json,
        &["id", "block_size", "hash_id_scope", "requests[].in", "requests[].runs"],
    ),
    kind(
        Kind::Weka,
        "agent sessions with global block ids as runs (cc-weka-global)",
        Form::Json,
        &[
            "id",
            "block_size",
            "hash_id_scope",
            "hash_id_scope = global",
            "requests[].in",
            "requests[].runs",
        ],
    ),
    kind(
        Kind::Weka,
        "the original JSON of an agent session with block ids (kv-cache-tester)",
        Form::Json,
        &["id", "block_size", "hash_id_scope", "requests[].in", "requests[].hash_ids"],
    ),
    kind(
        Kind::Lmcache,
        "agent sessions of LMCache with block ids as runs",
        Form::Json,
        &[
            "id",
            "agent",
            "start_unix_s",
            "block_size",
            "hash_id_scope",
            "hash_id_scope = global",
            "requests[].in",
            "requests[].runs",
        ],
    ),
    kind(
        Kind::Mooncake,
        "Mooncake",
        Form::Json,
        &["timestamp", "input_length", "output_length", "hash_ids"],
    ),
    kind(
        Kind::Bailian,
        "Qwen-Bailian",
        Form::Json,
        &["chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"],
    ),
    kind(
        Kind::AgenticMooncake,
        "Agentic Mooncake",
        Form::Json,
        &["schema = dynamo.agentic_mooncake", "version", "block_size"],
    ),
    kind(
        Kind::TraceLab,
        "rounds of TraceLab",
        Form::Json,
        &[
            "session_id",
            "round_index",
            "input_tokens_total",
            "prefix_tokens",
            "output_tokens",
            "timing_events[].timestamp",
        ],
    ),
    kind(
        Kind::InferenceLab,
        "sessions of inference-lab",
        Form::Json,
        &["id", "steps[].input", "steps[].new", "steps[].output"],
    ),
    kind(
        Kind::PrefixGroups,
        "requests with shared prefixes",
        Form::Csv,
        &["request_id", "arrival_us", "prefix_group", "prefix_tokens", "suffix_tokens"],
    ),
];
