//! Determines which parts of a structured result may be shortened, by the tool's output schema.
//!
//! A schema may restrict a value in any way. So only keywords are considered whose meaning for a shorter array or
//! string is known; a value with any other keyword is not changed. **Invariant:** if the schema accepts a value, it
//! also accepts the value shortened as allowed here, even for validators that do not know some keywords.

use serde_json::{Map, Value};

/// A value, and what its schema says about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    root: &'a Value,
    at: At<'a>,
}

#[derive(Clone, Copy, Debug)]
enum At<'a> {
    /// No schema applies to it, so it may be shortened.
    Free,
    /// It stays whole, including everything in it.
    Fixed,
    Schema(&'a Map<String, Value>),
}

/// How long a chain of references is followed.
const DEEP: usize = 16;

/// Keywords that do not restrict a value.
const NOTES: [&str; 14] = [
    "$comment",
    "$defs",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "example",
    "examples",
    "nullable",
    "readOnly",
    "title",
    "type",
    "writeOnly",
];

/// Keywords that hold for a shorter value as well, or that are considered here.
const KNOWN: [&str; 17] = [
    "additionalProperties",
    "dependentRequired",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "properties",
    "required",
    "uniqueItems",
];

impl<'a> Place<'a> {
    /// Returns the place of the whole value. Without a schema, all of it may be shortened.
    pub(super) fn of(schema: Option<&'a Value>) -> Self {
        match schema {
            None => Self { root: &Value::Null, at: At::Free },
            Some(root) => Self { root, at: At::Fixed }.inner(root, 0, true),
        }
    }

    fn free(self) -> Self {
        Self { at: At::Free, ..self }
    }

    fn fixed(self) -> Self {
        Self { at: At::Fixed, ..self }
    }

    /// Returns the place that a subschema describes.
    fn inner(self, schema: &'a Value, depth: usize, is_root: bool) -> Self {
        let schema = match schema {
            Value::Bool(true) => return self.free(),
            Value::Object(schema) => schema,
            _ => return self.fixed(),
        };
        // `$id` is the base of references, which only the root may set.
        let is_note = |key: &str| NOTES.contains(&key) || key.starts_with("x-") || (is_root && key == "$id");
        let only = |word: &str| schema.keys().all(|key| key == word || is_note(key));
        if let Some(to) = schema.get("$ref") {
            let target = to.as_str().filter(|_| only("$ref")).and_then(|to| self.target(to));
            return match target {
                Some(target) if depth < DEEP => self.inner(target, depth + 1, false),
                _ => self.fixed(),
            };
        }
        for word in ["anyOf", "oneOf", "allOf"] {
            let Some(all) = schema.get(word) else { continue };
            return match all.as_array().filter(|_| only(word)).and_then(|all| lone(all, word)) {
                Some(one) if depth < DEEP => self.inner(one, depth + 1, false),
                _ => self.fixed(),
            };
        }
        let is_known = |key: &String| KNOWN.contains(&key.as_str()) || is_note(key);
        if schema.keys().all(is_known) { Self { at: At::Schema(schema), ..self } } else { self.fixed() }
    }

    /// Returns the schema to which a reference within the schema leads.
    fn target(self, reference: &str) -> Option<&'a Value> {
        let path = reference.strip_prefix('#')?;
        // A reference through a subschema with its own id would lead elsewhere.
        let has_id = |value: &Value| value.get("$id").is_some() || value.get("id").is_some_and(Value::is_string);
        let inner = [path.split('/').nth(1), path.split('/').nth(2)];
        let within = inner.into_iter().try_fold(self.root, |at, step| match step {
            Some(step) => at.get(step),
            None => Some(at),
        });
        self.root
            .pointer(path)
            .filter(|target| !has_id(target) && !within.is_some_and(|at| !std::ptr::eq(at, self.root) && has_id(at)))
    }

    /// Returns the place of a member.
    pub(super) fn member(self, name: &str) -> Self {
        let At::Schema(schema) = self.at else { return self };
        let own = schema.get("properties").and_then(|all| all.get(name));
        match own.or_else(|| schema.get("additionalProperties")) {
            Some(inner) => self.inner(inner, 0, false),
            None => self.free(),
        }
    }

    /// Returns the place of the items of an array.
    pub(super) fn items(self) -> Self {
        let At::Schema(schema) = self.at else { return self };
        match schema.get("items") {
            // Two shortened items could become equal.
            _ if schema.get("uniqueItems").is_some_and(|word| *word != Value::Bool(false)) => self.fixed(),
            Some(inner) => self.inner(inner, 0, false),
            None => self.free(),
        }
    }

    /// Returns how many items an array must have; `None` if it must stay whole.
    pub(super) fn fewest_items(self) -> Option<usize> {
        self.fewest("minItems")
    }

    /// Returns how many characters a string must have; `None` if it must stay whole.
    pub(super) fn fewest_characters(self) -> Option<usize> {
        self.fewest("minLength")
    }

    fn fewest(self, word: &str) -> Option<usize> {
        match self.at {
            At::Fixed => None,
            At::Free => Some(0),
            At::Schema(schema) => match schema.get(word) {
                None => Some(0),
                Some(least) => usize::try_from(least.as_u64()?).ok(),
            },
        }
    }
}

/// Returns the only schema of several that a non-null value must fit; `None` if there may be more than one.
fn lone<'a>(all: &'a [Value], word: &str) -> Option<&'a Value> {
    let is_null = |schema: &&Value| *schema.get("type").unwrap_or(&Value::Null) == "null";
    let mut others = all.iter().filter(|schema| word == "allOf" || !is_null(schema));
    let one = others.next()?;
    others.next().is_none().then_some(one)
}
