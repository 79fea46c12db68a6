//! What each prompt repeats: of its own session, or of a context that sessions share.
//!
//! A block is its content and all before it, so prompts agree as far as their ids do from the
//! start. A prefix at whose end prompts of two sessions part is a shared context, declared
//! if some prompt has nothing longer to continue. Where two contexts part, so do prompts of two
//! sessions; each context therefore continues, as far as they agree, the one declared before with
//! which it agrees longest, and two contexts have exactly as much in common as their ids say.

use super::ids::IdRun;
use super::tree::{Mark, Node, NodeId, Tree};
use crate::trace::check::surely_finished;
use crate::trace::import::Outputs;
use crate::trace::record::{Base, Call, Name, SharedContext};
use crate::units::{Blocks, Tokens};

/// A session that no prompt is of.
pub(in crate::trace::import) const NOBODY: u32 = u32::MAX;

/// The prompts of all sessions.
#[derive(Debug)]
pub(in crate::trace::import) struct Sharing {
    tree: Tree<Passing>,
    block_size: u64,
    /// The contexts in use, in order of declaration.
    contexts: Vec<SharedContext>,
}

/// Who passes a node of the tree of all prompts.
#[derive(Clone, Debug)]
struct Passing {
    /// The session of the last prompt that was added.
    session: u32,
    several_sessions: bool,
    declared: bool,
    /// Prompts that end here.
    ends: u32,
    /// The length of those that end here in the midst of the last block, at least.
    partial: Option<u32>,
    /// The context declared here, or else the first one declared behind this node.
    context: Option<u32>,
    /// The session and the number of the last call that was linked.
    latest: (u32, u32),
}

impl Default for Passing {
    fn default() -> Self {
        Self {
            session: NOBODY,
            several_sessions: false,
            declared: false,
            ends: 0,
            partial: None,
            context: None,
            latest: (NOBODY, 0),
        }
    }
}

impl Mark for Passing {
    fn above(&self) -> Self {
        Self { ends: 0, partial: None, declared: false, ..self.clone() }
    }
}

impl Sharing {
    /// No prompt yet.
    pub(in crate::trace::import) fn new(block_size: u64) -> Self {
        Self { tree: Tree::new(), block_size, contexts: Vec::new() }
    }

    /// A new space, in which equal ids mean equal content.
    pub(in crate::trace::import) fn space(&mut self) -> NodeId {
        self.tree.root()
    }

    /// Adds a prompt of a session (not [`NOBODY`]) and gives the node at its end.
    pub(in crate::trace::import) fn add(
        &mut self,
        space: NodeId,
        session: u32,
        ids: &[IdRun],
        prompt: Tokens,
    ) -> NodeId {
        let end = self.tree.insert(space, ids);
        let whole = Blocks(self.tree.node(end).depth).tokens(self.block_size);
        let mark = self.tree.mark_mut(end);
        mark.ends += 1;
        if prompt < whole {
            let least = mark.partial.unwrap_or(u32::MAX).min(prompt.0 as u32);
            mark.partial = Some(least);
        }
        self.tree.mark_up(end, |mark| {
            mark.several_sessions |= mark.session != NOBODY && mark.session != session;
            mark.session = session;
        });
        end
    }

    /// The contexts that were declared, each behind the one that it continues.
    pub(in crate::trace::import) fn contexts(&self) -> &[SharedContext] {
        &self.contexts
    }

    /// Fills in what the calls of a session repeat, given the ends of their prompts; how many
    /// repeat an output, too. The other columns of the calls are there already.
    pub(in crate::trace::import) fn link(
        &mut self,
        session: u32,
        ends: &[NodeId],
        calls: &mut [Call],
        outputs: Outputs,
    ) -> u64 {
        let mut outputs_kept = 0;
        for (number, &end) in ends.iter().enumerate() {
            let own = self.tree.upwards(end, |node| node.mark.latest.0 == session);
            let shared = self.tree.upwards(end, is_prefix);
            let [own_blocks, shared_blocks] = [own, shared].map(|node| self.tree.node(node).depth);
            if own_blocks > 0 && own_blocks >= shared_blocks {
                let base = self.tree.node(own).mark.latest.1;
                let before = ends[base as usize];
                let (kept, with_output) =
                    self.kept(calls, [base as usize, number], before, own_blocks, outputs);
                outputs_kept += u64::from(with_output);
                calls[number].base = Base::Call(base);
                calls[number].kept_tokens = kept;
            } else if shared_blocks > 0 {
                let context = self.declare(shared);
                let context = &self.contexts[context as usize];
                calls[number].base = Base::Shared(context.name.clone());
                calls[number].kept_tokens = context.prompt_tokens.min(calls[number].prompt_tokens);
            }
            self.tree.mark_up(end, |mark| mark.latest = (session, number as u32));
        }
        outputs_kept
    }

    /// Tokens that a call repeats of an earlier one whose prompt ends at `before` and with which
    /// it has `common` blocks; and whether some are output.
    fn kept(
        &self,
        calls: &[Call],
        [base, number]: [usize; 2],
        before: NodeId,
        common: u64,
        outputs: Outputs,
    ) -> (Tokens, bool) {
        let (earlier, now) = (&calls[base], &calls[number]);
        let depth = self.tree.node(before).depth;
        let has_partial = Blocks(depth).tokens(self.block_size) > earlier.prompt_tokens;
        let whole = depth - u64::from(has_partial);
        let blocks = Blocks(common).tokens(self.block_size).min(now.prompt_tokens);
        if common < whole {
            return (blocks, false);
        }
        // What follows an unlike partial block can still begin with its tokens, if it is longer.
        if common < depth && now.prompt_tokens <= earlier.prompt_tokens {
            return (blocks, false);
        }
        if earlier.prompt_tokens >= Blocks(whole + 1).tokens(self.block_size) {
            // Its last block has no id, for it lacks a part of its last token.
            let kept = earlier.prompt_tokens.saturating_sub(Tokens(1));
            return (kept.min(now.prompt_tokens), false);
        }
        let with_output = earlier.prompt_tokens + earlier.output_tokens;
        let wanted = match outputs {
            Outputs::Auto => now.prompt_tokens >= with_output,
            Outputs::Kept => now.prompt_tokens > earlier.prompt_tokens,
            Outputs::Dropped => false,
        };
        // Nobody can repeat an answer before it was given, and what is not waited for may be late.
        if wanted
            && earlier.output_tokens > Tokens::ZERO
            && surely_finished(calls, number, base as u32)
        {
            return (with_output.min(now.prompt_tokens), true);
        }
        (earlier.prompt_tokens.min(now.prompt_tokens), false)
    }

    /// The context at a node, declared now if it is the first to use it.
    fn declare(&mut self, node: NodeId) -> u32 {
        let mark = &self.tree.node(node).mark;
        if let (true, Some(context)) = (mark.declared, mark.context) {
            return context;
        }
        let agreed = self.tree.upwards(node, |node| node.mark.context.is_some());
        let base = self.tree.node(agreed).mark.context;
        let context = self.contexts.len() as u32;
        let declared = SharedContext {
            name: Name::from(format!("c{context:04}")),
            base: base.map(|base| self.contexts[base as usize].name.clone()),
            kept_tokens: Blocks(self.tree.node(agreed).depth).tokens(self.block_size),
            prompt_tokens: self.tokens(node),
        };
        self.contexts.push(declared);
        self.tree.mark_up(node, |mark| {
            mark.context.get_or_insert(context);
        });
        let mark = self.tree.mark_mut(node);
        mark.declared = true;
        mark.context = Some(context);
        context
    }

    /// The tokens up to a node: whole blocks, unless all prompts through it end there before.
    fn tokens(&self, node: NodeId) -> Tokens {
        let node = self.tree.node(node);
        match node.mark.partial {
            Some(tokens) if node.fan_out() == 0 => Tokens(u64::from(tokens)),
            _ => Blocks(node.depth).tokens(self.block_size),
        }
    }
}

/// Whether prompts of two sessions agree up to this node and no further.
fn is_prefix(node: &Node<Passing>) -> bool {
    // Two branches of which no two prompts belong to two sessions would be one session's.
    node.fan_out() + node.mark.ends as usize >= 2 && node.mark.several_sessions
}
