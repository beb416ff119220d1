//! Definitions of tools, as clients of a revision can take them. Those of prompts and resources fit all.

use serde_json::value::RawValue;

use crate::protocol::raw::{array, text};
use crate::protocol::{Edits, ProtocolVersion, Raw, object};

/// The definition of a tool for a client of revision `to`; `None` if it needs no change.
pub(crate) fn tool(definition: &Raw, to: ProtocolVersion) -> Option<Raw> {
    let root = definition.as_value();
    let mut edits = Edits::new(definition);
    if definition.value_of("outputSchema").is_some_and(|schema| !is_taken(schema, to)) {
        edits.remove(root, "outputSchema");
    }
    // Only 2025-11-25 says there whether a call may become a task.
    if to != ProtocolVersion::V2025_11_25 && definition.value_of("execution").is_some() {
        edits.remove(root, "execution");
    }
    (!edits.is_empty()).then(|| edits.apply())
}

/// Whether clients of that revision take such a schema for results.
fn is_taken(schema: &RawValue, to: ProtocolVersion) -> bool {
    if to.is_modern() {
        return true;
    }
    to >= ProtocolVersion::V2025_06_18
        && text(schema, "type").as_deref() == Some("object")
        && !has_foreign_reference(schema, DEPTH)
}

/// A schema nested deeper is not looked through.
const DEPTH: usize = 64;

/// Whether it refers to what is not in it by a path: clients compile such a schema when they list, and fail as a whole.
fn has_foreign_reference(schema: &RawValue, depth: usize) -> bool {
    if depth == 0 || memchr::memmem::find(schema.get().as_bytes(), b"ef\"").is_none() {
        return depth == 0;
    }
    if let Some(items) = array(schema) {
        return items.into_iter().any(|item| has_foreign_reference(item, depth - 1));
    }
    object(schema).unwrap_or_default().into_iter().any(|(key, value)| match &*key {
        "$ref" => value.get() != r##""#""## && !value.get().starts_with("\"#/"),
        "$dynamicRef" | "$recursiveRef" => true,
        "enum" | "const" | "default" | "examples" | "required" => false,
        _ => has_foreign_reference(value, depth - 1),
    })
}
