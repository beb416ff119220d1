//! Edits of lists and objects in brackets: all of JSON, inline tables and arrays of TOML, and YAML in flow style.
//!
//! In: where the items are. Out: replacements. Comments stay, and so does every byte that belongs neither to the item,
//! nor to its comma, nor to the blanks around it.

use std::ops::Range;

use super::op::{Op, Step};
use super::render::{Language, json_lines, yaml_text};
use super::splice::{Splice, Style, begins_line, blanks, indent, line_end, line_start};
use crate::config::syntax::Node;

/// A value and its range in the text.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) at: Range<usize>,
    /// The items, if the value is a list or an object.
    pub(super) items: Option<Vec<Item>>,
}

/// An item of a list, or a member of an object.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// The range from the start of the key to the end of the value.
    pub(super) at: Range<usize>,
    pub(super) key: Option<(String, Range<usize>)>,
    pub(super) value: Span,
}

/// A text with brackets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) language: Language,
    pub(super) style: &'a Style,
}

/// Finds the item to which one step of a path leads.
fn item<'a>(span: &'a Span, step: &Step) -> Option<&'a Item> {
    let items = span.items.as_ref()?;
    match step {
        Step::Key(key) => items.iter().find(|item| item.key.as_ref().is_some_and(|(known, _)| known == key)),
        Step::Index(at) => items.get(*at).filter(|item| item.key.is_none()),
    }
}

fn value<'a>(span: &'a Span, path: &[Step]) -> Option<&'a Span> {
    path.iter().try_fold(span, |span, step| item(span, step).map(|item| &item.value))
}

/// Returns the range of the item to which a path leads.
pub(super) fn place(root: &Span, path: &[Step]) -> Option<Range<usize>> {
    let (last, parent) = path.split_last()?;
    item(value(root, parent)?, last).map(|item| item.at.clone())
}

impl Text<'_> {
    /// Returns the replacements for a change. `path` leads from `root` to the value that changes.
    pub(super) fn splices(self, root: &Span, path: &[Step], op: &Op) -> Option<Vec<Splice>> {
        match op {
            Op::Insert { at, key, node, source, .. } => {
                let target = value(root, path)?;
                if target.items.is_none() {
                    return self.fill(target, key.as_deref(), node);
                }
                let write = |indent: Option<&str>| match source {
                    Some(source) => source.clone(),
                    None => self.item(key.as_deref(), node, indent),
                };
                self.insert(target, *at, &write)
            }
            Op::Remove(_) => {
                let (last, parent) = path.split_last()?;
                let parent = value(root, parent)?;
                let gone = item(parent, last)?.at.start;
                let at = parent.items.as_ref()?.iter().position(|item| item.at.start == gone)?;
                self.remove(parent, at)
            }
            Op::Rename(_, to) => {
                let (last, parent) = path.split_last()?;
                let (_, at) = item(value(root, parent)?, last)?.key.clone()?;
                let is_quoted = self.text[at.clone()].starts_with(['"', '\'']);
                let key =
                    if self.language == Language::Yaml && !is_quoted { yaml_text(to) } else { self.language.key(to) };
                Some(vec![Splice::replace(at, key)])
            }
            Op::Set(_, new) => {
                let target = value(root, path).filter(|target| target.items.is_none())?;
                let node = Node::new(Default::default(), new.clone());
                Some(vec![Splice::replace(target.at.clone(), self.language.inline(&node))])
            }
        }
    }

    /// Replaces a null by an object or a list with its first item.
    fn fill(self, target: &Span, key: Option<&str>, node: &Node) -> Option<Vec<Splice>> {
        if self.text.get(target.at.clone())? != "null" {
            return None;
        }
        let item = self.item(key, node, None);
        let with = if key.is_some() { format!("{{ {item} }}") } else { format!("[{item}]") };
        Some(vec![Splice::replace(target.at.clone(), with)])
    }

    /// Formats an item; on several lines if the indentation of its first line is given.
    fn item(self, key: Option<&str>, node: &Node, indent: Option<&str>) -> String {
        let value = match indent.filter(|_| self.language == Language::Json) {
            Some(indent) => json_lines(node, indent, self.style),
            None => self.language.inline(node),
        };
        match (key, self.language) {
            (Some(key), Language::Toml) => format!("{} = {value}", self.language.key(key)),
            (Some(key), _) => format!("{}: {value}", self.language.key(key)),
            (None, _) => value,
        }
    }

    fn insert(self, target: &Span, at: Option<usize>, write: &dyn Fn(Option<&str>) -> String) -> Option<Vec<Splice>> {
        let items = target.items.as_ref()?;
        let at = at.unwrap_or(items.len()).min(items.len());
        if items.is_empty() {
            return Some(self.first(target, write));
        }
        let Some(before) = at.checked_sub(1).and_then(|at| items.get(at)) else {
            let start = items.first()?.at.start;
            let with = match begins_line(self.text, start) {
                true => {
                    let indent = indent(self.text, start);
                    format!("{},{}{indent}", write(Some(indent)), self.style.newline)
                }
                false => format!("{}, ", write(None)),
            };
            return Some(vec![Splice::insert(start, with)]);
        };
        let comma = self.comma(before.at.end);
        let end = comma.map_or(before.at.end, |comma| comma + 1);
        let (ahead, after) = if comma.is_some() { ("", ",") } else { (",", "") };
        if !begins_line(self.text, before.at.start) {
            return Some(vec![Splice::insert(end, format!("{ahead} {}{after}", write(None)))]);
        }
        let indent = indent(self.text, before.at.start);
        let line = format!("{}{indent}{}{after}", self.style.newline, write(Some(indent)));
        // A comment after the previous item stays on its line.
        match self.comment(end) {
            Some(behind) if !ahead.is_empty() => Some(vec![Splice::insert(end, ahead), Splice::insert(behind, line)]),
            Some(behind) => Some(vec![Splice::insert(behind, line)]),
            None => Some(vec![Splice::insert(end, format!("{ahead}{line}"))]),
        }
    }

    /// Inserts the first item between the brackets.
    fn first(self, target: &Span, write: &dyn Fn(Option<&str>) -> String) -> Vec<Splice> {
        let (open, close) = (target.at.start + 1, target.at.end - 1);
        let inner = &self.text[open..close];
        let outer = indent(self.text, target.at.start);
        let newline = self.style.newline;
        let deep = format!("{outer}{}", self.style.unit);
        let has_lines = match self.language {
            Language::Json => self.text.trim_end().contains('\n') || self.text.trim() == "{}",
            Language::Toml | Language::Yaml => inner.contains('\n'),
        };
        if inner.trim().is_empty() {
            let with = match has_lines {
                true => format!("{newline}{deep}{}{newline}{outer}", write(Some(&deep))),
                false => format!(" {} ", write(None)),
            };
            return vec![Splice::replace(open..close, with)];
        }
        let end = open + inner.trim_end().len();
        let rest = if self.text[end..close].contains('\n') { String::new() } else { format!("{newline}{outer}") };
        vec![Splice::insert(end, format!("{newline}{deep}{}{rest}", write(Some(&deep))))]
    }

    fn remove(self, parent: &Span, at: usize) -> Option<Vec<Splice>> {
        let items = parent.items.as_ref()?;
        let gone = &items.get(at)?.at;
        let (open, close) = (parent.at.start + 1, parent.at.end - 1);
        let comma = self.comma(gone.end);
        // If the item is the last one, the comma before it is removed.
        let before = match at.checked_sub(1).and_then(|at| items.get(at)) {
            Some(before) if comma.is_none() => self.comma(before.at.end),
            _ => None,
        };
        let mut splices: Vec<Splice> = before.map(|comma| Splice::delete(comma..comma + 1)).into_iter().collect();
        let mut end = gone.end;
        if let Some(comma) = comma {
            match self.text[gone.end..comma].trim().is_empty() {
                true => end = comma + 1,
                // There is a comment in between.
                false => splices.push(Splice::delete(comma..comma + 1)),
            }
        }
        let rest = end + blanks(self.text, end);
        let ends_line = self.text[rest..].starts_with(['\n', '\r']) || rest == self.text.len();
        let whole = if begins_line(self.text, gone.start) && ends_line {
            line_start(self.text, gone.start)..line_end(self.text, end)
        } else if at + 1 == items.len() && !ends_line && self.follows(items, at) {
            // The closing bracket stays after the previous item.
            self.text[..gone.start].trim_end().len()..end
        } else if at + 1 == items.len() && !ends_line && !begins_line(self.text, gone.start) {
            let text = &self.text[..gone.start];
            let start = text.trim_end_matches([' ', '\t']).len();
            // The blanks before a closing bracket stay: `{ "a": 1, "b": 2 }`.
            start..end
        } else {
            gone.start..rest
        };
        splices.push(Splice::delete(whole.clone()));
        if items.len() == 1 {
            let left = format!("{}{}", self.text.get(open..whole.start)?, self.text.get(whole.end..close)?);
            if left.trim_matches([' ', '\t', '\r', '\n', ',']).is_empty() {
                return Some(vec![Splice::delete(open..close)]);
            }
        }
        Some(splices)
    }

    /// Reports whether an item starts a line, with only blanks between it and the previous item.
    fn follows(self, items: &[Item], at: usize) -> bool {
        let Some(before) = at.checked_sub(1).and_then(|at| items.get(at)) else { return false };
        let between = &self.text[before.at.end..items[at].at.start];
        begins_line(self.text, items[at].at.start) && between.trim().trim_matches(',').is_empty()
    }

    /// Returns the comma that follows an item, if there is one.
    fn comma(self, end: usize) -> Option<usize> {
        let at = skip(self.text, end, self.language);
        self.text[at..].starts_with(',').then_some(at)
    }

    /// Returns the end of the comment that follows an offset and is the last thing on its line.
    fn comment(self, end: usize) -> Option<usize> {
        let line = self.text[end..line_end(self.text, end)].trim_end_matches(['\n', '\r']);
        let text = line.trim_start();
        let is_comment = match self.language {
            Language::Json => {
                let block = text.starts_with("/*") && text.ends_with("*/") && text.matches("*/").count() == 1;
                text.starts_with("//") || block
            }
            Language::Toml | Language::Yaml => text.starts_with('#'),
        };
        is_comment.then(|| end + line.trim_end().len())
    }
}

/// Skips blanks, line ends and comments.
pub(super) fn skip(text: &str, mut at: usize, language: Language) -> usize {
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        let rest = &rest[blank..];
        at += blank;
        let comment = match language {
            Language::Json if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            Language::Json if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            Language::Toml | Language::Yaml if rest.starts_with('#') => rest.find('\n').unwrap_or(rest.len()),
            _ => return at,
        };
        at += comment;
    }
}
