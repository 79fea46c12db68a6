//! A profile as the text of its file.

use std::fmt::Write as _;

use super::{AtLimit, Hours, KEYS, Key, Kind, Parameter, Profile};
use crate::workload::dist::{Dist, Family, Part, QuantileTable};
use crate::workload::target::{Target, Wanted, percent_key};

impl Profile {
    /// The text of the file; reading it gives this profile back.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = Out(String::new());
        out.text("name", &self.name);
        out.text("summary", &self.summary);
        out.table("models");
        out.text("main", &self.model);
        if let Some(other) = &self.other_model {
            out.text("other", other);
        }
        if self.get(Key::Limit).is_some() {
            let at_limit = AtLimit::WORDS.iter().find(|(_, at)| *at == self.at_limit);
            out.table("prompt");
            out.text("at_limit", at_limit.map_or("", |(word, _)| word));
        }
        let hours = Hours::WORDS.iter().find(|(_, hours)| *hours == self.hours);
        out.table("people");
        out.text("hours", hours.map_or("", |(word, _)| word));
        for spec in KEYS {
            if let Some(parameter) = self.get(spec.key) {
                out.parameter(spec.name, spec.kind, parameter);
            }
        }
        for class in &self.classes {
            out.table(&format!("class.{}", quoted_key(&class.name)));
            out.number("share", class.share);
            out.number("calls", class.calls);
            out.number("context", class.context);
            if let Some(tokens) = class.tokens_per_turn {
                out.number("tokens_per_turn", tokens);
            }
        }
        for target in &self.targets {
            out.target(target);
        }
        for conflict in &self.conflicts {
            out.table(&format!("conflict.{}", quoted_key(&conflict.name)));
            out.text("why", &conflict.why);
            out.text("choice", &conflict.choice);
        }
        out.0
    }
}

struct Out(String);

impl Out {
    fn line(&mut self, key: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn table(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[{name}]");
    }

    fn text(&mut self, key: &str, text: &str) {
        self.line(key, &toml::Value::String(text.to_owned()).to_string());
    }

    fn number(&mut self, key: &str, number: f64) {
        self.line(key, &shortest(number));
    }

    fn parameter(&mut self, name: &str, kind: Kind, parameter: &Parameter) {
        self.table(name);
        match (kind, &parameter.dist.family) {
            (Kind::Number(..), Family::Constant(value)) => self.number("value", *value),
            _ => self.dist(&parameter.dist),
        }
        self.text("mark", parameter.mark.word());
        self.text("source", &parameter.source);
        if let Family::Mixture(parts) = &parameter.dist.family {
            parts.iter().for_each(|part| self.part(name, part));
        }
    }

    fn part(&mut self, name: &str, part: &Part) {
        self.table(&format!("{name}.part.{}", quoted_key(&part.name)));
        self.number("share", part.share);
        self.dist(&part.dist);
    }

    fn dist(&mut self, dist: &Dist) {
        match &dist.family {
            Family::Constant(value) => self.number("value", *value),
            Family::LogNormal { median, sigma } => {
                self.text("family", "lognormal");
                self.number("median", *median);
                self.number("sigma", *sigma);
            }
            Family::Exponential { mean } => {
                self.text("family", "exponential");
                self.number("mean", *mean);
            }
            Family::Geometric { mean } => {
                self.text("family", "geometric");
                self.number("mean", *mean);
            }
            Family::Quantiles(table) => self.quantiles(table, dist.cap),
            Family::Mixture(_) => self.text("family", "mixture"),
        }
        let bounds = [("plus", dist.plus, 0.0), ("least", dist.least, 0.0)];
        for (key, value, default) in bounds {
            if value != default {
                self.number(key, value);
            }
        }
        if dist.cap.is_finite() {
            self.number("cap", dist.cap);
        }
    }

    fn quantiles(&mut self, table: &QuantileTable, cap: f64) {
        self.text("family", "quantiles");
        let points = table.points().iter().map(|(share, value)| {
            format!("{} = {}", quoted_key(&percent_key(*share)), shortest(*value))
        });
        self.line("quantiles", &format!("{{ {} }}", points.collect::<Vec<_>>().join(", ")));
        if let Some(mean) = table.stated_mean() {
            self.number("mean", mean);
        }
        if cap.is_infinite() {
            self.number("cap", table.top());
        }
    }

    fn target(&mut self, target: &Target) {
        self.table(&format!("target.{}", quoted_key(&target.name)));
        self.text("quantity", target.quantity.name());
        self.text("at", &target.at.text());
        match target.wanted {
            Wanted::About { value, within } => {
                self.number("value", value);
                self.number("within", within);
            }
            Wanted::Between(min, max) => {
                self.number("min", min);
                self.number("max", max);
            }
        }
        self.text("mark", target.mark.word());
        self.text("source", &target.source);
        if let Some(why) = &target.unmet {
            self.text("unmet", why);
        }
    }
}

/// The shortest number that reads back as this one; whole numbers without a point.
fn shortest(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => format!("{number:.0}"),
        false => format!("{number:?}"),
    }
}

/// A key as it may stand in a header.
fn quoted_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !key.is_empty() && key.chars().all(is_bare) {
        true => key.to_owned(),
        false => toml::Value::String(key.to_owned()).to_string(),
    }
}
