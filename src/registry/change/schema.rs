//! Compares schemas: which arguments become possible, and which no longer are.
//!
//! Each keyword says either what is allowed or what is demanded, so each change of it is wider, narrower, or both. A
//! keyword whose effect depends on others counts as both. A narrower schema is mild only if it says nothing new: a new
//! list of values is narrower than none, and still has texts that a model reads.

use std::collections::HashSet;

use super::{Class, DEEP, Diff, Item, Pair, joined};

/// Keywords that people and models read.
const TEXTS: [&str; 4] = ["title", "description", "$comment", "examples"];
/// Keywords whose greater values allow less.
const LEAST: [&str; 6] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"];
/// Keywords whose greater values allow more.
const MOST: [&str; 6] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"];
/// Keywords whose value is a schema for anything else. Without the keyword, everything is allowed.
const INNER: [&str; 8] = [
    "additionalProperties",
    "unevaluatedProperties",
    "additionalItems",
    "unevaluatedItems",
    "items",
    "contains",
    "propertyNames",
    "contentSchema",
];
/// Keywords that demand something, but for which no value demands more than another.
const DEMANDS: [&str; 7] = ["const", "pattern", "format", "multipleOf", "contentEncoding", "contentMediaType", "not"];
/// Keywords whose effect depends on others.
const INVOLVED: [&str; 10] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentSchemas",
    "dependentRequired",
    "patternProperties",
];
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

impl<'a> Diff<'a> {
    /// Compares the input schemas of a tool.
    pub(super) fn input(&mut self, path: &str, pair: Pair<'a>) {
        let count = self.changes.len();
        self.schema(path, pair, DEEP);
        if self.changes.len() == count && !pair.is_equal() {
            self.add(Class::Other, path, pair);
        }
    }

    /// Compares the output schemas of a tool: texts, and everything else.
    pub(super) fn output(&mut self, path: &str, pair: Pair<'a>) {
        self.result(path, pair, DEEP, true);
    }

    /// Compares a part of an output schema. The members of a schema are keywords, those inside of `properties` are not.
    fn result(&mut self, path: &str, pair: Pair<'a>, deep: usize, is_schema: bool) {
        let is_one = pair.before.is_some() && pair.after.is_some() && pair.all(Item::is_object);
        let Some(members) = pair.members().filter(|_| is_one && deep > 0) else {
            return self.add(Class::Result, path, pair);
        };
        for (name, pair) in members.into_iter().filter(|(_, pair)| !pair.is_equal()) {
            let path = joined(path, &name);
            if is_schema && TEXTS.contains(&&*name) {
                self.add(Class::Text, &path, pair);
            } else {
                let holds_names = is_schema && matches!(&*name, "properties" | "$defs" | "definitions");
                self.result(&path, pair, deep - 1, !holds_names);
            }
        }
    }

    fn wider(&mut self, path: &str, pair: Pair<'a>) {
        self.add(Class::ArgumentsWider, path, pair);
    }

    fn narrower(&mut self, path: &str, pair: Pair<'a>) {
        self.add(Class::ArgumentsNarrower, path, pair);
        if pair.after.is_some_and(|after| self.says_new(after)) {
            self.add(Class::Text, path, pair);
        }
    }

    fn both(&mut self, path: &str, pair: Pair<'a>) {
        self.wider(path, pair);
        self.narrower(path, pair);
    }

    /// Reports whether a value has a word that the form before did not have anywhere.
    fn says_new(&self, value: Item<'a>) -> bool {
        let is_new = |word: &str| {
            let is_keyword = [&TEXTS[..], &LEAST, &MOST, &INNER, &DEMANDS, &INVOLVED, &TYPES].concat().contains(&word);
            !is_keyword && !self.known.contains(word)
        };
        let end = value.at() + value.count();
        (value.at()..end).map(|at| value.beside(at)).any(|inner| {
            let key = inner.key().filter(|_| inner.at() != value.at());
            key.is_some_and(|key| is_new(&key)) || inner.text().is_some_and(|text| is_new(&text))
        })
    }

    /// Compares two schemas. An absent one allows everything, like `true`.
    fn schema(&mut self, path: &str, pair: Pair<'a>, deep: usize) {
        if pair.is_equal() {
            return;
        }
        let is_none = |side: Option<Item<'a>>| side.is_some_and(|side| side.raw() == "false");
        let is_all = |side: Option<Item<'a>>| side.is_none_or(|side| matches!(side.raw(), "true" | "{}"));
        match pair {
            Pair { before, after } if is_none(before) && !is_none(after) => self.wider(path, pair),
            Pair { before, after } if is_none(after) && !is_none(before) => self.narrower(path, pair),
            // Both sides allow everything, in different spelling.
            Pair { before, after } if is_all(before) && is_all(after) => self.add(Class::Other, path, pair),
            _ => {
                // `true` has no members, as `{}`.
                let is_open = |side: Item<'a>| side.is_object() || side.raw() == "true";
                match pair.members().filter(|_| deep > 0 && pair.all(is_open)) {
                    Some(members) => {
                        for (keyword, pair) in members.into_iter().filter(|(_, pair)| !pair.is_equal()) {
                            self.keyword(&keyword, &joined(path, &keyword), pair, deep - 1);
                        }
                    }
                    None => self.both(path, pair),
                }
            }
        }
    }

    fn keyword(&mut self, keyword: &str, path: &str, pair: Pair<'a>, deep: usize) {
        match keyword {
            _ if TEXTS.contains(&keyword) => self.add(Class::Text, path, pair),
            "properties" | "$defs" | "definitions" => self.properties(path, pair, deep),
            "required" => self.set(path, pair, Sense::Demands),
            "enum" => self.set(path, pair, Sense::Allows),
            "type" => self.types(path, pair),
            "uniqueItems" => self.flag(path, pair),
            _ if LEAST.contains(&keyword) => self.bound(path, pair, Sense::Demands),
            _ if MOST.contains(&keyword) => self.bound(path, pair, Sense::Allows),
            "items" if !pair.all(|side| !side.is_array()) => self.tuple(path, pair, deep),
            "prefixItems" => self.tuple(path, pair, deep),
            _ if INNER.contains(&keyword) => self.schema(path, pair, deep),
            "anyOf" | "oneOf" => self.alternatives(path, pair, deep, Sense::Allows),
            "allOf" => self.alternatives(path, pair, deep, Sense::Demands),
            _ if DEMANDS.contains(&keyword) => self.demand(path, pair),
            _ if INVOLVED.contains(&keyword) => self.both(path, pair),
            _ => self.other(path, pair, deep),
        }
    }

    fn properties(&mut self, path: &str, pair: Pair<'a>, deep: usize) {
        let Some(members) = pair.members().filter(|_| pair.all(Item::is_object)) else { return self.both(path, pair) };
        // Neither side has any member.
        if members.is_empty() {
            self.add(Class::Other, path, pair);
        }
        for (name, pair) in members.into_iter().filter(|(_, pair)| !pair.is_equal()) {
            let path = joined(path, &name);
            match (pair.before, pair.after) {
                (None, _) => self.wider(&path, pair),
                (_, None) => self.narrower(&path, pair),
                _ => self.schema(&path, pair, deep),
            }
        }
    }

    /// Compares lists whose order means nothing.
    fn set(&mut self, path: &str, pair: Pair<'a>, sense: Sense) {
        if !pair.all(Item::is_array) {
            return self.both(path, pair);
        }
        let values = |side: Option<Item<'a>>| side.map(|side| side.children().map(Item::raw).collect::<HashSet<_>>());
        let (before, after) = (values(pair.before), values(pair.after));
        let (more, less) = match (&before, &after) {
            // Without a list of values everything is allowed; without a list of demands nothing is demanded.
            (None, Some(after)) if sense == Sense::Demands => (!after.is_empty(), false),
            (Some(before), None) if sense == Sense::Demands => (false, !before.is_empty()),
            (Some(before), Some(after)) => (!after.is_subset(before), !before.is_subset(after)),
            (before, after) => (after.is_none(), before.is_none()),
        };
        self.tell(path, pair, sense, (more, less));
    }

    /// Adds the change that more or less of something means. If neither changed, only the order or the spelling did.
    fn tell(&mut self, path: &str, pair: Pair<'a>, sense: Sense, (more, less): (bool, bool)) {
        let (wider, narrower) = if sense == Sense::Allows { (more, less) } else { (less, more) };
        if wider {
            self.wider(path, pair);
        }
        if narrower {
            self.narrower(path, pair);
        }
        if !wider && !narrower {
            self.add(Class::Other, path, pair);
        }
    }

    fn types(&mut self, path: &str, pair: Pair<'a>) {
        let (before, after) = (types(pair.before), types(pair.after));
        let (Some(before), Some(after)) = (before, after) else { return self.both(path, pair) };
        self.tell(path, pair, Sense::Allows, (!after.is_subset(&before), !before.is_subset(&after)));
    }

    fn flag(&mut self, path: &str, pair: Pair<'a>) {
        let is_set = |side: Option<Item<'a>>| side.is_some_and(|side| side.raw() == "true");
        let (before, after) = (is_set(pair.before), is_set(pair.after));
        self.tell(path, pair, Sense::Demands, (after && !before, before && !after));
    }

    /// Compares limits. No limit allows everything.
    fn bound(&mut self, path: &str, pair: Pair<'a>, sense: Sense) {
        let number = |side: Option<Item<'a>>| side.map(|side| side.raw().parse::<f64>());
        let (more, less) = match (number(pair.before), number(pair.after)) {
            (Some(Ok(before)), Some(Ok(after))) if before != after => (after > before, after < before),
            (None, Some(Ok(_))) => (sense == Sense::Demands, sense == Sense::Allows),
            (Some(Ok(_)), None) => (sense == Sense::Allows, sense == Sense::Demands),
            // The flags of older drafts, and numbers that no double tells apart.
            _ => (true, true),
        };
        self.tell(path, pair, sense, (more, less));
    }

    fn demand(&mut self, path: &str, pair: Pair<'a>) {
        match (pair.before, pair.after) {
            (None, _) => self.narrower(path, pair),
            (_, None) => self.wider(path, pair),
            _ => self.both(path, pair),
        }
    }

    /// Compares schemas by position.
    fn tuple(&mut self, path: &str, pair: Pair<'a>, deep: usize) {
        let count = |side: Option<Item<'a>>| side.map(|side| side.children().count());
        match pair {
            Pair { before: Some(before), after: Some(after) }
                if pair.all(Item::is_array) && count(pair.before) == count(pair.after) =>
            {
                for (at, (before, after)) in before.children().zip(after.children()).enumerate() {
                    let pair = Pair { before: Some(before), after: Some(after) };
                    self.schema(&joined(path, &at.to_string()), pair, deep);
                }
            }
            _ => self.both(path, pair),
        }
    }

    /// Compares schemas of which one or all must hold. Those that only one side has are compared in pairs if the other
    /// side has as many.
    fn alternatives(&mut self, path: &str, pair: Pair<'a>, deep: usize, sense: Sense) {
        let (Some(before), Some(after)) = (pair.before, pair.after) else {
            // A list of alternatives that comes or goes is a demand, too.
            return self.demand(path, pair);
        };
        if !pair.all(Item::is_array) {
            return self.both(path, pair);
        }
        let only = |one: Item<'a>, other: Item<'a>| -> Vec<_> {
            let others: HashSet<_> = other.children().map(Item::raw).collect();
            one.children().enumerate().filter(|(_, item)| !others.contains(item.raw())).collect()
        };
        let (gone, new) = (only(before, after), only(after, before));
        if gone.is_empty() || gone.len() != new.len() {
            return self.tell(path, pair, sense, (!new.is_empty(), !gone.is_empty()));
        }
        for ((_, before), (at, after)) in gone.into_iter().zip(new) {
            let pair = Pair { before: Some(before), after: Some(after) };
            self.schema(&joined(path, &at.to_string()), pair, deep);
        }
    }
}

/// Whether more of something allows more, or demands more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sense {
    Allows,
    Demands,
}

/// Returns the types that a schema allows; `None` if it names unknown types.
fn types(side: Option<Item<'_>>) -> Option<HashSet<&'static str>> {
    let Some(side) = side else { return Some(TYPES.into()) };
    let names: Vec<_> = if side.is_array() { side.children().collect() } else { vec![side] };
    let mut found = HashSet::new();
    for name in names {
        let name = name.text()?;
        found.insert(*TYPES.iter().find(|known| **known == name)?);
        if name == "number" {
            found.insert("integer");
        }
    }
    Some(found)
}
