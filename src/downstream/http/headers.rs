//! What the headers of a request without a session must say again: its revision, its method, its target (2026-07-28,
//! transports, "Standard MCP Request Headers").

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::downstream::classify::Header;
use crate::protocol::{ErrorObject, Method, Request, code};

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What the header `MCP-Protocol-Version` says.
pub(super) fn version(headers: &HeaderMap) -> Header<'_> {
    match single(headers, &VERSION) {
        Ok(None) => Header::Absent,
        Ok(Some(text)) => Header::Is(text),
        Err(_) => Header::Unclear,
    }
}

/// Compares the standard headers with the request.
///
/// # Errors
/// `-32020` where they say something else, or nothing.
pub(super) fn check(headers: &HeaderMap, request: &Request) -> Result<(), ErrorObject> {
    let method = single(headers, &METHOD)?.ok_or_else(|| lacking(&METHOD))?;
    if method != request.method.as_str() {
        return Err(mismatch("the header `Mcp-Method` names another method than the body"));
    }
    let Some(member) = target(&request.method) else { return Ok(()) };
    // A body without its target is refused for that, by whoever reads the params.
    let Some(wanted) = request.params.as_ref().and_then(|params| params.text(member)) else { return Ok(()) };
    let named = decode(single(headers, &NAME)?.ok_or_else(|| lacking(&NAME))?).ok_or_else(|| malformed(&NAME))?;
    if *named != *wanted {
        let text = format!("the header `Mcp-Name` names something else than `params.{member}`");
        return Err(mismatch(&text));
    }
    Ok(())
}

/// The param that names what a request is about.
fn target(method: &Method) -> Option<&'static str> {
    match method {
        Method::ToolsCall | Method::PromptsGet => Some("name"),
        Method::ResourcesRead => Some("uri"),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Some("taskId"),
        _ => None,
    }
}

/// The one value of a header, without the blanks around it; `None` if it is absent.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ErrorObject> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(mismatch(&format!("the header `{name}` must stand once")));
    }
    let text = first.to_str().map_err(|_| malformed(name))?;
    Ok(Some(text.trim_matches([' ', '\t'])))
}

/// What a value stands for: itself, or the text in `=?base64?…?=`; `None` if that is no base64 of a text.
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
    use super::*;

    #[test]
    fn values_are_themselves_or_base64() {
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
            // The marks of begin and end do not share their characters.
            ("=?base64?=", Some("=?base64?=")),
        ];
        for (value, text) in cases {
            assert_eq!(decode(value).as_deref(), text, "{value}");
        }
    }
}
