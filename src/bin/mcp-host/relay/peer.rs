//! One daemon that a relay is connected to.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::kept::{self, At, Kept};
use super::scan::Scan;

/// How long a daemon may take to begin a session anew.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of its answer.
const ANSWER: usize = 16 << 20;

/// A connection, and what is known of its end.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) number: usize,
    stream: UnixStream,
    /// Tells the daemon from another one; none for a host of this process.
    pub(super) boot: Option<String>,
    out: Vec<u8>,
    /// Bytes that were ever put into `out`, and how many of them are written.
    queued: u64,
    pub(super) written: u64,
    /// Messages that were put there.
    lines: u64,
    /// What came and is no whole line yet.
    pub(super) input: Vec<u8>,
    /// The rest of a long line passes as it comes.
    pub(super) passing: Option<Scan>,
    /// Questions that wait for the client, by id.
    pub(super) questions: Vec<String>,
    /// It said something long while another one talked, which is to be heard once that is over.
    pub(super) held: bool,
    /// It stops: it has what it will answer.
    pub(super) leaving: bool,
    /// It says nothing more.
    pub(super) gone: bool,
    /// We say nothing more.
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

    /// Begins the client's session once more; whether the daemon agreed to the same revision. It blocks, but not for long.
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
        // The first message is counted by the daemon, as these are.
        self.lines = 1 + resumed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.put(&resumed);
        Ok(true)
    }

    /// From now on nothing waits.
    pub(super) fn ready(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// Whether a question of it waits for the client.
    pub(super) fn has_asked(&self, id: &str) -> bool {
        self.questions.iter().any(|question| question == id)
    }

    /// Where the next message will stand.
    pub(super) fn next(&mut self, is_blank: bool) -> At {
        if !is_blank {
            self.lines += 1;
        }
        At { peer: self.number, index: self.lines, start: self.queued }
    }

    /// Bytes on their way to the daemon.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.queued += bytes.len() as u64;
        self.out.extend_from_slice(bytes);
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Writes what it takes now.
    pub(super) fn write(&mut self) {
        let mut done = 0;
        while done < self.out.len() {
            match self.stream.write(&self.out[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The end of what it says is seen where it is read: it may have answered before.
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
            // A burst is over.
            self.out.shrink_to(8 << 10);
        }
    }

    /// Reads what there is; nothing where there is nothing now.
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

    /// Says nothing more, once all is written.
    pub(super) fn close(&mut self) {
        if self.out.is_empty() && !self.closed {
            self.closed = true;
            // One that is gone has closed it already.
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
