//! Describes a tool's arguments from its input schema: in one line for the list of tools, in full for a single tool.
//!
//! References inside the schema are followed, `Optional` forms are unwrapped, and members of objects get a path
//! (`options.depth`, `files[].name`). **Invariant:** reading a schema of any shape ends: its depth, its rows and the
//! number of subschemas have caps.

use std::cell::Cell;
use std::collections::HashSet;

use mcp_host::protocol::{Raw, object};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::text::{self, quoted};

/// One argument, or a member of one.
#[derive(Debug, PartialEq)]
pub(crate) struct Argument {
    /// The path from the top of the arguments.
    pub(crate) path: String,
    /// The type and limits in words, the default last.
    pub(crate) kind: String,
    pub(crate) description: String,
}

/// Returns every argument that a schema names, in the schema's order, each followed by its members.
pub(crate) fn all(schema: &Raw) -> Vec<Argument> {
    let (mut rows, root) = (Vec::new(), Root::of(schema));
    members(&root, &View::of(&root, schema), "", 0, &mut rows);
    rows
}

fn members(root: &Root<'_>, view: &View, prefix: &str, depth: usize, rows: &mut Vec<Argument>) {
    let required = view.required();
    for (name, schema) in view.properties() {
        if rows.len() >= ROWS {
            return;
        }
        let view = View::of(root, &schema);
        let path = format!("{prefix}{}", text::line(&name));
        rows.push(Argument {
            kind: view.words(root, required.contains(&name)),
            description: view.text("description").or_else(|| view.text("title")).unwrap_or_default(),
            path: path.clone(),
        });
        if depth < NESTED {
            members(root, &view, &format!("{path}."), depth + 1, rows);
            if let Some(items) = view.raw("items").filter(Raw::is_object) {
                members(root, &View::of(root, &items), &format!("{path}[]."), depth + 1, rows);
            }
        }
    }
}

/// Returns the arguments in one line, such as `text= [from=]`: required ones first, then optional ones in brackets, as
/// many as fit.
pub(crate) fn summary(schema: &Raw) -> String {
    let view = View::of(&Root::of(schema), schema);
    let required = view.required();
    let names: Vec<String> = view.properties().into_iter().map(|(name, _)| name).collect();
    let (needed, others): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| required.contains(name));
    let needed = needed.iter().map(|name| format!("{}=", text::line(name)));
    let others = others.iter().map(|name| format!("[{}=]", text::line(name)));
    let words: Vec<String> = needed.chain(others).collect();
    let mut line = String::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 && line.chars().count() + word.chars().count() >= SUMMARY {
            return format!("{line} +{}", words.len() - index);
        }
        if index > 0 {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// Returns an example call for a shell, with the required arguments, or one optional argument if none is required.
pub(crate) fn example(tool: &str, schema: &Raw, again: &str) -> String {
    let root = Root::of(schema);
    let view = View::of(&root, schema);
    let required = view.required();
    let properties = view.properties();
    let mut shown: Vec<_> = properties.iter().filter(|(name, _)| required.contains(name)).collect();
    if shown.is_empty() {
        shown.extend(properties.first());
    }
    let values: Vec<(&str, Value)> =
        shown.iter().map(|(name, of)| (name.as_str(), View::of(&root, of).example(&root, name, 0))).collect();
    // In a `key=value` word, the key ends at the first `=`.
    let words =
        match values.iter().any(|(name, _)| name.is_empty() || name.contains('=') || name.starts_with(['{', ' '])) {
            true => {
                let object: serde_json::Map<_, _> =
                    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                format!(" {}", quoted(&text::json(&Value::Object(object).to_string())))
            }
            false => values.iter().map(|(name, value)| format!(" {}", word(name, value))).collect(),
        };
    format!("mcp-host call {}{words}{again}", quoted(tool))
}

/// Returns the call as the user typed it with the missing arguments added, or `None` if none is missing or the call has
/// no `key=value` form. A value that came from a file stays `key=@FILE`.
pub(crate) fn completed(tool: &str, schema: &Raw, words: &[String], given: &Raw, again: &str) -> Option<String> {
    let root = Root::of(schema);
    let view = View::of(&root, schema);
    let required = view.required();
    let properties = view.properties().into_iter();
    let missing = properties.filter(|(name, _)| required.contains(name) && given.member(name).is_none());
    let missing: Vec<String> =
        missing.map(|(name, of)| word(&name, &View::of(&root, &of).example(&root, &name, 0))).collect();
    let typed: Option<Vec<String>> = words
        .iter()
        .map(|typed| {
            let is_pair = typed.len() <= LONGEST && !typed.starts_with(['{', '@']);
            let (key, value) = typed.split_once('=').filter(|_| is_pair)?;
            Some(pair(key, value))
        })
        .collect();
    let words = typed?.into_iter().chain(missing.iter().cloned()).collect::<Vec<_>>().join(" ");
    (!missing.is_empty()).then(|| format!("mcp-host call {} {words}{again}", quoted(tool)))
}

fn word(name: &str, value: &Value) -> String {
    let value = match value {
        // A leading `@` would name a file.
        Value::String(text) if text.starts_with('@') => format!("@{text}"),
        Value::String(text) => text.clone(),
        value => text::json(&value.to_string()).into_owned(),
    };
    pair(name, &value)
}

fn pair(name: &str, value: &str) -> String {
    if quoted(name) == name && !value.is_empty() {
        return format!("{name}={}", quoted(value));
    }
    quoted(&format!("{name}={value}"))
}

/// The whole schema, and how many more bytes of it may be read: a few lines may refer to all of it, over and over.
struct Root<'a> {
    schema: &'a Raw,
    left: Cell<usize>,
}

impl<'a> Root<'a> {
    fn of(schema: &'a Raw) -> Self {
        Self { schema, left: Cell::new(BYTES) }
    }

    fn spend(&self, bytes: usize) {
        self.left.set(self.left.get().saturating_sub(bytes));
    }

    fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// Resolves a reference inside the schema.
    fn resolve(&self, reference: &str) -> Option<Raw> {
        // The whole schema is scanned once, its parts many times.
        self.spend(self.schema.as_str().len() / 16);
        let pointer = reference.strip_prefix('#')?;
        let mut at = self.schema.clone();
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            at = match at.member(&part) {
                Some(member) => member,
                None => at.read::<Vec<Raw>>().ok()?.into_iter().nth(part.parse().ok()?)?,
            };
        }
        Some(at)
    }
}

/// A schema together with the schemas that it refers to.
struct View {
    /// The schema itself, then the schemas that its `$ref` and `allOf` name.
    parts: Vec<Raw>,
    /// Whether one of its forms is `null`.
    nullable: bool,
}

impl View {
    fn of(root: &Root<'_>, schema: &Raw) -> Self {
        let mut view = Self { parts: Vec::new(), nullable: false };
        view.add(root, schema, DEEPEST);
        view
    }

    fn add(&mut self, root: &Root<'_>, schema: &Raw, depth: usize) {
        if depth == 0 || self.parts.len() >= PARTS || !schema.is_object() {
            return;
        }
        // The schema itself is read in any case.
        if root.is_spent() {
            self.parts.extend(self.parts.is_empty().then(|| schema.clone()));
            return;
        }
        root.spend(64 + schema.as_str().len());
        self.parts.push(schema.clone());
        if let Some(target) = schema.text("$ref").and_then(|reference| root.resolve(&reference)) {
            self.add(root, &target, depth - 1);
        }
        for part in list(schema, "allOf") {
            self.add(root, &part, depth - 1);
        }
        for key in ["anyOf", "oneOf"] {
            let forms = list(schema, key);
            let is_null = |form: &Raw| form.text("type").as_deref() == Some("null");
            let others: Vec<&Raw> = forms.iter().filter(|form| !is_null(form)).collect();
            self.nullable |= others.len() < forms.len();
            if let [one] = others.as_slice() {
                self.add(root, one, depth - 1);
            }
        }
    }

    fn raw(&self, name: &str) -> Option<Raw> {
        self.parts.iter().find_map(|part| part.member(name))
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.raw(name)?.read().ok()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.parts.iter().find_map(|part| part.text(name))
    }

    fn required(&self) -> HashSet<String> {
        self.parts.iter().filter_map(|part| part.member("required")?.read::<Vec<String>>().ok()).flatten().collect()
    }

    /// Returns the properties in the order of the schema.
    fn properties(&self) -> Vec<(String, Raw)> {
        let (mut found, mut known) = (Vec::new(), HashSet::new());
        for properties in self.parts.iter().filter_map(|part| part.member("properties")) {
            let members = properties.read::<&RawValue>().ok().and_then(object).unwrap_or_default();
            for (name, schema) in members {
                if !known.insert(name.to_string()) {
                    continue;
                }
                if let Ok(schema) = Raw::parse(&schema.get().as_bytes().to_vec().into()) {
                    found.push((name.into_owned(), schema));
                }
            }
        }
        found
    }

    /// Returns the named types, without `null`.
    fn types(&self) -> Vec<String> {
        match self.value("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    fn values(&self) -> Vec<Value> {
        let listed = self.value("enum").and_then(|list| list.as_array().cloned()).unwrap_or_default();
        listed.into_iter().chain(self.value("const")).collect()
    }

    /// Describes the value: `integer, required, 1 to 60, default 5`.
    fn words(&self, root: &Root<'_>, required: bool) -> String {
        let required = required.then(|| "required".to_owned());
        let default = self.value("default").map(|value| format!("default {}", short(&value)));
        let kind = std::iter::once(self.kind(root, 0));
        kind.chain(required).chain(self.limits()).chain(default).collect::<Vec<_>>().join(", ")
    }

    fn kind(&self, root: &Root<'_>, depth: usize) -> String {
        let values = self.values();
        let mut kind = if values.is_empty() {
            let named = |name: &String| self.named(root, name, depth);
            let mut kinds: Vec<String> = self.types().iter().take(VALUES).map(named).collect();
            if kinds.is_empty() && depth < NESTED {
                let mut forms = ["anyOf", "oneOf"]
                    .into_iter()
                    .flat_map(|key| self.parts.iter().flat_map(move |part| list(part, key)));
                for form in forms.by_ref().take(VALUES).take_while(|_| !root.is_spent()) {
                    kinds.push(Self::of(root, &form).kind(root, depth + 1));
                }
                // If a part of a form is left out, the whole list is marked as incomplete.
                let is_unread = root.is_spent() && self.properties().is_empty();
                if is_unread || forms.next().is_some() || kinds.iter().any(|kind| kind.ends_with(MORE)) {
                    let mut told: Vec<&str> = kinds.iter().map(|kind| kind.trim_end_matches(MORE)).collect();
                    told.dedup();
                    return if told.is_empty() { format!("any JSON{MORE}") } else { told.join(" or ") + MORE };
                }
            }
            if kinds.is_empty() && !self.properties().is_empty() {
                kinds.push("object".to_owned());
            }
            kinds.dedup();
            if kinds.is_empty() { "any JSON".to_owned() } else { kinds.join(" or ") }
        } else {
            let (shown, rest) = values.split_at(values.len().min(VALUES));
            let more = if rest.is_empty() { String::new() } else { format!(" or {} more", rest.len()) };
            format!("{}{more}", shown.iter().map(short).collect::<Vec<_>>().join(" | "))
        };
        if self.nullable && !kind.ends_with("null") {
            kind.push_str(" or null");
        }
        kind
    }

    fn named(&self, root: &Root<'_>, name: &str, depth: usize) -> String {
        let of = |key: &str| {
            let part = self.raw(key).filter(Raw::is_object).filter(|_| depth < NESTED && !root.is_spent())?;
            Some(Self::of(root, &part).kind(root, depth + 1)).filter(|kind| kind != "any JSON")
        };
        let inner = match name {
            "array" => of("items").map(|kind| format!("array of {kind}")),
            "object" if self.properties().is_empty() => {
                of("additionalProperties").map(|kind| format!("object of {kind}"))
            }
            _ => None,
        };
        inner.unwrap_or_else(|| text::line(name).into_owned())
    }

    fn limits(&self) -> Vec<String> {
        let number = |name: &str| self.value(name).filter(Value::is_number).map(|value| value.to_string());
        let range = |low: Option<String>, high: Option<String>, unit: &str| {
            let one = |limit: &str, unit: &str| {
                if limit == "1" { unit.trim_end_matches('s').to_owned() } else { unit.to_owned() }
            };
            match (low, high) {
                (Some(low), Some(high)) if low == high => Some(format!("{low}{}", one(&low, unit))),
                (Some(low), Some(high)) => Some(format!("{low} to {high}{unit}")),
                (Some(low), None) if !unit.is_empty() && low == "0" => None,
                (Some(low), None) => Some(format!("at least {low}{}", one(&low, unit))),
                (None, Some(high)) => Some(format!("at most {high}{}", one(&high, unit))),
                (None, None) => None,
            }
        };
        let pattern =
            self.text("pattern").map(|pattern| format!("pattern {}", text::cut(&text::headline(&pattern), PATTERN)));
        let format =
            self.text("format").map(|format| format!("format {}", text::cut(&text::headline(&format), PATTERN)));
        let unique = self.value("uniqueItems").filter(|value| *value == Value::Bool(true));
        [
            range(number("minimum"), number("maximum"), ""),
            number("exclusiveMinimum").map(|limit| format!("more than {limit}")),
            number("exclusiveMaximum").map(|limit| format!("less than {limit}")),
            number("multipleOf").map(|step| format!("a multiple of {step}")),
            range(number("minLength"), number("maxLength"), " characters"),
            range(number("minItems"), number("maxItems"), " items"),
            unique.map(|_| "no item twice".to_owned()),
            format,
            pattern,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Makes up a value that the schema allows, as far as possible.
    fn example(&self, root: &Root<'_>, name: &str, depth: usize) -> Value {
        let given = self.value("examples").and_then(|list| list.as_array()?.first().cloned());
        let given = given.or_else(|| self.value("example")).or_else(|| self.values().into_iter().next());
        if let Some(value) = given.or_else(|| self.value("default").filter(|value| !value.is_null())) {
            return value;
        }
        let number = |name: &str| self.value(name).filter(Value::is_number);
        let first = self.types().into_iter().find(|name| name != "null");
        match first.as_deref() {
            Some("integer" | "number") => {
                let above = number("exclusiveMinimum")
                    .and_then(|value| value.as_i64())
                    .map(|low| Value::from(low.saturating_add(1)));
                let step = number("multipleOf");
                number("minimum").or(above).or(step).or_else(|| number("maximum")).unwrap_or_else(|| Value::from(1))
            }
            Some("boolean") => Value::Bool(true),
            Some("array") => {
                let count = number("minItems").and_then(|value| value.as_u64()).unwrap_or(1).clamp(1, 3);
                let item = match self.raw("items").filter(|_| depth < NESTED && !root.is_spent()) {
                    Some(items) => Self::of(root, &items).example(root, name.trim_end_matches('s'), depth + 1),
                    None => Value::from("text"),
                };
                (0..count).map(|_| item.clone()).collect()
            }
            Some("object") => self.object(root, depth),
            None if !self.properties().is_empty() => self.object(root, depth),
            None => match ["anyOf", "oneOf"]
                .into_iter()
                .find_map(|key| self.parts.iter().find_map(|part| list(part, key).into_iter().next()))
            {
                Some(of) if depth < NESTED && !root.is_spent() => Self::of(root, &of).example(root, name, depth + 1),
                _ => Value::from("text"),
            },
            _ => Value::from(self.sample(name)),
        }
    }

    fn object(&self, root: &Root<'_>, depth: usize) -> Value {
        let required = self.required();
        let is_shown = |name: &String| required.contains(name) && depth < NESTED && !root.is_spent();
        let members = self.properties().into_iter().filter(|(name, _)| is_shown(name));
        Value::Object(
            members
                .map(|(name, of)| {
                    let value = Self::of(root, &of).example(root, &name, depth + 1);
                    (name, value)
                })
                .collect(),
        )
    }

    /// Makes up a text of the right format and length.
    fn sample(&self, name: &str) -> String {
        let known = match self.text("format").as_deref() {
            Some("uri" | "url" | "iri" | "uri-reference") => Some("https://example.com/"),
            Some("date") => Some("2026-01-31"),
            Some("date-time") => Some("2026-01-31T12:00:00Z"),
            Some("time") => Some("12:00:00Z"),
            Some("duration") => Some("PT1H"),
            Some("email" | "idn-email") => Some("ada@example.com"),
            Some("uuid") => Some("00000000-0000-4000-8000-000000000000"),
            Some("ipv4") => Some("127.0.0.1"),
            Some("ipv6") => Some("::1"),
            Some("hostname" | "idn-hostname") => Some("example.com"),
            _ => None,
        };
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase();
        let text = known.map_or(if plain.is_empty() { "TEXT".to_owned() } else { plain }, str::to_owned);
        let limit = |name: &str| {
            self.value(name).and_then(|value| value.as_u64()).and_then(|limit| usize::try_from(limit).ok())
        };
        let least = limit("minLength").unwrap_or(0).min(LONGEST);
        let most = limit("maxLength").unwrap_or(usize::MAX);
        let filled = text.chars().chain(std::iter::repeat('X'));
        filled.take(text.chars().count().max(least).min(most)).collect()
    }
}

fn list(schema: &Raw, key: &str) -> Vec<Raw> {
    schema.member(key).and_then(|list| list.read().ok()).unwrap_or_default()
}

fn short(value: &Value) -> String {
    text::cut(&text::json(&value.to_string()), SHORT)
}

/// How many nested references and schemas in `allOf` to follow for one value.
const DEEPEST: usize = 6;
const PARTS: usize = 16;
/// How many levels of nested objects to show.
const NESTED: usize = 4;
const ROWS: usize = 200;
/// How many bytes of one schema to read; bytes that are read again count again.
const BYTES: usize = 4 << 20;
/// Marks a list of forms as incomplete.
const MORE: &str = " or …";
const VALUES: usize = 12;
/// How many characters a line of arguments has at most.
const SUMMARY: usize = 48;
const PATTERN: usize = 60;
const SHORT: usize = 60;
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&text.as_bytes().to_vec().into()).unwrap()
    }

    fn rows(schema: &str) -> Vec<String> {
        let row = |row: Argument| format!("{}: {} {}", row.path, row.kind, row.description).trim_end().to_owned();
        all(&raw(schema)).into_iter().map(row).collect()
    }

    const FILES: &str = r##"{
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "description": "Where\nto look" },
            "kinds": { "type": "array", "items": { "enum": ["file", "folder"] }, "minItems": 1 },
            "depth": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
            "since": { "anyOf": [{ "type": "string", "format": "date" }, { "type": "null" }], "default": null },
            "options": { "$ref": "#/$defs/Options" },
            "rules": { "type": "array", "items": { "$ref": "#/$defs/Rule" } },
            "size": { "type": ["integer", "string"], "exclusiveMinimum": 0 },
            "labels": { "type": "object", "additionalProperties": { "type": "integer" } },
            "tree": { "$ref": "#/$defs/Tree" },
            "\u001b[2J": {}
        },
        "required": ["path", "rules"],
        "$defs": {
            "Options": { "type": "object", "properties": { "case": { "type": "boolean" } }, "required": ["case"] },
            "Rule": { "properties": { "glob": { "type": "string", "pattern": "^[*]" } }, "required": ["glob"] },
            "Tree": { "properties": { "child": { "$ref": "#/$defs/Tree" } } }
        }
    }"##;

    #[test]
    fn first_hour_r2_arguments_are_told_with_their_limits() {
        assert_eq!(
            rows(FILES),
            [
                "path: string, required, at least 1 character Where\nto look",
                r#"kinds: array of "file" | "folder", at least 1 item"#,
                "depth: integer, 1 to 9, default 3",
                "since: string or null, format date, default null",
                "options: object",
                "options.case: boolean, required",
                "rules: array of object, required",
                "rules[].glob: string, required, pattern ^[*]",
                "size: integer or string, more than 0",
                "labels: object of integer",
                "tree: object",
                "tree.child: object",
                "tree.child.child: object",
                "tree.child.child.child: object",
                "tree.child.child.child.child: object",
                r"\u{1b}[2J: any JSON",
            ]
        );
    }

    #[test]
    fn first_hour_r2_a_line_of_arguments_has_an_end() {
        assert_eq!(summary(&raw(FILES)), "path= rules= [kinds=] [depth=] [since=] +5");
        assert_eq!(summary(&raw(r#"{"type":"object"}"#)), "");
        assert_eq!(
            summary(&raw(&format!(r#"{{"properties":{{"{}":{{}}}}}}"#, "x".repeat(80)))),
            format!("[{}=]", "x".repeat(80))
        );
    }

    #[test]
    fn first_hour_r2_an_example_is_a_line_for_a_shell() {
        let cases = [
            (r#"{"type":"object"}"#, "mcp-host call t"),
            (FILES, r#"mcp-host call t path=PATH rules='[{"glob":"GLOB"}]'"#),
            (r#"{"properties":{"from":{"type":"integer","default":5}}}"#, "mcp-host call t from=5"),
            (r#"{"properties":{"a b":{"type":"string"}},"required":["a b"]}"#, "mcp-host call t 'a b=AB'"),
            (r#"{"properties":{"a=b":{"type":"string"}},"required":["a=b"]}"#, r#"mcp-host call t '{"a=b":"AB"}'"#),
            (r#"{"properties":{"who":{"enum":["@ada"]}},"required":["who"]}"#, "mcp-host call t who=@@ada"),
            (
                r#"{"properties":{"q":{"type":"string","examples":["it's $HOME"]}},"required":["q"]}"#,
                r"mcp-host call t q='it'\''s $HOME'",
            ),
            (
                r#"{"properties":{"id":{"type":"string","minLength":4,"maxLength":4}},"required":["id"]}"#,
                "mcp-host call t id=IDXX",
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(example("t", &raw(schema), ""), expected, "{schema}");
        }
    }

    #[test]
    fn first_hour_r2_an_example_is_what_the_schema_allows() {
        let schemas = [
            r#"{"properties":{"n":{"type":"number","exclusiveMinimum":2}},"required":["n"]}"#,
            r#"{"properties":{"n":{"type":"integer","multipleOf":5}},"required":["n"]}"#,
            r#"{"properties":{"s":{"type":"string","minLength":9,"maxLength":9}},"required":["s"]}"#,
            r#"{"properties":{"l":{"type":"array","minItems":2,"items":{"type":"boolean"}}},"required":["l"]}"#,
            r#"{"properties":{"o":{"oneOf":[{"type":"object","properties":{"a":{"const":1}},"required":["a"]}]}},"required":["o"]}"#,
            r#"{"properties":{"o":{"anyOf":[{"type":"integer"},{"type":"string"}]}},"required":["o"]}"#,
        ];
        for schema in schemas {
            let line = example("t", &raw(schema), "");
            let mut words = shlex::split(&line).unwrap();
            let words: Vec<String> = words.drain(3..).collect();
            let schema: Value = serde_json::from_str(schema).unwrap();
            let arguments =
                crate::parameters::for_tool(&words, Some(&schema), crate::parameters::Misfit::Refuse).unwrap();
            assert_eq!(crate::schema::check("t", &schema, &arguments), crate::schema::Verdict::default(), "{line}");
        }
    }

    #[test]
    fn first_hour_r2_a_schema_that_repeats_itself_is_shown_to_an_end() {
        let forms = vec![r##"{"$ref":"#/$defs/a"}"##; 100].join(",");
        let itself =
            format!(r##"{{"properties":{{"a":{{"$ref":"#/$defs/a"}}}},"$defs":{{"a":{{"anyOf":[{forms}]}}}}}}"##);
        assert_eq!(rows(&itself), ["a: any JSON or …"]);
        let names: Vec<String> = (0..50).map(|at| format!("m{at}")).collect();
        let members: Vec<String> = names.iter().map(|name| format!(r##""{name}":{{"$ref":"#"}}"##)).collect();
        let tree = format!(r#"{{"properties":{{{}}},"required":{names:?}}}"#, members.join(","));
        let line = example("t", &raw(&tree), "");
        assert!(line.starts_with("mcp-host call t m0="), "{line}");
        assert_eq!(rows(&tree).len(), ROWS);
        let members: Vec<String> = (0..100_000).map(|at| format!(r#""m{at}":{{}}"#)).collect();
        let many = format!(r#"{{"properties":{{{}}}}}"#, members.join(","));
        assert_eq!(summary(&raw(&many)), "[m0=] [m1=] [m2=] [m3=] [m4=] [m5=] [m6=] [m7=] +99992");
    }
}
