//! Whether a call of a tool runs as a task.

use crate::adapt::task;
use crate::manager::Server;
use crate::protocol::{ErrorObject, ProtocolVersion, Raw, code};
use crate::upstream::{Connection, Terms};

/// How a call that may run as a task is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Plan {
    /// As the server decides, which is its right since 2026-07-28.
    #[default]
    Theirs,
    /// The client, of 2025-11-25, wants a task.
    Wanted,
    /// The client wants a task, and both sides have tasks of 2025-11-25.
    Core,
    /// A client of 2025-11-25 wants a task from a server of 2026-07-28.
    Upward,
    /// A tool of 2025-11-25 runs only as a task, and a client of 2026-07-28 knows tasks.
    Downward,
    /// A tool of 2025-11-25 runs only as a task, and the client does not know tasks.
    Hidden,
}

impl Plan {
    /// Settles the plan for this connection.
    ///
    /// # Errors
    /// `-32601`: the client wants a task from a server that has none.
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
            // Only while the server was of 2025-11-25 did its tools have to run as tasks.
            (Self::Downward | Self::Hidden, version) if version.is_modern() => Ok(Self::Theirs),
            (plan, _) => Ok(plan),
        }
    }

    /// Adds what the plan needs to what a request tells the server.
    pub(super) fn dress(self, mut terms: Terms) -> Terms {
        if self == Self::Upward {
            terms.extensions = Some(declared(terms.extensions.as_ref()));
        }
        terms.lasts = matches!(self, Self::Core | Self::Hidden);
        terms
    }
}

/// Returns these extensions, with the one of tasks added.
pub(super) fn declared(extensions: Option<&Raw>) -> Raw {
    match extensions {
        Some(extensions) if extensions.member(task::EXTENSION).is_some() => extensions.clone(),
        Some(extensions) => extensions.with_member(task::EXTENSION, b"{}"),
        None => Raw::empty_object().with_member(task::EXTENSION, b"{}"),
    }
}
