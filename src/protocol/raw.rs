//! JSON kept as bytes, and edits that change one member and keep every other byte.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::Deserializer;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::notes::{Names, Notes};
use super::scan::{Scanner, Trust};
use super::value::{Text, find, member};
use super::whole::Whole;

/// Why bytes are not a JSON value, and where.
///
/// ```
/// let wrong = mcp_host::Raw::parse(&"{".into()).unwrap_err();
/// println!("{wrong}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoJson(pub(super) String);

/// One valid JSON value, as the bytes it arrived as. Cheap to clone.
///
/// ```
/// use mcp_host::Raw;
///
/// let raw = Raw::parse(&r#"{"b": 1.0, "a": "x"}"#.into())?;
/// assert_eq!(raw.text("a").as_deref(), Some("x"));
/// // Every other byte stays the same.
/// assert_eq!(raw.with_member("a", b"null").as_str(), r#"{"b": 1.0, "a": null}"#);
/// # Ok::<_, mcp_host::protocol::NoJson>(())
/// ```
#[derive(Clone)]
pub struct Raw {
    bytes: Bytes,
    /// What is known about a large body.
    notes: Option<Arc<Notes>>,
    /// The kinds of names that occur in it, at any depth.
    names: Names,
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Raw {}

impl Hash for Raw {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl Raw {
    /// Checks that `bytes` are one JSON value.
    ///
    /// # Errors
    /// When they are not one JSON value.
    pub fn parse(bytes: &Bytes) -> Result<Self, NoJson> {
        let whole = |scanner: &mut Scanner<'_>| scanner.value().and_then(|range| scanner.end().map(|()| range));
        let mut scanner = Scanner::once(bytes);
        if let Ok(range) = whole(&mut scanner)
            && scanner.is_fine(Trust::None)
        {
            return Ok(Self::trusted(bytes.slice(range)));
        }
        let range = Scanner::checked(bytes).and_then(|mut scanner| whole(&mut scanner));
        Ok(Self::trusted(bytes.slice(range.map_err(|fault| NoJson(fault.to_string()))?)))
    }

    /// Writes a value as JSON. A value that JSON cannot represent (a map whose keys are not strings) becomes `null`.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Self {
        serde_json::to_vec(value).map_or_else(|_| Self::null(), |vec| Self::trusted(vec.into()))
    }

    /// `{}`
    #[must_use]
    pub fn empty_object() -> Self {
        Self::trusted(Bytes::from_static(b"{}"))
    }

    /// `null`
    pub(crate) fn null() -> Self {
        Self::trusted(Bytes::from_static(b"null"))
    }

    /// Wraps bytes that we wrote, or that `serde_json` has just read.
    pub(crate) fn trusted(bytes: Bytes) -> Self {
        Self { bytes, notes: None, names: Names::UNKNOWN }
    }

    /// Adds what the scan has noted about the value.
    pub(super) fn noted(self, notes: Option<Notes>) -> Self {
        Self { notes: notes.map(Arc::new), ..self }
    }

    /// Adds the kinds of names that the scan has met in the message.
    pub(super) fn named(self, names: Names) -> Self {
        Self { names, ..self }
    }

    /// Reports whether names of these kinds occur in the value, at any depth; `None` if that is not known.
    pub(crate) fn has_names(&self, kinds: Names) -> Option<bool> {
        self.names.have(kinds)
    }

    /// Whether the value is known to have no line breaks.
    pub(super) fn is_flat(&self) -> bool {
        self.notes.as_ref().is_some_and(|notes| !notes.breaks)
    }

    /// Checks the whole value, the escapes in its strings included: when the message was read, they may have been skipped.
    pub(super) fn is_sound(&self) -> bool {
        let mut scanner = Scanner::once(&self.bytes);
        self.notes.is_some() || scanner.value().is_ok() && scanner.end().is_ok() && scanner.is_fine(Trust::None)
    }

    pub(super) fn scanner(&self) -> Scanner<'_> {
        Scanner::again(&self.bytes, self.notes.as_deref())
    }

    /// Returns `value` as a part of `whole`; as a copy, if `value` does not borrow from `whole`.
    pub(crate) fn part(whole: &Bytes, value: &RawValue) -> Self {
        let part = value.get().as_bytes();
        let base = whole.as_ptr() as usize;
        let start = part.as_ptr() as usize;
        if start >= base && start + part.len() <= base + whole.len() {
            Self::trusted(whole.slice_ref(part))
        } else {
            Self::trusted(Bytes::copy_from_slice(part))
        }
    }

    /// The JSON text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The JSON text as a shared buffer.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or("null")
    }

    /// Copies the value into its own buffer, to keep it long after its message.
    #[must_use]
    pub(crate) fn detached(&self) -> Self {
        Self::trusted(Bytes::copy_from_slice(&self.bytes))
    }

    /// Whether this is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.bytes.first() == Some(&b'{')
    }

    /// Reads the value into a type.
    ///
    /// # Errors
    /// When the value has another shape.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.bytes)
    }

    /// Returns the first member of this object with that name, unparsed.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Self> {
        let [member] = self.members([name]);
        member
    }

    /// Returns the members of this object with those names, unparsed, in one pass.
    #[must_use]
    pub fn members<const N: usize>(&self, names: [&str; N]) -> [Option<Self>; N] {
        self.ranges(names).map(|range| Some(Self::trusted(self.bytes.slice(range?))))
    }

    /// Returns the JSON texts of the members with those names, in one pass. Unlike [`Raw::members`], it shares no buffer.
    pub(crate) fn texts<const N: usize>(&self, names: [&str; N]) -> [Option<&[u8]>; N] {
        self.ranges(names).map(|range| self.bytes.get(range?))
    }

    fn ranges<const N: usize>(&self, names: [&str; N]) -> [Option<Range<usize>>; N] {
        let mut found = [const { None }; N];
        // A value that is not an object has no members.
        let _ = self.scanner().object(|key, range| {
            if let Some(at) = names.iter().position(|name| *name == key)
                && found[at].is_none()
            {
                found[at] = Some(range);
            }
            Ok(())
        });
        found
    }

    /// Returns the members with those names, each of which must be unique: readers differ in which duplicate they take.
    ///
    /// # Errors
    /// With the name that occurs twice.
    pub(crate) fn distinct<const N: usize>(&self, names: [&'static str; N]) -> Result<[Option<Self>; N], &'static str> {
        let mut found = [const { None }; N];
        let mut twice = None;
        let _ = self.scanner().object(|key, range| {
            if let Some(at) = names.iter().position(|name| *name == key)
                && found[at].replace(Self::trusted(self.bytes.slice(range))).is_some()
            {
                twice = Some(names[at]);
            }
            Ok(())
        });
        twice.map_or(Ok(found), Err)
    }

    /// Returns the text of a JSON string; `None` if the value is not a string.
    #[must_use]
    pub fn string(&self) -> Option<Cow<'_, str>> {
        serde_json::from_slice::<Text<'_>>(&self.bytes).ok().map(|text| text.0)
    }

    /// Returns the text of the member with that name; `None` if it is missing or not a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.member(name)?.string().map(Cow::into_owned)
    }

    /// Sets the member `name` to `value` (in place, or appended) and keeps every other byte. A value that is not an
    /// object stays as it is.
    #[must_use]
    pub fn with_member(&self, name: &str, value: &[u8]) -> Self {
        let mut edits = Edits::new(self);
        match self.notes.as_ref().map(|_| self.member(name)) {
            Some(Some(old)) => edits.replace_part(&old, value.to_vec()),
            Some(None) => edits.append(name, value),
            None => edits.set(self.as_value(), name, value),
        }
        edits.apply()
    }

    /// Removes the member `name`.
    #[must_use]
    pub fn without_member(&self, name: &str) -> Self {
        let mut edits = Edits::new(self);
        match self.notes.as_ref().map(|_| self.member(name)) {
            Some(Some(_)) => edits.strip(name),
            Some(None) => {}
            None => edits.remove(self.as_value(), name),
        }
        edits.apply()
    }

    /// Replaces these parts of the text, none of which is inside another.
    pub(super) fn with_parts(&self, parts: Vec<(Range<usize>, Vec<u8>)>) -> Self {
        Edits { edits: parts, ..Edits::new(self) }.apply()
    }

    /// Returns the member of this object with that name, borrowed.
    pub(crate) fn value_of(&self, name: &str) -> Option<&RawValue> {
        find(self.scanner(), name, |range| serde_json::from_slice(&self.bytes[range]).ok())
    }

    /// Returns the value, borrowed.
    pub(crate) fn as_value(&self) -> &RawValue {
        serde_json::from_slice(&self.bytes).unwrap_or(RawValue::NULL)
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.bytes))
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes a value as JSON.
///
/// ```
/// let arguments = mcp_host::Raw::from(serde_json::json!({ "path": "notes.txt" }));
/// assert_eq!(arguments.as_str(), r#"{"path":"notes.txt"}"#);
/// ```
impl From<serde_json::Value> for Raw {
    fn from(value: serde_json::Value) -> Self {
        Self::from_value(&value)
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self::trusted(Bytes::from(String::from(Box::<str>::from(raw)))))
    }
}

/// Edits of one JSON text, applied at once; each replaces a part that borrows from the text.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    source: &'a Raw,
    edits: Vec<(Range<usize>, Vec<u8>)>,
    /// The changed objects, by start and end.
    objects: BTreeMap<(usize, usize), Changed>,
    /// Members that the source gains, each behind a comma.
    appended: Vec<u8>,
}

/// The members that an object loses and gains.
#[derive(Debug, Default)]
struct Changed {
    removed: Vec<Which>,
    added: Vec<(String, Vec<u8>)>,
}

/// Selects members to remove.
#[derive(Debug)]
enum Which {
    Named(String),
    Like(fn(&str) -> bool),
}

impl Which {
    fn is(&self, key: &str) -> bool {
        match self {
            Self::Named(name) => name == key,
            Self::Like(like) => like(key),
        }
    }
}

impl<'a> Edits<'a> {
    /// Creates an empty set of edits.
    #[must_use]
    pub(crate) fn new(source: &'a Raw) -> Self {
        Self { source, edits: Vec::new(), objects: BTreeMap::new(), appended: Vec::new() }
    }

    /// Whether nothing would change.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.objects.is_empty() && self.appended.is_empty()
    }

    /// Replaces `part`, which must borrow from the source.
    pub(crate) fn replace(&mut self, part: &RawValue, with: Vec<u8>) {
        if let Some(range) = self.range(part.get().as_bytes()) {
            self.edits.push((range, with));
        }
    }

    /// Replaces `part`, a member of the source or of one of its members.
    pub(crate) fn replace_part(&mut self, part: &Raw, with: Vec<u8>) {
        if let Some(range) = self.range(&part.bytes) {
            self.edits.push((range, with));
        }
    }

    /// Appends a member that the source does not have yet. A source that is not an object stays as it is.
    pub(crate) fn append(&mut self, name: &str, value: &[u8]) {
        if self.source.is_object() {
            push_member(&mut self.appended, name, value);
        }
    }

    /// Removes the member `name` of the source itself, which must have it.
    pub(crate) fn strip(&mut self, name: &str) {
        self.changed(0..self.source.bytes.len()).removed.push(Which::Named(name.to_owned()));
    }

    /// Sets the member `name` of `object` (which must borrow from the source): in place, or appended.
    pub(crate) fn set(&mut self, object: &RawValue, name: &str, value: &[u8]) {
        let Some(range) = self.range(object.get().as_bytes()) else { return };
        let changed = self.objects.get(&(range.start, range.end));
        let is_gone = changed.is_some_and(|changed| changed.removed.iter().any(|gone| gone.is(name)));
        match member(object, name) {
            Some(old) if !is_gone => self.replace(old, value.to_vec()),
            _ => self.add(range, name, value),
        }
    }

    /// Removes every member `name` of `object`, with one comma each.
    pub(crate) fn remove(&mut self, object: &RawValue, name: &str) {
        if member(object, name).is_none() {
            return;
        }
        if let Some(range) = self.range(object.get().as_bytes()) {
            self.changed(range).removed.push(Which::Named(name.to_owned()));
        }
    }

    /// Removes every member of `object` whose name `like` accepts, in one pass.
    pub(crate) fn remove_like(&mut self, object: &RawValue, like: fn(&str) -> bool) {
        let mut is_any = false;
        // A value that is not an object has no members.
        let _ = Scanner::new(object.get().as_bytes()).object(|key, _| {
            is_any |= like(&key);
            Ok(())
        });
        if let Some(range) = self.range(object.get().as_bytes()).filter(|_| is_any) {
            self.changed(range).removed.push(Which::Like(like));
        }
    }

    fn add(&mut self, range: Range<usize>, name: &str, value: &[u8]) {
        if !self.source.bytes[range.clone()].starts_with(b"{") {
            return;
        }
        let added = &mut self.changed(range).added;
        match added.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.to_vec(),
            None => added.push((name.to_owned(), value.to_vec())),
        }
    }

    fn changed(&mut self, range: Range<usize>) -> &mut Changed {
        self.objects.entry((range.start, range.end)).or_default()
    }

    /// Returns the text with all edits applied.
    #[must_use]
    pub(crate) fn apply(mut self) -> Raw {
        if self.is_empty() {
            return self.source.clone();
        }
        let own = 0..self.source.bytes.len();
        match self.objects.remove(&(own.start, own.end)) {
            Some(changed) => changed.write(own, self.source, self.appended, &mut self.edits),
            None if self.appended.is_empty() => {}
            None => Changed::default().write(own, self.source, self.appended, &mut self.edits),
        }
        for ((start, end), changed) in self.objects {
            changed.write(start..end, self.source, Vec::new(), &mut self.edits);
        }
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let grown: usize = self.edits.iter().map(|(_, with)| with.len()).sum();
        let source = &self.source.bytes;
        let mut out = Whole::with_room(source.len() + grown);
        // The large values that are copied whole, by their ranges in the copy.
        let mut values = Vec::new();
        let known = self.source.notes.as_deref();
        let mut copy = |out: &mut Whole, from: usize, to: usize| {
            let copied = known.map_or(&[][..], |notes| &notes.values);
            let copied = copied.iter().filter(|value| from <= value.start && value.end <= to);
            values.extend(copied.map(|value| out.len() + value.start - from..out.len() + value.end - from));
            out.push(&source[from..to]);
        };
        let (mut at, mut breaks) = (0, known.is_some_and(|notes| notes.breaks));
        for (range, with) in &self.edits {
            // An edit inside a removed part has nothing left to change.
            if range.start < at {
                continue;
            }
            copy(&mut out, at, range.start);
            out.push(with);
            breaks |= known.is_some() && memchr::memchr2(b'\n', b'\r', with).is_some();
            at = range.end;
        }
        copy(&mut out, at, source.len());
        let notes = known.map(|_| Notes { values, breaks });
        Raw::trusted(out.freeze()).noted(notes)
    }

    fn range(&self, part: &[u8]) -> Option<Range<usize>> {
        let source = &self.source.bytes;
        let start = (part.as_ptr() as usize).checked_sub(source.as_ptr() as usize)?;
        let end = start + part.len();
        (end <= source.len()).then_some(start..end)
    }
}

impl Changed {
    /// Turns the changes into edits of the source. `own` is the object's range. `text` is written behind its members:
    /// more members, each behind a comma.
    fn write(&self, own: Range<usize>, whole: &Raw, text: Vec<u8>, edits: &mut Vec<(Range<usize>, Vec<u8>)>) {
        let mut added = text;
        let source = &whole.bytes;
        let text = &source[own.clone()];
        let mut holds_any = !text[1..text.len() - 1].iter().all(u8::is_ascii_whitespace);
        if !self.removed.is_empty() {
            // Between the end of one value and the end of the next is `,"name":value`. If a kept member precedes, a
            // removed one takes the comma before it; otherwise it takes the comma after it.
            let mut kept_before = false;
            let mut previous_end = own.start + 1;
            // A value that is not an object has no members.
            let mut scanner = if text.len() == source.len() { whole.scanner() } else { Scanner::new(text) };
            let _ = scanner.object(|key, value| {
                let end = own.start + value.end;
                if !self.removed.iter().any(|which| which.is(&key)) {
                    kept_before = true;
                } else if kept_before {
                    edits.push((previous_end..end, Vec::new()));
                } else {
                    let rest = &source[end..own.end];
                    let comma = rest.iter().position(|byte| !byte.is_ascii_whitespace()).filter(|at| rest[*at] == b',');
                    let stop = comma.map_or(end, |at| end + at + 1);
                    edits.push((previous_end..stop, Vec::new()));
                    previous_end = stop;
                    return Ok(());
                }
                previous_end = end;
                Ok(())
            });
            holds_any = kept_before;
        }
        self.added.iter().for_each(|(name, value)| push_member(&mut added, name, value));
        if !added.is_empty() {
            if !holds_any {
                added.remove(0);
            }
            edits.push((own.end - 1..own.end - 1, added));
        }
    }
}

/// Writes a member behind a comma.
fn push_member(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.push(b',');
    push_string(out, name);
    out.push(b':');
    out.extend_from_slice(value);
}

/// Writes a text as a JSON string.
fn push_string(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector never fails.
    let _ = serde_json::to_writer(out, text);
}

/// Returns a text as a JSON string.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    out
}
