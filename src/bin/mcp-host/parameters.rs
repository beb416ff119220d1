//! Converts `key=value` words and JSON on a command line to the arguments of a tool or prompt.

use std::collections::HashSet;

use mcp_host::protocol::Raw;
use serde_json::Value;

use crate::report::{Exit, Failure};

/// What to do with a value that does not have its argument's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    Refuse,
    /// Send it as JSON if it is JSON, else as text.
    Send,
}

/// Returns the arguments of a tool: one JSON object, or `key=value` words with types from the tool's input schema.
pub(crate) fn for_tool(words: &[String], schema: Option<&Value>, misfit: Misfit) -> Result<Raw, Failure> {
    if let [json] = words
        && json.trim_start().starts_with('{')
    {
        let wrong = |why: String| {
            Failure::new(Exit::Usage, format!("the arguments are not valid JSON: {why}"))
                .help(r#"mcp-host call TOOL '{"key": "value"}', or mcp-host call TOOL key=value"#)
        };
        return Raw::parse(&json.clone().into_bytes().into()).map_err(|error| wrong(error.to_string()));
    }
    object(words, |key, value| {
        let property = schema.map(|schema| &schema["properties"][key]).filter(|property| !property.is_null());
        let types = property.map(|property| Types::of(schema.unwrap_or(property), property)).unwrap_or_default();
        typed(key, value, &types).or_else(|failure| match misfit {
            Misfit::Refuse => Err(failure),
            Misfit::Send => typed(key, value, &Types::default()),
        })
    })
}

/// Returns the arguments of a prompt, which are all text.
pub(crate) fn for_prompt(words: &[String]) -> Result<Raw, Failure> {
    object(words, |_, value| Ok(text(value)))
}

/// Builds the object. `value` returns JSON text, so a number keeps its digits.
fn object(words: &[String], value: impl Fn(&str, &str) -> Result<String, Failure>) -> Result<Raw, Failure> {
    let mut keys = Vec::new();
    let mut members = Vec::new();
    for word in words {
        let Some((key, given)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::new(Exit::Usage, format!("`{word}` is neither key=value nor a JSON object"))
                .help("write it as key=value, in quotes where the value holds blanks"));
        };
        if keys.contains(&key) {
            return Err(Failure::new(Exit::Usage, format!("`{key}` is given twice"))
                .help(format!("for a list: {key}='[\"a\", \"b\"]'")));
        }
        keys.push(key);
        members.push(format!("{}:{}", text(key), value(key, given)?));
    }
    let object = format!("{{{}}}", members.join(","));
    Raw::parse(&object.into_bytes().into())
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()).help("give all arguments as one JSON object"))
}

/// The JSON types that a schema allows for one value; empty if the schema does not say.
#[derive(Debug, Default, PartialEq)]
struct Types(Vec<String>);

impl Types {
    fn of(root: &Value, schema: &Value) -> Self {
        let mut types = Self::default();
        types.collect(root, schema, DEPTH, &mut HashSet::new());
        types
    }

    fn collect(&mut self, root: &Value, schema: &Value, depth: usize, seen: &mut HashSet<*const Value>) {
        if depth == 0 || !seen.insert(std::ptr::from_ref(schema)) {
            return;
        }
        let listed = schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.0.extend(schema["type"].as_str().into_iter().chain(listed).map(str::to_owned));
        let local = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        if let Some(target) = local.and_then(|pointer| root.pointer(pointer)) {
            self.collect(root, target, depth - 1, seen);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                self.collect(root, part, depth - 1, seen);
            }
        }
        if self.0.is_empty() {
            let values = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
            self.0.extend(values.map(|value| type_of(value).to_owned()));
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }

    fn allow(&self, value: &Value) -> bool {
        match type_of(value) {
            "integer" => self.has("integer") || self.has("number"),
            // 2.0 counts as an integer, too.
            "number" => self.has("number") || self.has("integer") && value.as_f64().is_some_and(|f| f.fract() == 0.0),
            other => self.has(other),
        }
    }
}

/// Returns the value as JSON text of a type that the schema allows. If the schema names no type, returns the value as
/// it is if it parses as JSON, else as text.
fn typed(key: &str, value: &str, types: &Types) -> Result<String, Failure> {
    let parsed = serde_json::from_str::<Value>(value).ok();
    if types.0.is_empty() {
        return Ok(if parsed.is_some() { value.to_owned() } else { text(value) });
    }
    // A quoted string does not count as JSON here: where text is allowed, the text is exactly what was typed.
    match parsed {
        Some(parsed) if !parsed.is_string() && types.allow(&parsed) => Ok(value.to_owned()),
        _ if types.has("string") => Ok(text(value)),
        _ => {
            let mut wanted: Vec<&str> = types.0.iter().map(|name| said(name)).collect();
            wanted.dedup();
            let wanted = wanted.join(" or ");
            Err(Failure::new(Exit::Usage, format!("`{key}` must be {wanted}, not `{value}`"))
                .maybe_help(example(key, types)))
        }
    }
}

fn example(key: &str, types: &Types) -> Option<String> {
    let examples = [
        ("integer", "3"),
        ("number", "1.5"),
        ("boolean", "true"),
        ("array", r#"'["a", "b"]'"#),
        ("object", r#"'{"name": "value"}'"#),
    ];
    let (_, value) = examples.iter().find(|(name, _)| types.has(name))?;
    Some(format!("for example {key}={value}"))
}

/// Returns a JSON Schema type in words.
pub(crate) fn said(name: &str) -> &str {
    match name {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a JSON list",
        "object" => "a JSON object",
        other => other,
    }
}

/// Returns the JSON Schema type of a value.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn text(value: &str) -> String {
    Value::from(value).to_string()
}

/// How deep schemas may be nested.
const DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(words: &[&str], properties: &Value) -> Result<String, Exit> {
        let schema = json!({
            "properties": properties,
            "$defs": { "count": { "type": "integer" }, "loop": { "$ref": "#/$defs/loop" } },
        });
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        for_tool(&words, Some(&schema), Misfit::Refuse).map(|raw| raw.to_string()).map_err(|failure| failure.exit)
    }

    #[test]
    fn the_schema_says_the_type() {
        let cases = [
            (json!({ "type": "string" }), "5", r#""5""#),
            (json!({ "type": "string" }), r#""q""#, r#""\"q\"""#),
            (json!({ "type": "integer" }), "12345678901234567890123", "12345678901234567890123"),
            (json!({ "type": "integer" }), "2.0", "2.0"),
            (json!({ "type": "number" }), "1", "1"),
            (json!({ "type": "boolean" }), "true", "true"),
            (json!({ "type": "array" }), "[1, \"a\"]", "[1, \"a\"]"),
            (json!({ "type": ["string", "null"] }), "null", "null"),
            (json!({ "type": ["integer", "string"] }), "5x", r#""5x""#),
            (json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), "3", "3"),
            (json!({ "$ref": "#/$defs/count" }), "3", "3"),
            (json!({ "enum": ["1", "2"] }), "1", r#""1""#),
        ];
        for (property, value, wanted) in cases {
            let word = format!("x={value}");
            assert_eq!(call(&[&word], &json!({ "x": property })), Ok(format!("{{\"x\":{wanted}}}")), "{property}");
        }
    }

    #[test]
    fn a_wrong_type_is_an_error_of_usage() {
        for (kind, value) in
            [("integer", "1.5"), ("boolean", "yes"), ("array", "a"), ("object", "[]"), ("number", "\"1\"")]
        {
            let word = format!("x={value}");
            assert_eq!(call(&[&word], &json!({ "x": { "type": kind } })), Err(Exit::Usage), "{kind}");
        }
    }

    #[test]
    fn what_does_not_fit_is_sent_if_it_is_to_be() {
        let schema = json!({ "properties": { "n": { "type": "integer" }, "s": { "type": "string" } } });
        let words = ["n=1.5".to_owned(), "s=5".to_owned()];
        assert_eq!(for_tool(&words, Some(&schema), Misfit::Send).unwrap().to_string(), r#"{"n":1.5,"s":"5"}"#);
        let words = ["n=soon".to_owned()];
        assert_eq!(for_tool(&words, Some(&schema), Misfit::Send).unwrap().to_string(), r#"{"n":"soon"}"#);
    }

    #[test]
    fn without_a_type_it_is_json_if_it_parses() {
        let loops = json!({ "l": { "$ref": "#/$defs/loop" } });
        assert_eq!(
            call(&["a=1", "b=x", "c={\"d\": []}", "l=2", "e="], &loops).unwrap(),
            r#"{"a":1,"b":"x","c":{"d": []},"l":2,"e":""}"#
        );
    }

    #[test]
    fn one_object_goes_as_it_is() {
        assert_eq!(call(&[" {\"a\": 1.50}"], &json!({})).unwrap(), r#"{"a": 1.50}"#);
        assert_eq!(call(&[], &json!({})).unwrap(), "{}");
        assert_eq!(call(&["{\"a\""], &json!({})), Err(Exit::Usage));
        assert_eq!(call(&["a"], &json!({})), Err(Exit::Usage));
        assert_eq!(call(&["a=1", "a=2"], &json!({})), Err(Exit::Usage));
    }

    #[test]
    fn prompts_take_text() {
        assert_eq!(for_prompt(&["n=1".to_owned()]).unwrap().to_string(), r#"{"n":"1"}"#);
    }

    #[test]
    fn first_hour_r2_a_schema_that_repeats_itself_is_read_once() {
        let mut forms = vec![json!({ "$ref": "#/properties/k" }); 200];
        forms.push(json!({ "type": "integer" }));
        assert_eq!(call(&["k=3"], &json!({ "k": { "anyOf": forms } })), Ok(r#"{"k":3}"#.to_owned()));
    }
}
