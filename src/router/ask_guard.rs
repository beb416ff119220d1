//! Takes the open questions of a call back when it ends.

use std::sync::Arc;

use super::client::Client;
use super::parked::Parked;
use crate::upstream::Connection;

/// Takes the open questions of a call back when dropped, however the call ends.
pub(super) enum AskGuard {
    /// The questions of one call.
    Client(Arc<Client>, u64),
    /// The questions of a parked call on one connection.
    Parked(Arc<Parked>, Arc<Connection>),
}

impl AskGuard {
    pub(super) fn new(client: &Arc<Client>, call: u64) -> Self {
        Self::Client(client.clone(), call)
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        match self {
            Self::Client(client, call) => client.drop_asks(*call, drop),
            Self::Parked(parked, connection) => parked.leaves(connection),
        }
    }
}
