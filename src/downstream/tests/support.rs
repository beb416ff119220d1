//! A scripted router behind a door, and a client that speaks bytes.

#![cfg_attr(not(feature = "server"), allow(dead_code, reason = "half of it is for the HTTP door"))]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::config::{Config, HostSettings, Limits, Prefix, Server, Stdio, Transport};
use crate::in_process::{InProcess, Invocation};
use crate::manager::Manager;
use crate::protocol::{ErrorObject, Message, Method, Notification, Outcome, Raw};
use crate::registry::Kind;
use crate::router::Router;
use crate::upstream::Starter;

/// A router with one in-process server, and the test's access to it.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) router: Router,
    script: Arc<Script>,
}

#[derive(Default)]
struct Script {
    release: Notify,
    running: AtomicUsize,
}

/// The tools: `echo` answers its arguments; `slow` answers when released; `progress` reports once, waits to be
/// released, reports again and answers; `quick` reports and answers at once; `hang_up` is `progress`, but asks to close
/// the stream in between; `big` answers a mebibyte. Not listed: `touch` and `change`; `bulk`, which answers four
/// mebibytes; `stream`, which does the same after a report; `held`, which does so when released; and `chatty`, which
/// reports four thousand times.
const TOOLS: [&str; 6] = ["echo", "slow", "progress", "quick", "hang_up", "big"];

pub(super) async fn stage() -> Stage {
    stage_with(|_| {}).await
}

pub(super) async fn stage_with(change: impl FnOnce(&mut Limits)) -> Stage {
    stage_of(change, 0).await
}

/// A stage with this many additional large tools: about twenty make a list of two pages.
pub(super) async fn stage_of(change: impl FnOnce(&mut Limits), large: usize) -> Stage {
    staged(|host| change(&mut host.limits), large).await
}

/// A stage with other settings of the host from the start.
pub(super) async fn staged(change: impl FnOnce(&mut HostSettings), large: usize) -> Stage {
    let script = Arc::<Script>::default();
    let server = TOOLS.into_iter().fold(InProcess::new("script", "1"), |server, name| {
        let definition = Raw::from_value(&json!({"name": name, "inputSchema": {"type": "object"}}));
        let script = script.clone();
        server.tool(definition, move |invocation| script.clone().run(name, invocation).boxed())
    });
    let resource = Raw::from_value(&json!({"uri": "test://watched", "name": "watched"}));
    let server = server
        .resource(resource, |_| async { Ok(Raw::from_value(&json!({"contents": []}))) }.boxed())
        .unlisted_tool("lacking", |_| async { Err(ErrorObject::method_not_found("something of its own")) }.boxed())
        .prompt(Raw::from_value(&json!({"name": "hello"})), |_| {
            async { Ok(Raw::from_value(&json!({"messages": []}))) }.boxed()
        })
        .unlisted_tool("touch", |invocation| async move { touch(&invocation).await }.boxed())
        .unlisted_tool("change", |invocation| async move { change_tools(&invocation).await }.boxed());
    let server = ["bulk", "stream", "held", "chatty"].into_iter().fold(server, |server, name| {
        let script = script.clone();
        server.unlisted_tool(name, move |invocation| script.clone().run(name, invocation).boxed())
    });
    let server = (0..large).fold(server, |server, number| {
        let text = "x".repeat(240 << 10);
        let name = format!("large{number}");
        let definition = json!({"name": name, "description": text, "inputSchema": {"type": "object"}});
        server.tool(Raw::from_value(&definition), |_| async { Ok(Raw::empty_object()) }.boxed())
    });
    let server = crate::in_process::Running::new(server);
    let mut entry = Server::new("script", Transport::Stdio(Stdio::default())).unwrap();
    entry.prefix = Prefix::Never;
    let mut config = Config::default();
    config.servers.push(entry);
    // Tests that let time pass count what comes.
    config.host.heartbeat = Duration::ZERO;
    change(&mut config.host);
    let start: Starter = Arc::new(move |wire, tasks| server.start(wire, tasks));
    let info = Raw::from_value(&json!({"name": "test", "version": "0"}));
    let memory = HashMap::from([("script".to_owned(), start)]);
    let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
    let router = Router::start(manager, news, info);
    until(|| router.manager().status()[0].ready_after_ms.is_some()).await;
    Stage { router, script }
}

impl Stage {
    /// Lets one waiting call continue.
    pub(super) fn release(&self) {
        self.script.release.notify_one();
    }

    /// Returns the number of calls that run in the server.
    pub(super) fn running(&self) -> usize {
        self.script.running.load(Ordering::SeqCst)
    }

    /// Reports whether any client has a request in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.router.present().iter().any(|client| !client.is_idle())
    }

    /// Returns the bytes that wait for all clients, except for those being cut off.
    pub(super) fn queued(&self) -> usize {
        self.router.queues().waiting()
    }

    /// Returns the bytes that are held for all clients.
    pub(super) fn kept(&self) -> usize {
        self.router.queues().used()
    }

    /// Returns the number of open sessions.
    pub(super) fn sessions(&self) -> usize {
        self.router.present().len()
    }

    /// Sends the newest session a notification outside of its calls.
    pub(super) fn announce(&self, params: Option<Raw>) {
        let message = Message::Notification(Notification { method: Method::ToolsListChanged, params });
        let present = self.router.present();
        present.iter().rfind(|client| !client.revision().is_modern()).unwrap().mailbox().put(message);
    }
}

impl Script {
    async fn run(self: Arc<Self>, name: &'static str, invocation: Invocation) -> Outcome {
        self.running.fetch_add(1, Ordering::SeqCst);
        let outcome = tokio::select! {
            result = self.answer(name, &invocation) => Ok(Raw::from_value(&result)),
            // The answer is discarded.
            () = invocation.cancelled() => Ok(Raw::empty_object()),
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    async fn answer(&self, name: &str, invocation: &Invocation) -> Value {
        let text = match name {
            "echo" => invocation.arguments.to_string(),
            "big" => "x".repeat(1 << 20),
            // More than the sockets of both sides hold.
            "bulk" | "stream" | "held" => "x".repeat(4 << 20),
            _ => "done".to_owned(),
        };
        if name == "chatty" {
            for step in 0..4000 {
                invocation.progress(f64::from(step), None, &"x".repeat(4000)).await;
            }
        }
        if matches!(name, "progress" | "quick" | "hang_up" | "stream") {
            invocation.progress(1.0, None, "one").await;
        }
        if name == "hang_up" {
            invocation.hang_up(Duration::from_millis(500)).await;
        }
        if matches!(name, "slow" | "progress" | "hang_up" | "held") {
            self.release.notified().await;
        }
        if matches!(name, "progress" | "hang_up") {
            invocation.progress(2.0, None, "two").await;
        }
        json!({"content": [{"type": "text", "text": text}]})
    }
}

/// Reports that the resource `uri` changed, and answers whether `test://watched` is watched.
async fn touch(invocation: &Invocation) -> Outcome {
    let uri = invocation.arguments.text("uri").unwrap_or_default();
    invocation.notify(Method::ResourceUpdated, Raw::from_value(&json!({"uri": uri}))).await;
    let text = invocation.is_watched("test://watched").to_string();
    Ok(Raw::from_value(&json!({"content": [{"type": "text", "text": text}]})))
}

/// Offers a tool `extra`, with the given schema or any, or withdraws it.
async fn change_tools(invocation: &Invocation) -> Outcome {
    if !invocation.withdraw(Kind::Tools, "extra").await {
        let schema = invocation.arguments.member("schema");
        let schema: Value = schema.map_or_else(|| json!({"type": "object"}), |schema| schema.read().unwrap());
        let definition = Raw::from_value(&json!({"name": "extra", "inputSchema": schema}));
        invocation.offer(Kind::Tools, definition, |_| async { Ok(Raw::empty_object()) }.boxed()).await;
    }
    Ok(Raw::from_value(&json!({"content": [{"type": "text", "text": ""}]})))
}

/// Returns the text that a tool answered.
pub(super) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap()
}

/// A timeout that no machine reaches unless the test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition without advancing time.
pub(super) async fn until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "it is not so after {PATIENCE:?}");
        tokio::task::yield_now().await;
    }
}

/// Waits for a condition that depends on a timer.
pub(super) async fn until_some_time(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "it is not so after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Advances the paused clock.
pub(super) async fn rest(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

pub(super) fn call(id: u64, tool: &str) -> String {
    let params = json!({"name": tool, "arguments": {"id": id}, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

pub(super) fn initialize(revision: &str) -> String {
    let client = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

/// A ping with this nesting depth, envelope included.
pub(super) fn nested(depth: usize) -> String {
    let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":{open}{close}}}}}"#)
}

/// A modern request of a client that can be asked nothing.
pub(super) fn modern(id: impl Into<Value>, method: &str, mut params: Value) -> String {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    });
    if let Some(more) = params["_meta"].as_object() {
        meta.as_object_mut().unwrap().extend(more.clone());
    }
    params["_meta"] = meta;
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}).to_string()
}

/// A modern tool call; its progress token is its id.
pub(super) fn modern_call(id: impl Into<Value>, tool: &str) -> String {
    let id = id.into();
    let params = json!({"name": tool, "arguments": {"id": id}, "_meta": {"progressToken": id}});
    modern(id, "tools/call", params)
}

/// A `subscriptions/listen` request.
pub(super) fn listen(id: impl Into<Value>, filter: Value) -> String {
    modern(id, "subscriptions/listen", Value::Object([("notifications".to_owned(), filter)].into_iter().collect()))
}

/// A modern call of a tool that changes something.
pub(super) fn act(tool: &str, arguments: Value) -> String {
    let mut params = json!({"name": tool});
    params["arguments"] = arguments;
    modern("act", "tools/call", params)
}

/// Returns the id of the listen request that a message belongs to.
pub(super) fn subscription(message: &Value) -> &Value {
    let of = if message["method"].is_null() { "result" } else { "params" };
    &message[of]["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

#[cfg(feature = "server")]
pub(super) use self::http::*;
#[cfg(feature = "server")]
mod http {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::{BearerClient, HostAuth};
    pub(crate) use crate::downstream::http::Settings;
    use crate::downstream::http::serve;

    /// A door on its own port.
    pub(crate) struct House {
        pub(crate) stage: Stage,
        pub(crate) port: u16,
        pub(crate) stop: CancellationToken,
        pub(crate) served: JoinHandle<std::io::Result<()>>,
    }

    pub(crate) async fn house() -> House {
        house_of(stage().await).await
    }

    pub(crate) async fn house_of(stage: Stage) -> House {
        house_with(stage, Settings::default()).await
    }

    /// The tokens of two clients.
    pub(crate) const ANN: &str = "the token of ann";
    pub(crate) const BOB: &str = "the token of bob";

    /// Configures the stage for clients with these tokens only.
    pub(crate) fn for_alone(stage: Stage, clients: &[(&str, &str)]) -> Stage {
        let clients = clients.iter().map(|(name, token)| BearerClient::of_token(name, token).unwrap()).collect();
        stage.router.manager().configure(|settings| settings.auth = HostAuth::Bearer(clients));
        stage
    }

    /// Configures the stage for [`ANN`] and [`BOB`] only.
    pub(crate) fn bearer(stage: Stage) -> Stage {
        for_alone(stage, &[("ann", ANN), ("bob", BOB)])
    }

    /// Configures the stage so that no session is taken up again: one that made room, or was idle too long, is gone.
    pub(crate) fn forgetful(stage: Stage) -> Stage {
        stage.router.manager().configure(|settings| settings.session_life = Duration::ZERO);
        stage
    }

    pub(crate) async fn house_with(stage: Stage, settings: Settings) -> House {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let served = tokio::spawn(serve(stage.router.clone(), listener, settings, stop.clone()));
        House { stage, port, stop, served }
    }

    impl House {
        pub(crate) async fn connect(&self) -> Peer {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
            Peer { stream: BufReader::new(stream), port: self.port, session: None, token: None }
        }

        /// Connects a client with a session of this revision.
        pub(crate) async fn client(&self, revision: &str) -> Peer {
            self.client_as(None, revision).await
        }

        /// Connects a client with a token.
        pub(crate) async fn client_as(&self, token: Option<&'static str>, revision: &str) -> Peer {
            let mut peer = self.connect().await;
            peer.token = token;
            let head = peer.post(&initialize(revision)).await;
            assert_eq!(head.status, 200);
            peer.body(&head).await;
            peer.session = head.headers.get("mcp-session-id").cloned();
            assert!(peer.session.is_some());
            peer
        }

        /// Opens another connection of the same client.
        pub(crate) async fn again(&self, peer: &Peer) -> Peer {
            let mut again = self.connect().await;
            again.session.clone_from(&peer.session);
            again.token = peer.token;
            again
        }
    }

    impl House {
        /// Resumes a stream after an event; retries until the end of the old connection is noticed.
        pub(crate) async fn resumed(&self, peer: &Peer, last: &str) -> Peer {
            loop {
                let mut back = self.again(peer).await;
                let head = back.get(&format!("Last-Event-ID: {last}\r\n")).await;
                if head.status == 200 {
                    return back;
                }
                assert_eq!(head.status, 409);
            }
        }
    }

    /// One connection of a client.
    pub(crate) struct Peer {
        pub(crate) stream: BufReader<TcpStream>,
        port: u16,
        pub(crate) session: Option<String>,
        /// The token that it sends.
        pub(crate) token: Option<&'static str>,
    }

    #[derive(Debug)]
    pub(crate) struct Head {
        pub(crate) status: u16,
        pub(crate) headers: HashMap<String, String>,
    }

    impl Head {
        pub(crate) fn kind(&self) -> &str {
            self.headers.get("content-type").map_or("", String::as_str)
        }
    }

    impl Peer {
        /// Sends a raw request; `HOST` becomes our own.
        pub(crate) async fn send(&mut self, request: &str) -> Head {
            let request = request.replace("HOST", &format!("127.0.0.1:{}", self.port));
            self.stream.write_all(request.as_bytes()).await.unwrap();
            self.head().await
        }

        /// Sends a request; returns the status, unless the connection closes first.
        pub(crate) async fn send_if(&mut self, request: &str) -> Option<u16> {
            let request = request.replace("HOST", &format!("127.0.0.1:{}", self.port));
            self.stream.write_all(request.as_bytes()).await.ok()?;
            let mut line = String::new();
            self.stream.read_line(&mut line).await.ok()?;
            line.split(' ').nth(1)?.parse().ok()
        }

        pub(crate) fn request(&self, method: &str, more: &str, body: &str) -> String {
            let session = self.session.as_ref().map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
            let token = self.token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
            let length = body.len();
            format!(
                "{method} /mcp HTTP/1.1\r\nHost: HOST\r\nAccept: application/json, text/event-stream\r\n\
                 Content-Type: application/json\r\n{token}{session}{more}Content-Length: {length}\r\n\r\n{body}"
            )
        }

        pub(crate) async fn post(&mut self, body: &str) -> Head {
            let request = self.request("POST", "", body);
            self.send(&request).await
        }

        /// Returns the request for a modern message, with its headers.
        pub(crate) fn modern(&self, message: &str) -> String {
            let body: Value = serde_json::from_str(message).unwrap();
            let params = &body["params"];
            let name = [&params["name"], &params["uri"]].into_iter().find_map(Value::as_str);
            let name = name.map_or_else(String::new, |name| format!("Mcp-Name: {name}\r\n"));
            let method = body["method"].as_str().unwrap();
            let more = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}");
            self.request("POST", &more, message)
        }

        /// Sends a modern message.
        pub(crate) async fn post_modern(&mut self, message: &str) -> Head {
            let request = self.modern(message);
            self.send(&request).await
        }

        /// Sends a modern message without waiting for the answer.
        pub(crate) async fn tell_modern(&mut self, message: &str) {
            let request = self.modern(message).replace("HOST", &format!("127.0.0.1:{}", self.port));
            self.stream.write_all(request.as_bytes()).await.unwrap();
        }

        /// Sends a modern message; returns the status and the JSON answer.
        pub(crate) async fn ask_modern(&mut self, message: &str) -> (u16, Value) {
            let head = self.post_modern(message).await;
            assert_eq!(head.kind(), "application/json");
            (head.status, serde_json::from_str(&self.body(&head).await).unwrap())
        }

        /// Returns the next message of a stream without event ids; skips comments.
        pub(crate) async fn message(&mut self) -> Option<Value> {
            loop {
                let mut chunk = self.chunk().await?;
                // A large message comes in pieces.
                while !chunk.ends_with("\n\n") {
                    chunk += &self.chunk().await?;
                }
                if let Some(data) = chunk.strip_prefix("data: ") {
                    return Some(serde_json::from_str(data.trim_end()).unwrap());
                }
                assert_eq!(chunk, ":\n\n");
            }
        }

        pub(crate) async fn get(&mut self, more: &str) -> Head {
            let request = self.request("GET", more, "");
            self.send(&request).await
        }

        /// Sends a request without waiting for the answer.
        pub(crate) async fn tell(&mut self, body: &str) {
            let request = self.request("POST", "", body).replace("HOST", &format!("127.0.0.1:{}", self.port));
            self.stream.write_all(request.as_bytes()).await.unwrap();
        }

        /// Sends a request that is answered as JSON.
        pub(crate) async fn ask(&mut self, body: &str) -> Value {
            let head = self.post(body).await;
            assert_eq!((head.status, head.kind()), (200, "application/json"));
            serde_json::from_str(&self.body(&head).await).unwrap()
        }

        pub(crate) async fn head(&mut self) -> Head {
            let mut lines = Vec::new();
            loop {
                let line = self.line().await;
                if line.is_empty() {
                    break;
                }
                lines.push(line);
            }
            let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
            let pairs = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
            Head { status, headers: pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect() }
        }

        /// Reads the whole body.
        pub(crate) async fn body(&mut self, head: &Head) -> String {
            if head.headers.contains_key("transfer-encoding") {
                let mut all = String::new();
                while let Some(chunk) = self.chunk().await {
                    all.push_str(&chunk);
                }
                return all;
            }
            let length = head.headers.get("content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).await.unwrap();
            String::from_utf8(body).unwrap()
        }

        /// Returns the next event of a stream in short form: its id and content.
        pub(crate) async fn event(&mut self) -> Option<String> {
            Some(short(&self.chunk().await?))
        }

        /// Returns all events up to the end of the stream.
        pub(crate) async fn events(&mut self) -> Vec<String> {
            let mut all = Vec::new();
            while let Some(event) = self.event().await {
                all.push(event);
            }
            all
        }

        /// Returns the next piece of a stream; `None` at its end.
        pub(crate) async fn chunk(&mut self) -> Option<String> {
            // A connection that is cut ends without a final chunk.
            let size = usize::from_str_radix(&self.line().await, 16).ok()?;
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).await.ok()?;
            chunk.truncate(size);
            (size > 0).then(|| String::from_utf8(chunk).unwrap())
        }

        async fn line(&mut self) -> String {
            let mut line = String::new();
            match self.stream.read_line(&mut line).await {
                Ok(_) => line.trim_end().to_owned(),
                Err(_) => String::new(),
            }
        }
    }

    /// Formats an event: `1-0` without data, `1-1 progress 1`, `1-2 answer 7`, `1-3 METHOD`; anything else stays as it
    /// is.
    fn short(chunk: &str) -> String {
        let Some((id, data)) = chunk.strip_prefix("id: ").and_then(|rest| rest.split_once("\ndata: ")) else {
            return chunk.trim_end().to_owned();
        };
        let data = data.strip_suffix("\n\n").unwrap();
        // What follows says of which request the stream is.
        let id = id.split('~').next().unwrap();
        if data.is_empty() {
            return id.to_owned();
        }
        let message: Value = serde_json::from_str(data).unwrap();
        match message["method"].as_str() {
            Some("notifications/progress") => format!("{id} progress {}", message["params"]["progress"]),
            Some(method) => format!("{id} {method}"),
            None => format!("{id} answer {}", message["id"]),
        }
    }
}
