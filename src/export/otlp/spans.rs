//! Spans: one of the door for each call, and below it one for each request to a server. They are made when the call ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use tokio::sync::mpsc;

use super::environment::Target;
use super::names;
use super::shared::Shared;
use crate::answered::{End, Failed, Kind};
use crate::counts::{Counts, HostCount};
use crate::observe::{Begun, Ended, Listener, Pending, is_call};
use crate::protocol::{Method, Raw, TraceParent};
use crate::record::masked;
use crate::traced::{Attempt, Traced};

/// The most characters of a name in a span.
const NAME: usize = 256;

/// Is told of calls.
#[derive(Debug)]
pub(super) struct Tracer {
    target: Arc<Target>,
    queue: mpsc::Sender<Done>,
    counts: Counts,
    shared: Shared,
}

impl Tracer {
    pub(super) fn new(target: Arc<Target>, queue: mpsc::Sender<Done>, counts: Counts, shared: Shared) -> Self {
        Self { target, queue, counts, shared }
    }
}

impl Listener for Tracer {
    fn wants(&self, method: &Method) -> bool {
        is_call(method)
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        let parent = call.params.and_then(TraceParent::of);
        let sampler = self.target.sampler;
        let traced = Traced::new(parent, |trace| sampler.takes(parent.map(TraceParent::is_sampled), trace));
        if let Some(traced) = &traced {
            call.subject.is_traced(traced.clone());
        }
        let takes_arguments = self.target.arguments && traced.as_ref().is_some_and(|traced| traced.is_sampled);
        let named = match call.method {
            Method::ToolsCall | Method::PromptsGet => call.params.and_then(|params| params.text("name")),
            _ => None,
        };
        Ok(Box::new(Traveler {
            traced,
            queue: self.queue.clone(),
            counts: self.counts.clone(),
            at: call.at,
            method: call.method.clone(),
            name: named.map(|name| name.chars().take(NAME).collect()),
            door: call.door,
            revision: call.revision,
            arguments: call.params.filter(|_| takes_arguments).and_then(|params| params.member("arguments")),
        }))
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.finish())
    }
}

/// One call in flight.
#[derive(Debug)]
struct Traveler {
    traced: Option<Arc<Traced>>,
    queue: mpsc::Sender<Done>,
    counts: Counts,
    at: SystemTime,
    method: Method,
    name: Option<String>,
    door: Option<&'static str>,
    revision: Option<&'static str>,
    arguments: Option<Raw>,
}

impl Pending for Traveler {
    fn end(self: Box<Self>, ended: &Ended<'_>) {
        let Some(traced) = self.traced else { return };
        let scrubber = ended.at.map(|at| at.scrubber.clone()).unwrap_or_default();
        let error = match (ended.end, ended.kind, ended.code) {
            (_, Some(kind), _) => Some(Kind::word(kind).to_owned()),
            (_, _, Some(code)) => Some(code.to_string()),
            (End::ToolError, ..) => Some("tool_error".to_owned()),
            (End::Cancelled, ..) => Some("cancelled".to_owned()),
            _ => None,
        };
        let result = self.arguments.as_ref().and(ended.result);
        let done = Done {
            attempts: traced.take(),
            at: self.at,
            took: ended.took,
            method: self.method,
            name: self.name.map(|name| scrubber.scrub(&name).into_owned()),
            door: self.door,
            revision: self.revision,
            server: ended.at.map(|at| at.server.clone()),
            error,
            code: ended.code,
            arguments: self.arguments.map(|arguments| masked(&arguments, &scrubber)),
            result: result.map(|result| masked(result, &scrubber)),
            traced,
        };
        if self.queue.try_send(done).is_err() {
            self.counts.add(HostCount::OtelSpansDropped, 1);
        }
    }
}

/// One call that has ended.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) traced: Arc<Traced>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) at: SystemTime,
    pub(super) took: Duration,
    pub(super) method: Method,
    pub(super) name: Option<String>,
    pub(super) door: Option<&'static str>,
    pub(super) revision: Option<&'static str>,
    pub(super) server: Option<Arc<str>>,
    pub(super) error: Option<String>,
    pub(super) code: Option<i64>,
    pub(super) arguments: Option<String>,
    pub(super) result: Option<String>,
}

impl Done {
    /// Adds its spans.
    pub(super) fn spans(&self, has_arguments: bool, spans: &mut Vec<Span>) {
        let method = self.method.as_str();
        let name = self.name.as_ref().map_or_else(|| method.to_owned(), |name| format!("{method} {name}"));
        let mut attributes = vec![text(names::METHOD, method)];
        attributes.extend(self.revision.map(|revision| text(names::REVISION, revision)));
        self.named(&mut attributes);
        attributes.extend(self.server.as_ref().map(|server| text(names::SERVER, server)));
        let network = match self.door {
            Some("stdio") => Some("pipe"),
            Some(_) => Some("tcp"),
            None => None,
        };
        attributes.extend(network.map(|network| text(names::NETWORK, network)));
        attributes.extend(self.error.as_ref().map(|error| text(names::ERROR, error)));
        attributes.extend(self.code.map(|code| text(names::STATUS, &code.to_string())));
        if has_arguments {
            attributes.extend(self.arguments.as_ref().map(|arguments| text(names::ARGUMENTS, arguments)));
            attributes.extend(self.result.as_ref().map(|result| text(names::RESULT, result)));
        }
        spans.push(Span {
            trace_id: self.traced.trace.to_be_bytes().to_vec(),
            span_id: self.traced.span.to_be_bytes().to_vec(),
            parent_span_id: self.traced.parent.map(|parent| parent.span.to_be_bytes().to_vec()).unwrap_or_default(),
            name,
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanos(self.at),
            end_time_unix_nano: nanos(self.at + self.took),
            attributes,
            status: status(self.error.as_deref()),
            ..Span::default()
        });
        spans.extend(self.attempts.iter().enumerate().map(|(number, attempt)| self.attempt(number + 1, attempt)));
    }

    /// Adds what is called.
    fn named(&self, attributes: &mut Vec<KeyValue>) {
        let Some(name) = &self.name else { return };
        if self.method == Method::ToolsCall {
            attributes.push(text(names::OPERATION, names::EXECUTE_TOOL));
            attributes.push(text(names::TOOL, name));
        } else {
            attributes.push(text(names::PROMPT, name));
        }
    }

    /// Returns the span of one request to a server.
    fn attempt(&self, number: usize, attempt: &Attempt) -> Span {
        let method = self.method.as_str();
        let mut attributes = vec![
            text(names::METHOD, method),
            text(names::REVISION, &attempt.revision),
            text(names::SERVER, &attempt.server),
            whole(names::ATTEMPT, number as i64),
            text(names::NETWORK, if attempt.transport == "stdio" { "pipe" } else { "tcp" }),
        ];
        self.named(&mut attributes);
        if let Some((host, port)) = &attempt.address {
            attributes.push(text(names::ADDRESS, host));
            attributes.extend(port.map(|port| whole(names::PORT, port.into())));
        }
        attributes.extend(attempt.error.as_ref().map(|error| text(names::ERROR, error)));
        let event = |(name, at): &(&'static str, SystemTime)| Event {
            time_unix_nano: nanos(*at),
            name: (*name).to_owned(),
            ..Event::default()
        };
        Span {
            trace_id: self.traced.trace.to_be_bytes().to_vec(),
            span_id: attempt.span.to_be_bytes().to_vec(),
            parent_span_id: self.traced.span.to_be_bytes().to_vec(),
            name: self.name.as_ref().map_or_else(|| method.to_owned(), |name| format!("{method} {name}")),
            kind: SpanKind::Client.into(),
            start_time_unix_nano: nanos(attempt.at),
            end_time_unix_nano: nanos(attempt.at + attempt.took.unwrap_or_default()),
            attributes,
            events: attempt.events.iter().map(event).collect(),
            status: status(attempt.error.as_deref()),
            ..Span::default()
        }
    }
}

/// Returns the span of a server's start: when it began and ended, the state that it ended in, and why.
pub(super) fn start(
    server: &str,
    (begun, ended): (SystemTime, SystemTime),
    (state, cause): (&str, Option<String>),
) -> Option<Span> {
    let traced = Traced::new(None, |_| true)?;
    let error = (state != "connected").then_some(state);
    let mut attributes = vec![text(names::SERVER, server)];
    attributes.extend(error.map(|error| text(names::ERROR, error)));
    let status = status(error).map(|status| Status { message: cause.unwrap_or_default(), ..status });
    Some(Span {
        trace_id: traced.trace.to_be_bytes().to_vec(),
        span_id: traced.span.to_be_bytes().to_vec(),
        name: names::START.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: nanos(begun),
        end_time_unix_nano: nanos(ended),
        attributes,
        status,
        ..Span::default()
    })
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

/// Returns a time as nanoseconds since 1970.
pub(super) fn nanos(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).ok().and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or_default()
}
