//! Observes each call from beginning to end: only here are its outcome, its duration, and its bytes known together.
//!
//! In: clients' requests, as they begin and end. Out: a notice to each [`Listener`]: the record of the last calls, and the
//! audit log. Every request is counted (`counts`), whether anybody listens or not.
//! **Invariant:** each listener that was told of a call's beginning is told of its end exactly once, even if the call's
//! future is dropped.

mod passing;
mod subject;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

pub(crate) use self::passing::{Noted, Passed, Passing, Whose};
pub(crate) use self::subject::{At, Hears, Judged, Subject};
pub(crate) use crate::answered::End;
use crate::answered::{Answered, Failed, Kind, NoResult};
use crate::counts::{Counts, Over, Tally, Waits};
use crate::lock::lock;
use crate::protocol::{Method, Raw, RequestId};
#[cfg(feature = "otel")]
use crate::traced::Origin;

/// Is told of calls as they begin and end.
pub(crate) trait Listener: fmt::Debug + Send + Sync {
    /// Returns what it wants to be told of a request of that method that begins now.
    fn wants(&self, method: &Method) -> Wants;

    /// Is told that a call begins. The returned value is told of the call's end.
    ///
    /// # Errors
    /// When the call must not be made.
    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed>;

    /// Is told that a call has ended, if it wanted to be told only of the end.
    fn passed(&self, _: &mut Option<Passed>) {}

    /// Stores what it was told, since mcp-host is shutting down.
    fn finish(&self) -> BoxFuture<'_, ()>;

    /// Reports whether it makes spans, so that doors note where requests come from.
    #[cfg(feature = "otel")]
    fn traces(&self) -> bool {
        false
    }
}

/// What a listener wants to be told of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    /// Its end only. That costs the request next to nothing.
    End,
    /// Its beginning and its end.
    Whole,
}

impl Wants {
    /// Returns `Whole` if that holds, else `Nothing`.
    pub(crate) fn whole_if(holds: bool) -> Self {
        if holds { Self::Whole } else { Self::Nothing }
    }
}

/// One call in flight, as a listener knows it.
pub(crate) trait Pending: fmt::Debug + Send {
    /// Is told that the call has ended.
    fn end(self: Box<Self>, ended: &Ended<'_>);
}

/// Reports whether requests with this method make a server do or reveal something. Lists, pings, session settings, and
/// queries of a task's state do not.
#[must_use]
pub(crate) fn is_call(method: &Method) -> bool {
    match method {
        Method::ToolsCall
        | Method::PromptsGet
        | Method::ResourcesRead
        | Method::ResourcesSubscribe
        | Method::Complete
        | Method::TasksResult
        | Method::TasksCancel
        | Method::TasksUpdate => true,
        // This is a method of an extension.
        Method::Other(_) => true,
        _ => false,
    }
}

/// A call that begins.
#[derive(Clone, Debug)]
pub(crate) struct Begun<'a> {
    pub(crate) principal: &'a str,
    /// The name that the client gave for itself: shown, never trusted.
    pub(crate) client: Option<Arc<str>>,
    /// The door that it came through: `http`, `sse`, `stdio`, `socket`, or `console`; `None` for the embedding program.
    pub(crate) door: Option<&'static str>,
    /// When it begins.
    pub(crate) at: SystemTime,
    pub(crate) method: &'a Method,
    pub(crate) params: Option<&'a Raw>,
    /// What it concerns (server, tool); routing fills it in.
    pub(crate) subject: Arc<Subject>,
    /// What made the call in place of the client: a tool of mcp-host (`search`, `group`, `script`), or mcp-host itself
    /// (`fallback`, `listen`); `None` if the client called directly.
    pub(crate) via: Option<&'static str>,
    /// The name of the script that makes the call.
    pub(crate) parent: Option<&'a str>,
    /// The client's revision.
    #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "only spans have it"))]
    pub(crate) revision: Option<&'static str>,
    /// The id of its request; `None` if mcp-host made the request, or if only the door knows the client's id for it.
    #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "only spans have it"))]
    pub(crate) id: Option<&'a RequestId>,
    /// What its door recorded about where it comes from.
    #[cfg(feature = "otel")]
    pub(crate) origin: Option<&'a Origin>,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) end: End,
    /// The kind of the failure; `None` unless mcp-host itself failed the call.
    pub(crate) kind: Option<Kind>,
    /// The code of the JSON-RPC error; `None` if the answer is no error, or a failure of mcp-host itself.
    pub(crate) code: Option<i64>,
    /// When the call may be made again, if it failed and that is known.
    pub(crate) retry_after: Option<Duration>,
    /// The size of the params in bytes.
    pub(crate) bytes_in: usize,
    /// The size of the answer in bytes.
    pub(crate) bytes_out: usize,
    pub(crate) took: Duration,
    /// For how much of that time it waited for others.
    pub(crate) waits: Waits,
    /// The result, if there is one.
    pub(crate) result: Option<&'a Raw>,
    /// The server and target, if the call was routed.
    pub(crate) at: Option<&'a At>,
    /// The verdict of the rules, if any rules apply.
    pub(crate) judged: Option<&'a Judged>,
    /// How the question to a person before it was sent was answered: `yes`, `no`, or `nobody`; `None` if no person was
    /// asked.
    pub(crate) asked: Option<&'static str>,
    /// Whether the answer came from the cache.
    pub(crate) cached: bool,
    /// Whether the client got only a part of the result.
    pub(crate) cut: bool,
    /// The view that its client uses; `None` unless a listener wanted it.
    pub(crate) view: Option<&'a str>,
    /// The name of the script, if the call ran one.
    pub(crate) script: Option<&'a str>,
    /// The pin of the definition that was called; `None` if there is none, or no listener wanted it.
    pub(crate) pin: Option<&'a str>,
}

/// Counts all calls, and tells the listeners of them.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    counts: Counts,
    listeners: OnceLock<Box<[Arc<dyn Listener>]>>,
    results: AtomicU64,
    errors: AtomicU64,
    failures: AtomicU64,
    cancelled: AtomicU64,
}

impl Observer {
    /// Makes an observer that adds to these counters.
    pub(crate) fn new(counts: Counts) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Returns the counters.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the metrics ask"))]
    pub(crate) fn counted(&self) -> &Counts {
        &self.counts
    }

    /// Sets the listeners. Only the first call has an effect.
    pub(crate) fn tell(&self, listeners: Vec<Arc<dyn Listener>>) {
        let _ = self.listeners.set(listeners.into());
    }

    /// Tells the listeners that a call begins, which `tally` counts. `about` describes the call, and runs only if a
    /// listener wants to be told of its beginning. `noted` runs if a listener wants to be told only of its end;
    /// `passing` collects the notes for that.
    ///
    /// # Errors
    /// When a listener forbids the call.
    pub(crate) fn begin<'a, 'b>(
        &'a self,
        method: &Method,
        (tally, passing): (&'a Tally, &'a Passing),
        noted: impl FnOnce() -> Noted,
        about: impl FnOnce() -> Begun<'b>,
    ) -> Result<Observed<'a>, Failed> {
        let mut observed = Observed { observer: self, tally: Some(tally), is_total: true, told: None, passing: None };
        let (mut noted, mut about, mut call) = (Some(noted), Some(about), None);
        for listener in self.listeners() {
            match listener.wants(method) {
                Wants::Nothing => continue,
                Wants::End => {
                    if let Some(noted) = noted.take() {
                        passing.begin(noted());
                        observed.passing = Some(passing);
                    }
                    continue;
                }
                Wants::Whole => {}
            }
            call = call.or_else(|| about.take().map(|about| about()));
            let Some(call) = &call else { continue };
            let told = observed.told.get_or_insert_with(|| Box::new(Told::of(call)));
            match listener.begin(call) {
                Ok(pending) if told.first.is_none() => told.first = Some(pending),
                Ok(pending) => told.more.push(pending),
                Err(failed) => {
                    observed.finish(Some(&Err(failed.clone().into())));
                    return Err(failed);
                }
            }
        }
        Ok(observed)
    }

    /// Counts the end of a call whose client gets the answer of another call (a fallback).
    pub(crate) fn ended(&self, tally: &Tally, passing: &Passing, answered: &Answered) {
        let over = over(Some(answered), true, Instant::now());
        tally.close(&self.counts, &over);
        passing.ended(&over);
    }

    /// Reports whether a listener makes spans.
    #[cfg(feature = "otel")]
    pub(crate) fn traces(&self) -> bool {
        self.listeners().iter().any(|listener| listener.traces())
    }

    /// Lets the listeners store what they were told, at shutdown.
    pub(crate) async fn finish(&self) {
        let [results, errors, failures, cancelled] = self.counts();
        tracing::debug!(results, errors, failures, cancelled, "requests of clients since the start");
        for listener in self.listeners() {
            listener.finish().await;
        }
    }

    /// Returns how many calls have ended so far: with a result, with a JSON-RPC error, with a failure of mcp-host, and
    /// cancelled.
    pub(crate) fn counts(&self) -> [u64; 4] {
        [&self.results, &self.errors, &self.failures, &self.cancelled].map(|count| count.load(Ordering::Relaxed))
    }

    fn count(&self, answered: Option<&Answered>) {
        let count = match answered {
            Some(Ok(_)) => &self.results,
            Some(Err(NoResult::Error(_))) => &self.errors,
            Some(Err(NoResult::Failed(_))) => &self.failures,
            None => &self.cancelled,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn listeners(&self) -> &[Arc<dyn Listener>] {
        self.listeners.get().map(|listeners| &**listeners).unwrap_or_default()
    }
}

/// One call in flight. If this is dropped before [`Observed::finish`], the call counts as cancelled.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    observer: &'a Observer,
    /// `None` once the call is finished.
    tally: Option<&'a Tally>,
    /// Whether it is the request of a client, so that it counts in the totals.
    is_total: bool,
    /// `None` if no listener wants the call: boxed, because every call's future has room for it.
    told: Option<Box<Told>>,
    /// The notes on the call, for a listener that is told only of its end; `None` if there is none.
    passing: Option<&'a Passing>,
}

/// What is kept of a call for its listeners until it ends.
#[derive(Debug)]
struct Told {
    bytes_in: usize,
    subject: Arc<Subject>,
    /// The first listener, which most calls have alone.
    first: Option<Box<dyn Pending>>,
    more: Vec<Box<dyn Pending>>,
}

impl Observed<'_> {
    /// Records the answer to the call, and tells the listeners. `None` means that the client cancelled the call.
    pub(crate) fn finish(mut self, answered: Option<&Answered>) {
        self.close(answered);
    }

    /// Marks it as a call that mcp-host makes on behalf of a client's, which is in the totals already.
    pub(crate) fn beside(self) -> Self {
        let mut call = self;
        call.is_total = false;
        call
    }

    fn close(&mut self, answered: Option<&Answered>) {
        let Some(tally) = self.tally.take() else { return };
        if self.is_total {
            self.observer.count(answered);
        }
        let told = self.told.take();
        // Lists and pings have no outcome but an answer, and a list is long.
        let over = over(answered, told.is_some() || tally.is_call(), Instant::now());
        tally.close(&self.observer.counts, &over);
        if let Some(passing) = self.passing.take() {
            let mut passed = passing.passed(tally, over);
            self.observer.listeners().iter().for_each(|listener| listener.passed(&mut passed));
        }
        if let Some(told) = told {
            told.end(answered, &over, tally);
        }
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        self.close(None);
    }
}

/// Returns how a call ended. The answer is read for that only if `reads`.
fn over(answered: Option<&Answered>, reads: bool, at: Instant) -> Over {
    let (end, kind, bytes_out) = match answered {
        Some(Ok(result)) => {
            let end = if reads { End::of_result(result) } else { End::Ok };
            (end, None, result.as_bytes().len())
        }
        Some(Err(NoResult::Error(error))) => {
            let data = error.data.as_ref().map_or(0, |data| data.as_bytes().len());
            (End::Error, None, error.message.len() + data)
        }
        Some(Err(NoResult::Failed(failed))) => (End::HostError, Some(failed.kind), failed.text.len()),
        None => (End::Cancelled, None, 0),
    };
    Over { end, kind, bytes_out, at }
}

impl Told {
    fn of(call: &Begun<'_>) -> Self {
        let bytes_in = call.params.map_or(0, |params| params.as_bytes().len());
        Self { bytes_in, subject: call.subject.clone(), first: None, more: Vec::new() }
    }

    fn end(self, answered: Option<&Answered>, over_now: &Over, tally: &Tally) {
        // The subject may be kept longer than the answer.
        let early = lock(&self.subject.ended).take();
        let (answered, over) = match &early {
            Some(early) => (Some(&early.0), &over(Some(&early.0), true, early.1)),
            None => (answered, over_now),
        };
        let (retry_after, code) = match answered {
            Some(Err(NoResult::Failed(failed))) => (failed.retry_after, None),
            Some(Err(NoResult::Error(error))) => (None, Some(error.code)),
            Some(Ok(_)) | None => (None, None),
        };
        let Over { end, kind, bytes_out, at: over_at } = *over;
        let took = over_at.saturating_duration_since(tally.begun().unwrap_or(over_now.at));
        let (waits, result) = (tally.waits(), answered.and_then(|answered| answered.as_ref().ok()));
        let (bytes_in, at) = (self.bytes_in, self.subject.at.get());
        let cached = self.subject.is_kept.load(Ordering::Relaxed);
        let cut = self.subject.is_cut.load(Ordering::Relaxed);
        let (judged, asked) = (self.subject.judged.get(), self.subject.asked.get().copied());
        let (view, pin) = (self.subject.view.get().map(|view| &**view), self.subject.pin.get().map(|pin| &**pin));
        let ended = Ended {
            end,
            kind,
            code,
            retry_after,
            bytes_in,
            bytes_out,
            took,
            waits,
            result,
            at,
            cached,
            cut,
            judged,
            asked,
            view,
            script: self.subject.script.get().map(|name| &**name),
            pin,
        };
        self.first.into_iter().chain(self.more).for_each(|pending| pending.end(&ended));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::counts::Group;
    use crate::protocol::ErrorObject;

    type Ends = Arc<Mutex<Vec<(&'static str, End, usize, usize)>>>;

    /// A listener that notes tool calls, and may refuse them.
    #[derive(Debug)]
    struct Ear(&'static str, Ends, bool);

    impl Listener for Ear {
        fn wants(&self, method: &Method) -> Wants {
            Wants::whole_if(*method == Method::ToolsCall)
        }

        fn begin(&self, _: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
            if self.2 { Err(failed()) } else { Ok(Box::new(Self(self.0, self.1.clone(), false))) }
        }

        fn finish(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    impl Pending for Ear {
        fn end(self: Box<Self>, ended: &Ended<'_>) {
            self.1.lock().unwrap().push((self.0, ended.end, ended.bytes_in, ended.bytes_out));
        }
    }

    fn failed() -> Failed {
        let text = "no".into();
        Failed {
            kind: Kind::Timeout,
            server: None,
            text,
            cause: None,
            sent: false,
            retryable: false,
            retry_after: None,
            errors: Box::default(),
            rule: None,
        }
    }

    fn begin<'a>(observer: &'a Observer, method: &Method) -> Result<Observed<'a>, Failed> {
        let params = Raw::trusted(r#"{"name":"x"}"#.into());
        let subject = Arc::default();
        observer.begin(
            method,
            begun(method),
            || unreachable!("nobody wants ends"),
            || Begun {
                principal: "p",
                client: None,
                door: None,
                at: SystemTime::UNIX_EPOCH,
                method,
                params: Some(&params),
                subject,
                via: None,
                parent: None,
                revision: None,
                id: None,
                #[cfg(feature = "otel")]
                origin: None,
            },
        )
    }

    /// Makes the tally of a request that begins.
    fn begun(method: &Method) -> (&'static Tally, &'static Passing) {
        let tally: &Tally = Box::leak(Box::default());
        tally.begin(method, is_call(method), 12, Instant::now());
        (tally, Box::leak(Box::default()))
    }

    /// Begins a call of which nobody wants to know.
    fn unheard<'a>(observer: &'a Observer, method: &Method, of: (&'a Tally, &'a Passing)) -> Observed<'a> {
        let noted = || unreachable!("nobody wants to know how it ends");
        observer.begin(method, of, noted, || unreachable!("nobody wants to know")).unwrap()
    }

    fn answers() -> Vec<Option<Answered>> {
        let result = |text: &'static str| Some(Ok(Raw::trusted(text.into())));
        vec![
            result("{}"),
            result(r#"{"isError":true}"#),
            result(r#"{"resultType":"input_required"}"#),
            result(r#"{"task":{}}"#),
            Some(Err(ErrorObject::new(-1, "error").into())),
            Some(Err(failed().into())),
            None,
        ]
    }

    #[test]
    fn each_call_ends_once_at_each_listener() {
        let (observer, ends) = (Observer::default(), Ends::default());
        observer.tell(vec![Arc::new(Ear("a", ends.clone(), false)), Arc::new(Ear("b", ends.clone(), false))]);
        for answered in answers() {
            begin(&observer, &Method::ToolsCall).unwrap().finish(answered.as_ref());
        }
        drop(begin(&observer, &Method::ToolsCall).unwrap());
        begin(&observer, &Method::Ping).unwrap().finish(answers()[0].as_ref());
        let heard = std::mem::take(&mut *ends.lock().unwrap());
        let expected = [
            (End::Ok, 2),
            (End::ToolError, 16),
            (End::InputRequired, 31),
            (End::Task, 11),
            (End::Error, 5),
            (End::HostError, 2),
            (End::Cancelled, 0),
            (End::Cancelled, 0),
        ];
        let both = expected.into_iter().flat_map(|(end, bytes)| [("a", end, 12, bytes), ("b", end, 12, bytes)]);
        assert_eq!(heard, both.collect::<Vec<_>>());
        assert_eq!(observer.counts(), [5, 1, 1, 2]);
    }

    #[test]
    fn a_call_that_one_listener_refuses_ends_at_the_others() {
        let (observer, ends) = (Observer::default(), Ends::default());
        observer.tell(vec![Arc::new(Ear("a", ends.clone(), false)), Arc::new(Ear("b", ends.clone(), true))]);
        assert_eq!(begin(&observer, &Method::ToolsCall).unwrap_err(), failed());
        assert_eq!(*ends.lock().unwrap(), [("a", End::HostError, 12, 2)]);
        assert_eq!(observer.counts(), [0, 0, 1, 0]);
    }

    #[test]
    fn calls_are_counted_though_nobody_listens() {
        let observer = Observer::default();
        for answered in answers() {
            let tally = begun(&Method::ToolsCall);
            let call = unheard(&observer, &Method::ToolsCall, tally);
            call.finish(answered.as_ref());
        }
        assert_eq!(observer.counts(), [4, 1, 1, 1]);
        let none = observer.counted().none();
        assert_eq!(End::ALL.map(|end| none.calls(Group::ToolsCall, end)), [1; 7]);
        let list = begun(&Method::ToolsList);
        let call = unheard(&observer, &Method::ToolsList, list);
        call.finish(answers()[1].as_ref());
        assert_eq!(none.calls(Group::List, End::Ok), 1, "what a list holds says nothing about the request");
    }
}
