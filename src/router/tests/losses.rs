//! Messages of a server that must not be lost, even if no client listens at that moment, or another one does: with a
//! server that the test drives message by message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::support::*;
use crate::config::{self, Config, Prefix, Stdio, Transport};
use crate::manager::{Manager, Principal};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::router::client::Subscription;
use crate::router::rising::Rising;
use crate::router::{Client, Mailbox, Router};
use crate::transport::{MemoryMessage, Wire};
use crate::upstream::Starter;

/// A server that lists by itself, and says everything else on command.
struct Puppet {
    router: Router,
    strings: Arc<Strings>,
    heard: tokio::sync::Mutex<mpsc::Receiver<Message>>,
}

#[derive(Default)]
struct Strings {
    /// Appears in its lists.
    edition: AtomicUsize,
    lives: Mutex<Vec<(mpsc::Sender<MemoryMessage>, CancellationToken)>>,
}

impl Puppet {
    fn new(change: impl FnOnce(&mut config::Server)) -> Self {
        let mut entry = config::Server::new("puppet", Transport::Stdio(Stdio::default())).unwrap();
        entry.prefix = Prefix::Never;
        change(&mut entry);
        let (strings, (tell, heard)) = (Arc::<Strings>::default(), mpsc::channel(64));
        let pulled = strings.clone();
        let start: Starter = Arc::new(move |wire, tasks| {
            tasks.spawn(pulled.clone().live(wire, tell.clone()));
        });
        let mut config = Config::default();
        config.servers.push(entry);
        let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
        let memory = HashMap::from([("puppet".to_owned(), start)]);
        let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
        Self { router: Router::start(manager, news, info), strings, heard: tokio::sync::Mutex::new(heard) }
    }

    fn legacy(&self, profile: Profile) -> Arc<Client> {
        self.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, profile, None)
    }

    fn modern(&self, capabilities: &'static str) -> Arc<Client> {
        self.router.modern(Principal::local(), &Raw::trusted(capabilities.into())).unwrap()
    }

    /// Returns the next call for it: its id, and its params.
    async fn call(&self) -> (RequestId, Value) {
        loop {
            let mut heard = self.heard.lock().await;
            let message = tokio::time::timeout(Duration::from_secs(120), heard.recv()).await;
            if let Message::Request(Request { id, params, .. }) = message.expect("a call").unwrap() {
                return (id, params.unwrap().read().unwrap());
            }
        }
    }

    /// Sends a message in its newest life.
    async fn say(&self, message: Message) {
        let out = self.strings.lives.lock().unwrap().last().unwrap().0.clone();
        out.send((None, message)).await.unwrap();
    }

    async fn notify(&self, method: Method, params: &Value) {
        self.say(Message::Notification(Notification { method, params: Some(Raw::from_value(params)) })).await;
    }

    /// Reports progress of a call.
    async fn progress(&self, call: &Value, progress: f64) {
        let token = &call["_meta"]["progressToken"];
        self.notify(Method::Progress, &json!({ "progressToken": token, "progress": progress })).await;
    }

    async fn ask(&self, id: i64, method: Method, params: &Value) {
        let (id, params) = (RequestId::Number(id), Some(Raw::from_value(params)));
        self.say(Message::Request(Request { id, method, params })).await;
    }

    /// Asks on the stream of a call.
    async fn ask_during(&self, call: &RequestId, id: i64, method: Method, params: &Value) {
        let RequestId::Number(call) = call else { panic!("{call:?}") };
        let (id, params) = (RequestId::Number(id), Some(Raw::from_value(params)));
        let out = self.strings.lives.lock().unwrap().last().unwrap().0.clone();
        out.send((u64::try_from(*call).ok(), Message::Request(Request { id, method, params }))).await.unwrap();
    }

    async fn answer(&self, id: RequestId, result: &Value) {
        self.say(Message::Response(Response { id: Some(id), outcome: Ok(Raw::from_value(result)) })).await;
    }

    fn die(&self) {
        self.strings.lives.lock().unwrap().last().unwrap().1.cancel();
    }
}

impl Strings {
    async fn live(self: Arc<Self>, Wire { out, mut input, .. }: Wire, tell: mpsc::Sender<Message>) {
        let end = CancellationToken::new();
        self.lives.lock().unwrap().push((out.clone(), end.clone()));
        let life = async {
            while let Some(message) = input.recv().await {
                let result = match &message {
                    Message::Request(request) => self.lists(&request.method).map(|result| (request.id.clone(), result)),
                    _ => None,
                };
                let Some((id, result)) = result else {
                    tell.send(message).await.unwrap();
                    continue;
                };
                let response = Response { id: Some(id), outcome: Ok(Raw::from_value(&result)) };
                let _ = out.send((None, Message::Response(response))).await;
            }
        };
        end.run_until_cancelled(life).await;
        // Nothing else is said on its behalf.
        self.lives.lock().unwrap().iter_mut().filter(|life| life.0.same_channel(&out)).for_each(|life| {
            life.0 = mpsc::channel(1).0;
        });
    }

    fn lists(&self, method: &Method) -> Option<Value> {
        let edition = self.edition.load(Ordering::SeqCst);
        let name = format!("go{edition}");
        let changes = json!({ "listChanged": true });
        Some(match method {
            Method::Initialize => {
                json!({ "protocolVersion": "2025-11-25", "serverInfo": { "name": "p", "version": "1" },
                "capabilities": { "tools": changes, "prompts": changes } })
            }
            Method::Discover => json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                "resultType": "complete", "ttlMs": 0, "cacheScope": "private" }),
            Method::ToolsList => json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                "tools": [{ "name": "go", "inputSchema": { "type": "object" } },
                          { "name": name, "inputSchema": { "type": "object" } }] }),
            Method::PromptsList => json!({ "prompts": [{ "name": name }] }),
            Method::Ping | Method::SetLevel => json!({}),
            _ => return None,
        })
    }
}

/// On a paused clock: waits until all other tasks wait.
async fn rest() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Returns the progress values waiting on a stream.
fn steps(leg: &Mailbox) -> Vec<f64> {
    let told = std::iter::from_fn(|| leg.try_next()).filter_map(|message| match message {
        Message::Notification(Notification { method: Method::Progress, params }) => {
            params?.member("progress")?.read().ok()
        }
        _ => None,
    });
    told.collect()
}

fn told(client: &Client) -> Vec<Method> {
    let told = std::iter::from_fn(|| client.mailbox().try_next()).filter_map(|message| match message {
        Message::Notification(notice) => Some(notice.method),
        _ => None,
    });
    told.collect()
}

fn form(message: &str) -> Value {
    json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } })
}

fn accept() -> Value {
    json!({ "action": "accept", "content": {} })
}

fn done() -> Value {
    json!({ "content": [{ "type": "text", "text": "done" }] })
}

fn with_token(token: &str) -> Value {
    json!({ "name": "go", "arguments": {}, "_meta": { "progressToken": token } })
}

/// Two lists change; before the client is told, it happens to read one of them.
#[tokio::test(start_paused = true)]
async fn h50_a_list_that_is_read_anew_says_nothing_of_the_other_lists() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.legacy(Profile::EMPTY);
    let list = async |method| request(&puppet.router, &client, method, &json!({})).answer().await;
    assert_eq!(list(Method::ToolsList).await["tools"][1]["name"], "go0");
    assert_eq!(list(Method::PromptsList).await["prompts"][0]["name"], "go0");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told(&client), []);

    puppet.strings.edition.store(1, Ordering::SeqCst);
    puppet.notify(Method::ToolsListChanged, &json!({})).await;
    puppet.notify(Method::PromptsListChanged, &json!({})).await;
    while client.view(puppet.router.manager()).shown.tools().iter().all(|tool| tool.raw_name() != "go1") {
        rest().await;
    }
    assert_eq!(told(&client), [], "it is told a little later");
    assert_eq!(list(Method::ToolsList).await["tools"][1]["name"], "go1");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(told(&client), [Method::PromptsListChanged], "that one it has not read since");
}

/// A duplicate retry: messages of the call go to the second one, and to the first when that is gone.
#[tokio::test(start_paused = true)]
async fn of_two_requests_that_attend_one_call_either_may_go() {
    for second_goes in [true, false] {
        let puppet = Puppet::new(|_| {});
        let client = puppet.modern(FORM);
        let begin = |params: &Value| run(&puppet.router, &client, params);
        let first = begin(&with_token("a"));
        let (id, call) = puppet.call().await;
        puppet.ask(1, Method::Elicit, &form("?")).await;
        let asked = first.answer().await;
        let again = retry(&with_token("b"), &asked, &json!({ "i1": accept() }));
        let (one, two) = (begin(&again), begin(&again));
        rest().await;
        puppet.progress(&call, 1.0).await;
        rest().await;
        let (stays, goes) = if second_goes { (one, two) } else { (two, one) };
        let heard = [steps(&stays.leg), steps(&goes.leg)];
        assert_eq!(
            heard,
            if second_goes { [vec![], vec![1.0]] } else { [vec![1.0], vec![]] },
            "once, on the newer one"
        );
        goes.drop().await;
        puppet.progress(&call, 2.0).await;
        puppet.answer(id, &done()).await;
        let leg = stays.leg.clone();
        assert_eq!(text(&stays.answer().await), "done");
        assert_eq!(steps(&leg), [2.0], "second goes: {second_goes}");
    }
}

/// A call is resent on another connection: questions asked on the previous one are void.
#[tokio::test(start_paused = true)]
async fn a_question_of_a_connection_that_is_lost_does_not_keep_its_call() {
    let puppet = Puppet::new(|entry| {
        entry.repeatable = vec!["go".to_owned()];
        // The host starts none to list while this one belongs to one client.
        entry.start = config::Start::Lazy;
    });
    let client = puppet.modern(FORM);
    let first = run(&puppet.router, &client, &with_token("a"));
    puppet.call().await;
    puppet.ask(1, Method::Elicit, &form("?")).await;
    let asked = first.answer().await;
    assert_eq!(asked["resultType"], "input_required");
    puppet.die();
    let (id, call) = puppet.call().await;
    for step in 1..=4 {
        // Each within `callTimeout`, but not all together.
        tokio::time::sleep(Duration::from_secs(40)).await;
        puppet.progress(&call, f64::from(step)).await;
    }
    puppet.answer(id, &done()).await;
    rest().await;
    let last = run(&puppet.router, &client, &retry(&with_token("b"), &asked, &json!({ "i1": accept() })));
    let leg = last.leg.clone();
    let last = last.answer().await;
    assert_eq!((text(&last), steps(&leg)), ("done", vec![1.0, 2.0, 3.0, 4.0]));
}

/// The server leaves all of these subscriptions unanswered.
#[tokio::test(start_paused = true)]
async fn a_call_waits_no_longer_for_many_watched_resources_than_for_one() {
    let puppet = Puppet::new(|entry| entry.sharing = config::Sharing::Session);
    let client = puppet.legacy(Profile::EMPTY);
    let server = puppet.router.manager().servers()[0].clone();
    let rest = server.upstreams().remove(0);
    rest.ready().await.unwrap();
    for number in 0..5 {
        let uri: Arc<str> = format!("file:///{number}").into();
        let subscription = Subscription { server: server.id, raw: uri.clone(), upstream: rest.clone() };
        client.watched(|all| all.insert(uri, subscription));
    }
    let own = puppet.router.manager().lease(&server, &client.who_now()).unwrap();
    own.ready().await.unwrap();
    let begun = tokio::time::Instant::now();
    client.watch_anew(&server, &own).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// The server asks for roots as soon as it knows its client, thus during no call, and then withdraws the question.
#[tokio::test(start_paused = true)]
async fn a_question_beside_all_calls_is_withdrawn_from_the_call_that_it_was_put_in() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.modern(ALL);
    let first = run(&puppet.router, &client, &with_token("a"));
    let (id, _) = puppet.call().await;
    puppet.answer(id, &done()).await;
    first.answer().await;
    let first = run(&puppet.router, &client, &with_token("b"));
    let (id, _) = puppet.call().await;
    puppet.ask(1, Method::RootsList, &json!({})).await;
    let asked = first.answer().await;
    assert_eq!(asked["inputRequests"]["i1"]["method"], "roots/list", "{asked}");
    puppet.notify(Method::Cancelled, &json!({ "requestId": 1 })).await;
    rest().await;
    let last = run(&puppet.router, &client, &retry(&with_token("c"), &asked, &json!({})));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!last.is_over(), "it is not asked again");
    puppet.answer(id, &done()).await;
    assert_eq!(text(&last.answer().await), "done");
}

/// The question comes on the stream of a call that is over, while another call runs: it is ambiguous which one it is
/// for.
#[tokio::test(start_paused = true)]
async fn h45_what_may_be_asked_for_several_calls_is_not_put_to_the_only_client() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.legacy(Profile::ELICITATION_FORM);
    let over = run(&puppet.router, &client, &with_token("a"));
    let (first, _) = puppet.call().await;
    puppet.answer(first.clone(), &done()).await;
    assert_eq!(text(&over.answer().await), "done");
    let running = run(&puppet.router, &client, &with_token("b"));
    let (second, _) = puppet.call().await;
    puppet.ask_during(&first, 1, Method::Elicit, &form("?")).await;
    let answered = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            if let Message::Response(response) = puppet.heard.lock().await.recv().await.unwrap() {
                return response;
            }
        }
    });
    let answered = answered.await.expect("the question is put");
    let refused = Raw::trusted(r#"{"action":"cancel"}"#.into());
    assert_eq!((answered.id, answered.outcome), (Some(RequestId::Number(1)), Ok(refused)));
    assert!(client.mailbox().try_next().is_none() && running.leg.try_next().is_none());
    // On its own stream it is unambiguous.
    puppet.ask_during(&second, 2, Method::Elicit, &form("?")).await;
    assert_eq!(running.question().await.method, Method::Elicit);
}

/// Like the previous one, with a client that has a session and may have shown the question to its user.
#[tokio::test(start_paused = true)]
async fn h52_a_question_beside_all_calls_is_withdrawn_from_a_session_too() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.legacy(Profile::ROOTS);
    let _open = client.mailbox().read();
    let called = run(&puppet.router, &client, &with_token("a"));
    let (id, _) = puppet.call().await;
    puppet.answer(id, &done()).await;
    called.answer().await;
    puppet.ask(1, Method::RootsList, &json!({})).await;
    let next = async || {
        let next = tokio::time::timeout(Duration::from_secs(30), client.mailbox().next()).await;
        next.expect("nothing is said").unwrap()
    };
    let Message::Request(asked) = next().await else { panic!("no question") };
    puppet.notify(Method::Cancelled, &json!({ "requestId": 1 })).await;
    let Message::Notification(notice) = next().await else { panic!("no notice") };
    let withdrawn = notice.params.unwrap().member("requestId").unwrap().read::<RequestId>().unwrap();
    assert_eq!((notice.method, withdrawn), (Method::Cancelled, asked.id));
}

/// The question was withdrawn before there was a stream for it.
#[tokio::test(start_paused = true)]
async fn h52_a_question_that_is_withdrawn_while_it_waits_for_a_stream_is_not_put() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.legacy(Profile::ROOTS);
    request(&puppet.router, &client, Method::ToolsList, &json!({})).answer().await;
    puppet.ask(1, Method::RootsList, &json!({})).await;
    puppet.notify(Method::Cancelled, &json!({ "requestId": 1 })).await;
    rest().await;
    let _open = client.mailbox().read();
    let said = tokio::time::timeout(Duration::from_secs(30), client.mailbox().next()).await;
    assert!(said.is_err(), "{said:?}");
}

/// Its server withdraws a question, then says nothing: the server's timeout runs again.
#[tokio::test(start_paused = true)]
async fn h52_a_call_whose_question_is_withdrawn_is_no_longer_on_a_persons_time() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.legacy(Profile::ELICITATION_FORM);
    let running = run(&puppet.router, &client, &with_token("a"));
    puppet.call().await;
    puppet.ask(1, Method::Elicit, &form("?")).await;
    running.question().await;
    puppet.notify(Method::Cancelled, &json!({ "requestId": 1 })).await;
    let begun = tokio::time::Instant::now();
    assert!(text(&running.answer().await).contains("callTimeout"));
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
}

/// A server that finishes before its question is answered does not wait for the answer: nothing is kept of it.
#[tokio::test(start_paused = true)]
async fn h55_a_question_ends_with_its_call() {
    let puppet = Puppet::new(|_| {});
    let client = puppet.modern(FORM);
    let first = run(&puppet.router, &client, &with_token("a"));
    let (id, _) = puppet.call().await;
    puppet.ask(1, Method::Elicit, &form("?")).await;
    first.answer().await;
    puppet.answer(id, &done()).await;
    rest().await;
    let servers = puppet.router.manager().servers();
    let left: Vec<_> = servers[0].upstreams().iter().map(|lease| lease.connection().unwrap().leftovers()).collect();
    assert_eq!(left, [[0; 3]]);
}

/// A page was to be visited for two sessions of one person. The second has a connection of its own from then on.
#[tokio::test(start_paused = true)]
async fn that_a_page_was_visited_is_told_to_the_session_of_its_lease() {
    let puppet = Puppet::new(|_| {});
    let clients = [puppet.legacy(Profile::ELICITATION_URL), puppet.legacy(Profile::ELICITATION_URL)];
    for client in &clients {
        let running = run(&puppet.router, client, &with_token("a"));
        let (id, _) = puppet.call().await;
        let page = json!({ "mode": "url", "url": "https://example.com/", "elicitationId": "e", "message": "visit" });
        let error = ErrorObject::new(-32042, "first").with_data(Raw::from_value(&json!({ "elicitations": [page] })));
        puppet.say(Message::Response(Response { id: Some(id), outcome: Err(error) })).await;
        assert_eq!(running.answer().await["error"], -32042);
    }
    puppet.notify(Method::ElicitationComplete, &json!({ "elicitationId": "e" })).await;
    rest().await;
    let told = clients.map(|client| told(&client));
    assert_eq!(told.concat(), [Method::ElicitationComplete], "{told:?}");
}

#[test]
fn signs_of_life_rise_and_stay_below_what_comes_next() {
    let step = |rising: &mut Rising, value: f64| {
        let params = Raw::from_value(&json!({ "progressToken": 0, "progress": value }));
        rising.step(&params).is_some()
    };
    let rising = || Rising::new(Some(Raw::trusted("1".into())));
    let mut below = rising();
    assert!(step(&mut below, -3.0) && below.tick().is_some() && step(&mut below, -2.5));
    let mut rising = rising();
    for value in [0.0, 0.001, 1.0, 2.0, 1e6, 1e6 + 1.0, 4e9, 4e9 + 1.0, 1e17, 1.1e17] {
        for _ in 0..20 {
            assert!(rising.tick().is_some(), "before {value}");
        }
        assert!(step(&mut rising, value), "{value}");
        assert!(!step(&mut rising, value), "{value} again");
    }
}
