//! The trace of a call on its way to a server: what is sent with each request, and how each request ends.

use std::sync::Arc;

use super::forward::Forward;
use super::running::Attempt;
use super::toward::Toward;
use crate::answered::End;
use crate::config::Transport;
use crate::protocol::{Outcome, ProtocolVersion, Raw};
use crate::traced::{Sent, Traced};
use crate::upstream::Connection;

/// Begins the trace of one attempt of a call, if the call is traced. `id` is that of the request. Returns the params
/// with the attempt's place in the trace.
pub(super) fn begin(
    params: Raw,
    toward: &Toward<'_>,
    forward: &Forward,
    connection: &Connection,
    (version, id): (ProtocolVersion, u64),
) -> (Raw, Option<Arc<Traced>>) {
    let Some(traced) = toward.traced() else { return (params, None) };
    let (by_pipe, address) = match &forward.server.config.transport {
        Transport::Stdio(_) => (true, None),
        Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => {
            (false, remote.url.host_str().map(|host| (host.to_owned(), remote.url.port_or_known_default())))
        }
    };
    let (server, revision) = (forward.server.label.clone(), version.as_str().into());
    let sent = Sent { server, id, revision, by_pipe, address, session: connection.session() };
    let Some(sent) = traced.attempt(sent) else { return (params, Some(traced)) };
    let value = format!("\"00-{:032x}-{:016x}-{:02x}\"", sent.trace, sent.span, sent.flags);
    let meta = params.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    let meta = meta.with_member("traceparent", value.as_bytes());
    (params.with_member("_meta", meta.as_bytes()), Some(traced))
}

/// Ends the trace of an attempt.
pub(super) fn end(traced: Option<Arc<Traced>>, outcome: &Result<Outcome, Attempt>) {
    let Some(traced) = traced else { return };
    traced.attempted(match outcome {
        Ok(Ok(result)) => match End::of_result(result) {
            End::ToolError => Some("tool_error".to_owned()),
            End::InputRequired => {
                traced.event("question");
                None
            }
            _ => None,
        },
        Ok(Err(error)) => Some(error.code.to_string()),
        Err(failed) => Some(failed.kind().word().to_owned()),
    });
}
