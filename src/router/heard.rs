//! Holds what the server answered to a call, unchanged, for all requests that share the answer. Each request then
//! translates it into the revision of its own client.

use std::sync::Mutex;

use crate::lock::lock;
use crate::protocol::{Outcome, ProtocolVersion};
use crate::upstream::{Connection, Upstream};

/// Holds what the server answered to a call that is over.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Option<Said>>);

/// An answer, and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) lease: u64,
    /// The epoch of the connection, which changes with the connection and with each change of a list.
    pub(super) epoch: (u64, u64),
    /// The server's revision.
    pub(super) version: ProtocolVersion,
    pub(super) outcome: Outcome,
}

impl Heard {
    /// Notes the answer.
    pub(super) fn note(
        &self,
        (upstream, connection): (&Upstream, &Connection),
        version: ProtocolVersion,
        outcome: &Outcome,
    ) {
        let said = Said { lease: upstream.id, epoch: connection.epoch(), version, outcome: outcome.clone() };
        *lock(&self.0) = Some(said);
    }

    /// Takes the answer, if there was one.
    pub(super) fn take(&self) -> Option<Said> {
        lock(&self.0).take()
    }
}
