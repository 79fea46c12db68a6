//! Arithmetic over figures of runs: `run:path.to[name=first_call].figure`, numbers, + - * / and
//! brackets, and `least(a, b)` and `most(a, b)`.

use std::collections::BTreeMap;

use serde_json::Value;

type Figures = BTreeMap<String, Value>;

/// The value of an expression.
pub fn value(text: &str, figures: &Figures) -> Result<f64, String> {
    let mut reader = Reader { rest: text.trim(), figures };
    let value = reader.sum()?;
    match reader.rest {
        "" => Ok(value),
        rest => Err(format!("`{rest}` is left over of `{text}`")),
    }
}

struct Reader<'a> {
    rest: &'a str,
    figures: &'a Figures,
}

impl Reader<'_> {
    fn takes(&mut self, sign: char) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.takes('+') {
                value += self.product()?;
            } else if self.takes('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.single()?;
        loop {
            if self.takes('*') {
                value *= self.single()?;
            } else if self.takes('/') {
                value /= self.single()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn single(&mut self) -> Result<f64, String> {
        if self.takes('(') {
            let value = self.sum()?;
            return if self.takes(')') { Ok(value) } else { Err(self.lacks(')')) };
        }
        for (name, choose) in [("least(", f64::min as fn(f64, f64) -> f64), ("most(", f64::max)] {
            if let Some(rest) = self.rest.strip_prefix(name) {
                self.rest = rest;
                let mut value = self.sum()?;
                while self.takes(',') {
                    value = choose(value, self.sum()?);
                }
                return if self.takes(')') { Ok(value) } else { Err(self.lacks(')')) };
            }
        }
        let end = self.word_end();
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        match word.parse() {
            Ok(number) => Ok(number),
            Err(_) => figure(word, self.figures),
        }
    }

    /// Where a number or a figure ends: names may hold hyphens, and anything between brackets.
    fn word_end(&self) -> usize {
        let mut inside = false;
        let ends = |c: char| {
            inside = (inside || c == '[') && c != ']';
            !inside && (c.is_whitespace() || "+*/(),".contains(c))
        };
        self.rest.find(ends).unwrap_or(self.rest.len())
    }

    fn lacks(&self, sign: char) -> String {
        format!("`{sign}` is missing before `{}`", self.rest)
    }
}

/// One figure of a run.
fn figure(word: &str, figures: &Figures) -> Result<f64, String> {
    let (run, path) = word.split_once(':').ok_or(format!("`{word}` is no figure"))?;
    let mut value = figures.get(run).ok_or(format!("there is no run `{run}`"))?;
    let mut rest = path;
    while !rest.is_empty() {
        let key = rest.split(['.', '[']).next().unwrap_or(rest);
        rest = &rest[key.len()..];
        if !key.is_empty() {
            value = value.get(key).ok_or(format!("`{word}`: there is no `{key}`"))?;
        }
        if let Some(inside) = rest.strip_prefix('[') {
            let (wanted, behind) = inside.split_once(']').ok_or(format!("`{word}`: no `]`"))?;
            value = chosen(value, wanted).ok_or(format!("`{word}`: nothing is `{wanted}`"))?;
            rest = behind;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    value.as_f64().ok_or(format!("`{word}` is {value}, no number"))
}

/// The item of a list that has a value.
fn chosen<'a>(list: &'a Value, wanted: &str) -> Option<&'a Value> {
    let (key, expected) = wanted.split_once('=')?;
    list.as_array()?.iter().find(|item| item[key] == expected)
}

#[test]
fn expressions_are_worked_out() {
    let json = r#"{"a": {"b": [{"name": "x y", "v": 3}, {"name": "z", "v": 0.5}]}, "n": 8}"#;
    let figures = Figures::from([("run-1".to_owned(), serde_json::from_str(json).unwrap())]);
    let value = |text: &str| value(text, &figures);
    assert_eq!(value("run-1:n"), Ok(8.0));
    assert_eq!(value("run-1:a.b[name=x y].v / run-1:n - 1"), Ok(-0.625));
    assert_eq!(value("2 * (run-1:a.b[name=z].v + 1)"), Ok(3.0));
    assert_eq!(value("most(1, run-1:n, 3) - least(4, 2)"), Ok(6.0));
    for wrong in ["run-1:m", "run:n", "1 +", "(1", "1 2", "run-1:a", "run-1:a.b[name=w].v"] {
        assert!(value(wrong).is_err(), "{wrong}");
    }
}
