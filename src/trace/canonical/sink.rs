//! Where the items of a new trace go: into a file, into memory, or anywhere else.

use super::Writer;
use crate::diag::Result;
use crate::trace::record::{Session, SharedContext, Trace};

/// Takes a trace in the order of its rows: a context before its first use, sessions by start.
pub trait Sink {
    /// Takes a shared context.
    ///
    /// # Errors
    /// If it breaks a rule of the trace or cannot be written.
    fn context(&mut self, context: &SharedContext) -> Result<()>;

    /// Takes a session.
    ///
    /// # Errors
    /// If it breaks a rule of the trace or cannot be written.
    fn session(&mut self, session: &Session) -> Result<()>;
}

impl Sink for Writer<'_> {
    fn context(&mut self, context: &SharedContext) -> Result<()> {
        Writer::context(self, context)
    }

    fn session(&mut self, session: &Session) -> Result<()> {
        Writer::session(self, session)
    }
}

impl Sink for Trace {
    fn context(&mut self, context: &SharedContext) -> Result<()> {
        self.contexts.push(context.clone());
        Ok(())
    }

    fn session(&mut self, session: &Session) -> Result<()> {
        self.sessions.push(session.clone());
        Ok(())
    }
}
