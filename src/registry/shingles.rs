//! Measures how alike two definitions are, whatever their names: by pairs of neighbouring words, and by arguments.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::tree::{Item, Tree};
use crate::protocol::Raw;

/// The hashes of the word pairs and arguments of one definition, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shingles(Vec<u64>);

impl Shingles {
    /// Reads a definition. Its name does not count.
    pub(crate) fn of(definition: &Raw) -> Self {
        Tree::read(definition.as_str()).map(|tree| Self::of_item(tree.root())).unwrap_or_default()
    }

    /// Reads a definition that is open already.
    pub(super) fn of_item(definition: Item<'_>) -> Self {
        let mut found = Vec::new();
        for member in ["title", "description"] {
            if let Some(text) = definition.member(member).and_then(Item::text) {
                pairs(&text, &mut found);
            }
        }
        let properties = definition.member("inputSchema").and_then(|schema| schema.member("properties"));
        for argument in properties.into_iter().flat_map(Item::children) {
            argument_of(argument.key().as_deref(), argument, &mut found);
        }
        for argument in definition.member("arguments").into_iter().flat_map(Item::children) {
            argument_of(argument.member("name").and_then(Item::text).as_deref(), argument, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Self(found)
    }

    /// The number of different shingles.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest of the shingles. Definitions that are much alike nearly always have one of them in common.
    pub(super) fn marks(&self) -> impl Iterator<Item = u64> {
        self.0.iter().take(3).copied()
    }

    /// Returns the share of shingles that both have, from 0 to 1. Definitions without words and arguments are like no
    /// other.
    pub(crate) fn likeness(&self, other: &Self) -> f64 {
        let (mut one, mut two, mut both) = (self.0.iter().peekable(), other.0.iter().peekable(), 0_usize);
        while let (Some(a), Some(b)) = (one.peek(), two.peek()) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => drop(one.next()),
                std::cmp::Ordering::Greater => drop(two.next()),
                std::cmp::Ordering::Equal => {
                    both += 1;
                    one.next();
                    two.next();
                }
            }
        }
        let all = self.0.len() + other.0.len();
        if all == 0 { 0.0 } else { 2.0 * both as f64 / all as f64 }
    }
}

fn argument_of(name: Option<&str>, argument: Item<'_>, found: &mut Vec<u64>) {
    if let Some(name) = name {
        found.push(hash(("argument", name)));
    }
    if let Some(text) = argument.member("description").and_then(Item::text) {
        pairs(&text, found);
    }
}

fn pairs(text: &str, found: &mut Vec<u64>) {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
    let Some(mut last) = words.next() else { return };
    let mut is_alone = true;
    for word in words {
        found.push(hash((&last, &word)));
        last = word;
        is_alone = false;
    }
    if is_alone {
        found.push(hash((&last, "")));
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
