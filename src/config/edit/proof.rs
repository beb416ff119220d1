//! The proof before anything is written: the new text means what the old one means, apart from the intended change.
//!
//! **Invariant:** a text returned from here was parsed by the reader of configs, and its servers equal those of the old
//! text, apart from the changed one. Bytes outside of the replaced ranges equal those of the old text, and what is
//! replaced outside of the changed item is a comma, a blank, or an empty value.

use super::op::{Op, same, same_by};
use super::splice::{Splice, apply};
use super::{json, toml, yaml};
use crate::config::report::{Place, Report};
use crate::config::shape::Entry;
use crate::config::syntax::{self, Node, Syntax, Value};

/// Returns the text after a change, if the change can be proven; `path` leads to the changed value.
pub(super) fn proven(before: &str, old: Option<&Node>, syntax: Syntax, op: &Op) -> Option<String> {
    let path = match op {
        Op::Insert { into, .. } => into,
        Op::Remove(path) | Op::Rename(path, _) | Op::Set(path, _) => path,
    };
    let splices = match syntax {
        Syntax::Json => json::splices(before, path, op),
        Syntax::Toml => toml::splices(before, path, op),
        Syntax::Yaml => yaml::splices(before, path, op),
    }?;
    let item = match op {
        Op::Remove(path) => source(before, syntax, path),
        Op::Insert { .. } | Op::Rename(..) | Op::Set(..) => None,
    };
    if !splices.iter().all(|splice| is_modest(before, splice, op, item.as_deref())) {
        return None;
    }
    let after = apply(before, &splices)?;
    let empty = Node::new(Place::default(), Value::Object(Vec::new()));
    let expected = op.apply(old.unwrap_or(&empty))?;
    let new = syntax::parse(&after, syntax, 0, &mut Report::default())?;
    // In TOML a table's position is that of its first line, so an edit may change the order of tables. The order of
    // servers is compared below.
    let ordered = syntax != Syntax::Toml;
    let is_meant = same_by(&new, &expected, ordered)
        // Restored lines may be in another position among their siblings.
        || matches!(op, Op::Insert { at: Some(_), source: Some(_), .. }) && is_elsewhere(&new, op, old?);
    is_meant.then_some(after)
}

/// Returns the text of an item.
pub(super) fn source(text: &str, syntax: Syntax, path: &super::op::Path) -> Option<String> {
    match syntax {
        Syntax::Json => json::source(text, path),
        Syntax::Toml => toml::source(text, path),
        Syntax::Yaml => yaml::source(text, path),
    }
}

/// Reports whether a replacement removes only what belongs to the changed item.
fn is_modest(before: &str, splice: &Splice, op: &Op, item: Option<&str>) -> bool {
    let Some(gone) = before.get(splice.at.clone()) else { return false };
    let is_space = |text: &str| text.trim_matches([' ', '\t', '\r', '\n', ',']).is_empty();
    match op {
        Op::Insert { .. } => is_space(gone) || gone == "null",
        // A key or a value is replaced; the trees are compared.
        Op::Rename(..) | Op::Set(..) => !gone.contains('\n'),
        Op::Remove(_) => match item.map(str::trim).and_then(|item| gone.split_once(item)) {
            Some((ahead, behind)) => is_space(ahead) && is_space(behind),
            // The item is in several ranges; the trees are compared.
            None => is_space(gone) || item.is_none(),
        },
    }
}

/// Reports whether an item was restored, but in another position than before.
fn is_elsewhere(new: &Node, op: &Op, old: &Node) -> bool {
    let Op::Insert { into, key, node, source, .. } = op else { return false };
    let at_end =
        Op::Insert { into: into.clone(), at: None, key: key.clone(), node: node.clone(), source: source.clone() };
    at_end.apply(old).is_some_and(|expected| same(new, &expected))
}

/// Reports whether all entries but those about `touched` are read as before: in the same order, with the same content,
/// by the rules of the same client.
pub(super) fn others_are_same(old: &[Entry<'_>], new: &[Entry<'_>], touched: &[&str]) -> bool {
    let others = |entries: &[Entry<'_>]| -> Vec<usize> {
        (0..entries.len()).filter(|at| !touched.contains(&entries[*at].name.as_str())).collect()
    };
    let (left, right) = (others(old), others(new));
    left.len() == right.len()
        && left.iter().zip(&right).all(|(left, right)| {
            let (left, right) = (&old[*left], &new[*right]);
            left.name == right.name
                && left.flavor == right.flavor
                && left.disabled == right.disabled
                && left.base == right.base
                && left.call_timeout == right.call_timeout
                && same(left.node, right.node)
        })
}
