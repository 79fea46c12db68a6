use super::*;
use crate::workload::dist::{Part, QuantileTable};
use crate::workload::target::{At, Quantity, Wanted};

const SMALL: &str = "\
name = 'small'
models.main = 'm'

[sessions]
single_turn = { value = 1, mark = 'assumed', source = 'a guess' }

[calls.single_turn]
family = 'lognormal'
median = 9.5
p90 = 50
plus = 0.5
cap = 400
mark = 'fit'
source = 'calls per session'

[prompt]
first = { value = 900, mark = 'assumed', source = 'a guess' }
growth_tool = { family = 'exponential', mean = 30, mark = 'assumed', source = 'a guess' }

[output.tokens]
family = 'quantiles'
quantiles = { p5 = 89, p50 = 216, p95 = 1554, 'p99.5' = 4000 }
mean = 530
cap = 64000
mark = 'measured'
source = 'sessions'

[gap.tool]
family = 'mixture'
mark = 'published'
source = 'a paper'
part.run = { share = 0.75, family = 'lognormal', median = 0.85, sigma = 2.42, cap = 3600 }
part.edit = { share = 0.25, family = 'geometric', mean = 2, plus = 1 }

[target.calls]
quantity = 'calls_per_session'
at = 'p50'
value = 10
within = 1
mark = 'published'
source = 'a paper'
";

fn parsed(text: &str) -> Result<Profile, String> {
    Profile::parse(text, "small.toml").map_err(|error| error.to_string())
}

#[test]
fn a_file_is_read_and_written_back() {
    let profile = parsed(SMALL).unwrap();
    assert_eq!(parsed(&profile.to_toml()).unwrap(), profile);
    assert!((profile.dist(Key::CallsSingle).unwrap().quantile(0.9) - 50.5).abs() < 1e-9);
    assert_eq!(profile.number(Key::SingleTurn), 1.0);
    assert_eq!(profile.number(Key::Team), 10.0);
    assert_eq!(profile.targets[0].wanted, Wanted::About { value: 10.0, within: 1.0 });
}

#[test]
fn a_profile_made_in_memory_is_written_and_read_back() {
    let table = QuantileTable::new(vec![(0.1, 5.0), (0.9, 50.0)], None, 100.0).unwrap();
    let parameter = |family| Parameter {
        dist: Dist::of(family),
        mark: Mark::Measured,
        source: "a \"trace\"\nof two lines".to_owned(),
    };
    let mut profile = parsed(SMALL).unwrap();
    profile.classes = [("a b", 0.25), ("c", 0.75)]
        .map(|(name, share)| Class {
            name: name.into(),
            share,
            calls: 0.5,
            context: 2.0,
            tokens_per_turn: Some(9.5),
        })
        .to_vec();
    profile.conflicts.push(Conflict { name: "x".into(), why: "no".into(), choice: "y".into() });
    let part = |name: &str, share| Part { name: name.into(), share, dist: Dist::constant(3.0) };
    let parts = vec![part("one", 0.5), part("two", 0.5)];
    profile.set(Key::First, parameter(Family::Mixture(parts)));
    profile.set(Key::GrowthTool, parameter(Family::Quantiles(table)));
    profile.targets.push(Target {
        name: "hit".into(),
        quantity: Quantity::Hit,
        at: At::Total,
        wanted: Wanted::Between(0.3, 0.6),
        mark: Mark::Published,
        source: "s".into(),
        unmet: Some("because".into()),
    });
    let back = parsed(&profile.to_toml()).unwrap();
    // A table's largest value becomes the bound of the draw as well; the draws are the same.
    let growth = |profile: &Profile| profile.dist(Key::GrowthTool).unwrap().quantile(0.77);
    assert_eq!(growth(&back), growth(&profile));
    assert_eq!(back.to_toml(), profile.to_toml());
}

#[test]
fn a_wrong_profile_is_refused_with_its_place() {
    for (from, to, said) in [
        ("median = 9.5", "medain = 9.5", "small.toml:9:1: calls.single_turn.medain: unknown key"),
        ("p90 = 50", "p90 = 5", "calls.single_turn.p90: found `5`, allowed: a number from 9.5"),
        ("p90 = 50", "", "either `sigma` or `p90`"),
        ("'lognormal'\nmedian = 9.5", "'lognorm'\nmedian = 9.5", "did you mean `lognormal`?"),
        ("mark = 'fit'", "mark = 'fitted'", "unknown value `fitted`"),
        ("source = 'sessions'", "", "output.tokens: `source` is missing"),
        ("[prompt]", "[promt]", "unknown key `promt`\n  help: did you mean `prompt`?"),
        ("[prompt]", "[prompt]\ngrwoth_tool = { value = 1 }", "did you mean `prompt.growth_tool`?"),
        ("plus = 0.5", "pluss = 0.5", "did you mean `calls.single_turn.plus`?"),
        ("share = 0.75", "share = 0.5", "add up to 0.75"),
        ("mean = 530", "mean = 5300", "cannot be met"),
        ("p5 = 89", "x5 = 89", "a percentile such as"),
        ("{ value = 900, mark = 'assumed', source = 'a guess' }", "900", "a parameter is a table"),
        ("within = 1", "within = 1\nmin = 3", "a target has `value`"),
        ("at = 'p50'", "at = 'total'", "mean, or a percentile"),
        ("at = 'p50'", "", "target.calls.quantity: found ``, allowed: mean"),
        ("'calls_per_session'", "'calls_per_sesion'", "did you mean `calls_per_session`?"),
        ("name = 'small'", "name = 'sm all'", "small.toml:1:1: name: found `sm all`"),
        ("{ value = 1,", "{ value = 0.5,", "sessions.turns: `sessions.single_turn` below 1 needs"),
        ("[prompt]", "[prompt]\nat_limit = 'end'", "no effect: `prompt.limit` is needed"),
        ("models.main = 'm'", "models = { main = 'm', other = 'n' }", "models.other: it has no"),
        (
            "[prompt]",
            "[prompt]\nresumed_first = { value = 1, mark = 'fit', source = '' }",
            "it has no effect: `prompt.resumed` above 0 is needed",
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let error = parsed(&SMALL.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(said), "{to}: {error}");
    }
}
