//! Scripted, random servers: they keep a ledger, answer late, twice, and to nothing, ask, and die at any moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::crowd::{self, Turn, question, roots_of};
use super::pinned;
use super::world::World;
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
    meta,
};
use crate::transport::{self, MemoryMessage, Wire};

/// One server of a world.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) name: String,
    pub(super) revision: ProtocolVersion,
    /// Whether it announces changed lists.
    pub(super) tells: bool,
    /// Whether it hides during which call it asks, like one behind a pipe: such calls have their own leases.
    pub(super) mute: bool,
    /// The revision of every second life.
    pub(super) turns: Option<ProtocolVersion>,
    /// Whether all clients share one life.
    pub(super) for_all: bool,
    /// Whether the host stops it while nobody uses it.
    pub(super) idles: bool,
}

/// One life of a server, as a lease sees it.
pub(super) struct Life {
    world: Arc<World>,
    pub(super) shape: Shape,
    number: u64,
    /// For everything but calls, which have their own.
    chance: Chance,
    out: mpsc::Sender<MemoryMessage>,
    refuses: transport::Refusal,
    asked: Mutex<BTreeMap<i64, oneshot::Sender<Outcome>>>,
    running: Mutex<BTreeMap<RequestId, CancellationToken>>,
    listens: Mutex<Vec<u64>>,
    count: AtomicU64,
    /// The capabilities declared to it.
    declared: OnceLock<Profile>,
    /// Whether it has one more tool.
    grown: AtomicBool,
    /// Whether it lists another form of a tool than its first life.
    is_evil: bool,
    dead: CancellationToken,
}

impl Life {
    /// Begins a life; it ends with its wire, or by chance.
    pub(super) fn begin(
        world: &Arc<World>,
        shape: &Shape,
        number: u64,
        wire: Wire,
    ) -> impl Future<Output = ()> + use<> {
        let mut shape = shape.clone();
        if let Some(other) = shape.turns.filter(|_| number % 2 == 1) {
            shape.revision = other;
        }
        wire.mute.store(shape.mute, Ordering::Relaxed);
        let life = Arc::new(Self {
            world: world.clone(),
            shape: shape.clone(),
            number,
            chance: world.chance_of(&shape.name, number),
            out: wire.out,
            refuses: wire.refusal,
            asked: Mutex::default(),
            running: Mutex::default(),
            listens: Mutex::default(),
            count: AtomicU64::new(0),
            declared: OnceLock::new(),
            grown: AtomicBool::new(false),
            is_evil: shape.name != crowd::NAME && pinned::is_evil(world, &shape.name, number),
            dead: CancellationToken::new(),
        });
        world.tale.tell(&format!("{} begins life {number}, of {}", shape.name, shape.revision));
        world.crowd.begins(&life);
        life.live(wire.input)
    }

    async fn live(self: Arc<Self>, mut input: mpsc::Receiver<Message>) {
        let span = if self.chance.one_in(3) { self.chance.below(30_000) } else { u64::MAX };
        let end = async {
            if span == u64::MAX {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(span)).await;
        };
        tokio::pin!(end);
        let mut over = false;
        loop {
            tokio::select! {
                biased;
                () = self.dead.cancelled() => break,
                () = &mut end, if !over => {
                    over = true;
                    match self.chance.below(3) {
                        0 => self.forget(),
                        _ => _ = self.die(),
                    }
                }
                message = input.recv() => match message {
                    Some(message) => self.hear(message),
                    None => {
                        if self.shape.idles {
                            self.world.tale.stops();
                        }
                        break;
                    }
                }
            }
        }
        self.world.tale.tell(&format!("{} is gone", self.shape.name));
        self.dead.cancel();
    }

    fn is_shared(&self) -> bool {
        self.shape.name == crowd::NAME
    }

    fn is_steady(&self) -> bool {
        self.is_shared() && self.world.crowd.is_steady()
    }

    /// Returns its questions without an answer, if it lives.
    pub(super) fn unanswered(&self) -> Vec<i64> {
        // A life that forgot its session hears nothing any more.
        let is_over = self.dead.is_cancelled() || self.refuses.load().is_some();
        if is_over { Vec::new() } else { self.asked.lock().unwrap().keys().copied().collect() }
    }

    /// Ends at once, unless the world had enough harm.
    fn die(&self) -> bool {
        let dies = !self.is_steady() && self.world.may_harm();
        if dies {
            self.world.tale.tell(&format!("{} dies", self.shape.name));
            self.dead.cancel();
        }
        dies
    }

    /// Forgets the host: refuses everything from now on.
    fn forget(&self) {
        if !self.is_steady() && self.world.may_harm() {
            self.world.tale.tell(&format!("{} forgets its session", self.shape.name));
            let error = if self.chance.one_in(2) {
                transport::Error::SessionEnded
            } else {
                transport::Error::Unreachable { origin: "there".to_owned(), reason: "refused".to_owned() }
            };
            self.refuses.store(Some(Arc::new(error)));
        }
    }

    fn hear(self: &Arc<Self>, message: Message) {
        let life = self.clone();
        let work = async move {
            let calls = matches!(&message, Message::Request(request) if matches!(request.method, Method::ToolsCall | Method::PromptsGet));
            if !calls && !life.is_steady() {
                life.world.wait(&life.chance).await;
            }
            match message {
                Message::Request(request) => life.take(request).await,
                Message::Response(Response { id: Some(RequestId::Number(id)), outcome }) => {
                    match life.asked.lock().unwrap().remove(&id) {
                        Some(asked) => drop(asked.send(outcome)),
                        None => {
                            life.world.tale.fault(format!("{} has two answers to its question {id}", life.shape.name))
                        }
                    }
                }
                Message::Notification(notice) if notice.method == Method::Cancelled => {
                    let id = notice.params.and_then(|params| params.member("requestId")?.read::<RequestId>().ok());
                    let running = id.and_then(|id| life.running.lock().unwrap().remove(&id));
                    if let Some(running) = running {
                        running.cancel();
                    }
                }
                _ => {}
            }
        };
        let dead = self.dead.clone();
        tokio::spawn(async move { dead.run_until_cancelled(work).await });
    }

    async fn take(self: &Arc<Self>, request: Request) {
        let Request { id, method, params } = request;
        let params: Value = params.map_or_else(|| json!({}), |params| params.read().unwrap());
        let modern = self.shape.revision.is_modern();
        let starts = matches!(method, Method::Initialize | Method::Discover);
        if starts && self.chance.one_in(12) {
            self.die();
        }
        if starts && self.chance.one_in(16) && !self.is_steady() && self.world.may_harm() {
            return self.world.tale.tell(&format!("{} says nothing to {method}", self.shape.name));
        }
        let changes = json!({ "listChanged": self.shape.tells });
        let capabilities = json!({ "tools": changes, "prompts": {}, "logging": {} });
        let result = match method {
            Method::Initialize if modern => {
                let data = Raw::from_value(&json!({ "supported": [self.shape.revision.as_str()] }));
                return self.answer(&id, Err(ErrorObject::new(-32022, "another revision").with_data(data))).await;
            }
            Method::Initialize => {
                let declared = Raw::from_value(&params["capabilities"]);
                let _ = self.declared.set(Profile::from_capabilities(declared.as_value()));
                json!({ "protocolVersion": self.shape.revision.as_str(),
                    "capabilities": capabilities, "serverInfo": { "name": self.shape.name, "version": "1" } })
            }
            Method::Discover if modern => json!({ "resultType": "complete",
                "supportedVersions": [self.shape.revision.as_str()], "capabilities": capabilities }),
            Method::Ping | Method::SetLevel => json!({}),
            Method::ToolsList => self.tools(),
            Method::PromptsList => json!({ "prompts": [{ "name": "read" }], "ttlMs": 3_600_000 }),
            Method::Listen => return self.listen(&id).await,
            Method::ToolsCall if params["name"] == "look" => return self.look(&id, &params).await,
            Method::ToolsCall | Method::PromptsGet => return self.serve(id, method, params).await,
            _ => return self.answer(&id, Err(ErrorObject::method_not_found(method.as_str()))).await,
        };
        self.answer(&id, Ok(Raw::from_value(&result))).await;
    }

    fn tools(&self) -> Value {
        let names = ["do", "slow", "ask", "never", "guarded", "witnessed", "look", pinned::FICKLE, "more"];
        let shown = if self.grown.load(Ordering::Relaxed) { 9 } else { 8 };
        let tool = |name: &&str| {
            let reads = *name == "look";
            let mut tool =
                json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": reads } });
            if *name == pinned::FICKLE {
                tool["description"] = pinned::description(self.is_evil).into();
            }
            tool
        };
        let tools: Vec<Value> = names[..shown].iter().map(tool).collect();
        json!({ "tools": tools, "ttlMs": 3_600_000 })
    }

    async fn listen(&self, id: &RequestId) {
        let RequestId::Number(number) = id else { return };
        let number = u64::try_from(*number).unwrap();
        let params =
            json!({ "notifications": { "toolsListChanged": true }, "_meta": { meta::SUBSCRIPTION_ID: number } });
        self.notify(Some(number), Method::Acknowledged, &params).await;
        self.listens.lock().unwrap().push(number);
    }

    /// Answers a call that has no effect, and whose answer may be for others as well.
    async fn look(self: &Arc<Self>, id: &RequestId, params: &Value) {
        let key = params["arguments"]["mark"].as_str().unwrap();
        let life = format!("{}/{}", self.shape.name, self.number);
        self.world.tale.looks(&format!("{key} at {life}"));
        let chance = self.world.chance_of(&format!("{life}{key}"), 0);
        for step in 1..=chance.below(4) {
            let told = json!({ "progressToken": params["_meta"]["progressToken"], "progress": step });
            self.notify(during(id), Method::Progress, &told).await;
            self.world.wait(&chance).await;
        }
        if chance.one_in(40) && self.die() {
            return self.world.wait(&chance).await;
        }
        let text = format!("{key}|{}|{life}", self.shape.name);
        self.answer(id, Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))).await;
    }

    /// Serves a call, which has an effect, or a prompt, which has none.
    async fn serve(self: &Arc<Self>, id: RequestId, method: Method, params: Value) {
        let mark = params["arguments"]["mark"].as_str().unwrap().to_owned();
        if !self.shape.for_all && !self.shape.revision.is_modern() {
            self.world.tale.serves(&format!("{}/{}", self.shape.name, self.number), &mark);
        }
        let chance = &self.world.chance_of(&mark, self.number);
        if self.is_evil && params["name"] == pinned::FICKLE {
            pinned::serves(&self.world, &self.shape.name, &mark);
        }
        if self.is_shared() {
            self.world.crowd.serves(&mark, self.number);
        }
        self.world.wait(chance).await;
        let (turn, is_first) = self.turn(params["name"].as_str().unwrap(), chance);
        if chance.one_in(40) && self.die() {
            return self.world.wait(chance).await;
        }
        let cancel = CancellationToken::new();
        self.running.lock().unwrap().insert(id.clone(), cancel.clone());
        let work = async {
            let asks = (&turn, is_first);
            match method {
                Method::PromptsGet => self.prompt(&id, &params, asks, chance).await,
                _ => self.call(&id, &params, asks, chance).await,
            }
        };
        let outcome = cancel.run_until_cancelled(work).await;
        self.running.lock().unwrap().remove(&id);
        // Some servers answer a cancelled request.
        let late = || Ok(self.text(&mark, ""));
        let outcome = match outcome {
            Some(outcome) => outcome,
            None if chance.one_in(2) => late(),
            None => return,
        };
        if chance.one_in(40) && self.die() {
            return self.world.wait(chance).await;
        }
        self.answer(&id, outcome.clone()).await;
        if let Turn::After(kind) = &turn {
            if is_first {
                self.world.crowd.spark(chance).await;
            } else {
                self.world.wait(chance).await;
            }
            drop(self.ask(None, kind, &mark, LATE).await);
        }
        if chance.one_in(10) {
            self.world.wait(chance).await;
            self.answer(&id, outcome).await;
        }
        if let RequestId::Number(number) = id
            && chance.one_in(10)
        {
            // To a request that was never made, and to the wrong kind of id.
            let forged = Ok(self.text("forged", ""));
            self.answer(&RequestId::Number(number + (1 << 20)), forged.clone()).await;
            self.answer(&RequestId::Text(number.to_string().into()), forged).await;
        }
        if chance.one_in(10) {
            self.progress(&id, &params, 99).await;
        }
        if chance.one_in(8) {
            self.change().await;
        }
        if chance.one_in(8) && !self.shape.revision.is_modern() && !self.is_shared() {
            // It still asks when its call is over.
            self.world.wait(chance).await;
            drop(self.ask(None, &Method::Elicit, &mark, LATE).await);
        }
    }

    /// Returns when it asks during a request, and whether for the first time.
    fn turn(&self, name: &str, chance: &Chance) -> (Turn, bool) {
        if self.is_shared() {
            let declared = self.declared.get().copied().unwrap_or(Profile::EMPTY);
            return self.world.crowd.turn(name, declared, chance);
        }
        let turn = if name == "ask" { Turn::In(Method::Elicit) } else { Turn::Never };
        (turn, false)
    }

    async fn prompt(&self, id: &RequestId, params: &Value, asks: (&Turn, bool), chance: &Chance) -> Outcome {
        let mark = params["arguments"]["mark"].as_str().unwrap();
        if let (Turn::In(kind), is_first) = asks {
            if is_first {
                self.world.crowd.spark(chance).await;
            }
            if self.ask(during(id), kind, mark, "").await.is_err() {
                return Err(ErrorObject::new(-32000, format!("refused {mark}")));
            }
        }
        self.world.tale.tell(&format!("{} reads {mark}", self.shape.name));
        let text = format!("{mark}|{}", self.shape.name);
        let result = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] });
        Ok(Raw::from_value(&result))
    }

    async fn call(&self, id: &RequestId, params: &Value, asks: (&Turn, bool), chance: &Chance) -> Outcome {
        let mark = params["arguments"]["mark"].as_str().unwrap();
        let (turn, is_first) = asks;
        if *turn != Turn::Never && self.shape.revision.is_modern() && params["requestState"].is_null() {
            let question = json!({ "method": "elicitation/create", "params": question(&Method::Elicit, mark) });
            let result = json!({ "resultType": "input_required", "inputRequests": { "q": question },
                "requestState": mark });
            self.step(id, params, 0).await;
            self.world.tale.tell(&format!("{} asks {mark}", self.shape.name));
            return Ok(Raw::from_value(&result));
        }
        self.world.tale.done(mark, &self.shape.name);
        if matches!(params["name"].as_str(), Some("guarded" | "witnessed")) {
            self.world.tale.needs_yes(mark);
        }
        if chance.one_in(12) {
            let level = json!({ "level": "error", "data": mark });
            self.notify(during(id), Method::LogMessage, &level).await;
        }
        let word = match params["name"].as_str().unwrap() {
            _ if self.is_shared() && matches!(turn, Turn::In(_)) => {
                if is_first {
                    self.world.crowd.spark(chance).await;
                }
                let Turn::In(kind) = turn else { unreachable!() };
                self.word(during(id), kind, mark).await
            }
            "never" => std::future::pending().await,
            "slow" => {
                for number in 1..=1 + chance.below(3) {
                    self.step(id, params, number).await;
                    tokio::time::sleep(Duration::from_millis(chance.below(6000))).await;
                }
                String::new()
            }
            "ask" if self.shape.revision.is_modern() => {
                if params["requestState"] != mark {
                    self.world.tale.fault(format!("{mark} comes with the state {}", params["requestState"]));
                }
                self.step(id, params, 1).await;
                word(&params["inputResponses"]["q"])
            }
            "ask" if *turn != Turn::Never => {
                self.world.tale.tell(&format!("{} asks {mark}", self.shape.name));
                self.step(id, params, 0).await;
                // It continues to work while the user thinks.
                let work = async {
                    for number in 1..=chance.below(3) {
                        self.world.wait(chance).await;
                        self.step(id, params, number).await;
                    }
                };
                let (word, ()) = tokio::join!(self.word(during(id), &Method::Elicit, mark), work);
                self.step(id, params, 3).await;
                word
            }
            _ => {
                self.world.wait(chance).await;
                String::new()
            }
        };
        if chance.one_in(20) {
            return Err(ErrorObject::new(-32000, format!("mark {mark}")));
        }
        Ok(self.text(mark, &word))
    }

    fn text(&self, mark: &str, word: &str) -> Raw {
        let text = format!("{mark}|{}|{word}", self.shape.name);
        Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] }))
    }

    /// Asks a question, and returns the outcome in a word.
    async fn word(&self, during: Option<u64>, kind: &Method, mark: &str) -> String {
        match self.ask(during, kind, mark, "").await {
            Ok(reply) => word(&reply.read().unwrap()),
            Err(_) => "refused".to_owned(),
        }
    }

    /// Asks the client of this call.
    async fn ask(&self, during: Option<u64>, kind: &Method, mark: &str, late: &str) -> Outcome {
        let params = question(kind, &format!("{mark}{late}"));
        let outcome = self.put(during, kind, &params).await;
        if let (Method::RootsList, Ok(result)) = (kind, &outcome) {
            let number = mark.split('.').next().and_then(|number| number.parse().ok()).unwrap_or_default();
            let (own, told) = (roots_of(&self.world, number), result.to_string());
            // A question after its call may belong to another conversation of a sessionless client.
            let is_one = late.is_empty() || self.world.crowd.has_session(number);
            if told.contains("file:///") && !told.contains(&own) && is_one {
                self.world.tale.fault(format!("{mark}{late} was told the roots {told}, and its own are {own}"));
            }
        }
        outcome
    }

    async fn put(&self, during: Option<u64>, kind: &Method, params: &Value) -> Outcome {
        // Ids of every life start over.
        let id = i64::try_from(self.count.fetch_add(1, Ordering::Relaxed)).unwrap();
        let (answer, answered) = oneshot::channel();
        self.asked.lock().unwrap().insert(id, answer);
        let request =
            Request { id: RequestId::Number(id), method: kind.clone(), params: Some(Raw::from_value(params)) };
        self.say(during, Message::Request(request)).await;
        answered.await.unwrap_or_else(|_| Err(ErrorObject::internal("nobody is there")))
    }

    /// Sends progress that its client must hear, if it gets the response.
    async fn step(&self, id: &RequestId, params: &Value, step: u64) {
        self.world.tale.says(params["arguments"]["mark"].as_str().unwrap(), step);
        self.progress(id, params, step).await;
    }

    async fn progress(&self, id: &RequestId, params: &Value, progress: u64) {
        let token = &params["_meta"]["progressToken"];
        let mark = &params["arguments"]["mark"];
        let params = json!({ "progressToken": token, "progress": progress, "message": mark });
        self.notify(during(id), Method::Progress, &params).await;
    }

    /// Changes its list of tools.
    async fn change(&self) {
        if !self.shape.tells {
            return;
        }
        self.grown.fetch_xor(true, Ordering::Relaxed);
        self.world.tale.tell(&format!("{} changes its list", self.shape.name));
        let listens = self.listens.lock().unwrap().clone();
        for listen in listens {
            let params = json!({ "_meta": { meta::SUBSCRIPTION_ID: listen } });
            self.notify(Some(listen), Method::ToolsListChanged, &params).await;
        }
        if !self.shape.revision.is_modern() {
            self.notify(None, Method::ToolsListChanged, &json!({})).await;
        }
    }

    async fn notify(&self, during: Option<u64>, method: Method, params: &Value) {
        let notice = Notification { method, params: Some(Raw::from_value(params)) };
        self.say(during, Message::Notification(notice)).await;
    }

    async fn answer(&self, id: &RequestId, outcome: Outcome) {
        self.say(None, Message::Response(Response { id: Some(id.clone()), outcome })).await;
    }

    async fn say(&self, during: Option<u64>, message: Message) {
        // The listener may be gone.
        let _ = self.out.send((during, message)).await;
    }
}

/// The suffix of marks of questions after a call.
pub(super) const LATE: &str = ".late";

/// Returns the word of a reply to a question.
fn word(reply: &Value) -> String {
    let text = reply["content"]["word"].as_str().or(reply["content"]["text"].as_str());
    text.or(reply["action"].as_str()).unwrap_or("nothing").to_owned()
}

fn during(id: &RequestId) -> Option<u64> {
    match id {
        RequestId::Number(id) => u64::try_from(*id).ok(),
        RequestId::Text(_) => None,
    }
}
