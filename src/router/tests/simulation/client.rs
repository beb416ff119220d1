//! Random clients of both eras, all counting from 0: they call, cancel, answer questions or not, and leave.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::crowd::{mark_of, roots_of};
use super::guarded;
use super::pinned;
use super::server::LATE;
use super::tale::End;
use super::world::World;
use crate::manager::{Asked, Principal};
use crate::protocol::{
    Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::router::{Client, Mailbox, Router};

/// Longer than anything may take.
const BOUND: Duration = Duration::from_secs(300);

/// The response to a request, once it comes.
type Answer = Pin<Box<dyn Future<Output = Option<Outcome>> + Send>>;

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// Takes all it can get, and answers nothing.
    Greedy,
    /// Wants little.
    Modest,
    /// One of the shared server's clients.
    Member,
}

/// Who a client belongs to, and what decides its behavior.
pub(super) struct Character {
    pub(super) principal: Principal,
    pub(super) kind: Kind,
    pub(super) chance: Chance,
}

/// One person at one client.
pub(super) struct Person {
    pub(super) world: Arc<World>,
    pub(super) router: Router,
    pub(super) number: u64,
    pub(super) chance: Chance,
    kind: Kind,
    principal: Principal,
    /// Its capabilities.
    pub(super) can: Profile,
    /// Notified when the shared server is about to ask for the first time.
    pub(super) spark: Arc<Notify>,
    /// The session; `None` since 2026-07-28.
    session: Option<Arc<Client>>,
    ids: AtomicI64,
    /// The number of the next call.
    marks: AtomicI64,
    gone: CancellationToken,
}

impl Person {
    pub(super) fn new(world: &Arc<World>, router: &Router, number: u64) -> Arc<Self> {
        let chance = world.chance_of("client", number);
        let principal = if chance.one_in(4) { Principal::named("other") } else { Principal::local() };
        Self::with(world, router, number, Character { principal, kind: Kind::Plain, chance })
    }

    /// Creates a person of this principal.
    pub(super) fn of(world: &Arc<World>, router: &Router, number: u64, principal: Principal, kind: Kind) -> Arc<Self> {
        let chance = world.chance_of("client", number);
        Self::with(world, router, number, Character { principal, kind, chance })
    }

    fn with(world: &Arc<World>, router: &Router, number: u64, character: Character) -> Arc<Self> {
        let asks = !character.chance.one_in(3) || character.kind == Kind::Greedy;
        let can = if asks { Profile::ELICITATION_FORM } else { Profile::EMPTY };
        Self::able(world, router, number, character, can)
    }

    /// Creates a person with these capabilities.
    pub(super) fn able(
        world: &Arc<World>,
        router: &Router,
        number: u64,
        character: Character,
        can: Profile,
    ) -> Arc<Self> {
        let Character { principal, kind, chance } = character;
        let revision = *chance.pick(&[
            ProtocolVersion::V2024_11_05,
            ProtocolVersion::V2025_06_18,
            ProtocolVersion::V2025_11_25,
            ProtocolVersion::LATEST_MODERN,
            ProtocolVersion::LATEST_MODERN,
        ]);
        // With a session it would be unknown whether they are still there to answer.
        let revision = if kind == Kind::Greedy { ProtocolVersion::LATEST_MODERN } else { revision };
        let session = (!revision.is_modern()).then(|| router.admit(principal.clone(), revision, can, None));
        world.tale.tell(&format!("client {number} is {revision}, {principal:?}, can: {can:?}"));
        world.tale.comes(number, principal.as_str());
        let (world, router) = (world.clone(), router.clone());
        let (ids, marks) = (AtomicI64::new(0), AtomicI64::new(0));
        let (gone, spark) = (CancellationToken::new(), Arc::default());
        Arc::new(Self { world, router, number, chance, kind, principal, can, spark, session, ids, marks, gone })
    }

    /// Runs the client from start to end.
    pub(super) async fn live(self: Arc<Self>) {
        if let Some(session) = self.session.clone() {
            let person = self.clone();
            tokio::spawn(async move {
                let _reader = session.mailbox().read();
                while let Some(message) = session.mailbox().next().await {
                    person.hear(None, message);
                }
            });
        }
        match self.kind {
            Kind::Plain => {}
            Kind::Greedy => return self.grab().await,
            Kind::Modest => return self.ask_little().await,
            Kind::Member => return self.crowd().await,
        }
        let mut deeds = JoinSet::new();
        for deed in 0..2 + self.chance.below(5) {
            self.chance.wait().await;
            let person = self.clone();
            let server = self.chance.pick(&self.world.servers).name.clone();
            let has_rules = !self.world.has_greed();
            match self.chance.below(10) {
                7.. if has_rules => deeds.spawn(async move { person.guarded(deed, server).await }),
                0 => deeds.spawn(async move { person.list().await }),
                1 => deeds.spawn(async move { drop(person.call(Method::PromptsGet, "read", &server, true).await) }),
                _ => {
                    let tool = *self.chance.pick(&["do", "do", "do", "slow", "ask", "ask", "ask", "never", "more"]);
                    deeds.spawn(async move { drop(person.call(Method::ToolsCall, tool, &server, true).await) })
                }
            };
            if self.chance.one_in(25) {
                self.go();
            }
        }
        while let Some(done) = deeds.join_next().await {
            done.unwrap();
        }
    }

    /// Makes one plain call at each server, at the very end: it must succeed. What changes may be withheld.
    pub(super) async fn call_each(self: Arc<Self>, servers: &[String]) {
        for server in servers {
            let mark = self.call(Method::ToolsCall, "do", server, false).await;
            if !self.world.tale.was_answered(&mark) {
                self.world.tale.fault(format!("{server} does not serve at the end"));
            }
            if self.world.has_pins() {
                self.call(Method::ToolsCall, pinned::FICKLE, server, false).await;
            }
        }
    }

    /// Leaves without notice.
    pub(super) fn go(&self) {
        if !self.gone.is_cancelled() {
            self.world.tale.tell(&format!("client {} goes", self.number));
            self.gone.cancel();
            if let Some(session) = &self.session {
                self.router.clients().close(session);
            }
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    pub(super) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(super) fn session(&self) -> Option<&Arc<Client>> {
        self.session.as_ref()
    }

    pub(super) fn client(&self) -> Arc<Client> {
        if let Some(session) = &self.session {
            return session.clone();
        }
        let capabilities = Raw::trusted(self.can.to_capabilities().into());
        self.router.pool().get(self.principal.clone(), &capabilities, None).unwrap()
    }

    fn open(&self, method: Method, params: &Value) -> (RequestId, Arc<Mailbox>, Answer) {
        let id = RequestId::Number(self.ids.fetch_add(1, Ordering::Relaxed));
        let request = Request { id: id.clone(), method, params: Some(Raw::from_value(params)) };
        let client = self.client();
        match self.session {
            Some(_) => {
                let leg = client.leg(self.router.limits());
                let answer = self.router.request(&client, request, &leg);
                (id, leg, Box::pin(answer))
            }
            None => {
                let leg = self.router.modern_leg(Some("debug"));
                let answer = self.router.stateless(&client, request, &leg, &CancellationToken::new());
                (id, leg, answer)
            }
        }
    }

    async fn list(&self) {
        let (_, leg, answer) = self.open(Method::ToolsList, &json!({}));
        let answer = tokio::time::timeout(BOUND, answer);
        tokio::pin!(answer);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut answer => break answer,
                Some(message) = leg.next() => self.hear(None, message),
                () = self.gone.cancelled() => return,
            }
        };
        match answer {
            Ok(Some(Ok(list))) => {
                pinned::check(&self.world, self.number, &list);
                self.world.tale.tell(&format!("client {} has a list", self.number));
            }
            Ok(None) if self.gone.is_cancelled() => {}
            // Sessionless clients of one principal with the same capabilities count as one, which may have too much in
            // flight.
            Ok(Some(Err(error)))
                if self.world.has_greed() && error.message.contains("host.limits.pendingPerClient") => {}
            other => self.world.tale.fault(format!("client {} got for a list: {other:?}", self.number)),
        }
    }

    /// Makes a request, with all rounds of questions, and returns how it ended.
    pub(super) async fn call(&self, method: Method, tool: &str, server: &str, fickle: bool) -> String {
        let mark = format!("{}.{}", self.number, self.marks.fetch_add(1, Ordering::Relaxed));
        self.call_as(mark, method, tool, (server, None), fickle).await
    }

    /// Makes a request under this mark. Its arguments are the mark, or `key`, which others may have as well.
    pub(super) async fn call_as(
        &self,
        mark: String,
        method: Method,
        tool: &str,
        (server, key): (&str, Option<&str>),
        fickle: bool,
    ) -> String {
        self.world.tale.begin(&mark, server, method == Method::ToolsCall && key.is_none());
        let name = format!("{server}__{tool}");
        let mut params = json!({ "name": name, "arguments": { "mark": key.unwrap_or(&mark) } });
        if method == Method::ToolsCall && self.world.searches() && self.world.chance_of(&mark, 1050).one_in(2) {
            params = json!({ "name": "call_tool", "arguments": params });
        }
        let chance = self.world.chance_of(&mark, 1000);
        let takes_back = (fickle && chance.one_in(5)).then(|| Duration::from_millis(chance.below(4000)));
        let takes_back = async {
            match takes_back {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(takes_back);
        let mut taken_back = false;
        loop {
            params["_meta"] = json!({ "progressToken": mark });
            let (id, leg, mut answer) = self.open(method.clone(), &params);
            let mut last = f64::MIN;
            let bound = tokio::time::sleep(BOUND);
            tokio::pin!(bound);
            let outcome = loop {
                tokio::select! {
                    biased;
                    () = self.gone.cancelled(), if self.session.is_none() => {
                        self.world.tale.end(&mark, End::Withdrawn);
                        return mark;
                    }
                    () = &mut takes_back, if !taken_back => {
                        taken_back = true;
                        self.world.tale.tell(&format!("{mark} is taken back"));
                        match &self.session {
                            Some(session) => {
                                let params = Some(Raw::from_value(&json!({ "requestId": id })));
                                self.router.notify(session, Notification { method: Method::Cancelled, params });
                            }
                            None => {
                                self.world.tale.end(&mark, End::Withdrawn);
                                return mark;
                            }
                        }
                    }
                    outcome = &mut answer => break outcome,
                    Some(message) = leg.next() => {
                        self.rises(&mark, &mut last, &message);
                        self.hear(Some(&mark), message);
                    }
                    () = &mut bound => {
                        self.world.tale.tell(&format!("{mark} is given up"));
                        return mark;
                    }
                }
            };
            while let Some(message) = leg.try_next() {
                self.rises(&mark, &mut last, &message);
                self.hear(Some(&mark), message);
            }
            self.world.answered(&mark, leg);
            let Some(outcome) = outcome else {
                if !taken_back && !self.gone.is_cancelled() {
                    self.world.tale.fault(format!("{mark} was cancelled by no one"));
                }
                self.world.tale.end(&mark, End::Withdrawn);
                return mark;
            };
            match self.answers(&mark, &outcome).await {
                Some(Some(next)) => {
                    params["inputResponses"] = next["inputResponses"].clone();
                    params["requestState"] = next["requestState"].clone();
                }
                Some(None) => {
                    self.world.tale.end(&mark, End::Withdrawn);
                    return mark;
                }
                None => {
                    let end = self.world.tale.read(&mark, key, &outcome);
                    // A call that was not sent gives its yes back, so another try may be sent.
                    let is_used = !matches!(end, End::Failed(_, false));
                    self.world.tale.end(&mark, end);
                    if is_used && tool == "guarded" && chance.one_in(2) && params["requestState"].is_string() {
                        // The same yes once more: nothing may come of it, which the tale sees.
                        let (_, _leg, answer) = self.open(method.clone(), &params);
                        drop(tokio::time::timeout(BOUND, answer).await);
                    }
                    return mark;
                }
            }
        }
    }

    /// Returns the answers for the next request of a call that asks by its result: `Some(None)` if this client walks
    /// away, `None` for a call that does not ask.
    async fn answers(&self, mark: &str, outcome: &Outcome) -> Option<Option<Value>> {
        let result: Value = outcome.as_ref().ok()?.read().unwrap();
        if result["resultType"] != "input_required" {
            return None;
        }
        let questions = result["inputRequests"].as_object().unwrap();
        let mut replies = Vec::new();
        for (key, question) in questions {
            let kind = Method::parse(question["method"].as_str().unwrap_or_default());
            self.check_question(Some(mark), &kind, &question["params"]);
            replies.push((key, kind, question["params"].clone()));
        }
        let chance = self.world.chance_of(mark, 1001);
        if chance.one_in(8) || self.kind == Kind::Greedy {
            self.world.tale.tell(&format!("{mark} is walked away from"));
            return Some(None);
        }
        chance.wait().await;
        let responses: Value =
            replies.iter().map(|(key, kind, params)| ((*key).clone(), self.reply(kind, mark, params))).collect();
        replies.iter().for_each(|(key, _, _)| guarded::note(&self.world, mark, &responses[key.as_str()]));
        Some(Some(json!({ "inputResponses": responses, "requestState": result["requestState"] })))
    }

    fn reply(&self, kind: &Method, mark: &str, params: &Value) -> Value {
        if params["message"].as_str().and_then(guarded::asked_about).is_some() {
            return self.permits(mark);
        }
        let word = format!("word of {mark}");
        match (kind, self.world.chance_of(mark, 1002).below(6)) {
            (Method::RootsList, _) => json!({ "roots": [{ "uri": roots_of(&self.world, self.number) }] }),
            (Method::CreateMessage, _) => {
                json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": word } })
            }
            (_, 0) => json!({ "action": "decline" }),
            _ => json!({ "action": "accept", "content": { "word": word } }),
        }
    }

    /// Checks a question, and returns the call that it is about; `None` for roots, which are the same in all calls of a
    /// client.
    fn check_question(&self, call: Option<&str>, kind: &Method, params: &Value) -> Option<String> {
        if !Asked::answerable(self.can).has(Asked::of(kind)) {
            self.world.tale.fault(format!("client {} cannot be asked {kind}: {params}", self.number));
        }
        let Some(of) = mark_of(kind, params) else {
            self.world.tale.tell(&format!("client {} is asked {kind}", self.number));
            return None;
        };
        let mine = of.split('.').next() == Some(&self.number.to_string());
        // Requests of sessionless clients with the same capabilities belong to one client.
        let is_late = of.ends_with(LATE);
        let wrong =
            if is_late { !mine && self.session.is_some() } else { !mine || call.is_some_and(|call| call != of) };
        if wrong {
            self.world.tale.fault(format!("client {} is asked in {call:?} about {of}", self.number));
        }
        self.world.tale.tell(&format!("client {} is asked about {of}", self.number));
        Some(of)
    }

    /// Checks that the progress of a request rises.
    fn rises(&self, mark: &str, last: &mut f64, message: &Message) {
        let Message::Notification(Notification { method: Method::Progress, params: Some(params) }) = message else {
            return;
        };
        let value: f64 = params.member("progress").and_then(|value| value.read().ok()).unwrap_or(f64::MIN);
        if value <= *last {
            self.world.tale.fault(format!("{mark}: progress {params} after {last}"));
        }
        *last = value;
    }

    /// Takes a message that precedes a response, or belongs to none.
    fn hear(&self, call: Option<&str>, message: Message) {
        match message {
            Message::Request(request) => {
                let params: Value = request.params.map_or_else(|| json!({}), |params| params.read().unwrap());
                let of = self.check_question(call, &request.method, &params).unwrap_or_default();
                let chance = self.world.chance_of(&of, 1003);
                let answers = request.method == Method::RootsList || of.ends_with(LATE) || !chance.one_in(10);
                if !answers || self.kind == Kind::Greedy {
                    return;
                }
                let Some(session) = self.session.clone() else {
                    return self.world.tale.fault(format!("client {} is asked by a request", self.number));
                };
                let reply = self.reply(&request.method, &of, &params);
                let (pause, world) = (Duration::from_millis(chance.below(3000)), self.world.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    guarded::note(&world, &of, &reply);
                    let reply = Ok(Raw::from_value(&reply));
                    session.answer(Response { id: Some(request.id), outcome: reply });
                });
            }
            Message::Notification(notice) => {
                let params: Value = notice.params.map_or_else(|| json!({}), |params| params.read().unwrap());
                if params["_meta"]["mcp-host/heartbeat"].is_object() {
                    if params["progressToken"].as_str() != call {
                        self.world.tale.fault(format!("client {} in {call:?}: {params}", self.number));
                    }
                    return self.world.tale.beats();
                }
                let of = match notice.method {
                    Method::Progress => {
                        // A keep-alive of the host itself has no content.
                        if !params["message"].is_null() && params["progressToken"] != params["message"] {
                            self.world.tale.fault(format!("client {}: progress {params}", self.number));
                        }
                        if let (Some(of), Some(step)) = (params["message"].as_str(), params["progress"].as_u64()) {
                            self.world.tale.hears(of, step);
                        }
                        params["message"].as_str()
                    }
                    Method::LogMessage => params["data"].as_str(),
                    _ => None,
                };
                let of = of.map(str::to_owned);
                self.world.tale.tell(&format!("client {} hears {} {of:?}", self.number, notice.method));
                let Some(of) = of else { return };
                // The stream of a request carries only its own messages; outside of requests come only those of the
                // same client.
                let mine = of.split('.').next() == Some(&self.number.to_string());
                if !mine || (notice.method == Method::Progress && call.is_some_and(|call| call != of)) {
                    self.world.tale.fault(format!("client {} hears in {call:?} of {of}", self.number));
                }
            }
            Message::Response(_) => self.world.tale.fault(format!("client {} gets a response", self.number)),
        }
    }
}
