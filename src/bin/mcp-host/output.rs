//! The two ways out: stdout is data, stderr is talk. Nothing else in the program prints.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};
use mcp_host::protocol::Raw;
use serde::Serialize;

use crate::hidden;
use crate::text;

/// Where a command writes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Data is for a machine.
    pub(crate) json: bool,
    quiet: bool,
    bars: MultiProgress,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        // Bars draw on a terminal only; elsewhere this target hides them.
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        Self { json, quiet, bars: MultiProgress::with_draw_target(target) }
    }

    /// Writes lines of data, without the secrets of the config. What came from outside must be escaped already.
    pub(crate) fn lines<I: IntoIterator<Item: AsRef<str>>>(&self, lines: I) -> io::Result<()> {
        self.as_it_is(lines.into_iter().map(|line| hidden::known(line.as_ref()).into_owned()))
    }

    /// Writes lines that are the user's own: what a server answered.
    fn as_it_is<I: IntoIterator<Item: AsRef<str>>>(&self, lines: I) -> io::Result<()> {
        self.above_bars(|| {
            let mut stdout = io::BufWriter::new(io::stdout().lock());
            for line in lines {
                stdout.write_all(line.as_ref().as_bytes())?;
                stdout.write_all(b"\n")?;
            }
            stdout.flush()
        })
    }

    /// Writes one line of data. What came from outside must be escaped already.
    pub(crate) fn line(&self, line: &str) -> io::Result<()> {
        self.lines([line])
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn value<T: Serialize + ?Sized>(&self, value: &T) -> io::Result<()> {
        self.line(&text::json(&serde_json::to_string(value)?))
    }

    /// Writes what a server answered: as it came for a machine, else as `human` shows it.
    pub(crate) fn answer(&self, result: &Raw, human: impl FnOnce(&Raw) -> Vec<String>) -> io::Result<()> {
        if self.json { self.as_it_is([text::json(result.as_str())]) } else { self.as_it_is(human(result)) }
    }

    /// Says something that must be seen. Escapes it, and takes out what is secret.
    pub(crate) fn talk(&self, message: &str) {
        let message = hidden::all(message);
        self.above_bars(|| {
            // Nobody is left to tell that stderr is gone.
            let _ = writeln!(io::stderr().lock(), "{}", text::line(&message));
        });
    }

    /// A page that a person is to open: whole, with the query that makes it theirs.
    pub(crate) fn page(&self, page: &url::Url) {
        self.whole(page.as_str());
    }

    /// What a person is to have whole, though it may look like a credential. Escapes it.
    pub(crate) fn whole(&self, message: &str) {
        let message = hidden::known(message);
        self.above_bars(|| {
            let _ = writeln!(io::stderr().lock(), "{}", text::line(&message));
        });
    }

    /// Says something that `--quiet` turns off. Escapes it.
    pub(crate) fn remark(&self, message: &str) {
        if !self.quiet {
            self.talk(message);
        }
    }

    /// A question on stderr, the cursor left behind it. Escapes it.
    pub(crate) fn ask(&self, question: &str) {
        self.above_bars(|| {
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "{} ", text::line(question));
            let _ = stderr.flush();
        });
    }

    /// The last that a thread says, whatever else it was about to write.
    pub(crate) fn last_words(message: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", text::line(&hidden::all(message)));
    }

    /// Writes bytes to stderr as they are: for log records, which are escaped by their writer.
    pub(crate) fn log(&self, record: &[u8]) {
        self.above_bars(|| drop(io::stderr().lock().write_all(record)));
    }

    /// Shows a bar under everything else.
    pub(crate) fn bar(&self, bar: ProgressBar) -> ProgressBar {
        self.bars.add(bar)
    }

    /// Whether bars are seen at all.
    pub(crate) fn live(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Whether there is a person to ask.
    pub(crate) fn interactive(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Runs while no bar is on the screen.
    pub(crate) fn above_bars<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }
}
