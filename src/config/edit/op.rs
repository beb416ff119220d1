//! One change of a tree: the meaning of an edit, whatever the syntax. The syntaxes turn it into replacements in the
//! text, and the proof compares it with their effect.

use crate::config::report::Place;
use crate::config::syntax::{Member, Node, Value};

/// One step from a value to a value inside of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The path from the root to a value.
pub(super) type Path = Vec<Step>;

/// A change.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Adds a value to an object or a list; one that is missing or null counts as empty.
    Insert {
        into: Path,
        /// The index among its siblings; `None` means the end.
        at: Option<usize>,
        /// The key; `None` for a list.
        key: Option<String>,
        node: Node,
        /// The text to write, if the value was in this file before.
        source: Option<String>,
    },
    Remove(Path),
    /// Changes the key of a member of an object.
    Rename(Path, String),
    /// Replaces a value that is neither a list nor an object.
    Set(Path, Value),
}

impl Op {
    /// Applies the change to a tree. Returns `None` if it does not fit the tree.
    pub(super) fn apply(&self, root: &Node) -> Option<Node> {
        let mut root = root.clone();
        match self {
            Self::Insert { into, at, key, node, .. } => {
                let target = find_mut(&mut root, into)?;
                if target.value == Value::Null {
                    target.value = if key.is_some() { Value::Object(Vec::new()) } else { Value::List(Vec::new()) };
                }
                match (&mut target.value, key) {
                    (Value::Object(members), Some(key)) => {
                        let member = Member { key: key.clone(), at: Place::default(), node: node.clone() };
                        members.insert(at.unwrap_or(members.len()).min(members.len()), member);
                    }
                    (Value::List(items), None) => {
                        items.insert(at.unwrap_or(items.len()).min(items.len()), node.clone());
                    }
                    _ => return None,
                }
            }
            Self::Remove(path) => {
                let (last, parent) = path.split_last()?;
                let target = find_mut(&mut root, parent)?;
                match (&mut target.value, last) {
                    (Value::Object(members), Step::Key(key)) => {
                        let at = members.iter().position(|member| member.key == *key)?;
                        members.remove(at);
                    }
                    (Value::List(items), Step::Index(at)) if *at < items.len() => drop(items.remove(*at)),
                    _ => return None,
                }
            }
            Self::Rename(path, to) => {
                let (Step::Key(key), parent) = path.split_last()? else { return None };
                let Value::Object(members) = &mut find_mut(&mut root, parent)?.value else { return None };
                members.iter_mut().find(|member| member.key == *key)?.key.clone_from(to);
            }
            Self::Set(path, value) => find_mut(&mut root, path)?.value.clone_from(value),
        }
        Some(root)
    }
}

fn find_mut<'a>(root: &'a mut Node, path: &[Step]) -> Option<&'a mut Node> {
    path.iter().try_fold(root, |node, step| match (&mut node.value, step) {
        (Value::Object(members), Step::Key(key)) => {
            members.iter_mut().find(|member| member.key == *key).map(|member| &mut member.node)
        }
        (Value::List(items), Step::Index(at)) => items.get_mut(*at),
        _ => None,
    })
}

/// Returns the value to which a path leads.
pub(super) fn find<'a>(root: &'a Node, path: &[Step]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, step| match (&node.value, step) {
        (Value::Object(_), Step::Key(key)) => node.get(key),
        (Value::List(items), Step::Index(at)) => items.get(*at),
        _ => None,
    })
}

/// Returns the path to this node, which is compared by identity.
pub(super) fn path_to(root: &Node, wanted: &Node) -> Option<Path> {
    if std::ptr::eq(root, wanted) {
        return Some(Path::new());
    }
    let below = |step: Step, node: &Node| {
        let mut path = path_to(node, wanted)?;
        path.insert(0, step);
        Some(path)
    };
    match &root.value {
        Value::Object(members) => members.iter().find_map(|member| below(Step::Key(member.key.clone()), &member.node)),
        Value::List(items) => items.iter().enumerate().find_map(|(at, node)| below(Step::Index(at), node)),
        _ => None,
    }
}

/// Reports whether two trees are equal, apart from the places of their values.
pub(super) fn same(one: &Node, other: &Node) -> bool {
    same_by(one, other, true)
}

/// Reports whether two trees are equal. Unless `ordered` is set, the order of members does not matter.
pub(super) fn same_by(one: &Node, other: &Node, ordered: bool) -> bool {
    match (&one.value, &other.value) {
        (Value::Object(one), Value::Object(other)) => {
            let equal = |(at, member): (usize, &Member)| {
                let twin = match ordered {
                    true => other.get(at).filter(|twin| twin.key == member.key),
                    false => other.iter().find(|twin| twin.key == member.key),
                };
                twin.is_some_and(|twin| same_by(&member.node, &twin.node, ordered))
            };
            one.len() == other.len() && one.iter().enumerate().all(equal)
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_by(one, other, ordered))
        }
        (one, other) => one == other,
    }
}
