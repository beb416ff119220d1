//! Checks arguments against the tool's input schema before they are sent: missing arguments, unknown ones, and wrong
//! types or values.
//!
//! **Invariant:** arguments that the schema may allow are never refused. This reads the usual keywords of tool schemas
//! and ignores all others (patterns, conditions, formats): the server has the last word. An argument that the schema
//! neither names nor forbids only causes a warning. The work is bounded for every schema: no external reference is
//! followed, and steps are counted.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};

use mcp_host::protocol::Raw;
use serde_json::{Map, Value};

use crate::nearest::{nearest, question};
use crate::parameters::{said, type_of};
use crate::text;

/// A message and its help.
pub(crate) type Finding = (String, Option<String>);

/// The result of a check.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Violations of the schema.
    pub(crate) wrong: Vec<Finding>,
    /// Arguments that are allowed, but probably a mistake.
    pub(crate) doubtful: Vec<Finding>,
}

/// Checks arguments against a tool's schema.
pub(crate) fn check(tool: &str, schema: &Value, arguments: &Raw) -> Verdict {
    let Ok(given) = arguments.read::<Value>() else { return Verdict::default() };
    let names = Names::of(schema);
    let has_addresses = schema.as_object().into_iter().flat_map(Map::values).any(has_address);
    let check = Check { tool, root: schema, names: &names, given: &given, has_addresses, steps: Cell::new(STEPS) };
    let mut wrong = check.value("", schema, &given, DEPTH);
    if check.steps.get() == 0 {
        // An incomplete check must not refuse anything.
        wrong.clear();
    }
    wrong.dedup();
    wrong.truncate(MOST);
    let doubtful = if wrong.is_empty() { names.doubts(tool, &given) } else { Vec::new() };
    Verdict { wrong, doubtful }
}

struct Check<'a> {
    tool: &'a str,
    root: &'a Value,
    names: &'a Names,
    given: &'a Value,
    /// Whether parts of the schema have their own addresses, which references are relative to.
    has_addresses: bool,
    /// How many more schemas may be read.
    steps: Cell<usize>,
}

impl Check<'_> {
    /// Checks one value.
    fn value(&self, path: &str, schema: &Value, value: &Value, depth: usize) -> Vec<Finding> {
        let steps = self.steps.get().saturating_sub(1);
        self.steps.set(steps);
        let Some(schema) = schema.as_object().filter(|_| depth > 0 && steps > 0) else { return Vec::new() };
        // Keywords beside a reference count only since draft 2019-09.
        if let Some(reference) = schema.get("$ref") {
            let target = reference.as_str().and_then(|reference| self.target(reference));
            return target.map(|target| self.value(path, target, value, depth - 1)).unwrap_or_default();
        }
        if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
            return Vec::new();
        }
        let wrong = wrong_type(schema, value).or_else(|| wrong_value(schema, value));
        if let Some((what, help)) = wrong {
            return vec![(format!("{} must {what}", subject(path)), help)];
        }
        let mut all =
            bounds(schema, value).map(|what| (format!("{} must {what}", subject(path)), None)).into_iter().collect();
        match value {
            Value::Object(members) => self.members(path, schema, members, depth, &mut all),
            Value::Array(items) => self.items(path, schema, items, depth, &mut all),
            _ => {}
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            all.extend(self.value(path, part, value, depth - 1));
        }
        for forms in ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()) {
            all.extend(self.forms(path, forms, value, depth));
        }
        all
    }

    /// Resolves a reference within the schema. Returns `None` for any other reference.
    fn target(&self, reference: &str) -> Option<&Value> {
        self.root.pointer(reference.strip_prefix('#')?).filter(|_| !self.has_addresses)
    }

    fn members(
        &self,
        path: &str,
        schema: &Map<String, Value>,
        given: &Map<String, Value>,
        depth: usize,
        all: &mut Vec<Finding>,
    ) {
        let top = path.is_empty();
        let of = if top { format!("tool `{}`", self.tool) } else { format!("`{path}`") };
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for missing in required.filter_map(Value::as_str).filter(|name| !given.contains_key(*name)) {
            let (more, help) = match self.names.mistyped(missing, self.given).filter(|_| top) {
                Some(typed) => (format!("; `{typed}` is not among its arguments"), question(&[missing])),
                None => (String::new(), None),
            };
            all.push((format!("{of} needs `{missing}`{more}"), help));
        }
        let named = schema.get("properties").and_then(Value::as_object);
        // Patterns are not evaluated, so they may name any member.
        let others = schema.get("additionalProperties").filter(|_| !schema.contains_key("patternProperties"));
        for (name, value) in given {
            let below = if top { name.clone() } else { format!("{path}.{name}") };
            match (named.and_then(|named| named.get(name)), others) {
                (Some(schema), _) => all.extend(self.value(&below, schema, value, depth - 1)),
                (None, Some(Value::Bool(false))) => {
                    // A misspelled argument is reported with the missing one.
                    let is_told = |missing: &String| self.names.mistyped(missing, self.given) == Some(name);
                    if !(top && self.names.required.iter().any(is_told)) {
                        all.push((format!("{of} takes no `{name}`"), self.names.help(name, top)));
                    }
                }
                (None, Some(schema)) => all.extend(self.value(&below, schema, value, depth - 1)),
                (None, None) => {}
            }
        }
    }

    fn items(&self, path: &str, schema: &Map<String, Value>, given: &[Value], depth: usize, all: &mut Vec<Finding>) {
        let Some(each) = schema.get("items").filter(|_| !schema.contains_key("prefixItems")) else { return };
        for (at, item) in given.iter().enumerate() {
            all.extend(self.value(&format!("{path}[{at}]"), each, item, depth - 1));
        }
    }

    /// Checks a value against several forms. Reports the findings of the only form with the right type, else the
    /// allowed types.
    fn forms(&self, path: &str, forms: &[Value], value: &Value, depth: usize) -> Vec<Finding> {
        let told: Vec<_> = forms.iter().map(|form| self.value(path, form, value, depth - 1)).collect();
        if told.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        let types: Vec<_> =
            forms.iter().map(|form| form.as_object().and_then(|form| wrong_type(form, value)).is_some()).collect();
        let right: Vec<_> = types.iter().zip(told).filter(|(is_wrong, _)| !**is_wrong).map(|(_, told)| told).collect();
        let what = match <[_; 1]>::try_from(right) {
            Ok([only]) => return only,
            Err(right) if right.is_empty() => {
                let types = forms.iter().filter_map(Value::as_object).flat_map(types_of).map(said);
                format!("be {}", types.collect::<Vec<_>>().join(" or "))
            }
            Err(_) => "have one of the forms that the tool's schema lists".to_owned(),
        };
        vec![(format!("{} must {what}", subject(path)), None)]
    }
}

fn has_address(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.get("$id").is_some_and(Value::is_string) || members.values().any(has_address),
        Value::Array(items) => items.iter().any(has_address),
        _ => false,
    }
}

fn types_of(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn wrong_type(schema: &Map<String, Value>, value: &Value) -> Option<Finding> {
    let types = types_of(schema);
    // An unknown type may allow anything.
    let fits = |kind: &&str| match *kind {
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "string" | "boolean" | "null" | "array" | "object" => *kind == type_of(value),
        _ => true,
    };
    if types.is_empty() || types.iter().any(fits) {
        return None;
    }
    let types: Vec<_> = types.into_iter().map(said).collect();
    Some((format!("be {}, not {}", types.join(" or "), text::cut(&value.to_string(), SHOWN)), None))
}

fn wrong_value(schema: &Map<String, Value>, value: &Value) -> Option<Finding> {
    if let Some(only) = schema.get("const") {
        return (!may_equal(only, value)).then(|| (format!("be {}", text::cut(&only.to_string(), LINE)), None));
    }
    let options = schema.get("enum")?.as_array().filter(|options| !options.is_empty())?;
    if options.iter().any(|option| may_equal(option, value)) {
        return None;
    }
    let texts = options.iter().filter_map(Value::as_str);
    let near = value.as_str().and_then(|typed| question(&nearest(typed, texts)));
    let list = options.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    Some((format!("be one of {}", text::cut(&list, LINE)), near))
}

/// Reports whether two values may be equal. Numbers are compared by value; the contents of lists and objects are not.
fn may_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => true,
        _ => one == other,
    }
}

/// Returns in words the first bound that a value violates; `None` if it violates none.
fn bounds(schema: &Map<String, Value>, value: &Value) -> Option<String> {
    let number = |key: &str| schema.get(key).filter(|limit| limit.is_number());
    if let Some(value) = value.as_f64() {
        let beyond = |key: &str, is_beyond: fn(&f64, &f64) -> bool, words: &str| {
            let limit = number(key)?;
            is_beyond(&value, &limit.as_f64()?).then(|| format!("be {words} {limit}"))
        };
        return beyond("minimum", f64::lt, "at least")
            .or_else(|| beyond("maximum", f64::gt, "at most"))
            .or_else(|| beyond("exclusiveMinimum", f64::le, "more than"))
            .or_else(|| beyond("exclusiveMaximum", f64::ge, "less than"));
    }
    let (least, most, length, unit) = match value {
        Value::String(text) => ("minLength", "maxLength", text.chars().count(), "character"),
        Value::Array(items) => ("minItems", "maxItems", items.len(), "item"),
        _ => return None,
    };
    let limit = |key: &str| usize::try_from(number(key)?.as_u64()?).ok();
    match (limit(least).filter(|least| length < *least), limit(most).filter(|most| length > *most)) {
        (Some(1), _) => Some("not be empty".to_owned()),
        (Some(least), _) => Some(format!("have at least {}", text::count(least, unit))),
        (None, Some(most)) => Some(format!("have at most {}", text::count(most, unit))),
        (None, None) => None,
    }
}

fn subject(path: &str) -> String {
    if path.is_empty() { "the arguments".to_owned() } else { format!("`{path}`") }
}

/// The arguments that a schema names.
#[derive(Debug, Default)]
struct Names {
    named: BTreeSet<String>,
    /// The required arguments.
    required: Vec<String>,
    /// Whether the schema has a rule for arguments that it does not name.
    open: bool,
}

impl Names {
    fn of(schema: &Value) -> Self {
        let mut names = Self::default();
        names.collect(schema, schema, DEPTH, &mut HashSet::new());
        let required = schema["required"].as_array().into_iter().flatten();
        names.required = required.filter_map(Value::as_str).map(str::to_owned).collect();
        names
    }

    fn collect(&mut self, root: &Value, schema: &Value, depth: usize, seen: &mut HashSet<*const Value>) {
        if depth == 0 {
            self.open = true;
            return;
        }
        // A schema that was already read has no new names.
        if !seen.insert(std::ptr::from_ref(schema)) {
            return;
        }
        self.named.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
        let others = ["additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"];
        self.open |= others.iter().any(|key| schema.get(*key).is_some_and(|value| *value != Value::Bool(false)));
        if let Some(reference) = schema["$ref"].as_str().or(schema["$dynamicRef"].as_str()) {
            match reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
                Some(target) => self.collect(root, target, depth - 1, seen),
                None => self.open = true,
            }
        }
        let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
        let parts = ["if", "then", "else"].iter().filter_map(|key| schema.get(*key));
        let dependent = schema["dependentSchemas"].as_object().into_iter().flatten().map(|(_, schema)| schema);
        for part in lists.chain(parts).chain(dependent) {
            self.collect(root, part, depth - 1, seen);
        }
    }

    /// Returns the given argument that is probably a misspelling of `missing`, if there is one.
    fn mistyped<'a>(&self, missing: &str, given: &'a Value) -> Option<&'a str> {
        let given = given.as_object().filter(|given| !given.contains_key(missing))?;
        let unknown = given.keys().map(String::as_str).filter(|name| !self.named.contains(*name));
        nearest(missing, unknown).first().copied()
    }

    fn help(&self, typed: &str, top: bool) -> Option<String> {
        let names = || self.named.iter().map(String::as_str).filter(|_| top);
        let all =
            || (top && !self.named.is_empty()).then(|| format!("it takes {}", names().collect::<Vec<_>>().join(", ")));
        question(&nearest(typed, names())).or_else(all)
    }

    /// Reports arguments that the schema does not name, if it names some and has no rule for others.
    fn doubts(&self, tool: &str, given: &Value) -> Vec<Finding> {
        if self.open || self.named.is_empty() {
            return Vec::new();
        }
        let given = given.as_object().into_iter().flatten().map(|(name, _)| name);
        let unknown = given.filter(|name| !self.named.contains(*name));
        unknown
            .map(|name| (format!("tool `{tool}` does not name an argument `{name}`"), self.help(name, true)))
            .collect()
    }
}

/// How many findings to report at once.
const MOST: usize = 5;
/// How many schemas one check may read.
const STEPS: usize = 100_000;
/// How deep schemas may be nested.
const DEPTH: usize = 32;
const LINE: usize = 200;
const SHOWN: usize = 40;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::json;

    use super::*;

    fn verdict(schema: &Value, arguments: &Value) -> (Vec<String>, Vec<String>) {
        let verdict = check("t", schema, &Raw::from_value(arguments));
        let lines = |findings: Vec<Finding>| {
            let line = |(what, help): Finding| help.map_or(what.clone(), |help| format!("{what} / {help}"));
            findings.into_iter().map(line).collect::<Vec<_>>()
        };
        (lines(verdict.wrong), lines(verdict.doubtful))
    }

    fn wrong(schema: &Value, arguments: &Value) -> Vec<String> {
        verdict(schema, arguments).0
    }

    #[test]
    fn first_hour_r2_errors_are_told_in_words() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 1 },
                "kind": { "enum": ["file", "folder"] },
                "depth": { "type": "integer", "minimum": 1, "maximum": 9 },
                "maybe": { "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "null" }] },
                "tags": { "type": "array", "items": { "type": "object", "required": ["id"] }, "maxItems": 1 },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let cases = [
            (json!({ "name": "a" }), vec![]),
            (json!({}), vec!["tool `t` needs `name`"]),
            (
                json!({ "nmae": "x" }),
                vec!["tool `t` needs `name`; `nmae` is not among its arguments / did you mean `name`?"],
            ),
            (
                json!({ "name": "a", "zzz": 1 }),
                vec!["tool `t` takes no `zzz` / it takes depth, kind, maybe, name, tags"],
            ),
            (json!({ "name": "" }), vec!["`name` must not be empty"]),
            (json!({ "name": 1 }), vec!["`name` must be text, not 1"]),
            (
                json!({ "name": "a", "kind": "fodler" }),
                vec!["`kind` must be one of \"file\", \"folder\" / did you mean `folder`?"],
            ),
            (json!({ "name": "a", "depth": 0 }), vec!["`depth` must be at least 1"]),
            (json!({ "name": "a", "depth": 10 }), vec!["`depth` must be at most 9"]),
            (json!({ "name": "a", "depth": 1.5 }), vec!["`depth` must be a whole number, not 1.5"]),
            (json!({ "name": "a", "maybe": 0 }), vec!["`maybe` must be at least 1"]),
            (json!({ "name": "a", "maybe": "x" }), vec!["`maybe` must be a whole number or null"]),
            (json!({ "name": "a", "tags": [{}] }), vec!["`tags[0]` needs `id`"]),
            (json!({ "name": "a", "tags": [{ "id": 1 }, { "id": 2 }] }), vec!["`tags` must have at most 1 item"]),
        ];
        for (arguments, expected) in cases {
            let mut found = wrong(&schema, &arguments);
            found.sort();
            let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            expected.sort();
            assert_eq!(found, expected, "{arguments}");
        }
    }

    #[test]
    fn first_hour_r2_what_a_schema_may_allow_is_never_refused() {
        let allowed = [
            (json!({}), json!({ "x": 1 })),
            (json!({ "properties": { "name": {} }, "additionalProperties": true }), json!({ "nmae": 1 })),
            (json!({ "properties": { "name": {} }, "patternProperties": { "^n": {} } }), json!({ "nmae": 1 })),
            (
                json!({ "allOf": [{ "$ref": "#/$defs/a" }], "$defs": { "a": { "properties": { "name": {} } } } }),
                json!({ "name": 1 }),
            ),
            (json!({ "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }), json!({ "b": 1 })),
            // Schemas that no validator can follow, or that are no schemas at all.
            (json!({ "$ref": "https://example.com/elsewhere.json" }), json!({ "x": 1 })),
            (json!({ "$ref": "#" }), json!({ "x": 1 })),
            (json!({ "allOf": [{ "$ref": "#" }] }), json!({ "x": 1 })),
            (
                json!({ "properties": { "x": { "$ref": "#/$defs/l" } }, "$defs": { "l": { "$ref": "#/$defs/l" } } }),
                json!({ "x": 1 }),
            ),
            (json!({ "$anchor": "a", "$ref": "#a" }), json!({ "x": 1 })),
            (json!({ "$id": "https://example.com/a", "$ref": "https://example.com/a" }), json!({ "x": 1 })),
            (json!({ "dependentSchemas": { "x": { "$ref": "#" } } }), json!({ "x": 1 })),
            (json!({ "type": "nonsense" }), json!({ "x": 1 })),
            (json!({ "properties": { "x": { "pattern": "(" } } }), json!({ "x": "y" })),
            (json!({ "properties": { "x": { "pattern": "(a+)+$" } } }), json!({ "x": "a".repeat(40) })),
            // Keywords that are only hints; servers may not enforce them.
            (json!({ "properties": { "x": { "format": "date" } } }), json!({ "x": "tomorrow" })),
            (
                json!({ "$schema": "http://json-schema.org/draft-07/schema#", "properties": {
                    "x": { "format": "email", "contentEncoding": "base64" } } }),
                json!({ "x": "-" }),
            ),
            (json!({ "properties": { "n": { "type": "integer" } } }), json!({ "n": 2.0 })),
        ];
        for (schema, arguments) in allowed {
            assert_eq!(verdict(&schema, &arguments), (vec![], vec![]), "{schema}");
        }
        // A schema that refers to itself for a smaller value is a tree, and is checked.
        let tree = json!({
            "properties": { "name": { "type": "string" }, "child": { "$ref": "#" } }, "additionalProperties": false,
        });
        assert!(wrong(&tree, &json!({ "child": { "child": { "name": "x" } } })).is_empty());
        assert_eq!(wrong(&tree, &json!({ "child": { "nmae": "x" } })), ["`child` takes no `nmae`"]);
    }

    #[test]
    fn first_hour_r2_an_argument_that_a_schema_does_not_name_is_doubted() {
        let schema = json!({ "properties": { "name": { "type": "string" } } });
        let expected = "tool `t` does not name an argument `nmae` / did you mean `name`?".to_owned();
        assert_eq!(verdict(&schema, &json!({ "nmae": "x" })), (vec![], vec![expected]));
        assert_eq!(verdict(&json!({ "type": "object" }), &json!({ "nmae": "x" })), (vec![], vec![]));
    }

    #[test]
    fn first_hour_r2_a_schema_that_repeats_itself_is_read_to_an_end() {
        let itself = vec![json!({ "$ref": "#" }); 10];
        let link = |next: usize| json!({ "anyOf": vec![json!({ "$ref": format!("#/$defs/a{next}") }); 2] });
        let mut links: Map<String, Value> = (0..60).map(|at| (format!("a{at}"), link(at + 1))).collect();
        links.insert("a60".to_owned(), json!({ "type": "string" }));
        let schemas = [
            json!({ "anyOf": itself }),
            json!({ "$ref": "#/$defs/a0", "$defs": links }),
            // A circle through two schemas, entered from a third.
            json!({ "anyOf": [{ "$ref": "#/$defs/c" }], "$defs": { "c": { "anyOf": [{ "$ref": "#" }] } } }),
            json!({ "properties": { "x": { "$id": "urn:x", "$ref": "#/$defs/y", "$defs": { "y": { "$ref": "#" } } } },
                "$defs": { "y": {} } }),
        ];
        for schema in schemas {
            assert_eq!(verdict(&schema, &json!({ "x": 1 })), (vec![], vec![]), "{schema}");
        }
        // Some repetition is normal, and is checked.
        let pair = json!({ "$defs": { "n": { "type": "integer" }, "m": { "allOf": [{ "$ref": "#/$defs/n" }] } },
            "properties": { "x": { "allOf": [{ "$ref": "#/$defs/n" }, { "$ref": "#/$defs/m" }] } } });
        assert_eq!(wrong(&pair, &json!({ "x": "y" })), ["`x` must be a whole number, not \"y\""]);
    }

    /// Schemas of the keywords that are read and some that are not, small enough that values often match them.
    fn schemas() -> impl Strategy<Value = Value> {
        let types = ["string", "integer", "number", "boolean", "null", "array", "object"];
        let one = select(types.to_vec()).prop_map(|kind| json!({ "type": kind }));
        let two = (select(types.to_vec()), select(types.to_vec())).prop_filter("two types", |(a, b)| a != b);
        let bound = |key: &'static str| (0..4_u32).prop_map(move |limit| json!({ key: limit }));
        let leaf = prop_oneof![
            one,
            two.prop_map(|(a, b)| json!({ "type": [a, b] })),
            prop::collection::vec(values(), 1..3).prop_map(|options| json!({ "enum": options })),
            values().prop_map(|only| json!({ "const": only })),
            select(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"].to_vec()).prop_flat_map(bound),
            select(["minLength", "maxLength", "minItems", "maxItems"].to_vec()).prop_flat_map(bound),
            Just(json!({ "pattern": "^a" })),
            Just(json!({ "$ref": "#/$defs/d" })),
            any::<bool>().prop_map(Value::Bool),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let list = |key: &'static str| {
                let inner = inner.clone();
                prop::collection::vec(inner, 1..3).prop_map(move |list| json!({ key: list }))
            };
            let of = |key: &'static str| inner.clone().prop_map(move |inner| json!({ key: inner }));
            let parts = prop_oneof![
                list("allOf"),
                list("anyOf"),
                list("oneOf"),
                of("items"),
                of("not"),
                of("additionalProperties"),
                inner.clone().prop_map(|inner| json!({ "properties": { "a": inner } })),
                inner.clone().prop_map(|inner| json!({ "patternProperties": { "b": inner } })),
                Just(json!({ "required": ["a"] })),
                inner.clone(),
            ];
            // Several keywords in one schema.
            prop::collection::vec(parts, 1..4).prop_map(|parts| {
                let members = parts.into_iter().filter_map(|part| part.as_object().cloned()).flatten();
                Value::Object(members.collect())
            })
        })
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (0..4_u32).prop_map(Value::from),
            (0..8_u32).prop_map(|halves| json!(f64::from(halves) / 2.0)),
            "[ab]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map(select(vec!["a", "b"]), inner, 0..3).prop_map(|all| json!(all)),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn first_hour_r2_what_is_refused_is_refused_by_the_library_too(
            mut schema in schemas().prop_filter("an object", Value::is_object), defined in schemas(), value in values(),
        ) {
            schema["$defs"] = json!({ "d": defined });
            let told = wrong(&schema, &value);
            if let (false, Ok(library)) = (told.is_empty(), jsonschema::options().offline().build(&schema)) {
                prop_assert!(!library.is_valid(&value), "{told:?}");
            }
        }
    }
}
