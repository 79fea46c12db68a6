//! The gate: instructions a call may not exceed what `benches/limits.toml` allows.

use std::collections::BTreeMap;

use serde::Deserialize;
use tonnage::config::scenario::Scenario;
use tonnage::diag::Result;
use tonnage::sizing::case::Case;
use tonnage::trace::record::{
    After, AfterEvent, Base, Call, Cause, Finish, Name, Session, SharedContext, Status, Trace,
};
use tonnage::units::{Span, Tokens};

use super::instructions;

const LIMITS: &str = "benches/limits.toml";
/// Sessions and calls of the loads that differ in the length of their contexts only.
const SESSIONS: u64 = 40;
const CALLS: u32 = 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// Instructions a call.
    instructions: BTreeMap<String, u64>,
    /// How many times the instructions a call of the second work may be those of the first.
    ratio: BTreeMap<String, Ratio>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    of: String,
    to: String,
    most: f64,
}

/// Measures all that has a limit, prints it, and tells whether every limit is kept.
pub fn run() -> bool {
    let text = std::fs::read_to_string(LIMITS).expect("the limits are in the repository");
    let limits: Limits = toml::from_str(&text).expect("the limits are TOML of this form");
    let mut found: BTreeMap<&str, f64> = BTreeMap::new();
    let ratios = limits.ratio.values().flat_map(|ratio| [&ratio.of, &ratio.to]);
    for name in limits.instructions.keys().chain(ratios) {
        if !found.contains_key(name.as_str()) {
            found.insert(name, instructions(name).expect("valgrind counts"));
        }
    }
    let mut kept = true;
    for (name, &most) in &limits.instructions {
        let value = found[name.as_str()];
        kept &= tell(&format!("{name}: {value:.0} instructions a call"), value, most as f64);
    }
    for (name, ratio) in &limits.ratio {
        let value = found[ratio.of.as_str()] / found[ratio.to.as_str()];
        kept &= tell(&format!("{name}: {value:.4} times"), value, ratio.most);
    }
    kept
}

fn tell(what: &str, value: f64, most: f64) -> bool {
    let kept = value <= most;
    println!("{} {what}, at most {most}", if kept { "ok  " } else { "OVER" });
    kept
}

/// The load of that name that is made here and not kept: `context-N`, agents that all continue one
/// context of N thousand tokens.
pub fn case(name: &str) -> Option<Result<Case>> {
    let thousands: u64 = name.strip_prefix("context-")?.parse().ok()?;
    let text = "name = \"context\"\n[engine]\nmodel = \"Llama-3.1-8B\"\ngpu = \"h100-sxm\"\n\
                max_model_len = 131072\nnum_gpu_blocks_override = 60000\n[fleet]\nreplicas = 4\n";
    let scenario = Scenario::parse(text, "context", &["load.kind=trace".to_owned()]);
    Some(scenario.and_then(|scenario| Case::new(scenario, &contexts(thousands * 1_000), &[])))
}

/// Sessions that all continue one context of so many tokens.
fn contexts(tokens: u64) -> Trace {
    let shared = SharedContext {
        name: Name::from("shared"),
        base: None,
        kept_tokens: Tokens::ZERO,
        prompt_tokens: Tokens(tokens),
    };
    let sessions = (0..SESSIONS).map(|number| {
        let mut calls: Vec<Call> = Vec::new();
        for call in 0..CALLS {
            let before = calls.last();
            let kept =
                before.map_or(Tokens(tokens), |call| call.prompt_tokens + call.output_tokens);
            let at = Span::from_secs(number * 5 + u64::from(call) * 10);
            let mut next = plain(at, kept, kept + Tokens(300 + number % 7));
            if before.is_some() {
                next.after = vec![After { call: call - 1, event: AfterEvent::Finished }];
                next.gap = Span::from_secs(5);
                next.cause = Cause::Tool;
                next.base = Base::Call(call - 1);
            }
            calls.push(next);
        }
        Session { id: Name::from(format!("s{number}")), calls }
    });
    Trace { contexts: vec![shared], sessions: sessions.collect() }
}

fn plain(at: Span, kept: Tokens, prompt: Tokens) -> Call {
    let nobody = Name::from("");
    Call {
        at,
        after: Vec::new(),
        gap: Span::ZERO,
        cause: Cause::User,
        turn: 0,
        lane: 0,
        model: Name::clone(&nobody),
        tenant: Name::clone(&nobody),
        user: Name::clone(&nobody),
        profile: nobody,
        base: Base::Shared(Name::from("shared")),
        kept_tokens: kept,
        prompt_tokens: prompt,
        output_tokens: Tokens(100),
        tools: None,
        status: Status::Ok,
        finish: Finish::Stop,
        priority: 0,
        key: None,
        stream: None,
        max_tokens: None,
        retries: 0,
        seen_cached: None,
        seen_ttft: None,
        seen_duration: None,
    }
}
