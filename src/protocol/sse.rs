//! Framing of server-sent events: bytes cut anywhere come in, whole events go out, with a cap (WHATWG HTML, 9.2.6).
//!
//! Why not the `eventsource-stream` crate: it panics on a byte order mark, takes quadratic time for a large event in
//! many chunks, and has no cap. This parser's property tests compare it with that crate.

use bytes::Bytes;

use super::gather::Gather;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The `event` field; empty means `message`.
    pub(crate) kind: String,
    pub(crate) data: Bytes,
    /// The `id` field of this event, if it had one.
    pub(crate) id: Option<String>,
    /// The `retry` field of this event, in milliseconds.
    pub(crate) retry: Option<u64>,
}

/// An event exceeded the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Splits a byte stream into events.
#[derive(Debug)]
pub(crate) struct Events {
    buffer: Gather,
    cap: usize,
    started: bool,
    /// Whether the last line ended with `\r`: a `\n` right after it belongs to the same line ending.
    after_cr: bool,
    /// The number of bytes of the event being read.
    size: usize,
    data: Data,
    pending: Event,
    seen: bool,
}

/// The data lines of one event; most events have one line, which stays a slice of the input.
#[derive(Debug)]
enum Data {
    None,
    One(Bytes),
    Many(Gather),
}

impl Events {
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            buffer: Gather::default(),
            cap,
            started: false,
            after_cr: false,
            size: 0,
            data: Data::None,
            pending: Event::default(),
            seen: false,
        }
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The number of bytes that belong to no complete event yet.
    pub(crate) fn open(&self) -> usize {
        self.size + self.buffer.len()
    }

    /// Returns the next event, if it is complete. An event without data is returned if it has an id or a retry time: a
    /// resumable stream begins with such an event.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, TooLarge> {
        if !self.start() {
            return Ok(None);
        }
        while let Some(line) = self.line() {
            self.size += line.len();
            if self.size > self.cap {
                return Err(TooLarge);
            }
            if !line.is_empty() {
                self.field(&line);
            } else if let Some(event) = self.dispatch() {
                return Ok(Some(event));
            }
        }
        if self.open() > self.cap { Err(TooLarge) } else { Ok(None) }
    }

    /// Drops a byte order mark; returns false while it cannot be recognized yet.
    fn start(&mut self) -> bool {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if self.started {
            return true;
        }
        let head = self.buffer.head(MARK.len());
        if head.len() < MARK.len() && MARK.starts_with(head) {
            return false;
        }
        if head == MARK {
            self.buffer.skip(MARK.len());
        }
        self.started = true;
        true
    }

    fn line(&mut self) -> Option<Bytes> {
        if self.after_cr {
            match self.buffer.head(1) {
                [] => return None,
                b"\n" => self.buffer.skip(1),
                _ => {}
            }
            self.after_cr = false;
        }
        let at = self.buffer.find(|bytes| memchr::memchr2(b'\n', b'\r', bytes))?;
        let mut line = self.buffer.take(at + 1);
        self.after_cr = line.last() == Some(&b'\r');
        line.truncate(line.len() - 1);
        Some(line)
    }

    fn field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line);
        let name = &line[..colon.unwrap_or(line.len())];
        let mut start = colon.map_or(line.len(), |at| at + 1);
        if line.get(start) == Some(&b' ') {
            start += 1;
        }
        let value = line.slice(start..);
        match name {
            b"data" => self.data.add(value),
            b"event" => self.pending.kind = text(&value),
            b"id" if memchr::memchr(0, &value).is_none() => {
                self.pending.id = Some(text(&value));
                self.seen = true;
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.pending.retry = std::str::from_utf8(&value).ok().and_then(|digits| digits.parse().ok());
                self.seen = true;
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        self.size = 0;
        let data = std::mem::replace(&mut self.data, Data::None);
        let mut event = std::mem::take(&mut self.pending);
        let seen = std::mem::take(&mut self.seen);
        event.data = match data {
            Data::None if !seen => return None,
            Data::None => Bytes::new(),
            Data::One(line) => line,
            Data::Many(mut lines) => lines.take(lines.len()),
        };
        Some(event)
    }
}

/// Decodes a name or an id, truncated: longer ones mean nothing to us, and as text they may take three times their
/// bytes.
fn text(value: &[u8]) -> String {
    const MOST: usize = 4096;
    String::from_utf8_lossy(&value[..value.len().min(MOST)]).into_owned()
}

impl Data {
    fn add(&mut self, line: Bytes) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(line),
            Self::One(first) => {
                let mut lines = Gather::default();
                lines.push(&first);
                drop(first);
                lines.push(b"\n");
                lines.push(&line);
                Self::Many(lines)
            }
            Self::Many(mut lines) => {
                lines.push(b"\n");
                lines.push(&line);
                Self::Many(lines)
            }
        };
    }
}
