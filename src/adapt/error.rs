//! Errors: translates codes whose meaning differs in the other side's revision (`docs/bridging.md` 14).

use serde_json::json;

use super::{CARRIED, url};
use crate::protocol::value::member;
use crate::protocol::{ErrorObject, Method, Outcome, ProtocolVersion, Raw, Theirs, code, object};

/// Translates a server's error for a client of revision `to`. A tool's error may become a result with `isError`, which
/// is written in revision [`super::OWN`].
pub(crate) fn error(
    error: ErrorObject,
    method: &Method,
    from: ProtocolVersion,
    to: ProtocolVersion,
    server: &str,
) -> Outcome {
    match error.code {
        code::RESOURCE_NOT_FOUND if to.is_modern() => Err(ErrorObject { code: code::INVALID_PARAMS, ..error }),
        code::INVALID_PARAMS if from.is_modern() && !to.is_modern() && is_about_a_resource(&error, method) => {
            Err(ErrorObject { code: code::RESOURCE_NOT_FOUND, ..error })
        }
        code::PARSE | code::INVALID_REQUEST | code::METHOD_NOT_FOUND | code::INVALID_PARAMS | code::INTERNAL => {
            Err(error)
        }
        // In 2026-07-28, receivers may assume no meaning for these codes, and implementations must no longer send them.
        -32019..=-32000 if to.is_modern() => Err(hidden(&error)),
        -32019..=-32000 => Err(error),
        // Clients that can be asked to visit a URL were already asked.
        code::URL_ELICITATION_REQUIRED => visit_first(&error, method, server),
        code::MISSING_CAPABILITY if to.is_modern() && is_declarable(&error) => Err(error),
        // Between revisions that do not define this code, it is the server's own; the next hop may understand it.
        code::MISSING_CAPABILITY if !from.is_modern() && !to.is_modern() => Err(error),
        code::MISSING_CAPABILITY => {
            let wanted = required(&error).join(", ");
            told(&error, method, format!("server {server:?} needs a client that can be asked for: {}", Theirs(&wanted)))
        }
        // The rest of the reserved range is either for us to handle or means nothing to the client.
        -32768..=-32020 => Err(hidden(&error)),
        _ => Err(error),
    }
}

/// Returns `-32603` with the server's error in `data`.
fn hidden(error: &ErrorObject) -> ErrorObject {
    let mut upstream = json!({ "code": error.code, "message": error.message });
    if let Some(data) = &error.data {
        // Keep the bytes as they are.
        let with_data = Raw::from_value(&upstream).with_member("data", data.as_bytes());
        return internal(error, &with_data);
    }
    internal(error, &Raw::from_value(&upstream.take()))
}

fn internal(error: &ErrorObject, upstream: &Raw) -> ErrorObject {
    let data = Raw::empty_object().with_member("upstream", upstream.as_bytes());
    ErrorObject::internal(error.message.clone()).with_data(data)
}

/// Returns the text for the caller: in a result for a tool call, in an error for any other request.
fn told(error: &ErrorObject, method: &Method, text: String) -> Outcome {
    if *method == Method::ToolsCall {
        let result = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
        return Ok(Raw::from_value(&result));
    }
    Err(ErrorObject { message: text, ..hidden(error) })
}

/// Lists the URLs to visit first, for clients that cannot be asked to visit them.
fn visit_first(error: &ErrorObject, method: &Method, server: &str) -> Outcome {
    let pages = url::purposes(&url::required(error).unwrap_or_default());
    let message = Theirs(&error.message);
    told(error, method, format!("server {server:?} wants you to visit an address first: {message}{pages}"))
}

fn is_about_a_resource(error: &ErrorObject, method: &Method) -> bool {
    *method == Method::ResourcesRead && error.data.as_ref().is_some_and(|data| data.text("uri").is_some())
}

/// Returns the client capabilities that the server requires, in dotted form: `elicitation.url`.
fn required(error: &ErrorObject) -> Vec<String> {
    let wanted = error.data.as_ref().and_then(|data| data.member("requiredCapabilities"));
    let mut names = Vec::new();
    for (name, value) in wanted.as_ref().and_then(|wanted| object(wanted.as_value())).unwrap_or_default() {
        let inner = object(value).unwrap_or_default();
        if inner.is_empty() {
            names.push(name.into_owned());
        } else {
            names.extend(inner.iter().map(|(key, _)| format!("{name}.{key}")));
        }
    }
    names
}

/// Reports whether a client could have declared all of the missing capabilities through us.
fn is_declarable(error: &ErrorObject) -> bool {
    let wanted = error.data.as_ref().and_then(|data| data.member("requiredCapabilities"));
    let Some(wanted) = wanted else { return false };
    object(wanted.as_value()).is_some_and(|members| {
        members.iter().all(|(name, value)| match &**name {
            "roots" | "sampling" | "elicitation" => true,
            "extensions" => object(value).unwrap_or_default().iter().all(|(id, _)| CARRIED.contains(&&**id)),
            _ => false,
        })
    }) && member(wanted.as_value(), "experimental").is_none()
}
