//! Translation between revisions, by table and by property.

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::protocol::ProtocolVersion as V;

mod large;
mod questions;
mod requests;
mod results;

const V24: V = V::V2024_11_05;
const V25A: V = V::V2025_03_26;
const V25B: V = V::V2025_06_18;
const V25C: V = V::V2025_11_25;
const V26: V = V::V2026_07_28;

fn raw(text: &str) -> Raw {
    Raw::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn value(raw: &Raw) -> Value {
    serde_json::from_slice(raw.as_bytes()).unwrap_or_else(|error| panic!("{error}: {raw}"))
}

fn info() -> Raw {
    raw(r#"{"name":"mcp-host","version":"1"}"#)
}

/// Returns every pair of revisions.
fn pairs() -> impl Iterator<Item = (V, V)> {
    V::ALL.into_iter().flat_map(|from| V::ALL.map(|to| (from, to)))
}

/// Generates JSON as servers write it: with spaces, escapes, odd numbers, and members with a meaning here.
fn json() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,3}0)?([eE][+-]?[0-9]{1,3})?",
        "[ -~é😀]{0,8}".prop_map(|text| Raw::from_value(&*text).to_string()),
        "(array|boolean|string|object|text|audio|resource_link|accept|complete|input_required|url|form|tool_use)"
            .prop_map(|word| format!("\"{word}\"")),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        let key = "(type|content|contents|messages|text|uri|name|data|structuredContent|resultType|ttlMs|cacheScope|_meta|\
             outputSchema|execution|requestedSchema|properties|required|items|enum|anyOf|oneOf|const|title|default|tools|\
             action|mode|elicitationId|elicitations|url|progressToken|traceparent|\\$ref|io\\.modelcontextprotocol/serverInfo|[a-z]{1,3})";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {}]", items.join(" ,\n"))),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|members| {
                let members: Vec<String> =
                    members.into_iter().rev().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
                format!("{{{}\t}}", members.join(", "))
            }),
        ]
    })
}
