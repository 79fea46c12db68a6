//! Tools that make one trace of another: sessions chosen, cloned, cut, merged, renamed.
//!
//! Each reads its input through a [`Source`], twice where the first pass must know what the second
//! writes, and hands shared contexts and sessions to a
//! [`Sink`](crate::trace::canonical::Sink) in an order that keeps the rules of
//! [`crate::trace::check`]. Only sessions that are still to be put in order are held in memory, and
//! a few words for each session of the input.
//!
//! ```
//! use tonnage::trace::canonical::read_from;
//! use tonnage::trace::record::Trace;
//! use tonnage::trace::tools::cut::{Window, cut};
//! use tonnage::units::Span;
//!
//! let text = "\
//! session,call,at_s,after,gap_s,cause,turn,lane,model,tenant,user,profile,base,kept_tokens,\
//! prompt_tokens,output_tokens,tools,status
//! s1,0,0,,0,user,0,0,m,,,,,0,900,60,,ok
//! s1,1,9,0,3,tool,0,0,m,,,,0,960,1400,80,,ok
//! ";
//! let trace = read_from(text.as_bytes(), "example")?;
//! let mut late = Trace::default();
//! cut(&trace, &Window { from: Span::from_secs(7), ..Window::default() }, &mut late)?;
//! assert_eq!(late.sessions[0].calls[0].at, Span::from_secs(2));
//! // What was said before has become a context that is there at the start.
//! assert_eq!(late.contexts[0].prompt_tokens.0, 960);
//! # Ok::<(), tonnage::diag::Error>(())
//! ```

use std::path::Path;

use crate::diag::Result;
use crate::trace::canonical::Reader;
use crate::trace::record::{Item, Trace};

pub mod anonymise;
pub mod clones;
pub mod cut;
pub mod inspect;
pub mod merge;
mod names;
mod order;
pub mod sample;
pub mod scale;
pub mod survey;

/// The items of a trace, in order.
pub type Items<'a> = Box<dyn Iterator<Item = Result<Item>> + 'a>;

/// A trace that can be read from its start as often as need be.
pub trait Source {
    /// Its items from the start.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn items(&self) -> Result<Items<'_>>;
}

impl Source for Path {
    fn items(&self) -> Result<Items<'_>> {
        Ok(Box::new(Reader::open(self)?))
    }
}

impl Source for Trace {
    fn items(&self) -> Result<Items<'_>> {
        let contexts = self.contexts.iter().cloned().map(Item::Context);
        let sessions = self.sessions.iter().cloned().map(Item::Session);
        Ok(Box::new(contexts.chain(sessions).map(Ok)))
    }
}
