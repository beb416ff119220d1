//! The bytes that wait to be written to one pipe. Small messages are combined into one write; large ones are not
//! copied.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::protocol::Frame;
use crate::queues::Share;

/// The lines that wait to be written.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Pieces to write first: large ones, and the small messages before them.
    pieces: VecDeque<Bytes>,
    /// Small messages to write after the pieces.
    tail: BytesMut,
    bytes: usize,
    share: Share,
}

/// Pieces up to this many bytes are copied.
const SMALL: usize = 16 * 1024;

impl Outbox {
    /// Creates an empty outbox whose bytes count against the account of this share.
    pub(super) fn new(share: Share) -> Self {
        Self { pieces: VecDeque::new(), tail: BytesMut::new(), bytes: 0, share }
    }

    /// Adds a message and its newline.
    pub(super) fn push(&mut self, frame: Frame) {
        self.share.add(frame.len() + 1);
        let pieces = frame.on_one_line().pieces();
        for piece in pieces.into_iter().chain([Bytes::from_static(b"\n")]) {
            self.bytes += piece.len();
            if piece.len() <= SMALL {
                self.tail.extend_from_slice(&piece);
                continue;
            }
            if !self.tail.is_empty() {
                self.pieces.push_back(self.tail.split().freeze());
            }
            self.pieces.push_back(piece);
        }
    }

    /// Returns how many bytes wait.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Writes some of the bytes that wait.
    ///
    /// # Cancel safety
    /// If the wait is dropped, exactly the written bytes have left the outbox.
    pub(super) async fn write_to<W: AsyncWrite + Unpin>(&mut self, output: &mut W) -> io::Result<()> {
        if output.write_buf(self).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.is_empty() {
            output.flush().await?;
        }
        Ok(())
    }
}

impl Buf for Outbox {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&self.tail[..], |piece| &piece[..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let chunks = self.pieces.iter().map(|piece| &piece[..]).chain([&self.tail[..]]);
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(chunks.filter(|chunk| !chunk.is_empty())) {
            *slice = IoSlice::new(chunk);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        self.share.take(count);
        while count > 0 {
            let Some(front) = self.pieces.front_mut() else {
                self.tail.advance(count);
                break;
            };
            let step = count.min(front.len());
            front.advance(step);
            count -= step;
            if front.is_empty() {
                self.pieces.pop_front();
            }
        }
        // An idle client holds no buffer.
        if self.bytes == 0 && self.tail.capacity() > SMALL {
            self.tail = BytesMut::new();
        }
    }
}
