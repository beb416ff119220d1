//! A router with a scripted server behind it, and clients of both eras in front.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::config::{Config, Limits, Prefix, Server, Stdio, Transport};
use crate::in_process::{InProcess, Invocation};
use crate::manager::{Manager, Principal};
use crate::protocol::{ErrorObject, Message, Method, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId};
use crate::router::route::OwnTool;
use crate::router::{Abilities, Client, Identity, Mailbox, Named, Router, Sender, Via};
use crate::upstream::Starter;

impl Router {
    /// Makes a client without a handshake.
    pub(crate) fn admit(
        &self,
        identity: impl Into<Identity>,
        revision: ProtocolVersion,
        profile: Profile,
        extensions: Option<Raw>,
    ) -> Arc<Client> {
        let abilities = Abilities { revision, profile, extensions };
        self.0.clients.admit(identity, abilities, Named::default(), self.0.queues.account())
    }

    /// The client that sends a request with these `clientCapabilities` and says nothing more of itself.
    pub(crate) fn modern(&self, identity: impl Into<Identity>, capabilities: &Raw) -> Result<Arc<Client>, ErrorObject> {
        self.0.pool.get(identity, capabilities, None)
    }

    /// A mailbox for one modern request, with the level of log lines that it wants.
    pub(crate) fn modern_leg(&self, level: Option<&str>) -> Arc<Mailbox> {
        let sender = Sender { name: None, via: Via::Http };
        Mailbox::of_modern(self.limits(), self.0.queues.account(), level, sender)
    }

    /// Gives the host tools of its own.
    pub(super) fn offer_own(&self, tools: Vec<Arc<dyn OwnTool>>) {
        self.0.routes.offer_own(tools);
    }

    /// Every client that is there now, oldest first.
    pub(crate) fn present(&self) -> Vec<Arc<Client>> {
        self.0.clients.all()
    }
}

/// A router and what its server has seen.
pub(super) struct Stage {
    pub(super) router: Router,
    pub(super) script: Arc<Script>,
}

#[derive(Default)]
pub(super) struct Script {
    pub(super) starts: AtomicUsize,
    pub(super) begun: AtomicUsize,
    pub(super) cancelled: AtomicUsize,
    /// Answers of clients, in order.
    pub(super) answers: Mutex<Vec<Outcome>>,
    pub(super) release: Notify,
}

pub(super) const FORM: &str = r#"{"elicitation":{}}"#;
pub(super) const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;

pub(super) async fn stage() -> Stage {
    stage_with(|_| {}).await
}

pub(super) async fn stage_with(change: impl FnOnce(&mut Limits)) -> Stage {
    stage_of(|config| change(&mut config.host.limits)).await
}

pub(super) async fn stage_of(change: impl FnOnce(&mut Config)) -> Stage {
    stage_behind(false, change)
}

/// Like `stage_of`; with `pipe`, the server does not say during which call it asks, like one behind a pipe.
pub(super) fn stage_behind(pipe: bool, change: impl FnOnce(&mut Config)) -> Stage {
    let script = Arc::<Script>::default();
    let tools =
        ["echo", "ask", "twice", "three", "held", "late", "busy", "keyed", "page", "visit", "straggler", "drop"];
    let server = tools.into_iter().fold(InProcess::new("script", "1"), |server, name| {
        let definition = Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }));
        let script = script.clone();
        server.tool(definition, move |invocation| script.clone().run(name, invocation).boxed())
    });
    stage_of_script(server, script, pipe, change)
}

/// Like `stage_of`, with another server.
pub(super) fn stage_with_server(server: InProcess, change: impl FnOnce(&mut Config)) -> Stage {
    stage_of_script(server, Arc::default(), false, change)
}

fn stage_of_script(server: InProcess, script: Arc<Script>, pipe: bool, change: impl FnOnce(&mut Config)) -> Stage {
    let server = crate::in_process::Running::new(server);
    let mut entry = Server::new("script", Transport::Stdio(Stdio::default())).unwrap();
    entry.prefix = Prefix::Never;
    let mut config = Config::default();
    config.servers.push(entry);
    change(&mut config);
    let counted = script.clone();
    let start: Starter = Arc::new(move |wire, tasks| {
        counted.starts.fetch_add(1, Ordering::Relaxed);
        wire.mute.store(pipe, Ordering::Relaxed);
        server.start(wire, tasks);
    });
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) =
        Manager::start(config, &HashMap::from([("script".to_owned(), start)]), info.clone(), None, Default::default());
    Stage { router: Router::start(manager, news, info), script }
}

impl Script {
    async fn run(self: Arc<Self>, name: &'static str, invocation: Invocation) -> Outcome {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if name == "straggler" {
            tokio::spawn(async move {
                self.release.notified().await;
                invocation.progress(1.0, None, "too late").await;
                self.cancelled.fetch_add(1, Ordering::SeqCst);
            });
            return Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": "answered" }] })));
        }
        tokio::select! {
            biased;
            outcome = self.answer(name, &invocation) => outcome,
            () = invocation.cancelled() => {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                Ok(Raw::empty_object())
            }
        }
    }

    async fn answer(&self, name: &str, invocation: &Invocation) -> Outcome {
        let ask = async |question: &str| {
            let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
            let params = json!({ "message": question, "requestedSchema": schema });
            let outcome = invocation.request(Method::Elicit, Some(Raw::from_value(&params))).await;
            self.answers.lock().unwrap().push(outcome.clone());
            outcome.map(|answer| answer.to_string()).unwrap_or_else(|error| format!("error {}", error.code))
        };
        let text = match name {
            "drop" => {
                invocation.withdraw(crate::registry::Kind::Tools, "echo").await;
                "dropped".to_owned()
            }
            "keyed" => {
                let params =
                    json!({ "message": "?", "requestedSchema": {}, "_meta": { "mcp-host/inputKey": "user_name" } });
                invocation.request(Method::Elicit, Some(Raw::from_value(&params))).await?.to_string()
            }
            "ask" => ask(&invocation.arguments.text("mark").unwrap_or_default()).await,
            "twice" => format!("{} {}", ask("first").await, ask("second").await),
            "three" => {
                let sampling = json!({ "messages": [], "maxTokens": 1 });
                let (form, sample, roots) = tokio::join!(
                    ask("form"),
                    invocation.request(Method::CreateMessage, Some(Raw::from_value(&sampling))),
                    invocation.request(Method::RootsList, None),
                );
                let shown = |outcome: Outcome| {
                    outcome.map(|raw| raw.to_string()).unwrap_or_else(|error| error.code.to_string())
                };
                format!("{form} {} {}", shown(sample), shown(roots))
            }
            "held" => {
                invocation.progress(1.0, None, "working").await;
                self.release.notified().await;
                "held".to_owned()
            }
            // Asks, continues to work meanwhile, and asks once more.
            "busy" => {
                let work = async |step: f64| {
                    invocation.progress(step, None, "asked").await;
                    self.release.notified().await;
                    invocation.progress(step + 1.0, None, "on it").await;
                    invocation.log("info", Raw::trusted("\"a line\"".into())).await;
                };
                let (first, ()) = tokio::join!(ask("first"), work(1.0));
                let (second, ()) = tokio::join!(ask("second"), work(3.0));
                format!("{first} {second}")
            }
            // Asks, and responds without waiting for the answer.
            "late" => {
                let asked = ask("nobody waits for this");
                tokio::select! { _ = asked => {}, () = self.release.notified() => {} }
                "done all the same".to_owned()
            }
            "visit" => {
                let url = invocation.arguments.text("url").unwrap_or_else(|| "https://example.com/".to_owned());
                let params = json!({ "mode": "url", "url": url, "elicitationId": "e2", "message": "?", "_meta": { "progressToken": 1 } });
                invocation.request(Method::Elicit, Some(Raw::from_value(&params))).await?.to_string()
            }
            "page" => {
                let url = invocation.arguments.text("url").unwrap_or_else(|| "https://example.com/visit".to_owned());
                let page = json!({ "mode": "url", "url": url, "elicitationId": "e1", "message": "visit" });
                let data = Raw::from_value(&json!({ "elicitations": [page] }));
                if self.begun.load(Ordering::SeqCst) == 1 {
                    return Err(ErrorObject::new(-32042, "visit first").with_data(data));
                }
                "visited".to_owned()
            }
            _ => invocation.arguments.to_string(),
        };
        Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
    }
}

impl Stage {
    pub(super) fn modern(&self, capabilities: &'static str) -> Arc<Client> {
        self.modern_of(Principal::local(), capabilities)
    }

    pub(super) fn modern_of(&self, principal: Principal, capabilities: &'static str) -> Arc<Client> {
        self.router.modern(principal, &Raw::trusted(capabilities.into())).unwrap()
    }

    pub(super) fn legacy(&self, revision: ProtocolVersion, profile: Profile) -> Arc<Client> {
        self.router.admit(Principal::local(), revision, profile, None)
    }

    /// Begins a call in a task.
    pub(super) fn call(&self, client: &Arc<Client>, params: &Value) -> Running {
        run(&self.router, client, params)
    }

    /// Makes a call and returns its response.
    pub(super) async fn answer(&self, client: &Arc<Client>, params: &Value) -> Value {
        self.call(client, params).answer().await
    }

    /// Waits, without advancing time, until the condition holds.
    pub(super) async fn until(&self, condition: impl Fn(&Script) -> bool) {
        while !condition(&self.script) {
            tokio::task::yield_now().await;
        }
    }
}

/// Begins a call in a task.
pub(super) fn run(router: &Router, client: &Arc<Client>, params: &Value) -> Running {
    request(router, client, Method::ToolsCall, params)
}

/// Begins a request in a task.
pub(super) fn request(router: &Router, client: &Arc<Client>, method: Method, params: &Value) -> Running {
    request_with(router, client, method, params, None)
}

/// Like `request`, for a client that wants log lines from a level on.
pub(super) fn request_with(
    router: &Router,
    client: &Arc<Client>,
    method: Method,
    params: &Value,
    level: Option<&str>,
) -> Running {
    static IDS: AtomicUsize = AtomicUsize::new(0);
    let id = RequestId::Text(format!("t{}", IDS.fetch_add(1, Ordering::SeqCst)).into());
    let leg = router.modern_leg(level);
    let request = Request { id: id.clone(), method, params: Some(Raw::from_value(params)) };
    let answer = tokio::spawn(router.request(client, request, &leg));
    Running { answer, leg, id }
}

/// Begins a call with params as their client wrote them.
pub(super) fn request_raw(router: &Router, client: &Arc<Client>, params: Raw) -> Running {
    static IDS: AtomicUsize = AtomicUsize::new(0);
    let id = RequestId::Text(format!("r{}", IDS.fetch_add(1, Ordering::SeqCst)).into());
    let leg = router.modern_leg(None);
    let request = Request { id: id.clone(), method: Method::ToolsCall, params: Some(params) };
    let answer = tokio::spawn(router.request(client, request, &leg));
    Running { answer, leg, id }
}

/// A call in flight.
pub(super) struct Running {
    answer: JoinHandle<Option<Outcome>>,
    pub(super) leg: Arc<Mailbox>,
    pub(super) id: RequestId,
}

impl Running {
    /// Returns its response; an error as `{"error": code, "message": text}`, none as null.
    pub(super) async fn answer(self) -> Value {
        match self.answer.await.unwrap() {
            Some(Ok(result)) => result.read().unwrap(),
            Some(Err(error)) => json!({ "error": error.code, "message": error.message }),
            None => Value::Null,
        }
    }

    /// Reports whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.answer.is_finished()
    }

    /// Returns its response; an error with its data as well.
    pub(super) async fn whole_answer(self) -> Value {
        match self.answer.await.unwrap() {
            Some(Ok(result)) => result.read().unwrap(),
            Some(Err(error)) => {
                let data: Value = error.data.map_or(Value::Null, |data| data.read().unwrap());
                json!({ "error": error.code, "message": error.message, "data": data })
            }
            None => Value::Null,
        }
    }

    /// Disconnects the client.
    pub(super) async fn drop(self) {
        self.answer.abort();
        let _ = self.answer.await;
    }

    /// Returns the next server request that reaches a client with a session.
    pub(super) async fn question(&self) -> Request {
        loop {
            if let Some(Message::Request(request)) = self.leg.next().await {
                return request;
            }
        }
    }
}

pub(super) fn call(tool: &str) -> Value {
    json!({ "name": tool, "arguments": {} })
}

/// Returns the retry: the same request with answers to the questions of `result`.
pub(super) fn retry(params: &Value, result: &Value, answers: &Value) -> Value {
    let mut next = params.clone();
    next["inputResponses"] = answers.clone();
    next["requestState"] = result["requestState"].clone();
    next
}

pub(super) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}
