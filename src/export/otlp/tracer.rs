//! The listener for calls: collects what the spans of each call need, until the call ends.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::BoxFuture;

use super::environment::Target;
use super::queue::Queue;
use super::shared::Shared;
use super::spans::{Called, Done, short};
use crate::answered::{End, Failed, Kind};
use crate::observe::{Begun, Ended, Listener, Pending, Wants, is_call};
use crate::protocol::{Method, Raw, TraceParent};
use crate::record::masked;
use crate::redact::without_query;
use crate::traced::{Late, Traced};

/// The most bytes of arguments, and of a result, in a span.
const VALUE: usize = 4096;

/// The listener for calls.
#[derive(Debug)]
pub(super) struct Tracer {
    target: Arc<Target>,
    queue: Queue,
    shared: Shared,
}

impl Tracer {
    pub(super) fn new(target: Arc<Target>, queue: Queue, shared: Shared) -> Self {
        Self { target, queue, shared }
    }
}

impl Listener for Tracer {
    fn wants(&self, method: &Method) -> Wants {
        Wants::whole_if(is_call(method))
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        let said = call.params.and_then(TraceParent::of);
        let header = call.origin.and_then(|origin| origin.parent);
        let parent = said.or(header);
        let sampler = self.target.sampler;
        let traced = Traced::new(parent, |trace| sampler.takes(parent.map(TraceParent::is_sampled), trace));
        if let Some(traced) = &traced {
            call.subject.is_traced(traced.clone());
        }
        let takes_arguments = self.target.arguments && traced.as_ref().is_some_and(|traced| traced.is_sampled);
        let told = |name: &str| call.params.filter(|_| takes_arguments).and_then(|params| params.member(name));
        let named = match call.method {
            Method::ToolsCall | Method::PromptsGet => call.params.and_then(|params| params.text("name")),
            _ => None,
        };
        Ok(Box::new(Traveler {
            traced,
            queue: self.queue.clone(),
            at: call.at,
            method: call.method.clone(),
            name: named.map(|name| short(&name)),
            door: call.door,
            revision: call.revision,
            id: call
                .origin
                .and_then(|origin| origin.id.clone())
                .or_else(|| call.id.map(ToString::to_string))
                .map(|id| short(&id)),
            session: call.origin.and_then(|origin| origin.session.clone()),
            link: header.filter(|header| said.is_some_and(|said| said != *header)),
            arguments: told("arguments"),
            uri: told("uri"),
            takes_result: takes_arguments,
        }))
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.finish())
    }

    fn traces(&self) -> bool {
        true
    }
}

/// One call in flight.
#[derive(Debug)]
struct Traveler {
    traced: Option<Arc<Traced>>,
    queue: Queue,
    at: SystemTime,
    method: Method,
    name: Option<String>,
    door: Option<&'static str>,
    revision: Option<&'static str>,
    id: Option<String>,
    session: Option<String>,
    link: Option<TraceParent>,
    arguments: Option<Raw>,
    uri: Option<Raw>,
    takes_result: bool,
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
        let uri = self.uri.and_then(|uri| uri.string().map(|uri| short(&scrubber.scrub(&without_query(&uri)))));
        let attempted = ended.at.map(|at| short(&scrubber.scrub(&at.target)));
        let called = Arc::new(Called {
            trace: traced.trace,
            span: traced.span,
            parent: traced.parent.map(|parent| parent.span),
            link: self.link,
            is_sampled: traced.is_sampled,
            at: self.at,
            took: ended.took,
            method: self.method,
            name: self.name.map(|name| scrubber.scrub(&name).into_owned()),
            attempted,
            door: self.door,
            revision: self.revision,
            id: self.id,
            session: self.session,
            server: ended.at.map(|at| at.server.clone()),
            error,
            arguments: self.arguments.map(|arguments| masked(&arguments, &scrubber, VALUE)),
            result: ended.result.filter(|_| self.takes_result).map(|result| masked(result, &scrubber, VALUE)),
            uri,
        });
        let (of_late, queue) = (called.clone(), self.queue.clone());
        let late = || -> Late { Box::new(move |attempt| queue.push(Done::Late(of_late.clone(), Box::new(attempt)))) };
        let (attempts, queued) = traced.end(late);
        self.queue.push(Done::Call(called, attempts, queued));
    }
}
