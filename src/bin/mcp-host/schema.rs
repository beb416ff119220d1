//! Arguments held against the input schema of their tool, before they are sent.
//!
//! **Invariant:** what the schema may allow is never refused. So the crate that knows JSON Schema decides; where it cannot
//! (a schema that is none, a reference to elsewhere, a pattern that takes too long), nothing is said. An argument that the
//! schema neither names nor forbids is only doubted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{PatternOptions, ValidationError};
use mcp_host::protocol::Raw;
use serde_json::{Map, Value};

use crate::nearest::{nearest, question};
use crate::parameters::said;
use crate::text;

/// One thing to tell, with what helps.
pub(crate) type Finding = (String, Option<String>);

/// What there is to say of some arguments.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Against the schema.
    pub(crate) wrong: Vec<Finding>,
    /// Allowed, and hardly meant.
    pub(crate) doubtful: Vec<Finding>,
}

/// Compares arguments with what the tool takes.
pub(crate) fn check(tool: &str, schema: &Value, arguments: &Raw) -> Verdict {
    let Ok(given) = arguments.read::<Value>() else { return Verdict::default() };
    let names = Names::of(schema);
    let mut wrong = Vec::new();
    if let Some(validator) = validator(schema) {
        for error in validator.iter_errors(&given).take(MOST) {
            wrong.extend(told(tool, &error, &names, &given));
        }
    }
    wrong.dedup();
    let doubtful = if wrong.is_empty() { names.doubts(tool, &given) } else { Vec::new() };
    Verdict { wrong, doubtful }
}

/// Compares them away from the runtime's own thread. A schema that takes too long has nothing said of it.
pub(crate) async fn checked(tool: &str, schema: Value, arguments: &Raw) -> Verdict {
    let (tool, arguments) = (tool.to_owned(), arguments.clone());
    within(LIMIT, move || check(&tool, &schema, &arguments)).await.unwrap_or_default()
}

/// What some work comes to, if it ends in time. It runs on a thread of its own: the end of the program does not wait for
/// that, and its stack is deep enough for schemas that lie in each other.
async fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, answer) = tokio::sync::oneshot::channel();
    let run = move || {
        // Nobody waits any more where it took too long.
        let _ = done.send(work());
    };
    std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK).spawn(run).ok()?;
    tokio::time::timeout(limit, answer).await.ok()?.ok()
}

/// The schema, compiled without ever fetching anything; none where it is none, or is too much work.
fn validator(schema: &Value) -> Option<jsonschema::Validator> {
    if subschemas(schema) > SUBSCHEMAS || is_too_much(schema, schema, &mut HashMap::new()) {
        return None;
    }
    let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS).size_limit(PATTERN);
    jsonschema::options().offline().with_pattern_options(patterns).build(schema).ok()
}

fn subschemas(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(subschemas).sum::<usize>(),
        Value::Array(items) => items.iter().map(subschemas).sum(),
        _ => 0,
    }
}

/// How many schemas one value meets in each schema. `None` while that is being counted, and where it has no end.
type Weights = HashMap<*const Value, Option<usize>>;

/// Whether some schema in this one is too much work for a validator, or work without an end.
fn is_too_much(root: &Value, schema: &Value, known: &mut Weights) -> bool {
    if weight(root, schema, known).is_none() {
        return true;
    }
    match schema {
        Value::Object(members) => members.values().any(|value| is_too_much(root, value, known)),
        Value::Array(items) => items.iter().any(|item| is_too_much(root, item, known)),
        _ => false,
    }
}

fn weight(root: &Value, schema: &Value, known: &mut Weights) -> Option<usize> {
    let here = std::ptr::from_ref(schema);
    if let Some(weight) = known.get(&here) {
        return *weight;
    }
    known.insert(here, None);
    let mut sum = 1_usize;
    for part in of_the_same(root, schema)? {
        sum = sum.saturating_add(weight(root, part, known)?);
    }
    let weight = (sum <= STEPS).then_some(sum);
    known.insert(here, weight);
    weight
}

/// The schemas that a schema holds against the same value. Those of what lies inside the value are left out, since that is
/// smaller each time. Only pointers into the schema are followed: each other kind of reference is one nobody can weigh.
fn of_the_same<'a>(root: &'a Value, schema: &'a Value) -> Option<Vec<&'a Value>> {
    let mut same = Vec::new();
    for (key, value) in schema.as_object().into_iter().flatten() {
        match key.as_str() {
            "$ref" => same.push(root.pointer(value.as_str()?.strip_prefix('#')?)?),
            "$dynamicRef" | "$recursiveRef" => return None,
            // Pointers below it begin there.
            "$id" if !std::ptr::eq(root, schema) => return None,
            "not" | "if" | "then" | "else" => same.push(value),
            "allOf" | "anyOf" | "oneOf" => same.extend(value.as_array().into_iter().flatten()),
            "dependentSchemas" | "dependencies" => same.extend(value.as_object().into_iter().flat_map(Map::values)),
            _ => {}
        }
    }
    Some(same)
}

/// What one error says, in our words. Nothing where the schema itself could not be judged.
fn told(tool: &str, error: &ValidationError<'_>, names: &Names, given: &Value) -> Vec<Finding> {
    let path = dotted(error.instance_path().as_str());
    let of = if path.is_empty() { format!("tool `{tool}`") } else { format!("`{path}`") };
    let must = |what: String| vec![(format!("{} must {what}", subject(&path)), None)];
    match error.kind() {
        Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. }
        | Kind::Referencing(_)
        // Servers seldom mean these as more than a hint, and readers of schemas may pass them over.
        | Kind::Format { .. }
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::FromUtf8 { .. } => Vec::new(),
        Kind::Required { property } => {
            let missing = property.as_str().unwrap_or_default();
            let meant = if path.is_empty() { names.mistyped(missing, given) } else { None };
            let (more, help) = match meant {
                Some(typed) => (format!("; `{typed}` is not among its arguments"), question(&[missing])),
                None => (String::new(), None),
            };
            vec![(format!("{of} needs `{missing}`{more}"), help)]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let top = path.is_empty();
            let finding = |typed: &String| (format!("{of} takes no `{typed}`"), names.help(typed, top));
            // One that stands for a missing argument is told with that.
            let told = |typed: &&String| top && names.required.iter().any(|name| names.mistyped(name, given) == Some(typed));
            unexpected.iter().filter(|typed| !told(typed)).map(finding).collect()
        }
        Kind::Enum { options } => {
            let values: Vec<&Value> = options.as_array().into_iter().flatten().collect();
            let texts = values.iter().filter_map(|value| value.as_str());
            let near = error.instance().as_str().and_then(|typed| question(&nearest(typed, texts)));
            let list = values.iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
            vec![(format!("{} must be one of {}", subject(&path), text::cut(&list, LINE)), near)]
        }
        Kind::Constant { expected_value } => must(format!("be {expected_value}")),
        Kind::Type { kind } => must(format!("be {}, not {}", types(kind), shown(error.instance()))),
        Kind::Minimum { limit } => must(format!("be at least {limit}")),
        Kind::Maximum { limit } => must(format!("be at most {limit}")),
        Kind::ExclusiveMinimum { limit } => must(format!("be more than {limit}")),
        Kind::ExclusiveMaximum { limit } => must(format!("be less than {limit}")),
        Kind::MultipleOf { multiple_of } => must(format!("be a multiple of {multiple_of}")),
        Kind::MinLength { limit: 1 } => must("not be empty".to_owned()),
        Kind::MinLength { limit } => must(format!("have at least {limit} characters")),
        Kind::MaxLength { limit } => must(format!("have at most {limit} characters")),
        Kind::Pattern { pattern } => must(format!("match the pattern {pattern}")),
        Kind::MinItems { limit } => must(format!("have at least {}", text::count(small(*limit), "item"))),
        Kind::MaxItems { limit } => must(format!("have at most {}", text::count(small(*limit), "item"))),
        Kind::UniqueItems => must("have no item twice".to_owned()),
        Kind::MinProperties { limit } => must(format!("have at least {}", text::count(small(*limit), "member"))),
        Kind::MaxProperties { limit } => must(format!("have at most {}", text::count(small(*limit), "member"))),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => branches(tool, &path, context, names, given),
        Kind::OneOfMultipleValid { .. } => must("have one of several forms, and has more than one of them".to_owned()),
        _ => vec![(format!("{}: {}", subject(&path), text::cut(&text::headline(&error.to_string()), LINE)), None)],
    }
}

/// What is wrong with a value of several forms: what the one form says whose type is right, else all types.
fn branches(
    tool: &str,
    path: &str,
    context: &[Vec<ValidationError<'_>>],
    names: &Names,
    given: &Value,
) -> Vec<Finding> {
    let of_type = |error: &&ValidationError<'_>| {
        matches!(error.kind(), Kind::Type { .. }) && dotted(error.instance_path().as_str()) == path
    };
    let right: Vec<_> = context.iter().filter(|errors| !errors.iter().any(|error| of_type(&error))).collect();
    if let [errors] = right.as_slice() {
        return errors.iter().flat_map(|error| told(tool, error, names, given)).collect();
    }
    let types: Vec<String> = context
        .iter()
        .flatten()
        .filter(of_type)
        .filter_map(|error| match error.kind() {
            Kind::Type { kind } => Some(types(kind)),
            _ => None,
        })
        .collect();
    let what = match right.is_empty() {
        true => format!("be {}", types.join(" or ")),
        false => "have one of the forms that the tool's schema lists".to_owned(),
    };
    vec![(format!("{} must {what}", subject(path)), None)]
}

fn subject(path: &str) -> String {
    if path.is_empty() { "the arguments".to_owned() } else { format!("`{path}`") }
}

/// `/tags/0/name` as a person writes it: `tags[0].name`.
fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        match part.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) if path.is_empty() => path.push_str(&part),
            Err(_) => path.push_str(&format!(".{part}")),
        }
    }
    path
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => said(&kind.to_string()).to_owned(),
        TypeKind::Multiple(kinds) => {
            kinds.iter().map(|kind| said(&kind.to_string()).to_owned()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn shown(value: &Value) -> String {
    text::cut(&value.to_string(), SHOWN)
}

fn small(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The arguments that a schema names.
#[derive(Debug, Default)]
struct Names {
    named: BTreeSet<String>,
    /// Those that each call needs.
    required: Vec<String>,
    /// It says something of arguments that it does not name.
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
        // What was read once says nothing new.
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

    /// The given argument that was probably meant to be `missing`.
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

    /// Arguments that the schema does not name, where it names some and is silent about others.
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

/// Findings at once.
const MOST: usize = 5;
/// Schemas above which nothing is checked.
const SUBSCHEMAS: usize = 2000;
/// Schemas that one value may meet before it is about its members.
const STEPS: usize = 10_000;
/// How long a check may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of stack for a check.
const STACK: usize = 64 << 20;
/// Steps of one pattern on one value.
const BACKTRACKS: usize = 100_000;
/// Bytes that one compiled pattern may take.
const PATTERN: usize = 1 << 20;
/// How deep schemas may lie in each other.
const DEPTH: usize = 32;
const LINE: usize = 200;
const SHOWN: usize = 40;

#[cfg(test)]
mod tests {
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
                "name": { "type": "string", "minLength": 1, "pattern": "^[a-z]*$" },
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
            (json!({ "name": "A" }), vec!["`name` must match the pattern ^[a-z]*$"]),
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
            // What no validator can follow, or what is no schema at all.
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
            // Hints, which a server may not hold its callers to.
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
        // A schema that refers to itself for a smaller value is a tree, and checked.
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
            // A circle through two schemas, one of which is read from elsewhere first.
            json!({ "anyOf": [{ "$ref": "#/$defs/c" }], "$defs": { "c": { "anyOf": [{ "$ref": "#" }] } } }),
            json!({ "properties": { "x": { "$id": "urn:x", "$ref": "#/$defs/y", "$defs": { "y": { "$ref": "#" } } } },
                "$defs": { "y": {} } }),
        ];
        for schema in schemas {
            assert_eq!(verdict(&schema, &json!({ "x": 1 })), (vec![], vec![]), "{schema}");
        }
        // Some repetition is usual, and checked.
        let pair = json!({ "$defs": { "n": { "type": "integer" }, "m": { "allOf": [{ "$ref": "#/$defs/n" }] } },
            "properties": { "x": { "allOf": [{ "$ref": "#/$defs/n" }, { "$ref": "#/$defs/m" }] } } });
        assert_eq!(wrong(&pair, &json!({ "x": "y" })), ["`x` must be a whole number, not \"y\""]);
    }

    #[tokio::test(start_paused = true)]
    async fn first_hour_r2_nobody_waits_for_a_check_without_an_end() {
        let (_held, never) = std::sync::mpsc::channel::<()>();
        assert_eq!(within(LIMIT, move || never.recv().is_ok()).await, None);
    }
}
