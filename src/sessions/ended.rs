//! Marks of the sessions that ended for good: by DELETE, because their client is no longer admitted, or because it did
//! not read. Their ids can still be decrypted, so the marks are needed to refuse them.
//!
//! The last [`MOST`] marks are kept, in memory and in a file of lines, which is appended to in the background, at most
//! once a second. Marks serve the protocol, not security: a client that can use the id of an ended session can open a
//! new session just as well. So the oldest marks may be forgotten, and the file is not synced: a mark is lost if the
//! machine loses power before it is written.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::keep;
use crate::lock::lock;

/// Identifies a session, whatever its principal: the first random bytes of its id.
pub(crate) type Serial = u64;

/// The marks of all doors of a host.
pub(super) struct Marks {
    path: Option<PathBuf>,
    state: Mutex<State>,
    tasks: TaskTracker,
    /// Cancelled when the host shuts down: from then on, marks are written without a delay.
    hurry: CancellationToken,
}

#[derive(Default)]
struct State {
    ended: HashSet<Serial>,
    /// The same sessions, in the order in which they ended.
    order: VecDeque<Serial>,
    /// Lines that are not in the file yet.
    unwritten: String,
    /// Whether a writer is running. It ends once there are no more lines.
    is_written: bool,
    /// How many lines the file has, as far as this process knows.
    lines: usize,
}

/// How many marks are kept.
const MOST: usize = 1 << 16;
/// The least time between two writes.
const APART: Duration = Duration::from_secs(1);
/// The first line of the file.
const HEAD: &str = "mcp-host ended sessions 1\n";

impl Marks {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        let path = folder.map(|folder| folder.join("ended-sessions"));
        Self { path, state: Mutex::default(), tasks: TaskTracker::new(), hurry: CancellationToken::new() }
    }

    pub(super) fn has(&self, serial: Serial) -> bool {
        self.state().ended.contains(&serial)
    }

    /// Adds a mark. Writes it at once if there is no async runtime.
    pub(super) fn add(marks: &Arc<Self>, serial: Serial, began: u64, oldest: u64) {
        {
            let mut state = marks.state();
            if !state.insert(serial) {
                return;
            }
            if marks.path.is_none() {
                return;
            }
            state.unwritten += &line(serial, began);
            if std::mem::replace(&mut state.is_written, true) {
                return;
            }
        }
        let marks = Arc::clone(marks);
        let tasks = marks.tasks.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(tasks.spawn_on(marks.write_all(oldest), &runtime)),
            Err(_) => while marks.write(oldest) {},
        }
    }

    async fn write_all(self: Arc<Self>, oldest: u64) {
        loop {
            let marks = Arc::clone(&self);
            if !keep::done(move || marks.write(oldest)).await {
                return;
            }
            let _ = tokio::time::timeout(APART, self.hurry.cancelled()).await;
        }
    }

    /// Reads the marks of earlier processes. Blocks.
    pub(super) fn read(&self, oldest: u64) {
        let Some(path) = &self.path else { return };
        match fs::read_to_string(path) {
            Ok(text) => {
                let mut state = self.state();
                state.lines = text.lines().count();
                for (serial, _) in marks_in(&text).filter(|(_, began)| *began >= oldest) {
                    state.insert(serial);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!("{} cannot be read: {error}", path.display()),
        }
    }

    pub(super) async fn written(&self) {
        self.hurry.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Writes the lines that are waiting. Returns false if there are none, and the writer ends. Blocks.
    fn write(&self, oldest: u64) -> bool {
        let (lines, count) = {
            let mut state = self.state();
            let lines = std::mem::take(&mut state.unwritten);
            state.is_written = !lines.is_empty();
            state.lines += lines.lines().count();
            (lines, state.lines)
        };
        let Some(path) = self.path.as_ref().filter(|_| !lines.is_empty()) else { return false };
        match append(path, &lines, (count > 2 * MOST).then_some(oldest)) {
            Ok(Some(count)) => self.state().lines = count,
            Ok(None) => {}
            Err(error) => tracing::warn!("{} cannot be written: {error}", path.display()),
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Adds a serial. Returns false if it was marked before.
    fn insert(&mut self, serial: Serial) -> bool {
        if !self.ended.insert(serial) {
            return false;
        }
        self.order.push_back(serial);
        while self.order.len() > MOST {
            if let Some(first) = self.order.pop_front() {
                self.ended.remove(&first);
            }
        }
        true
    }
}

fn line(serial: Serial, began: u64) -> String {
    format!("{serial:016x} {began:x}\n")
}

/// Returns the marks in a text. Skips an incomplete line that a killed process has left.
fn marks_in(text: &str) -> impl DoubleEndedIterator<Item = (Serial, u64)> {
    text.lines().filter_map(|line| {
        let (serial, began) = line.split_once(' ').filter(|(serial, _)| serial.len() == 16)?;
        Some((u64::from_str_radix(serial, 16).ok()?, u64::from_str_radix(began, 16).ok()?))
    })
}

/// Appends lines to the file. If `oldest` is given, also removes all but the last marks of sessions that began since
/// then, and returns the number of lines. Blocks.
fn append(path: &Path, lines: &str, oldest: Option<u64>) -> io::Result<Option<usize>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    keep::make_folder(folder)?;
    let _held = keep::lock(&path.with_extension("lock"), keep::PATIENCE)?;
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    keep::private(&mut options);
    let mut file = options.open(path)?;
    let is_new = file.metadata()?.len() == 0;
    file.write_all(if is_new { format!("{HEAD}{lines}") } else { lines.to_owned() }.as_bytes())?;
    let Some(oldest) = oldest else { return Ok(None) };
    let text = fs::read_to_string(path)?;
    let kept: Vec<_> = marks_in(&text).filter(|(_, began)| *began >= oldest).collect();
    let kept = &kept[kept.len().saturating_sub(MOST)..];
    let text: String =
        std::iter::once(HEAD.to_owned()).chain(kept.iter().map(|(serial, began)| line(*serial, *began))).collect();
    keep::replace(path, text.as_bytes())?;
    Ok(Some(1 + kept.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_mark_outlives_the_process_while_the_id_would() {
        let folder = tempfile::tempdir().unwrap();
        let marks = || Arc::new(Marks::new(Some(folder.path())));
        let first = marks();
        for (serial, began) in [(1, 100), (2, 200), (1, 100)] {
            Marks::add(&first, serial, began, 0);
        }
        first.written().await;
        let path = folder.path().join("ended-sessions");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "mcp-host ended sessions 1\n0000000000000001 64\n0000000000000002 c8\n");
        // A process was killed while it wrote.
        fs::write(&path, text + "00000000000000").unwrap();
        for (oldest, has) in [(0, [true, true, false]), (100, [true, true, false]), (101, [false, true, false])] {
            let next = marks();
            next.read(oldest);
            assert_eq!([1, 2, 3].map(|serial| next.has(serial)), has, "{oldest}");
        }
        let next = marks();
        Marks::add(&next, 3, 300, 0);
        Marks::add(&next, 4, 400, 0);
        next.written().await;
        let last = marks();
        last.read(0);
        // The line after the broken one is lost with it, and no other.
        assert_eq!([1, 2, 4].map(|serial| last.has(serial)), [true; 3]);
    }

    #[test]
    fn the_last_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let marks = Arc::new(Marks::new(Some(folder.path())));
        let path = folder.path().join("ended-sessions");
        fs::write(&path, (0..2 * MOST as u64).map(|serial| line(serial, serial)).collect::<String>()).unwrap();
        marks.read(0);
        assert!(!marks.has(0) && marks.has(2 * MOST as u64 - 1));
        let more = 2 * MOST as u64;
        Marks::add(&marks, more, more, more - 10);
        let kept: Vec<_> = marks_in(&fs::read_to_string(&path).unwrap()).map(|(serial, _)| serial).collect();
        assert_eq!(kept, (more - 10..=more).collect::<Vec<_>>());
        let state = marks.state();
        assert_eq!((state.ended.len(), state.order.len()), (MOST, MOST));
    }

    #[tokio::test]
    async fn without_a_folder_marks_last_as_long_as_the_process() {
        let marks = Arc::new(Marks::new(None));
        Marks::add(&marks, 7, 1, 0);
        marks.written().await;
        assert!(marks.has(7) && !marks.has(8));
    }
}
