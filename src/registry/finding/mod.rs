//! Finds what is suspicious in a definition, as its server sent it: hidden characters, words that command a model, paths
//! of credentials, hidden commands, and names that belong to other servers.
//!
//! Findings are shown to a person, who decides. A hard finding should hardly ever be wrong, a soft one may be. Anything
//! in quotes or after a negation is soft. The words are English. **Invariant:** the time is linear in the length of the
//! text.
//!
//! `signs.rs` has characters, `phrases.rs` words, `paths.rs` files, `payload.rs` encoded commands, and `neighbours.rs` the
//! tools of other servers.

mod neighbours;
mod paths;
mod payload;
mod phrases;
mod signs;
mod words;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;

use super::Kind;
use super::shingles::Shingles;
use super::tree::{Item, Tree};
use crate::protocol::Raw;

pub(crate) use neighbours::Neighbours;

/// A definition with more text than this many bytes is reported.
const LONG: usize = 8 * 1024;

/// The most findings in one definition. The first ones are reported.
const MOST: usize = 50;

/// Names of arguments that make models send what the tool does not need.
const SINKS: [&str; 18] = [
    "sidenote",
    "side_note",
    "sidenotes",
    "conversation_history",
    "conversation",
    "chat_history",
    "message_history",
    "full_conversation",
    "previous_messages",
    "all_previous_messages",
    "all_messages",
    "user_messages",
    "system_prompt",
    "system_message",
    "chain_of_thought",
    "internal_reasoning",
    "available_tools",
    "tools_list",
];

/// One thing that a person should see before a definition is trusted.
///
/// ```
/// # fn show(finding: &mcp_host::pins::Finding) {
/// println!("{} at {}: {}", finding.what, finding.path, finding.shown);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Whether it is nearly always an attack.
    pub hard: bool,
    /// What was found.
    pub what: &'static str,
    /// Where it is, as a JSON pointer.
    pub path: String,
    /// The text around it: one line, 80 characters at most, hidden characters as `\u{…}`.
    pub shown: String,
}

/// A finding in one text: what was found, whether it is hard, and where in the text.
type Spot = (&'static str, bool, std::ops::Range<usize>);

/// The tools of all servers, the server whose definition is examined, and the names in that definition.
type Others<'a> = (&'a Neighbours, &'a str, &'a HashSet<Cow<'a, str>>);

/// Examines one definition of the server `owner`. `kind` is `None` for the server's instructions, given as a JSON
/// string.
pub(crate) fn findings(kind: Option<Kind>, owner: &str, definition: &Raw, neighbours: &Neighbours) -> Vec<Finding> {
    let Some(tree) = Tree::read(definition.as_str()) else { return Vec::new() };
    let root = tree.root();
    // The names that the definition itself defines: keys, and values of arrays.
    let is_value = |item: &Item<'_>| item.parent().is_some_and(Item::is_array);
    let values = tree.items().filter(is_value).filter_map(Item::text);
    let own: HashSet<Cow<'_, str>> = tree.items().filter_map(Item::key).chain(values).collect();
    let name = (kind == Some(Kind::Tools)).then(|| root.member("name")).flatten();
    let mut found = Found::default();
    let mut length = 0;
    for item in tree.items() {
        if let Some(key) = item.key() {
            found.look(&key, || item.path(), None);
        }
        if let Some(text) = item.text() {
            length += text.len();
            // A tool may have the same name as another server's tool.
            let is_name = name.is_some_and(|name| name.at() == item.at());
            found.look(&text, || item.path(), (!is_name).then_some((neighbours, owner, &own)));
        }
    }
    let start = |item: Item<'_>| signs::excerpt(&item.text().unwrap_or_default(), 0..0);
    if length > LONG {
        let item = root.member("description").unwrap_or(root);
        found.add("very long text", false, item.path(), start(item));
    }
    for argument in arguments(root).into_iter().filter(|argument| is_sink(*argument)) {
        let shown = signs::excerpt(&argument.key().unwrap_or_default(), 0..0);
        found.add("an argument that collects what nobody asked for", false, argument.path(), shown);
    }
    if let Some(item) = name {
        let name = item.text().unwrap_or_default();
        if neighbours.has_twin(owner, &name) {
            found.add("a name that looks like another server's tool", true, item.path(), start(item));
        } else if signs::is_mixed(&name) {
            found.add("a name with letters that look like others", true, item.path(), start(item));
        }
        if neighbours.has_copy(owner, &Shingles::of_item(root)) {
            found.add("a near copy of another server's tool", false, item.path(), start(item));
        }
    }
    found.list
}

/// Returns the top-level arguments of a tool.
fn arguments(root: Item<'_>) -> Vec<Item<'_>> {
    let properties = root.member("inputSchema").and_then(|schema| schema.member("properties"));
    properties.filter(|properties| properties.is_object()).into_iter().flat_map(Item::children).collect()
}

/// Reports whether an argument takes free text under a name that asks for more than the tool needs.
fn is_sink(argument: Item<'_>) -> bool {
    let takes_text = !matches!(
        argument.member("type").and_then(Item::text).as_deref(),
        Some("number" | "integer" | "boolean" | "null")
    );
    let name = argument.key().unwrap_or_default().to_lowercase().replace('-', "_");
    takes_text && argument.member("enum").is_none() && SINKS.contains(&name.as_str())
}

#[derive(Default)]
struct Found {
    list: Vec<Finding>,
    /// What was found already, by kind and text: a text is reported once, however many members repeat it.
    seen: HashSet<(&'static str, String)>,
}

impl Found {
    fn look(&mut self, text: &str, path: impl Fn() -> String, others: Option<Others<'_>>) {
        let mut spots: Vec<Spot> = signs::spots(text);
        // No shorter text commands anything.
        if text.len() >= 6 {
            let words = words::words(text);
            phrases::spots(text, &words, &mut spots);
            paths::spots(text, &words, &mut spots);
            payload::spots(text, &mut spots);
            if let Some((neighbours, owner, own)) = others {
                neighbours.spots((owner, own), text, &words, &mut spots);
            }
        }
        for (what, hard, range) in spots {
            self.add(what, hard, path(), signs::excerpt(text, range));
        }
    }

    fn add(&mut self, what: &'static str, hard: bool, path: String, shown: String) {
        if self.list.len() < MOST && self.seen.insert((what, shown.clone())) {
            self.list.push(Finding { hard, what, path, shown });
        }
    }
}
