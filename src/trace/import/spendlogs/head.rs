//! Fingerprints of the first characters of a message's text, as it is read.

use xxhash_rust::xxh64::xxh64;

use super::prompt::HEADS;

/// What was read of the beginning of a message.
#[derive(Debug, Default)]
pub(super) struct Head {
    is_open: bool,
    bytes: Vec<u8>,
    chars: usize,
}

impl Head {
    /// Begins a message.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.chars = 0;
    }

    /// Says whether what follows is text of the message.
    pub(super) fn open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// Takes more of the text, if it is the message's and there is not enough yet.
    pub(super) fn add(&mut self, text: &[u8]) {
        const ENOUGH: usize = HEADS[HEADS.len() - 1];
        if !self.is_open || self.chars > ENOUGH {
            return;
        }
        for &byte in text {
            self.chars += usize::from(begins_character(byte));
            if self.chars > ENOUGH {
                return;
            }
            self.bytes.push(byte);
        }
    }

    /// The fingerprints of what was read.
    pub(super) fn fingerprints(&self) -> [u32; HEADS.len()] {
        HEADS.map(|chars| {
            if self.chars < chars {
                return 0;
            }
            let starts = self.bytes.iter().enumerate().filter(|(_, byte)| begins_character(**byte));
            let end = starts.map(|(at, _)| at).nth(chars).unwrap_or(self.bytes.len());
            // 0 stands for none.
            (xxh64(&self.bytes[..end], 0) as u32).max(1)
        })
    }
}

fn begins_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(pieces: &[&[u8]]) -> [u32; 2] {
        let mut head = Head::default();
        head.open(true);
        pieces.iter().for_each(|piece| head.add(piece));
        head.open(false);
        head.add(b"not of the text");
        head.fingerprints()
    }

    #[test]
    fn only_the_first_characters_count_however_they_come() {
        let text = "é".repeat(512);
        let whole = heads(&[text.as_bytes()]);
        assert!(whole.iter().all(|&head| head != 0));
        let (one, other) = text.as_bytes().split_at(101);
        assert_eq!(heads(&[one, other, b"and more"]), whole, "cut within a character");
        assert_eq!(heads(&[&text.as_bytes()[..2 * 511]]), [whole[0], 0], "511 characters");
        assert_eq!(heads(&[&text.as_bytes()[..2 * 64], b"x"])[0], whole[0]);
        assert_eq!(heads(&[&text.as_bytes()[..2 * 63]]), [0, 0]);
        assert_ne!(heads(&[&text.as_bytes()[..2 * 63], b"x"])[0], whole[0]);
    }
}
