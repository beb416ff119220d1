//! Indexes the tools of all servers, to find definitions that imitate a tool of another server or mention one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::super::shingles::Shingles;
use super::super::tree::{Item, Tree};
use super::Spot;
use super::signs::skeleton;
use super::words::{Word, is_only_told};
use crate::protocol::Raw;

/// The fewest characters of a name that does not occur in a text by chance.
const LONG: usize = 8;
/// Tools that are at least this much alike count as near copies.
const COPY: f64 = 0.9;
/// The fewest shingles of a tool that can count as copied: short definitions are alike anyway.
const MUCH: usize = 12;
/// The most tools that one tool is compared with. If more tools are alike, a copy tells nothing.
const COMPARED: usize = 64;

/// The tools of all servers.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// The server that has a tool of that name; `None` if several have.
    names: HashMap<String, Option<String>>,
    /// For each form that look-alike names share: the names, with their servers.
    alike: HashMap<String, Vec<(String, String)>>,
    /// Servers, with the part of their tools' names after a separator: `get_page` for `wiki_get_page`.
    ends: HashSet<(String, String)>,
    /// The contents of tools, with their servers, by some of their shingles.
    contents: HashMap<u64, Vec<(String, Shingles)>>,
}

impl Neighbours {
    /// Adds a tool of the server `alias`.
    pub(crate) fn add(&mut self, alias: &str, tool: &Raw) {
        let Some(tree) = Tree::read(tool.as_str()) else { return };
        let root = tree.root();
        let Some(name) = root.member("name").and_then(Item::text) else { return };
        let owner = self.names.entry(name.to_string()).or_insert_with(|| Some(alias.to_owned()));
        if owner.as_deref() != Some(alias) {
            *owner = None;
        }
        for (at, _) in name.match_indices(['_', '-', '.']) {
            self.ends.insert((alias.to_owned(), name[at + 1..].to_owned()));
        }
        let alike = self.alike.entry(skeleton(&name)).or_default();
        if !alike.iter().any(|(known, server)| *known == name && server == alias) {
            alike.push((name.into_owned(), alias.to_owned()));
        }
        let content = Shingles::of_item(root);
        if content.len() >= MUCH {
            for mark in content.marks() {
                self.contents.entry(mark).or_default().push((alias.to_owned(), content.clone()));
            }
        }
    }

    /// Reports whether a name looks like the name of another server's tool, without being equal to it.
    pub(super) fn has_twin(&self, owner: &str, name: &str) -> bool {
        let alike = self.alike.get(&skeleton(name));
        alike.is_some_and(|alike| {
            let is_own = |known: &str| alike.iter().any(|(other, server)| other == known && server == owner);
            alike.iter().any(|(known, server)| known != name && server != owner && !is_own(known))
        })
    }

    /// Reports whether another server has nearly the same tool.
    pub(super) fn has_copy(&self, owner: &str, content: &Shingles) -> bool {
        let near = content.marks().flat_map(|mark| self.contents.get(&mark).into_iter().flatten());
        let mut others = near.filter(|(alias, _)| alias != owner).take(COMPARED);
        content.len() >= MUCH && others.any(|(_, other)| other.likeness(content) >= COPY)
    }

    /// Finds the first name in a text that only a tool of another server has. Names that the definition itself defines
    /// (`own`) do not count.
    pub(super) fn spots(
        &self,
        (owner, own): (&str, &HashSet<Cow<'_, str>>),
        text: &str,
        words: &[Word],
        found: &mut Vec<Spot>,
    ) {
        const WHAT: &str = "the name of another server's tool";
        if self.names.is_empty() {
            return;
        }
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let bytes = text.as_bytes();
        let (mut start, mut soft) = (0, None);
        while start < bytes.len() {
            let length = bytes[start..].iter().take_while(|byte| is_part(**byte)).count();
            let token = text[start..start + length].trim_end_matches(['.', '-']);
            if token.len() >= LONG && !own.contains(token) && self.is_of_another(owner, token) {
                let range = start..start + token.len();
                if !is_only_told(text, words, &range) {
                    return found.push((WHAT, true, range));
                }
                soft.get_or_insert(range);
            }
            start += length.max(1);
            while start < bytes.len() && !text.is_char_boundary(start) {
                start += 1;
            }
        }
        found.extend(soft.map(|range| (WHAT, false, range)));
    }

    fn is_of_another(&self, owner: &str, token: &str) -> bool {
        // The name as clients see it has the alias of its server in front.
        let bare = token.split_once("__").map(|(_, bare)| bare);
        [Some(token), bare].into_iter().flatten().any(|name| {
            let server = self.names.get(name).and_then(Option::as_deref);
            server.is_some_and(|server| server != owner)
                && name.len() >= LONG
                && has_two_words(name)
                && !self.ends.contains(&(owner.to_owned(), name.to_owned()))
        })
    }
}

fn has_two_words(name: &str) -> bool {
    let is_joint = |pair: &[u8]| {
        matches!(pair[1], b'_' | b'-' | b'.') || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
    };
    name.as_bytes().windows(2).any(is_joint)
}
