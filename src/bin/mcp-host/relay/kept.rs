//! What a relay keeps of its client's session for the next daemon: how the session began, and what is in flight.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::scan::{Envelope, Item};

/// How many bytes of messages to keep in total.
const MOST: usize = 1 << 20;
/// The longest message that is kept, in bytes.
pub(super) const LONGEST: usize = 128 << 10;
/// How many resource subscriptions to resume.
const WATCHED: usize = 1000;

/// The position of a message among those sent to one daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    /// The connection.
    pub(super) peer: usize,
    /// The number of the message on the connection, from 1.
    pub(super) index: u64,
    /// The number of bytes queued on the connection before the message.
    pub(super) start: u64,
}

#[derive(Debug)]
struct Request {
    id: String,
    method: String,
    line: Option<Vec<u8>>,
    at: At,
    /// Whether an earlier daemon may have seen the request, and may have died of it.
    again: bool,
}

/// A notification, which goes to the next daemon if a stopping one did not take it.
#[derive(Debug)]
struct Notice {
    line: Vec<u8>,
    at: At,
}

/// What `initialize` agreed on.
#[derive(Debug)]
struct Agreed {
    revision: String,
    /// The lists whose changes the client is notified of.
    changes: Vec<&'static str>,
}

/// What to do about messages that a daemon left unanswered or did not take.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Messages for the next daemon.
    pub(super) again: Vec<Again>,
    /// The answers to send to the client.
    pub(super) answers: Vec<Vec<u8>>,
}

/// A message to send again.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) line: Vec<u8>,
    /// Whether a daemon may have seen the message.
    pub(super) seen: bool,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    initialize: Option<Vec<u8>>,
    initialized: bool,
    agreed: Option<Agreed>,
    level: Option<Value>,
    watched: BTreeSet<String>,
    requests: Vec<Request>,
    notices: VecDeque<Notice>,
    bytes: usize,
    /// The highest id of any question so far.
    pub(super) asked: u64,
}

impl Kept {
    /// Records a message of the client. `line` is the whole message, if available. `seen` says that another daemon may
    /// have seen it.
    pub(super) fn said(&mut self, envelope: &Envelope, line: Option<&[u8]>, at: At, seen: bool) {
        let parts = if envelope.is_batch { line.and_then(parts) } else { None };
        for (number, item) in envelope.items.iter().enumerate() {
            let line = match (&parts, envelope.is_batch) {
                (Some(parts), _) => parts.get(number).map(Vec::as_slice),
                (None, true) => None,
                (None, false) => line,
            };
            self.item(item, line, at, seen);
        }
    }

    fn item(&mut self, item: &Item, line: Option<&[u8]>, at: At, seen: bool) {
        let Some(method) = item.method.as_deref() else { return };
        match method {
            // The last `initialize` before an agreement counts: earlier ones were refused.
            "initialize" if self.agreed.is_none() => {
                self.initialize = line.map(<[u8]>::to_vec).or(self.initialize.take());
            }
            "notifications/initialized" => self.initialized = true,
            "logging/setLevel" => self.level = line.and_then(|line| param(line, "level")).or(self.level.take()),
            "resources/subscribe" if self.watched.len() < WATCHED => self.watched.extend(line.and_then(uri)),
            "resources/unsubscribe" => {
                if let Some(uri) = line.and_then(uri) {
                    self.watched.remove(&uri);
                }
            }
            // The client no longer waits for the answer.
            "notifications/cancelled" => {
                if let Some(id) = line.and_then(|line| param(line, "requestId")) {
                    self.answered(&id.to_string(), at.peer);
                }
            }
            _ => {}
        }
        let line = line.filter(|line| line.len() <= LONGEST && self.bytes + line.len() <= MOST).map(<[u8]>::to_vec);
        self.bytes += line.as_ref().map_or(0, Vec::len);
        match (&item.id, line) {
            (Some(id), line) => {
                self.requests.push(Request { id: id.clone(), method: method.to_owned(), line, at, again: seen });
            }
            (None, Some(line)) => self.notices.push_back(Notice { line, at }),
            (None, None) => {}
        }
    }

    /// Removes an answered request and returns its method. Notifications sent before it are removed, too: the daemon
    /// has taken them.
    pub(super) fn answered(&mut self, id: &str, peer: usize) -> Option<String> {
        let position = self.requests.iter().position(|request| request.id == id && request.at.peer == peer)?;
        let request = self.requests.remove(position);
        self.bytes -= request.line.as_ref().map_or(0, Vec::len);
        let taken = |notice: &Notice| notice.at.peer != peer || notice.at.index > request.at.index;
        let bytes = &mut self.bytes;
        self.notices.retain(|notice| {
            taken(notice) || {
                *bytes -= notice.line.len();
                false
            }
        });
        Some(request.method)
    }

    /// Returns the daemon that a request was sent to, while the request is in flight.
    pub(super) fn peer_of(&self, id: &str) -> Option<usize> {
        self.requests.iter().find(|request| request.id == id).map(|request| request.at.peer)
    }

    /// Reports whether that daemon still owes the answer to `initialize`.
    pub(super) fn begins(&self, peer: usize) -> bool {
        self.requests.iter().any(|request| request.at.peer == peer && request.method == "initialize")
    }

    /// Reports whether any request is in flight.
    pub(super) fn is_busy(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Records the agreement in an answer to `initialize`.
    pub(super) fn agree(&mut self, answer: &[u8]) {
        let Some((revision, capabilities)) = agreed(answer) else { return };
        let changes = ["tools", "prompts", "resources"];
        let changes = changes.into_iter().filter(|list| capabilities[list]["listChanged"] == true).collect();
        self.agreed = Some(Agreed { revision, changes });
    }

    /// Returns what to do about the messages that a stopping daemon did not take: all after the first `taken`.
    pub(super) fn left(&mut self, peer: usize, taken: u64) -> Lost {
        self.take(|at| at.peer == peer && at.index > taken, |_| false)
    }

    /// Returns what to do about the unanswered messages of a daemon that is gone. It was sent the first `written`
    /// bytes.
    pub(super) fn lost(&mut self, peer: usize, written: u64) -> Lost {
        self.take(|at| at.peer == peer, |at| at.start < written)
    }

    fn take(&mut self, concerns: impl Fn(&At) -> bool, seen: impl Fn(&At) -> bool) -> Lost {
        let (requests, others) = std::mem::take(&mut self.requests).into_iter().partition(|it| concerns(&it.at));
        self.requests = others;
        let (notices, others) = std::mem::take(&mut self.notices).into_iter().partition(|it| concerns(&it.at));
        self.notices = others;
        let requests: Vec<Request> = requests;
        let notices: VecDeque<Notice> = notices;
        let mut lost = Lost::default();
        let mut again: Vec<(u64, Again)> = Vec::new();
        for request in requests {
            self.bytes -= request.line.as_ref().map_or(0, Vec::len);
            let seen = seen(&request.at);
            match request.line {
                Some(line) if !seen => again.push((request.at.index, Again { line, seen: request.again })),
                Some(line) if may_be_repeated(&request.method) && !request.again => {
                    again.push((request.at.index, Again { line, seen: true }));
                }
                _ => lost.answers.push(ending(&request.id, &request.method, seen)),
            }
        }
        for notice in notices {
            self.bytes -= notice.line.len();
            if !seen(&notice.at) {
                again.push((notice.at.index, Again { line: notice.line, seen: false }));
            }
        }
        again.sort_by_key(|(index, _)| *index);
        lost.again = again.into_iter().map(|(_, again)| again).collect();
        lost
    }

    /// Returns the `initialize` request for another daemon, and the revision agreed before, if the client has a
    /// session.
    pub(super) fn session(&self) -> Option<(Vec<u8>, &str)> {
        let agreed = self.agreed.as_ref()?;
        let mut line: Value = serde_json::from_slice(self.initialize.as_ref()?).ok()?;
        line["id"] = json!(own_id(0));
        Some((written(&line), &agreed.revision))
    }

    /// Returns the messages after `initialize` that resume the session at another daemon.
    pub(super) fn resumed(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut number = 0;
        let mut request = |method: &str, params: Value| {
            number += 1;
            written(&json!({ "jsonrpc": "2.0", "id": own_id(number), "method": method, "params": params }))
        };
        if self.initialized {
            lines.extend(written(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })));
        }
        lines.extend(self.level.iter().flat_map(|level| request("logging/setLevel", json!({ "level": level }))));
        lines.extend(self.watched.iter().flat_map(|uri| request("resources/subscribe", json!({ "uri": uri }))));
        lines
    }

    /// Returns the notifications that tell the client that its lists may have changed.
    pub(super) fn changes(&self) -> Vec<u8> {
        let lists = self.agreed.iter().flat_map(|agreed| &agreed.changes);
        let told =
            |list: &&str| written(&json!({ "jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed") }));
        lists.flat_map(told).collect()
    }
}

/// Returns the id of a request of our own, whose answer is not for the client.
pub(super) fn own_id(number: usize) -> String {
    format!("{OWN}{number}")
}

/// Reports whether an answer belongs to a request of our own.
pub(super) fn is_own(id: &str) -> bool {
    id.strip_prefix('"').is_some_and(|id| id.starts_with(OWN))
}

const OWN: &str = "mcp-host/relay/";

/// Returns the revision and capabilities in an answer to `initialize`; `None` if the answer is an error.
pub(super) fn agreed(answer: &[u8]) -> Option<(String, Value)> {
    let mut answer: Value = serde_json::from_slice(answer).ok()?;
    let revision = answer["result"]["protocolVersion"].as_str()?.to_owned();
    Some((revision, answer["result"]["capabilities"].take()))
}

/// Returns the notification that withdraws a question.
pub(super) fn withdrawal(id: &str) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    let params = json!({ "requestId": id, "reason": "the mcp-host that asked is gone" });
    written(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
}

/// Reports whether a request may be sent again. A tool call may not: it may already have done its work.
fn may_be_repeated(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "ping"
            | "server/discover"
            | "tools/list"
            | "prompts/list"
            | "prompts/get"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "resources/subscribe"
            | "resources/unsubscribe"
            | "completion/complete"
            | "logging/setLevel"
            | "tasks/get"
            | "tasks/list"
    )
}

/// Returns the answers to the requests in a message that no daemon will answer. `sent` says that one may have seen
/// them.
pub(super) fn endings(envelope: &Envelope, sent: bool) -> Vec<u8> {
    let request = |item: &Item| Some(ending(item.id.as_deref()?, item.method.as_deref()?, sent));
    envelope.items.iter().filter_map(request).flatten().collect()
}

/// Returns the final answer to a request that gets no answer from a daemon.
fn ending(id: &str, method: &str, sent: bool) -> Vec<u8> {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    if method == "subscriptions/listen" {
        let result = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": id }, "resultType": "complete" });
        return written(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
    let (kind, text) = match sent {
        true => (
            "outcome_unknown",
            "the mcp-host that served it is gone; the outcome is unknown: the work may have been done",
        ),
        false => ("unavailable", "the mcp-host that was to serve it is gone; it was not sent: send it again"),
    };
    let details = json!({ "kind": kind, "sent": sent, "retryable": !sent });
    let answer = if method == "tools/call" {
        let result = json!({
            "content": [{ "type": "text", "text": text }], "isError": true, "_meta": { "mcp-host/error": details },
        });
        json!({ "jsonrpc": "2.0", "id": id, "result": result })
    } else {
        let mut data = details.clone();
        data["mcp-host/error"] = details;
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": text, "data": data } })
    };
    written(&answer)
}

/// Writes a message as a line.
fn written(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Returns a member of a message's params.
pub(super) fn param(line: &[u8], name: &str) -> Option<Value> {
    let mut message: Value = serde_json::from_slice(line).ok()?;
    message.get_mut("params")?.get_mut(name).map(Value::take)
}

fn uri(line: &[u8]) -> Option<String> {
    param(line, "uri")?.as_str().map(str::to_owned)
}

/// Splits a batch into lines.
fn parts(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let items: Vec<Value> = serde_json::from_slice(line).ok()?;
    Some(items.iter().map(written).collect())
}

#[cfg(test)]
mod tests {
    use super::super::scan::Scan;
    use super::*;

    fn say(kept: &mut Kept, line: &str, peer: usize, index: u64, start: u64) {
        kept.said(&Scan::line(line.as_bytes()), Some(line.as_bytes()), At { peer, index, start }, false);
    }

    fn call(id: u32, method: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
    }

    fn texts(again: &[Again]) -> Vec<&str> {
        again.iter().map(|again| std::str::from_utf8(&again.line).unwrap()).collect()
    }

    #[test]
    fn what_a_stopping_daemon_did_not_take_goes_to_the_next() {
        let mut kept = Kept::default();
        say(&mut kept, &call(1, "tools/call"), 0, 1, 0);
        say(&mut kept, r#"{"method":"notifications/roots/list_changed"}"#, 0, 2, 50);
        say(&mut kept, &call(2, "tools/call"), 0, 3, 100);
        let left = kept.left(0, 1);
        assert_eq!(texts(&left.again).len(), 2);
        assert!(texts(&left.again)[0].contains("roots") && left.answers.is_empty());
        assert_eq!(kept.answered("1", 0).as_deref(), Some("tools/call"));
        assert_eq!((kept.bytes, kept.is_busy()), (0, false));
    }

    #[test]
    fn after_a_death_a_call_is_unknown_and_a_list_is_asked_for_once_more() {
        let mut kept = Kept::default();
        for (index, method) in ["tools/call", "tools/list", "subscriptions/listen", "tools/call"].iter().enumerate() {
            say(&mut kept, &call(u32::try_from(index).unwrap(), method), 0, index as u64 + 1, index as u64 * 100);
        }
        let lost = kept.lost(0, 300);
        assert_eq!(texts(&lost.again), [call(1, "tools/list"), call(3, "tools/call")], "the last was not written");
        assert_eq!(lost.again.iter().map(|again| again.seen).collect::<Vec<_>>(), [true, false]);
        let answers: Vec<Value> = lost.answers.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(answers[0]["result"]["_meta"]["mcp-host/error"]["kind"], "outcome_unknown");
        assert_eq!((&answers[1]["id"], answers[1]["result"].is_object()), (&json!(2), true));
        // A request is not sent a third time.
        let line = call(1, "tools/list");
        kept.said(&Scan::line(line.as_bytes()), Some(line.as_bytes()), At { peer: 1, index: 1, start: 0 }, true);
        let lost = kept.lost(1, 10);
        assert!(lost.again.is_empty());
        let answer: Value = serde_json::from_slice(&lost.answers[0]).unwrap();
        assert_eq!(answer["error"]["data"]["kind"], "outcome_unknown");
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn a_session_is_taken_up_as_it_was() {
        let mut kept = Kept::default();
        say(&mut kept, r#"{"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#, 0, 1, 0);
        assert!(kept.begins(0) && kept.session().is_none());
        kept.agree(
            br#"{"id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}}"#,
        );
        kept.answered("1", 0);
        say(&mut kept, r#"{"method":"notifications/initialized"}"#, 0, 2, 0);
        say(&mut kept, r#"{"id":2,"method":"logging/setLevel","params":{"level":"error"}}"#, 0, 3, 0);
        for (id, method, uri) in [(3, "subscribe", "a:b"), (4, "subscribe", "c:d"), (5, "unsubscribe", "a:b")] {
            say(
                &mut kept,
                &format!(r#"{{"id":{id},"method":"resources/{method}","params":{{"uri":"{uri}"}}}}"#),
                0,
                id,
                0,
            );
        }
        let (line, revision) = kept.session().unwrap();
        assert_eq!(revision, "2025-11-25");
        assert!(is_own(Scan::line(&line).items[0].id.as_deref().unwrap()));
        let resumed = String::from_utf8(kept.resumed()).unwrap();
        let methods: Vec<String> =
            resumed.lines().map(|line| Scan::line(line.as_bytes()).items[0].method.clone().unwrap()).collect();
        assert_eq!(methods, ["notifications/initialized", "logging/setLevel", "resources/subscribe"]);
        assert!(resumed.contains("c:d") && !resumed.contains("a:b"));
        assert_eq!(String::from_utf8(kept.changes()).unwrap().matches("list_changed").count(), 1);
    }

    #[test]
    fn a_session_begins_with_what_was_agreed_to() {
        let mut kept = Kept::default();
        let begin = |id: u64| format!(r#"{{"id":{id},"method":"initialize","params":{{"try":{id}}}}}"#);
        say(&mut kept, &begin(1), 0, 1, 0);
        kept.agree(br#"{"id":1,"error":{"code":-32602,"message":"no"}}"#);
        kept.answered("1", 0);
        say(&mut kept, &begin(2), 0, 2, 0);
        kept.agree(br#"{"id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#);
        kept.answered("2", 0);
        // The daemon refuses a second session.
        say(&mut kept, &begin(3), 0, 3, 0);
        let line: Value = serde_json::from_slice(&kept.session().unwrap().0).unwrap();
        assert_eq!(line["params"]["try"], 2);
    }

    #[test]
    fn what_is_kept_has_a_cap() {
        let mut kept = Kept::default();
        let long = "x".repeat(LONGEST - 100);
        for id in 0..10 {
            say(&mut kept, &format!(r#"{{"id":{id},"method":"tools/call","x":"{long}"}}"#), 0, id + 1, 0);
        }
        assert!(kept.bytes <= MOST && kept.requests.len() == 10);
        assert_eq!(kept.left(0, 0).answers.len(), 2, "those that were not kept are told so");
        assert_eq!(kept.bytes, 0);
    }
}
