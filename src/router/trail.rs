//! The trace of a call on its way to a server: what is sent with it, and what becomes of each request.

use std::sync::Arc;

use super::Mailbox;
use super::running::Attempt;
use crate::config::Transport;
use crate::manager::Server;
use crate::protocol::{Outcome, ProtocolVersion, Raw};
use crate::traced::Traced;

/// Begins an attempt of a call, if that is traced. Returns the params with its place in the trace.
pub(super) fn begin(
    params: Raw,
    leg: Option<&Arc<Mailbox>>,
    server: &Server,
    version: ProtocolVersion,
) -> (Raw, Option<Arc<Traced>>) {
    let traced = leg.and_then(|leg| leg.subject()).and_then(|subject| subject.traced().cloned());
    let Some(traced) = traced else { return (params, None) };
    let (transport, address) = match &server.config.transport {
        Transport::Stdio(_) => ("stdio", None),
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => {
            ("http", remote.url.host_str().map(|host| (host.to_owned(), remote.url.port_or_known_default())))
        }
    };
    let Some(sent) = traced.attempt((server.label.clone(), transport), version.as_str().into(), address) else {
        return (params, Some(traced));
    };
    let value = format!("\"00-{:032x}-{:016x}-{:02x}\"", sent.trace, sent.span, sent.flags);
    let meta = params.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    let meta = meta.with_member("traceparent", value.as_bytes());
    (params.with_member("_meta", meta.as_bytes()), Some(traced))
}

/// Ends it.
pub(super) fn end(traced: Option<Arc<Traced>>, outcome: &Result<Outcome, Attempt>) {
    let Some(traced) = traced else { return };
    traced.attempted(match outcome {
        Ok(Ok(result)) => {
            let is_error = result.member("isError").is_some_and(|value| value.as_bytes() == b"true");
            is_error.then(|| "tool_error".to_owned())
        }
        Ok(Err(error)) => Some(error.code.to_string()),
        Err(Attempt::Lost(_)) => Some("lost".to_owned()),
        Err(Attempt::Failed(_)) => Some("failed".to_owned()),
    });
}
