//! Records what happens in a world, in order, and finds violations: joins the ledger of what servers did with what
//! clients were told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use tokio::time::Instant;

use crate::protocol::Outcome;

/// The record of one world.
#[derive(Debug)]
pub(super) struct Tale {
    start: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    hash: u64,
    lines: Vec<String>,
    /// How often each mark was executed.
    done: BTreeMap<String, usize>,
    /// The progress of each mark, as sent by its server, and as heard by its client.
    steps: BTreeMap<String, [Vec<u64>; 2]>,
    /// The outcome of each call.
    calls: BTreeMap<String, Call>,
    /// Each client's principal.
    principals: BTreeMap<u64, String>,
    /// The principal of each server life that may serve only one.
    served: BTreeMap<String, String>,
    faults: Vec<String>,
    beats: u64,
    /// The calls to which somebody said yes.
    allowed: BTreeSet<String>,
    /// How often a server looked something up, for how many calls, and how many got a kept answer.
    looks: [u64; 3],
    /// Calls over a rate.
    limited: u64,
    /// How often the host closed a server that it stops while nobody uses it.
    stops: u64,
    /// The servers whose changed form a person approved.
    approved: BTreeSet<String>,
    /// Calls that were withheld until a person approves, and calls of what a person approved.
    withheld: [u64; 2],
}

/// One request of a client.
#[derive(Clone, Debug)]
struct Call {
    server: String,
    /// Whether it has an effect that must not happen twice.
    acts: bool,
    end: Option<End>,
}

/// How a request ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With a response of the server.
    Answered,
    /// With an error of the host: its kind, and whether the request was sent.
    Failed(String, bool),
    /// Refused before any server got it.
    Refused,
    /// With another answer of the host: a refused question, an expired state.
    Other,
    /// The client cancelled it, or left.
    Withdrawn,
}

impl Tale {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), inner: Mutex::default() }
    }

    pub(super) fn tell(&self, text: &str) {
        let at = self.start.elapsed().as_millis();
        let mut inner = self.lock();
        let hash = format!("{at} {text}")
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        // Events of one moment may be reordered: see the module docs.
        inner.hash = inner.hash.wrapping_add(hash);
        let at = self.start.elapsed().as_secs_f64();
        inner.lines.push(format!("{at:>9.3}  {text}"));
    }

    /// Counts a heartbeat that a client got.
    pub(super) fn beats(&self) {
        self.lock().beats += 1;
    }

    /// Returns how many heartbeats clients got.
    pub(super) fn beats_so_far(&self) -> u64 {
        self.lock().beats
    }

    pub(super) fn fault(&self, text: String) {
        self.tell(&format!("FAULT {text}"));
        self.lock().faults.push(text);
    }

    /// Records a client and its principal.
    pub(super) fn comes(&self, number: u64, principal: &str) {
        self.lock().principals.insert(number, principal.to_owned());
    }

    /// Records that a life of a server with sessions works for the client of this mark.
    pub(super) fn serves(&self, life: &str, mark: &str) {
        let number = mark.split('.').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
        let mut inner = self.lock();
        let principal = inner.principals.get(&number).cloned().unwrap_or_default();
        let before = inner.served.entry(life.to_owned()).or_insert_with(|| principal.clone()).clone();
        drop(inner);
        if before != principal {
            self.fault(format!("{life} serves {mark} of {principal:?}, and is of {before:?}"));
        }
    }

    /// Records that a server executed the mark.
    pub(super) fn done(&self, mark: &str, server: &str) {
        self.tell(&format!("{server} does {mark}"));
        let mut inner = self.lock();
        *inner.done.entry(mark.to_owned()).or_default() += 1;
        let at = inner.calls.get(mark).map(|call| call.server.clone());
        drop(inner);
        if at.as_deref() != Some(server) {
            self.fault(format!("{server} was asked for {mark}, which is for {at:?}"));
        }
    }

    /// Records progress that a server sent for the mark.
    pub(super) fn says(&self, mark: &str, step: u64) {
        self.lock().steps.entry(mark.to_owned()).or_default()[0].push(step);
    }

    /// Records progress that a client heard for the mark.
    pub(super) fn hears(&self, mark: &str, step: u64) {
        self.lock().steps.entry(mark.to_owned()).or_default()[1].push(step);
    }

    pub(super) fn begin(&self, mark: &str, server: &str, acts: bool) {
        self.tell(&format!("{mark} begins at {server}"));
        self.lock().calls.insert(mark.to_owned(), Call { server: server.to_owned(), acts, end: None });
    }

    pub(super) fn end(&self, mark: &str, end: End) {
        self.tell(&format!("{mark} ends: {end:?}"));
        let before = self.lock().calls.get_mut(mark).and_then(|call| call.end.replace(end));
        if before.is_some() {
            self.fault(format!("{mark} ended twice"));
        }
    }

    /// Records that somebody says yes to a call.
    pub(super) fn allows(&self, mark: &str) {
        self.lock().allowed.insert(mark.to_owned());
    }

    /// Records that a server got a call that somebody has to say yes to.
    pub(super) fn needs_yes(&self, mark: &str) {
        if !self.lock().allowed.contains(mark) {
            self.fault(format!("{mark} was sent before a yes"));
        }
    }

    /// Records that a server looks something up, which may be for several calls.
    pub(super) fn looks(&self, what: &str) {
        self.tell(&format!("looks up {what}"));
        self.lock().looks[0] += 1;
    }

    /// Counts that the host closed a server that it stops while nobody uses it.
    pub(super) fn stops(&self) {
        self.lock().stops += 1;
    }

    /// Records that a person approves the changed form of a server.
    pub(super) fn approves(&self, server: &str) {
        self.tell(&format!("a person approves what {server} lists"));
        self.lock().approved.insert(server.to_owned());
    }

    /// Reports whether a person approved the changed form of a server, as a call or a list is about to show.
    pub(super) fn has_approved(&self, server: &str) -> bool {
        let mut inner = self.lock();
        let is_approved = inner.approved.contains(server);
        inner.withheld[1] += u64::from(is_approved);
        is_approved
    }

    /// Returns how many calls got a kept answer, joined another one, were over a rate, and were allowed by a person; how
    /// often the host closed a server that it stops while nobody uses it; and how many calls were withheld, and how often
    /// what a person approved was seen or called.
    pub(super) fn met(&self) -> [u64; 7] {
        let inner = self.lock();
        let ([sent, calls, kept], [withheld, approved]) = (inner.looks, inner.withheld);
        let joined = calls.saturating_sub(sent + kept);
        [kept, joined, inner.limited, inner.allowed.len() as u64, inner.stops, withheld, approved]
    }

    /// Reads the answer to a look-up: it must be that of this server and this question, and, where a life of the server
    /// is of one principal, of this one.
    fn read_look(&self, mark: &str, (server, key): (&str, &str), result: &Value) -> End {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let parts: Vec<&str> = text.split('|').collect();
        let number = mark.split('.').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
        let mut inner = self.lock();
        inner.looks[1] += 1;
        inner.looks[2] += u64::from(result["_meta"]["mcp-host/cache"].is_object());
        let is_its = parts
            .get(2)
            .and_then(|life| inner.served.get(*life))
            .is_none_or(|owner| inner.principals.get(&number).is_some_and(|principal| principal == owner));
        drop(inner);
        if parts.len() != 3 || parts[0] != key || parts[1] != server || !is_its {
            self.fault(format!("{mark} asked {server} for {key} and got {text:?}"));
            return End::Other;
        }
        End::Answered
    }

    /// Reads a response; its content must belong to this call, or be about `key`.
    pub(super) fn read(&self, mark: &str, key: Option<&str>, outcome: &Outcome) -> End {
        let server = self.lock().calls.get(mark).map(|call| call.server.clone()).unwrap_or_default();
        let result: Value = match outcome {
            Ok(result) => result.read().unwrap(),
            Err(error) => {
                if let Some(data) = error.data.as_ref().filter(|data| data.text("kind").is_some()) {
                    let sent = data.member("sent").is_some_and(|sent| sent.as_bytes() == b"true");
                    return End::Failed(data.text("kind").unwrap_or_default(), sent);
                }
                return match error.message.split_once(' ') {
                    Some(("unknown", _)) => End::Refused,
                    Some(("mark", of)) if of == mark => End::Answered,
                    Some(("mark", _)) => {
                        self.fault(format!("{mark} got the error of another: {}", error.message));
                        End::Other
                    }
                    _ => End::Other,
                };
            }
        };
        let own = &result["_meta"]["mcp-host/error"];
        if own.is_object() {
            // A client may have too many requests in flight, across servers.
            let of_host = own["server"].is_null() && (own["kind"] == "overloaded" || own["kind"] == "rate_limited");
            if own["server"] != server.as_str() && !of_host {
                self.fault(format!("{mark} got an error of {}", own["server"]));
            }
            self.lock().limited += u64::from(own["kind"] == "rate_limited");
            self.lock().withheld[0] += u64::from(own["kind"] == "needs_approval");
            return End::Failed(own["kind"].as_str().unwrap_or_default().to_owned(), own["sent"] == true);
        }
        if let Some(key) = key {
            return self.read_look(mark, (&server, key), &result);
        }
        let text = result["content"][0]["text"].as_str().or(result["messages"][0]["content"]["text"].as_str());
        let Some(text) = text else { return End::Other };
        let mut parts = text.split('|');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(of), Some(at), reply) if of == mark && at == server => {
                if let Some(reply) =
                    reply.filter(|reply| reply.starts_with("word") && *reply != format!("word of {mark}"))
                {
                    self.fault(format!("{mark} was given the answer {reply:?}"));
                }
                End::Answered
            }
            (Some(_), Some(_), _) => {
                self.fault(format!("{mark} at {server} got the answer of another: {text}"));
                End::Other
            }
            _ => End::Other,
        }
    }

    /// Joins what clients were told with what was executed, and returns every violation.
    pub(super) fn judge(&self) -> Vec<String> {
        let (calls, done, steps) = {
            let inner = self.lock();
            (inner.calls.clone(), inner.done.clone(), inner.steps.clone())
        };
        for (mark, call) in calls {
            let count = done.get(&mark).copied().unwrap_or_default();
            let wrong = match &call.end {
                None => Some("has no answer".to_owned()),
                _ if call.acts && count > 1 => Some(format!("was done {count} times")),
                Some(End::Answered) if call.acts && count == 0 => Some("was answered but not executed".to_owned()),
                Some(End::Refused) if count > 0 => Some("was refused and done".to_owned()),
                // Each once, in order, and before the response.
                Some(End::Answered) if steps.get(&mark).is_some_and(|[said, heard]| said != heard) => {
                    Some(format!("was so far, as said and as heard: {:?}", steps[&mark]))
                }
                Some(End::Failed(kind, sent)) => {
                    let known = match kind.as_str() {
                        "outcome_unknown" | "timeout" | "malformed" => *sent,
                        "unavailable" | "overloaded" | "rate_limited" | "denied" | "needs_approval" => !*sent,
                        _ => false,
                    };
                    if !known {
                        Some(format!("ended with {kind:?}, sent: {sent}"))
                    } else {
                        (!*sent && call.acts && count > 0)
                            .then(|| format!("was done, and told not to be sent ({kind})"))
                    }
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                self.fault(format!("{mark} {wrong}"));
            }
        }
        self.lock().faults.clone()
    }

    pub(super) fn end_of(&self, mark: &str) -> Option<End> {
        self.lock().calls.get(mark)?.end.clone()
    }

    pub(super) fn was_answered(&self, mark: &str) -> bool {
        self.lock().calls.get(mark).is_some_and(|call| call.end == Some(End::Answered))
    }

    /// Returns a hash of all that happened, and when; and the number of events.
    pub(super) fn hash(&self) -> (u64, usize) {
        let inner = self.lock();
        (inner.hash, inner.lines.len())
    }

    pub(super) fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().lines)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}
