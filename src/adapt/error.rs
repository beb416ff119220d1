//! Errors: whose codes mean something on the other side (`docs/bridging.md` 14).

use serde_json::json;

use super::{CARRIED, url};
use crate::protocol::raw::member;
use crate::protocol::{ErrorObject, Method, Outcome, ProtocolVersion, Raw, Theirs, code, object};

/// A server's error as a client of revision `to` has it; that of a tool may become a result with `isError`, which is written
/// as in [`super::OWN`].
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
        // No meaning may be assumed, and nobody new may send them.
        -32019..=-32000 if to.is_modern() => Err(hidden(&error)),
        -32019..=-32000 => Err(error),
        // Whoever can be asked to visit something is asked before it comes to this.
        code::URL_ELICITATION_REQUIRED => visit_first(&error, method, server),
        code::MISSING_CAPABILITY if to.is_modern() && is_declarable(&error) => Err(error),
        // Among revisions that do not know it, it is the server's own code; the next hop may know it again.
        code::MISSING_CAPABILITY if !from.is_modern() && !to.is_modern() => Err(error),
        code::MISSING_CAPABILITY => {
            let wanted = required(&error).join(", ");
            told(&error, method, format!("server {server:?} needs a client that can be asked for: {}", Theirs(&wanted)))
        }
        // What is left of the reserved range is ours to mend, or means nothing to anybody.
        -32768..=-32020 => Err(hidden(&error)),
        _ => Err(error),
    }
}

/// `-32603` with what the server said in `data`.
fn hidden(error: &ErrorObject) -> ErrorObject {
    let mut upstream = json!({ "code": error.code, "message": error.message });
    if let Some(data) = &error.data {
        // Kept as it stands.
        let with_data = Raw::from_value(&upstream).with_member("data", data.as_bytes());
        return internal(error, &with_data);
    }
    internal(error, &Raw::from_value(&upstream.take()))
}

fn internal(error: &ErrorObject, upstream: &Raw) -> ErrorObject {
    let data = Raw::empty_object().with_member("upstream", upstream.as_bytes());
    ErrorObject::internal(error.message.clone()).with_data(data)
}

/// What a tool's caller should read as a result, and everybody else as an error.
fn told(error: &ErrorObject, method: &Method, text: String) -> Outcome {
    if *method == Method::ToolsCall {
        let result = json!({ "content": [{ "type": "text", "text": text }], "isError": true });
        return Ok(Raw::from_value(&result));
    }
    Err(ErrorObject { message: text, ..hidden(error) })
}

/// URLs to visit first, for who cannot be asked to.
fn visit_first(error: &ErrorObject, method: &Method, server: &str) -> Outcome {
    let pages = url::purposes(&url::required(error).unwrap_or_default());
    let message = Theirs(&error.message);
    told(error, method, format!("server {server:?} wants you to visit an address first: {message}{pages}"))
}

fn is_about_a_resource(error: &ErrorObject, method: &Method) -> bool {
    *method == Method::ResourcesRead && error.data.as_ref().is_some_and(|data| data.text("uri").is_some())
}

/// The capabilities that the server misses, in dots: `elicitation.url`.
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

/// Whether a client could have declared all of it through us.
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
