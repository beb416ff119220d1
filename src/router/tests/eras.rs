//! A server that comes back in another era: calls, questions, and watches follow the connection that they are on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::support::{call, request, retry, text};
use crate::config::{self, Config, Prefix, Stdio, Transport};
use crate::manager::{Manager, Principal};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
    meta,
};
use crate::router::{Client, Router};
use crate::transport::{MemoryMessage, Wire};
use crate::upstream::Starter;

/// One life of the server.
#[derive(Clone, Copy, Debug)]
struct Life {
    revision: ProtocolVersion,
    /// It ends at the first request of this method.
    ends_of: Option<&'static str>,
}

const MODERN: Life = Life { revision: ProtocolVersion::LATEST_MODERN, ends_of: None };
const LEGACY: Life = Life { revision: ProtocolVersion::V2025_11_25, ends_of: None };
/// It ends before it has listed anything.
const BROKEN: Life = Life { revision: ProtocolVersion::V2025_11_25, ends_of: Some("initialize") };

impl Life {
    fn ends_of(self, method: &'static str) -> Self {
        Self { ends_of: Some(method), ..self }
    }
}

/// A server with these lives, the last of which repeats, and the requests that each got.
struct Turning {
    router: Router,
    seen: Arc<Mutex<Vec<(usize, String, Value)>>>,
}

impl Turning {
    fn start(lives: &[Life], change: impl FnOnce(&mut config::Server)) -> Self {
        let mut entry = config::Server::new("it", Transport::Stdio(Stdio::default())).unwrap();
        let (max_retries, min_delay, max_delay) = (1000, Duration::from_millis(5), Duration::from_millis(20));
        entry.restart = config::Restart { max_retries, min_delay, max_delay };
        (entry.prefix, entry.start) = (Prefix::Always, config::Start::Lazy);
        change(&mut entry);
        let mut config = Config::default();
        config.host.tasks = true;
        config.servers.push(entry);
        let seen = Arc::<Mutex<Vec<(usize, String, Value)>>>::default();
        let (told, begun, lives) = (seen.clone(), Mutex::new(0), lives.to_vec());
        let start: Starter = Arc::new(move |wire, _| {
            let mut begun = begun.lock().unwrap();
            let number = *begun;
            *begun += 1;
            tokio::spawn(live(lives[number.min(lives.len() - 1)], number, wire, told.clone()));
        });
        let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
        let starters = HashMap::from([("it".to_owned(), start)]);
        let (manager, news) = Manager::start(config, &starters, info.clone(), None, Default::default());
        Self { router: Router::start(manager, news, info), seen }
    }

    fn modern(&self, principal: &str, capabilities: &'static str) -> Arc<Client> {
        self.router.modern(Principal::named(principal), &Raw::trusted(capabilities.into())).unwrap()
    }

    fn legacy(&self) -> Arc<Client> {
        self.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM, None)
    }

    async fn ask(&self, client: &Arc<Client>, method: Method, params: &Value) -> Value {
        request(&self.router, client, method, params).whole_answer().await
    }

    /// Returns the lives that got such a request, in order.
    fn asked(&self, method: &str) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|(_, name, _)| name == method).map(|(life, ..)| *life).collect()
    }

    /// Returns the params of the last request of this method.
    fn last(&self, method: &str) -> Value {
        let seen = self.seen.lock().unwrap();
        seen.iter().rfind(|(_, name, _)| name == method).map(|(.., params)| params.clone()).unwrap()
    }
}

async fn live(life: Life, number: usize, wire: Wire, seen: Arc<Mutex<Vec<(usize, String, Value)>>>) {
    let Wire { out, mut input, .. } = wire;
    // The request during which the question was asked, whose answer is awaited.
    let mut asked = None;
    while let Some(message) = input.recv().await {
        match message {
            Message::Request(request) => {
                let params: Value = request.params.as_ref().map_or_else(|| json!({}), |params| params.read().unwrap());
                seen.lock().unwrap().push((number, request.method.as_str().to_owned(), params.clone()));
                if life.ends_of == Some(request.method.as_str()) {
                    return;
                }
                if let Some(outcome) = answer(life, &request, &params, &out).await {
                    say(&out, None, Message::Response(Response { id: Some(request.id), outcome })).await;
                } else if request.method != Method::Listen {
                    asked = Some(request.id);
                }
            }
            Message::Response(response) => {
                let text = response.outcome.map_or_else(|error| error.message, |reply| reply.to_string());
                let outcome = Ok(said(&text));
                say(&out, None, Message::Response(Response { id: asked.take(), outcome })).await;
            }
            Message::Notification(_) => {}
        }
    }
}

/// Returns the response; `None` for what is answered later, or is a notification.
async fn answer(life: Life, request: &Request, params: &Value, out: &mpsc::Sender<MemoryMessage>) -> Option<Outcome> {
    let modern = life.revision.is_modern();
    let resources = json!({ "subscribe": true });
    let mut capabilities =
        json!({ "tools": {}, "prompts": {}, "resources": resources, "completions": {}, "extensions": {} });
    if modern {
        capabilities["extensions"]["io.modelcontextprotocol/tasks"] = json!({});
    } else {
        capabilities["tasks"] = json!({ "requests": { "tools": { "call": {} } } });
    }
    let number = |id: &RequestId| match id {
        RequestId::Number(id) => u64::try_from(*id).ok(),
        RequestId::Text(_) => None,
    };
    let form = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
    let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
    let asks = params["name"] == "ask" || request.method == Method::Complete;
    let result = match request.method {
        Method::Initialize if modern => {
            let data = Raw::from_value(&json!({ "supported": [life.revision.as_str()] }));
            return Some(Err(ErrorObject::new(-32022, "another revision").with_data(data)));
        }
        Method::Initialize => json!({ "protocolVersion": life.revision.as_str(), "capabilities": capabilities,
            "serverInfo": { "name": "it", "version": "1" } }),
        Method::Discover if modern => json!({ "resultType": "complete", "capabilities": capabilities,
            "supportedVersions": [life.revision.as_str()] }),
        Method::ToolsList => json!({ "tools": [tool("ask"), tool("do")] }),
        Method::PromptsList => json!({ "prompts": [{ "name": "ask" }, { "name": "do" }] }),
        Method::ResourcesList => json!({ "resources": [{ "name": "a", "uri": "x:a" }] }),
        Method::ResourceTemplatesList => json!({ "resourceTemplates": [] }),
        Method::ResourcesSubscribe => json!({}),
        Method::Listen => {
            let id = number(&request.id).unwrap();
            let mut params = params.clone();
            params["_meta"] = json!({ meta::SUBSCRIPTION_ID: id });
            let notice = Notification { method: Method::Acknowledged, params: Some(Raw::from_value(&params)) };
            say(out, Some(id), Message::Notification(notice)).await;
            return None;
        }
        Method::ToolsCall if params["task"].is_object() && !modern => {
            let at = "2025-11-25T00:00:00Z";
            json!({ "task": { "taskId": "t", "status": "working", "ttl": null, "createdAt": at, "lastUpdatedAt": at } })
        }
        _ if asks && modern && params["requestState"].is_null() => json!({ "resultType": "input_required",
            "inputRequests": { "q": { "method": "elicitation/create", "params": form } }, "requestState": "state" }),
        _ if asks && !modern => {
            let ask =
                Request { id: RequestId::Number(7), method: Method::Elicit, params: Some(Raw::from_value(&form)) };
            say(out, number(&request.id), Message::Request(ask)).await;
            return None;
        }
        Method::PromptsGet | Method::ToolsCall => return Some(Ok(said(&params["inputResponses"].to_string()))),
        _ => return Some(Err(ErrorObject::method_not_found(request.method.as_str()))),
    };
    Some(Ok(Raw::from_value(&result)))
}

/// Returns a result for any request.
fn said(text: &str) -> Raw {
    let content = json!({ "type": "text", "text": text });
    Raw::from_value(&json!({ "content": [content], "messages": [{ "role": "user", "content": content }],
        "completion": { "values": [text] } }))
}

async fn say(out: &mpsc::Sender<MemoryMessage>, during: Option<u64>, message: Message) {
    let _ = out.send((during, message)).await;
}

const FORM: &str = r#"{"elicitation":{}}"#;
const TASKS: &str = r#"{"task":{},"name":"it__do"}"#;

fn accept() -> Value {
    json!({ "action": "accept", "content": {} })
}

#[tokio::test(start_paused = true)]
async fn h45_a_call_that_is_sent_again_is_asked_as_its_new_connection_asks() {
    let it = Turning::start(&[MODERN.ends_of("prompts/get"), LEGACY], |_| {});
    let client = it.modern("local", FORM);
    let params = json!({ "name": "it__ask" });
    let running = request(&it.router, &client, Method::PromptsGet, &params);
    let leg = running.leg.clone();
    let asked = running.answer().await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(it.asked("prompts/get"), [0, 1]);
    assert!(leg.try_next().is_none(), "it is asked by results alone");
    let answer = it.ask(&client, Method::PromptsGet, &retry(&params, &asked, &json!({ "i1": accept() }))).await;
    assert_eq!(answer["messages"][0]["content"]["text"], accept().to_string(), "{answer}");
    assert_eq!(it.asked("prompts/get"), [0, 1], "the question is answered, and the request is not sent again");
}

#[tokio::test(start_paused = true)]
async fn h45_a_parked_call_that_is_sent_again_asks_by_the_result_of_its_new_connection() {
    let it = Turning::start(&[LEGACY.ends_of("prompts/get"), MODERN], |_| {});
    let client = it.modern("local", FORM);
    let params = json!({ "name": "it__ask" });
    let asked = it.ask(&client, Method::PromptsGet, &params).await;
    assert_eq!(asked["inputRequests"]["q"]["method"], "elicitation/create", "{asked}");
    let answer = it.ask(&client, Method::PromptsGet, &retry(&params, &asked, &json!({ "q": accept() }))).await;
    assert_eq!(answer["messages"][0]["content"]["text"], json!({ "q": accept() }).to_string(), "{answer}");
    assert_eq!(it.last("prompts/get")["requestState"], "state");
}

#[tokio::test(start_paused = true)]
async fn h45_what_cannot_ask_by_its_result_asks_no_client_without_a_session() {
    let it = Turning::start(&[LEGACY], |_| {});
    let client = it.modern("local", FORM);
    let params = json!({ "ref": { "type": "ref/prompt", "name": "it__do" }, "argument": { "name": "a", "value": "" } });
    let running = request(&it.router, &client, Method::Complete, &params);
    let leg = running.leg.clone();
    let answer = running.answer().await;
    assert_eq!(answer["completion"]["values"][0], r#"{"action":"cancel"}"#, "{answer}");
    assert!(leg.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn h45_a_result_that_asks_what_was_not_declared_is_malformed() {
    let it = Turning::start(&[MODERN], |_| {});
    let answer = it.ask(&it.modern("local", "{}"), Method::ToolsCall, &call("it__ask")).await;
    assert_eq!(answer["_meta"]["mcp-host/error"]["kind"], "malformed", "{answer}");
    assert!(text(&answer).contains("cannot be asked"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn h57_answers_to_a_server_that_has_sessions_now_go_nowhere() {
    let it = Turning::start(&[MODERN.ends_of("prompts/get"), LEGACY], |_| {});
    let client = it.modern("local", FORM);
    let params = call("it__ask");
    let asked = it.ask(&client, Method::ToolsCall, &params).await;
    assert_eq!(asked["inputRequests"]["q"]["method"], "elicitation/create", "{asked}");
    // It ends, and comes back as another.
    it.ask(&client, Method::PromptsGet, &json!({ "name": "it__do" })).await;
    let answer = it.ask(&client, Method::ToolsCall, &retry(&params, &asked, &json!({ "q": accept() }))).await;
    assert_eq!(answer["_meta"]["mcp-host/error"]["kind"], "outcome_unknown", "{answer}");
    assert_eq!(it.asked("tools/call"), [0], "what came before the question is not done twice");
}

#[tokio::test(start_paused = true)]
async fn h64_a_lease_that_all_shared_is_one_persons_once_its_server_has_sessions() {
    let it = Turning::start(&[MODERN.ends_of("prompts/get"), LEGACY], |_| {});
    let (one, other) = (it.modern("one", FORM), it.modern("other", "{}"));
    for client in [&one, &other] {
        it.ask(client, Method::ToolsCall, &call("it__do")).await;
    }
    assert_eq!(it.asked("tools/call"), [0, 0], "one server for all, as long as it has no sessions");
    it.ask(&one, Method::PromptsGet, &json!({ "name": "it__do" })).await;
    for client in [&one, &other, &one, &other] {
        let answer = it.ask(client, Method::ToolsCall, &call("it__do")).await;
        assert_eq!(text(&answer), "null", "{answer}");
    }
    let lives = it.asked("tools/call")[2..].to_vec();
    assert_eq!((lives[0], lives[1]), (lives[2], lives[3]), "{lives:?}");
    assert_ne!(lives[0], lives[1], "each has a server of its own");
}

#[tokio::test(start_paused = true)]
async fn a_task_is_asked_for_in_the_words_of_the_server_that_gets_the_call() {
    for (lives, has_param) in
        [([MODERN.ends_of("tools/call"), LEGACY], true), ([LEGACY.ends_of("tools/call"), MODERN], false)]
    {
        let it = Turning::start(&lives, |entry| entry.repeatable = vec!["do".to_owned()]);
        let client = it.legacy();
        let answer = it.ask(&client, Method::ToolsCall, &serde_json::from_str(TASKS).unwrap()).await;
        assert!(answer["task"]["taskId"].is_string(), "{lives:?}: {answer}");
        assert_eq!(it.asked("tools/call"), [0, 1]);
        assert_eq!(it.last("tools/call")["task"].is_object(), has_param, "{lives:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_watched_as_the_server_that_is_there_lets_itself_be_watched() {
    let lives = [
        [LEGACY.ends_of("resources/subscribe"), MODERN],
        // It announces no list changes, so the first stream is the one of resources.
        [MODERN.ends_of("subscriptions/listen"), LEGACY],
    ];
    for lives in lives {
        let it = Turning::start(&lives, |_| {});
        let client = it.legacy();
        let answer = it.ask(&client, Method::ResourcesSubscribe, &json!({ "uri": "it+x:a" })).await;
        assert_eq!(answer, json!({}), "{lives:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_of_a_server_that_never_listed_waits_for_it() {
    let it = Turning::start(&[BROKEN, LEGACY], |entry| entry.restart.max_retries = 0);
    let (early, name) = (it.legacy(), call("it__do"));
    // It is given up, and callers are told why.
    let answer = it.ask(&early, Method::ToolsCall, &name).await;
    assert_eq!(answer["_meta"]["mcp-host/error"]["kind"], "unavailable", "{answer}");
    assert!(text(&answer).contains("is failed"), "{answer}");
    let answer = it.ask(&early, Method::PromptsGet, &json!({ "name": "it__do" })).await;
    assert_eq!(answer["data"]["kind"], "unavailable", "{answer}");
    // A name without a server is unknown at once.
    let answer = it.ask(&early, Method::ToolsCall, &call("that__do")).await;
    assert_eq!(answer["message"], "unknown tool: that__do");
    // After a while a call brings it back, and waits for that.
    tokio::time::sleep(Duration::from_secs(301)).await;
    for client in [&early, &it.legacy()] {
        let answer = it.ask(client, Method::ToolsCall, &name).await;
        assert_eq!(text(&answer), "null", "{answer}");
    }
    assert_eq!(it.asked("initialize"), [0, 1]);
    let answer = it.ask(&early, Method::ToolsCall, &call("it__none")).await;
    assert_eq!(answer["message"], "unknown tool: it__none", "now that it has listed");
}
