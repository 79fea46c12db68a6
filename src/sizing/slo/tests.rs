use proptest::prelude::*;

use super::*;
use crate::units::Tokens;

/// A run with one answer to each question, the question recorded in it.
struct Run {
    percentile: Option<f64>,
    share: Option<f64>,
    expected: Option<(Quantity, f64)>,
}

impl SloSource for Run {
    fn percentile(&self, quantity: Quantity, q: f64, _filter: Option<&Filter>) -> Option<f64> {
        if let Some(expected) = self.expected {
            assert_eq!((quantity, q), expected);
        }
        self.percentile
    }

    fn share(&self, _share: Share, _filter: Option<&Filter>) -> Option<f64> {
        self.share
    }
}

fn run(percentile: f64) -> Run {
    Run { percentile: Some(percentile), share: None, expected: None }
}

fn judge(target: &str, run: &Run) -> Verdict {
    Slo::parse(target).unwrap().evaluate(run)
}

fn error(target: &str) -> String {
    Slo::parse(target).expect_err(target).to_string()
}

#[test]
fn every_part_is_read() {
    let slo = Slo::parse("  p99.9 task_llm[profile=agentic]<=15min ").unwrap();
    assert_eq!(slo.statistic, Statistic::Percentile(99.9));
    assert_eq!(slo.statistic.quantile(), Some(0.999));
    assert_eq!(slo.metric, Metric::TaskLlm);
    assert_eq!(slo.filter, Some(Filter::Profile("agentic".to_owned())));
    assert_eq!((slo.op, slo.bound), (Op::AtMost, 900.0));
    assert_eq!(slo.text, "p99.9 task_llm[profile=agentic]<=15min");
}

#[test]
fn units_convert_to_the_base_unit() {
    let bounds = [
        ("p90 turn_llm <= 90 s", 90.0),
        ("p95 itl <= 50 ms", 0.05),
        ("p50 session <= 1.5 h", 5400.0),
        ("p90 stretch <= 1.5", 1.5),
        ("p90 interactivity >= 50 tok/s", 50.0),
        ("hit >= 0.85", 0.85),
        ("hit >= 85 %", 0.85),
        ("failed <= 0.1 %", 0.001),
        ("failed <= 0%", 0.0),
    ];
    for (target, bound) in bounds {
        assert_eq!(Slo::parse(target).unwrap().bound, bound, "{target}");
    }
}

#[test]
fn the_canonical_form() {
    let forms = [
        ("p90.0 turn<=1 min", "p90 turn <= 60 s"),
        ("p95 ttft [ 64k - 128k ] <= 8000 ms", "p95 ttft[64k-128k] <= 8 s"),
        ("p95 ttft[131072+] <= 8 s", "p95 ttft[128K+] <= 8 s"),
        ("p95 ttft[0-8K] <= 8 s", "p95 ttft[0-8K] <= 8 s"),
        ("p95 ttft[tenant = Team A-1 ] <= 8 s", "p95 ttft[tenant=Team A-1] <= 8 s"),
        ("failed <= .001", "failed <= 0.1 %"),
        ("failed <= 0.000", "failed <= 0 %"),
        ("hit >= 0.07", "hit >= 7 %"),
        ("hit >= 1", "hit >= 100 %"),
        ("hit[segment=turn_boundary] >= 0.5", "hit[segment=turn_boundary] >= 50 %"),
    ];
    for (target, canonical) in forms {
        assert_eq!(Slo::parse(target).unwrap().to_string(), canonical);
    }
}

#[test]
fn the_band_counts_thousands_with_k_and_1024_with_capital_k() {
    let band = |target| Slo::parse(target).unwrap().filter.unwrap();
    let (from, below) = (Tokens(64_000), Some(Tokens(128_000)));
    assert_eq!(band("p95 ttft[64k-128k] <= 8 s"), Filter::PromptBand { from, below });
    let (from, below) = (Tokens(65_536), None);
    assert_eq!(band("p95 ttft[64K+] <= 8 s"), Filter::PromptBand { from, below });
}

#[test]
fn the_defaults_are_canonical() {
    for (slo, text) in Slo::defaults().iter().zip(DEFAULT_TARGETS) {
        assert_eq!(slo.to_string(), text);
    }
}

#[test]
fn an_error_points_at_the_word() {
    let error = Slo::parse("p95 ttfs <= 8 s").unwrap_err();
    assert_eq!(error.place().column, Some(5));
    let expected = "unknown metric `ttfs`, allowed: turn, task, session, turn_llm, task_llm, \
                    stretch, ttft, itl, interactivity, interactivity_e2e, queue, gateway, hit, \
                    failed\n  \
                    help: p95 ttfs <= 8 s\n            ^^^^\n  help: did you mean `ttft`?";
    assert_eq!(error.to_string(), expected);
    let error = Slo::parse_at_column("p95 ttfs <= 8 s", 9).unwrap_err();
    assert_eq!(error.place().column, Some(13));
}

/// Each: the target, the column of the word, and words that the message must have.
const WRONG: [(&str, u64, &str); 33] = [
    ("", 1, "ends too early"),
    ("p90", 4, "ends too early, allowed here: a metric"),
    ("p90 ttft", 9, "ends too early, allowed here: <=, >="),
    ("p90 ttft <=", 12, "ends too early, allowed here: a number"),
    ("p0.5 ttft <= 8 s", 1, "found `p0.5`, allowed: p1 to p99.9"),
    ("p100 ttft <= 8 s", 1, "found `p100`, allowed: p1 to p99.9"),
    ("p99.95 ttft <= 8 s", 1, "at most one decimal"),
    ("ttft <= 8 s", 1, "`ttft` needs a percentile"),
    ("p90 hit >= 0.8", 5, "`hit` is one share of all and has no percentile"),
    ("mean ttft <= 8 s", 1, "unknown metric `mean`"),
    ("p90 session_llm <= 8 s", 5, "unknown metric `session_llm`"),
    ("p90 ttft < 8 s", 10, "found `<`, allowed: <=, >="),
    ("p90 ttft >= 8 s", 10, "`ttft` is bounded by `<=`"),
    ("p90 interactivity <= 8 tok/s", 19, "`interactivity` is bounded by `>=`"),
    ("p90 ttft <= 8", 13, "`ttft` needs a unit: s, ms, min, h"),
    ("p90 ttft <= 8 tok/s", 15, "unit `tok/s` does not fit `ttft`, allowed: s, ms, min, h"),
    ("p90 ttft <= 8 %", 15, "unit `%` does not fit `ttft`"),
    ("p90 stretch <= 2 s", 18, "`stretch` has no unit"),
    ("p90 ttft <= -8 s", 13, "found `-8`, allowed: a number from 0"),
    ("p90 ttft <= 1e3 s", 14, "unit `e3` does not fit"),
    ("p90 ttft <= x s", 13, "found `x`, allowed: a number from 0"),
    ("p90 ttft <= 8 s now", 17, "found `now`, allowed: the end of the target"),
    ("hit >= 85", 8, "a share is at most 1"),
    ("p95 ttft[64k-128k <= 8 s", 9, "this `[` has no `]`"),
    ("p95 ttft[] <= 8 s", 9, "found `[]`, allowed: a prompt band"),
    ("p95 ttft[8-32k] <= 8 s", 10, "both ends of a prompt band are written alike"),
    ("p95 ttft[32k-8k] <= 8 s", 10, "ends above its beginning"),
    ("p95 ttft[8q-9k] <= 8 s", 10, "found `8q`, allowed: a number of tokens"),
    ("p95 turn[0-8k] <= 8 s", 10, "a prompt band does not narrow `turn`"),
    ("p95 stretch[segment=subagent] <= 2", 13, "a segment does not narrow `stretch`"),
    ("p95 ttft[user=x] <= 8 s", 10, "unknown filter `user`, allowed: profile, tenant, model"),
    ("p95 turn[model=x] <= 8 s", 10, "a model does not narrow `turn`"),
    ("hit[segment=first] >= 0.5", 13, "unknown segment `first`, allowed: turn_boundary"),
];

#[test]
fn what_is_wrong_is_said_and_pointed_at() {
    for (target, column, words) in WRONG {
        let error = Slo::parse(target).expect_err(target);
        assert!(error.message().contains(words), "{target}: {error}");
        assert_eq!(error.place().column, Some(column), "{target}: {error}");
    }
    assert!(error("hit >= 85").contains("did you mean `85 %`?"));
    assert!(error("p90 ttft <= 8 mins").contains("did you mean `min`?"));
    assert!(error("p90 ttft[tenants=x] <= 8 s").contains("did you mean `tenant`?"));
    assert!(error("p90 ttft[tenant=a,model=b] <= 8 s").contains("one filter"));
    assert!(error("p90 ttft[tenant=] <= 8 s").contains("no tenant after `=`"));
    assert!(error("p90 ttft <= 8").contains("such as `8 s`"));
}

#[test]
fn carets_stand_under_the_word_whatever_is_before_it() {
    let text = error("p95 ttft[tenant=Zürich]\t<= 8 sec");
    let mut lines = text.lines().skip(1);
    let (line, carets) = (lines.next().unwrap(), lines.next().unwrap());
    let column = line.chars().position(|c| c == '8').unwrap() + 2;
    assert_eq!(carets.chars().position(|c| c == '^'), Some(column), "{text}");
    assert!(carets.ends_with("^^^"));
}

#[test]
fn a_bound_from_above() {
    let verdict = judge("p95 ttft <= 10 s", &run(8.0));
    assert_eq!(verdict, Verdict { value: Some(8.0), met: true, margin: Some(0.2) });
    let verdict = judge("p95 ttft <= 10 s", &run(15.0));
    assert_eq!(verdict, Verdict { value: Some(15.0), met: false, margin: Some(-0.5) });
    assert!(judge("p95 ttft <= 10 s", &run(10.0)).met);
}

#[test]
fn interactivity_is_one_over_the_slow_tail_of_itl() {
    let expected = Some((Quantity::Itl, 0.9));
    let source = Run { percentile: Some(0.025), share: None, expected };
    let verdict = judge("p90 interactivity >= 40 tok/s", &source);
    assert_eq!(verdict, Verdict { value: Some(40.0), met: true, margin: Some(0.0) });
    let source = Run { percentile: Some(0.05), share: None, expected };
    let verdict = judge("p90 interactivity >= 40 tok/s", &source);
    assert_eq!(verdict, Verdict { value: Some(20.0), met: false, margin: Some(-0.5) });
    let expected = Some((Quantity::E2ePerToken, 0.5));
    let source = Run { percentile: Some(0.05), share: None, expected };
    assert_eq!(judge("p50 interactivity_e2e >= 40 tok/s", &source).value, Some(20.0));
}

#[test]
fn shares() {
    let share = |share| Run { percentile: None, share: Some(share), expected: None };
    let verdict = judge("hit >= 80 %", &share(0.9));
    assert!(verdict.met && (verdict.margin.unwrap() - 0.125).abs() < 1e-12);
    assert!(judge("failed <= 0.1 %", &share(0.001)).met);
    assert!(!judge("failed <= 0.1 %", &share(0.0011)).met);
    let verdict = judge("failed <= 0 %", &share(0.0));
    assert_eq!(verdict, Verdict { value: Some(0.0), met: true, margin: None });
}

#[test]
fn no_sample_meets_nothing() {
    let nothing = Run { percentile: None, share: None, expected: None };
    for slo in Slo::defaults() {
        let expected = Verdict { value: None, met: false, margin: None };
        assert_eq!(slo.evaluate(&nothing), expected, "{slo}");
    }
}

#[test]
fn every_metric_is_complete() {
    for metric in Metric::ALL {
        assert_eq!(Metric::named(metric.name()), Some(metric));
        assert!(metric.definition().len() < 75, "{metric}: a definition is one line of help");
    }
}

/// Any filter that goes with the metric, or none.
fn filter(metric: Metric) -> impl Strategy<Value = Option<Filter>> {
    let name = "[A-Za-z0-9_.:/-]([A-Za-zü0-9_.:/ -]{0,10}[A-Za-z0-9])?";
    let band = (0..200_000_u64, proptest::option::of(1..200_000_u64)).prop_map(|(from, more)| {
        let below = more.map(|more| Tokens(from + more));
        Filter::PromptBand { from: Tokens(from), below }
    });
    let round_band = (0..200_u64, 1..200_u64, prop_oneof![Just(1_000), Just(1_024)]);
    let round_band = round_band.prop_map(|(from, more, unit)| {
        let below = Some(Tokens((from + more) * unit));
        Filter::PromptBand { from: Tokens(from * unit), below }
    });
    let filters = prop_oneof![
        band,
        round_band,
        name.prop_map(Filter::Profile),
        name.prop_map(Filter::Tenant),
        name.prop_map(Filter::Model),
        name.prop_map(Filter::Pool),
        proptest::sample::select(&Segment::ALL).prop_map(Filter::Segment),
    ];
    proptest::option::of(filters)
        .prop_map(move |filter| filter.filter(|filter| filter.misfit(metric).is_none()))
}

fn any_slo() -> impl Strategy<Value = Slo> {
    let metric = proptest::sample::select(&Metric::ALL);
    let parts = metric.prop_flat_map(|metric| {
        let bound = if metric.dimension() == Dimension::Share {
            prop_oneof![0.0..=1.0_f64, (0..=1_000_u32).prop_map(|k| f64::from(k) / 1_000.0)].boxed()
        } else {
            prop_oneof![0.0..1e6_f64, Just(1e-12), Just(1e21), Just(0.25)].boxed()
        };
        (Just(metric), filter(metric), 10..=999_u16, bound)
    });
    parts.prop_map(|(metric, filter, tenths, bound)| {
        let statistic = match metric.is_share() {
            true => Statistic::Share,
            false => Statistic::Percentile(f64::from(tenths) / 10.0),
        };
        Slo { statistic, metric, filter, op: metric.op(), bound, text: String::new() }
    })
}

/// 128,000 is a whole number of thousands and of 1,024s, 285,696 of the latter only.
#[test]
fn both_ends_of_a_band_are_printed_alike() {
    for text in ["p50 ttft[125K-279K] <= 1 s", "p50 ttft[128k-256k] <= 1 s"] {
        assert_eq!(Slo::parse(text).unwrap().to_string(), text);
    }
}

proptest! {
    #[test]
    fn the_canonical_form_reads_back(slo in any_slo()) {
        prop_assert_eq!(Slo::parse(&slo.to_string()).unwrap(), slo);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = Slo::parse(&text);
    }

    #[test]
    fn nothing_like_a_target_makes_it_panic(
        text in "(p[0-9.]{0,4})? ?(ttft|hit|turn)[\\[\\]kK+=,ü -]{0,8}(<=|>=)[0-9.ü %sm]{0,6}",
    ) {
        let _ = Slo::parse(&text);
    }
}
