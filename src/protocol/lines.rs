//! Framing by lines: bytes cut anywhere come in, whole lines go out, with a cap.

use bytes::{Bytes, BytesMut};

use super::gather::Gather;

/// What the decoder found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its end; never empty.
    Whole(Bytes),
    /// A line over the cap: its first bytes. The rest is skipped.
    TooLong(Bytes),
    /// More than four times the cap, and still no end: this will not become a line. It is the last thing that is found.
    Endless,
}

/// Cuts a byte stream at `\n`. One `\r` before it, blank lines and a byte order mark at the start are dropped.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Gather,
    cap: usize,
    /// How much was skipped of a line over the cap.
    skipping: Option<usize>,
    started: bool,
    /// The last line was: the next may be.
    large: bool,
    /// It was endless.
    over: bool,
}

/// A line over the cap is skipped up to that many times the cap (`docs/hazards.md` H3).
pub(crate) const ENDLESS: usize = 4;
/// How much of a line over the cap is kept, to find the id in it.
const HEAD: usize = 4096;
/// Room for the first bytes of a message, and for those of one that proves to be large: a pipe holds 64 KiB.
const SMALL: usize = 8 * 1024;
const LARGE: usize = 64 * 1024;

impl Lines {
    pub(crate) fn new(cap: usize) -> Self {
        Self { buffer: Gather::default(), cap, skipping: None, started: false, large: false, over: false }
    }

    /// Where the next bytes go; room grows with what is waited for.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        let wanted = if self.large || self.buffer.len() >= SMALL { LARGE } else { SMALL };
        self.buffer.space(wanted)
    }

    /// Bytes of a line that is not whole yet.
    #[cfg(test)]
    pub(crate) fn rest(&self) -> usize {
        self.buffer.len()
    }

    /// The next line, if it is whole.
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
        // The last byte may be the one that goes with the line's end.
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
