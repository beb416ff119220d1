//! The gaps between revisions, by table and by property.

use bytes::Bytes;

use super::*;
use crate::protocol::ProtocolVersion as V;

fn raw(text: &str) -> Raw {
    Raw::parse(&Bytes::copy_from_slice(text.as_bytes())).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn info() -> Raw {
    raw(r#"{"name":"mcp-host","version":"1"}"#)
}

#[test]
fn a_result_for_a_modern_client_says_so() {
    let result =
        |text: &str, method, from| super::result(raw(text), &method, from, V::V2026_07_28, &info()).to_string();
    assert_eq!(
        result(r#"{"content":[]}"#, Method::ToolsCall, V::V2025_06_18),
        r#"{"content":[],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcp-host","version":"1"}}}"#
    );
    assert_eq!(
        result("{}", Method::ResourcesRead, V::V2024_11_05),
        r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mcp-host","version":"1"}}}"#
    );
}
