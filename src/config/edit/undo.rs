//! Undoes one edit in a text that may have changed since: only that edit is reversed, with the same proof.

use std::path::Path as FilePath;

use serde::{Deserialize, Serialize};

use super::op::{Op, Path, Step, find, same_by};
use super::{Edited, File, Refused, rename};
use super::{entry, proof, setting};
use crate::config::LoadRequest;
use crate::config::report::Place;
use crate::config::syntax::{Node, Value};

/// A record of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The name of the server before the edit.
    pub name: String,
    /// What the edit changed.
    pub what: What,
}

/// What an edit changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// It added the server.
    Add,
    /// It removed the server.
    Remove,
    /// It renamed the server to this.
    Rename(String),
    /// It enabled the server.
    Enable,
    /// It disabled the server.
    Disable,
    /// It changed this setting below `host`.
    Setting(Vec<String>),
    /// It changed this value of the entry.
    Text(Vec<String>),
}

impl Done {
    /// Returns the record of the edit that undoes this one.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let (name, what) = match &self.what {
            What::Add => (self.name.clone(), What::Remove),
            What::Remove => (self.name.clone(), What::Add),
            What::Rename(to) => (to.clone(), What::Rename(self.name.clone())),
            What::Enable => (self.name.clone(), What::Disable),
            What::Disable => (self.name.clone(), What::Enable),
            What::Setting(key) => (self.name.clone(), What::Setting(key.clone())),
            What::Text(at) => (self.name.clone(), What::Text(at.clone())),
        };
        Self { name, what }
    }
}

/// The texts before and after an edit.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// The text before it.
    pub before: &'a str,
    /// The text after it.
    pub after: &'a str,
}

/// Reverses several edits of a text, starting with the last one.
///
/// # Errors
/// Fails if one of the entries has changed since, or a reversal cannot be proven.
pub fn revert_all(
    now: &str,
    texts: Around<'_>,
    file: &FilePath,
    request: &LoadRequest,
    done: &[Done],
) -> Result<String, Refused> {
    done.iter().rev().try_fold(now.to_owned(), |now, done| Ok(revert(&now, texts, file, request, done)?.text))
}

/// Reverses an edit in the current text.
///
/// # Errors
/// Fails if the entry has changed since, or the reversal cannot be proven.
pub fn revert(
    now: &str,
    texts: Around<'_>,
    file: &FilePath,
    request: &LoadRequest,
    done: &Done,
) -> Result<Edited, Refused> {
    let (old, new) = (File::open(texts.before, file, request)?, File::open(texts.after, file, request)?);
    let now = File::open(now, file, request)?;
    let (old_shape, new_shape, shape) = (old.shape()?, new.shape()?, now.shape()?);
    let changed = || Refused::Elsewhere(format!("the entry of `{}` has changed since", done.name));
    let name = done.name.clone();
    let ops: Vec<Op> = match &done.what {
        What::Add => {
            let (entry, ours) = (now.entry(&shape, &name)?, new.entry(&new_shape, &name)?);
            // A client may have reordered the members.
            if !same_by(entry.node, ours.node, false) {
                return Err(changed());
            }
            vec![Op::Remove(now.path(entry)?)]
        }
        What::Remove => {
            now.free(&shape, &name, None)?;
            let gone = old.entry(&old_shape, &name)?;
            back(&old, &now, &old.path(gone)?, gone.node)?
        }
        What::Rename(to) => {
            let entry = now.entry(&shape, to)?;
            now.free(&shape, &name, Some(&entry.name))?;
            vec![rename(now.path(entry)?, &name)]
        }
        What::Enable | What::Disable => {
            let entry = now.entry(&shape, &name)?;
            let (was, ours) = (old.entry(&old_shape, &name)?, new.entry(&new_shape, &name)?);
            vec![switch_back(&now.path(entry)?, entry.node, was.node, ours.node).ok_or_else(changed)?]
        }
        What::Text(at) => {
            let entry = now.entry(&shape, &name)?;
            let (was, ours) = (old.entry(&old_shape, &name)?, new.entry(&new_shape, &name)?);
            let path = setting::inside(entry.node, now.path(entry)?, at);
            let below = setting::inside(entry.node, Path::new(), at);
            let around = setting::Around { now: Some(entry.node), was: Some(was.node), ours: Some(ours.node) };
            vec![setting::back_at(around, &below, path).ok_or_else(changed)?]
        }
        What::Setting(key) => {
            let since = || Refused::Elsewhere(format!("`host.{}` has changed since", key.join(".")));
            vec![setting::back(&now, &old, &new, key).ok_or_else(since)?]
        }
    };
    let touched = match &done.what {
        What::Setting(_) => Vec::new(),
        What::Rename(to) => vec![name.as_str(), to],
        _ => vec![name.as_str()],
    };
    match ops.iter().find_map(|op| now.prove(op, &shape, &touched)) {
        Some(text) => Ok(Edited { text, name }),
        None => {
            let why = format!("the edit of `{name}` cannot be taken back here without changing something else");
            Err(Refused::Unproven { why, snippet: String::new() })
        }
    }
}

/// Returns the operations that restore an entry, the preferred one first: in its old position and as it was written,
/// else as a new entry.
fn back(old: &File<'_>, now: &File<'_>, path: &Path, node: &Node) -> Result<Vec<Op>, Refused> {
    let (last, parent) = path.split_last().ok_or_else(|| Refused::Elsewhere("the file is one entry".to_owned()))?;
    let missing = || Refused::Elsewhere("the file has no place for it any more".to_owned());
    now.root.as_ref().and_then(|root| find(root, parent)).ok_or_else(missing)?;
    let container = old.root.as_ref().and_then(|root| find(root, parent)).ok_or_else(missing)?;
    let (key, at) = match last {
        Step::Index(at) => (None, *at),
        Step::Key(key) => {
            let members = container.members().unwrap_or_default();
            (Some(key.clone()), members.iter().position(|member| member.key == *key).unwrap_or(members.len()))
        }
    };
    let source = proof::source(old.text, old.syntax, path);
    let op = |at: Option<usize>, source: Option<String>| Op::Insert {
        into: parent.to_vec(),
        at,
        key: key.clone(),
        node: node.clone(),
        source,
    };
    Ok(vec![op(Some(at), source), op(Some(at), None), op(None, None)])
}

/// Returns the operation that restores an enabling or disabling member; `None` if it was changed since.
fn switch_back(path: &Path, now: &Node, was: &Node, ours: &Node) -> Option<Op> {
    let keys = ["enabled", "isActive", "disabled"];
    let key =
        keys.into_iter().find(|key| was.get(key).map(|node| &node.value) != ours.get(key).map(|node| &node.value))?;
    let value = |node: &Node| node.get(key).map(|node| node.value.clone());
    if value(now) != value(ours) || entry::switches(now).iter().any(|(other, on)| *other != key && !on) {
        return None;
    }
    let at = path.iter().cloned().chain([Step::Key(key.to_owned())]).collect();
    Some(match (value(was), value(now)) {
        (None, _) => Op::Remove(at),
        (Some(value @ Value::Flag(_)), Some(_)) => Op::Set(at, value),
        (Some(value), _) => {
            let node = Node::new(Place::default(), value);
            Op::Insert { into: path.clone(), at: None, key: Some(key.to_owned()), node, source: None }
        }
    })
}
