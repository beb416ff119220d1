//! Spans: one for each call at the door, and below it one for each request to a server. They are created at their end.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};

use super::names;
use crate::protocol::{Method, TraceParent};
use crate::traced::{self, Attempt, Sent, Traced};

/// The most characters of a name or an id in a span.
const NAME: usize = 256;

/// Something that has ended, and from which spans are created.
#[derive(Debug)]
pub(super) enum Done {
    /// A call, with its attempts so far, and its wait for a turn if no attempt followed.
    Call(Arc<Called>, Vec<Attempt>, Option<traced::Event>),
    /// An attempt of a call whose request had ended before.
    Late(Arc<Called>, Box<Attempt>),
}

/// A request of a client that has ended.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) parent: Option<u64>,
    /// The trace in the HTTP header, if the message itself names another one.
    pub(super) link: Option<TraceParent>,
    pub(super) is_sampled: bool,
    pub(super) at: SystemTime,
    pub(super) took: Duration,
    pub(super) method: Method,
    /// The name of what was called, as clients know it.
    pub(super) name: Option<String>,
    /// The server's own name for it.
    pub(super) attempted: Option<String>,
    pub(super) door: Option<&'static str>,
    pub(super) revision: Option<&'static str>,
    pub(super) id: Option<String>,
    pub(super) session: Option<String>,
    pub(super) server: Option<Arc<str>>,
    pub(super) error: Option<String>,
    pub(super) arguments: Option<String>,
    pub(super) result: Option<String>,
    pub(super) uri: Option<String>,
}

impl Done {
    /// Adds its spans.
    pub(super) fn spans(&self, spans: &mut Vec<Span>) {
        match self {
            Self::Call(called, attempts, queued) => {
                spans.push(called.door(queued.as_ref()));
                spans.extend(attempts.iter().map(|attempt| called.attempt(attempt)));
            }
            Self::Late(called, attempt) => spans.push(called.attempt(attempt)),
        }
    }

    /// Returns the number of its spans: none if the call is not sampled.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Call(called, attempts, _) if called.is_sampled => 1 + attempts.len(),
            Self::Late(called, _) if called.is_sampled => 1,
            Self::Call(..) | Self::Late(..) => 0,
        }
    }
}

impl Called {
    /// Returns the span of the request as its client sees it.
    fn door(&self, queued: Option<&traced::Event>) -> Span {
        let mut attributes = vec![text(names::METHOD, self.method.as_str())];
        let mut add = |name, value: Option<&str>| attributes.extend(value.map(|value| text(name, value)));
        add(names::REVISION, self.revision);
        add(names::SESSION, self.session.as_deref());
        add(names::ID, self.id.as_deref());
        add(names::SERVER, self.server.as_deref());
        add(names::NETWORK, self.door.map(network));
        add(names::ARGUMENTS, self.arguments.as_deref());
        add(names::RESULT, self.result.as_deref());
        add(names::URI, self.uri.as_deref());
        self.target(self.name.as_deref(), &mut attributes);
        failed(self.error.as_deref(), &mut attributes);
        let link = |link: TraceParent| Link {
            trace_id: link.trace.to_be_bytes().to_vec(),
            span_id: link.span.to_be_bytes().to_vec(),
            flags: link.flags.into(),
            ..Link::default()
        };
        Span {
            trace_id: self.trace.to_be_bytes().to_vec(),
            span_id: self.span.to_be_bytes().to_vec(),
            parent_span_id: self.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
            name: self.named(self.name.as_deref()),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanos(self.at),
            end_time_unix_nano: nanos(self.at + self.took),
            attributes,
            events: queued.map(event).into_iter().collect(),
            links: self.link.map(link).into_iter().collect(),
            status: status(self.error.as_deref()),
            ..Span::default()
        }
    }

    /// Returns the span of one request to a server.
    fn attempt(&self, attempt: &Attempt) -> Span {
        let Sent { server, id, revision, by_pipe, address, session } = &attempt.sent;
        // If the span of the door has no name, neither have the spans of attempts.
        let target = self.name.as_ref().and(self.attempted.as_deref());
        let mut attributes = vec![
            text(names::METHOD, self.method.as_str()),
            text(names::REVISION, revision),
            text(names::ID, &id.to_string()),
            text(names::SERVER, server),
            whole(names::ATTEMPT, i64::try_from(attempt.number).unwrap_or(i64::MAX)),
            text(names::NETWORK, if *by_pipe { "pipe" } else { "tcp" }),
        ];
        attributes.extend(session.as_deref().map(|session| text(names::SESSION, session)));
        self.target(target, &mut attributes);
        if let Some((host, port)) = address {
            attributes.push(text(names::ADDRESS, host));
            attributes.extend(port.map(|port| whole(names::PORT, port.into())));
        }
        failed(attempt.error.as_deref(), &mut attributes);
        Span {
            trace_id: self.trace.to_be_bytes().to_vec(),
            span_id: attempt.span.to_be_bytes().to_vec(),
            parent_span_id: self.span.to_be_bytes().to_vec(),
            name: self.named(target),
            kind: SpanKind::Client.into(),
            start_time_unix_nano: nanos(attempt.at),
            end_time_unix_nano: nanos(attempt.at + attempt.took.unwrap_or_default()),
            attributes,
            events: attempt.events.iter().map(event).collect(),
            status: status(attempt.error.as_deref()),
            ..Span::default()
        }
    }

    fn named(&self, target: Option<&str>) -> String {
        let method = short(self.method.as_str());
        target.map_or_else(|| method.clone(), |target| format!("{method} {target}"))
    }

    /// Adds the name of what is called.
    fn target(&self, target: Option<&str>, attributes: &mut Vec<KeyValue>) {
        let Some(target) = target else { return };
        if self.method == Method::ToolsCall {
            attributes.push(text(names::OPERATION, names::EXECUTE_TOOL));
            attributes.push(text(names::TOOL, target));
        } else {
            attributes.push(text(names::PROMPT, target));
        }
    }
}

/// Returns the transport of a door, in the words of the semantic conventions.
pub(super) fn network(door: &str) -> &'static str {
    if matches!(door, "stdio" | "socket") { "pipe" } else { "tcp" }
}

/// Adds why the call failed. JSON-RPC error codes are numbers.
fn failed(error: Option<&str>, attributes: &mut Vec<KeyValue>) {
    attributes.extend(error.map(|error| text(names::ERROR, error)));
    attributes.extend(error.filter(|error| error.parse::<i64>().is_ok()).map(|code| text(names::STATUS, code)));
}

fn event(happened: &traced::Event) -> Event {
    let waited = happened.waited.map(|waited| i64::try_from(waited.as_millis()).unwrap_or(i64::MAX));
    Event {
        time_unix_nano: nanos(happened.at),
        name: happened.name.to_owned(),
        attributes: waited.map(|waited| whole(names::WAITED, waited)).into_iter().collect(),
        ..Event::default()
    }
}

/// Something that the host did on its own, in a trace of its own.
pub(super) struct Own<'a> {
    pub(super) name: &'static str,
    pub(super) server: &'a str,
    pub(super) begun: SystemTime,
    pub(super) ended: SystemTime,
    /// A short word for the reason, if it failed.
    pub(super) error: Option<&'a str>,
    /// The reason for people, if it failed.
    pub(super) cause: Option<String>,
}

impl Own<'_> {
    /// Returns its span; `None` if the system has no random bytes.
    pub(super) fn span(self) -> Option<Span> {
        let traced = Traced::new(None, |_| true)?;
        let mut attributes = vec![text(names::SERVER, self.server)];
        attributes.extend(self.error.map(|error| text(names::ERROR, error)));
        let message = self.cause.unwrap_or_default();
        Some(Span {
            trace_id: traced.trace.to_be_bytes().to_vec(),
            span_id: traced.span.to_be_bytes().to_vec(),
            name: self.name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanos(self.begun),
            end_time_unix_nano: nanos(self.ended),
            attributes,
            status: status(self.error).map(|status| Status { message, ..status }),
            ..Span::default()
        })
    }
}

fn status(error: Option<&str>) -> Option<Status> {
    error.map(|_| Status { message: String::new(), code: StatusCode::Error.into() })
}

/// Returns an attribute.
pub(super) fn text(name: &str, value: &str) -> KeyValue {
    attribute(name, Value::StringValue(value.to_owned()))
}

fn whole(name: &str, value: i64) -> KeyValue {
    attribute(name, Value::IntValue(value))
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Shortens a name or an id.
pub(super) fn short(text: &str) -> String {
    text.chars().take(NAME).collect()
}

/// Returns a time as nanoseconds since 1970.
pub(super) fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).ok().and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or_default()
}
