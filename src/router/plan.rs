//! Decides whether a tool call runs as an MCP task.

use crate::adapt::task;
use crate::manager::Server;
use crate::protocol::{ErrorObject, ProtocolVersion, Raw, code};
use crate::upstream::{Connection, Terms};

/// How a tool call is to run: as a task or not, and in which era's form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Plan {
    /// The server decides, as it may since 2026-07-28.
    #[default]
    Theirs,
    /// A client of 2025-11-25 wants a task; the server's era is not known yet.
    Wanted,
    /// A client of 2025-11-25 wants a task from a server of 2025-11-25.
    Core,
    /// A client of 2025-11-25 wants a task from a server of 2026-07-28.
    Upward,
    /// A tool of a server of 2025-11-25 runs only as a task, and a client of 2026-07-28 knows tasks.
    Downward,
    /// A tool of a server of 2025-11-25 runs only as a task, and the client does not know tasks. It sees an ordinary
    /// call.
    Hidden,
}

impl Plan {
    /// Returns the plan for this connection, now that the server's revision is known.
    ///
    /// # Errors
    /// `-32601`: the client wants a task from a server that does not support tasks.
    pub(super) fn at(self, server: &Server, connection: &Connection) -> Result<Self, ErrorObject> {
        let Some(peer) = connection.peer() else { return Ok(self) };
        let has_extension = || peer.extensions.as_ref().is_some_and(|all| all.member(task::EXTENSION).is_some());
        match (self, peer.version) {
            (Self::Wanted, version) if version.is_modern() && has_extension() => Ok(Self::Upward),
            (Self::Wanted, ProtocolVersion::V2025_11_25) if peer.offers.tasks => Ok(Self::Core),
            (Self::Wanted, _) => {
                let text = format!("server {:?} runs no tools as tasks", server.config.name);
                Err(ErrorObject::new(code::METHOD_NOT_FOUND, text))
            }
            // The tool had to run as a task only while the server spoke 2025-11-25.
            (Self::Downward | Self::Hidden, version) if version.is_modern() => Ok(Self::Theirs),
            (plan, _) => Ok(plan),
        }
    }

    /// Adds what the plan needs to what the server learns with the request.
    pub(super) fn dress(self, mut terms: Terms) -> Terms {
        if self == Self::Upward {
            terms.extensions = Some(declared(terms.extensions.as_ref()));
        }
        terms.lasts = matches!(self, Self::Core | Self::Hidden);
        terms
    }
}

/// Returns these extensions, with the tasks extension added.
pub(super) fn declared(extensions: Option<&Raw>) -> Raw {
    match extensions {
        Some(extensions) if extensions.member(task::EXTENSION).is_some() => extensions.clone(),
        Some(extensions) => extensions.with_member(task::EXTENSION, b"{}"),
        None => Raw::empty_object().with_member(task::EXTENSION, b"{}"),
    }
}
