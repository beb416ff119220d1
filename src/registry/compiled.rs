//! The schemas of a tool, compiled to see whether they are schemas at all: nothing is ever fetched.

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::protocol::Raw;

/// Subschemas, counted roughly by opening braces, above which nothing is compiled.
const SUBSCHEMAS: usize = 2000;
/// Bytes that one compiled pattern may take.
const PATTERN: usize = 1 << 20;

/// Whether the schemas of a tool are schemas: compiled without ever fetching anything, with patterns that match in linear
/// time, and not at all where that could be much work. May take milliseconds: not for a task that others wait on.
pub(super) fn compiles(definition: &Raw) -> bool {
    ["inputSchema", "outputSchema"]
        .iter()
        .all(|member| definition.member(member).is_none_or(|schema| is_schema(&schema)))
}

fn is_schema(schema: &Raw) -> bool {
    if memchr::memchr_iter(b'{', schema.as_bytes()).count() > SUBSCHEMAS {
        return false;
    }
    let Ok(schema) = schema.read::<Value>() else { return false };
    let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
    jsonschema::options().offline().with_pattern_options(patterns).build(&schema).is_ok()
}
