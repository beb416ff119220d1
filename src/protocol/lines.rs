//! Line framing: bytes cut anywhere come in, whole lines go out, with a cap.

use bytes::{Bytes, BytesMut};

use super::gather::Gather;

/// What the decoder finds in the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its line ending; never empty.
    Whole(Bytes),
    /// The first bytes of a line over the cap. The rest is skipped.
    TooLong(Bytes),
    /// More than four times the cap came without a line ending. Nothing is read after that.
    Endless,
}

/// Splits a byte stream at `\n`. Drops one `\r` before it, blank lines, and a byte order mark at the start.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Gather,
    cap: usize,
    /// How many bytes of a line over the cap have been skipped.
    skipping: Option<usize>,
    started: bool,
    /// Whether the last line was large, so that the next may be as well.
    large: bool,
    /// Whether an endless line was found.
    over: bool,
}

/// A line over the cap is skipped up to this many times the cap (`docs/hazards.md` H3).
pub(crate) const ENDLESS: usize = 4;
/// How many bytes of a line over the cap are kept, to find the id of its message.
const HEAD: usize = 4096;
/// The initial read buffer of a message, in bytes.
const SMALL: usize = 8 * 1024;
/// The read buffer of a message that proves to be large, in bytes: a pipe holds 64 KiB.
const LARGE: usize = 64 * 1024;

impl Lines {
    pub(crate) fn new(cap: usize) -> Self {
        Self { buffer: Gather::default(), cap, skipping: None, started: false, large: false, over: false }
    }

    /// Returns the buffer for the next bytes; it grows with the expected message.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        let wanted = if self.large || self.buffer.len() >= SMALL { LARGE } else { SMALL };
        self.buffer.space(wanted)
    }

    /// Whether the last line was large. The next one often is, too, and its buffer should stay for a while.
    pub(crate) fn expects_large(&self) -> bool {
        self.large
    }

    /// Gives back the buffer, if it holds no bytes, and expects no large line any more.
    pub(crate) fn release(&mut self) {
        self.large = false;
        self.buffer.release();
    }

    /// The number of bytes in an incomplete line.
    #[cfg(test)]
    pub(crate) fn rest(&self) -> usize {
        self.buffer.len()
    }

    /// Returns the next line, if it is complete.
    pub(crate) fn next(&mut self) -> Option<Line> {
        if self.over {
            self.buffer.clear();
            return None;
        }
        loop {
            if !self.started && self.buffer.len() >= 3 {
                self.started = true;
                if self.buffer.head(3) == b"\xef\xbb\xbf" {
                    self.buffer.skip(3);
                }
            }
            let Some(at) = self.buffer.find(|bytes| memchr::memchr(b'\n', bytes)) else { return self.unfinished() };
            let mut line = self.buffer.take(at + 1);
            self.started = true;
            if self.skipping.take().is_some() {
                continue;
            }
            self.large = line.len() > SMALL;
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if line.len() > self.cap {
                return Some(Line::TooLong(Bytes::copy_from_slice(&line[..HEAD.min(line.len())])));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Line::Whole(line));
            }
        }
    }

    fn unfinished(&mut self) -> Option<Line> {
        if let Some(skipped) = &mut self.skipping {
            *skipped += self.buffer.len();
            self.over = *skipped > self.cap.saturating_mul(ENDLESS);
            self.buffer.clear();
            return self.over.then_some(Line::Endless);
        }
        // The last byte may belong to the line ending.
        let carriage = usize::from(self.buffer.last() == Some(b'\r'));
        if self.buffer.len() - carriage > self.cap {
            let head = Bytes::copy_from_slice(self.buffer.head(HEAD));
            self.skipping = Some(self.buffer.len());
            self.buffer.clear();
            return Some(Line::TooLong(head));
        }
        None
    }
}
