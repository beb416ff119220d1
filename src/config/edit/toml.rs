//! Edits of TOML. A file is a list of statements: headers and pairs, each with its lines. An edit of a table changes
//! the statements that belong to it, wherever they are, and an edit inside a value is an edit in brackets.
//!
//! `toml_edit` would rewrite the whole file: it turns CRLF into LF, puts a new table between a table and its sub-table,
//! and removes the comment above the first table together with that table.

use std::collections::HashMap;
use std::ops::Range;

use super::flow::{self, Text};
use super::op::{Op, Path, Step};
use super::render::{self, Language, toml_key, toml_section};
use super::scan;
use super::splice::{Splice, Style, line_end, line_start};
use crate::config::syntax::Node;

/// A header, or a key with its value.
#[derive(Debug)]
struct Statement {
    /// Its lines, including the line ends.
    lines: Range<usize>,
    path: Path,
    /// For each step of the path, the range where this statement writes it.
    written: Vec<Option<Range<usize>>>,
    /// The range of the value, if this is a pair.
    value: Option<Range<usize>>,
}

/// Returns the replacements for a change.
pub(super) fn splices(text: &str, path: &[Step], op: &Op) -> Option<Vec<Splice>> {
    let style = Style::of(text);
    let file = File { text, style: &style, statements: statements(text)? };
    // Values in brackets that contain the changed value, or the object that gets a new member.
    let inside = |statement: &&Statement| {
        let is_within = path.starts_with(&statement.path);
        let is_target = statement.path.len() == path.len() && !matches!(op, Op::Insert { .. });
        statement.value.is_some() && is_within && !is_target
    };
    if let Some(statement) = file.statements.iter().find(inside) {
        let root = scan::value(text, statement.value.as_ref()?.start, Language::Toml)?;
        let flow = Text { text, language: Language::Toml, style: &style };
        return flow.splices(&root, &path[statement.path.len()..], op);
    }
    match op {
        Op::Insert { at, key, node, source, .. } => match source {
            Some(source) => file.put_back(path, *at, source),
            None if node.members().is_some() => file.section(path, key.as_deref(), node),
            None => file.pair(path, key.as_deref()?, node),
        },
        Op::Remove(_) => file.remove(path),
        Op::Rename(_, to) => {
            let place = |statement: &Statement| statement.written.get(path.len() - 1)?.clone();
            let below = file.statements.iter().filter(|statement| statement.path.starts_with(path));
            let splices: Vec<Splice> = below.filter_map(place).map(|at| Splice::replace(at, toml_key(to))).collect();
            (!splices.is_empty()).then_some(splices)
        }
        Op::Set(_, value) => {
            let statement = file.statements.iter().find(|statement| statement.path == path)?;
            let node = Node::new(Default::default(), value.clone());
            Some(vec![Splice::replace(statement.value.clone()?, Language::Toml.inline(&node))])
        }
    }
}

/// Returns the text of an item: its lines, if they are adjacent, or its range in a value.
pub(super) fn source(text: &str, path: &Path) -> Option<String> {
    let style = Style::of(text);
    let file = File { text, style: &style, statements: statements(text)? };
    let runs = file.runs(path);
    match runs.as_slice() {
        [run] => text.get(file.lines(run)).map(str::to_owned),
        [] => {
            let of_it = |statement: &&Statement| statement.value.is_some() && path.starts_with(&statement.path);
            let statement = file.statements.iter().find(of_it)?;
            let root = scan::value(text, statement.value.as_ref()?.start, Language::Toml)?;
            text.get(flow::place(&root, &path[statement.path.len()..])?).map(str::to_owned)
        }
        _ => None,
    }
}

struct File<'a> {
    text: &'a str,
    style: &'a Style,
    statements: Vec<Statement>,
}

impl File<'_> {
    /// Returns the statements of an item, grouped into adjacent ones.
    fn runs(&self, path: &[Step]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (at, _) in self.statements.iter().enumerate().filter(|(_, statement)| statement.path.starts_with(path)) {
            match runs.last_mut().filter(|run| run.end == at) {
                Some(run) => run.end = at + 1,
                None => runs.push(at..at + 1),
            }
        }
        runs
    }

    /// Returns the lines of some statements.
    fn lines(&self, run: &Range<usize>) -> Range<usize> {
        self.statements[run.start].lines.start..self.statements[run.end - 1].lines.end
    }

    fn remove(&self, path: &[Step]) -> Option<Vec<Splice>> {
        let (_, container) = path.split_last()?;
        let runs = self.runs(path);
        let stays = |statement: &Statement| statement.path.starts_with(container) && !statement.path.starts_with(path);
        // A table without statements would disappear. If no servers are left, their empty table stays.
        let mut left = match self.statements.iter().any(stays) || container.is_empty() {
            true => String::new(),
            false => {
                let keys = render::keys(container)?;
                format!(
                    "[{}]{}",
                    keys.iter().map(|key| toml_key(key)).collect::<Vec<_>>().join("."),
                    self.style.newline
                )
            }
        };
        let mut splices = Vec::new();
        for run in &runs {
            let Range { mut start, mut end } = self.lines(run);
            let is_section = self.statements[run.start].value.is_none();
            if is_section && left.is_empty() {
                let rest = &self.text[end..];
                let blank = blank_lines(rest);
                if blank == rest.len() {
                    start = back_over_blank_lines(self.text, start);
                } else {
                    end += blank;
                }
            }
            splices.push(Splice::replace(start..end, std::mem::take(&mut left)));
        }
        (!splices.is_empty()).then_some(splices)
    }

    /// Adds a new table after the last one of its container.
    fn section(&self, into: &[Step], key: Option<&str>, node: &Node) -> Option<Vec<Splice>> {
        let mut head = render::keys(into)?;
        head.extend(key.map(str::to_owned));
        let section = toml_section(&head, node, key.is_none(), self.style);
        Some(vec![self.placed(self.end(into), &section)])
    }

    /// Returns where a table may start after all statements of a container.
    fn end(&self, container: &[Step]) -> usize {
        let last = self.statements.iter().rposition(|statement| statement.path.starts_with(container));
        let Some(last) = last.filter(|_| !container.is_empty()) else { return self.text.len() };
        // Pairs that follow would become part of the new table.
        let rest = self.statements[last + 1..].iter().take_while(|statement| statement.value.is_some()).count();
        self.statements[last + rest].lines.end
    }

    /// Inserts a table at the start of a line, with a blank line between it and other tables.
    fn placed(&self, at: usize, section: &str) -> Splice {
        let newline = self.style.newline;
        let (before, after) = (&self.text[..at], &self.text[at..]);
        let mut with = String::new();
        if !before.is_empty() && !before.ends_with('\n') {
            with.push_str(newline);
        }
        let last = before.trim_end_matches(['\n', '\r']).len();
        if !before.trim().is_empty() && before[last..].matches('\n').count() < 2 {
            with.push_str(newline);
        }
        with.push_str(section);
        if !after.is_empty() && !after.starts_with(['\n', '\r']) {
            with.push_str(newline);
        }
        Splice::insert(at, with)
    }

    /// Adds a pair to a table, after its existing pairs.
    fn pair(&self, into: &[Step], key: &str, node: &Node) -> Option<Vec<Splice>> {
        let newline = self.style.newline;
        let is_direct = |statement: &&Statement| {
            statement.value.is_some() && statement.path.len() == into.len() + 1 && statement.path.starts_with(into)
        };
        let (at, head) = match self.statements.iter().rfind(is_direct) {
            Some(pair) => {
                // The keys before its last one, as the file writes them: `files.` of `files.command`.
                let last = pair.written.last()?.clone()?;
                let first = pair.written.iter().flatten().next()?;
                let start = line_start(self.text, first.start);
                let own = line_start(self.text, last.start);
                (pair.lines.end, self.text.get(start..last.start).filter(|_| start == own)?)
            }
            None => {
                let header = |statement: &&Statement| statement.value.is_none() && statement.path == into;
                (self.statements.iter().find(header)?.lines.end, "")
            }
        };
        let ahead = if self.text[..at].ends_with('\n') || at == 0 { "" } else { newline };
        let line = format!("{ahead}{head}{}{newline}", Language::Toml.member(key, node));
        Some(vec![Splice::insert(at, line)])
    }

    /// Restores lines that were removed.
    fn put_back(&self, into: &[Step], at: Option<usize>, source: &str) -> Option<Vec<Splice>> {
        let is_section = source.trim_start().starts_with('[');
        let mut names: Vec<&Step> = Vec::new();
        for step in self.statements.iter().filter(|s| s.path.starts_with(into)).filter_map(|s| s.path.get(into.len())) {
            if !names.contains(&step) {
                names.push(step);
            }
        }
        let next = at.and_then(|at| names.get(at).copied());
        let own = source.trim_end_matches(['\n', '\r']);
        let own = format!("{own}{}", self.style.newline);
        let Some(next) = next else {
            return is_section.then(|| vec![self.placed(self.end(into), &own)]);
        };
        let below =
            |statement: &&Statement| statement.path.starts_with(into) && statement.path.get(into.len()) == Some(next);
        let first = self.statements.iter().find(below)?;
        if is_section != first.value.is_none() {
            return None;
        }
        // The comment above a table belongs to it.
        let mut start = first.lines.start;
        while let Some(above) = start.checked_sub(1).map(|end| line_start(self.text, end)) {
            if !self.text[above..start].trim_start().starts_with('#') {
                break;
            }
            start = above;
        }
        let blank = if is_section { self.style.newline } else { "" };
        Some(vec![Splice::insert(start, format!("{own}{blank}"))])
    }
}

/// Returns the length in bytes of the blank lines at the start of a text.
fn blank_lines(text: &str) -> usize {
    let lines = text.split_inclusive('\n').take_while(|line| line.trim().is_empty());
    lines.map(str::len).sum()
}

fn back_over_blank_lines(text: &str, mut start: usize) -> usize {
    while let Some(above) = start.checked_sub(1).map(|end| line_start(text, end)) {
        if !text[above..start].trim().is_empty() {
            break;
        }
        start = above;
    }
    start
}

/// Splits a text into its statements.
fn statements(text: &str) -> Option<Vec<Statement>> {
    let mut found: Vec<Statement> = Vec::new();
    let mut header: (Path, usize) = (Path::new(), 0);
    let mut lists: HashMap<Path, usize> = HashMap::new();
    let mut at = flow::skip(text, 0, Language::Toml);
    while at < text.len() {
        let start = line_start(text, at);
        let (path, written, value, end) = if text[at..].starts_with('[') {
            let is_list = text[at..].starts_with("[[");
            let (keys, close) = keys(text, at + if is_list { 2 } else { 1 })?;
            let (path, written) = table(keys, is_list, &mut lists);
            header = (path.clone(), path.len());
            (path, written, None, close)
        } else {
            let (keys, sign) = keys(text, at)?;
            let from = sign + text[sign..].find('=')? + 1;
            let from = from + text[from..].len() - text[from..].trim_start_matches([' ', '\t']).len();
            let span = scan::value(text, from, Language::Toml)?;
            let mut path = header.0.clone();
            let mut written = vec![None; header.1];
            for (key, place) in keys {
                path.push(Step::Key(key));
                written.push(Some(place));
            }
            (path, written, Some(span.at.clone()), span.at.end)
        };
        let end = line_end(text, end);
        found.push(Statement { lines: start..end, path, written, value });
        at = flow::skip(text, end, Language::Toml);
    }
    Some(found)
}

/// Returns the path of the table that a header opens, and the range in the header for each step.
fn table(
    keys: Vec<(String, Range<usize>)>,
    is_list: bool,
    lists: &mut HashMap<Path, usize>,
) -> (Path, Vec<Option<Range<usize>>>) {
    let (mut path, mut written) = (Path::new(), Vec::new());
    let count = keys.len();
    for (number, (key, place)) in keys.into_iter().enumerate() {
        path.push(Step::Key(key));
        written.push(Some(place));
        let is_new = is_list && number + 1 == count;
        if is_new {
            *lists.entry(path.clone()).or_default() += 1;
        }
        if let Some(items) = lists.get(&path) {
            path.push(Step::Index(items - 1));
            written.push(None);
        }
    }
    (path, written)
}

type Keys = Vec<(String, Range<usize>)>;

/// Parses a dotted key, and returns where it ends.
fn keys(text: &str, mut at: usize) -> Option<(Keys, usize)> {
    let mut found = Keys::new();
    loop {
        at += super::splice::blanks(text, at);
        let end = match text[at..].chars().next()? {
            '"' | '\'' => scan::string(text, at, Language::Toml)?,
            _ => {
                let bare = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
                at + text[at..].find(|c| !bare(c))?
            }
        };
        found.push((scan::key_text(text.get(at..end)?, Language::Toml)?, at..end));
        at = end + super::splice::blanks(text, end);
        if !text[at..].starts_with('.') {
            return Some((found, at));
        }
        at += 1;
    }
}
