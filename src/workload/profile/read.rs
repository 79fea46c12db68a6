//! A profile from its file.

use std::collections::BTreeSet;

use super::{AtLimit, Class, Conflict, Hours, KEYS, Key, Kind, Mark, Parameter, Profile, Spec};
use crate::diag::{self, Error, Result, shown};
use crate::document::Document;
use crate::workload::dist::{Dist, Family, Part, QuantileTable, Z90};
use crate::workload::target::{At, Quantity, Target, Wanted, percent_key, percent_share};

/// The largest amount of anything: tokens, calls or seconds.
const AMOUNT_MAX: f64 = 1e9;
/// The largest sigma of a log-normal; beyond it is a slip.
const SIGMA_MAX: f64 = 10.0;
/// How far off 1 shares may add up.
const SHARES_SLACK: f64 = 1e-6;
/// How far off its value a target may be, as a share of it, where it does not say.
const TOLERANCE: f64 = 0.05;

/// What a profile says beside its parameters.
const OWN_KEYS: &[&str] =
    &["name", "summary", "models.main", "models.other", "prompt.at_limit", "people.hours"];
/// Tables whose tables have names of the profile's own.
const TABLES: &[&str] = &["class", "target", "conflict"];

impl Profile {
    /// Reads a profile; `file` stands for it in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self> {
        let document = Document::parse(text, file)?;
        let mut reader = Reader { document: &document, known: BTreeSet::new() };
        reader.refuse_unknown_tables()?;
        let profile = reader.profile()?;
        reader.refuse_unknown()?;
        reader.check_pairs(&profile)?;
        Ok(profile)
    }
}

struct Reader<'a> {
    document: &'a Document,
    /// Every key that was asked for.
    known: BTreeSet<String>,
}

impl Reader<'_> {
    fn profile(&mut self) -> Result<Profile> {
        let mut profile = Profile::new(self.needed_text("name")?);
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if profile.name.is_empty() || !profile.name.chars().all(is_name) {
            let error = Error::found(&profile.name, "letters, digits, `-`, `_` and `.`");
            return Err(self.document.at("name", error));
        }
        profile.summary = self.text("summary")?.unwrap_or_default();
        profile.model = self.needed_text("models.main")?;
        profile.other_model = self.text("models.other")?;
        profile.at_limit = self.choice("prompt.at_limit", &AtLimit::WORDS)?.unwrap_or_default();
        profile.hours = self.choice("people.hours", &Hours::WORDS)?.unwrap_or_default();
        for spec in KEYS {
            if let Some(parameter) = self.parameter(spec)? {
                profile.set(spec.key, parameter);
            }
        }
        profile.classes = self.tables("class", Self::class)?;
        profile.targets = self.tables("target", Self::target)?;
        profile.conflicts = self.tables("conflict", Self::conflict)?;
        let total: f64 = profile.classes.iter().map(|class| class.share).sum();
        match profile.classes.first() {
            Some(first) if (total - 1.0).abs() > SHARES_SLACK => {
                let key = format!("class.{}.share", first.name);
                Err(self.document.at(&key, not_one("the shares of the classes", total)))
            }
            _ => Ok(profile),
        }
    }

    fn parameter(&mut self, spec: &Spec) -> Result<Option<Parameter>> {
        let name = spec.name;
        self.known.insert(name.to_owned());
        if self.document.has(name) {
            let example = match spec.kind {
                Kind::Number(..) => "{ value = 0.5, mark = \"assumed\", source = \"...\" }",
                Kind::Draw => {
                    "{ family = \"lognormal\", median = 100, sigma = 1, mark = \"assumed\", source \
                     = \"...\" }"
                }
            };
            let error = Error::new(format!("a parameter is a table, such as {example}"));
            return Err(self.document.at(name, error));
        }
        if self.document.first_of_table(name).is_none() {
            return match spec.required {
                true => Err(self.document.at(name, missing(spec))),
                false => Ok(None),
            };
        }
        let dist = match spec.kind {
            Kind::Number(min, max) => Dist::constant(self.needed_number(name, "value", min, max)?),
            Kind::Draw => self.dist(name, true)?,
        };
        let mark = self.mark(name)?;
        let source = self.needed(name, "source", Self::text)?;
        Ok(Some(Parameter { dist, mark, source }))
    }

    /// The distribution that the keys of the table `at` give.
    fn dist(&mut self, at: &str, mixture_allowed: bool) -> Result<Dist> {
        let cap = self.number(at, "cap", 0.0, AMOUNT_MAX)?;
        let family = match self.text(&format!("{at}.family"))?.as_deref() {
            None | Some("constant") => {
                Family::Constant(self.needed_number(at, "value", 0.0, AMOUNT_MAX)?)
            }
            Some("lognormal") => self.log_normal(at)?,
            Some("exponential") => {
                Family::Exponential { mean: self.needed_number(at, "mean", 0.0, AMOUNT_MAX)? }
            }
            Some("geometric") => {
                Family::Geometric { mean: self.needed_number(at, "mean", 0.0, AMOUNT_MAX)? }
            }
            Some("quantiles") => self.quantiles(at, cap)?,
            Some("mixture") if mixture_allowed => Family::Mixture(self.parts(at)?),
            Some(other) => {
                let mut known =
                    vec!["constant", "lognormal", "exponential", "geometric", "quantiles"];
                known.extend(mixture_allowed.then_some("mixture"));
                let error = Error::unknown("family", other, known);
                return Err(self.document.at(&format!("{at}.family"), error));
            }
        };
        Ok(Dist {
            family,
            plus: self.number(at, "plus", 0.0, AMOUNT_MAX)?.unwrap_or(0.0),
            least: self.number(at, "least", 0.0, AMOUNT_MAX)?.unwrap_or(0.0),
            cap: cap.unwrap_or(f64::INFINITY),
        })
    }

    fn log_normal(&mut self, at: &str) -> Result<Family> {
        // Two decimals above the smallest double keep the logarithm finite.
        let median = self.needed_number(at, "median", 1e-300, AMOUNT_MAX)?;
        let p90 = self.number(at, "p90", median, AMOUNT_MAX)?;
        let sigma = match (self.number(at, "sigma", 0.0, SIGMA_MAX)?, p90) {
            (Some(sigma), None) => sigma,
            (None, Some(p90)) => (p90 / median).ln() / Z90,
            _ => {
                let error = Error::new("a log-normal has either `sigma` or `p90`");
                return Err(self.document.at(&format!("{at}.median"), error));
            }
        };
        Ok(Family::LogNormal { median, sigma })
    }

    fn quantiles(&mut self, at: &str, cap: Option<f64>) -> Result<Family> {
        let prefix = format!("{at}.quantiles.");
        let keys = self.names_below(&prefix);
        let mut points = Vec::new();
        for name in &keys {
            let full = format!("{prefix}{name}");
            let share = percent_share(name).ok_or_else(|| {
                let allowed = "a percentile such as `p5` or `\"p99.9\"`";
                self.document.at(&full, Error::found(name, allowed))
            })?;
            points.push((share, self.needed_number(&prefix[..prefix.len() - 1], name, 0.0, 1e9)?));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mean = self.number(at, "mean", 0.0, AMOUNT_MAX)?;
        let place = format!("{at}.family");
        let Some(cap) = cap else {
            let error = Error::new("a table of quantiles needs `cap`, the largest value");
            return Err(self.document.at(&place, error));
        };
        let table = QuantileTable::new(points, mean, cap);
        table.map(Family::Quantiles).map_err(|why| self.document.at(&place, Error::new(why)))
    }

    fn parts(&mut self, at: &str) -> Result<Vec<Part>> {
        let table = format!("{at}.part");
        let parts = self.tables(&table, |reader, at, name| {
            let share = reader.needed_number(at, "share", 1e-9, 1.0)?;
            Ok(Part { name: name.to_owned(), share, dist: reader.dist(at, false)? })
        })?;
        let total: f64 = parts.iter().map(|part| part.share).sum();
        if (total - 1.0).abs() > SHARES_SLACK {
            let error = not_one("the shares of the parts", total);
            return Err(self.document.at(&format!("{at}.family"), error));
        }
        Ok(parts)
    }

    fn class(&mut self, at: &str, name: &str) -> Result<Class> {
        Ok(Class {
            name: name.to_owned(),
            share: self.needed_number(at, "share", 0.0, 1.0)?,
            calls: self.number(at, "calls", 1e-3, 1e3)?.unwrap_or(1.0),
            context: self.number(at, "context", 1e-3, 1e3)?.unwrap_or(1.0),
            tokens_per_turn: self.number(at, "tokens_per_turn", 1.0, 1e15)?,
        })
    }

    fn conflict(&mut self, at: &str, name: &str) -> Result<Conflict> {
        Ok(Conflict {
            name: name.to_owned(),
            why: self.needed(at, "why", Self::text)?,
            choice: self.needed(at, "choice", Self::text)?,
        })
    }

    fn target(&mut self, at: &str, name: &str) -> Result<Target> {
        let quantities: Vec<_> = Quantity::ALL.iter().map(|q| (q.name(), *q)).collect();
        let quantity = self.needed(at, "quantity", |r, key| r.choice(key, &quantities))?;
        let figure = self.figure(at, quantity)?;
        let bounds = -AMOUNT_MAX..=1e15;
        let mut amount = |key| self.number(at, key, *bounds.start(), *bounds.end());
        let (value, min, max) = (amount("value")?, amount("min")?, amount("max")?);
        let (tolerance, within) = (amount("tolerance")?, amount("within")?);
        let wanted = match (value, min, max, tolerance, within) {
            (Some(value), None, None, tolerance, None) => {
                let within = tolerance.unwrap_or(TOLERANCE) * value.abs();
                Wanted::About { value, within }
            }
            (Some(value), None, None, None, Some(within)) => Wanted::About { value, within },
            (None, Some(min), Some(max), None, None) if min <= max => Wanted::Between(min, max),
            _ => {
                let error = Error::new(
                    "a target has `value`, with `tolerance` (a share) or `within` (in its unit) \
                     if need be, or `min` and `max`",
                );
                return Err(self.document.at(&format!("{at}.quantity"), error));
            }
        };
        Ok(Target {
            name: name.to_owned(),
            quantity,
            at: figure,
            wanted,
            mark: self.mark(at)?,
            source: self.needed(at, "source", Self::text)?,
            unmet: self.text(&format!("{at}.unmet"))?,
        })
    }

    fn figure(&mut self, at: &str, quantity: Quantity) -> Result<At> {
        let key = format!("{at}.at");
        let text = self.text(&key)?;
        let found = match text.as_deref() {
            None | Some("total") if quantity.is_total() => Some(At::Total),
            Some("mean") if !quantity.is_total() => Some(At::Mean),
            Some(name) if !quantity.is_total() => percent_share(name).map(At::Percentile),
            _ => None,
        };
        found.ok_or_else(|| {
            let allowed = match quantity.is_total() {
                true => "total, as it is one number of the whole trace".to_owned(),
                false => format!("mean, or a percentile such as {}", percent_key(0.5)),
            };
            let error = Error::found(text.as_deref().unwrap_or(""), allowed);
            let at_quantity = format!("{at}.quantity");
            self.document.at(if text.is_some() { &key } else { &at_quantity }, error)
        })
    }

    fn mark(&mut self, at: &str) -> Result<Mark> {
        self.needed(at, "mark", |reader, key| reader.choice(key, &Mark::WORDS))
    }

    /// What `read` makes of each table below `table`, in alphabetical order.
    fn tables<T>(
        &mut self,
        table: &str,
        read: impl Fn(&mut Self, &str, &str) -> Result<T>,
    ) -> Result<Vec<T>> {
        let prefix = format!("{table}.");
        let mut names: Vec<String> = Vec::new();
        for rest in self.names_below(&prefix) {
            let Some((name, _)) = rest.split_once('.') else {
                let full = format!("{prefix}{rest}");
                let error = Error::new(format!("`{full}` must be a table"));
                return Err(self.document.at(&full, error));
            };
            if names.last().is_none_or(|last| last != name) {
                names.push(name.to_owned());
            }
        }
        names.dedup();
        names.iter().map(|name| read(self, &format!("{prefix}{name}"), name)).collect()
    }

    /// What follows `prefix` in the keys that begin with it.
    fn names_below(&self, prefix: &str) -> Vec<String> {
        let keys = self.document.keys().filter_map(|key| key.strip_prefix(prefix));
        keys.map(str::to_owned).collect()
    }

    fn number(&mut self, at: &str, key: &str, min: f64, max: f64) -> Result<Option<f64>> {
        let full = format!("{at}.{key}");
        let number = self.document.number(&full, min, max);
        self.known.insert(full);
        number
    }

    fn needed_number(&mut self, at: &str, key: &str, min: f64, max: f64) -> Result<f64> {
        match self.number(at, key, min, max)? {
            Some(number) => Ok(number),
            None => Err(self.lacks(at, key)),
        }
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.known.insert(key.to_owned());
        self.document.text(key)
    }

    fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        self.known.insert(key.to_owned());
        self.document.choice(key, choices)
    }

    fn needed_text(&mut self, key: &str) -> Result<String> {
        let text = self.text(key)?;
        text.ok_or_else(|| self.document.at(key, Error::new("a profile needs this text")))
    }

    fn needed<T>(
        &mut self,
        at: &str,
        key: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<Option<T>>,
    ) -> Result<T> {
        match read(self, &format!("{at}.{key}"))? {
            Some(value) => Ok(value),
            None => Err(self.lacks(at, key)),
        }
    }

    /// The complaint about a table without a key that it needs: at a key that may be meant for it,
    /// else at the table's first key.
    fn lacks(&self, at: &str, key: &str) -> Error {
        let names = self.names_below(&format!("{at}."));
        let unread = names.iter().filter(|name| !self.known.contains(&format!("{at}.{name}")));
        if let Some(slip) = diag::nearest(key, unread.map(String::as_str)) {
            let error = Error::new("unknown key").help(format!("did you mean `{key}`?"));
            return self.document.at(&format!("{at}.{slip}"), error);
        }
        let error = Error::new(format!("`{key}` is missing"));
        match self.document.first_of_table(at) {
            Some(first) => self.document.at(first, error).with_field(at),
            None => self.document.at(at, error),
        }
    }

    fn refuse_unknown(&self) -> Result<()> {
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        match self.document.keys().find(|key| !self.known.contains(*key)) {
            Some(key) => Err(self.document.unknown(key, &known)),
            None => Ok(()),
        }
    }

    /// A slip in the name of a table is not to be taken for a parameter that is not there.
    fn refuse_unknown_tables(&self) -> Result<()> {
        let known: Vec<&str> =
            OWN_KEYS.iter().copied().chain(KEYS.iter().map(|spec| spec.name)).collect();
        let is_below = |name: &str, table: &str| {
            name.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        for key in self.document.keys() {
            let is_known = |name: &&str| is_below(key, name) || is_below(name, key);
            if TABLES.iter().any(|table| is_below(key, table)) || known.iter().any(is_known) {
                continue;
            }
            // The slip is in the last part of the first table that nothing known lies below.
            let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
            let mut tables = ends.map(|end| &key[..end]);
            let slip = tables.find(|table| !known.iter().any(|name| is_below(name, table)));
            let slip = slip.unwrap_or(key);
            return Err(self.document.at(key, unknown_table(slip, &known)));
        }
        Ok(())
    }

    /// What needs something else is not there without it, and the other way round.
    fn check_pairs(&self, profile: &Profile) -> Result<()> {
        for (switch, needs, may_have) in PAIRS {
            let is_on = switch.is_on(profile);
            let missing = needs.iter().find(|key| is_on && profile.get(**key).is_none());
            if let Some(key) = missing {
                let error = missing_with(key.spec(), &switch.name());
                return Err(self.document.at(key.spec().name, error));
            }
            let mut dependents = needs.iter().chain(*may_have);
            if let Some(key) = dependents.find(|key| !is_on && profile.get(**key).is_some()) {
                let error = Error::new(format!("it has no effect: {} is needed", switch.name()));
                let name = key.spec().name;
                let at = self.document.first_of_table(name).unwrap_or(name);
                return Err(self.document.at(at, error).with_field(name));
            }
        }
        let switches = profile.number(Key::Switch) > 0.0;
        if switches && profile.other_model.is_none() {
            return Err(self.document.at("models.other", Error::new("a switch leads to it")));
        }
        let without = [
            ("models.other", !switches, Key::Switch),
            ("prompt.at_limit", profile.get(Key::Limit).is_none(), Key::Limit),
        ];
        match without.iter().find(|(key, is_off, _)| *is_off && self.document.has(key)) {
            Some((key, _, needed)) => {
                let needed = needed.spec().name;
                let error = Error::new(format!("it has no effect: `{needed}` is needed"));
                Err(self.document.at(key, error))
            }
            None => Ok(()),
        }
    }
}

/// What turns a part of the model on.
pub(super) enum On {
    /// A share above 0.
    Above(Key),
    /// A share below 1.
    Below(Key),
    /// A limit at which conversations are compacted.
    Compaction,
    /// More than one call in a turn.
    Loops,
}

impl On {
    /// The parameters that turn it on.
    pub(super) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Above(key) | Self::Below(key) => vec![*key],
            Self::Compaction => vec![Key::Limit],
            Self::Loops => vec![Key::CallsSingle, Key::CallsFirst, Key::CallsLater],
        }
    }

    pub(super) fn is_on(&self, profile: &Profile) -> bool {
        match self {
            Self::Above(key) => profile.number(*key) > 0.0,
            Self::Below(key) => profile.number(*key) < 1.0,
            Self::Compaction => {
                profile.get(Key::Limit).is_some() && profile.at_limit == AtLimit::Compact
            }
            Self::Loops => {
                let calls = [Key::CallsSingle, Key::CallsFirst, Key::CallsLater];
                let most = |key| profile.dist(key).map_or(1.0, |dist| dist.quantile(1.0 - 1e-9));
                calls.into_iter().any(|key| most(key) >= 2.0)
            }
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Above(key) => format!("`{}` above 0", key.spec().name),
            Self::Below(key) => format!("`{}` below 1", key.spec().name),
            Self::Compaction => "`prompt.limit` with `at_limit = \"compact\"`".to_owned(),
            Self::Loops => "more than one call in a turn".to_owned(),
        }
    }
}

/// What turns something on, what it then needs, and what else it may have.
pub(super) const PAIRS: &[(On, &[Key], &[Key])] = &[
    (On::Above(Key::SingleTurn), &[Key::CallsSingle], &[]),
    (
        On::Below(Key::SingleTurn),
        &[Key::Turns, Key::CallsFirst, Key::CallsLater, Key::GapUser, Key::GrowthUser],
        &[],
    ),
    (On::Above(Key::FailedSessions), &[Key::FailedSessionFactor], &[]),
    (On::Above(Key::FailedTurns), &[Key::FailedTurnFactor], &[]),
    (On::Above(Key::Resumed), &[Key::ResumedFirst], &[]),
    (On::Above(Key::Replaced), &[Key::ReplacedTokens], &[]),
    (On::Above(Key::Volatile), &[Key::VolatileAt], &[]),
    (On::Compaction, &[Key::Compacted], &[]),
    (On::Loops, &[Key::GapTool, Key::GrowthTool], &[Key::Beside, Key::GapBatch]),
    (
        On::Above(Key::SubagentSessions),
        &[Key::Spawns, Key::SubagentCalls, Key::SubagentFirst],
        &[Key::SpawnsTogether, Key::SubagentKept, Key::SubagentGrowth],
    ),
    (On::Above(Key::FailedCalls), &[Key::FailedDuration, Key::RetryGap], &[]),
];

/// The complaint about a table, with the nearest of the names beside it, or else of all names.
fn unknown_table(slip: &str, known: &[&str]) -> Error {
    let error = Error::new(format!("unknown key `{}`", shown(slip.to_owned())));
    let (table, last) = slip.rsplit_once('.').unwrap_or(("", slip));
    let first = |rest: &'_ str| rest.split('.').next().unwrap_or_default().to_owned();
    let beside: Vec<String> = match table {
        "" => known.iter().chain(TABLES).map(|name| first(name)).collect(),
        _ => {
            let inside = known.iter().filter_map(|name| name.strip_prefix(table));
            inside.filter_map(|rest| rest.strip_prefix('.')).map(first).collect()
        }
    };
    if let Some(near) = diag::nearest(last, beside.iter().map(String::as_str)) {
        let dot = if table.is_empty() { "" } else { "." };
        return error.help(format!("did you mean `{table}{dot}{near}`?"));
    }
    let leaf = |name: &&str| diag::nearest(last, name.rsplit('.').next()).is_some();
    match known.iter().find(|name| leaf(name)) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(format!("known are {}, {}", known.join(", "), TABLES.join(", "))),
    }
}

fn not_one(what: &str, total: f64) -> Error {
    Error::new(format!("{what} add up to {total:.6}, not to 1"))
}

fn missing(spec: &Spec) -> Error {
    Error::new("a profile needs this parameter").help(spec.meaning)
}

fn missing_with(spec: &Spec, why: &str) -> Error {
    Error::new(format!("{why} needs this parameter")).help(spec.meaning)
}
