//! The page: a table of claims for every section, the commands, and where each figure is from.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Claim, Claimed, Figures, File, Found, Run, Unit, Verdict, grouped};

const HEAD: &str = "\
# Claims of the field

What others say about inference for agents, and what comes out here: every claim about a figure
that a simulator can show, of the article \"Sizing for agents: 275 input tokens for every output
token\" (S0, September 2026), of \"Agentic Workloads Break Your Capacity Model\" (S3), and of the
papers and blogs that they cite, by number. Papers were mostly seen as quoted there.

- *Reproduced*: the figure lies within the bounds beside it, under every seed.
- *Contested*: it does not, under one seed at least. The note says why. That holds for these
  scenarios, this hardware and these [step times](timing.md), which are not calibrated; it makes no
  claim wrong elsewhere.
- *Not modelled*: nothing here can show it.

A figure of a *profile* is what its sessions come to. Profiles are made to fit published figures
([generate.md](generate.md#the-fit)), so that such a figure shows that the claims go together, not
that they are true. Everything else comes out of the engine, the cache and the step time.

Bounds follow from what the source says by one rule, which knows nothing of the figure here:

- a range, \"more than\" and \"at most\" are taken as they stand;
- one figure, or about one, may be off by a tenth. Of a share that is a tenth of the smaller of what
  it holds and what it leaves: 98 % of hits is 97.8 to 98.2 %;
- what follows by arithmetic alone (memory, connections) must be equal as far as it is printed;
- words without a figure are *read*, and the note says how. Such rows are marked.

The rule was set after most figures had been seen once, with bounds chosen row by row, within which
54 of 88 lay. Some settings were chosen because they give the figure: the context of 67K tokens (39,
40), the batches of 121, and the pool of 48,000 blocks behind the hits by segment (11 to 14).

Where sessions are generated or drawn a run is made under three seeds: the figure is their mean, and
behind it stand the least and the most.

One command works all of it out and writes this page; a test holds the page to it:

```sh
TONNAGE_BLESS=1 cargo test --test main claims
```
";

/// The whole page.
pub fn page(file: &File, figures: &Figures) -> String {
    let claims = || file.section.iter().flat_map(|section| &section.claim);
    let found: Vec<Found> = claims().map(|claim| claim.find(figures)).collect();
    let mut out = HEAD.to_owned();
    let count = |verdict| found.iter().filter(|found| found.verdict == verdict).count();
    let counts = [Verdict::Reproduced, Verdict::Contested, Verdict::NotModelled].map(count);
    let [reproduced, contested, unmodelled] = counts;
    let read = claims()
        .zip(&found)
        .filter(|(claim, found)| is_read(claim) && found.verdict == Verdict::Reproduced);
    let _ = writeln!(
        out,
        "\nOf {} rows {reproduced} are reproduced ({} of them as read here), {contested} contested \
         and {unmodelled} not modelled.",
        found.len(),
        read.count()
    );
    let unexplained: Vec<String> = claims()
        .zip(&found)
        .filter(|(claim, found)| found.verdict == Verdict::Contested && claim.note.is_empty())
        .map(|(claim, found)| format!("{}: {}", claim.name(), found.shown))
        .collect();
    assert!(unexplained.is_empty(), "nothing says why these are contested: {unexplained:#?}");
    let mut results = found.iter();
    for section in &file.section {
        let _ = write!(
            out,
            "\n## {}\n\n| # | claim | published | here | verdict | shown by |\n\
             |---:|---|---|---|---|---|\n",
            section.title
        );
        let mut notes = String::new();
        for claim in &section.claim {
            let found = results.next().expect("one for every claim");
            out.push_str(&row(claim, found));
            notes.push_str(&note(claim, figures));
        }
        if !notes.is_empty() {
            let _ = write!(out, "\n{notes}");
        }
    }
    commands(&mut out, &file.run);
    let _ = write!(out, "\n## Where each figure is\n\n{WHERE}\n| # | expression |\n|---:|---|\n");
    for claim in claims() {
        if let Some(figure) = &claim.figure {
            let _ = writeln!(out, "| {} | `{figure}` |", claim.number);
        }
    }
    out
}

const WHERE: &str = "\
A figure is a key of the JSON that a command prints with `--json` ([metrics.md](metrics.md#json)),
behind the command's name; `calls` are figures of `calls.csv`. A share is shown in per cent.
";

/// Whether its bounds are a reading of words.
fn is_read(claim: &Claim) -> bool {
    matches!(claim.claimed, Some(Claimed::Reading(_)))
}

fn row(claim: &Claim, found: &Found) -> String {
    let verdict = match found.verdict {
        Verdict::Reproduced if is_read(claim) => "reproduced, as read",
        Verdict::Contested if is_read(claim) => "**contested**, as read",
        Verdict::Reproduced => "reproduced",
        Verdict::Contested => "**contested**",
        Verdict::NotModelled => "not modelled",
    };
    let bounds = match (&claim.claimed, claim.unit) {
        (Some(claimed), Some(unit)) if !matches!(unit, Unit::Refused) => {
            let [least, most] = claimed.bounds(unit);
            format!(" ({})", bounds(least, most))
        }
        _ => String::new(),
    };
    let by = match (&claim.figure, &claim.test) {
        (Some(figure), _) => names_in(figure).join(", "),
        (None, Some([file, function])) => {
            let file = file.rsplit_once('/').map_or(file.as_str(), |(_, name)| name);
            format!("test `{function}` in `{file}`")
        }
        (None, None) => "-".to_owned(),
    };
    format!(
        "| {} | {} | {} ({}) | {}{bounds} | {verdict} | {by} |\n",
        claim.number, claim.what, claim.published, claim.source, found.shown
    )
}

fn bounds(least: f64, most: f64) -> String {
    let shown = |bound: f64| {
        let bound = (bound * 1e6).round() / 1e6;
        let decimals = bound.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
        grouped(bound, decimals)
    };
    match (least.is_finite(), most.is_finite()) {
        (true, true) => format!("{} to {}", shown(least), shown(most)),
        (true, false) => format!("from {}", shown(least)),
        _ => format!("up to {}", shown(most)),
    }
}

/// The runs that an expression reads, in its order.
fn names_in(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices(':') {
        let start = text[..at].rfind([' ', '(', ',', '{']).map_or(0, |before| before + 1);
        let name = &text[start..at];
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn note(claim: &Claim, figures: &Figures) -> String {
    let why = claim.not_modelled.as_deref();
    let read = match &*claim.read_as {
        "" => String::new(),
        read => format!("Read as: {}{} ", read[..1].to_lowercase(), &read[1..]),
    };
    let text = [why.unwrap_or_default(), &read, &claim.note].concat();
    let text = text.trim_end().to_owned();
    match text.is_empty() {
        true => String::new(),
        false => format!("- **{}** {}\n", claim.number, filled(&text, figures, claim)),
    }
}

/// A note with its figures, each `{expression|unit|digits}`.
fn filled(text: &str, figures: &Figures, claim: &Claim) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) = behind.split_once('}').expect("a figure in a note ends");
        let mut parts = inside.split('|');
        let expression = parts.next().expect("there is one part at least");
        let unit: Unit = Value::from(parts.next().unwrap_or_default())
            .as_str()
            .map(|unit| serde_json::from_value(Value::from(unit)).expect("a unit"))
            .expect("it is text");
        let digits = parts.next().map_or(0, |digits| digits.parse().expect("a number of digits"));
        let value =
            figures.mean(expression).unwrap_or_else(|error| panic!("{}: {error}", claim.name()));
        out += before;
        out += &unit.show(value, digits);
        rest = after;
    }
    out + rest
}

fn commands(out: &mut String, runs: &[Run]) {
    out.push_str("\n## Commands\n");
    for run in runs {
        let command = wrapped(&run.command);
        let how = match (&run.refused, run.seeds) {
            (Some(_), _) => ", which ends in an error".to_owned(),
            (None, Some(seeds)) => format!(" (also with `--seed 2` to `--seed {seeds}`)"),
            (None, None) => String::new(),
        };
        let _ = write!(out, "\n**{}**: {}{how}\n\n```sh\n{command}\n```\n", run.name, run.what);
    }
}

/// A command over several lines, broken before options.
fn wrapped(command: &str) -> String {
    let (mut lines, mut rest) = (Vec::new(), command.to_owned());
    while rest.len() > 96 {
        let Some(at) = rest[..94].rfind(" --") else { break };
        let behind = rest.split_off(at);
        lines.push(rest);
        rest = format!("    {}", behind.trim_start());
    }
    lines.push(rest);
    lines.join(" \\\n")
}
