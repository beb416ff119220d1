//! Compiles the schemas of tools to find those that are not valid. Never fetches anything.

use std::fmt;
use std::sync::Arc;

use jsonschema::PatternOptions;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::quoted;
use crate::protocol::Raw;

/// The most subschemas to compile, estimated by opening braces.
const SUBSCHEMAS: usize = 2000;
/// The most bytes for one compiled pattern.
const PATTERN: usize = 1 << 20;

/// A schema of a tool that cannot be used to validate anything. Its tool is still offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The name of the tool at its server.
    pub(crate) tool: Arc<str>,
    /// `inputSchema` or `outputSchema`.
    pub(crate) member: &'static str,
    pub(crate) why: Why,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// JSON Schema forbids a value in the schema. Holds the place of that value, a JSON Pointer.
    Wrong(String),
    /// A reference leads out of the schema, or nowhere.
    Reference,
    /// A pattern is not a regular expression, or not one that matches in linear time.
    Pattern,
    /// The schema is so large that compiling it could be much work.
    Large,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(place) if place.is_empty() => f.write_str("is not a valid JSON Schema"),
            Self::Wrong(place) => write!(f, "is not a valid JSON Schema at {}", quoted(place)),
            Self::Reference => f.write_str("has a `$ref` to something that is not in it"),
            Self::Pattern => f.write_str("has a `pattern` that is not a plain regular expression"),
            Self::Large => write!(f, "has more than {SUBSCHEMAS} parts, so it was not checked"),
        }
    }
}

/// Finds a tool's schemas that cannot be used. Patterns compile to automata that match in linear time, and a schema
/// that could be much work is not compiled. May take milliseconds: not for a task that others wait on.
pub(super) fn faults<'a>(tool: &'a Arc<str>, definition: &'a Raw) -> impl Iterator<Item = Fault> + use<'a> {
    ["inputSchema", "outputSchema"].into_iter().filter_map(|member| {
        let why = check(&definition.member(member)?).err()?;
        Some(Fault { tool: Arc::clone(tool), member, why })
    })
}

fn check(schema: &Raw) -> Result<(), Why> {
    if memchr::memchr_iter(b'{', schema.as_bytes()).count() > SUBSCHEMAS {
        return Err(Why::Large);
    }
    let schema = schema.read::<Value>().map_err(|_| Why::Wrong(String::new()))?;
    let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
    match jsonschema::options().offline().with_pattern_options(patterns).build(&schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.kind() {
            ValidationErrorKind::Referencing(_) => Why::Reference,
            ValidationErrorKind::Format { format } if format == "regex" => Why::Pattern,
            _ => Why::Wrong(error.instance_path().to_string()),
        }),
    }
}
