//! What the formats have in common whose prompts are lists of block ids: from the ids it follows,
//! to the block, what prompts repeat of earlier ones.
//!
//! A reader goes over its rows once, adds each prompt's ids to a [`Sharing`], and keeps of them
//! only where the prompt ends in it. When all prompts are known, [`Sharing::link`] fills in the
//! `base` and `kept_tokens` of each session's calls and declares the contexts that sessions share.

mod fields;
mod ids;
mod rows;
mod session;
mod share;
mod tree;
mod whole;

pub(super) use fields::{
    MILLISECOND, SECOND, SECS_MAX, TOKENS_MAX, count, lengths, names, required, text, time, wrong,
};
pub(super) use ids::{IdList, IdRun, blocks};
pub(super) use rows::{object, objects};
pub(super) use session::{Delivery, Names, PERSON_PAUSE, blank, meta, origin};
pub(super) use share::Sharing;
pub(super) use tree::NodeId;
pub(super) use whole::LastBlock;
