//! Text values in a config, such as `host.join` or an argument of a server: sets them, and restores their old values.

use super::op::{Op, Path, Step, find};
use super::{File, Refused};
use crate::config::syntax::{self, Node, Value, Writer};

/// Returns the operation that sets a setting to this text.
pub(super) fn op(file: &File<'_>, key: &[String], text: &str) -> Result<Op, Refused> {
    op_at(file, way(key), text, &shown(key))
}

/// Returns the operation that sets a value to this text; `shown` is its name in messages.
pub(super) fn op_at(file: &File<'_>, path: Path, text: &str, shown: &str) -> Result<Op, Refused> {
    let value = Value::Text(text.to_owned());
    let Some(root) = &file.root else {
        return Err(Refused::Elsewhere(format!("an empty file gets no `{shown}`: add a server first")));
    };
    if let Some(node) = find(root, &path) {
        return match &node.value {
            Value::Text(known) if known == text => Err(Refused::Nothing(format!("`{shown}` has this value already"))),
            Value::List(_) | Value::Object(_) => Err(Refused::Elsewhere(format!("`{shown}` holds no text"))),
            _ => Ok(Op::Set(path, value)),
        };
    }
    // Objects that are missing on the path are added.
    let is_there = |count: &usize| find(root, &path[..*count]).is_some();
    let count = (0..path.len()).rev().find(is_there).unwrap_or(0);
    if path[count..].iter().any(|step| matches!(step, Step::Index(_))) {
        return Err(Refused::Elsewhere(format!("there is no `{shown}`")));
    }
    let mut missing = path[count..].iter().filter_map(|step| match step {
        Step::Key(key) => Some(key.clone()),
        Step::Index(_) => None,
    });
    let first = missing.next();
    let rest: Vec<String> = missing.collect();
    let mut node = syntax::node(value);
    for key in rest.into_iter().rev() {
        let mut outer = Writer::default();
        outer.put(&key, node);
        node = outer.done();
    }
    Ok(Op::Insert { into: path[..count].to_vec(), at: None, key: first, node, source: None })
}

/// The trees before and after an edit and now, or the entries in them.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) now: Option<&'a Node>,
    pub(super) was: Option<&'a Node>,
    pub(super) ours: Option<&'a Node>,
}

/// Returns the operation that restores a setting's old value; `None` if someone has changed the setting since.
pub(super) fn back(now: &File<'_>, was: &File<'_>, ours: &File<'_>, key: &[String]) -> Option<Op> {
    let path = way(key);
    let around = Around { now: now.root.as_ref(), was: was.root.as_ref(), ours: ours.root.as_ref() };
    back_at(around, &path.clone(), path)
}

/// Returns the operation that restores a value. `below` leads to it from these trees, `path` from the root.
pub(super) fn back_at(around: Around<'_>, below: &[Step], path: Path) -> Option<Op> {
    let value = |node: Option<&Node>| Some(find(node?, below)?.value.clone());
    let (now, was) = (value(around.now), value(around.was));
    if now != value(around.ours) {
        return None;
    }
    Some(match was {
        Some(was) => Op::Set(path, was),
        None => Op::Remove(path),
    })
}

/// Returns the path to a value inside the entry at `path`. A number is an index if the value there is a list.
pub(super) fn inside(entry: &Node, path: Path, at: &[String]) -> Path {
    let (mut path, mut node) = (path, Some(entry));
    for word in at {
        let step = match (node.map(|node| &node.value), word.parse()) {
            (Some(Value::List(_)), Ok(number)) => Step::Index(number),
            _ => Step::Key(word.clone()),
        };
        node = node.and_then(|node| find(node, std::slice::from_ref(&step)));
        path.push(step);
    }
    path
}

fn way(key: &[String]) -> Path {
    std::iter::once("host").chain(key.iter().map(String::as_str)).map(|key| Step::Key(key.to_owned())).collect()
}

fn shown(key: &[String]) -> String {
    format!("host.{}", key.join("."))
}
