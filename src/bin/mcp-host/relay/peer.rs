//! One daemon that a relay is connected to.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::kept::{self, At, Kept};
use super::scan::Scan;

/// How long a daemon may take to resume a session.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes the daemon's answer to `initialize` may have at most.
const ANSWER: usize = 16 << 20;

/// A connection to a daemon and its state.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) number: usize,
    stream: UnixStream,
    /// Identifies the daemon; `None` for a host in this process.
    pub(super) boot: Option<String>,
    out: Vec<u8>,
    /// Total bytes put into `out` so far.
    queued: u64,
    /// How many of these bytes are written.
    pub(super) written: u64,
    /// How many messages were ever put into `out`.
    lines: u64,
    /// Received bytes that are not a whole line yet.
    pub(super) input: Vec<u8>,
    /// A long line whose rest is forwarded as it arrives.
    pub(super) passing: Option<Scan>,
    /// Ids of the daemon's questions that wait for the client's answer.
    pub(super) questions: Vec<String>,
    /// Whether the daemon has a long message that must wait for the end of another daemon's.
    pub(super) held: bool,
    /// Whether the daemon is stopping: it answers only what it has taken.
    pub(super) leaving: bool,
    /// Whether the daemon has closed its side.
    pub(super) gone: bool,
    /// Whether we have closed our side.
    closed: bool,
}

impl Peer {
    pub(super) fn new(number: usize, stream: UnixStream, boot: Option<String>) -> Self {
        Self {
            number,
            stream,
            boot,
            out: Vec::new(),
            queued: 0,
            written: 0,
            lines: 0,
            input: Vec::new(),
            passing: None,
            questions: Vec::new(),
            held: false,
            leaving: false,
            gone: false,
            closed: false,
        }
    }

    /// Resumes the client's session. Returns false if the daemon agreed to another revision. Blocks, but not for long.
    pub(super) fn take_up(&mut self, kept: &Kept) -> io::Result<bool> {
        let Some((line, revision)) = kept.session() else { return Ok(true) };
        self.stream.set_read_timeout(Some(PATIENCE))?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        self.stream.write_all(&line)?;
        let end = Instant::now() + PATIENCE;
        let mut piece = [0; 4096];
        let at = loop {
            if let Some(at) = memchr::memchr(b'\n', &self.input) {
                break at;
            }
            let read = self.stream.read(&mut piece)?;
            if read == 0 || self.input.len() > ANSWER || Instant::now() > end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.input.extend_from_slice(&piece[..read]);
        };
        let rest = self.input.split_off(at + 1);
        let answer = std::mem::replace(&mut self.input, rest);
        let agreed = kept::agreed(&answer).ok_or(io::ErrorKind::InvalidData)?;
        if agreed.0 != revision {
            return Ok(false);
        }
        let resumed = kept.resumed();
        // The daemon counts `initialize` and these messages.
        self.lines = 1 + resumed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.put(&resumed);
        Ok(true)
    }

    /// Makes the connection nonblocking.
    pub(super) fn ready(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// Reports whether the question with this id waits for the client's answer.
    pub(super) fn has_asked(&self, id: &str) -> bool {
        self.questions.iter().any(|question| question == id)
    }

    /// Counts the next message, unless the line is blank, and returns its position.
    pub(super) fn next(&mut self, is_blank: bool) -> At {
        if !is_blank {
            self.lines += 1;
        }
        At { peer: self.number, index: self.lines, start: self.queued }
    }

    /// Queues bytes for the daemon.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.queued += bytes.len() as u64;
        self.out.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Writes as many queued bytes as possible without blocking.
    pub(super) fn write(&mut self) {
        let mut done = 0;
        while done < self.out.len() {
            match self.stream.write(&self.out[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The end of the connection is noticed when reading: there may be answers left.
                Err(_) => {
                    self.written += done as u64;
                    self.out.clear();
                    return;
                }
            }
        }
        self.written += done as u64;
        self.out.drain(..done);
        if self.out.is_empty() {
            // A burst may have left a large buffer.
            self.out.shrink_to(8 << 10);
        }
    }

    /// Reads what is available, which may be nothing, into `piece`.
    pub(super) fn read<'a>(&mut self, piece: &'a mut [u8]) -> &'a [u8] {
        loop {
            match self.stream.read(piece) {
                Ok(0) => self.gone = true,
                Ok(count) => return &piece[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.gone = true,
            }
            return &[];
        }
    }

    /// Closes our side if everything is written.
    pub(super) fn close(&mut self) {
        if self.out.is_empty() && !self.closed {
            self.closed = true;
            // This fails if the daemon is gone already.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
