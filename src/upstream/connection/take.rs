//! Parses incoming data, a message or a JSON-RPC batch, and passes its messages on.

use std::sync::Arc;

use super::{Connection, Item};
use crate::protocol::{Malformed, batch};
use crate::transport::Error;

/// The maximum number of messages in one batch.
const BATCH: usize = 100;

impl Connection {
    /// Takes one incoming message or batch. `origin` is the exchange on whose stream it came, if any.
    pub(in crate::upstream) fn take(self: &Arc<Self>, origin: Option<u64>, data: &bytes::Bytes) {
        match self.read(data) {
            Ok(message) => self.receive(origin, message),
            Err(no_message) => {
                if let Err(reason) = self.take_batch(origin, data, no_message) {
                    tracing::warn!(server = self.label(), "an event is not an MCP message: {reason}");
                }
            }
        }
    }

    /// Takes a batch, which servers of 2025-03-26 may send (`docs/hazards.md` H39).
    ///
    /// # Errors
    /// Why the data is neither a batch nor a message.
    pub(in crate::upstream) fn take_batch(
        self: &Arc<Self>,
        origin: Option<u64>,
        data: &bytes::Bytes,
        no_message: Malformed,
    ) -> Result<(), Malformed> {
        let Some(items) = batch(data).filter(|_| self.takes_batches()) else { return Err(no_message) };
        if items.is_empty() || items.len() > BATCH {
            let reason = format!("a batch of {} messages, not of 1 to {BATCH}", items.len());
            return Err(Malformed { reason, ..no_message });
        }
        for item in items {
            match self.read(&item) {
                Ok(message) => self.receive(origin, message),
                Err(reason) => {
                    tracing::warn!(server = self.label(), "an item of a batch is not an MCP message: {reason}")
                }
            }
        }
        Ok(())
    }

    /// Fails the request, unless it is answered already.
    pub(in crate::upstream) fn lose_one(&self, id: u64, error: Error) {
        self.finish(id, Item::Lost(error));
    }
}
