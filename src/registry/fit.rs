//! Checks whether arguments made for one definition of a tool can fit another: finds what the other one's schema surely
//! refuses.
//!
//! **Invariant:** nothing that the schema may allow is refused. Only the arguments themselves are checked. The values
//! inside of them are for the server to check.

use serde_json::{Map, Value};

use crate::protocol::Raw;

/// Returns why a tool with this definition cannot take these arguments; `None` if it may take them.
#[must_use]
pub(crate) fn misfit(definition: &Raw, arguments: Option<&Raw>) -> Option<String> {
    let schema: Value = definition.member("inputSchema")?.read().ok()?;
    let none = Map::new();
    let given: Value = arguments.and_then(|arguments| arguments.read().ok()).unwrap_or_default();
    let given = given.as_object().unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    if let Some(missing) = required.filter_map(Value::as_str).find(|name| !given.contains_key(*name)) {
        return Some(format!("it needs {}", super::quoted(missing)));
    }
    let named = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let is_closed =
        schema.get("additionalProperties") == Some(&Value::Bool(false)) && schema.get("patternProperties").is_none();
    for (name, value) in given {
        match named.get(name) {
            None if is_closed => return Some(format!("it has no {}", super::quoted(name))),
            Some(Value::Object(part)) if !may_be(part, value) => {
                return Some(format!("{} has the wrong type or value", super::quoted(name)));
            }
            _ => {}
        }
    }
    None
}

/// Reports whether a property's schema may allow the value.
fn may_be(part: &Map<String, Value>, value: &Value) -> bool {
    if part.contains_key("$ref") || (value.is_null() && part.get("nullable") == Some(&Value::Bool(true))) {
        return true;
    }
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        // `1.0` is an integer.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    };
    let fits = match part.get("type") {
        Some(Value::String(kind)) => is(kind),
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind.as_str().is_none_or(is)),
        _ => true,
    };
    // Numbers may be equal in forms that are not compared here.
    let is_one = |values: &Vec<Value>| value.is_number() || values.contains(value);
    fits && part.get("enum").and_then(Value::as_array).is_none_or(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&text.to_owned().into()).unwrap()
    }

    #[test]
    fn only_what_is_surely_refused_is() {
        let tool = raw(
            r##"{"name":"t","inputSchema":{"type":"object","required":["a"],"additionalProperties":false,"properties":{
                "a":{"type":"string"},"b":{"type":["integer","null"]},"c":{"enum":["x","y",1]},"d":{"$ref":"#/x","type":"string"},
                "e":true,"f":{"type":"number","nullable":true},"g":{"type":"odd"}}}}"##,
        );
        let cases = [
            (r#"{}"#, Some("it needs \"a\"")),
            (r#"{"a":"1"}"#, None),
            (r#"{"a":1}"#, Some("\"a\" has the wrong type or value")),
            (r#"{"a":"1","b":1.0}"#, None),
            (r#"{"a":"1","b":null}"#, None),
            (r#"{"a":"1","b":1.5}"#, Some("\"b\" has the wrong type or value")),
            (r#"{"a":"1","c":"x"}"#, None),
            (r#"{"a":"1","c":1.0}"#, None),
            (r#"{"a":"1","c":"z"}"#, Some("\"c\" has the wrong type or value")),
            (r#"{"a":"1","d":7,"e":7,"f":null,"g":7}"#, None),
            (r#"{"a":"1","h":7}"#, Some("it has no \"h\"")),
        ];
        for (arguments, want) in cases {
            assert_eq!(misfit(&tool, Some(&raw(arguments))).as_deref(), want, "{arguments}");
        }
        assert!(misfit(&tool, None).is_some());
        for open in
            [r#"{"name":"t"}"#, r#"{"name":"t","inputSchema":{}}"#, r#"{"name":"t","inputSchema":{"required":7}}"#]
        {
            assert_eq!(misfit(&raw(open), Some(&raw(r#"{"z":1}"#))), None);
        }
    }
}
