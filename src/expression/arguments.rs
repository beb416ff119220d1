//! The arguments of one call. Each member is parsed only when an expression looks at it.

use std::cell::OnceCell;

use serde_json::Value;

use crate::protocol::Raw;
use crate::protocol::value;

/// The largest size of arguments, in bytes, that expressions look at.
pub(crate) const MOST: usize = 256 * 1024;

/// The arguments of one call.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    raw: Option<Raw>,
    members: OnceCell<Option<Vec<Member>>>,
}

/// One argument.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) raw: Raw,
    value: OnceCell<Option<Value>>,
}

impl Arguments {
    /// Wraps the arguments as they are sent. Missing arguments, and `null`, count as an empty object.
    pub(crate) fn new(raw: Option<&Raw>) -> Self {
        Self { raw: raw.filter(|raw| raw.as_bytes() != b"null").cloned(), members: OnceCell::new() }
    }

    /// Returns all arguments, not yet parsed; `None` if they are too large or are not a readable object.
    pub(crate) fn members(&self) -> Option<&[Member]> {
        let read = || {
            let Some(raw) = &self.raw else { return Some(Vec::new()) };
            if raw.as_bytes().len() > MOST {
                return None;
            }
            let member = |(name, value): (std::borrow::Cow<'_, str>, _)| {
                let name = name.into_owned();
                Member { name, raw: Raw::part(raw.bytes(), value), value: OnceCell::new() }
            };
            Some(value::object(raw.as_value())?.into_iter().map(member).collect())
        };
        self.members.get_or_init(read).as_deref()
    }

    /// Returns the argument with this name; `Ok(None)` if there is none, and `Err` if it cannot be read.
    pub(super) fn get(&self, name: &str) -> Result<Option<&Value>, Unreadable> {
        let members = self.members().ok_or(Unreadable)?;
        let member = members.iter().find(|member| member.name == name);
        member.map(|member| member.value().ok_or(Unreadable)).transpose()
    }
}

impl Member {
    /// Returns the value; `None` if it cannot be read.
    pub(super) fn value(&self) -> Option<&Value> {
        self.value.get_or_init(|| serde_json::from_slice(self.raw.as_bytes()).ok()).as_ref()
    }
}

/// The arguments, or one of them, cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable;
