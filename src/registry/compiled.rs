//! Compiles the schemas of tools to find those that are not valid. Never fetches anything.

use std::fmt;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::quoted;
use crate::protocol::Raw;

/// The most subschemas to compile, estimated by opening braces.
const SUBSCHEMAS: usize = 2000;
/// The most bytes of a schema to compile.
const BYTES: usize = 256 << 10;
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
    /// The schema has a value that JSON Schema forbids. Holds the JSON Pointer to that value.
    Wrong(String),
    /// A reference leads out of the schema, or nowhere.
    Reference,
    /// A pattern is not a regular expression, or not one that matches in linear time.
    Pattern,
    /// The schema has so many parts that compiling it could be much work.
    Large,
    /// The schema has so many bytes.
    Long,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(place) if place.is_empty() => f.write_str("is not a valid JSON Schema"),
            Self::Wrong(place) => write!(f, "is not a valid JSON Schema at {}", quoted(place)),
            Self::Reference => f.write_str("has a `$ref` to something that is not in it"),
            Self::Pattern => f.write_str("has a `pattern` that is not a plain regular expression"),
            Self::Large => write!(f, "has more than {SUBSCHEMAS} parts, so it was not checked"),
            Self::Long => write!(f, "has more than {} KiB, so it was not checked", BYTES >> 10),
        }
    }
}

/// Finds a tool's schemas that cannot be used. Patterns compile to automata that match in linear time, and a schema
/// that could be much work is not compiled. This may take milliseconds, so it must not run in a task that others wait
/// on.
pub(super) fn faults<'a>(tool: &'a Arc<str>, definition: &'a Raw) -> impl Iterator<Item = Fault> + use<'a> {
    ["inputSchema", "outputSchema"].into_iter().filter_map(|member| {
        let why = check(&definition.member(member)?).err()?;
        Some(Fault { tool: Arc::clone(tool), member, why })
    })
}

fn check(schema: &Raw) -> Result<(), Why> {
    compile(schema).map(drop)
}

/// Which schema of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(not(any(feature = "validate", test)), allow(dead_code, reason = "only calls are checked"))]
pub(crate) enum SchemaOf {
    Input,
    Output,
}

#[cfg_attr(not(any(feature = "validate", test)), allow(dead_code, reason = "only calls are checked"))]
impl SchemaOf {
    /// Returns the member of the definition that holds it.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Input => "inputSchema",
            Self::Output => "outputSchema",
        }
    }
}

/// A schema that values are checked against.
#[derive(Debug)]
pub(crate) struct Schema(
    #[cfg_attr(not(any(feature = "validate", test)), allow(dead_code, reason = "only calls are checked"))] Validator,
);

#[cfg(any(feature = "validate", test))]
impl Schema {
    /// Returns what is wrong with a value: JSON Pointers, each with a description that does not repeat the value.
    /// Returns `most` mistakes at most.
    pub(crate) fn wrong(&self, value: &Raw, most: usize) -> Vec<(String, String)> {
        let Ok(value) = value.read::<Value>() else { return vec![(String::new(), "is no JSON".to_owned())] };
        let errors = self.0.iter_errors(&value).take(most);
        errors.map(|error| (error.instance_path().to_string(), error.masked().to_string())).collect()
    }
}

/// Compiles a schema. This may take milliseconds, so it must not run in a task that others wait on.
pub(super) fn compile(schema: &Raw) -> Result<Schema, Why> {
    if schema.as_bytes().len() > BYTES {
        return Err(Why::Long);
    }
    if memchr::memchr_iter(b'{', schema.as_bytes()).count() > SUBSCHEMAS {
        return Err(Why::Large);
    }
    let schema = schema.read::<Value>().map_err(|_| Why::Wrong(String::new()))?;
    let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
    match jsonschema::options().offline().with_pattern_options(patterns).build(&schema) {
        Ok(schema) => Ok(Schema(schema)),
        Err(error) => Err(match error.kind() {
            ValidationErrorKind::Referencing(_) => Why::Reference,
            ValidationErrorKind::Format { format } if format == "regex" => Why::Pattern,
            _ => Why::Wrong(error.instance_path().to_string()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_more_than_256_kib_is_not_compiled() {
        let of = |bytes: usize| {
            let around = r#"{"title":""}"#.len();
            Raw::from_value(&serde_json::json!({ "title": "x".repeat(bytes - around) }))
        };
        assert!(compile(&of(BYTES)).is_ok());
        assert_eq!(compile(&of(BYTES + 1)).err(), Some(Why::Long));
    }
}
