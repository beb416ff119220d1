//! Decides which calls get a cached answer (`cache` of a tool, `host.cache.reads`), and which answers are cached for
//! the next equal request.
//!
//! In: a call on its way to its server. Out: a cached answer with its age, or the server's. Requests are equal if they
//! send the same to the same tool of the same server, over one lease and for one principal; what only this hop reads
//! (progress tokens, traces) does not count. `manager/answers.rs` holds the answers, `shared.rs` asks the server.
//!
//! **Invariants:** only a complete answer without an error is cached, and none that came through a question, a task, or
//! a `requestState`. The key is made of exactly what the server reads, so arguments that JSON parsers may read
//! differently are refused (`doubled.rs`, `docs/hazards.md` H37).

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Mailbox;
use super::answer::{self, Failure, MOST};
use super::beating::beating;
use super::call::Forwarder;
use super::changed::changed;
use super::client::Client;
use super::forward::Forward;
use super::heard::Said;
use super::heart::Wait;
use super::own::said;
use super::plan::Plan;
use super::toward::Toward;
use crate::answered::{Answered, FieldError, NoResult};
use crate::config::{Sharing, ToolRules};
use crate::counts::Count;
use crate::doubled;
use crate::keep;
use crate::manager::{AnswerKey, Kept, Manager, Ticket, Writes};
use crate::protocol::{Method, Raw, meta, object};
use crate::registry::{Entry, Kind, Pin};
use crate::upstream::{Cache, Connection, Upstream};

/// How the answer to a call may be cached: under which keys, and for how long.
#[derive(Debug)]
pub(super) struct Wish {
    /// The key for this principal.
    pub(super) key: AnswerKey,
    /// The key for all principals, if the server does not distinguish them (`sharing`).
    for_all: Option<AnswerKey>,
    time: Duration,
    /// The size of the largest answer that is cached, in bytes.
    size: usize,
    /// The epoch of the connection that the request uses. It changes with the connection and with each change of a
    /// list.
    epoch: (u64, u64),
    writes: Writes,
}

/// The longest time that an answer is cached, whatever its server says.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Params of more bytes are read on a thread that may block.
const LARGE: usize = 16 * 1024;

impl Forwarder {
    /// Serves a call while caching is on.
    pub(super) async fn kept(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        ticket: Option<Ticket>,
    ) -> Answered {
        let (server, answers) = (&forward.server, self.manager.answers());
        let leg = match toward {
            Toward::Leg(leg) => leg.mailbox().clone(),
            Toward::Parked(_) => return self.run(client, forward, toward, (ticket, None)).await,
        };
        let writes = is_writing(forward);
        // A user who turns caching on for a tool says that a call of the tool does not change its answers.
        let own = || writes.then(|| answers.writing(server.id, Some(Arc::from(&*forward.target))));
        let Some(time) = time(&self.manager, client, forward) else {
            let writing = writes.then(|| answers.writing(server.id, None));
            return self.run(client, forward, toward, (ticket, writing)).await;
        };
        let connecting = self.connector.connect(client, server, forward.roots.as_ref());
        let (upstream, connection) = match beating(toward, forward, Wait::Server, pin!(connecting)).await {
            Ok(reached) => reached,
            // The client may be invited to sign in.
            #[cfg(feature = "server")]
            Err(failure) if failure.wants_sign_in().is_some() => {
                return self.run(client, forward, toward, (ticket, own())).await;
            }
            Err(failure) => return Err(failure.of(server)),
        };
        if changed(forward, &upstream).is_some() {
            return self.run(client, forward, toward, (ticket, own())).await;
        }
        let wish = self.wish(client, forward, &leg, (&upstream, &connection), time).await?;
        let is_anew = forward.meta.as_ref().and_then(|own| own.text(meta::CACHE)).is_some_and(|word| word == "bypass");
        // A server without sessions says itself how long its resources are fresh.
        let age = if wish.key.is_read && connection.is_modern() { LONGEST } else { time };
        let found = wish.keys().find_map(|key| answers.find(key, wish.epoch, age)).filter(|_| !is_anew);
        if let Some((Kept { version, result, .. }, age)) = found {
            leg.was_kept();
            server.counts().one(Count::CacheHit);
            let answered = self.finish.adapted(client, forward, version, Ok(result));
            return answered.map(|result| aged(&result, &forward.method, age));
        }
        self.share(client, (forward, writes), toward, (wish, !is_anew), ticket).await
    }

    /// Makes the keys of a call whose answer may be cached.
    ///
    /// # Errors
    /// When JSON parsers may read its arguments differently.
    async fn wish(
        &self,
        client: &Client,
        forward: &Forward,
        leg: &Mailbox,
        (upstream, connection): (&Upstream, &Connection),
        time: Duration,
    ) -> Result<Wish, NoResult> {
        let server = &forward.server;
        let mut asking = Asking {
            params: forward.params.clone(),
            meta: forward.meta.clone(),
            entry: forward.listed.entry().filter(|_| forward.method == Method::ToolsCall).cloned(),
            definition: upstream.offer().and_then(|offer| offer.definition(Kind::Tools, &forward.target).cloned()),
            told: None,
        };
        if connection.is_modern() {
            // Each request tells the server what its client can do.
            let terms = client.terms(leg);
            asking.told = Some(format!("{:?}{:?}", server.declared(&client.who), terms.extensions));
        }
        let hashed = if asking.params.as_bytes().len() > LARGE {
            keep::done(move || asking.hash()).await
        } else {
            asking.hash()
        };
        let asked = hashed.map_err(|errors| {
            let said = answer::said(&errors);
            Failure::invalid_arguments(&forward.target, errors, &said).of(server)
        })?;
        let key = AnswerKey {
            server: server.id,
            lease: upstream.id,
            principal: Some(client.principal().clone()),
            target: Arc::from(&*forward.target),
            is_read: forward.method == Method::ResourcesRead,
            asked,
        };
        let shares = server.config.sharing == Sharing::Host;
        let for_all = shares.then(|| AnswerKey { principal: None, ..key.clone() });
        let (size, epoch) = (self.manager.settings().cache.entry, connection.epoch());
        let writes = self.manager.answers().writes(server.id, &forward.target);
        Ok(Wish { key, for_all, time, size, epoch, writes })
    }
}

impl Wish {
    fn keys(&self) -> impl Iterator<Item = &AnswerKey> {
        std::iter::once(&self.key).chain(&self.for_all)
    }

    /// Caches the server's answer if that is allowed.
    pub(super) fn keep(self, manager: &Manager, said: &Said) {
        let Ok(result) = &said.outcome else { return };
        let is_same = said.lease == self.key.lease && said.epoch == self.epoch;
        if !is_same || !is_whole(result) || result.as_bytes().len() > self.size {
            return;
        }
        let (mut time, mut key) = (self.time, self.for_all.unwrap_or_else(|| self.key.clone()));
        if self.key.is_read && said.version.is_modern() {
            let Cache { ttl, public } = Cache::of(result);
            time = ttl.min(LONGEST);
            if !public {
                key = self.key;
            }
        }
        if !time.is_zero() {
            // The cached result must not keep the whole message in memory.
            let kept = Kept { version: said.version, result: result.detached(), epoch: said.epoch };
            manager.answers().keep(key, kept, time, self.writes);
        }
    }
}

/// Returns for how long the answer to a call may be cached; `None` if it may not be.
fn time(manager: &Manager, client: &Client, forward: &Forward) -> Option<Duration> {
    if forward.answers || forward.task != Plan::Theirs {
        return None;
    }
    let (time, is_exact) = match &forward.method {
        Method::ToolsCall => {
            forward.listed.entry()?;
            let (time, is_exact) = said(manager, client, forward, ToolRules::cache_of)?.value();
            // The author of a glob may not know all tools that it matches, so a glob applies only to tools that only
            // read.
            (time, is_exact || forward.only_reads())
        }
        Method::ResourcesRead => (manager.settings().cache.reads, true),
        _ => return None,
    };
    (!time.is_zero() && is_exact).then_some(time)
}

/// Reports whether a call may change what its server answers.
fn is_writing(forward: &Forward) -> bool {
    forward.method == Method::ToolsCall && !forward.only_reads()
}

/// Reports whether a result is complete, and no error.
fn is_whole(result: &Raw) -> bool {
    let [is_error, kind, task, state, requests] =
        result.members(["isError", "resultType", "task", "requestState", "inputRequests"]);
    is_error.is_none_or(|flag| flag.as_bytes() == b"false")
        && kind.is_none_or(|kind| kind.as_bytes() == br#""complete""#)
        && [task, state, requests].iter().all(Option::is_none)
}

/// Returns a cached result as its client gets it, with its age.
fn aged(result: &Raw, method: &Method, age: Duration) -> Raw {
    let [own, ttl] = result.members(["_meta", "ttlMs"]);
    let own = own.filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    let mark = format!(r#"{{"ageMs":{}}}"#, age.as_millis());
    let aged = result.with_member("_meta", own.with_member(meta::CACHE, mark.as_bytes()).as_bytes());
    // The lifetime that the server gave began when the server answered.
    let ttl = ttl.filter(|_| *method == Method::ResourcesRead).and_then(|ttl| ttl.read::<u64>().ok());
    let left = ttl.map(|ttl| ttl.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    left.map_or(aged.clone(), |left| aged.with_member("ttlMs", left.to_string().as_bytes()))
}

/// What a request sends to its server, and what affects how the server reads it.
struct Asking {
    params: Raw,
    meta: Option<Raw>,
    /// The tool as it is listed.
    entry: Option<Entry>,
    /// The tool as the server defines it now.
    definition: Option<Raw>,
    /// What the server learns of the client with the request.
    told: Option<String>,
}

impl Asking {
    /// Hashes all of it. Two spellings of the same JSON have one hash.
    ///
    /// # Errors
    /// With the keys that JSON parsers may read differently.
    fn hash(&self) -> Result<[u8; 32], Vec<FieldError>> {
        let mut hash = Sha256::new();
        let mut add = |name: &str, value: &str| {
            for text in [name, value] {
                hash.update(text.len().to_be_bytes());
                hash.update(text);
            }
        };
        if let Some(entry) = &self.entry {
            let arguments = self.params.member("arguments").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
            // If the config edits the arguments, they were checked during the edit, and have other names by now.
            let names = if entry.edit().is_none() { entry.argument_names() } else { BTreeSet::new() };
            let mut errors = Vec::new();
            doubled::find(arguments.as_value(), &names, MOST, &mut errors);
            if !errors.is_empty() {
                return Err(errors);
            }
            add("arguments", &Pin::of(&arguments, &[]).to_string());
            if let Some(definition) = &self.definition {
                add("definition", &Pin::of(definition, &[]).to_string());
            }
        }
        let is_other = |name: &str| match name {
            "name" | "uri" | "_meta" => false,
            "arguments" => self.entry.is_none(),
            _ => true,
        };
        others(&self.params, is_other, |name, value| add(&format!("params {name}"), &value));
        if let Some(own) = &self.meta {
            others(own, is_sent, |name, value| add(&format!("_meta {name}"), &value));
        }
        if let Some(told) = &self.told {
            add("told", told);
        }
        Ok(hash.finalize().into())
    }
}

/// Calls `add` for each member of an object whose name matches, in the order of their names.
fn others(of: &Raw, is: impl Fn(&str) -> bool, mut add: impl FnMut(&str, String)) {
    let mut members = object(of.as_value()).unwrap_or_default();
    members.retain(|(name, _)| is(name));
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (name, value) in members {
        add(&name, Pin::of(&Raw::part(of.bytes(), value), &[]).to_string());
    }
}

/// Reports whether the server gets this member of the request's `_meta`, and might answer differently because of it.
fn is_sent(name: &str) -> bool {
    let is_hops = matches!(name, "progressToken" | "traceparent" | "tracestate" | "baggage");
    !is_hops && !name.starts_with(meta::OURS) && (!name.starts_with(meta::PREFIX) || name == meta::RELATED_TASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::trusted(text.to_owned().into())
    }

    fn hash(params: &str) -> [u8; 32] {
        let params = raw(params);
        let meta = params.member("_meta");
        Asking { params, meta, entry: None, definition: None, told: None }.hash().unwrap()
    }

    #[test]
    fn what_a_server_reads_alike_has_one_hash() {
        let first = hash(r#"{"uri":"a","x":{"b":1.0,"c":"é"},"_meta":{"com.example/t":1,"progressToken":1}}"#);
        assert_eq!(
            first,
            hash(
                r#"{"_meta":{"com.example/t":1,"traceparent":"00-1","mcp-host/cache":"bypass"},"x":{"c":"\u00e9","b":1},"uri":"a"}"#
            )
        );
        for other in [
            r#"{"uri":"a","x":{"b":1.5,"c":"é"},"_meta":{"com.example/t":1}}"#,
            r#"{"uri":"a","x":{"b":1,"c":"é"},"_meta":{"com.example/t":2}}"#,
            r#"{"uri":"a","x":{"b":1,"c":"é"},"y":1,"_meta":{"com.example/t":1}}"#,
            r#"{"uri":"a","_meta":{"com.example/t":1}}"#,
        ] {
            assert_ne!(first, hash(other), "{other}");
        }
    }

    #[test]
    fn only_a_whole_answer_is_kept() {
        for whole in [r#"{"content":[]}"#, r#"{"content":[],"isError":false}"#, r#"{"resultType":"complete"}"#] {
            assert!(is_whole(&raw(whole)), "{whole}");
        }
        for other in [
            r#"{"content":[],"isError":true}"#,
            r#"{"content":[],"isError":"no"}"#,
            r#"{"resultType":"input_required","inputRequests":{}}"#,
            r#"{"resultType":"task","taskId":"t"}"#,
            r#"{"task":{"taskId":"t"}}"#,
            r#"{"content":[],"requestState":"s"}"#,
        ] {
            assert!(!is_whole(&raw(other)), "{other}");
        }
    }

    #[test]
    fn an_answer_says_how_old_it_is_and_how_long_it_is_still_good() {
        let age = Duration::from_millis(1500);
        let read = raw(r#"{"contents":[],"ttlMs":2000,"_meta":{"k":1}}"#);
        assert_eq!(
            aged(&read, &Method::ResourcesRead, age).as_str(),
            r#"{"contents":[],"ttlMs":500,"_meta":{"k":1,"mcp-host/cache":{"ageMs":1500}}}"#
        );
        assert_eq!(
            aged(&raw(r#"{"content":[],"ttlMs":2000}"#), &Method::ToolsCall, age).as_str(),
            r#"{"content":[],"ttlMs":2000,"_meta":{"mcp-host/cache":{"ageMs":1500}}}"#
        );
    }
}
