//! One row and what its cells say.

use rustc_hash::FxHashSet;

use super::rows::Rows;
use super::{Column, SHARED_MARK, Words};
use crate::diag::{Error, Result};
use crate::trace::check;
use crate::trace::record::{
    After, AfterEvent, Base, Call, Cause, Finish, Name, SharedContext, Status,
};
use crate::units::{NANOS_PER_SEC, Span, Tokens};

/// Where each column stands in this file.
#[derive(Debug)]
pub(super) struct Layout {
    /// Indexed by `Column as usize`.
    places: Vec<Option<usize>>,
    pub(super) width: usize,
}

impl Layout {
    pub(super) fn new(header: &Rows) -> Result<Self> {
        let mut places = vec![None; Column::ALL.len()];
        for (place, name) in header.cells().enumerate() {
            let number = place as u64 + 1;
            let name = std::str::from_utf8(name)
                .map_err(|_| Error::new("the header is not UTF-8").at_column(number))?;
            let Some(column) = Column::ALL.iter().find(|column| column.name() == name) else {
                let known = Column::ALL.iter().map(|column| column.name());
                return Err(Error::unknown("column", name, known)
                    .at_column(number)
                    .help("the first line must name the columns of a canonical trace"));
            };
            if let Some(first) = places[*column as usize].replace(place) {
                let first = first + 1;
                return Err(Error::new(format!(
                    "column `{name}` stands twice in the header, first as column {first}"
                ))
                .at_column(number));
            }
        }
        let missing = Column::ALL
            .iter()
            .filter(|column| !column.optional() && places[**column as usize].is_none());
        let missing: Vec<&str> = missing.map(|column| column.name()).collect();
        if !missing.is_empty() {
            return Err(Error::new(format!("the header lacks {}", missing.join(", "))));
        }
        Ok(Self { places, width: header.len() })
    }

    pub(super) fn column_number(&self, name: &str) -> Option<u64> {
        let column = Column::ALL.iter().find(|column| column.name() == name)?;
        self.places[*column as usize].map(|place| place as u64 + 1)
    }
}

/// Names that many calls share are kept once.
#[derive(Debug, Default)]
pub(super) struct Names(FxHashSet<Name>);

impl Names {
    pub(super) fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.0.get(text) {
            return Name::clone(name);
        }
        let name = Name::from(text);
        self.0.insert(Name::clone(&name));
        name
    }

    /// A call to write a row into.
    pub(super) fn no_call(&mut self) -> Call {
        let nobody = self.get("");
        Call {
            at: Span::ZERO,
            after: Vec::new(),
            gap: Span::ZERO,
            cause: Cause::User,
            turn: 0,
            lane: 0,
            model: Name::clone(&nobody),
            tenant: Name::clone(&nobody),
            user: Name::clone(&nobody),
            profile: nobody,
            base: Base::None,
            kept_tokens: Tokens::ZERO,
            prompt_tokens: Tokens::ZERO,
            output_tokens: Tokens::ZERO,
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
}

/// One row, its cells found by column. Every error names its column.
pub(super) struct Row<'a> {
    pub(super) rows: &'a Rows,
    pub(super) layout: &'a Layout,
}

impl Row<'_> {
    /// The cell as it stands; empty where the file has no such column.
    pub(super) fn bytes(&self, column: Column) -> &[u8] {
        let place = self.layout.places[column as usize];
        place.and_then(|place| self.rows.cell(place)).unwrap_or_default()
    }

    pub(super) fn text(&self, column: Column) -> Result<&str> {
        std::str::from_utf8(self.bytes(column))
            .map_err(|_| Error::new("the text is not UTF-8").in_field(column.name()))
    }

    /// A whole number up to `max`.
    fn integer(&self, column: Column, max: u64) -> Result<u64> {
        if let Some(number) = digits(self.bytes(column)).filter(|number| *number <= max) {
            return Ok(number);
        }
        let text = self.text(column)?;
        whole(text).filter(|number| *number <= max).ok_or_else(|| {
            Error::found(text, format!("a whole number from 0 to {max}")).in_field(column.name())
        })
    }

    fn number(&self, column: Column) -> Result<u32> {
        let number = self.integer(column, u64::from(check::NUMBER_MAX))?;
        Ok(u32::try_from(number).unwrap_or(check::NUMBER_MAX))
    }

    fn tokens(&self, column: Column) -> Result<Tokens> {
        self.integer(column, check::TOKENS_MAX.0).map(Tokens)
    }

    fn span(&self, column: Column) -> Result<Span> {
        if let Some(span) = plain_seconds(self.bytes(column)).filter(|s| *s <= check::TIME_MAX) {
            return Ok(span);
        }
        let text = self.text(column)?;
        seconds(text).filter(|span| *span <= check::TIME_MAX).ok_or_else(|| {
            let max = check::TIME_MAX.secs_text();
            Error::found(text, format!("seconds from 0 to {max}")).in_field(column.name())
        })
    }

    fn name(&self, column: Column, names: &mut Names) -> Result<Name> {
        self.text(column).map(|text| names.get(text))
    }

    /// The same where mostly that name stands already.
    fn name_into(&self, column: Column, names: &mut Names, name: &mut Name) -> Result<()> {
        if self.bytes(column) != name.as_bytes() {
            *name = self.name(column, names)?;
        }
        Ok(())
    }

    fn word<T: Words>(&self, column: Column) -> Result<T> {
        let bytes = self.bytes(column);
        if let Some((_, value)) = T::WORDS.iter().find(|(word, _)| word.as_bytes() == bytes) {
            return Ok(*value);
        }
        let text = self.text(column)?;
        let words = T::WORDS.iter().map(|(word, _)| *word);
        Err(Error::unknown(column.name(), text, words).in_field(column.name()))
    }

    /// `True` and `False` are what Python writes.
    fn yes_or_no(&self, column: Column) -> Result<bool> {
        match self.bytes(column) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => self.word(column),
        }
    }

    /// An empty cell, or a column that the file does not have, is `None`.
    fn known<T>(
        &self,
        column: Column,
        read: impl FnOnce(&Self, Column) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.bytes(column).is_empty() { Ok(None) } else { read(self, column).map(Some) }
    }

    fn after(&self, after: &mut Vec<After>) -> Result<()> {
        after.clear();
        let bytes = self.bytes(Column::After);
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(call) = small_digits(bytes) {
            after.push(After { call, event: AfterEvent::Finished });
            return Ok(());
        }
        let text = self.text(Column::After)?;
        let entries = text.split(';').map(|entry| {
            let (number, event) = match entry.strip_suffix('d') {
                Some(number) => (number, AfterEvent::Dispatched),
                None => (entry, AfterEvent::Finished),
            };
            let call = call_number(number)?;
            Some(After { call, event })
        });
        for entry in entries {
            after.push(entry.ok_or_else(|| {
                Error::found(text, "call numbers with `;` between them, as in `3;5d`")
                    .in_field(Column::After.name())
            })?);
        }
        Ok(())
    }

    fn base(&self, names: &mut Names) -> Result<Base> {
        if let Some(call) = small_digits(self.bytes(Column::Base)) {
            return Ok(Base::Call(call));
        }
        let text = self.text(Column::Base)?;
        if text.is_empty() {
            return Ok(Base::None);
        }
        if let Some(name) = text.strip_prefix(SHARED_MARK) {
            return Ok(Base::Shared(names.get(name)));
        }
        call_number(text).map(Base::Call).ok_or_else(|| {
            Error::found(text, "an earlier call's number, `@name` of a shared context, or nothing")
                .in_field(Column::Base.name())
        })
    }

    pub(super) fn context(&self, name: Name, names: &mut Names) -> Result<SharedContext> {
        let base = match self.base(names)? {
            Base::None => None,
            Base::Shared(name) => Some(name),
            Base::Call(call) => {
                return Err(Error::found(call, "`@name` of a shared context, or nothing")
                    .in_field(Column::Base.name()));
            }
        };
        let own = [Column::Session, Column::Base, Column::Kept, Column::Prompt];
        for column in Column::ALL.iter().filter(|column| !own.contains(column)) {
            if !self.bytes(*column).is_empty() {
                let text = String::from_utf8_lossy(self.bytes(*column)).into_owned();
                return Err(Error::found(text, "nothing in the row of a shared context")
                    .in_field(column.name()));
            }
        }
        Ok(SharedContext {
            name,
            base,
            kept_tokens: self.tokens(Column::Kept)?,
            prompt_tokens: self.tokens(Column::Prompt)?,
        })
    }

    /// The call of this row, which must bear the number `expected`.
    pub(super) fn call(&self, expected: usize, names: &mut Names, call: &mut Call) -> Result<()> {
        let number = self.integer(Column::Call, u64::from(u32::MAX))?;
        if number != expected as u64 {
            return Err(Error::found(number, format!("{expected}, the next call of the session"))
                .in_field(Column::Call.name()));
        }
        call.at = self.span(Column::At)?;
        self.after(&mut call.after)?;
        call.gap = self.span(Column::Gap)?;
        call.cause = self.word(Column::Cause)?;
        call.turn = self.number(Column::Turn)?;
        call.lane = self.number(Column::Lane)?;
        self.name_into(Column::Model, names, &mut call.model)?;
        self.name_into(Column::Tenant, names, &mut call.tenant)?;
        self.name_into(Column::User, names, &mut call.user)?;
        self.name_into(Column::Profile, names, &mut call.profile)?;
        call.base = self.base(names)?;
        call.kept_tokens = self.tokens(Column::Kept)?;
        call.prompt_tokens = self.tokens(Column::Prompt)?;
        call.output_tokens = self.tokens(Column::Output)?;
        call.tools = self.known(Column::Tools, Self::number)?;
        call.status = self.word(Column::Status)?;
        call.finish = self.known(Column::Finish, Self::word)?.unwrap_or_default();
        call.priority = self.known(Column::Priority, Self::priority)?.unwrap_or_default();
        match &mut call.key {
            Some(key) if !self.bytes(Column::Key).is_empty() => {
                self.name_into(Column::Key, names, key)?;
            }
            key => *key = self.known(Column::Key, |row, column| row.name(column, names))?,
        }
        call.stream = self.known(Column::Stream, Self::yes_or_no)?;
        call.max_tokens = self.known(Column::MaxTokens, Self::tokens)?;
        call.retries = self.known(Column::Retries, Self::number)?.unwrap_or_default();
        call.seen_cached = self.known(Column::SeenCached, Self::tokens)?;
        call.seen_ttft = self.known(Column::SeenTtft, Self::span)?;
        call.seen_duration = self.known(Column::SeenDuration, Self::span)?;
        Ok(())
    }

    fn priority(&self, column: Column) -> Result<i32> {
        let text = self.text(column)?;
        text.strip_suffix(".0").unwrap_or(text).parse().map_err(|_| {
            let allowed = format!("a whole number from {} to {}", i32::MIN, i32::MAX);
            Error::found(text, allowed).in_field(column.name())
        })
    }
}

/// A number of a few digits and nothing else, as most cells hold it.
fn digits(cell: &[u8]) -> Option<u64> {
    // No number of so many digits is too large.
    if cell.is_empty() || cell.len() > 18 {
        return None;
    }
    let mut number = 0;
    for byte in cell {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = 10 * number + u64::from(digit);
    }
    Some(number)
}

fn small_digits(cell: &[u8]) -> Option<u32> {
    digits(cell).and_then(|number| u32::try_from(number).ok())
}

/// Seconds as this crate writes them; `None` for what has to be looked at more closely.
fn plain_seconds(cell: &[u8]) -> Option<Span> {
    let point = cell.iter().position(|byte| *byte == b'.').unwrap_or(cell.len());
    let (whole, fraction) = (&cell[..point], cell.get(point + 1..).unwrap_or_default());
    if whole.len() > 9 || fraction.len() > 9 {
        return None;
    }
    let nanos = if fraction.is_empty() { 0 } else { digits(fraction)? };
    let nanos = nanos * 10u64.pow(9 - fraction.len() as u32);
    Some(Span(digits(whole)? * NANOS_PER_SEC + nanos))
}

/// Digits only: a sign, a space or an exponent is no whole number here. `12.0` is 12, as data
/// frames write whole numbers in a column with gaps.
fn whole(text: &str) -> Option<u64> {
    let digits = text.strip_suffix(".0").unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn call_number(text: &str) -> Option<u32> {
    whole(text).and_then(|number| u32::try_from(number).ok())
}

/// Decimal seconds, exactly; an exponent, as data frames write small numbers, through a float.
fn seconds(text: &str) -> Option<Span> {
    if !text.contains(['e', 'E']) {
        return Span::parse_secs(text);
    }
    let secs: f64 = text.parse().ok()?;
    (secs.is_finite() && secs >= 0.0).then(|| Span::from_secs_f64(secs))
}
