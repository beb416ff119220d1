//! Shortens definitions: leaves out what models do not need, and cuts long texts. Pure.

use serde_json::{Map, Value};

use crate::config::Compact;
use crate::protocol::Raw;

/// How many characters of the description of a tool, and of an argument, `tight` leaves.
const TOOL: usize = 200;
const ARGUMENT: usize = 80;

/// Returns a shortened definition; `None` if nothing can be left out, or if it cannot be read.
pub(super) fn compacted(definition: &Raw, how: Compact) -> Option<Raw> {
    if how == Compact::Off {
        return None;
    }
    let whole: Map<String, Value> = definition.read().ok()?;
    let mut schema = definition.member("inputSchema").and_then(|schema| schema.read::<Value>().ok());
    let mut edited = definition.without_member("outputSchema");
    if let Some(schema) = &mut schema {
        let before = schema.clone();
        lighten(schema, true, how);
        if *schema != before {
            edited = edited.with_member("inputSchema", Raw::from_value(schema).as_bytes());
        }
    }
    if how == Compact::Tight
        && let Some(Value::String(text)) = whole.get("description")
        && let Some(short) = cut(text, TOOL)
    {
        edited = edited.with_member("description", Raw::from_value(&short).as_bytes());
    }
    (edited != *definition).then_some(edited)
}

/// Removes from a schema what `how` leaves out. `is_schema` is false for a map such as `properties`, whose keys are the
/// tool's own names.
fn lighten(value: &mut Value, is_schema: bool, how: Compact) {
    match value {
        Value::Object(members) => {
            if is_schema {
                members.remove("$schema");
                members.remove("examples");
                // An argument may be called `title`; the title of a schema is a text.
                if members.get("title").is_some_and(Value::is_string) {
                    members.remove("title");
                }
                if how == Compact::Tight
                    && let Some(Value::String(text)) = members.get_mut("description")
                    && let Some(short) = cut(text, ARGUMENT)
                {
                    *text = short;
                }
            }
            for (name, member) in members.iter_mut() {
                let names = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
                match name.as_str() {
                    // Values, not schemas.
                    "enum" | "const" | "default" | "required" if is_schema => {}
                    name => lighten(member, !(is_schema && names.contains(&name)), how),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| lighten(item, is_schema, how)),
        _ => {}
    }
}

/// Returns the start of a text of more than `most` characters.
fn cut(text: &str, most: usize) -> Option<String> {
    let (end, _) = text.char_indices().nth(most)?;
    let start = text.get(..end)?;
    let start = start.rsplit_once(char::is_whitespace).map_or(start, |(start, _)| start);
    Some(format!("{}…", start.trim_end()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_names_arguments_stays() {
        let tool = json!({ "name": "t", "title": "T", "description": format!("{}end", "word ".repeat(60)),
            "inputSchema": { "$schema": "x", "title": "In", "type": "object", "examples": [1],
                "properties": { "title": { "type": "string", "title": "Title", "description": "d ".repeat(80),
                    "default": { "title": "x", "examples": [1] } }, "examples": { "type": "array" } } },
            "outputSchema": { "type": "object" } });
        let light = compacted(&Raw::from_value(&tool), Compact::Light).unwrap();
        let schema = light.member("inputSchema").unwrap();
        let properties = json!({ "title": { "type": "string", "description": "d ".repeat(80),
            "default": { "title": "x", "examples": [1] } }, "examples": { "type": "array" } });
        assert_eq!(schema.read::<Value>().unwrap(), json!({ "type": "object", "properties": properties }));
        assert!(light.member("outputSchema").is_none() && light.text("title").as_deref() == Some("T"));
        let tight = compacted(&Raw::from_value(&tool), Compact::Tight).unwrap();
        let text = tight.text("description").unwrap();
        assert!(text.ends_with("word…") && text.chars().count() <= TOOL + 1, "{text}");
        let plain = json!({ "name": "t", "inputSchema": { "type": "object" } });
        assert_eq!(compacted(&Raw::from_value(&plain), Compact::Tight), None);
    }
}
