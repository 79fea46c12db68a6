//! The blocks of every prompt of a trace, session by session, by lineage.

use rustc_hash::FxHashMap;

use super::blocks::{BlockRun, Numbering};
use crate::diag::Result;
use crate::trace::lineage::Path;
use crate::trace::meta::PartialBlock;
use crate::trace::record::{Base, Call, Name, Session, SharedContext};
use crate::units::{SegmentId, Tokens};

/// Gives the blocks of prompts numbers: equal numbers, equal content and all before it.
///
/// Outputs are content, too: a block that is filled by an answer has the same number in every
/// prompt that repeats the answer.
#[derive(Debug)]
pub struct PromptBlocks {
    numbering: Numbering,
    contexts: FxHashMap<Name, Path>,
    runs: Vec<BlockRun>,
}

impl PromptBlocks {
    /// No block yet.
    #[must_use]
    pub fn new(block_size: u64, partial: PartialBlock) -> Self {
        Self {
            numbering: Numbering::new(block_size, partial),
            contexts: FxHashMap::default(),
            runs: Vec::new(),
        }
    }

    /// How many numbers were handed out, from 0; some may be those of blocks in no prompt.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.numbering.blocks()
    }

    /// Shared contexts so far.
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Takes in a shared context.
    ///
    /// # Errors
    /// If the blocks do not fit into 32 bits.
    pub fn context(&mut self, context: &SharedContext) -> Result<()> {
        let base = context.base.as_ref().and_then(|base| self.contexts.get(base));
        let none = Path::default();
        let base = base.unwrap_or(&none);
        let end = context.prompt_tokens;
        let (_, path) = continued(&mut self.numbering, base, context.kept_tokens, end, end)?;
        self.contexts.insert(Name::clone(&context.name), path);
        Ok(())
    }

    /// Takes in a session and hands out each call with the blocks of its prompt.
    ///
    /// # Errors
    /// If the blocks do not fit into 32 bits.
    pub fn session(
        &mut self,
        session: &Session,
        mut each: impl FnMut(u32, &Call, &[BlockRun]),
    ) -> Result<()> {
        let none = Path::default();
        let mut contexts: Vec<Path> = Vec::with_capacity(session.calls.len());
        // A path grows with its session, so one that nothing continues any more is dropped.
        let mut uses = vec![0u32; session.calls.len()];
        for call in &session.calls {
            if let Base::Call(base) = call.base {
                uses[base as usize] += 1;
            }
        }
        for (position, call) in session.calls.iter().enumerate() {
            let base = match &call.base {
                Base::None => &none,
                Base::Call(base) => &contexts[*base as usize],
                Base::Shared(name) => self.contexts.get(name).unwrap_or(&none),
            };
            let end = call.prompt_tokens + call.output_tokens;
            let (segment, prompt) =
                continued(&mut self.numbering, base, call.kept_tokens, call.prompt_tokens, end)?;
            if let Base::Call(base) = call.base {
                uses[base as usize] -= 1;
                if uses[base as usize] == 0 {
                    contexts[base as usize] = Path::default();
                }
            }
            self.runs.clear();
            self.numbering.prompt(&prompt, &mut self.runs)?;
            each(position as u32, call, &self.runs);
            let mut context = prompt;
            context.extend(segment, end);
            contexts.push(if uses[position] == 0 { Path::default() } else { context });
        }
        Ok(())
    }
}

/// A prompt that keeps `kept` of `base` and goes on to `prompt`, in a new segment that holds all
/// up to `end`.
fn continued(
    numbering: &mut Numbering,
    base: &Path,
    kept: Tokens,
    prompt: Tokens,
    end: Tokens,
) -> Result<(SegmentId, Path)> {
    let segment = numbering.segment(kept.min(base.len()), end)?;
    Ok((segment, base.continued(kept, segment, prompt)))
}
