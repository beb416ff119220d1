//! Edits of YAML. Blocks are found by their indentation; a value in brackets is edited as in the other syntaxes.
//!
//! The reader's parser does not state where values are, so this file maps the text itself. It does not edit what it
//! does not know (several documents, keys with `?`, an anchor before a key), and the proof catches anything that it
//! misreads.

use std::ops::Range;

use super::flow::{self, Span, Text};
use super::op::{Op, Path, Step};
use super::render::{self, Language, yaml_lines, yaml_text};
use super::scan;
use super::splice::{Splice, Style, begins_line, indent, line_end, line_start};
use crate::config::syntax::{Node, Value};

/// A value of a block.
#[derive(Debug)]
enum Found {
    /// A mapping or a sequence in block style.
    Block(Block),
    /// A value in brackets.
    Flow(Span),
    Scalar(Range<usize>),
    /// No value, which means null.
    Empty,
}

#[derive(Debug)]
struct Block {
    /// The column of its keys or dashes.
    column: usize,
    items: Vec<Item>,
}

/// A member of a mapping, or an item of a sequence.
#[derive(Debug)]
struct Item {
    /// The range from its key or dash to the end of its last line.
    at: Range<usize>,
    key: Option<(String, Range<usize>)>,
    /// The offset right after the colon or the dash.
    sign: usize,
    value: Found,
}

/// Returns the replacements for a change.
pub(super) fn splices(text: &str, path: &[Step], op: &Op) -> Option<Vec<Splice>> {
    let style = Style::of(text);
    let edit = Edit { text, style: &style, op };
    match document(text)? {
        Found::Empty if path.is_empty() => edit.insert_into_nothing(text.len(), ""),
        root => edit.below(&root, None, path),
    }
}

/// Returns the text of an item, with its indentation.
pub(super) fn source(text: &str, path: &Path) -> Option<String> {
    let mut found = &document(text)?;
    for (depth, step) in path.iter().enumerate() {
        let block = match found {
            Found::Block(block) => block,
            Found::Flow(span) => return text.get(flow::place(span, &path[depth..])?).map(str::to_owned),
            Found::Scalar(_) | Found::Empty => return None,
        };
        let item = block.item(step)?;
        if depth + 1 == path.len() {
            let start = line_start(text, item.at.start);
            return begins_line(text, item.at.start).then(|| text[start..item.at.end].to_owned());
        }
        found = &item.value;
    }
    None
}

impl Block {
    fn item(&self, step: &Step) -> Option<&Item> {
        self.items.get(self.position(step)?)
    }

    fn position(&self, step: &Step) -> Option<usize> {
        match step {
            Step::Key(key) => {
                self.items.iter().position(|item| item.key.as_ref().is_some_and(|(known, _)| known == key))
            }
            Step::Index(at) => (*at < self.items.len() && self.items[*at].key.is_none()).then_some(*at),
        }
    }
}

struct Edit<'a> {
    text: &'a str,
    style: &'a Style,
    op: &'a Op,
}

impl Edit<'_> {
    /// Follows `path` to the value that changes. `found` is the value of `holder`. Returns `None` if there is no such
    /// value.
    fn below(&self, found: &Found, holder: Option<&Item>, path: &[Step]) -> Option<Vec<Splice>> {
        let block = match found {
            Found::Flow(span) => {
                let flow = Text { text: self.text, language: Language::Yaml, style: self.style };
                return flow.splices(span, path, self.op);
            }
            Found::Block(block) => block,
            Found::Scalar(at) => return self.scalar(at, path),
            Found::Empty => return self.empty(holder?, path),
        };
        match (path, self.op) {
            ([], Op::Insert { at, key, node, source, .. }) => {
                let indent = " ".repeat(block.column);
                let lines = match source {
                    Some(source) => ended(source, self.style),
                    None => yaml_lines(key.as_deref(), node, &indent, self.style),
                };
                self.insert(block, *at, &lines)
            }
            ([step], Op::Remove(_)) => self.remove(block, block.position(step)?, holder),
            ([step], Op::Rename(_, to)) => {
                let (_, at) = block.item(step)?.key.clone()?;
                let is_quoted = self.text[at.clone()].starts_with(['"', '\'']);
                Some(vec![Splice::replace(at, if is_quoted { render::quoted(to) } else { yaml_text(to) })])
            }
            ([step, rest @ ..], _) => {
                let item = block.item(step)?;
                self.below(&item.value, Some(item), rest)
            }
            ([], _) => None,
        }
    }

    fn scalar(&self, at: &Range<usize>, path: &[Step]) -> Option<Vec<Splice>> {
        let Op::Set(_, value) = self.op else { return None };
        let with = match value {
            Value::Text(text) => yaml_text(text),
            value => Language::Yaml.inline(&Node::new(Default::default(), value.clone())),
        };
        path.is_empty().then(|| vec![Splice::replace(at.clone(), with)])
    }

    /// Gives a value to a key that has none.
    fn empty(&self, holder: &Item, path: &[Step]) -> Option<Vec<Splice>> {
        let Op::Insert { .. } = self.op else { return None };
        let outer = indent(self.text, holder.at.start);
        let is_own_line = begins_line(self.text, holder.at.start) && path.is_empty();
        is_own_line.then(|| self.insert_into_nothing(holder.at.end, &format!("{outer}{}", render::step(self.style))))?
    }

    fn insert_into_nothing(&self, at: usize, indent: &str) -> Option<Vec<Splice>> {
        let Op::Insert { key, node, source, .. } = self.op else { return None };
        let lines = match source {
            Some(source) => ended(source, self.style),
            None => yaml_lines(key.as_deref(), node, indent, self.style),
        };
        Some(vec![self.lines(at, &lines)])
    }

    fn insert(&self, block: &Block, at: Option<usize>, lines: &str) -> Option<Vec<Splice>> {
        let at = at.unwrap_or(block.items.len()).min(block.items.len());
        if let Some(before) = at.checked_sub(1).and_then(|at| block.items.get(at)) {
            return Some(vec![self.lines(before.at.end, lines)]);
        }
        let first = block.items.first()?.at.start;
        begins_line(self.text, first).then(|| vec![Splice::insert(line_start(self.text, first), lines)])
    }

    /// Inserts lines at the start of a line.
    fn lines(&self, at: usize, lines: &str) -> Splice {
        let is_start = at == 0 || self.text[..at].ends_with('\n');
        Splice::insert(at, format!("{}{lines}", if is_start { "" } else { self.style.newline }))
    }

    fn remove(&self, block: &Block, at: usize, holder: Option<&Item>) -> Option<Vec<Splice>> {
        let item = block.items.get(at)?;
        if block.items.len() == 1 {
            // Without its lines the value would be null.
            let nothing = if item.key.is_some() { " {}" } else { " []" };
            let lines = line_start(self.text, item.at.start)..item.at.end;
            let is_own_line = begins_line(self.text, item.at.start);
            return is_own_line.then(|| Some(vec![Splice::insert(holder?.sign, nothing), Splice::delete(lines)]))?;
        }
        if begins_line(self.text, item.at.start) {
            return Some(vec![Splice::delete(line_start(self.text, item.at.start)..item.at.end)]);
        }
        // The first key of an item follows its dash on the same line.
        let next = block.items.get(at + 1)?;
        Some(vec![Splice::delete(item.at.start..next.at.start)])
    }
}

/// Makes a text end with a line end.
fn ended(source: &str, style: &Style) -> String {
    // Trailing blank lines may belong to a text value.
    if source.ends_with('\n') { source.to_owned() } else { format!("{source}{}", style.newline) }
}

/// Maps a text. Returns `None` if it contains something that this file does not know.
fn document(text: &str) -> Option<Found> {
    let mut map = Map { text, at: 0 };
    map.next();
    while map.text[map.at..].starts_with('%') {
        map.at = line_end(text, map.at);
        map.next();
    }
    if let Some(rest) = map.text[map.at..].strip_prefix("---") {
        if !rest.split('\n').next()?.split('#').next()?.trim().is_empty() {
            return None;
        }
        map.at = line_end(text, map.at);
        map.next();
    }
    if map.at == text.len() {
        return Some(Found::Empty);
    }
    let found = map.node(0, 0)?;
    map.next();
    (map.at == text.len()).then_some(found)
}

/// Maps a text while passing through it.
struct Map<'a> {
    text: &'a str,
    at: usize,
}

/// The deepest nesting that is followed.
const DEPTH: usize = 128;

impl Map<'_> {
    /// Skips blank lines and comments up to the next content.
    fn next(&mut self) {
        self.at = flow::skip(self.text, self.at, Language::Yaml);
    }

    /// Returns the column of the current position.
    fn column(&self) -> usize {
        self.at - line_start(self.text, self.at)
    }

    /// Maps the value that starts here, and moves past it. The lines of a scalar are those indented deeper than
    /// `outer`.
    fn node(&mut self, outer: usize, depth: usize) -> Option<Found> {
        let rest = &self.text[self.at..];
        if depth > DEPTH || rest.starts_with("...") || rest.starts_with("--- ") {
            return None;
        }
        if is_dash(rest) {
            return self.sequence(depth);
        }
        if self.key().is_some() {
            return self.mapping(depth);
        }
        self.inline(outer)
    }

    /// Returns the key at this position, and where its colon is.
    fn key(&self) -> Option<(String, Range<usize>, usize)> {
        let rest = &self.text[self.at..];
        let line = &rest[..line_end(rest, 0)];
        let end = match line.chars().next()? {
            '"' | '\'' => scan::string(self.text, self.at, Language::Yaml)? - self.at,
            '{' | '[' | '?' | '&' | '!' | '*' | '|' | '>' | '%' | '@' | '`' | '#' => return None,
            _ => line.match_indices(':').map(|(at, _)| at).find(|at| ends_key(&line[at + 1..]))?,
        };
        let raw = line.get(..end)?.trim_end();
        if raw.contains(" #") && !raw.starts_with(['"', '\'']) {
            return None;
        }
        let colon = end + line.get(end..)?.len() - line.get(end..)?.trim_start_matches([' ', '\t']).len();
        if !line[colon..].starts_with(':') || !ends_key(&line[colon + 1..]) {
            return None;
        }
        let key = scan::key_text(raw, Language::Yaml)?;
        Some((key, self.at..self.at + raw.len(), self.at + colon + 1))
    }

    fn mapping(&mut self, depth: usize) -> Option<Found> {
        let column = self.column();
        let mut items = Vec::new();
        loop {
            let start = self.at;
            let (key, place, sign) = self.key()?;
            self.at = sign;
            let (value, sign) = self.value(column, true, depth)?;
            let end = self.finish(&value);
            items.push(Item { at: start..end, key: Some((key, place)), sign, value });
            if !self.goes_on(column)? || is_dash(&self.text[self.at..]) {
                return Some(Found::Block(Block { column, items }));
            }
        }
    }

    fn sequence(&mut self, depth: usize) -> Option<Found> {
        let column = self.column();
        let mut items = Vec::new();
        loop {
            let start = self.at;
            self.at += 1;
            let (value, sign) = self.value(column, false, depth)?;
            let end = self.finish(&value);
            items.push(Item { at: start..end, key: None, sign, value });
            if !self.goes_on(column)? || !is_dash(&self.text[self.at..]) {
                return Some(Found::Block(Block { column, items }));
            }
        }
    }

    /// Moves to the next content. Reports whether it belongs to the block at this column.
    fn goes_on(&mut self, column: usize) -> Option<bool> {
        self.next();
        let rest = &self.text[self.at..];
        let is_marker = self.column() == 0 && (rest.starts_with("---") || rest.starts_with("..."));
        if rest.is_empty() || is_marker || self.column() < column {
            return Some(false);
        }
        (self.column() == column && begins_line(self.text, self.at)).then_some(true)
    }

    /// Maps the value after a colon or a dash. Also returns where something could be inserted after that sign.
    fn value(&mut self, column: usize, is_member: bool, depth: usize) -> Option<(Found, usize)> {
        let mut sign = self.at;
        loop {
            self.at += self.text[self.at..].len() - self.text[self.at..].trim_start_matches([' ', '\t']).len();
            let rest = &self.text[self.at..];
            if !rest.starts_with(['&', '!']) {
                break;
            }
            self.at += rest.find(char::is_whitespace).unwrap_or(rest.len());
            sign = self.at;
        }
        let rest = &self.text[self.at..];
        if !rest.is_empty() && !rest.starts_with(['\n', '\r', '#']) {
            let found = match is_member {
                true => self.inline(column)?,
                // `- key: value` and `- - value` start a block on the line of the dash.
                false => self.node(column, depth + 1)?,
            };
            return Some((found, sign));
        }
        let here = self.at;
        self.next();
        let rest = &self.text[self.at..];
        let is_deeper = !rest.is_empty() && self.column() > column;
        // A sequence may be at the column of its key.
        let is_beside = is_member && self.column() == column && is_dash(rest);
        if is_deeper || is_beside {
            return Some((self.node(column, depth + 1)?, sign));
        }
        self.at = here;
        Some((Found::Empty, sign))
    }

    /// Maps a value that is not a block, and moves past it.
    fn inline(&mut self, column: usize) -> Option<Found> {
        let start = self.at;
        match self.text[start..].chars().next()? {
            '{' | '[' => {
                let span = scan::value(self.text, start, Language::Yaml)?;
                self.at = span.at.end;
                Some(Found::Flow(span))
            }
            '"' | '\'' => {
                self.at = scan::string(self.text, start, Language::Yaml)?;
                Some(Found::Scalar(start..self.at))
            }
            '|' | '>' => {
                self.at = line_end(self.text, start);
                let mark = self.text[start..self.at].split_whitespace().next().unwrap_or_default();
                let keeps_blanks = mark.contains('+');
                let blanks = self.deeper_lines(column, true);
                if keeps_blanks {
                    self.at = blanks;
                }
                Some(Found::Scalar(start..self.at))
            }
            _ => {
                let end = start + plain_end(&self.text[start..line_end(self.text, start)]);
                self.at = end;
                let comment = self.text[end..line_end(self.text, end)].trim();
                if comment.is_empty() {
                    self.deeper_lines(column, false);
                }
                Some(Found::Scalar(start..self.at.max(end)))
            }
        }
    }

    /// Skips the lines of a scalar after its first one: those indented deeper than this column. Returns the end of the
    /// blank lines after them.
    fn deeper_lines(&mut self, column: usize, is_block: bool) -> usize {
        let mut at = if is_block { self.at } else { line_end(self.text, self.at) };
        while at < self.text.len() {
            let end = line_end(self.text, at);
            let line = &self.text[at..end];
            let body = line.trim_start_matches(' ');
            let is_blank = body.trim().is_empty();
            let is_comment = !is_block && body.starts_with('#');
            // At the root, lines of a scalar need no indentation; such scalars are not edited.
            if !is_blank && (line.len() - body.len() <= column || is_comment) {
                break;
            }
            at = end;
            if !is_blank {
                self.at = at;
            }
        }
        at
    }

    /// Moves past the line on which a value ends, and returns that position.
    fn finish(&mut self, value: &Found) -> usize {
        // The position is already past a block, because its end was found by looking at what follows.
        if let Found::Block(Block { items, .. }) = value
            && let Some(last) = items.last()
        {
            return last.at.end;
        }
        if !self.text[..self.at].ends_with('\n') {
            self.at = line_end(self.text, self.at);
        }
        self.at
    }
}

fn is_dash(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r']))
}

fn ends_key(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r'])
}

/// Returns the length of an unquoted scalar on its line.
fn plain_end(line: &str) -> usize {
    let end = line.find(" #").unwrap_or(line.len());
    line[..end].trim_end().len()
}
