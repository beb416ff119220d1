//! What changed between two forms of one definition: each change with its class and its path.
//!
//! `schema.rs` compares what a tool takes and returns; this file compares the rest. Both read the canonical form, so a
//! definition that is only spelled differently has no changes, and one with another pin has at least one.

mod schema;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::{Serialize, Serializer};

use super::pin;
use super::tree::{Item, Tree, joined};
use crate::protocol::{Pointer, Raw};

/// How deep objects are compared. What is deeper counts as one value.
const DEEP: usize = 64;

/// The most characters of a text that a change shows.
const SHOWN: usize = 200;

/// What a change does to the definition.
///
/// ```
/// use mcp_host::pins::Class;
///
/// assert_eq!(Class::ArgumentsWider.to_string(), "arguments+");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The definition is new.
    Added,
    /// The definition is gone.
    Removed,
    /// A title or a description reads differently, or a narrower schema says something new.
    Text,
    /// More may be sent: new arguments, more values, fewer requirements.
    ArgumentsWider,
    /// Less may be sent.
    ArgumentsNarrower,
    /// The schema of the result.
    Result,
    /// A hint that asks for more trust, as that the tool only reads.
    HintsLaxer,
    /// A hint that asks for less trust.
    HintsStricter,
    /// Anything else.
    Other,
}

impl Class {
    /// The word for it in reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Text => "text",
            Self::ArgumentsWider => "arguments+",
            Self::ArgumentsNarrower => "arguments-",
            Self::Result => "result",
            Self::HintsLaxer => "hints+",
            Self::HintsStricter => "hints-",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One difference between two forms of a definition.
///
/// ```
/// # fn show(change: &mcp_host::pins::DefinitionChange) {
/// println!("{} at {}: {:?} -> {:?}", change.class, change.path, change.before, change.after);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// What the change does to the definition.
    pub class: Class,
    /// Where it is, as a JSON pointer into the definition; empty for the whole.
    pub path: String,
    /// The old value: text for [`Class::Text`], else canonical JSON. It is shortened and not escaped, so whoever prints
    /// it must escape it.
    pub before: Option<String>,
    /// The new value, in the same form.
    pub after: Option<String>,
}

/// Reports whether all changes reduce what a server may do, so that `tofu` accepts them.
pub(crate) fn is_mild(changes: &[Change]) -> bool {
    let is_mild = |class| matches!(class, Class::Removed | Class::ArgumentsNarrower | Class::HintsStricter);
    changes.iter().all(|change| is_mild(change.class))
}

/// Compares two forms of a definition, or of the instructions as a JSON string. Either may be absent. What `ignore`
/// names is left out on both sides, as in the pins.
pub(crate) fn changes(before: Option<&Raw>, after: Option<&Raw>, ignore: &[Pointer]) -> Vec<Change> {
    let form = |raw: &Raw| String::from_utf8_lossy(&pin::canonical(raw, ignore)).into_owned();
    let (before, after) = (before.map(form), after.map(form));
    let (old, new) = match (&before, &after) {
        (None, None) => return Vec::new(),
        (None, Some(after)) => return vec![Change::of(Class::Added, "", Pair::json(None, Some(after)))],
        (Some(before), None) => return vec![Change::of(Class::Removed, "", Pair::json(Some(before), None))],
        (Some(before), Some(after)) if before == after => return Vec::new(),
        (Some(before), Some(after)) => (before, after),
    };
    let (Some(old_tree), Some(new_tree)) = (Tree::read(old), Tree::read(new)) else {
        return vec![Change::of(Class::Other, "", Pair::json(Some(old), Some(new)))];
    };
    let mut diff = Diff { changes: Vec::new(), known: known(&old_tree) };
    diff.definition(old_tree.root(), new_tree.root());
    diff.changes
}

/// Returns all words of a definition: names of members, and strings.
fn known<'a>(tree: &'a Tree<'_>) -> HashSet<Cow<'a, str>> {
    tree.items().flat_map(|item| [item.key(), item.text()]).flatten().collect()
}

/// The values at the same path in both forms. One of them may be absent.
#[derive(Clone, Copy)]
struct Pair<'a> {
    before: Option<Item<'a>>,
    after: Option<Item<'a>>,
}

impl<'a> Pair<'a> {
    fn is_equal(self) -> bool {
        self.before.map(Item::raw) == self.after.map(Item::raw)
    }

    fn either(self) -> impl Iterator<Item = Item<'a>> {
        self.before.into_iter().chain(self.after)
    }

    fn all(self, is: impl Fn(Item<'a>) -> bool) -> bool {
        self.either().all(is)
    }

    /// Returns the members of both sides, paired by name and in order; `None` if one side has two members of one name.
    /// An absent side has no members.
    fn members(self) -> Option<Vec<(Cow<'a, str>, Self)>> {
        let mut found: Vec<(Cow<'a, str>, Self)> = Vec::new();
        let mut at: HashMap<Cow<'a, str>, usize> = HashMap::new();
        for member in self.before.into_iter().flat_map(Item::children) {
            let name = member.key()?;
            if at.insert(name.clone(), found.len()).is_some() {
                return None;
            }
            found.push((name, Self { before: Some(member), after: None }));
        }
        for member in self.after.into_iter().flat_map(Item::children) {
            let name = member.key()?;
            let known = *at.entry(name.clone()).or_insert(found.len());
            match found.get_mut(known) {
                Some((_, pair)) if pair.after.is_some() => return None,
                Some((_, pair)) => pair.after = Some(member),
                None => found.push((name, Self { before: None, after: Some(member) })),
            }
        }
        Some(found)
    }

    fn json(before: Option<&str>, after: Option<&str>) -> (Option<String>, Option<String>) {
        (before.map(shortened), after.map(shortened))
    }

    fn shown(self, class: Class) -> (Option<String>, Option<String>) {
        if class == Class::Text && self.all(Item::is_text) {
            let text = |side: Option<Item<'a>>| side.and_then(Item::text).map(|text| shortened(&text));
            return (text(self.before), text(self.after));
        }
        Self::json(self.before.map(Item::raw), self.after.map(Item::raw))
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

impl Change {
    fn of(class: Class, path: &str, (before, after): (Option<String>, Option<String>)) -> Self {
        Self { class, path: path.to_owned(), before, after }
    }
}

/// Gathers changes.
struct Diff<'a> {
    changes: Vec<Change>,
    /// The words of the form before.
    known: HashSet<Cow<'a, str>>,
}

impl<'a> Diff<'a> {
    fn add(&mut self, class: Class, path: &str, pair: Pair<'a>) {
        self.changes.push(Change::of(class, path, pair.shown(class)));
    }

    fn definition(&mut self, before: Item<'a>, after: Item<'a>) {
        let pair = Pair { before: Some(before), after: Some(after) };
        if pair.all(Item::is_text) {
            return self.add(Class::Text, "", pair);
        }
        let Some(members) = pair.members().filter(|_| pair.all(Item::is_object)) else {
            return self.add(Class::Other, "", pair);
        };
        for (name, pair) in members {
            let path = joined("", &name);
            match &*name {
                _ if pair.is_equal() => {}
                "title" | "description" => self.add(Class::Text, &path, pair),
                "inputSchema" => self.input(&path, pair),
                "outputSchema" => self.output(&path, pair),
                "annotations" => self.annotations(&path, pair),
                "arguments" => self.arguments(&path, pair),
                _ => self.other(&path, pair, DEEP),
            }
        }
    }

    fn annotations(&mut self, path: &str, pair: Pair<'a>) {
        let Some(members) = pair.members().filter(|_| pair.all(Item::is_object)) else {
            return self.add(Class::Other, path, pair);
        };
        // An object without members says nothing, but it may come and go.
        if members.is_empty() {
            self.add(Class::Other, path, pair);
        }
        for (name, pair) in members.into_iter().filter(|(_, pair)| !pair.is_equal()) {
            let path = joined(path, &name);
            match &*name {
                "title" => self.add(Class::Text, &path, pair),
                "readOnlyHint" | "idempotentHint" => self.hint(&path, pair, "true"),
                "destructiveHint" | "openWorldHint" => self.hint(&path, pair, "false"),
                _ => self.other(&path, pair, DEEP),
            }
        }
    }

    /// Compares a hint. The value `lax` asks for more trust, the opposite for less, and an absent hint is between both.
    fn hint(&mut self, path: &str, pair: Pair<'a>, lax: &str) {
        let trust = |side: Option<Item<'a>>| match side.map(Item::raw) {
            Some(raw) if raw == lax => 2,
            Some("true" | "false") => 0,
            _ => 1,
        };
        let class = match trust(pair.after).cmp(&trust(pair.before)) {
            std::cmp::Ordering::Greater => Class::HintsLaxer,
            std::cmp::Ordering::Less => Class::HintsStricter,
            std::cmp::Ordering::Equal => Class::Other,
        };
        self.add(class, path, pair);
        // A value that is not a boolean may mean anything.
        if class != Class::Other && !pair.all(|side| matches!(side.raw(), "true" | "false")) {
            self.add(Class::Other, path, pair);
        }
    }

    /// Compares the arguments of a prompt, by their names.
    fn arguments(&mut self, path: &str, pair: Pair<'a>) {
        let Some((before, after)) = arguments_of(pair.before).zip(arguments_of(pair.after)) else {
            return self.add(Class::Other, path, pair);
        };
        let count = self.changes.len();
        let find = |list: &[(Cow<'a, str>, Item<'a>)], name: &str| {
            list.iter().find(|(known, _)| known == name).map(|(_, argument)| *argument)
        };
        for (at, (name, argument)) in after.iter().enumerate() {
            let path = joined(path, &at.to_string());
            let pair = Pair { before: find(&before, name), after: Some(*argument) };
            if pair.before.is_none() {
                self.add(Class::ArgumentsWider, &path, pair);
                if argument.member("required").is_some_and(|required| required.raw() == "true") {
                    self.add(Class::ArgumentsNarrower, &path, pair);
                }
            } else if !pair.is_equal() {
                self.argument(&path, pair);
            }
        }
        for (at, (name, argument)) in before.iter().enumerate() {
            if find(&after, name).is_none() {
                let pair = Pair { before: Some(*argument), after: None };
                self.add(Class::ArgumentsNarrower, &joined(path, &at.to_string()), pair);
            }
        }
        if self.changes.len() == count {
            // Only the order changed.
            self.add(Class::Other, path, pair);
        }
    }

    fn argument(&mut self, path: &str, pair: Pair<'a>) {
        let Some(members) = pair.members() else { return self.add(Class::Other, path, pair) };
        for (name, pair) in members.into_iter().filter(|(_, pair)| !pair.is_equal()) {
            let path = joined(path, &name);
            let is_required = |side: Option<Item<'a>>| side.is_some_and(|side| side.raw() == "true");
            match &*name {
                "title" | "description" => self.add(Class::Text, &path, pair),
                "required" if is_required(pair.before) && pair.all(|side| matches!(side.raw(), "true" | "false")) => {
                    self.add(Class::ArgumentsWider, &path, pair);
                }
                "required" if is_required(pair.after) && pair.all(|side| matches!(side.raw(), "true" | "false")) => {
                    self.add(Class::ArgumentsNarrower, &path, pair);
                }
                _ => self.other(&path, pair, DEEP),
            }
        }
    }

    /// Compares values that mean nothing to mcp-host, as deep as both sides have objects or arrays of one length.
    fn other(&mut self, path: &str, pair: Pair<'a>, deep: usize) {
        if pair.is_equal() {
            return;
        }
        let (Some(before), Some(after)) = (pair.before, pair.after) else { return self.add(Class::Other, path, pair) };
        if deep > 0 && pair.all(Item::is_object) {
            if let Some(members) = pair.members() {
                return members.iter().for_each(|(name, pair)| self.other(&joined(path, name), *pair, deep - 1));
            }
        } else if deep > 0 && pair.all(Item::is_array) && before.children().count() == after.children().count() {
            for (at, (before, after)) in before.children().zip(after.children()).enumerate() {
                let pair = Pair { before: Some(before), after: Some(after) };
                self.other(&joined(path, &at.to_string()), pair, deep - 1);
            }
            return;
        }
        self.add(Class::Other, path, pair);
    }
}

/// Returns the arguments of a prompt by name; `None` if the list is malformed. An absent list counts as empty.
fn arguments_of(list: Option<Item<'_>>) -> Option<Vec<(Cow<'_, str>, Item<'_>)>> {
    let Some(list) = list else { return Some(Vec::new()) };
    if !list.is_array() {
        return None;
    }
    let mut names = HashSet::new();
    list.children()
        .map(|argument| {
            let name = argument.member("name")?.text()?;
            names.insert(name.clone()).then_some((name, argument))
        })
        .collect()
}
