//! Describes a tool: the texts that are searched, and the line that a search shows.

use std::borrow::Cow;
use std::mem;

use serde_json::value::RawValue;

use super::super::entry::Entry;
use crate::protocol::{Nested, Raw, Theirs, object};

/// How much of a description is searched, in bytes.
pub(super) const DESCRIPTION: usize = 4096;
/// How many arguments of a tool are searched.
const ARGUMENTS: usize = 64;
/// How many arguments a line shows.
const SHOWN: usize = 8;
/// How many characters of a first sentence a line shows.
const SENTENCE: usize = 110;
/// How many characters of an argument's name, and of its type, a line shows.
const WORD: usize = 64;

/// The fields of a tool.
pub(super) const FIELDS: usize = 6;
const NAME: usize = 0;
/// The first sentence of the description.
const FIRST: usize = 1;
/// The server's alias.
const SERVER: usize = 2;
/// The rest of the description.
const REST: usize = 3;
/// The names of the arguments.
const ARGUMENT: usize = 4;
/// What is said of the arguments.
const SAID_OF_ARGUMENT: usize = 5;

/// How much of a tool is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Its name and the first sentence of its description.
    Brief,
    /// The arguments as well.
    Signature,
    /// The name and the whole description, beside the input schema.
    Schema,
}

/// Gives away the texts of a tool that are searched, each with the index of its field.
pub(super) fn texts(entry: &Entry, mut give: impl FnMut(usize, &str)) {
    // Of members that occur twice, the first one counts.
    let (mut title, mut description, mut has_schema, mut of_arguments) = (None, None, false, Vec::new());
    Nested::read(entry.source_json(), |definition| {
        definition.members(|name, value| match &*name {
            "title" if title.is_none() => title = Some(value.text()),
            "description" if description.is_none() => description = Some(value.text()),
            "inputSchema" if !mem::replace(&mut has_schema, true) => arguments(value, &mut of_arguments),
            _ => {}
        });
    });
    let [title, description] = [title, description].map(|text| text.flatten().unwrap_or_default());
    let (first, rest) = sentence(cut(&description, DESCRIPTION));
    give(NAME, entry.raw_name());
    give(FIRST, &title);
    give(FIRST, first);
    give(SERVER, entry.server().as_str());
    give(REST, rest);
    for (field, text) in &of_arguments {
        give(*field, if *field == SAID_OF_ARGUMENT { cut(text, DESCRIPTION) } else { text });
    }
}

/// Reads the arguments of a schema: their names, what is said of each, and the names inside.
fn arguments<'a>(schema: Nested<'_, 'a>, found: &mut Vec<(usize, Cow<'a, str>)>) {
    properties_of(schema, |name, property| {
        found.push((ARGUMENT, name));
        let (at, mut about, mut is_read) = (found.len(), None, false);
        property.members(|name, value| match &*name {
            "description" if about.is_none() => about = Some(value.text()),
            // Some tools take all their arguments inside one.
            "properties" if !mem::replace(&mut is_read, true) => some(value, |name, _| found.push((ARGUMENT, name))),
            _ => {}
        });
        if let Some(about) = about.flatten() {
            found.insert(at, (SAID_OF_ARGUMENT, about));
        }
    });
}

/// Passes the properties of a schema to `give`, in order.
fn properties_of<'a>(schema: Nested<'_, 'a>, mut give: impl FnMut(Cow<'a, str>, Nested<'_, 'a>)) {
    let mut is_read = false;
    schema.members(|name, value| {
        if name == "properties" && !mem::replace(&mut is_read, true) {
            some(value, &mut give);
        }
    });
}

/// Gives away as many members of an object as count.
fn some<'a>(object: Nested<'_, 'a>, mut give: impl FnMut(Cow<'a, str>, Nested<'_, 'a>)) {
    let mut left = ARGUMENTS;
    object.members(|name, value| {
        if let Some(after) = left.checked_sub(1) {
            left = after;
            give(name, value);
        }
    });
}

/// Returns one line about a tool: `github__search(q: string, limit?: int) - First sentence.`
pub(crate) fn described(entry: &Entry, detail: Detail) -> String {
    let (signature, about) = parts(entry, detail);
    let mut line = format!("{}{signature}", entry.name());
    if !about.is_empty() {
        line += " - ";
        line += &about;
    }
    line
}

/// Returns the same description as an object, for clients that give their model only `structuredContent`.
pub(crate) fn structured(entry: &Entry, detail: Detail) -> Raw {
    let (arguments, about) = parts(entry, detail);
    let members = [("name", entry.name()), ("arguments", &*arguments), ("about", &*about)];
    let given = members.into_iter().filter(|(_, text)| !text.is_empty());
    given.fold(Raw::empty_object(), |tool, (name, text)| tool.with_member(name, Raw::from_value(text).as_bytes()))
}

/// Returns the arguments of a tool, if they are wanted, and its purpose.
fn parts(entry: &Entry, detail: Detail) -> (String, String) {
    let definition = &entry.source().json;
    let signature = if detail == Detail::Signature { signature(definition) } else { String::new() };
    let description = definition.text("description").unwrap_or_default();
    let description = cut(&description, DESCRIPTION);
    let about = if detail == Detail::Schema { description } else { sentence(description).0 };
    let about: String = about.split_whitespace().collect::<Vec<_>>().join(" ");
    match about.char_indices().nth(SENTENCE).filter(|_| detail != Detail::Schema) {
        Some((end, _)) => (signature, format!("{}…", &about[..end])),
        None => (signature, about),
    }
}

/// Returns the arguments in one line, required ones first.
fn signature(definition: &Raw) -> String {
    let Some(schema) = definition.member("inputSchema") else { return "()".to_owned() };
    let required: Vec<String> = schema.member("required").and_then(|names| names.read().ok()).unwrap_or_default();
    let (mut first, mut then) = (Vec::new(), Vec::new());
    let mut count = 0_usize;
    properties(&schema, |name, property| {
        count += 1;
        let (kind, argument) = (shown(&kind(&Raw::part(schema.bytes(), property))), shown(name));
        match required.iter().any(|other| other == name) {
            true => first.push(format!("{argument}: {kind}")),
            false => then.push(format!("{argument}?: {kind}")),
        }
    });
    // A caller has to know all required arguments.
    let optional = SHOWN.saturating_sub(first.len());
    then.truncate(optional);
    let left_out = count - first.len() - then.len();
    let more = (left_out > 0).then(|| "…".to_owned());
    let all: Vec<String> = first.into_iter().chain(then).chain(more).collect();
    format!("({})", all.join(", "))
}

/// Returns a server's word for use in one line, so that no server can start another line or make the line endless.
fn shown(word: &str) -> String {
    match word.char_indices().nth(WORD) {
        Some((end, _)) => format!("{}…", Theirs(&word[..end])),
        None => Theirs(word).to_string(),
    }
}

/// Returns a short word for the type of an argument.
fn kind(property: &Raw) -> String {
    let [kind, choice, items] = property.members(["type", "enum", "items"]);
    if let Some(words) = choice.and_then(|choice| choice.read::<Vec<String>>().ok())
        && (1..=5).contains(&words.len())
        && words.iter().map(String::len).sum::<usize>() <= 40
    {
        return words.join("|");
    }
    let name = kind.as_ref().and_then(Raw::string).unwrap_or_default();
    match &*name {
        "integer" => "int".to_owned(),
        "boolean" => "bool".to_owned(),
        "array" => {
            let of = items.and_then(|items| items.text("type"));
            of.map_or_else(|| "array".to_owned(), |of| format!("{}[]", if of == "integer" { "int" } else { &of }))
        }
        "" => "any".to_owned(),
        other => other.to_owned(),
    }
}

/// Gives away the properties of a schema, in order.
pub(super) fn properties(schema: &Raw, mut give: impl FnMut(&str, &RawValue)) {
    let Some(properties) = schema.value_of("properties") else { return };
    for (name, property) in object(properties).unwrap_or_default().into_iter().take(ARGUMENTS) {
        let name: Cow<'_, str> = name;
        give(&name, property);
    }
}

/// Splits a text behind its first sentence, or its first line.
pub(super) fn sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.match_indices(['.', '!', '?', '\n', '。']).find_map(|(at, mark)| {
        let after = at + mark.len();
        let ends = mark == "\n" || mark == "。" || text[after..].starts_with(char::is_whitespace);
        // `e.g. this` goes on.
        let goes_on = ["e.g.", "i.e.", "etc.", "vs."].iter().any(|short| text[..after].ends_with(short));
        (ends && !goes_on).then_some(after)
    });
    text.split_at(end.unwrap_or(text.len()))
}

/// Returns the start of a text, of at most this many bytes.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sentence_ends_where_another_can_begin() {
        assert_eq!(
            sentence("Reads v1.2 files, e.g. these. Then stops."),
            ("Reads v1.2 files, e.g. these.", " Then stops.")
        );
        assert_eq!(sentence("one\ntwo"), ("one\n", "two"));
        assert_eq!(sentence(""), ("", ""));
    }

    proptest! {
        #[test]
        fn no_text_is_lost_between_sentences(text in "\\PC{0,40}", most in 0_usize..50) {
            let trimmed = text.trim_start();
            let (first, rest) = sentence(&text);
            prop_assert_eq!(format!("{first}{rest}"), trimmed);
            prop_assert!(cut(&text, most).len() <= most);
        }
    }
}
