//! Traces and metrics, sent to a collector by OTLP over HTTP (`host.otel`).
//!
//! In: calls as they end (`tracer.rs`, `spans.rs`, `queue.rs`), changes of servers' states, logins, counters. Out:
//! protobuf, sent by our HTTP client from one task (`send.rs`). **Invariant:** no call waits for a collector. What the
//! task cannot take is dropped and counted. Not here: the ids of a call's spans, which the call has from its beginning
//! (`traced.rs`). Start at [`start`].

mod environment;
mod metrics;
mod names;
mod queue;
mod send;
mod shared;
mod spans;
mod tracer;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::environment::Target;
use self::metrics::Durations;
use self::queue::{Queue, Room};
use self::send::Sender;
use self::shared::Shared;
use self::spans::{Done, Own, text};
use self::tracer::Tracer;
use crate::auth::LoginEnd;
use crate::config::Otel;
use crate::counts::HostCount;
use crate::manager::{Manager, StateChange};
use crate::observe::Listener;

/// The most spans in one request, and how long they are collected.
const BATCH: usize = 512;
const TOGETHER: Duration = Duration::from_secs(1);
/// How often metrics are sent.
const METRICS: Duration = Duration::from_secs(60);

/// Starts sending. Returns the listener that is notified of calls; `None` if the environment turns it off. Must be
/// called inside a Tokio runtime.
///
/// # Errors
/// Fails if an environment variable asks for something unsupported; the error names the variable.
pub(crate) fn start(otel: &Otel, manager: &Manager) -> Result<Option<Arc<dyn Listener>>, String> {
    let Some(target) = Target::of(otel, |name| std::env::var(name).ok())? else { return Ok(None) };
    let target = Arc::new(target);
    let counts = manager.record().counts().clone();
    let durations = Arc::new(Durations::new(SystemTime::now(), counts.clone()));
    let room = Room::new(counts.clone());
    let (queue, done) = Queue::new(&target, room.clone(), durations.clone());
    let (stop, news) = (CancellationToken::new(), (manager.events(), manager.logins()));
    let exporter = Exporter {
        sender: Sender::new(counts, stop.clone()),
        durations,
        target: target.clone(),
        spans: Vec::new(),
        starts: Vec::new(),
        stop: stop.clone(),
        room,
    };
    let task = tokio::spawn(exporter.run(done, news));
    let shared = Shared::new(task, stop);
    Ok(Some(Arc::new(Tracer::new(target, queue, shared))))
}

/// The task that sends.
struct Exporter {
    target: Arc<Target>,
    sender: Sender,
    durations: Arc<Durations>,
    /// The collected spans. Each occupies a place in [`Room`].
    spans: Vec<Span>,
    /// Servers that are starting, and since when.
    starts: Vec<(String, SystemTime)>,
    stop: CancellationToken,
    room: Room,
}

impl Exporter {
    async fn run(
        mut self,
        mut queue: mpsc::Receiver<Done>,
        (mut states, mut logins): (broadcast::Receiver<StateChange>, broadcast::Receiver<LoginEnd>),
    ) {
        let (mut flush, mut measure) = (ticks(TOGETHER), ticks(METRICS));
        let mut done = Vec::with_capacity(BATCH);
        let stop = self.stop.clone();
        let (mut has_states, mut has_logins) = (true, true);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // This comes before the calls, which may arrive without a pause.
                _ = measure.tick() => self.send_metrics().await,
                _ = flush.tick() => self.send_spans().await,
                change = states.recv(), if has_states => match change {
                    Ok(change) => self.changed(change),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => has_states = false,
                },
                login = logins.recv(), if has_logins => match login {
                    Ok(login) => self.logged_in(login),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => has_logins = false,
                },
                got = queue.recv_many(&mut done, BATCH) => {
                    if got == 0 {
                        break;
                    }
                    if got < BATCH {
                        self.room.is_drained();
                    }
                    self.take(&mut done);
                    if self.spans.len() >= BATCH {
                        self.send_spans().await;
                    }
                }
            }
        }
        queue.close();
        while queue.recv_many(&mut done, BATCH).await > 0 {
            self.take(&mut done);
        }
        self.send_spans().await;
        self.send_metrics().await;
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        done.drain(..).for_each(|done| done.spans(&mut self.spans));
    }

    /// Records a change of a server's state. A start has a span of its own.
    fn changed(&mut self, change: StateChange) {
        let StateChange { server, to, cause, at, .. } = change;
        let to = to.as_str();
        let begun = self.starts.iter().position(|(starting, _)| *starting == server);
        match (to, begun) {
            ("connecting" | "initializing", None) => self.starts.push((server, at)),
            ("connecting" | "initializing", _) | (_, None) => {}
            (_, Some(begun)) => {
                let (server, begun) = self.starts.swap_remove(begun);
                let error = (to != "connected").then_some(to);
                self.own(Own { name: names::START, server: &server, begun, ended: at, error, cause });
            }
        }
    }

    /// Records that a login has ended. It has a span of its own.
    fn logged_in(&mut self, login: LoginEnd) {
        let LoginEnd { server, begun, ended, is_done } = login;
        let error = (!is_done).then_some("login_failed");
        self.own(Own { name: names::LOGIN, server: &server, begun, ended, error, cause: None });
    }

    /// Adds the span of something that the host did on its own.
    fn own(&mut self, own: Own<'_>) {
        let is_sampled = self.target.traces.is_some() && self.target.sampler.share > 0.0;
        if is_sampled && self.room.take(1) {
            match own.span() {
                Some(span) => self.spans.push(span),
                None => self.room.give(1),
            }
        }
    }

    fn resource(&self) -> Resource {
        let own = [(names::SERVICE, self.target.service.as_str()), (names::VERSION, env!("CARGO_PKG_VERSION"))];
        let more = self.target.resource.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let attributes = own.into_iter().chain(more).map(|(name, value)| text(name, value)).collect();
        Resource { attributes, ..Resource::default() }
    }

    async fn send_spans(&mut self) {
        let (Some(traces), false) = (&self.target.traces, self.spans.is_empty()) else { return };
        let all = std::mem::take(&mut self.spans);
        for batch in all.chunks(BATCH) {
            let scope_spans = vec![ScopeSpans { scope: scope(), spans: batch.to_vec(), ..ScopeSpans::default() }];
            let of_resource =
                ResourceSpans { resource: Some(self.resource()), scope_spans, ..ResourceSpans::default() };
            let request = ExportTraceServiceRequest { resource_spans: vec![of_resource] };
            let (body, count) = (request.encode_to_vec(), batch.len() as u64);
            self.sender.send(traces, body, (HostCount::OtelSpansDropped, count)).await;
            self.room.give(batch.len());
        }
    }

    async fn send_metrics(&mut self) {
        let Some(to) = &self.target.metrics else { return };
        let metrics = self.durations.metrics(SystemTime::now());
        if metrics.is_empty() {
            return;
        }
        let count = metrics.len() as u64;
        let scope_metrics = vec![ScopeMetrics { scope: scope(), metrics, ..ScopeMetrics::default() }];
        let of_resource =
            ResourceMetrics { resource: Some(self.resource()), scope_metrics, ..ResourceMetrics::default() };
        let body = ExportMetricsServiceRequest { resource_metrics: vec![of_resource] }.encode_to_vec();
        self.sender.send(to, body, (HostCount::OtelMetricsDropped, count)).await;
    }
}

fn scope() -> Option<InstrumentationScope> {
    let (name, version) = ("mcp-host".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Some(InstrumentationScope { name, version, ..InstrumentationScope::default() })
}

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
