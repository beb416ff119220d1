//! The input schema of a tool: repaired where only one meaning is plausible.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::protocol::value::{array, string, twice};
use crate::protocol::{Raw, object};

/// A schema for any object.
const ANY_OBJECT: &[u8] = br#"{"type":"object"}"#;

/// Checks the input schema of a tool. Returns a repaired schema and the reason, if it needs repair.
///
/// # Errors
/// When it is not a schema for arguments and cannot be repaired.
pub(super) fn input(schema: Option<&RawValue>) -> Result<Option<(Vec<u8>, String)>, Cow<'static, str>> {
    let Some(schema) = schema.filter(|schema| schema.get() != "null") else {
        return Ok(Some((ANY_OBJECT.to_vec(), "`inputSchema` is missing: any object".to_owned())));
    };
    let Some(members) = object(schema) else { return Err("its `inputSchema` is not an object".into()) };
    if let Some(twice) = twice(&members) {
        return Err(format!("its `inputSchema` has two members {}", super::quoted(twice)).into());
    }
    let mut mended: Option<Raw> = None;
    let mut why = Vec::new();
    let mut put = |member: &str, value: Option<&[u8]>, text: &'static str| {
        let before =
            mended.take().unwrap_or_else(|| Raw::trusted(bytes::Bytes::copy_from_slice(schema.get().as_bytes())));
        mended = Some(value.map_or_else(|| before.without_member(member), |value| before.with_member(member, value)));
        why.push(text);
    };
    let mut is_object = false;
    for (key, value) in &members {
        match &**key {
            "type" => is_object = string(value).is_some_and(|of| of == "object"),
            "properties" => match properties(value) {
                Properties::Fine => {}
                Properties::Mended(new) => {
                    put("properties", Some(&new), "a property of `inputSchema` is not an object")
                }
                Properties::None => put("properties", None, "`inputSchema.properties` is not an object: left out"),
            },
            "required" if !is_list_of_text(value) => {
                put("required", None, "`inputSchema.required` is not a list of names: left out");
            }
            _ => {}
        }
    }
    if !is_object {
        put("type", Some(br#""object""#), "`inputSchema.type` is not `object`: set");
    }
    Ok(mended.map(|schema| (schema.as_bytes().to_vec(), why.join(", "))))
}

enum Properties {
    Fine,
    Mended(Vec<u8>),
    None,
}

/// Checks the properties. A property may legally be `true`, but clients that expect an object refuse the whole list.
fn properties(value: &RawValue) -> Properties {
    let Some(members) = object(value) else { return Properties::None };
    if members.iter().all(|(_, schema)| schema.get().starts_with('{')) {
        return Properties::Fine;
    }
    let whole = Raw::trusted(bytes::Bytes::copy_from_slice(value.get().as_bytes()));
    let mut edits = crate::protocol::Edits::new(&whole);
    for (_, schema) in object(whole.as_value()).unwrap_or_default() {
        match schema.get() {
            object if object.starts_with('{') => {}
            "false" => edits.replace(schema, br#"{"not":{}}"#.to_vec()),
            _ => edits.replace(schema, b"{}".to_vec()),
        }
    }
    Properties::Mended(edits.apply().as_bytes().to_vec())
}

fn is_list_of_text(value: &RawValue) -> bool {
    array(value).is_some_and(|items| items.iter().all(|item| item.get().starts_with('"')))
}
