//! What a call keeps that came by `call_tool`: which tool it calls, and how its result says so.

use crate::answered::Answered;
use crate::protocol::{Raw, meta};

/// A call that came by `call_tool` or `call_read_tool`.
#[derive(Clone, Debug)]
pub(super) struct Through {
    /// The tool that is called.
    pub(super) tool: String,
    /// Whether it must only read.
    pub(super) reads: bool,
    /// The answer, if nothing can be called.
    pub(super) refused: Option<Raw>,
}

impl Through {
    /// Returns the answer, if nothing can be called.
    pub(super) fn refused(&self) -> Option<Raw> {
        self.refused.clone()
    }

    /// Adds to a result which tool it is of.
    pub(super) fn marked(&self, answered: Answered) -> Answered {
        let result = answered?;
        if self.refused.is_some() {
            return Ok(result);
        }
        let own = result.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
        let own = own.with_member(meta::TOOL, Raw::from_value(&self.tool).as_bytes());
        Ok(result.with_member("_meta", own.as_bytes()))
    }
}
