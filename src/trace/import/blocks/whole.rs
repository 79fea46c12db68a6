//! Whether a prompt's last, partial block has an id, which such formats leave to be found out.

use crate::diag::{Error, Result};
use crate::trace::meta::PartialBlock;

/// What the prompts so far say about last, partial blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::trace::import) struct LastBlock {
    found: Option<PartialBlock>,
}

impl LastBlock {
    /// Compares the number of a prompt's ids with its length.
    ///
    /// # Errors
    /// If they do not fit each other, or fit in another way than the prompts' before.
    pub(in crate::trace::import) fn check(
        &mut self,
        ids: u64,
        tokens: u64,
        block_size: u64,
    ) -> Result<()> {
        let (floor, ceil) = (tokens / block_size, tokens.div_ceil(block_size));
        let way = match ids {
            _ if floor == ceil && ids == floor => return Ok(()),
            _ if ids == ceil => PartialBlock::Count,
            _ if ids == floor => PartialBlock::Drop,
            _ => {
                let message = format!(
                    "{ids} block ids do not fit {tokens} tokens: that is {floor} whole blocks of \
                     {block_size}, {ceil} with a partial one"
                );
                return Err(Error::new(message).in_field("hash_ids"));
            }
        };
        match *self.found.get_or_insert(way) {
            found if found == way => Ok(()),
            PartialBlock::Count => {
                Err(Error::new("the partial block has no id, but in rows before it has one")
                    .in_field("hash_ids"))
            }
            PartialBlock::Drop => {
                Err(Error::new("the partial block has an id, but in rows before it has none")
                    .in_field("hash_ids"))
            }
        }
    }

    /// What was found; such formats usually give the partial block an id.
    pub(in crate::trace::import) fn found(self) -> PartialBlock {
        self.found.unwrap_or(PartialBlock::Count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_telling_prompt_decides() {
        let mut last = LastBlock::default();
        assert_eq!(last.check(2, 20, 10), Ok(()), "whole blocks tell nothing");
        assert!(last.check(4, 21, 10).unwrap_err().to_string().contains("2 whole blocks"));
        assert_eq!(last.check(2, 21, 10), Ok(()));
        assert!(last.check(3, 21, 10).is_err());
        assert_eq!((last.check(2, 20, 10), last.found()), (Ok(()), PartialBlock::Drop));
        let mut last = LastBlock::default();
        assert_eq!((last.check(3, 21, 10), last.found()), (Ok(()), PartialBlock::Count));
        assert!(last.check(2, 21, 10).is_err() && last.check(1, 20, 10).is_err());
    }
}
