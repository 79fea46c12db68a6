//! What each prompt repeats: of its own session, or of a context that sessions share.
//!
//! Block ids that are global name the content of a block, so prompts agree as far as their ids do
//! from the start. A prefix at whose end prompts of two sessions part is a shared context, declared
//! if some prompt has nothing longer to continue. Where two contexts part, so do prompts of two
//! sessions; each context therefore continues, as far as they agree, the one declared before with
//! which it agrees longest, and two contexts have exactly as much in common as their ids say.

use super::Outputs;
use super::prefix::{IdRun, Mark, NodeId, ROOT, Tree, blocks};
use super::recorded::{Recorded, Scope};
use super::timeline::Timeline;
use crate::trace::record::{Base, Name, SharedContext};
use crate::units::{Blocks, Tokens};

/// What a call's prompt repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) base: Base,
    pub(super) kept: Tokens,
    /// Whether some of `kept` is the base's output.
    pub(super) keeps_output: bool,
}

/// The prompts of all sessions whose ids are global.
pub(super) struct Shared {
    tree: Tree<Passing>,
    block_size: u64,
    /// The contexts in use, in order of declaration.
    contexts: Vec<SharedContext>,
}

/// Who passes a node of the tree of all prompts.
#[derive(Clone, Debug, Default)]
struct Passing {
    session: Option<u32>,
    several_sessions: bool,
    /// Prompts that end here.
    ends: u32,
    /// The context declared here, or else the first one declared behind this node.
    context: Option<usize>,
    declared: bool,
}

impl Mark for Passing {
    fn above(&self) -> Self {
        Self { ends: 0, declared: false, ..self.clone() }
    }
}

impl Shared {
    /// Finds every prefix that two of the sessions share.
    pub(super) fn find(sessions: &[Recorded], block_size: u64) -> Self {
        let mut tree: Tree<Passing> = Tree::new();
        for (number, session) in sessions.iter().enumerate() {
            if session.scope == Scope::Local {
                continue;
            }
            let session_number = Some(number as u32);
            for call in &session.calls {
                let end = tree.insert(&call.ids);
                tree.mark_mut(end).ends += 1;
                tree.mark_up(end, |mark| {
                    mark.several_sessions |=
                        mark.session.is_some() && mark.session != session_number;
                    mark.session = session_number;
                });
            }
        }
        Self { tree, block_size, contexts: Vec::new() }
    }

    /// The contexts that [`link`](Self::link) used, each behind the one that it continues.
    pub(super) fn into_contexts(self) -> Vec<SharedContext> {
        self.contexts
    }

    /// What each call of a session repeats, by call number.
    pub(super) fn link(
        &mut self,
        session: &Recorded,
        timeline: &Timeline,
        outputs: Outputs,
    ) -> Vec<Link> {
        let mut own: Tree<Latest> = Tree::new();
        let mut links = Vec::with_capacity(timeline.calls.len());
        for (number, timed) in timeline.calls.iter().enumerate() {
            let ids = &session.calls[timed.recorded].ids;
            let (own_blocks, own_node) = own.longest(ids);
            let (shared_blocks, shared_node) = match session.scope {
                Scope::Local => (0, ROOT),
                Scope::Global => self.longest(ids),
            };
            links.push(if own_blocks.max(shared_blocks) == 0 {
                Link { base: Base::None, kept: Tokens::ZERO, keeps_output: false }
            } else if own_blocks >= shared_blocks {
                let Latest(base) = own.node(own_node).mark;
                own_link(session, timeline, outputs, [base, number], own_blocks)
            } else {
                let kept = Blocks(shared_blocks).tokens(self.block_size);
                let context = self.declare(shared_node);
                let base = Base::Shared(self.contexts[context].name.clone());
                Link { base, kept, keeps_output: false }
            });
            let end = own.insert(ids);
            own.mark_up(end, |mark| *mark = Latest(number));
        }
        links
    }

    /// The longest shared context with which a prompt begins.
    fn longest(&self, ids: &[IdRun]) -> (u64, NodeId) {
        let (depth, mut node) = self.tree.longest(ids);
        debug_assert_eq!(depth, blocks(ids), "every prompt is in the tree of all prompts");
        while node != ROOT && !self.is_prefix(node) {
            node = self.tree.node(node).parent;
        }
        (self.tree.node(node).depth, node)
    }

    /// Whether prompts of two sessions agree up to this node and no further.
    fn is_prefix(&self, node: NodeId) -> bool {
        let at = self.tree.node(node);
        let branches = at.fan_out() + at.mark.ends as usize;
        // Two branches of which no two prompts belong to two sessions would be one session's.
        node != ROOT && branches >= 2 && at.mark.several_sessions
    }

    /// The context at a node, declared now if it is the first to use it.
    fn declare(&mut self, node: NodeId) -> usize {
        let depth = self.tree.node(node).depth;
        let mark = &self.tree.node(node).mark;
        if let (true, Some(context)) = (mark.declared, mark.context) {
            return context;
        }
        let mut agreed = node;
        while agreed != ROOT && self.tree.node(agreed).mark.context.is_none() {
            agreed = self.tree.node(agreed).parent;
        }
        let base = self.tree.node(agreed).mark.context.filter(|_| agreed != ROOT);
        let context = self.contexts.len();
        self.contexts.push(SharedContext {
            name: Name::from(format!("c{context:04}")),
            base: base.map(|base| self.contexts[base].name.clone()),
            kept_tokens: Blocks(self.tree.node(agreed).depth).tokens(self.block_size),
            prompt_tokens: Blocks(depth).tokens(self.block_size),
        });
        self.tree.mark_up(node, |mark| {
            mark.context.get_or_insert(context);
        });
        let mark = self.tree.mark_mut(node);
        mark.declared = true;
        mark.context = Some(context);
        context
    }
}

/// The number of the latest call through a node of one session's prompts.
#[derive(Clone, Copy, Default)]
struct Latest(usize);

impl Mark for Latest {
    fn above(&self) -> Self {
        *self
    }
}

/// What a call repeats of an earlier one of its session with which it has `common` blocks.
fn own_link(
    session: &Recorded,
    timeline: &Timeline,
    outputs: Outputs,
    [base, number]: [usize; 2],
    common: u64,
) -> Link {
    let call = |number: usize| &session.calls[timeline.calls[number].recorded];
    let (before, now) = (call(base), call(number));
    let link = |kept: Tokens, keeps_output| Link {
        base: Base::Call(base as u32),
        kept: kept.min(now.prompt),
        keeps_output,
    };
    if common < blocks(&before.ids) {
        return link(Blocks(common).tokens(session.block_size), false);
    }
    let with_output = before.prompt + before.output;
    let wanted = match outputs {
        Outputs::Auto => now.prompt >= with_output,
        Outputs::Kept => now.prompt > before.prompt,
        Outputs::Dropped => false,
    };
    // Nobody can repeat an answer before it was given, and what is not waited for may be late.
    if wanted && before.output > Tokens::ZERO && timeline.waits_for(number, base) {
        return link(with_output, true);
    }
    link(before.prompt, false)
}
