//! What the server answered to a call, as it came: for all who wait for the same answer, each of whom puts it into the
//! form of its own revision.

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
    /// The connection, and the lists that had changed by then.
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

    /// Takes the answer out, if there was one.
    pub(super) fn take(&self) -> Option<Said> {
        lock(&self.0).take()
    }
}
