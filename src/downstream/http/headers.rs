//! The headers in which a modern request (without a session) must repeat its revision, method, and target (2026-07-28,
//! transports, "Standard MCP Request Headers").

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName};
use serde_json::value::RawValue;

use crate::downstream::classify::Header;
use crate::protocol::{ErrorObject, Method, Opened, Request, code, value};
use crate::registry::ParamHeader;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Reads the header `MCP-Protocol-Version`.
pub(super) fn version(headers: &HeaderMap) -> Header<'_> {
    match single(headers, &VERSION) {
        Ok(None) => Header::Absent,
        Ok(Some(text)) => Header::Is(text),
        Err(_) => Header::Unclear,
    }
}

/// Compares the headers for method and target with the request.
///
/// # Errors
/// With `-32020` if a header differs from the body or is missing.
pub(super) fn check(headers: &HeaderMap, request: &Request) -> Result<(), ErrorObject> {
    let method = single(headers, &METHOD)?.ok_or_else(|| lacking(&METHOD))?;
    if method != request.method.as_str() {
        return Err(mismatch("the header `Mcp-Method` names a different method than the body"));
    }
    let Some(member) = target(&request.method) else { return Ok(()) };
    // Params without the target are refused later, when they are read.
    let Some(wanted) = request.params.as_ref().and_then(|params| params.text(member)) else { return Ok(()) };
    let named = decode(single(headers, &NAME)?.ok_or_else(|| lacking(&NAME))?).ok_or_else(|| malformed(&NAME))?;
    if *named != *wanted {
        let text = format!("the header `Mcp-Name` differs from `params.{member}`");
        return Err(mismatch(&text));
    }
    Ok(())
}

/// Compares the headers that repeat tool arguments: each argument in `wanted` that is present must have its header, and
/// vice versa.
///
/// # Errors
/// With `-32020` if they differ.
pub(super) fn check_arguments(
    headers: &HeaderMap,
    request: &Request,
    wanted: &[ParamHeader],
) -> Result<(), ErrorObject> {
    let arguments = request.params.as_ref().and_then(|params| params.value_of("arguments"));
    let mut opened = Opened::default();
    for ParamHeader { path, header } in wanted {
        let name = format!("mcp-param-{}", header.to_ascii_lowercase());
        // A tool's annotation that is not a header name was already refused when the tool was read.
        let Ok(name) = HeaderName::try_from(name) else { continue };
        let argument = arguments.and_then(|all| path.iter().try_fold(all, |value, step| opened.member(value, step)));
        match (single(headers, &name)?, argument.filter(|value| value.get() != "null")) {
            (None, None) => {}
            (None, Some(_)) => return Err(lacking(&name)),
            (Some(_), None) => {
                return Err(mismatch(&format!("the header `{name}` repeats an argument that is missing")));
            }
            (Some(text), Some(argument)) => {
                if !repeats(&decode(text).ok_or_else(|| malformed(&name))?, argument) {
                    return Err(mismatch(&format!("the header `{name}` differs from the argument that it repeats")));
                }
            }
        }
    }
    Ok(())
}

/// Reports whether a header's text equals the argument; numbers are compared by value, so `42.0` equals `42`.
fn repeats(text: &str, argument: &RawValue) -> bool {
    match value::string(argument) {
        Some(value) => *text == *value,
        None if text == argument.get() => true,
        None => {
            let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
            number(text).is_some_and(|header| Some(header) == number(argument.get()))
        }
    }
}

/// Returns the name of the param that holds the target of a request with this method; `None` if it has no target.
fn target(method: &Method) -> Option<&'static str> {
    match method {
        Method::ToolsCall | Method::PromptsGet => Some("name"),
        Method::ResourcesRead => Some("uri"),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Some("taskId"),
        _ => None,
    }
}

/// Returns the only value of a header, trimmed; `None` if it is absent.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ErrorObject> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(mismatch(&format!("the header `{name}` must occur once")));
    }
    let text = first.to_str().map_err(|_| malformed(name))?;
    Ok(Some(text.trim_matches([' ', '\t'])))
}

/// Decodes a header value: the text within `=?base64?…?=`, or else the value itself; `None` if that text is not the
/// base64 of UTF-8.
pub(super) fn decode(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = BASE64_STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

pub(super) fn mismatch(text: &str) -> ErrorObject {
    ErrorObject::new(code::HEADER_MISMATCH, text)
}

fn lacking(name: &HeaderName) -> ErrorObject {
    mismatch(&format!("the header `{name}` is missing"))
}

fn malformed(name: &HeaderName) -> ErrorObject {
    mismatch(&format!("the header `{name}` is malformed"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::{Raw, RequestId};

    #[test]
    fn h47_arguments_and_their_headers_say_the_same() {
        let header = |path: &[&str], header: &str| ParamHeader {
            path: path.iter().map(|step| Arc::from(*step)).collect(),
            header: header.to_owned(),
        };
        let wanted = [header(&["region"], "Region"), header(&["deep", "n"], "N")];
        type HeaderPairs = &'static [(&'static str, &'static str)];
        let cases: [(&str, HeaderPairs, bool); 12] = [
            (r#"{}"#, &[], true),
            (r#"{"region":null,"deep":{}}"#, &[], true),
            (r#"{"region":"a b"}"#, &[("mcp-param-region", " a b ")], true),
            (r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8=?=")], true),
            (r#"{"region":"SGVsbG8="}"#, &[("mcp-param-region", "SGVsbG8=")], true),
            (r#"{"deep":{"n":42}}"#, &[("mcp-param-n", "42.0")], true),
            (r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8?=")], false),
            (r#"{"region":"a"}"#, &[("mcp-param-region", "b")], false),
            (r#"{"region":"a"}"#, &[], false),
            (r#"{}"#, &[("mcp-param-region", "a")], false),
            (r#"{"deep":{"n":42}}"#, &[("mcp-param-n", "43")], false),
            (r#"{"region":"a"}"#, &[("mcp-param-region", "a"), ("mcp-param-region", "a")], false),
        ];
        for (arguments, given, good) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().expect("a header"));
            }
            let arguments = Raw::parse(&arguments.to_owned().into()).expect("JSON");
            let params = Some(Raw::empty_object().with_member("arguments", arguments.as_bytes()));
            let request = Request { id: RequestId::Number(1), method: Method::ToolsCall, params };
            let checked = check_arguments(&headers, &request, &wanted);
            assert_eq!(checked.is_ok(), good, "{arguments} {given:?}");
            assert!(checked.is_ok() || checked.is_err_and(|error| error.code == code::HEADER_MISMATCH));
        }
    }

    #[test]
    fn h47_method_and_name_say_what_the_body_says() {
        let cases: [(&[(&str, &str)], bool); 8] = [
            (&[("mcp-method", "tools/call"), ("mcp-name", "a b")], true),
            (&[("mcp-method", "tools/call"), ("mcp-name", "=?base64?YSBi?=")], true),
            (&[("mcp-method", "tools/call"), ("mcp-name", "a c")], false),
            (&[("mcp-method", "tools/call"), ("mcp-name", "A b")], false),
            (&[("mcp-method", "tools/call")], false),
            (&[("mcp-method", "prompts/get"), ("mcp-name", "a b")], false),
            (&[("mcp-name", "a b")], false),
            (&[("mcp-method", "tools/call"), ("mcp-name", "a b"), ("mcp-name", "a b")], false),
        ];
        let params = Some(Raw::from_value(&serde_json::json!({ "name": "a b" })));
        let request = Request { id: RequestId::Number(1), method: Method::ToolsCall, params };
        for (given, good) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().expect("a header"));
            }
            let checked = check(&headers, &request);
            assert_eq!(checked.is_ok(), good, "{given:?}");
            assert!(checked.is_ok() || checked.is_err_and(|error| error.code == code::HEADER_MISMATCH));
        }
    }

    #[test]
    fn h47_values_are_themselves_or_base64() {
        let cases = [
            ("echo", Some("echo")),
            ("=?base64?SGVsbG8=?=", Some("Hello")),
            ("=?base64?w6k=?=", Some("é")),
            ("=?base64??=", Some("")),
            ("SGVsbG8=", Some("SGVsbG8=")),
            ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8=")),
            ("=?BASE64?SGVsbG8=?=", Some("=?BASE64?SGVsbG8=?=")),
            ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("=?base64?/w==?=", None),
            // The prefix and the suffix must not overlap.
            ("=?base64?=", Some("=?base64?=")),
        ];
        for (value, text) in cases {
            assert_eq!(decode(value).as_deref(), text, "{value}");
        }
    }
}
