//! A child's standard error: read to its end, its last lines kept, each line logged.
//!
//! An unfinished line counts as a line once the child has been silent for a moment: a prompt is such a line. Not here:
//! which line explains a failed start (`telling/mod.rs`). **Invariant:** nothing is shown unscrubbed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::turn::Turn;
use super::{Announcer, Label, telling};
use crate::counts::Count;
use crate::lock::lock;
use crate::plain::{excerpt, plain};
use crate::redact::Scrubber;

/// The last lines that one child wrote to standard error. They are kept raw, because a child may write faster than
/// scrubbing can follow, and shown without the secrets that the child was given.
#[derive(Clone, Default)]
pub(crate) struct StderrTail {
    kept: Arc<Mutex<Kept>>,
    scrubber: Arc<Scrubber>,
    /// Announces each line to listeners.
    announcer: Option<Announcer>,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<Arc<[u8]>>,
    /// An unfinished line after which the child fell silent.
    open: Option<Arc<[u8]>>,
    /// The number of lines so far.
    count: u64,
    /// The unscrubbed cause found in the lines, and the value of `count` when it was found.
    told: Option<(u64, Option<String>)>,
}

/// The number of lines that are kept.
const LINES: usize = 200;
/// The bytes of one line that are kept; the rest is dropped.
const LINE: usize = 8 * 1024;
/// The bytes of one line that are weighed to find the cause of a failure.
const HEAD: usize = 1024;
/// The number of lines that people see.
const SHOWN: usize = 20;
/// The characters of a line that people see.
const WIDTH: usize = 300;
/// How long a child must be silent in the middle of a line to count as waiting for input.
const STILL: Duration = Duration::from_millis(500);
const LINES_PER_SECOND: u32 = 100;

impl StderrTail {
    /// Creates an empty tail with the secrets to scrub.
    pub(crate) fn of(scrubber: Arc<Scrubber>) -> Self {
        Self { scrubber, ..Self::default() }
    }

    /// Announces each line from now on.
    pub(crate) fn announced(self, announcer: Announcer) -> Self {
        Self { announcer: Some(announcer), ..self }
    }

    /// Counts a line on standard output that is no message.
    pub(crate) fn note_noise(&self) {
        if let Some(announcer) = &self.announcer {
            announcer.counts().one(Count::DroppedNoise);
        }
    }

    /// Formats output for display: escaped, without secrets, at most `limit` characters.
    fn shown(&self, bytes: &[u8], limit: usize) -> String {
        // The rest is never shown, and a line may have megabytes.
        let bytes = &bytes[..bytes.len().min(4 * limit)];
        self.scrubber.scrub(&excerpt(&plain(bytes), limit)).into_owned()
    }

    /// The last line that is not empty.
    pub(crate) fn last(&self) -> Option<String> {
        let kept = self.lock();
        kept.newest_first().map(|line| self.line(line)).find(|line| !line.is_empty())
    }

    /// The last lines, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let kept = self.lock();
        let lines = kept.newest_first().map(|line| self.line(line)).filter(|line| !line.is_empty());
        let mut lines: Vec<String> = lines.take(SHOWN).collect();
        lines.reverse();
        lines
    }

    /// The line that explains a failure; if the child waits in the middle of a line, that line.
    pub(crate) fn cause(&self) -> Option<String> {
        let open = self.lock().open.clone();
        if let Some(open) = open.map(|open| self.line(&open)).filter(|open| !open.is_empty()) {
            return Some(open);
        }
        Some(self.scrubber.scrub(&self.told()?).chars().take(WIDTH).collect())
    }

    /// Returns the cause, unscrubbed, because more secrets may be known by the time it is shown. The lines are weighed
    /// once, and outside of the lock, because that takes a while.
    fn told(&self) -> Option<String> {
        let (count, lines) = {
            let kept = self.lock();
            if let Some((_, told)) = kept.told.as_ref().filter(|(count, _)| *count == kept.count) {
                return told.clone();
            }
            (kept.count, kept.lines.iter().cloned().collect::<Vec<_>>())
        };
        let heads: Vec<String> =
            lines.iter().map(|line| excerpt(&plain(&line[..line.len().min(4 * HEAD)]), HEAD)).collect();
        let whole = |index: usize| lines.get(index).map(|line| excerpt(&plain(line), LINE)).unwrap_or_default();
        let told = telling::choose(&heads).map(|telling| telling.of(whole).chars().take(LINE).collect::<String>());
        self.lock().told = Some((count, told.clone()));
        told
    }

    /// Whether a package runner (such as npx) reported the failure, so that the program itself never ran.
    pub(crate) fn is_of_a_package(&self) -> bool {
        self.cause().is_some_and(|cause| telling::is_of_a_package(&cause))
    }

    /// Formats one line for people. It is truncated last: half a secret would not be recognized.
    pub(super) fn line(&self, line: &[u8]) -> String {
        let mut line = self.shown(line, LINE);
        if let Some((end, _)) = line.char_indices().nth(WIDTH) {
            line.truncate(end);
            line.push('…');
        }
        line
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> usize {
        self.lock().lines.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lock().lines.iter().map(|line| line.len()).sum()
    }

    fn push(&self, line: &[u8]) {
        let mut kept = self.lock();
        (kept.open, kept.count) = (None, kept.count.wrapping_add(1));
        if kept.lines.len() == LINES {
            kept.lines.pop_front();
        }
        let line: Arc<[u8]> = line.into();
        kept.lines.push_back(line.clone());
        drop(kept);
        if let Some(announcer) = &self.announcer {
            announcer.wrote(&line);
        }
    }

    /// Keeps an unfinished line.
    fn push_open(&self, line: &[u8]) {
        self.lock().open = Some(line.into());
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

impl Kept {
    fn newest_first(&self) -> impl Iterator<Item = &[u8]> {
        self.open.iter().chain(self.lines.iter().rev()).map(|line| &**line)
    }
}

impl fmt::Debug for StderrTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StderrTail({} lines)", self.lock().lines.len())
    }
}

/// Reads standard error to its end: into the tail, and, if there is a `server`, into the log under its name. Unread
/// output would block the child.
pub(super) async fn drain(mut stderr: impl AsyncRead + Unpin, tail: StderrTail, server: Option<Label>) {
    let mut buffer = [0u8; 4096];
    let mut turn = Turn::default();
    let mut reader = Reader { line: Vec::new(), is_told: false, tail, server, second: (Instant::now(), 0) };
    loop {
        let count = if reader.line.trim_ascii().is_empty() || reader.is_told {
            stderr.read(&mut buffer).await
        } else {
            match timeout(STILL, stderr.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => {
                    reader.pause();
                    continue;
                }
            }
        };
        let Ok(count @ 1..) = count else { break };
        turn.bytes(count);
        for part in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
            reader.take(part);
            if part.ends_with(b"\n") {
                turn.message();
                reader.end();
                turn.pass().await;
            }
        }
        turn.pass().await;
    }
    reader.end();
}

/// The line being read.
struct Reader {
    line: Vec<u8>,
    /// Whether the log already has the beginning of the line.
    is_told: bool,
    tail: StderrTail,
    server: Option<Label>,
    /// The start of the current second, and the lines counted in it.
    second: (Instant, u32),
}

impl Reader {
    fn take(&mut self, part: &[u8]) {
        let room = LINE - self.line.len().min(LINE);
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        if self.is_told && !part.ends_with(b"\n") {
            self.tail.push_open(&self.line);
        }
    }

    /// Handles silence in the middle of a line.
    fn pause(&mut self) {
        self.is_told = true;
        self.log();
        self.tail.push_open(&self.line);
    }

    /// Handles the end of a line.
    fn end(&mut self) {
        if !self.line.trim_ascii().is_empty() {
            self.log();
            self.tail.push(&self.line);
        }
        self.line.clear();
        self.is_told = false;
    }

    fn log(&mut self) {
        if self.second.0.elapsed() >= Duration::from_secs(1) {
            self.second = (Instant::now(), 0);
        }
        self.second.1 = self.second.1.saturating_add(1);
        if let Some(server) = self.server.as_deref().filter(|_| self.second.1 <= LINES_PER_SECOND) {
            let text = self.tail.shown(&self.line, LINE);
            if !text.is_empty() {
                tracing::info!(target: "mcp_host::stderr", server, "{text}");
                if let Some(announcer) = &self.tail.announcer {
                    announcer.stderr(&text);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::redact::Learned;

    /// Drains `said` and returns how often other tasks ran meanwhile.
    async fn turns(said: &[u8], tail: &StderrTail) -> usize {
        let mut turns = 0;
        let others = std::future::poll_fn(|_| {
            turns += 1;
            std::task::Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            () = drain(said, tail.clone(), Some("it".into())) => {}
            () = others => {}
        }
        turns
    }

    #[tokio::test]
    async fn h5_a_flood_on_standard_error_leaves_the_others_their_turn() {
        let tail = StderrTail::default();
        // Everything is available at once: yields by bytes, and by lines.
        assert!(turns(&vec![b'x'; 1 << 20], &tail).await >= 30);
        assert!(turns("x\n".repeat(1 << 16).as_bytes(), &tail).await >= 1000);
        assert!(turns("://".repeat(2730).as_bytes().repeat(100).as_slice(), &tail).await >= 20);
        assert!(turns(b"x\n", &tail).await == 0);
    }

    #[tokio::test]
    async fn h97_the_last_words_are_shown_without_what_is_secret_by_then() {
        let (learned, mut knows) = (Learned::default(), Scrubber::default());
        knows.know("correct horse");
        knows.follow(&learned);
        let tail = StderrTail::of(Arc::new(knows));
        // Most of it exceeds the rate.
        let said = "it was correct horse and tr0ub4dor\n".repeat(1000) + "\u{3000}\n \t\n";
        drain(said.as_bytes(), tail.clone(), Some("it".into())).await;
        assert_eq!(tail.last().as_deref(), Some("it was *** and tr0ub4dor"));
        let mut more = Scrubber::default();
        more.know("tr0ub4dor");
        learned.learn(&more);
        assert_eq!(tail.last().as_deref(), Some("it was *** and ***"));
        assert_eq!(tail.last_lines(), vec!["it was *** and ***"; SHOWN]);
        assert_eq!(tail.cause().as_deref(), Some("it was *** and ***"));
        assert!(!format!("{tail:?}").contains("tr0ub4dor"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_without_a_line_end_counts_once_it_is_still() {
        let (tail, (mut child, end)) = (StderrTail::default(), tokio::io::duplex(4096));
        let drained = drain(end, tail.clone(), None);
        let said = async {
            child.write_all(b"error: no key is set\nPlease enter ").await.unwrap();
            tokio::time::sleep(STILL / 2).await;
            assert_eq!(tail.last().as_deref(), Some("error: no key is set"), "it may go on at once");
            child.write_all(b"your API key: ").await.unwrap();
            tokio::time::sleep(STILL * 2).await;
            assert_eq!(tail.cause().as_deref(), Some("Please enter your API key:"));
            assert_eq!(tail.last_lines(), ["error: no key is set", "Please enter your API key:"]);
            // What follows belongs to the same line.
            child.write_all(b"(or none)").await.unwrap();
            tokio::time::sleep(STILL * 2).await;
            child.write_all(b" \nthanks\n").await.unwrap();
            drop(child);
        };
        tokio::join!(drained, said);
        assert_eq!(tail.last_lines(), ["error: no key is set", "Please enter your API key: (or none)", "thanks"]);
        assert_eq!(tail.cause().as_deref(), Some("error: no key is set"));
    }

    #[tokio::test]
    async fn a_cause_is_weighed_by_the_heads_of_lines_and_once() {
        let tail = StderrTail::default();
        let long = format!("{} error: no such file\n", "x".repeat(4 * HEAD));
        drain((long + "hello\n").as_bytes(), tail.clone(), None).await;
        assert_eq!(tail.cause().as_deref(), Some("hello"), "what stands so far behind is not weighed");
        assert_eq!(tail.lock().told, Some((2, Some("hello".to_owned()))));
        tail.lock().told = Some((2, Some("kept".to_owned())));
        assert_eq!(tail.cause().as_deref(), Some("kept"), "it is not weighed again");
        drain(b"error: no key is set\n".as_slice(), tail.clone(), None).await;
        assert_eq!(tail.cause().as_deref(), Some("error: no key is set"), "the next line counts");
    }

    #[tokio::test]
    async fn what_people_see_is_twenty_plain_lines_that_are_cut() {
        let tail = StderrTail::default();
        let said = "first\n".to_owned() + &"\u{1b}[31mx\u{1b}[0m\x07\n".repeat(19) + &"y".repeat(WIDTH + 1) + "\n\n";
        drain(said.as_bytes(), tail.clone(), None).await;
        let lines = tail.last_lines();
        assert_eq!(lines.len(), SHOWN);
        assert_eq!(lines[0], "x\\u{7}");
        assert_eq!(lines[19], "y".repeat(WIDTH) + "…");
    }
}
