//! How a call of a tool is to run: as a task, or not.

use crate::adapt::task;
use crate::manager::Server;
use crate::protocol::{ErrorObject, ProtocolVersion, Raw, code};
use crate::upstream::{Connection, Terms};

/// What is to become of a call that may run as a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Plan {
    /// Whatever client and server agree on: since 2026-07-28 the server alone decides.
    #[default]
    Theirs,
    /// The client, of 2025-11-25, wants one.
    Wanted,
    /// Both have tasks as in 2025-11-25, and the client wants one.
    Core,
    /// A client of 2025-11-25 wants a task of a server of 2026-07-28.
    Upward,
    /// A tool of 2025-11-25 runs as a task only, and a client of 2026-07-28 knows tasks.
    Downward,
    /// A tool of 2025-11-25 runs as a task only, and the client knows nothing of tasks.
    Hidden,
}

impl Plan {
    /// What it comes to over this connection.
    ///
    /// # Errors
    /// `-32601`: the client wants a task of a server that has none.
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
            // Its tools ran as tasks only as long as it was of 2025-11-25.
            (Self::Downward | Self::Hidden, version) if version.is_modern() => Ok(Self::Theirs),
            (plan, _) => Ok(plan),
        }
    }

    /// Adds to what a request says of its client what the plan needs.
    pub(super) fn dress(self, mut terms: Terms) -> Terms {
        if self == Self::Upward {
            terms.extensions = Some(declared(terms.extensions.as_ref()));
        }
        terms.lasts = matches!(self, Self::Core | Self::Hidden);
        terms
    }
}

/// These extensions, with that of tasks among them.
pub(super) fn declared(extensions: Option<&Raw>) -> Raw {
    match extensions {
        Some(extensions) if extensions.member(task::EXTENSION).is_some() => extensions.clone(),
        Some(extensions) => extensions.with_member(task::EXTENSION, b"{}"),
        None => Raw::empty_object().with_member(task::EXTENSION, b"{}"),
    }
}
