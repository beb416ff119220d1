//! The two output streams: stdout is for data, stderr for messages to people. Nothing else in the program prints.

use std::io::{self, IsTerminal as _, Write as _};

use clap::builder::StyledStr;
use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};
use mcp_host::protocol::Raw;
use serde::Serialize;

use crate::hidden;
use crate::paint::{Paint, When};
use crate::table::Table;
use crate::text;

/// Where a command writes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Whether data is for a machine, and so in JSON.
    pub(crate) json: bool,
    quiet: bool,
    /// The colors of stdout.
    paint: Paint,
    /// The colors of stderr.
    talk_paint: Paint,
    bars: MultiProgress,
}

/// Hides all progress bars until it is dropped.
#[derive(Debug)]
pub(crate) struct Still(Output);

impl Drop for Still {
    fn drop(&mut self) {
        self.0.bars.set_draw_target(target(self.0.quiet));
    }
}

/// Returns where progress bars are drawn: on stderr, and nowhere if that is no terminal.
fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, color: When) -> Self {
        // JSON has no colors, whatever the flags say.
        let paint = if json { Paint::default() } else { Paint::of(color, &Term::stdout()) };
        let talk_paint = Paint::of(color, &Term::stderr());
        Self { json, quiet, paint, talk_paint, bars: MultiProgress::with_draw_target(target(quiet)) }
    }

    /// Returns the colors of data. Text must be escaped before it is painted.
    pub(crate) fn paint(&self) -> Paint {
        self.paint
    }

    /// Returns the number of columns of stdout, if it is a terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        Term::stdout().size_checked().map(|(_, columns)| usize::from(columns))
    }

    /// Draws a table as lines for stdout, without the secrets in the config.
    pub(crate) fn drawn(&self, mut table: Table) -> Vec<String> {
        table.scrub(hidden::known);
        table.draw(self.width(), self.paint)
    }

    /// Writes a table, as wide as the terminal.
    pub(crate) fn table(&self, table: Table) -> io::Result<()> {
        self.lines(self.drawn(table))
    }

    /// Writes lines of data, without the secrets in the config. Foreign text must already be escaped.
    pub(crate) fn lines<I: IntoIterator<Item: AsRef<str>>>(&self, lines: I) -> io::Result<()> {
        self.as_it_is(lines.into_iter().map(|line| hidden::known(line.as_ref()).into_owned()))
    }

    /// Writes lines of an answer, with any secrets in it: they belong to the user.
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

    /// Reports whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Replaces the terminal's content with these lines; without a terminal, appends them.
    pub(crate) fn screen(&self, lines: &[String]) -> io::Result<()> {
        if self.is_terminal() {
            Term::stdout().clear_screen()?;
        }
        self.lines(lines)
    }

    /// Writes one line of data. Foreign text must already be escaped.
    pub(crate) fn line(&self, line: &str) -> io::Result<()> {
        self.lines([line])
    }

    /// Writes a page of help.
    pub(crate) fn page_of_help(&self, text: &StyledStr) -> io::Result<()> {
        let text = if self.paint.on { text.ansi().to_string() } else { text.to_string() };
        self.line(text.trim_end())
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn value<T: Serialize + ?Sized>(&self, value: &T) -> io::Result<()> {
        self.line(&text::json(&serde_json::to_string(value)?))
    }

    /// Writes a server's answer: unchanged for a machine, else as `human` formats it.
    pub(crate) fn answer(&self, result: &Raw, human: impl FnOnce(&Raw) -> Vec<String>) -> io::Result<()> {
        if self.json { self.as_it_is([text::json(result.as_str())]) } else { self.as_it_is(human(result)) }
    }

    /// Prints a message to stderr, even with `--quiet`. Escapes it and removes secrets.
    pub(crate) fn talk(&self, message: &str) {
        let message = self.talk_paint.sentence(&text::line(&hidden::all(message)));
        self.above_bars(|| {
            // If stderr is gone, the error cannot be reported.
            let _ = writeln!(io::stderr().lock(), "{message}");
        });
    }

    /// Prints a page that the user is to open, with its whole query.
    pub(crate) fn page(&self, page: &url::Url) {
        self.whole(page.as_str());
    }

    /// Prints a message that the user needs whole, though it may look like a credential. Escapes it.
    pub(crate) fn whole(&self, message: &str) {
        let message = hidden::known(message);
        self.above_bars(|| {
            let _ = writeln!(io::stderr().lock(), "{}", text::line(&message));
        });
    }

    /// Prints a message that `--quiet` turns off. Escapes it.
    pub(crate) fn remark(&self, message: &str) {
        if !self.quiet {
            self.talk(message);
        }
    }

    /// Prints a question on stderr and leaves the cursor behind it. Escapes it.
    pub(crate) fn ask(&self, question: &str) {
        self.above_bars(|| {
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "{} ", text::line(question));
            let _ = stderr.flush();
        });
    }

    /// Prints the last message of a panicking thread, whatever else it was about to write.
    pub(crate) fn last_words(message: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", text::line(&hidden::all(message)));
    }

    /// Writes bytes to stderr unchanged: log records, which their writer escapes.
    pub(crate) fn log(&self, record: &[u8]) {
        self.above_bars(|| drop(io::stderr().lock().write_all(record)));
    }

    /// Shows a progress bar under everything else.
    pub(crate) fn bar(&self, bar: ProgressBar) -> ProgressBar {
        self.bars.add(bar)
    }

    /// Hides the bars until the result is dropped.
    pub(crate) fn still(&self) -> Still {
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
        Still(self.clone())
    }

    /// Reports whether bars are visible.
    pub(crate) fn live(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Reports whether only data and errors are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Reports whether there is a person to ask.
    pub(crate) fn interactive(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Runs `write` while no bar is on the screen.
    pub(crate) fn above_bars<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }
}
