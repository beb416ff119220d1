//! Servers by script and chance: they keep a ledger, answer late, twice and to nothing, ask, and die at any moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::chance::Chance;
use super::world::World;
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, ProtocolVersion, Raw, Request, RequestId, Response, meta,
};
use crate::transport::{self, Said, Wire};

/// One server of a world.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) name: String,
    pub(super) revision: ProtocolVersion,
    /// It tells of changed lists.
    pub(super) tells: bool,
    /// As of one behind a pipe, it is not known during which call it asks: such calls have their leases for themselves.
    pub(super) mute: bool,
    /// What each second life of it speaks.
    pub(super) turns: Option<ProtocolVersion>,
    /// All clients have one of its lives.
    pub(super) for_all: bool,
}

/// One life of a server: what a lease talks to.
pub(super) struct Life {
    world: Arc<World>,
    shape: Shape,
    number: u64,
    /// For all but calls, which have numbers of their own.
    chance: Chance,
    out: mpsc::Sender<Said>,
    refuses: transport::Refusal,
    asked: Mutex<BTreeMap<i64, oneshot::Sender<Outcome>>>,
    running: Mutex<BTreeMap<RequestId, CancellationToken>>,
    listens: Mutex<Vec<u64>>,
    count: AtomicU64,
    /// It has one tool more.
    grown: AtomicBool,
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
            grown: AtomicBool::new(false),
            dead: CancellationToken::new(),
        });
        world.tale.tell(&format!("{} begins life {number}, of {}", shape.name, shape.revision));
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
                    None => break,
                }
            }
        }
        self.world.tale.tell(&format!("{} is gone", self.shape.name));
        self.dead.cancel();
    }

    /// Ends at once, unless there was enough of that.
    fn die(&self) -> bool {
        let dies = self.world.may_harm();
        if dies {
            self.world.tale.tell(&format!("{} dies", self.shape.name));
            self.dead.cancel();
        }
        dies
    }

    /// Knows the host no more: refuses what comes from now on.
    fn forget(&self) {
        if self.world.may_harm() {
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
            if !calls {
                life.world.wait(&life.chance).await;
            }
            match message {
                Message::Request(request) => life.take(request).await,
                Message::Response(Response { id: Some(RequestId::Number(id)), outcome }) => {
                    if let Some(asked) = life.asked.lock().unwrap().remove(&id) {
                        let _ = asked.send(outcome);
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
        if starts && self.chance.one_in(16) && self.world.may_harm() {
            return self.world.tale.tell(&format!("{} says nothing to {method}", self.shape.name));
        }
        let changes = json!({ "listChanged": self.shape.tells });
        let capabilities = json!({ "tools": changes, "prompts": {}, "logging": {} });
        let result = match method {
            Method::Initialize if modern => {
                let data = Raw::from_value(&json!({ "supported": [self.shape.revision.as_str()] }));
                return self.answer(&id, Err(ErrorObject::new(-32022, "another revision").with_data(data))).await;
            }
            Method::Initialize => json!({ "protocolVersion": self.shape.revision.as_str(),
                "capabilities": capabilities, "serverInfo": { "name": self.shape.name, "version": "1" } }),
            Method::Discover if modern => json!({ "resultType": "complete",
                "supportedVersions": [self.shape.revision.as_str()], "capabilities": capabilities }),
            Method::Ping | Method::SetLevel => json!({}),
            Method::ToolsList => self.tools(),
            Method::PromptsList => json!({ "prompts": [{ "name": "read" }], "ttlMs": 3_600_000 }),
            Method::Listen => return self.listen(&id).await,
            Method::ToolsCall | Method::PromptsGet => return self.serve(id, method, params).await,
            _ => return self.answer(&id, Err(ErrorObject::method_not_found(method.as_str()))).await,
        };
        self.answer(&id, Ok(Raw::from_value(&result))).await;
    }

    fn tools(&self) -> Value {
        let names = ["do", "slow", "ask", "never", "more"];
        let shown = if self.grown.load(Ordering::Relaxed) { 5 } else { 4 };
        let tools: Vec<Value> =
            names[..shown].iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } })).collect();
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

    /// A call, or the getting of a prompt: what has an effect and what has none.
    async fn serve(self: &Arc<Self>, id: RequestId, method: Method, params: Value) {
        let mark = params["arguments"]["mark"].as_str().unwrap().to_owned();
        if !self.shape.for_all && !self.shape.revision.is_modern() {
            self.world.tale.serves(&format!("{}/{}", self.shape.name, self.number), &mark);
        }
        let chance = &self.world.chance_of(&mark, self.number);
        self.world.wait(chance).await;
        if chance.one_in(40) && self.die() {
            return self.world.wait(chance).await;
        }
        let cancel = CancellationToken::new();
        self.running.lock().unwrap().insert(id.clone(), cancel.clone());
        let work = async {
            match method {
                Method::PromptsGet => self.prompt(&params),
                _ => self.call(&id, &params, chance).await,
            }
        };
        let outcome = cancel.run_until_cancelled(work).await;
        self.running.lock().unwrap().remove(&id);
        // Some answer what was cancelled.
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
        if chance.one_in(10) {
            self.world.wait(chance).await;
            self.answer(&id, outcome).await;
        }
        if let RequestId::Number(number) = id
            && chance.one_in(10)
        {
            // To what was never asked, and to the wrong kind of id.
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
        if chance.one_in(8) && !self.shape.revision.is_modern() {
            // It asks yet, when its call is over.
            self.world.wait(chance).await;
            let late = question(&format!("{mark}{LATE}"));
            drop(self.ask(None, &late).await);
        }
    }

    fn prompt(&self, params: &Value) -> Outcome {
        let mark = params["arguments"]["mark"].as_str().unwrap();
        self.world.tale.tell(&format!("{} reads {mark}", self.shape.name));
        let text = format!("{mark}|{}", self.shape.name);
        let result = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] });
        Ok(Raw::from_value(&result))
    }

    async fn call(&self, id: &RequestId, params: &Value, chance: &Chance) -> Outcome {
        let mark = params["arguments"]["mark"].as_str().unwrap();
        let asks = params["name"] == "ask";
        if asks && self.shape.revision.is_modern() && params["requestState"].is_null() {
            let question = json!({ "method": "elicitation/create", "params": question(mark) });
            let result = json!({ "resultType": "input_required", "inputRequests": { "q": question },
                "requestState": mark });
            self.step(id, params, 0).await;
            self.world.tale.tell(&format!("{} asks {mark}", self.shape.name));
            return Ok(Raw::from_value(&result));
        }
        self.world.tale.done(mark, &self.shape.name);
        if chance.one_in(12) {
            let level = json!({ "level": "error", "data": mark });
            self.notify(during(id), Method::LogMessage, &level).await;
        }
        let word = match params["name"].as_str().unwrap() {
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
            "ask" => {
                self.world.tale.tell(&format!("{} asks {mark}", self.shape.name));
                self.step(id, params, 0).await;
                // It goes on working while a person thinks.
                let work = async {
                    for number in 1..=chance.below(3) {
                        self.world.wait(chance).await;
                        self.step(id, params, number).await;
                    }
                };
                let question = question(mark);
                let (reply, ()) = tokio::join!(self.ask(during(id), &question), work);
                self.step(id, params, 3).await;
                match reply {
                    Ok(reply) => word(&reply.read().unwrap()),
                    Err(_) => "refused".to_owned(),
                }
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

    async fn ask(&self, during: Option<u64>, params: &Value) -> Outcome {
        // Ids of every life begin anew.
        let id = i64::try_from(self.count.fetch_add(1, Ordering::Relaxed)).unwrap();
        let (answer, answered) = oneshot::channel();
        self.asked.lock().unwrap().insert(id, answer);
        let request =
            Request { id: RequestId::Number(id), method: Method::Elicit, params: Some(Raw::from_value(params)) };
        self.say(during, Message::Request(request)).await;
        answered.await.unwrap_or_else(|_| Err(ErrorObject::internal("nobody is there")))
    }

    /// Progress that its client has to hear of, if it hears the answer.
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

    /// Its list of tools becomes another one.
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
        // Whoever listened may be gone.
        let _ = self.out.send((during, message)).await;
    }
}

/// Ends what a server asks after its call.
pub(super) const LATE: &str = ".late";

fn question(mark: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { "word": { "type": "string" } } });
    json!({ "message": mark, "requestedSchema": schema })
}

/// What a reply to a question says.
fn word(reply: &Value) -> String {
    reply["content"]["word"].as_str().or(reply["action"].as_str()).unwrap_or("nothing").to_owned()
}

fn during(id: &RequestId) -> Option<u64> {
    match id {
        RequestId::Number(id) => u64::try_from(*id).ok(),
        RequestId::Text(_) => None,
    }
}
