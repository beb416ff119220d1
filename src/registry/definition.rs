//! Checks and repairs one definition of a list, and finds the positions where the catalog will write other names into
//! it.
//!
//! Some clients refuse a whole list over one bad entry, so a definition leaves here in a form that all clients accept,
//! or not at all. A valid definition keeps every byte. `schema.rs` handles the schemas of tools.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::header::{self, ParamHeader, ParamHeaders};
use super::{Caps, Kind, schema, text};
use crate::protocol::value::{array, member, string, twice};
use crate::protocol::{Edits, Raw, meta, object, ours, quoted};

/// A definition that may be shown.
#[derive(Debug)]
pub(super) struct Checked {
    /// The server's own name for it.
    pub(super) name: String,
    /// The definition, repaired.
    pub(super) json: Raw,
    /// What was repaired.
    pub(super) mends: Vec<Cow<'static, str>>,
    /// The position of the name in `json`.
    pub(super) name_at: Range<u32>,
    /// The positions of links to user interfaces in `json`, in order.
    pub(super) links: Vec<(Range<u32>, String)>,
    /// The arguments that are also sent as HTTP headers.
    pub(super) headers: Vec<ParamHeader>,
}

/// The name of a definition that is left out, if it could be read, and why it is left out.
pub(super) type Dropped = (Option<String>, Cow<'static, str>);

/// The type of a member, recognized by its first byte.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Object,
    Array,
    Number,
    Bool,
}

impl Shape {
    fn fits(self, value: &RawValue) -> bool {
        let first = value.get().as_bytes().first().copied().unwrap_or_default();
        match self {
            Self::Text => first == b'"',
            Self::Object => first == b'{',
            Self::Array => first == b'[',
            Self::Number => first == b'-' || first.is_ascii_digit(),
            Self::Bool => matches!(first, b't' | b'f'),
        }
    }
}

type Table = [(&'static str, Shape)];

const TITLE: (&str, Shape) = ("title", Shape::Text);
const DESCRIPTION: (&str, Shape) = ("description", Shape::Text);
const MIME_TYPE: (&str, Shape) = ("mimeType", Shape::Text);
const ANNOTATIONS: (&str, Shape) = ("annotations", Shape::Object);
const ICONS: (&str, Shape) = ("icons", Shape::Array);
const META: (&str, Shape) = ("_meta", Shape::Object);

/// Returns the optional members that clients know, by kind.
const fn optional(kind: Kind) -> &'static Table {
    match kind {
        Kind::Tools => &[
            TITLE,
            DESCRIPTION,
            ANNOTATIONS,
            ICONS,
            META,
            ("outputSchema", Shape::Object),
            ("execution", Shape::Object),
        ],
        Kind::Prompts => &[TITLE, DESCRIPTION, ICONS, META, ("arguments", Shape::Array)],
        Kind::Resources => &[TITLE, DESCRIPTION, MIME_TYPE, ANNOTATIONS, ICONS, META, ("size", Shape::Number)],
        Kind::ResourceTemplates => &[TITLE, DESCRIPTION, MIME_TYPE, ANNOTATIONS, ICONS, META],
    }
}

const TOOL_ANNOTATIONS: &Table = &[
    TITLE,
    ("readOnlyHint", Shape::Bool),
    ("destructiveHint", Shape::Bool),
    ("idempotentHint", Shape::Bool),
    ("openWorldHint", Shape::Bool),
];
const RESOURCE_ANNOTATIONS: &Table =
    &[("audience", Shape::Array), ("priority", Shape::Number), ("lastModified", Shape::Text)];
const ARGUMENT: &Table = &[TITLE, DESCRIPTION, ("required", Shape::Bool)];

/// A member to replace or to remove.
struct Patch {
    member: &'static str,
    value: Option<Vec<u8>>,
    why: Cow<'static, str>,
}

/// Checks the definition `value`, a part of `page`.
pub(super) fn check(
    kind: Kind,
    value: &RawValue,
    page: &Bytes,
    caps: &Caps,
    rule: ParamHeaders,
) -> Result<Checked, Dropped> {
    let (clean, cleared);
    let named = |name: Option<&RawValue>| match name.and_then(string).filter(|name| !name.is_empty()) {
        Some(name) => Ok(name.into_owned()),
        None => Err((None, format!("has no `{}`", kind.key()).into())),
    };
    let length = value.get().len();
    if length > caps.definition && Shape::Object.fits(value) {
        // It may be a whole page, so only its name is read.
        let name = named(member(value, kind.key()))?;
        return Err((Some(name), format!("is {length} bytes long, more than {}", caps.definition).into()));
    }
    let Some(mut members) = object(value) else { return Err((None, "is not an object".into())) };
    let name = named(find(&members, kind.key()))?;
    let scan = text::scan(value.get().as_bytes());
    if scan.depth > caps.depth {
        return Err((Some(name), format!("nests {} deep, more than {}", scan.depth, caps.depth).into()));
    }
    let mut mends = Vec::new();
    let mut json = Raw::part(page, value);
    if scan.hidden {
        clean = Raw::trusted(text::stripped(value.get().as_bytes()).into());
        mends.push("control or invisible characters removed".into());
        members = object(clean.as_value()).unwrap_or_default();
        json = clean.clone();
    }
    let own = ours::head(json.clone(), &[meta::HOST_PATH]);
    if own.as_bytes().len() < json.as_bytes().len() {
        cleared = own;
        mends.push("members of `_meta` that only the host may write: left out".into());
        members = object(cleared.as_value()).unwrap_or_default();
        json = cleared.clone();
    }
    let patches = match patches(kind, &name, &members) {
        Ok(patches) => patches,
        Err(reason) => return Err((Some(name), reason)),
    };
    let mut has_links = find(&members, "_meta").is_some();
    let mut name_at = spot(&json, find(&members, kind.key()));
    for patch in patches {
        json = match &patch.value {
            Some(value) => json.with_member(patch.member, value),
            None => json.without_member(patch.member),
        };
        has_links &= patch.member != "_meta";
        mends.push(patch.why);
        name_at = None;
    }
    let mut headers = Vec::new();
    if kind == Kind::Tools && header::is_in(&json) {
        (json, headers) =
            header::take(&json, rule, caps.annotations).map_err(|reason| (Some(name.clone()), reason.into()))?;
        name_at = None;
    }
    let Some(name_at) = name_at.or_else(|| spot(&json, json.value_of(kind.key()))) else {
        return Err((Some(name), "cannot be read back".into()));
    };
    let links = if has_links { links(&json) } else { Vec::new() };
    Ok(Checked { name, json, mends, name_at, links, headers })
}

fn find<'a>(members: &[(Cow<'a, str>, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

fn patches(kind: Kind, name: &str, members: &[(Cow<'_, str>, &RawValue)]) -> Result<Vec<Patch>, Cow<'static, str>> {
    // Readers differ in which duplicate they use: the second name could be one that we never assigned.
    if let Some(twice) = twice(members) {
        return Err(format!("has two members {}", super::quoted(twice)).into());
    }
    let mut patches = Vec::new();
    for &(member, shape) in optional(kind) {
        let Some(value) = find(members, member) else { continue };
        if !shape.fits(value) {
            let is = if value.get() == "null" { "null" } else { "of the wrong type" };
            patches.push(Patch { member, value: None, why: format!("`{member}` is {is}: left out").into() });
        } else if let Some((value, why)) = inner(kind, member, value) {
            patches.push(Patch { member, value, why: why.into() });
        }
    }
    match kind {
        Kind::Tools => {
            if let Some((value, why)) = schema::input(find(members, "inputSchema"))? {
                patches.push(Patch { member: "inputSchema", value: Some(value), why: why.into() });
            }
        }
        Kind::Prompts => {}
        Kind::Resources | Kind::ResourceTemplates => {
            if kind == Kind::Resources {
                uri(name)?;
            } else if name.chars().any(char::is_control) {
                return Err("its `uriTemplate` holds control characters".into());
            }
            if !find(members, "name").is_some_and(|name| Shape::Text.fits(name)) {
                let value = Some(quoted(name));
                patches.push(Patch { member: "name", value, why: "`name` is missing: the URI is used instead".into() });
            }
        }
    }
    Ok(patches)
}

/// Checks a URI. Official clients refuse a list that contains an invalid one.
fn uri(uri: &str) -> Result<(), Cow<'static, str>> {
    if uri.chars().any(char::is_control) {
        return Err("its `uri` holds control characters".into());
    }
    url::Url::parse(uri).map_err(|error| format!("its `uri` is not a URI: {error}"))?;
    Ok(())
}

/// Repairs the inside of a member that has the right type. Returns the new value (the inner `None` removes the member)
/// and why; `None` if the member is valid.
fn inner(kind: Kind, member: &str, value: &RawValue) -> Option<(Option<Vec<u8>>, &'static str)> {
    match member {
        "annotations" => {
            let table = if kind == Kind::Tools { TOOL_ANNOTATIONS } else { RESOURCE_ANNOTATIONS };
            let clean = fitted(value, table)?;
            Some((Some(clean), "members of `annotations` are null or of the wrong type: left out"))
        }
        "icons" => {
            let is_icon = |icon: &RawValue| self::member(icon, "src").is_some_and(|src| Shape::Text.fits(src));
            let fine = array(value).is_some_and(|icons| icons.into_iter().all(is_icon));
            (!fine).then_some((None, "`icons` has an invalid icon: left out"))
        }
        "arguments" => arguments(value).map(|clean| (Some(clean), "`arguments` has invalid arguments: repaired")),
        _ => None,
    }
}

fn arguments(value: &RawValue) -> Option<Vec<u8>> {
    let items = array(value)?;
    let mut changed = false;
    let mut kept: Vec<Cow<'_, [u8]>> = Vec::with_capacity(items.len());
    for item in items {
        if !member(item, "name").is_some_and(|name| Shape::Text.fits(name)) {
            changed = true;
            continue;
        }
        let clean = fitted(item, ARGUMENT);
        changed |= clean.is_some();
        kept.push(clean.map_or(Cow::Borrowed(item.get().as_bytes()), Cow::Owned));
    }
    changed.then(|| [b"[", &*kept.join(&b","[..]), b"]"].concat())
}

/// Removes the members that do not fit the table; returns `None` if all fit.
fn fitted(value: &RawValue, table: &Table) -> Option<Vec<u8>> {
    let members = object(value)?;
    let is_bad = |(name, shape): &&(&str, Shape)| members.iter().any(|(key, value)| key == name && !shape.fits(value));
    let whole = Raw::trusted(Bytes::copy_from_slice(value.get().as_bytes()));
    let mut edits = Edits::new(&whole);
    table.iter().filter(is_bad).for_each(|(name, _)| edits.remove(whole.as_value(), name));
    (!edits.is_empty()).then(|| edits.apply().as_bytes().to_vec())
}

/// Returns the links to user interfaces: `_meta.ui.resourceUri`, and its older flat form.
fn links(json: &Raw) -> Vec<(Range<u32>, String)> {
    if memchr::memmem::find(json.as_bytes(), b"esourceUri").is_none() {
        return Vec::new();
    }
    let mut found: Vec<_> = json.value_of("_meta").map(super::rewrite::links).unwrap_or_default();
    found.sort_by_key(|value| value.get().as_ptr());
    let link = |value: &RawValue| Some((spot(json, Some(value))?, string(value)?.into_owned()));
    found.into_iter().filter_map(link).collect()
}

/// Returns the position of the name in a definition, and those of its links to user interfaces.
pub(super) fn places(kind: Kind, json: &Raw) -> Option<Places> {
    Some((spot(json, json.value_of(kind.key()))?, links(json)))
}

/// The position of a name, and those of links with what they link to.
pub(super) type Places = (Range<u32>, Vec<(Range<u32>, String)>);

/// Returns the position of a value in `json`; `None` if it does not borrow from there.
fn spot(json: &Raw, value: Option<&RawValue>) -> Option<Range<u32>> {
    let value = value?.get();
    let start = (value.as_ptr() as usize).checked_sub(json.as_bytes().as_ptr() as usize)?;
    if start + value.len() > json.as_bytes().len() {
        return None;
    }
    Some(u32::try_from(start).ok()?..u32::try_from(start + value.len()).ok()?)
}
