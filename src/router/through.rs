//! What is known of a call that came through a tool of mcp-host: which tool it calls, and how its result says so.

use crate::answered::Answered;
use crate::protocol::{Raw, meta};

/// What a call came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// `call_tool` or `call_read_tool`.
    Search,
    /// A merged tool, which represents tools of several servers.
    Group,
    /// A script that `run_script` runs.
    #[cfg(all(unix, feature = "script"))]
    Script,
}

impl By {
    /// Reports whether a script makes the call.
    pub(super) fn is_script(self) -> bool {
        self.word() == "script"
    }

    /// Returns the word for it in the audit log.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Group => "group",
            #[cfg(all(unix, feature = "script"))]
            Self::Script => "script",
        }
    }
}

/// A call that came through a tool of mcp-host.
#[derive(Clone, Debug)]
pub(super) struct Through {
    /// The tool that is called.
    pub(super) tool: String,
    /// Whether it must only read.
    pub(super) reads: bool,
    /// The answer, if nothing can be called.
    pub(super) refused: Option<Raw>,
    pub(super) by: By,
}

impl Through {
    /// Returns the answer, if nothing can be called.
    pub(super) fn refused(&self) -> Option<Raw> {
        self.refused.clone()
    }

    /// Notes in a result which tool it comes from.
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

#[cfg(test)]
mod tests {
    use super::By;

    #[test]
    fn the_schema_of_events_has_each_word() {
        let schema: serde_json::Value = serde_json::from_str(include_str!("../record/feed.schema.json")).unwrap();
        let mut kinds = schema["oneOf"].as_array().unwrap().iter();
        let known = kinds.find_map(|kind| kind["properties"]["via"]["enum"].as_array()).unwrap();
        let words = [
            By::Search,
            By::Group,
            #[cfg(all(unix, feature = "script"))]
            By::Script,
        ];
        for word in words.map(By::word) {
            assert!(known.iter().any(|each| each == word), "{word}");
        }
    }
}
