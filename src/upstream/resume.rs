//! Streams of a Streamable HTTP session, resumed when they break (2025-03-26 to 2025-11-25, transports, "Resumability
//! and Redelivery"): the response stream of a request, and the GET stream for messages that answer no request. If the
//! GET stream cannot continue after a known event, every list and resource whose changes the server reports counts as
//! changed.
//!
//! A server that repeatedly accepts a stream and ends it at once must not be asked faster and faster: only a message
//! counts as progress (`docs/hazards.md` H26).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Upstream;
use super::connection::{Connection, kinds_of};
use crate::counts::Count;
use crate::protocol::{Message, Method, RequestId};
use crate::transport::{Error, EventStream, Http};

/// How often a broken response stream is resumed without receiving a message before its call counts as lost.
const RESUMES: u32 = 3;
/// How often the optional GET stream is retried without receiving a message before the server is used without it.
const TRIES: u32 = 10;
/// How long a silent GET stream must stay open to count as a success.
const HELD: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Handles a gap in a server's notifications: all lists and resources whose changes it reports count as changed.
fn missed(connection: &Arc<Connection>, upstream: &Upstream) {
    connection.mark(kinds_of(&connection.told_lists()));
    upstream.watched().1.iter().for_each(|uri| connection.mark_updated(uri));
}

/// Reads the response stream of a request, and resumes it after each break.
pub(super) async fn follow(connection: &Arc<Connection>, http: &Http, id: u64, mut stream: EventStream) {
    let mut failures = 0;
    // A server may close the stream and have us reconnect as often as it likes (2025-11-25, SEP-1699). Without a
    // message in between, the pauses grow.
    let mut sent_away = 0;
    let mut resumed = false;
    loop {
        let ended = loop {
            match stream.next().await {
                Ok(Some(data)) => {
                    (failures, sent_away) = (0, 0);
                    if !resumed || belongs(&data, id, |question| connection.was_asked(id, question)) {
                        connection.take(Some(id), &data);
                    } else {
                        let what = "a message on a resumed stream that may belong to another request";
                        connection.drop_one(what, Count::DroppedNotification);
                    }
                    if !connection.waits(id) {
                        return;
                    }
                }
                Ok(None) => break Error::Broken,
                Err(error) => break error,
            }
        };
        let Some(last_event) = stream.last_event.take() else { return connection.lose_one(id, ended) };
        let retry = stream.retry;
        if retry.is_some() && ended == Error::Broken {
            failures = 0;
        }
        let mut wait = pause(retry, sent_away);
        sent_away += 1;
        stream = loop {
            failures += 1;
            if failures > RESUMES {
                return connection.lose_one(id, Error::Broken);
            }
            tokio::time::sleep(wait).await;
            match http.stream(Some(&last_event)).await {
                Ok(resumed) => break resumed,
                Err(error @ (Error::SessionEnded | Error::SessionChanged)) => {
                    connection.failed(&error);
                    return connection.lose_one(id, Error::Broken);
                }
                // The server keeps no streams, or no longer this one.
                Err(Error::Status { status: 400..=428 | 430..=499, .. } | Error::Malformed(_)) => {
                    return connection.lose_one(id, Error::Broken);
                }
                Err(error) => wait = pause(retry, failures).max(error.retry_after().unwrap_or_default()),
            }
        };
        stream.last_event.get_or_insert(last_event);
        stream.retry = retry;
        resumed = true;
    }
}

/// Whether a message on a resumed stream belongs to request `id`: a server that mixes up its streams replays messages
/// that were meant for others (`docs/hazards.md` H25). A response or a progress notification names its request. A
/// cancellation names a question, which must have been `asked` during the request. Other notifications name no request
/// and are dropped, because they could be anyone's. A question passes: its answer goes back into our own session and no
/// other, and a server may ask on a resumed stream (2025-11-25, transports).
fn belongs(data: &bytes::Bytes, id: u64, asked: impl Fn(&RequestId) -> bool) -> bool {
    let named = match Message::passing(data, crate::protocol::DEPTH) {
        Ok(Message::Response(response)) => response.id,
        Ok(Message::Notification(notice)) if notice.method == Method::Progress => {
            notice.params.and_then(|params| params.member("progressToken")?.read().ok())
        }
        Ok(Message::Notification(notice)) if notice.method == Method::Cancelled => {
            let question = notice.params.and_then(|params| params.member("requestId")?.read().ok());
            return question.is_some_and(|question| asked(&question));
        }
        Ok(Message::Notification(_)) => None,
        // Malformed messages are reported where they are taken.
        Ok(Message::Request(_)) | Err(_) => return true,
    };
    named.is_some_and(|named: RequestId| matches!(named, RequestId::Number(number) if u64::try_from(number) == Ok(id)))
}

/// Keeps the GET stream, for messages that answer no request, open for the life of the connection. `ready` fires once
/// the stream is open, and is dropped if the stream is refused.
///
/// Messages that the server sends while there is no stream are lost, unless it replays those after the last event. So,
/// once a stream is open again, everything that lost messages may have reported counts as changed.
pub(super) async fn listen(
    connection: Arc<Connection>,
    upstream: Arc<Upstream>,
    http: Arc<Http>,
    ready: oneshot::Sender<()>,
) {
    let mut ready = Some(ready);
    let mut gap = Gap::default();
    let mut fruitless = 0;
    let mut last_event: Option<String> = None;
    let mut retry = None;
    while fruitless < TRIES {
        let (opened, mut asked) = (Instant::now(), Duration::ZERO);
        match http.stream(last_event.as_deref()).await {
            Ok(mut stream) => {
                // The receiver may have stopped waiting.
                let in_time = ready.take().is_some_and(|ready| ready.send(()).is_ok());
                if !in_time && last_event.is_none() {
                    gap.opened(Instant::now());
                }
                loop {
                    tokio::select! {
                        biased;
                        () = until(gap.due) => {
                            gap.told(Instant::now());
                            missed(&connection, &upstream);
                        }
                        next = stream.next() => {
                            let Ok(Some(data)) = next else { break };
                            fruitless = 0;
                            connection.take(None, &data);
                        }
                    }
                }
                // Proxies and servers end streams that stay silent for long.
                if opened.elapsed() > HELD {
                    fruitless = 0;
                }
                last_event = stream.last_event.take().or(last_event);
                retry = stream.retry.or(retry);
            }
            // The server no longer keeps the events after the last one that we got: start from now.
            Err(Error::Status { status: 400..=428 | 430..=499, .. }) if last_event.is_some() => last_event = None,
            // The server offers no such stream.
            Err(Error::Status { status: 400..=428 | 430..=499, .. } | Error::Malformed(_)) => return,
            Err(
                error @ (Error::SessionEnded
                | Error::SessionChanged
                | Error::Unreachable { .. }
                | Error::Untrusted { .. }
                | Error::Helper { .. }
                | Error::Spawn { .. }
                | Error::Exhausted { .. }
                | Error::Unauthorized { .. }
                | Error::SignIn { .. }),
            ) => return connection.failed(&error),
            Err(error) => asked = error.retry_after().unwrap_or_default(),
        }
        ready = None;
        fruitless += 1;
        tokio::time::sleep(pause(retry, fruitless).max(asked)).await;
    }
}

/// Waits until `at`; forever if `None`.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Decides when possibly missed changes are reported: as soon as a stream is open again, but at most once per [`HELD`]
/// if streams keep ending.
#[derive(Debug, Default)]
struct Gap {
    due: Option<Instant>,
    told: Option<Instant>,
}

impl Gap {
    /// Records a new stream that does not replay what came before it.
    fn opened(&mut self, now: Instant) {
        let soonest = self.told.map_or(now, |told| now.max(told + HELD));
        self.due.get_or_insert(soonest);
    }

    fn told(&mut self, now: Instant) {
        (self.due, self.told) = (None, Some(now));
    }
}

/// Returns the pause before a stream is resumed: the server's `retry` or half a second, doubled with each of `vain`
/// failures.
fn pause(retry: Option<u64>, vain: u32) -> Duration {
    let first = retry.map_or(RETRY, Duration::from_millis).clamp(RETRY, RETRY_MAX);
    (first * (1 << vain.min(6))).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h26_later_and_later() {
        let seconds = |retry, vain| pause(retry, vain).as_secs_f64();
        assert_eq!([0, 1, 2, 6, 100].map(|vain| seconds(None, vain)), [0.5, 1.0, 2.0, 32.0, 32.0]);
        assert_eq!([Some(0), Some(5000), Some(u64::MAX)].map(|retry| seconds(retry, 0)), [0.5, 5.0, 300.0]);
        assert_eq!(seconds(Some(60_000), 9), 300.0);
    }

    #[test]
    fn h26_what_may_have_been_missed_is_asked_for_at_once_and_then_now_and_then() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut gap = Gap::default();
        assert_eq!(gap.due, None, "the first stream misses nothing");
        gap.opened(at(0));
        assert_eq!(gap.due, Some(at(0)));
        gap.told(at(0));
        assert_eq!(gap.due, None);
        for second in 1..30 {
            gap.opened(at(second));
            assert_eq!(gap.due, Some(at(30)));
        }
        gap.told(at(30));
        gap.opened(at(90));
        assert_eq!(gap.due, Some(at(90)));
    }

    #[test]
    fn h25_what_belongs_to_a_request() {
        let asked = |question: &RequestId| *question == RequestId::Number(3);
        let belongs = |text: &'static str| belongs(&bytes::Bytes::from_static(text.as_bytes()), 7, asked);
        assert!(belongs(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
        assert!(!belongs(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#));
        assert!(!belongs(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#));
        assert!(belongs(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#
        ));
        assert!(!belongs(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":8,"progress":1}}"#
        ));
        assert!(!belongs(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#));
        assert!(!belongs(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#));
        assert!(belongs(r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}"#));
        assert!(belongs(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#));
        assert!(!belongs(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#));
        assert!(!belongs(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#));
    }
}
