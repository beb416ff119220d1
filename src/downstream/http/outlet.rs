//! The way out for one response: its bytes count against the client's account until the connection has written them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::wires::HttpWire;
use crate::protocol::Frame;
use crate::queues::{Account, Way};

/// The way out for one response.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    way: Arc<Way>,
    wire: HttpWire,
}

/// The bytes that a message costs in addition to its length.
const OVERHEAD: usize = 128;

impl HttpWire {
    /// Returns the outlet to the client with this account. If the client is cut off (because it does not read), the
    /// connection ends.
    pub(super) fn outlet(&self, account: &Account) -> Outlet {
        Outlet { way: account.way(self.end_token()), wire: self.clone() }
    }
}

impl Outlet {
    /// Returns the connection.
    pub(super) fn wire(&self) -> &HttpWire {
        &self.wire
    }

    /// Returns the pieces of a message, counted against the account.
    pub(super) fn pieces(&self, frame: Frame) -> VecDeque<Bytes> {
        let size = OVERHEAD + frame.len();
        let [head, body, tail] = frame.pieces();
        let mut pieces = VecDeque::with_capacity(3);
        if body.is_empty() {
            self.way.load(&mut pieces, head, size);
        } else {
            pieces.push_back(head);
            self.way.load(&mut pieces, body, size);
            pieces.push_back(tail);
        }
        pieces
    }

    /// Returns the pieces of bytes that are no message, counted against the account.
    pub(super) fn bytes(&self, bytes: Bytes) -> VecDeque<Bytes> {
        let (mut pieces, size) = (VecDeque::new(), OVERHEAD + bytes.len());
        self.way.load(&mut pieces, bytes, size);
        pieces
    }

    /// Adds the pieces of an event that starts with `head`; a large message stays in its own piece.
    pub(super) fn event(&self, pieces: &mut VecDeque<Bytes>, head: &[u8], frame: Option<Frame>) {
        let size = OVERHEAD + head.len() + frame.as_ref().map_or(0, Frame::len);
        let [start, body, tail] = frame.map_or_else(Default::default, Frame::pieces);
        let mut first = Vec::with_capacity(head.len() + start.len() + 2);
        first.extend_from_slice(head);
        first.extend_from_slice(&start);
        if body.is_empty() {
            first.extend_from_slice(b"\n\n");
            return self.way.load(pieces, first.into(), size);
        }
        let mut last = tail.to_vec();
        last.extend_from_slice(b"\n\n");
        pieces.push_back(first.into());
        self.way.load(pieces, body, size);
        pieces.push_back(last.into());
    }
}
