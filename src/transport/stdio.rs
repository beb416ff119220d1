//! A server as a child process: one message per line on its standard input and output.
//!
//! Writes are queued and go out in batches from one task, so that no caller waits for a child that does not read.
//! Reading happens in the task that holds the [`PipeReader`].

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::noise::Noise;
use super::process::{self, Ladder, Process};
use super::stderr::{StderrTail, drain};
use super::turn::Turn;
use super::{Error, Label, Limits};
use crate::config;
use crate::lock::lock;
use crate::protocol::lines::{Line, Lines};
use crate::protocol::{Frame, Malformed, Message, RequestId, is_batch};

/// The writing end of a child process.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    queue: Arc<Queue>,
    pid: Option<u32>,
}

/// The reading end of a child process, and the process itself.
#[derive(Debug)]
pub(crate) struct PipeReader {
    stdout: ChildStdout,
    lines: Lines,
    process: Process,
    drain: JoinHandle<()>,
    tail: StderrTail,
    queue: Arc<Queue>,
    noise: Noise,
    turn: Turn,
    /// When and why reading stops.
    leaving: Option<(Instant, Leaving)>,
    server: Label,
    cap: usize,
    depth: usize,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
    /// Cancelled when the child stops taking input.
    deaf: CancellationToken,
    cap: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    pieces: Vec<Bytes>,
    /// The ids of the queued requests, and the offset in `pieces` at which each begins, in bytes.
    requests: Vec<(u64, usize)>,
    /// The number of bytes in `pieces`.
    queued: usize,
    /// Requests of which no byte was taken when writing failed.
    refused: Vec<u64>,
    /// The number of bytes in `pieces`, plus those being written.
    bytes: usize,
    closed: bool,
}

/// Something read from a child.
#[derive(Debug)]
pub(crate) enum Heard {
    Message(Message),
    /// A possible JSON-RPC batch, and why it is not a single message.
    Batch(Bytes, Malformed),
    /// A malformed or oversized answer to that request.
    Broken(RequestId, Error),
}

/// Why a child is read for only [`LAST_WORDS`] longer.
#[derive(Debug)]
enum Leaving {
    Ended(Option<std::process::ExitStatus>),
    /// The child no longer takes input.
    Deaf,
}

/// A write that takes longer means that the child has stopped reading.
const STUCK: Duration = Duration::from_secs(30);
/// How long a buffer for large lines is kept after the last of them.
const KEPT: Duration = Duration::from_secs(1);
/// How long output is still read after the child has ended.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(200);

/// Starts the command. Its standard error goes to the log; the writer and the stderr reader run on `tasks`.
pub(crate) fn spawn(
    settings: &config::Stdio,
    limits: &Limits,
    server: Label,
    tail: StderrTail,
    tasks: &TaskTracker,
) -> Result<(Pipe, PipeReader), Error> {
    let (process, ends) = Process::start(settings)?;
    let queue = Arc::new(Queue {
        waiting: Mutex::default(),
        news: Notify::new(),
        deaf: CancellationToken::new(),
        cap: limits.queue,
    });
    let drain = tasks.spawn(drain(ends.stderr, tail.clone(), Some(server.clone())));
    tasks.spawn(write(ends.stdin, queue.clone()));
    let pipe = Pipe { queue: queue.clone(), pid: process.pid() };
    let (lines, cap, depth) = (Lines::new(limits.message), limits.message, limits.depth);
    let (noise, turn) = (Noise::default(), Turn::default());
    Ok((
        pipe,
        PipeReader {
            stdout: ends.stdout,
            lines,
            process,
            drain,
            tail,
            queue,
            noise,
            turn,
            leaving: None,
            server,
            cap,
            depth,
        },
    ))
}

impl Pipe {
    /// Queues a message without waiting.
    pub(crate) fn send(&self, frame: Frame) -> Result<(), Error> {
        self.put(frame, None)
    }

    fn put(&self, frame: Frame, request: Option<u64>) -> Result<(), Error> {
        let mut waiting = self.queue.lock();
        if waiting.closed {
            return Err(Error::Unwritten);
        }
        let frame = frame.on_one_line();
        if waiting.bytes > 0 && waiting.bytes + frame.len() > self.queue.cap {
            return Err(Error::Overloaded(self.queue.cap));
        }
        let (start, length) = (waiting.queued, frame.len() + 1);
        waiting.bytes += length;
        waiting.queued += length;
        waiting.pieces.extend(frame.pieces().into_iter().filter(|piece| !piece.is_empty()));
        waiting.pieces.push(Bytes::from_static(b"\n"));
        waiting.requests.extend(request.map(|id| (id, start)));
        drop(waiting);
        self.queue.news.notify_one();
        Ok(())
    }

    /// Queues a request.
    pub(crate) fn request(&self, id: u64, frame: Frame) -> Result<(), Error> {
        self.put(frame, Some(id))
    }

    /// Stops writing after the connection is lost. Returns the requests of which no byte was written.
    pub(crate) fn abandon(&self) -> Vec<u64> {
        let mut waiting = self.queue.lock();
        waiting.closed = true;
        waiting.pieces.clear();
        let mut unwritten = std::mem::take(&mut waiting.refused);
        unwritten.extend(std::mem::take(&mut waiting.requests).into_iter().map(|(id, _)| id));
        drop(waiting);
        self.queue.news.notify_one();
        unwritten
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    /// Waits for queued messages and takes them all; `None` once the queue is closed and empty.
    async fn take(&self) -> Option<Batch> {
        loop {
            let news = self.news.notified();
            {
                let mut waiting = self.lock();
                if !waiting.pieces.is_empty() {
                    // From here on a request may have arrived, unless writing fails before its first byte.
                    waiting.queued = 0;
                    let pieces = std::mem::take(&mut waiting.pieces);
                    return Some(Batch { pieces, requests: std::mem::take(&mut waiting.requests) });
                }
                if waiting.closed {
                    return None;
                }
            }
            news.await;
        }
    }

    fn written(&self, bytes: usize) {
        let mut waiting = self.lock();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
    }

    /// Records that writing failed after `written` bytes of a batch.
    fn refused(&self, requests: Vec<(u64, usize)>, written: usize) {
        let mut waiting = self.lock();
        waiting.refused.extend(requests.into_iter().filter(|(_, start)| *start >= written).map(|(id, _)| id));
    }
}

/// The data of one write.
struct Batch {
    pieces: Vec<Bytes>,
    requests: Vec<(u64, usize)>,
}

async fn write(mut stdin: ChildStdin, queue: Arc<Queue>) {
    while let Some(Batch { pieces, requests }) = queue.take().await {
        let mut written = 0;
        match tokio::time::timeout(STUCK, write_all(&mut stdin, pieces, &mut written)).await {
            Ok(Ok(())) => queue.written(written),
            // The reader notices the end of the process, or else that it is deaf.
            Ok(Err(_)) | Err(_) => {
                queue.refused(requests, written);
                queue.deaf.cancel();
                break;
            }
        }
    }
    queue.close();
}

/// Writes many messages in one system call; small ones are joined first. `count` becomes the number of bytes that the
/// pipe took.
async fn write_all(stdin: &mut ChildStdin, mut pieces: Vec<Bytes>, count: &mut usize) -> io::Result<()> {
    const TOGETHER: usize = 16 * 1024;
    if pieces.iter().map(Bytes::len).sum::<usize>() <= TOGETHER {
        let whole = pieces.concat();
        while let Some(rest) = whole.get(*count..).filter(|rest| !rest.is_empty()) {
            match stdin.write(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => *count += written,
            }
        }
        return Ok(());
    }
    let mut first = 0;
    while first < pieces.len() {
        let slices: Vec<IoSlice<'_>> = pieces[first..].iter().take(64).map(|piece| IoSlice::new(piece)).collect();
        let mut written = stdin.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        *count += written;
        while first < pieces.len() && written >= pieces[first].len() {
            written -= pieces[first].len();
            first += 1;
        }
        if let Some(piece) = pieces.get_mut(first) {
            let _ = piece.split_to(written);
        }
    }
    Ok(())
}

/// Reads what a child has written. While there is nothing, only a buffer for large lines is held, and that for [`KEPT`]:
/// most children are silent most of the time.
async fn read(stdout: &mut ChildStdout, lines: &mut Lines) -> io::Result<usize> {
    poll_fn(|context| {
        let read = pin!(stdout.read_buf(lines.space())).poll(context);
        if read.is_pending() && !lines.expects_large() {
            lines.release();
        }
        read
    })
    .await
}

impl PipeReader {
    /// Returns the next message. Lines that are not messages are logged and skipped.
    ///
    /// # Errors
    /// When the process ended, closed its output, does not read, or sends an endless line.
    pub(crate) async fn next(&mut self) -> Result<Heard, Error> {
        loop {
            // Before anything is taken, so that dropping the future loses nothing.
            self.turn.pass().await;
            while let Some(line) = self.lines.next() {
                self.turn.message();
                if let Some(heard) = self.read(line)? {
                    return Ok(heard);
                }
                self.turn.pass().await;
            }
            if self.leaving.is_none() && self.queue.deaf.is_cancelled() {
                // If the child is about to end, that is the better reason, and its last output still counts.
                self.leaving = Some((Instant::now() + LAST_WORDS, Leaving::Deaf));
            }
            let until = self.leaving.as_ref().map(|(until, _)| *until);
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let (stays, noise) = (until.is_none(), self.noise.due());
            let kept = self.lines.expects_large().then(|| Instant::now() + KEPT);
            tokio::select! {
                biased;
                // These first, because a grandchild may hold the pipe open forever, and fill it too.
                () = over => return Err(self.left().await),
                status = self.process.wait(), if stays => {
                    self.leaving = Some((Instant::now() + LAST_WORDS, Leaving::Ended(status)));
                }
                read = read(&mut self.stdout, &mut self.lines) => {
                    match read {
                        Ok(count @ 1..) => self.turn.bytes(count),
                        _ => return Err(self.ended().await),
                    }
                }
                () = self.queue.deaf.cancelled(), if stays => {}
                () = Noise::is_due(noise) => self.noise.tell(&self.server),
                () = Noise::is_due(kept) => self.lines.release(),
            }
        }
    }

    fn read(&mut self, line: Line) -> Result<Option<Heard>, Error> {
        let is_too_long = matches!(line, Line::TooLong(_));
        let (text, reason, error) = match line {
            Line::Whole(line) => match Message::passing(&line, self.depth) {
                Ok(message) => return Ok(Some(Heard::Message(message))),
                Err(no_message) if is_batch(&line) => return Ok(Some(Heard::Batch(line, no_message))),
                Err(Malformed { reason, .. }) => (line, reason.clone(), Error::Malformed(reason)),
            },
            Line::TooLong(head) => (head, "a line over host.limits.message".to_owned(), Error::TooLarge(self.cap)),
            Line::Endless => return Err(Error::TooLarge(self.cap)),
        };
        let broken = Message::answered_by(&text).map(|id| Heard::Broken(id, error));
        // The caller of an oversized answer gets an error, so there is no need to log it.
        if broken.is_none() || !is_too_long {
            self.noise.note(&self.server, &self.tail, &text, &reason);
        }
        Ok(broken)
    }

    async fn left(&mut self) -> Error {
        match self.leaving.take() {
            Some((_, Leaving::Ended(status))) => self.exited(status).await,
            _ => match tokio::time::timeout(Duration::ZERO, self.process.wait()).await {
                Ok(status) => self.exited(status).await,
                Err(_) => Error::Deaf,
            },
        }
    }

    async fn ended(&mut self) -> Error {
        let status = tokio::time::timeout(LAST_WORDS, self.process.wait()).await.ok().flatten();
        self.exited(status).await
    }

    /// Logs a line that turned out not to be a message.
    pub(crate) fn tell_noise(&mut self, text: &[u8], reason: &str) {
        self.noise.note(&self.server, &self.tail, text, reason);
    }

    async fn exited(&mut self, status: Option<std::process::ExitStatus>) -> Error {
        // Its last words are the best reason there is.
        let _ = tokio::time::timeout(LAST_WORDS, &mut self.drain).await;
        let status = match status {
            None => "it closed its standard output".to_owned(),
            status => process::describe(status),
        };
        Error::Exited { status, stderr: self.tail.cause() }
    }

    /// Stops the process and its group; returns once no member of the group is alive.
    pub(crate) async fn stop(mut self, ladder: Ladder) {
        self.queue.close();
        self.noise.tell(&self.server);
        // Its output is read until then: a child that blocks on a full pipe would never see the end of its input.
        let Self { process, mut stdout, drain, .. } = self;
        let (gone, wait) = oneshot::channel::<()>();
        let swallow = async {
            let mut nothing = tokio::io::sink();
            let reading = async { drop(tokio::io::copy(&mut stdout, &mut nothing).await) };
            tokio::select! { () = reading => {}, _ = wait => {} }
        };
        let stop = async {
            process.stop(ladder).await;
            drop(gone);
        };
        tokio::join!(stop, swallow);
        // A descendant that left the group may hold the pipe open; its output no longer matters.
        drain.abort();
    }
}
