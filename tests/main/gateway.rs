//! The gateway and the autoscalers, seen from outside.

use std::collections::VecDeque;

use tonnage::autoscale::fleet::{Action, Scaled};
use tonnage::autoscale::keda::{KedaState, Readings};
use tonnage::config::autoscale::{Keda, Lifecycle};
use tonnage::config::litellm::tables::{Fate, SECTIONS};
use tonnage::config::litellm::{Environment, VARIABLES, read};
use tonnage::gateway::Gateway;
use tonnage::gateway::effect::{CallSpec, Effect, Usage};
use tonnage::units::{CallId, Span, Time, Tokens};

const PAGE: &str = include_str!("../../docs/gateway.md");

#[test]
fn every_setting_that_is_read_or_refused_is_on_the_page() {
    let shown = |fate: Fate| matches!(fate, Fate::Read | Fate::Refused(_));
    let settings = SECTIONS.iter().flat_map(|(_, settings)| settings.iter());
    let names = settings.filter(|setting| shown(setting.fate)).map(|setting| setting.name);
    let prices = ["input_cost_per_token", "output_cost_per_token"];
    let missing: Vec<&str> = names
        .chain(VARIABLES.iter().copied())
        .chain(prices)
        .filter(|name| !PAGE.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/gateway.md does not name {missing:?}");
}

/// The config on the page is read, and a request goes through the gateway that it describes.
#[test]
fn the_example_on_the_page_works() {
    let (_, after) = PAGE.split_once("```yaml\n").unwrap();
    let (text, _) = after.split_once("```").unwrap();
    let proxy = read(text, "config.yaml", &Environment::default()).unwrap();
    assert_eq!(proxy.api_bases, ["http://vllm-0:8000/v1"]);
    let call = CallSpec {
        session: Some(1),
        key: 0,
        limits: [None, None],
        group: proxy.group("coder").unwrap(),
        prompt: Tokens(1_000),
        tools: 3,
        is_counted: false,
        streams: true,
    };
    let (mut gateway, mut effects) = (Gateway::new(proxy.gateway, 1), Vec::new());
    gateway.arrive(Time::ZERO, CallId(7), call, &mut effects);
    let now = gateway.due().unwrap();
    gateway.advance(now, &mut effects);
    assert!(matches!(effects[..], [Effect::Send { call: CallId(7), attempt: 1, .. }]));
    gateway.upstream_ended(now, CallId(7), Usage::default(), &mut effects);
    assert_eq!(effects[1], Effect::Answered { call: CallId(7) });
}

/// Requests of a burst, and how many of them waited longer than a minute: one comes each second,
/// ten for four minutes, and each replica serves one a second.
fn late_in_a_burst(replicas: u32, startup: Option<u64>) -> (usize, usize) {
    let mut scaler = startup.map(|secs| {
        let lifecycle = Lifecycle::engine(Span::from_secs(secs));
        let keda = KedaState::new(Keda::engines(replicas, 32));
        (Scaled::new(lifecycle, replicas), keda)
    });
    let (mut waiting, mut requests, mut late) = (VecDeque::new(), 0, 0);
    for second in 0..1_800_u64 {
        let now = Time::ZERO + Span::from_secs(second);
        let arrivals = if (600..840).contains(&second) { 10 } else { 1 };
        requests += arrivals;
        waiting.extend(std::iter::repeat_n(second, arrivals));
        let mut serving = replicas;
        if let Some((set, keda)) = &mut scaler {
            serving = set.count(now).0;
            let present = serving + set.count(now).1;
            if second % 15 == 0 {
                let requests_waiting = waiting.len().saturating_sub(serving as usize) as f64;
                let readings = Readings { requests_waiting, ..Readings::default() };
                let desired = keda.look(now, present, &readings);
                let mut actions: Vec<Action> = Vec::new();
                set.scale_to(now, desired, &mut actions);
            }
        }
        for since in waiting.drain(..waiting.len().min(serving as usize)) {
            late += usize::from(second - since > 60);
        }
    }
    (requests, late + waiting.len())
}

/// Replicas that take five minutes to come are there when a burst of four minutes is over.
#[test]
fn scaling_out_comes_too_late_for_a_burst() {
    let share = |replicas, startup| {
        let (requests, late) = late_in_a_burst(replicas, startup);
        100.0 * late as f64 / requests as f64
    };
    assert_eq!(share(10, None), 0.0, "provisioned for the burst");
    let (slow, fast, never) = (share(2, Some(300)), share(2, Some(50)), share(2, None));
    assert!((40.0..60.0).contains(&slow), "{slow}");
    assert!(fast < 10.0, "{fast}");
    assert!(never > slow, "{never} {slow}");
}
