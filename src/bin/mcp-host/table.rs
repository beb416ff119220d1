//! Tables for people: at most as wide as the terminal, and uncut without a terminal.
//!
//! Each column says how it gives way when there is no room: names stay as they are, descriptions are cut, and remedies
//! wrap or move under their row, but are never cut. If even that does not fit, each row becomes a block of lines.

use std::borrow::Cow;

use crate::paint::{Paint, Tone};
use crate::text;

/// How a column gives way in a table that is too wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Stays,
    Cuts,
    Wraps,
}

/// One column: its heading, and how it gives way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    head: &'static str,
    fit: Fit,
}

impl Column {
    /// Creates a column that is never changed: names, states, numbers.
    pub(crate) const fn stays(head: &'static str) -> Self {
        Self { head, fit: Fit::Stays }
    }

    /// Creates a column that may be cut, before any other gives way: descriptions.
    pub(crate) const fn cuts(head: &'static str) -> Self {
        Self { head, fit: Fit::Cuts }
    }

    /// Creates a column that is never cut, but may take several lines: causes, remedies.
    pub(crate) const fn wraps(head: &'static str) -> Self {
        Self { head, fit: Fit::Wraps }
    }
}

/// One cell: text on one line, and its color.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text::line(text).into_owned(), tone: Tone::Plain }
    }

    /// Creates a cell with a server's state, in its color.
    pub(crate) fn state(state: &str) -> Self {
        Self::new(state).tone(Tone::of_state(state))
    }

    #[must_use]
    pub(crate) fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() || self.text == "-"
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<Cow<'_, str>> for Cell {
    fn from(text: Cow<'_, str>) -> Self {
        Self::new(&text)
    }
}

/// Rows under headings. Cells are escaped.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Missing cells stay empty.
    pub(crate) fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let mut cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), Cell::default());
        self.rows.push(cells);
    }

    /// Removes secrets from every cell. This must happen before anything is cut, because a secret that is cut in half
    /// is no longer found.
    pub(super) fn scrub(&mut self, scrub: impl Fn(&str) -> Cow<'_, str>) {
        for cell in self.rows.iter_mut().flatten() {
            if let Cow::Owned(text) = scrub(&cell.text) {
                cell.text = text;
            }
        }
    }

    /// Draws the table as lines of at most `limit` columns, if there is a limit.
    pub(crate) fn draw(&self, limit: Option<usize>, paint: Paint) -> Vec<String> {
        let natural: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let Some(limit) = limit else { return self.lines(&natural, None, paint) };
        if let Some(widths) = self.fitted(natural.clone(), limit) {
            return self.lines(&widths, None, paint);
        }
        // The last column that wraps goes under its rows, so that the rest has room.
        let under = self.columns.iter().rposition(|column| column.fit == Fit::Wraps);
        if let Some(under) = under.filter(|&under| under > 0) {
            let mut rest = natural;
            rest[under] = 0;
            if let Some(widths) = self.fitted(rest, limit) {
                return self.lines(&widths, Some((under, limit)), paint);
            }
        }
        self.blocks(limit, paint)
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| text::width(&cell.text));
        cells.chain([text::width(self.columns[column].head)]).max().unwrap_or(0)
    }

    /// Returns column widths that fit into a limit, if possible. A column of width 0 is not shown.
    fn fitted(&self, mut widths: Vec<usize>, limit: usize) -> Option<Vec<usize>> {
        for (fit, least) in [(Fit::Cuts, CUT_TO), (Fit::Wraps, WRAP_TO)] {
            let may = |column: usize, width: usize| {
                self.columns[column].fit == fit && width > least.max(text::width(self.columns[column].head))
            };
            // Widths are capped at the limit first, so that few steps are left.
            for (column, width) in widths.iter_mut().enumerate() {
                *width = if may(column, *width) { (*width).min(limit) } else { *width };
            }
            while total(&widths) > limit {
                let widest = widths.iter().enumerate().filter(|(column, width)| may(*column, **width));
                let Some((column, _)) = widest.max_by_key(|(_, width)| **width) else { break };
                widths[column] -= 1;
            }
        }
        (total(&widths) <= limit).then_some(widths)
    }

    /// Draws the rows under their headings. The column in `under` goes below each row, in lines of at most that width.
    fn lines(&self, widths: &[usize], under: Option<(usize, usize)>, paint: Paint) -> Vec<String> {
        let shown: Vec<(usize, usize)> = widths
            .iter()
            .copied()
            .enumerate()
            .filter(|(column, _)| under.is_none_or(|(at, _)| at != *column))
            .collect();
        let heads: Vec<(String, Tone)> =
            shown.iter().map(|(column, _)| (self.columns[*column].head.to_owned(), Tone::Head)).collect();
        let columns: Vec<usize> = shown.iter().map(|(_, width)| *width).collect();
        let mut lines = vec![joined(&heads, &columns, paint)];
        for row in &self.rows {
            let cells: Vec<(Vec<String>, Tone)> = shown
                .iter()
                .map(|(column, width)| (self.columns[*column].fitted(&row[*column].text, *width), row[*column].tone))
                .collect();
            let height = cells.iter().map(|(parts, _)| parts.len()).max().unwrap_or(1);
            for at in 0..height {
                let parts: Vec<(String, Tone)> =
                    cells.iter().map(|(parts, tone)| (parts.get(at).cloned().unwrap_or_default(), *tone)).collect();
                lines.push(joined(&parts, &columns, paint));
            }
            if let Some((column, limit)) = under
                && !row[column].is_empty()
            {
                lines.extend(self.labeled(column, &row[column], true, limit, paint));
            }
        }
        lines
    }

    /// Draws each row as a block: its first cell, and the others under it.
    fn blocks(&self, limit: usize, paint: Paint) -> Vec<String> {
        // A second column that is the last one needs no label.
        let label = self.columns.len() > 2;
        let mut lines = Vec::new();
        for row in &self.rows {
            if label && !lines.is_empty() {
                lines.push(String::new());
            }
            let mut cells = row.iter().enumerate();
            if let Some((_, first)) = cells.next() {
                lines.push(paint.tone(Tone::Head, &first.text));
            }
            for (column, cell) in cells.filter(|(_, cell)| !cell.is_empty()) {
                lines.extend(self.labeled(column, cell, label, limit, paint));
            }
        }
        lines
    }

    /// Draws a cell on lines of its own.
    fn labeled(&self, column: usize, cell: &Cell, label: bool, limit: usize, paint: Paint) -> Vec<String> {
        let Column { head, fit } = self.columns[column];
        let label = if label { format!("{}: ", head.to_lowercase()) } else { String::new() };
        let room = limit.saturating_sub(2 * INDENT).max(LEAST);
        let text = format!("{label}{}", cell.text);
        let parts = match fit {
            Fit::Stays => vec![text],
            Fit::Cuts => vec![text::cut(&text, room)],
            Fit::Wraps => text::wrap(&text, room),
        };
        let line = |(at, part): (usize, String)| {
            let indent = " ".repeat(if at == 0 { INDENT } else { 2 * INDENT });
            let said = part.strip_prefix(label.as_str()).filter(|_| at == 0);
            let (label, said) = said.map_or(("", part.as_str()), |said| (label.as_str(), said));
            format!("{indent}{label}{}", paint.tone(cell.tone, said))
        };
        parts.into_iter().enumerate().map(line).collect()
    }
}

impl Column {
    /// Returns the lines of a cell that has that width.
    fn fitted(self, text: &str, width: usize) -> Vec<String> {
        match self.fit {
            Fit::Stays => vec![text.to_owned()],
            Fit::Cuts => vec![text::cut(text, width)],
            Fit::Wraps => text::wrap(text, width),
        }
    }
}

/// Joins cells into a line, padded, without trailing blanks.
fn joined(cells: &[(String, Tone)], widths: &[usize], paint: Paint) -> String {
    let last = cells.iter().rposition(|(text, _)| !text.is_empty());
    let mut line = String::new();
    for (at, ((text, tone), width)) in cells.iter().zip(widths).enumerate() {
        line.push_str(&paint.tone(*tone, text));
        match last {
            Some(last) if at < last => {
                let pad = width.saturating_sub(text::width(text)) + GAP;
                line.extend(std::iter::repeat_n(' ', pad));
            }
            _ => break,
        }
    }
    line
}

/// Returns the total width of the columns and of the gaps between them.
fn total(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|width| **width > 0).count();
    widths.iter().sum::<usize>() + GAP * shown.saturating_sub(1)
}

/// Blanks between columns.
const GAP: usize = 2;
const INDENT: usize = 2;
/// The narrowest useful description, in columns.
const CUT_TO: usize = 24;
/// The narrowest readable cause, in columns.
const WRAP_TO: usize = 32;
/// The shortest line, however narrow the terminal is.
const LEAST: usize = 16;

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const OFF: Paint = Paint { on: false };

    fn drawn(table: &Table, limit: Option<usize>) -> String {
        let lines = table.draw(limit, OFF);
        if let Some(limit) = limit {
            for line in lines.iter().filter(|line| text::width(line) > limit) {
                assert!(!line.contains("  "), "only a lonely name may be wider than {limit}: {line}");
            }
        }
        lines.join("\n")
    }

    fn tools() -> Table {
        let mut table = Table::new(&[Column::stays("TOOL"), Column::cuts("DESCRIPTION")]);
        table.row(["clock__now", "Tells the time in UTC."]);
        table.row([
            "github__create_pull_request_review",
            "Creates a review on a pull request, with comments on lines of its diff, and submits it or keeps it pending until it is submitted.",
        ]);
        table.row([
            "files__搜索",
            "在文件中搜索文本,并返回所有匹配的行及其行号,适用于大型代码库和日志文件的快速检索与分析。",
        ]);
        table.row(["fun__wave", "Waves 👋🏽 with a family 👨‍👩‍👧‍👦 and a ❤️, which are one character each on a terminal, however many code points they have."]);
        table
    }

    fn status() -> Table {
        let mut table = Table::new(&[
            Column::stays("SERVER"),
            Column::stays("STATE"),
            Column::stays("SINCE"),
            Column::stays("REVISION"),
            Column::stays("TRANSPORT"),
            Column::stays("LEASES"),
            Column::stays("CALLS"),
            Column::wraps("LAST ERROR"),
        ]);
        let row = |cells: [&str; 8]| cells.map(Cell::from).to_vec();
        table.row(row(["files", "connected", "2 h 5 min", "2025-11-25", "stdio", "1", "17", ""]));
        table.row(row([
            "github",
            "unauthorized",
            "3 min",
            "-",
            "http",
            "0",
            "0",
            "https://api.example.com/mcp/ wants a token: it answered 401; sign in with: mcp-host login github",
        ]));
        table
    }

    #[test]
    fn descriptions_are_cut_to_the_terminal() {
        assert_snapshot!(drawn(&tools(), Some(40)), @"
        clock__now
          Tells the time in UTC.
        github__create_pull_request_review
          Creates a review on a pull request,…
        files__搜索
          在文件中搜索文本,并返回所有匹配的行…
        fun__wave
          Waves 👋🏽 with a family 👨‍👩‍👧‍👦 and a ❤️,…
        ");
        assert_snapshot!(drawn(&tools(), Some(80)), @"
        TOOL                                DESCRIPTION
        clock__now                          Tells the time in UTC.
        github__create_pull_request_review  Creates a review on a pull request, with co…
        files__搜索                         在文件中搜索文本,并返回所有匹配的行及其行号…
        fun__wave                           Waves 👋🏽 with a family 👨‍👩‍👧‍👦 and a ❤️, which a…
        ");
        assert_snapshot!(drawn(&tools(), Some(200)), @"
        TOOL                                DESCRIPTION
        clock__now                          Tells the time in UTC.
        github__create_pull_request_review  Creates a review on a pull request, with comments on lines of its diff, and submits it or keeps it pending until it is submitted.
        files__搜索                         在文件中搜索文本,并返回所有匹配的行及其行号,适用于大型代码库和日志文件的快速检索与分析。
        fun__wave                           Waves 👋🏽 with a family 👨‍👩‍👧‍👦 and a ❤️, which are one character each on a terminal, however many code points they have.
        ");
        assert_snapshot!(drawn(&tools(), None), @"
        TOOL                                DESCRIPTION
        clock__now                          Tells the time in UTC.
        github__create_pull_request_review  Creates a review on a pull request, with comments on lines of its diff, and submits it or keeps it pending until it is submitted.
        files__搜索                         在文件中搜索文本,并返回所有匹配的行及其行号,适用于大型代码库和日志文件的快速检索与分析。
        fun__wave                           Waves 👋🏽 with a family 👨‍👩‍👧‍👦 and a ❤️, which are one character each on a terminal, however many code points they have.
        ");
    }

    #[test]
    fn remedies_are_never_cut() {
        assert_snapshot!(drawn(&status(), Some(40)), @"
        files
          state: connected
          since: 2 h 5 min
          revision: 2025-11-25
          transport: stdio
          leases: 1
          calls: 17

        github
          state: unauthorized
          since: 3 min
          transport: http
          leases: 0
          calls: 0
          last error:
            https://api.example.com/mcp/ wants a
            token: it answered 401; sign in
            with: mcp-host login github
        ");
        assert_snapshot!(drawn(&status(), Some(80)), @"
        SERVER  STATE         SINCE      REVISION    TRANSPORT  LEASES  CALLS
        files   connected     2 h 5 min  2025-11-25  stdio      1       17
        github  unauthorized  3 min      -           http       0       0
          last error: https://api.example.com/mcp/ wants a token: it answered 401;
            sign in with: mcp-host login github
        ");
        assert_snapshot!(drawn(&status(), Some(120)), @"
        SERVER  STATE         SINCE      REVISION    TRANSPORT  LEASES  CALLS  LAST ERROR
        files   connected     2 h 5 min  2025-11-25  stdio      1       17
        github  unauthorized  3 min      -           http       0       0      https://api.example.com/mcp/ wants a token: it
                                                                               answered 401; sign in with: mcp-host login github
        ");
        assert_snapshot!(drawn(&status(), Some(200)), @"
        SERVER  STATE         SINCE      REVISION    TRANSPORT  LEASES  CALLS  LAST ERROR
        files   connected     2 h 5 min  2025-11-25  stdio      1       17
        github  unauthorized  3 min      -           http       0       0      https://api.example.com/mcp/ wants a token: it answered 401; sign in with: mcp-host login github
        ");
        assert_snapshot!(drawn(&status(), None), @"
        SERVER  STATE         SINCE      REVISION    TRANSPORT  LEASES  CALLS  LAST ERROR
        files   connected     2 h 5 min  2025-11-25  stdio      1       17
        github  unauthorized  3 min      -           http       0       0      https://api.example.com/mcp/ wants a token: it answered 401; sign in with: mcp-host login github
        ");
    }

    #[test]
    fn colors_do_not_count_and_nothing_else_brings_any() {
        let mut table = Table::new(&[Column::stays("SERVER"), Column::stays("STATE"), Column::cuts("SAYS")]);
        table.row([Cell::new("a\u{1b}[31m"), Cell::state("failed"), Cell::new("")]);
        table.row([Cell::new("b"), Cell::state("idle"), Cell::new("x\ny")]);
        let plain = table.draw(Some(80), OFF);
        let painted = table.draw(Some(80), Paint { on: true });
        let stripped: Vec<_> = painted.iter().map(|line| console::strip_ansi_codes(line).into_owned()).collect();
        assert_eq!(plain, stripped);
        assert_snapshot!(painted.join("\n").replace('\u{1b}', "ESC"), @r"
        ESC[1mSERVERESC[0m       ESC[1mSTATEESC[0m   ESC[1mSAYSESC[0m
        a\u{1b}[31m  ESC[31mfailedESC[0m
        b            ESC[2midleESC[0m    x\ny
        ");
    }

    #[test]
    fn a_secret_is_gone_before_a_cell_is_cut() {
        let mut table = Table::new(&[Column::stays("TOOL"), Column::cuts("DESCRIPTION")]);
        table.row(["a__b", "correct horse battery staple correct horse battery staple correct horse"]);
        table.scrub(|text| text.replace("correct horse battery staple", "***").into());
        let lines = table.draw(Some(32), OFF);
        assert_eq!(lines[1], "a__b  *** *** correct horse");
    }
}
