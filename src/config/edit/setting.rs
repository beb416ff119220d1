//! Texts among the settings of the host, such as `host.join`: given a value, and given back what they had.

use super::op::{Op, Path, Step, find};
use super::{File, Refused};
use crate::config::syntax::{self, Value, Writer};

/// Returns the change that gives a setting this text.
pub(super) fn op(file: &File<'_>, key: &[String], text: &str) -> Result<Op, Refused> {
    let (path, value) = (way(key), Value::Text(text.to_owned()));
    let shown = shown(key);
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
    // What is missing on the way comes with it.
    let is_there = |count: &usize| find(root, &path[..*count]).is_some();
    let count = (0..path.len()).rev().find(is_there).unwrap_or(0);
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

/// Returns the change that gives a setting back what it had; `None` if somebody has changed it since.
pub(super) fn back(now: &File<'_>, was: &File<'_>, ours: &File<'_>, key: &[String]) -> Option<Op> {
    let path = way(key);
    let value = |file: &File<'_>| Some(find(file.root.as_ref()?, &path)?.value.clone());
    let (now, was) = (value(now), value(was));
    if now != value(ours) {
        return None;
    }
    Some(match was {
        Some(was) => Op::Set(path, was),
        None => Op::Remove(path),
    })
}

fn way(key: &[String]) -> Path {
    std::iter::once("host").chain(key.iter().map(String::as_str)).map(|key| Step::Key(key.to_owned())).collect()
}

fn shown(key: &[String]) -> String {
    format!("host.{}", key.join("."))
}
