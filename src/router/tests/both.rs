//! An HTTP server that speaks both eras at one URL and differs between them: every client is served in its own era.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::support::{FORM, Running, call, request, retry, text};
use crate::config::{self, Config, Prefix, Remote, Sharing, Transport};
use crate::manager::{Manager, Principal};
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw, Response, meta};
use crate::router::{Client, Router};
use crate::upstream::tests::support::{Reply, Seen, Server, discovered, initialized, stream};

/// How the server answers `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Sessions {
    #[default]
    Takes,
    Refuses,
    SaysNothing,
}

/// The server's current behavior, and what it keeps.
#[derive(Default)]
struct State {
    sessions: Sessions,
    begun: usize,
    open: BTreeSet<String>,
    /// If set, the test decides when lists in sessions are answered: the waiting streams, each with its response.
    holds_lists: bool,
    held: Vec<(mpsc::Sender<String>, Value)>,
    /// Calls that wait for the answer to their question.
    asking: HashMap<u64, (mpsc::Sender<String>, Value)>,
    /// Change streams of sessions, and of clients without one, with their ids.
    heard_by: Vec<(mpsc::Sender<String>, Option<Value>)>,
}

/// A router, and the server behind it.
struct Stage {
    router: Router,
    server: Arc<Server>,
    state: Arc<Mutex<State>>,
}

impl Stage {
    async fn start() -> Self {
        Self::start_as(Sessions::Takes, |_| {}).await
    }

    async fn start_as(sessions: Sessions, change: impl FnOnce(&mut config::Server)) -> Self {
        let state = Arc::<Mutex<State>>::default();
        lock(&state).sessions = sessions;
        let script = state.clone();
        let server = Arc::new(Server::start(move |seen| answer(seen, &script)).await);
        Self::before(server, state, None, change)
    }

    /// Starts a new host before the same server.
    fn before(
        server: Arc<Server>,
        state: Arc<Mutex<State>>,
        directory: Option<&Path>,
        change: impl FnOnce(&mut config::Server),
    ) -> Self {
        let url = format!("http://127.0.0.1:{}/mcp", server.port).parse().unwrap();
        let mut entry = config::Server::new("it", Transport::Auto(Remote::new(url))).unwrap();
        let (max_retries, min_delay, max_delay) = (1000, Duration::from_millis(5), Duration::from_millis(20));
        entry.restart = config::Restart { max_retries, min_delay, max_delay };
        entry.prefix = Prefix::Never;
        change(&mut entry);
        let mut config = Config::default();
        config.servers.push(entry);
        let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
        let (manager, news) = Manager::start(config, &HashMap::new(), info.clone(), directory, Default::default());
        Self { router: Router::start(manager, news, info), server, state }
    }

    fn legacy(&self) -> Arc<Client> {
        self.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM, None)
    }

    fn modern(&self) -> Arc<Client> {
        self.router.modern(Principal::local(), &Raw::trusted(FORM.into())).unwrap()
    }

    fn begin(&self, client: &Arc<Client>, method: Method, params: &Value) -> Running {
        request(&self.router, client, method, params)
    }

    async fn ask(&self, client: &Arc<Client>, method: Method, params: &Value) -> Value {
        self.begin(client, method, params).whole_answer().await
    }

    /// Returns the era in which the server is called for this client.
    async fn served_as(&self, client: &Arc<Client>) -> String {
        text(&self.ask(client, Method::ToolsCall, &call("do")).await).to_owned()
    }

    /// Returns the tools that the client sees.
    async fn tools(&self, client: &Arc<Client>) -> Vec<String> {
        let list = self.ask(client, Method::ToolsList, &json!({})).await;
        let tools = list["tools"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns how many requests of this kind have arrived.
    fn count(&self, what: &str) -> usize {
        self.server.story().iter().filter(|seen| *seen == what).count()
    }

    /// Ends all sessions, and refuses new ones.
    fn close_sessions(&self) {
        let mut state = lock(&self.state);
        (state.sessions, state.open) = (Sessions::Refuses, BTreeSet::new());
        state.heard_by.retain(|(_, id)| id.is_some());
    }

    /// Announces to its watchers that a resource has changed.
    fn change(&self, uri: &str) {
        let state = lock(&self.state);
        for (stream, id) in &state.heard_by {
            let mut params = json!({ "uri": uri });
            if let Some(id) = id {
                params["_meta"] = json!({ meta::SUBSCRIPTION_ID: id });
            }
            let _ = stream.try_send(notice("notifications/resources/updated", &params));
        }
    }

    /// Ends the host, and waits until it has written what it knows.
    async fn end(self) {
        self.router.manager().shutdown().await;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

fn notice(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
}

fn said(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn answered(id: &Value, result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

/// The form that its tool `ask` shows.
fn form() -> Value {
    json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } })
}

fn tools(names: [&str; 3]) -> Value {
    let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
    json!({ "tools": names.map(tool) })
}

fn answer(seen: &Seen, state: &Mutex<State>) -> Reply {
    match seen.body["params"]["_meta"][meta::PROTOCOL_VERSION].is_string() {
        true => answer_stateless(seen, state),
        false => answer_in_session(seen, state),
    }
}

/// Answers without a session: asks by results.
fn answer_stateless(seen: &Seen, state: &Mutex<State>) -> Reply {
    let params = &seen.body["params"];
    let complete = |mut result: Value| {
        result["resultType"] = "complete".into();
        seen.result(&result)
    };
    match seen.body["method"].as_str().unwrap_or_default() {
        "server/discover" => {
            seen.result(&discovered(&json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } })))
        }
        "tools/list" => complete(tools(["ask", "do", "new"])),
        "resources/list" => complete(json!({ "resources": [{ "name": "a", "uri": "x:a" }] })),
        "resources/templates/list" => complete(json!({ "resourceTemplates": [] })),
        "tools/call" if params["name"] == "ask" && params["inputResponses"].is_null() => seen.result(&json!({
            "resultType": "input_required", "requestState": "state",
            "inputRequests": { "q": { "method": "elicitation/create", "params": form() } } })),
        "tools/call" => complete(said("modern")),
        "subscriptions/listen" => {
            let id = seen.body["id"].clone();
            let mut honored = params.clone();
            honored["_meta"] = json!({ meta::SUBSCRIPTION_ID: id });
            let (sender, reply) = stream([]);
            sender.try_send(notice("notifications/subscriptions/acknowledged", &honored)).unwrap();
            lock(state).heard_by.push((sender, Some(id)));
            reply
        }
        _ => seen.error(404, -32601, &json!({})),
    }
}

/// Answers in a session: asks by requests.
fn answer_in_session(seen: &Seen, state: &Mutex<State>) -> Reply {
    let method = seen.body["method"].as_str().unwrap_or_default();
    let mut state = lock(state);
    if method == "initialize" {
        return match state.sessions {
            Sessions::Refuses => seen.error(400, -32000, &json!({})),
            Sessions::SaysNothing => Reply::Silence,
            Sessions::Takes => {
                state.begun += 1;
                let id = format!("s-{}", state.begun);
                state.open.insert(id.clone());
                let mut result = initialized();
                result["capabilities"] =
                    json!({ "tools": { "listChanged": true }, "resources": { "subscribe": true } });
                Reply::Session(id, answered(&seen.body["id"], &result))
            }
        };
    }
    if !state.open.contains(seen.header("mcp-session-id")) {
        return Reply::Text(404, "");
    }
    if seen.verb == "GET" {
        let (sender, reply) = stream([]);
        state.heard_by.push((sender, None));
        return reply;
    }
    if seen.verb == "DELETE" {
        return Reply::Text(200, "");
    }
    if seen.body["result"].is_object() {
        let call = seen.body["id"].as_u64().and_then(|id| state.asking.remove(&id));
        let (stream, id) = call.expect("an answer to a question of its own");
        stream.try_send(answered(&id, &said("legacy, asked"))).unwrap();
        return Reply::Text(202, "");
    }
    match method {
        "tools/list" if state.holds_lists => {
            let (sender, reply) = stream([]);
            state.held.push((sender, seen.body["id"].clone()));
            reply
        }
        "tools/list" => seen.result(&tools(["ask", "do", "old"])),
        "resources/list" => seen.result(&json!({ "resources": [{ "name": "a", "uri": "x:a" }] })),
        "resources/templates/list" => seen.result(&json!({ "resourceTemplates": [] })),
        "resources/subscribe" => seen.result(&json!({})),
        "tools/call" if seen.body["params"]["name"] == "ask" => {
            let question = 100 + state.asking.len() as u64;
            let ask = json!({ "jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": form() });
            let (sender, reply) = stream([ask]);
            state.asking.insert(question, (sender, seen.body["id"].clone()));
            reply
        }
        "tools/call" => seen.result(&said("legacy")),
        _ if seen.body["id"].is_null() => Reply::Text(202, ""),
        _ => seen.error(200, -32601, &json!({})),
    }
}

fn accept() -> Value {
    json!({ "action": "accept", "content": {} })
}

const INITIALIZE: &str = "POST initialize";
const DISCOVER: &str = "POST server/discover";

#[tokio::test]
async fn each_client_of_a_server_of_both_eras_is_served_in_its_own_at_once() {
    let it = Stage::start().await;
    let (old, new) = (it.legacy(), it.modern());
    // Both are asked at the same time, each in its own way.
    let (asked, params) = (it.begin(&old, Method::ToolsCall, &call("ask")), call("ask"));
    let question = asked.question().await;
    let result = it.ask(&new, Method::ToolsCall, &params).await;
    assert_eq!(result["inputRequests"]["q"]["method"], "elicitation/create", "{result}");
    assert_eq!(question.method, Method::Elicit);
    assert!(question.params.unwrap().to_string().contains("requestedSchema"));
    let answer = it.ask(&new, Method::ToolsCall, &retry(&params, &result, &json!({ "q": accept() }))).await;
    assert_eq!(text(&answer), "modern");
    let outcome = Ok(Raw::from_value(&accept()));
    old.answer(Response { id: Some(question.id), outcome });
    assert_eq!(text(&asked.answer().await), "legacy, asked");
    // The lists and calls of each are of its own era.
    assert_eq!((it.tools(&old).await, it.tools(&new).await), (names("old"), names("new")));
    assert_eq!((it.served_as(&old).await.as_str(), it.served_as(&new).await.as_str()), ("legacy", "modern"));
    assert_eq!(it.count(INITIALIZE), 1);
    #[cfg(feature = "server")]
    {
        let status = it.router.manager().status().remove(0);
        assert!(status.both_eras);
        assert_eq!(status.revisions, ["2026-07-28", "2025-11-25"]);
    }
    it.end().await;
}

fn names(last: &str) -> Vec<String> {
    ["ask", "do", last].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_server_that_refuses_sessions_is_not_asked_again() {
    let directory = tempfile::tempdir().unwrap();
    let it = Stage::start_as(Sessions::Refuses, |_| {}).await;
    let (server, state) = (it.server.clone(), it.state.clone());
    it.end().await;
    for time in 0..2 {
        let it = Stage::before(server.clone(), state.clone(), Some(directory.path()), |_| {});
        for _ in 0..2 {
            let client = it.legacy();
            assert_eq!(it.served_as(&client).await, "modern");
            assert_eq!(it.tools(&client).await, names("new"));
        }
        assert_eq!(it.count(INITIALIZE), 1, "host {time}");
        it.end().await;
    }
}

#[tokio::test]
async fn what_takes_sessions_is_known_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let it = Stage::start().await;
    let (server, state) = (it.server.clone(), it.state.clone());
    it.end().await;
    let it = Stage::before(server.clone(), state.clone(), Some(directory.path()), |_| {});
    assert_eq!(it.served_as(&it.legacy()).await, "legacy");
    it.end().await;
    let discovered = server.story().iter().filter(|seen| *seen == DISCOVER).count();
    // The other lease is not needed for that.
    let it = Stage::before(server, state, Some(directory.path()), |entry| entry.start = config::Start::Lazy);
    assert_eq!(it.served_as(&it.legacy()).await, "legacy");
    assert_eq!(it.count(DISCOVER), discovered, "it is not asked what is known");
    assert_eq!(it.count(INITIALIZE), 2);
    it.end().await;
}

#[tokio::test]
async fn what_is_kept_for_the_next_start_is_of_one_era() {
    let directory = tempfile::tempdir().unwrap();
    let it = Stage::start().await;
    let (server, state) = (it.server.clone(), it.state.clone());
    it.end().await;
    let start = || {
        let it = Stage::before(server.clone(), state.clone(), Some(directory.path()), |_| {});
        it.router.manager().keep_listings(directory.path(), true);
        it
    };
    let it = start();
    let (old, new) = (it.legacy(), it.modern());
    assert_eq!(it.tools(&new).await, names("new"));
    while it.tools(&old).await != names("old") {
        // Its own list arrives as a change.
        let _ = old.mailbox().next().await;
    }
    it.end().await;
    // The session's lists are known even though no session is available, and though the other lists were read since.
    lock(&state).sessions = Sessions::SaysNothing;
    let it = start();
    let (old, new) = (it.legacy(), it.modern());
    assert_eq!(it.served_as(&new).await, "modern");
    assert_eq!(it.tools(&new).await, names("new"));
    let listed = timeout(Duration::from_secs(1), it.tools(&old)).await;
    assert_eq!(listed.expect("a list at once"), names("old"));
    it.end().await;
}

#[tokio::test]
async fn clients_go_on_without_a_session_once_one_is_refused_and_watch_what_they_watched() {
    let it = Stage::start().await;
    let (client, other) = (it.legacy(), it.legacy());
    assert_eq!(it.served_as(&client).await, "legacy");
    let answer = it.ask(&client, Method::ResourcesSubscribe, &json!({ "uri": "x:a" })).await;
    assert_eq!(answer, json!({}));
    it.change("x:a");
    assert_eq!(updated(&client).await, "x:a");
    it.close_sessions();
    // The session is over and a new one is refused: the same call continues without one.
    assert_eq!(it.served_as(&client).await, "modern");
    assert_eq!(it.served_as(&other).await, "modern");
    it.change("x:a");
    assert_eq!(updated(&client).await, "x:a", "it is watched where its client is now");
    assert_eq!(it.tools(&client).await, names("new"));
    lock(&it.state).sessions = Sessions::Takes;
    assert_eq!(it.served_as(&it.legacy()).await, "modern", "not asked again for a day");
    it.end().await;
}

/// Returns the next resource that the client hears has changed.
async fn updated(client: &Client) -> String {
    loop {
        if let Some(Message::Notification(notice)) = client.mailbox().next().await
            && notice.method == Method::ResourceUpdated
        {
            return notice.params.unwrap().text("uri").unwrap();
        }
    }
}

#[tokio::test]
async fn lists_never_wait_for_a_server_that_does_not_answer_initialize_and_calls_three_seconds() {
    let it = Stage::start_as(Sessions::SaysNothing, |_| {}).await;
    // The server is connected.
    assert_eq!(it.tools(&it.modern()).await, names("new"));
    let (client, begun) = (it.legacy(), Instant::now());
    let listed = timeout(Duration::from_secs(1), it.tools(&client)).await;
    assert_eq!(listed.expect("a list at once"), names("new"));
    it.server.until(INITIALIZE, 1).await;
    assert_eq!(it.served_as(&client).await, "modern");
    let took = begun.elapsed();
    assert!((Duration::from_millis(2900)..Duration::from_secs(20)).contains(&took), "{took:?}");
    // This session continues without one, at once.
    let again = timeout(Duration::from_secs(1), it.served_as(&client)).await;
    assert_eq!(again.expect("an answer at once"), "modern");
    assert_eq!(it.count(INITIALIZE), 1);
    // The next session asks again.
    lock(&it.state).sessions = Sessions::Takes;
    assert_eq!(it.served_as(&it.legacy()).await, "legacy");
    assert_eq!(it.served_as(&client).await, "modern", "its session began without");
    it.end().await;
}

#[tokio::test]
async fn a_list_of_the_older_era_is_news_once_it_is_there() {
    let it = Stage::start().await;
    lock(&it.state).holds_lists = true;
    assert_eq!(it.tools(&it.modern()).await, names("new"));
    let client = it.legacy();
    let listed = timeout(Duration::from_secs(1), it.tools(&client)).await;
    assert_eq!(listed.expect("a list at once"), names("new"));
    it.server.until("POST tools/list", 2).await;
    // A call to a tool that is in no list yet waits.
    let early = it.begin(&client, Method::ToolsCall, &call("old"));
    {
        let mut state = lock(&it.state);
        state.holds_lists = false;
        for (stream, id) in std::mem::take(&mut state.held) {
            stream.try_send(answered(&id, &tools(["ask", "do", "old"]))).unwrap();
        }
    }
    let told = client.mailbox().next().await;
    assert!(
        matches!(&told, Some(Message::Notification(notice)) if notice.method == Method::ToolsListChanged),
        "{told:?}"
    );
    assert_eq!(it.tools(&client).await, names("old"));
    assert_eq!(text(&early.answer().await), "legacy");
    it.end().await;
}

#[tokio::test]
async fn a_server_whose_era_is_given_or_that_all_share_is_not_asked() {
    for (era, sharing, served) in [
        (config::Era::Modern, Sharing::Auto, "modern"),
        (config::Era::Legacy, Sharing::Auto, "legacy"),
        (config::Era::Auto, Sharing::Host, "modern"),
    ] {
        let it = Stage::start_as(Sessions::Takes, |entry| (entry.era, entry.sharing) = (era, sharing)).await;
        let (old, new) = (it.legacy(), it.modern());
        assert_eq!((it.served_as(&old).await.as_str(), it.served_as(&new).await.as_str()), (served, served), "{era:?}");
        let other = if served == "modern" { INITIALIZE } else { DISCOVER };
        assert_eq!(it.count(other), 0, "{era:?} {sharing:?}");
        it.end().await;
    }
}

#[tokio::test]
async fn the_client_of_each_session_has_its_own_where_the_config_says_so() {
    let it = Stage::start_as(Sessions::Takes, |entry| entry.sharing = Sharing::Session).await;
    for client in [it.legacy(), it.legacy()] {
        for _ in 0..2 {
            assert_eq!(it.served_as(&client).await, "legacy");
        }
    }
    let calls: Vec<Seen> = it.server.seen().into_iter().filter(|seen| seen.what() == "POST tools/call").collect();
    let sessions: BTreeSet<&str> = calls.iter().map(|seen| seen.header("mcp-session-id")).collect();
    assert_eq!((calls.len(), sessions.len()), (4, 2));
    it.end().await;
}
