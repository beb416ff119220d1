//! The direct connection to a stdio server: its child process and the two pipes, with several calls in flight.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};

use crate::call::{self, Call};
use crate::process::{Process, Role};

/// An echo server at the other end of two pipes.
#[derive(Debug)]
pub(crate) struct Pipe {
    stdin: ChildStdin,
    stdout: ChildStdout,
    received: BytesMut,
    next: u64,
    _child: Process,
}

impl Pipe {
    /// Starts an echo server and performs the handshake.
    pub(crate) async fn start(tools: usize) -> Result<Self> {
        let (child, stdin, stdout) = Process::piped(Role::EchoStdio { tools })?;
        let received = BytesMut::with_capacity(64 * 1024);
        let mut pipe = Self { stdin, stdout, received, next: 1, _child: child };
        pipe.write(call::INITIALIZE.as_bytes().to_vec()).await?;
        let length = pipe.line().await?;
        call::answer_id(&pipe.received[..length]).context("initialize")?;
        pipe.received.advance(length + 1);
        pipe.write(call::INITIALIZED.as_bytes().to_vec()).await?;
        Ok(pipe)
    }

    /// Returns how many tools the server lists.
    pub(crate) async fn count_tools(&mut self) -> Result<usize> {
        let id = self.take_id();
        self.write(call::list(id, None).into_bytes()).await?;
        let length = self.line().await?;
        let count = call::names(&self.received[..length])?.len();
        self.received.advance(length + 1);
        Ok(count)
    }

    /// Makes `calls` calls, `window` of them in flight, and returns the duration of each.
    pub(crate) async fn round(&mut self, call: &Call, calls: usize, window: usize) -> Result<Vec<Duration>> {
        let mut took = Vec::with_capacity(calls);
        let mut running: VecDeque<(u64, Instant)> = VecDeque::with_capacity(window);
        let mut left = calls;
        let mut out = Vec::new();
        while took.len() < calls {
            while running.len() < window && left > 0 {
                let id = self.take_id();
                call.write(id, &mut out);
                out.push(b'\n');
                running.push_back((id, Instant::now()));
                left -= 1;
            }
            if !out.is_empty() {
                self.stdin.write_all(&out).await.context("cannot write to the server")?;
                out.clear();
            }
            // Takes all lines received so far, so that one read keeps the window full.
            let mut length = self.line().await?;
            let now = Instant::now();
            loop {
                let (id, since) = running.pop_front().context("a response without a request")?;
                took.push(now - since);
                call.check(id, &self.received[..length])?;
                self.received.advance(length + 1);
                match memchr::memchr(b'\n', &self.received) {
                    Some(at) => length = at,
                    None => break,
                }
            }
        }
        Ok(took)
    }

    fn take_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    async fn write(&mut self, mut message: Vec<u8>) -> Result<()> {
        message.push(b'\n');
        self.stdin.write_all(&message).await.context("cannot write to the server")
    }

    /// Waits until the first line is complete, and returns its length.
    async fn line(&mut self) -> Result<usize> {
        let mut seen = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.received[seen..]) {
                return Ok(seen + at);
            }
            seen = self.received.len();
            self.received.reserve(64 * 1024);
            let count = self.stdout.read_buf(&mut self.received).await.context("cannot read from the server")?;
            ensure!(count > 0, "the server closed its output");
        }
    }
}
