//! Compiles the schemas of a tool to check that they are valid. Nothing is ever fetched.

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::protocol::Raw;

/// The most subschemas to compile, estimated by opening braces.
const SUBSCHEMAS: usize = 2000;
/// The most bytes for one compiled pattern.
const PATTERN: usize = 1 << 20;

/// Reports whether the schemas of a tool are valid. They are compiled without fetching anything, with patterns that
/// match in linear time; schemas that could take much work count as invalid. May take milliseconds, so do not call it
/// in a task that others wait for.
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
