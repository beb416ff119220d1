//! What a request to a modern server says about itself (2026-07-28): members of `_meta`, and the headers that repeat
//! them over HTTP; pure.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::RawValue;

use super::terms::Terms;
use crate::protocol::{Edits, Method, Opened, Profile, ProtocolVersion, Raw, meta, value};
use crate::registry::ParamHeader;
pub(super) use crate::transport::Heads;

/// Adds the protocol's own members to the `_meta` of `params`, which must not contain them yet.
pub(super) fn stamp(params: Option<&Raw>, terms: &Terms, client_info: &Raw, version: ProtocolVersion) -> Raw {
    let capabilities = capabilities(terms);
    let mut own = format!(
        r#""{}":"{version}","{}":{client_info},"{}":{capabilities}"#,
        meta::PROTOCOL_VERSION,
        meta::CLIENT_INFO,
        meta::CLIENT_CAPABILITIES
    );
    if let Some(level) = terms.level {
        own += &format!(r#","{}":"{level}""#, meta::LOG_LEVEL);
    }
    let Some(params) = params else { return Raw::trusted(format!(r#"{{"_meta":{{{own}}}}}"#).into()) };
    let mut edits = Edits::new(params);
    match params.value_of("_meta") {
        Some(theirs) => edits.replace(theirs, joined(theirs, &own).into_bytes()),
        None => edits.append("_meta", format!("{{{own}}}").as_bytes()),
    }
    edits.apply()
}

/// The client capabilities, which allow the server to ask questions during the request. `roots.listChanged` is omitted:
/// such a change could not be reported.
fn capabilities(terms: &Terms) -> String {
    let mut text = terms.profile.without(Profile::ROOTS_CHANGED).to_capabilities();
    if let Some(extensions) = &terms.extensions {
        text.pop();
        let comma = if text.len() > 1 { "," } else { "" };
        text += &format!(r#"{comma}"extensions":{extensions}}}"#);
    }
    text
}

/// Appends our members to an object; a value that is not an object is replaced.
fn joined(theirs: &RawValue, own: &str) -> String {
    let inner = theirs.get().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    match inner.map(str::trim) {
        None | Some("") => format!("{{{own}}}"),
        Some(inner) => format!("{{{inner},{own}}}"),
    }
}

/// Returns the headers of a request over HTTP: its revision, its method, the name in its params, and for a tool call
/// the arguments that the server wants in headers.
pub(super) fn heads(method: &Method, params: &Raw, version: ProtocolVersion, wanted: &[ParamHeader]) -> Heads {
    let mut heads: Heads = vec![
        (Cow::Borrowed("mcp-protocol-version"), version.as_str().to_owned()),
        (Cow::Borrowed("mcp-method"), encode(method.as_str()).into_owned()),
    ];
    let named = match method {
        Method::ToolsCall | Method::PromptsGet => "name",
        Method::ResourcesRead => "uri",
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => "taskId",
        _ => return heads,
    };
    if let Some(name) = params.value_of(named).and_then(value::string) {
        heads.push((Cow::Borrowed("mcp-name"), encode(&name).into_owned()));
    }
    if let (false, Some(arguments)) = (wanted.is_empty(), params.value_of("arguments")) {
        let mut opened = Opened::default();
        for header in wanted {
            if let Some(value) = argument(arguments, &header.path, &mut opened) {
                heads.push((Cow::Owned(format!("mcp-param-{}", header.header)), encode(&value).into_owned()));
            }
        }
    }
    heads
}

/// Returns the argument at a path as text; `None` if it is absent, `null`, an object, or an array.
fn argument<'a>(arguments: &'a RawValue, path: &[Arc<str>], opened: &mut Opened<'a>) -> Option<Cow<'a, str>> {
    let value = path.iter().try_fold(arguments, |value, name| opened.member(value, name))?;
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => value::string(value),
        b't' | b'f' => Some(Cow::Borrowed(text)),
        b'-' | b'0'..=b'9' => Some(number(text)),
        _ => None,
    }
}

/// Returns a number in its shortest decimal form; an integer has no fraction, however it was written.
fn number(text: &str) -> Cow<'_, str> {
    if !text.contains(['.', 'e', 'E']) {
        return Cow::Borrowed(if text == "-0" { "0" } else { text });
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Cow::Owned((number + 0.0).to_string()),
        _ => Cow::Borrowed(text),
    }
}

/// Encodes text for a header value: unchanged if it is visible ASCII with inner spaces only, else Base64 between
/// markers.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let bare = text.trim_matches(' ').len() == text.len();
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    if plain && bare && !marked {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Owner;

    fn raw(text: &'static str) -> Raw {
        Raw::parse(&text.into()).unwrap()
    }

    const V: ProtocolVersion = ProtocolVersion::LATEST_MODERN;

    #[test]
    fn a_stamp_leaves_every_other_byte() {
        let info = raw(r#"{"name":"h"}"#);
        let host = Terms::host();
        let own = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"h"},"io.modelcontextprotocol/clientCapabilities":{}"#;
        let stamped = |params: Option<&Raw>| stamp(params, &host, &info, V).to_string();
        assert_eq!(stamped(None), format!(r#"{{"_meta":{{{own}}}}}"#));
        assert_eq!(stamped(Some(&Raw::empty_object())), format!(r#"{{"_meta":{{{own}}}}}"#));
        let cases = [
            (r#"{ "a": 1.0 }"#, format!(r#"{{ "a": 1.0 ,"_meta":{{{own}}}}}"#)),
            (r#"{"_meta":{ },"b":2}"#, format!(r#"{{"_meta":{{{own}}},"b":2}}"#)),
            (r#"{"_meta":3}"#, format!(r#"{{"_meta":{{{own}}}}}"#)),
            (
                r#"{"_meta":{"progressToken":7,"x/y":{"_meta":{}}},"z":0}"#,
                format!(r#"{{"_meta":{{"progressToken":7,"x/y":{{"_meta":{{}}}},{own}}},"z":0}}"#),
            ),
        ];
        for (params, want) in cases {
            assert_eq!(stamped(Some(&raw(params))), want);
        }
    }

    #[test]
    fn a_stamp_says_what_the_client_can_do_and_wants() {
        let terms = Terms {
            owner: Owner(1),
            profile: Profile::ROOTS.with(Profile::ROOTS_CHANGED).with(Profile::ELICITATION_URL),
            extensions: Some(raw(r#"{"x/ui":{}}"#)),
            level: Some("info"),
            ..Terms::host()
        };
        let stamped = stamp(None, &terms, &Raw::empty_object(), V).member("_meta").unwrap();
        let said =
            stamped.members([meta::CLIENT_CAPABILITIES, meta::LOG_LEVEL]).map(|member| member.unwrap().to_string());
        assert_eq!(said, [r#"{"roots":{},"elicitation":{"url":{}},"extensions":{"x/ui":{}}}"#, r#""info""#]);
        let alone = Terms { profile: Profile::EMPTY, ..terms };
        assert_eq!(capabilities(&alone), r#"{"extensions":{"x/ui":{}}}"#);
    }

    #[test]
    fn h47_values_of_headers_are_plain_or_marked() {
        let cases = [
            ("us-west1", "us-west1"),
            ("two words", "two words"),
            ("", ""),
            ("=?base64?", "=?base64?"),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
            ("Zürich", "=?base64?WsO8cmljaA==?="),
            (" padded", "=?base64?IHBhZGRlZA==?="),
            ("padded ", "=?base64?cGFkZGVkIA==?="),
            ("a\tb", "=?base64?YQli?="),
            ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
            ("\u{7f}", "=?base64?fw==?="),
        ];
        for (text, want) in cases {
            assert_eq!(encode(text), want, "{text:?}");
        }
    }

    #[test]
    fn h47_headers_repeat_the_body() {
        let wanted: Vec<ParamHeader> =
            [("s", "S"), ("n", "N"), ("f", "F"), ("b", "B"), ("o/i", "Deep"), ("gone", "Gone"), ("null", "Null")]
                .map(|(path, header)| ParamHeader {
                    path: path.split('/').map(Arc::from).collect(),
                    header: header.to_owned(),
                })
                .into();
        let params = raw(
            r#"{"name":"t ü","arguments":{"s":"a b","n":42.0,"f":1.50,"b":true,"o":{"i":-0},"null":null,"x":[1]}}"#,
        );
        let heads = |method: &Method| {
            let heads = heads(method, &params, V, &wanted).into_iter();
            heads.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ; ")
        };
        assert_eq!(
            heads(&Method::ToolsCall),
            "mcp-protocol-version=2026-07-28 ; mcp-method=tools/call ; mcp-name==?base64?dCDDvA==?= ; mcp-param-S=a b ; \
             mcp-param-N=42 ; mcp-param-F=1.5 ; mcp-param-B=true ; mcp-param-Deep=0"
        );
        assert_eq!(heads(&Method::ToolsList), "mcp-protocol-version=2026-07-28 ; mcp-method=tools/list");
        let many: Vec<ParamHeader> = (0..20_000)
            .map(|number| ParamHeader { path: [format!("k{number}").into()].into(), header: format!("H{number}") })
            .collect();
        let arguments: Vec<String> = (0..20_000).map(|number| format!(r#""k{number}":true"#)).collect();
        let params = Raw::trusted(format!(r#"{{"name":"t","arguments":{{{}}}}}"#, arguments.join(",")).into());
        assert_eq!(super::heads(&Method::ToolsCall, &params, V, &many).len(), 20_003);
        let numbers = [("9007199254740993", "9007199254740993"), ("1e2", "100"), ("0.10", "0.1"), ("1e999", "1e999")];
        for (text, want) in numbers {
            assert_eq!(number(text), want);
        }
    }
}
