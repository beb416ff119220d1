//! Tool definitions, rewritten for clients of a given revision. Definitions of prompts and resources fit every
//! revision.

use serde_json::value::RawValue;

use crate::protocol::value::{array, string, text};
use crate::protocol::{Edits, Opened, ProtocolVersion, Raw, object};

/// Returns the definition of a tool for a client of revision `to`; `None` if it needs no change.
pub(crate) fn tool(definition: &Raw, to: ProtocolVersion) -> Option<Raw> {
    let root = definition.as_value();
    let mut edits = Edits::new(definition);
    if definition.value_of("outputSchema").is_some_and(|schema| !is_taken(schema, to)) {
        edits.remove(root, "outputSchema");
    }
    // Only 2025-11-25 uses this member to say whether a call may become a task.
    if to != ProtocolVersion::V2025_11_25 && definition.value_of("execution").is_some() {
        edits.remove(root, "execution");
    }
    (!edits.is_empty()).then(|| edits.apply())
}

/// Reports whether clients of a revision accept this output schema.
fn is_taken(schema: &RawValue, to: ProtocolVersion) -> bool {
    if to.is_modern() {
        return true;
    }
    to >= ProtocolVersion::V2025_06_18
        && text(schema, "type").as_deref() == Some("object")
        && (!may_refer(schema.get().as_bytes()) || refers_within(schema, schema, &mut Opened::default(), DEPTH))
}

/// The greatest depth to which a schema is searched.
const DEPTH: usize = 64;

/// Reports whether the schema may contain references: all their keywords end in `ef`, unless a letter is needlessly
/// escaped.
fn may_refer(schema: &[u8]) -> bool {
    use memchr::memmem::find;
    find(schema, b"ef\"").is_some() || find(schema, b"\\u").is_some()
}

/// Reports whether the schema refers only to paths within `root`. Clients compile the schemas when they list tools, and
/// lose the whole list over one reference that they cannot resolve.
fn refers_within<'a>(schema: &RawValue, root: &'a RawValue, opened: &mut Opened<'a>, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    if let Some(items) = array(schema) {
        return items.into_iter().all(|item| refers_within(item, root, opened, depth - 1));
    }
    object(schema).unwrap_or_default().into_iter().all(|(key, value)| match &*key {
        // A property may be named `$ref`; its value is then a schema, not a string.
        "$ref" if value.get().starts_with('"') => string(value).is_some_and(|path| leads(&path, root, opened)),
        "$dynamicRef" | "$recursiveRef" if value.get().starts_with('"') => false,
        "enum" | "const" | "default" | "examples" | "required" => true,
        _ => refers_within(value, root, opened, depth - 1),
    })
}

/// Reports whether a reference is a path within `root` that exists. `opened` keeps what was parsed, because a schema
/// may have thousands of references.
fn leads<'a>(reference: &str, root: &'a RawValue, opened: &mut Opened<'a>) -> bool {
    let Some(path) = reference.strip_prefix('#') else { return false };
    let mut steps = path.split('/');
    if steps.next() != Some("") {
        return false;
    }
    let mut at = root;
    for step in steps {
        let step = step.replace("%25", "%").replace("%24", "$").replace("~1", "/").replace("~0", "~");
        let next = if at.get().starts_with('[') {
            step.parse().ok().and_then(|index| opened.item(at, index))
        } else {
            opened.member(at, &step)
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}
