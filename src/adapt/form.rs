//! Forms for clients of 2025-06-18: a titled choice becomes `enum` with `enumNames`, and a multiple choice becomes one
//! switch (a boolean field) per value.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::grown;
use crate::protocol::value::{array, member, string, text};
use crate::protocol::{Edits, Raw, object};

/// The error that a form cannot be shown to older clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unfit;

/// A multiple-choice field, and the switches that replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    field: String,
    /// The name of each switch, and the value (JSON) that it stands for.
    switches: Vec<(String, Raw)>,
    /// Whether the field must be left out of the answer if no value is chosen, rather than be empty.
    never_empty: bool,
}

/// The most values of a multiple choice; a form with more is refused.
const SWITCHES: usize = 64;
/// How many beginnings are tried for the names of a field's switches.
const STEMS: usize = 16;

/// Rewrites an elicitation for a client of 2025-06-18. Also returns the fields whose answers arrive as switches.
///
/// # Errors
/// When the form cannot be expressed.
pub(super) fn lowered(params: &Raw) -> Result<(Raw, Vec<Choice>), Unfit> {
    let mut choices = Vec::new();
    let Some(schema) = params.value_of("requestedSchema") else { return Ok((params.clone(), choices)) };
    let Some(properties) = member(schema, "properties") else { return Ok((params.clone(), choices)) };
    let fields = object(properties).ok_or(Unfit)?;
    let names: HashSet<&str> = fields.iter().map(|(name, _)| &**name).collect();
    let mut out: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::with_capacity(fields.len());
    let mut room = grown(params.as_bytes().len());
    for (name, field) in &fields {
        match text(field, "type").as_deref() {
            Some("array") => {
                let (choice, switches) = split(name, field, &names, &mut room).ok_or(Unfit)?;
                out.extend(choice.switches.iter().map(|(name, _)| Cow::Owned(name.clone())).zip(switches));
                choices.push(choice);
            }
            Some("object") => return Err(Unfit),
            kind => out.push((name.clone(), single(field, kind)?)),
        }
    }
    let mut edits = Edits::new(params);
    if out.iter().any(|(_, field)| matches!(field, Cow::Owned(_))) {
        let members: Vec<String> =
            out.iter().map(|(name, field)| format!("{}:{field}", Raw::from_value(name))).collect();
        edits.replace(properties, format!("{{{}}}", members.join(",")).into_bytes());
    }
    if let Some(required) = member(schema, "required").filter(|_| !choices.is_empty()) {
        let parted: HashSet<&str> = choices.iter().map(|choice| &*choice.field).collect();
        let is_whole = |name: &&RawValue| !string(name).is_some_and(|name| parted.contains(&*name));
        let kept: Vec<&str> =
            array(required).unwrap_or_default().into_iter().filter(is_whole).map(RawValue::get).collect();
        edits.replace(required, format!("[{}]", kept.join(",")).into_bytes());
    }
    Ok((edits.apply(), choices))
}

/// Rewrites a field with a single value: a titled choice becomes `enum` with `enumNames`, and only a boolean keeps its
/// default.
fn single<'a>(field: &'a RawValue, kind: Option<&str>) -> Result<Cow<'a, str>, Unfit> {
    let titled = member(field, "oneOf").or_else(|| member(field, "anyOf"));
    let has_default = kind != Some("boolean") && member(field, "default").is_some();
    if titled.is_none() && !has_default {
        return Ok(Cow::Borrowed(field.get()));
    }
    let source = Raw::from_value(field);
    let root = source.as_value();
    let mut edits = Edits::new(&source);
    if has_default {
        edits.remove(root, "default");
    }
    if let Some(titled) = titled {
        let values = options(titled).ok_or(Unfit)?;
        let join = |parts: Vec<&str>| format!("[{}]", parts.join(","));
        let titles: Vec<Raw> = values.iter().map(|(_, title)| Raw::from_value(title)).collect();
        edits.remove(root, "oneOf");
        edits.remove(root, "anyOf");
        edits.set(root, "enum", join(values.iter().map(|(value, _)| value.as_str()).collect()).as_bytes());
        edits.set(root, "enumNames", join(titles.iter().map(Raw::as_str).collect()).as_bytes());
    }
    Ok(Cow::Owned(edits.apply().to_string()))
}

/// Replaces a multiple-choice field with switches whose names are free in the form. `None` if that is impossible, or
/// takes more than the remaining `room` in bytes.
fn split<'a>(
    name: &str,
    field: &RawValue,
    names: &HashSet<&str>,
    room: &mut usize,
) -> Option<(Choice, Vec<Cow<'a, str>>)> {
    let items = member(field, "items")?;
    let titled = member(items, "anyOf").or_else(|| member(items, "oneOf"));
    let values = options(titled.or_else(|| member(items, "enum"))?)?;
    if values.is_empty() || values.len() > SWITCHES {
        return None;
    }
    let chosen = member(field, "default").and_then(array).unwrap_or_default();
    let chosen: HashSet<Cow<'_, str>> = chosen.into_iter().filter_map(string).collect();
    let is_chosen = |value: &Raw| value.string().is_some_and(|value| chosen.contains(&value));
    let heading = text(field, "title").unwrap_or(Cow::Borrowed(name));
    let description = text(field, "description").map(Cow::into_owned);
    // Each switch repeats the name, the title, and the description.
    let said = name.len() + heading.len() + description.as_ref().map_or(0, String::len);
    *room = room.checked_sub(values.len() * said)?;
    let is_free = |stem: &String| (0..values.len()).all(|index| !names.contains(&*format!("{stem}{index}")));
    let stem = (2..STEMS).map(|length| format!("{name}{}", "_".repeat(length))).find(is_free)?;
    let mut switches = Vec::with_capacity(values.len());
    let mut shown = Vec::with_capacity(values.len());
    for (index, (value, title)) in values.into_iter().enumerate() {
        let mut switch = serde_json::json!({ "type": "boolean", "title": format!("{heading}: {title}") });
        if let Some(description) = &description {
            switch["description"] = description.as_str().into();
        }
        if is_chosen(&value) {
            switch["default"] = true.into();
        }
        switches.push((format!("{stem}{index}"), value));
        shown.push(Cow::Owned(switch.to_string()));
    }
    let never_empty = member(field, "minItems").is_some_and(|least| least.get() != "0");
    Some((Choice { field: name.to_owned(), switches, never_empty }, shown))
}

/// Returns the values of an `enum`, or of a list of `const` with `title`, each with its label; `None` if not all are
/// strings.
fn options(list: &RawValue) -> Option<Vec<(Raw, String)>> {
    array(list)?
        .into_iter()
        .map(|item| {
            let value = if item.get().starts_with('{') { member(item, "const")? } else { item };
            let own = string(value)?;
            let title = text(item, "title").unwrap_or_else(|| own.clone()).into_owned();
            Some((Raw::from_value(value), title))
        })
        .collect()
}

/// Gathers the switches in the answer to a form back into the fields that they replaced, and returns that answer.
pub(super) fn gathered(answer: Raw, choices: &[Choice]) -> Raw {
    let Some(content) = answer.value_of("content").filter(|_| answer.text("action").as_deref() == Some("accept"))
    else {
        return answer;
    };
    let Some(members) = object(content) else { return answer };
    let switches: HashSet<&str> =
        choices.iter().flat_map(|choice| &choice.switches).map(|(switch, _)| &**switch).collect();
    let on: HashSet<&str> = members.iter().filter(|(_, value)| value.get() == "true").map(|(key, _)| &**key).collect();
    let kept = members.iter().filter(|(key, _)| !switches.contains(&**key));
    let mut out: Vec<String> =
        kept.map(|(key, value)| format!("{}:{}", Raw::from_value(&**key), value.get())).collect();
    for choice in choices {
        let on = choice.switches.iter().filter(|(switch, _)| on.contains(&**switch));
        let values: Vec<&str> = on.map(|(_, value)| value.as_str()).collect();
        if !values.is_empty() || !choice.never_empty {
            out.push(format!("{}:[{}]", Raw::from_value(&choice.field), values.join(",")));
        }
    }
    answer.with_member("content", format!("{{{}}}", out.join(",")).as_bytes())
}
