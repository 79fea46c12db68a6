//! Texts that many rows share, by number.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_128;

use crate::trace::record::Name;

/// A text that many rows share, by number; 0 is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Symbol(pub(super) u32);

impl Symbol {
    /// The empty text.
    pub(super) const EMPTY: Self = Self(0);

    /// Whether it is the empty text.
    pub(super) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The number as an index.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Texts by number: models, keys, users, teams, scaffolds. There are as many as there are people
/// and programs, however many rows there are.
#[derive(Debug)]
pub(super) struct Symbols {
    by_text: FxHashMap<Name, Symbol>,
    texts: Vec<Name>,
}

impl Symbols {
    /// The empty text only.
    pub(super) fn new() -> Self {
        let mut symbols = Self { by_text: FxHashMap::default(), texts: Vec::new() };
        symbols.intern("");
        symbols
    }

    /// The number of a text.
    pub(super) fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.by_text.get(text) {
            return symbol;
        }
        let number = u32::try_from(self.texts.len()).expect("more than u32::MAX different texts");
        let name: Name = Arc::from(text);
        self.texts.push(Arc::clone(&name));
        self.by_text.insert(name, Symbol(number));
        Symbol(number)
    }

    /// The text.
    pub(super) fn name(&self, symbol: Symbol) -> &Name {
        &self.texts[symbol.index()]
    }

    /// How many texts there are.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// An id by its fingerprint: there is one of each row, so the texts are not kept. Two of ten
/// million are equal by chance once in 10^24 imports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id(pub(super) u128);

impl Id {
    /// No id.
    pub(super) const NONE: Self = Self(0);

    /// The id of a text; none for the empty one.
    pub(super) fn of(text: &str) -> Self {
        if text.is_empty() { Self::NONE } else { Self(xxh3_128(text.as_bytes())) }
    }

    /// The id of a part of what has this id; that of the nameless part is another, too.
    pub(super) fn with(self, part: Self) -> Self {
        let ids = [self.0.to_le_bytes(), part.0.to_le_bytes()];
        Self(xxh3_128(ids.as_flattened()))
    }

    /// Whether it is no id.
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_numbers_and_the_empty_one_has_0() {
        let mut symbols = Symbols::new();
        let (a, b) = (symbols.intern("a"), symbols.intern("b"));
        assert_eq!((symbols.intern("a"), symbols.intern("")), (a, Symbol::EMPTY));
        assert_ne!(a, b);
        assert_eq!((&**symbols.name(b), symbols.len()), ("b", 3));
    }

    #[test]
    fn an_empty_id_is_none_and_that_of_a_part_is_another() {
        assert!(Id::of("").is_none() && !Id::of("a").is_none());
        assert_ne!(Id::of("a").with(Id::NONE), Id::of("a"));
        let (a, b) = (Id::of("a"), Id::of("b"));
        assert!(a.with(b) != b.with(a) && a.with(b) != a, "an agent's id depends on its session");
    }
}
