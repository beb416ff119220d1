//! `x-mcp-header` in input schemas: the arguments that a server wants repeated in HTTP headers.
//!
//! The annotation is between mcp-host and the server, unless mcp-host is configured to show it to its clients; then
//! mcp-host must check the headers that they send. The headers themselves are handled elsewhere.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::Annotations;
use crate::protocol::value::{array, string};
use crate::protocol::{Edits, Raw, object};

const ANNOTATION: &str = "x-mcp-header";

/// What `x-mcp-header` annotations cause for a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ParamHeaders {
    /// Nothing: over stdio, and in every revision with a handshake.
    #[default]
    Ignore,
    /// Headers are sent, and a tool with a bad annotation is left out.
    Mirror,
}

/// An argument to repeat in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamHeader {
    /// The argument's position: the property names from the root, each stored once for all arguments below it.
    pub(crate) path: Box<[Arc<str>]>,
    /// The last part of the header's name.
    pub(crate) header: String,
}

/// Reports whether the definition may have annotations.
pub(super) fn is_in(definition: &Raw) -> bool {
    memchr::memmem::find(definition.as_bytes(), ANNOTATION.as_bytes()).is_some()
}

/// Returns the definition to show, and the headers that its annotations ask for.
///
/// # Errors
/// With the reason why an annotation is bad, if headers are sent to the server.
pub(super) fn take(
    definition: &Raw,
    rule: ParamHeaders,
    shown: Annotations,
) -> Result<(Raw, Vec<ParamHeader>), &'static str> {
    let Walk { edits, headers, bad, .. } = read(definition);
    let json = match (shown, bad) {
        (Annotations::Keep, None) => definition.clone(),
        _ => edits.apply(),
    };
    match (rule, bad) {
        (ParamHeaders::Mirror, Some(reason)) => Err(reason),
        (ParamHeaders::Mirror, None) => Ok((json, headers)),
        (ParamHeaders::Ignore, _) => Ok((json, Vec::new())),
    }
}

/// Reads the annotations that were kept in a definition.
pub(super) fn shown(definition: &Raw) -> Vec<ParamHeader> {
    if is_in(definition) { read(definition).headers } else { Vec::new() }
}

fn read(definition: &Raw) -> Walk<'_> {
    let mut walk = Walk { edits: Edits::new(definition), headers: Vec::new(), names: HashSet::new(), bad: None };
    if let Some(schema) = definition.value_of("inputSchema") {
        walk.schema(schema, Some(&mut Vec::new()));
    }
    walk
}

struct Walk<'a> {
    edits: Edits<'a>,
    headers: Vec<ParamHeader>,
    /// The header names, in lower case.
    names: HashSet<String>,
    bad: Option<&'static str>,
}

impl<'a> Walk<'a> {
    /// Walks a schema. `path` has the properties that lead to it; `None` if another keyword leads to it. Recursion is
    /// safe, because the depth of a definition is bounded.
    fn schema(&mut self, schema: &'a RawValue, mut path: Option<&mut Vec<Arc<str>>>) {
        let members = object(schema).unwrap_or_default();
        // One object may repeat the annotation thousands of times.
        let is_annotated = members.iter().any(|(key, _)| key == ANNOTATION);
        if is_annotated {
            self.edits.remove(schema, ANNOTATION);
        }
        let is_scalar = is_annotated && is_scalar(&members);
        for (key, value) in members {
            match &*key {
                ANNOTATION => self.note(is_scalar, value, path.as_deref()),
                "properties" => self.map(value, path.as_deref_mut()),
                "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => self.map(value, None),
                // These hold values, not schemas.
                "enum" | "const" | "default" | "examples" | "required" => {}
                _ if value.get().starts_with('{') => self.schema(value, None),
                _ => array(value).unwrap_or_default().into_iter().for_each(|schema| self.schema(schema, None)),
            }
        }
    }

    /// Walks a map of schemas.
    fn map(&mut self, schemas: &'a RawValue, mut path: Option<&mut Vec<Arc<str>>>) {
        for (name, schema) in object(schemas).unwrap_or_default() {
            if let Some(path) = path.as_deref_mut() {
                path.push(Arc::from(name));
                self.schema(schema, Some(path));
                path.pop();
            } else {
                self.schema(schema, None);
            }
        }
    }

    fn note(&mut self, is_scalar: bool, value: &RawValue, path: Option<&Vec<Arc<str>>>) {
        let header = string(value).filter(|header| !header.is_empty() && header.bytes().all(is_token));
        let reason = match (header, path.filter(|path| !path.is_empty())) {
            (None, _) => "has an `x-mcp-header` that is not a header name",
            (_, None) => "has an `x-mcp-header` outside of a property",
            _ if !is_scalar => "has an `x-mcp-header` on something other than a string, integer, or boolean",
            (Some(header), _) if !self.names.insert(header.to_ascii_lowercase()) => "has the same `x-mcp-header` twice",
            (Some(header), Some(path)) => {
                self.headers.push(ParamHeader { path: path.clone().into(), header: header.into_owned() });
                return;
            }
        };
        self.bad = Some(reason);
    }
}

/// Reports whether the values of a schema fit a header. `number` does not: its decimal text is not unique.
fn is_scalar(members: &[(Cow<'_, str>, &RawValue)]) -> bool {
    let kind = members.iter().find(|(key, _)| key == "type").and_then(|(_, kind)| string(kind));
    matches!(kind.as_deref(), Some("string" | "integer" | "boolean"))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
