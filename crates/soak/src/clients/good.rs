//! The healthy clients: of every revision, in sessions and without, some with a stream open; each calls at a steady
//! pace and checks every response against its request.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// A kind of healthy client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    name: &'static str,
    revision: &'static str,
    way: Way,
    /// Whether it keeps a notification stream open.
    listens: bool,
    tools: [&'static str; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Session,
    Modern,
    /// Like `Modern`, with a new connection for each call.
    Newcomer,
    Sse,
    Pipe,
}

const ECHO: [&str; 2] = ["good__echo", "work__echo"];
const MODERN: &str = "2026-07-28";

/// One of each kind.
pub(crate) const KINDS: [Kind; 8] = [
    Kind { name: "2025-11-25 with a stream", revision: "2025-11-25", way: Way::Session, listens: true, tools: ECHO },
    Kind {
        name: "2025-11-25 with progress",
        revision: "2025-11-25",
        way: Way::Session,
        listens: false,
        tools: ["work__steps"; 2],
    },
    Kind { name: "2025-06-18", revision: "2025-06-18", way: Way::Session, listens: false, tools: ECHO },
    Kind { name: "2025-03-26", revision: "2025-03-26", way: Way::Session, listens: false, tools: ECHO },
    Kind { name: "2024-11-05", revision: "2024-11-05", way: Way::Sse, listens: true, tools: ECHO },
    Kind { name: "2026-07-28 that listens", revision: MODERN, way: Way::Modern, listens: true, tools: ECHO },
    Kind {
        name: "2026-07-28, a connection per call",
        revision: MODERN,
        way: Way::Newcomer,
        listens: false,
        tools: ECHO,
    },
    Kind { name: "stdio", revision: "2025-11-25", way: Way::Pipe, listens: false, tools: ECHO },
];

/// Time between two calls of one client.
const PACE: Duration = Duration::from_millis(25);
/// Time before a refused call is retried.
const AGAIN: Duration = Duration::from_millis(20);
/// The id of a listening request; calls never get that far.
const LISTEN: u64 = 1 << 40;
/// When a call without a response counts as lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// What all of them observed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Durations of calls from their first attempt, by client.
    times: RefCell<BTreeMap<&'static str, Vec<Duration>>>,
    /// Attempts that were refused for now, with a time to retry.
    pub(crate) refused: Cell<u64>,
    /// Attempts whose connection was closed before any response.
    pub(crate) broken: Cell<u64>,
    /// Sessions in use that were not known any more.
    pub(crate) gone: Cell<u64>,
    /// Streams that the host ended cleanly, so that their clients listened again.
    pub(crate) anew: Cell<u64>,
    /// Other faults: how many, and the first of them.
    wrong: Cell<u64>,
    first: RefCell<Vec<String>>,
    over: Cell<bool>,
}

/// How long the calls of a phase took.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) count: usize,
    pub(crate) p99: Duration,
    pub(crate) most: Duration,
    /// The client with the longest 99th percentile.
    pub(crate) slowest: (&'static str, Duration),
}

impl Seen {
    pub(crate) fn end(&self) {
        self.over.set(true);
    }

    pub(crate) fn wrong(&self) -> Option<String> {
        let count = self.wrong.get();
        (count > 0).then(|| format!("{count} times a healthy client was wronged: {}", self.first.borrow().join(" / ")))
    }

    fn note(&self, kind: Kind, what: &str) {
        self.wrong.set(self.wrong.get() + 1);
        let mut first = self.first.borrow_mut();
        if first.len() < 3 {
            first.push(format!("{}: {}", kind.name, what.chars().take(400).collect::<String>()));
        }
    }

    /// Returns the measurements since the last call.
    pub(crate) fn take_times(&self) -> Option<Times> {
        let times = self.times.take();
        let p99 = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times.get(times.len() * 99 / 100).copied()
        };
        let slowest = times.iter().filter_map(|(name, times)| Some((*name, p99(times.clone())?)));
        let slowest = slowest.max_by_key(|(_, time)| *time)?;
        let all = times.into_values().flatten().collect::<Vec<_>>();
        Some(Times { count: all.len(), most: all.iter().max().copied()?, p99: p99(all)?, slowest })
    }
}

/// Where the clients connect.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) origin: String,
    pub(crate) token: String,
    pub(crate) host: &'a Path,
    pub(crate) home: &'a Path,
}

type Http = hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>;

/// The outcome of one attempt.
enum Outcome {
    Answer(Value),
    /// 503, with a time to retry.
    Refused,
    /// No response at all.
    Broken,
    /// The session is unknown.
    Gone,
    Wrong(String),
}

/// An open client.
pub(crate) struct Client {
    kind: Kind,
    http: Http,
    url: String,
    token: String,
    session: Option<String>,
    /// Responses expected on a stream, by request id.
    waiting: RefCell<HashMap<u64, oneshot::Sender<Value>>>,
    pipe: Option<mpsc::Sender<String>>,
    /// Its host, over stdio.
    _host: Option<Child>,
    /// Whether its listening request was answered.
    ended: Cell<bool>,
    seen: Rc<Seen>,
}

impl Client {
    /// Opens a client, ready for its first call.
    pub(crate) async fn open(kind: Kind, place: &Place<'_>, seen: &Rc<Seen>) -> Result<Rc<Self>, String> {
        let mut http = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        if kind.way == Way::Newcomer {
            http.pool_max_idle_per_host(0);
        }
        let mut client = Self {
            kind,
            http: http.build_http(),
            url: format!("{}/mcp", place.origin),
            token: place.token.clone(),
            session: None,
            waiting: RefCell::default(),
            pipe: None,
            _host: None,
            ended: Cell::default(),
            seen: seen.clone(),
        };
        match kind.way {
            Way::Modern | Way::Newcomer => {}
            Way::Session => {
                let response = client.send(&client.hello()).await.map_err(|_| "no answer to initialize")?;
                let session = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
                client.session = Some(session.ok_or_else(|| format!("no session: {}", response.status()))?.to_owned());
                client.send(&begun()).await.map_err(|_| "no answer to a notice")?;
            }
            Way::Sse => return client.over_sse(&place.origin).await,
            Way::Pipe => return client.over_pipe(place).await,
        }
        let client = Rc::new(client);
        if kind.listens {
            client.listen().await?;
        }
        Ok(client)
    }

    fn hello(&self) -> Value {
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": { "protocolVersion": self.kind.revision,
            "capabilities": {}, "clientInfo": { "name": "good", "version": "1" } } })
    }

    /// Opens its revision's notification stream, which must not end before the client does.
    async fn listen(self: &Rc<Self>) -> Result<(), String> {
        let response = if self.kind.way == Way::Modern {
            let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["shared://one"] });
            self.send(&self.message(LISTEN, "subscriptions/listen", json!({ "notifications": filter }))).await
        } else {
            let request = self.head(hyper::Request::get(&self.url)).body(Full::default());
            self.http.request(request.map_err(|error| error.to_string())?).await
        };
        let response = response.map_err(|error| format!("no stream: {error}"))?;
        if response.status() != 200 {
            return Err(format!("no stream: {}", response.status()));
        }
        self.clone().read(response, Vec::new());
        Ok(())
    }

    /// Reads a stream to its end.
    fn read(self: Rc<Self>, response: Response<Incoming>, mut bytes: Vec<u8>) {
        tokio::task::spawn_local(async move {
            let mut stream = response.into_body();
            while let Some(Ok(piece)) = stream.frame().await {
                bytes.extend_from_slice(piece.data_ref().map_or(&[][..], |data| &data[..]));
                while let Some(end) = bytes.windows(2).position(|pair| pair == b"\n\n") {
                    let event = bytes.drain(..end + 2).collect::<Vec<_>>();
                    let event = String::from_utf8_lossy(&event).into_owned();
                    let data = event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
                    data.filter(|data| !data.is_empty()).for_each(|data| self.take(data));
                }
            }
            if !self.seen.over.get() {
                Box::pin(self.listen_anew()).await;
            }
        });
    }

    /// Handles the end of its stream: one that the host ended cleanly is reopened; any other was lost.
    async fn listen_anew(self: Rc<Self>) {
        if !self.ended.take() {
            return self.seen.note(self.kind, "its stream ended");
        }
        self.seen.anew.set(self.seen.anew.get() + 1);
        while let Err(wrong) = self.listen().await {
            if !wrong.contains("503") {
                return self.seen.note(self.kind, &wrong);
            }
            sleep(AGAIN).await;
        }
    }

    /// Takes a message of a stream, or a line of stdio.
    fn take(&self, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let method = message["method"].as_str();
        if method.is_some_and(|method| method.starts_with("notifications/")) {
            return;
        }
        let id = message["id"].as_u64().filter(|_| method.is_none());
        if id == Some(LISTEN) {
            self.ended.set(message["result"].is_object());
            return;
        }
        let waits = id.and_then(|id| self.waiting.borrow_mut().remove(&id));
        match waits {
            Some(waits) => {
                // The caller may have timed out, which was recorded.
                let _ = waits.send(message);
            }
            None => self.seen.note(self.kind, &format!("a message that it did not ask for: {text}")),
        }
    }

    /// Opens a client of HTTP+SSE: all responses come on one stream.
    async fn over_sse(mut self, origin: &str) -> Result<Rc<Self>, String> {
        let request = self.head(hyper::Request::get(format!("{origin}/sse"))).body(Full::default());
        let response = self.http.request(request.map_err(|error| error.to_string())?).await;
        let mut response = response.map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let path = loop {
            let piece =
                response.frame().await.ok_or("a stream without an endpoint")?.map_err(|error| error.to_string())?;
            bytes.extend_from_slice(piece.data_ref().map_or(&[][..], |data| &data[..]));
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((first, rest)) = text.split_once("\n\n") {
                let path = first.lines().find_map(|line| line.strip_prefix("data:")).ok_or("no endpoint")?;
                bytes = rest.as_bytes().to_vec();
                break path.trim().to_owned();
            }
        };
        self.url = format!("{origin}{path}");
        let client = Rc::new(self);
        client.clone().read(response, bytes);
        client.shake().await?;
        Ok(client)
    }

    /// Opens a client with its own host over stdio, of the same config.
    async fn over_pipe(mut self, place: &Place<'_>) -> Result<Rc<Self>, String> {
        let mut command = Command::new(place.host);
        command.arg("stdio").arg("--config").arg(super::stdio_config(place.home));
        super::environment(command.as_std_mut(), place.home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut host = command.spawn().map_err(|error| error.to_string())?;
        let (mut input, output) = (host.stdin.take().ok_or("no stdin")?, host.stdout.take().ok_or("no stdout")?);
        let (out, mut lines) = mpsc::channel::<String>(64);
        tokio::task::spawn_local(async move {
            while let Some(line) = lines.recv().await {
                if input.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        (self.pipe, self._host) = (Some(out), Some(host));
        let client = Rc::new(self);
        let reader = client.clone();
        tokio::task::spawn_local(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                reader.take(&line);
            }
            if !reader.seen.over.get() {
                reader.seen.note(reader.kind, "its host ended");
            }
        });
        client.shake().await?;
        Ok(client)
    }

    /// Performs the handshake if responses come on a stream.
    async fn shake(&self) -> Result<(), String> {
        match timeout(PATIENCE, self.ask(0, &self.hello())).await {
            Ok(Outcome::Answer(_)) => {}
            _ => return Err(format!("{}: no answer to initialize", self.kind.name)),
        }
        match &self.pipe {
            Some(pipe) => pipe.send(begun().to_string()).await.map_err(|_| "the pipe is closed".to_owned()),
            None => self.send(&begun()).await.map(drop).map_err(|error| error.to_string()),
        }
    }

    /// Calls until the phase is over.
    pub(crate) async fn run(self: Rc<Self>, number: usize) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0;
        while !self.seen.over.get() {
            pace.tick().await;
            count += 1;
            let text = format!("{number}-{count}");
            let begun = Instant::now();
            let tool = self.kind.tools[usize::from(count % 2 == 0)];
            let tries = self.call(&mut count, tool, &text);
            match timeout(PATIENCE, tries).await {
                Ok(true) => {
                    self.seen.times.borrow_mut().entry(self.kind.name).or_default().push(begun.elapsed());
                }
                Ok(false) => {}
                Err(_) => self.seen.note(self.kind, &format!("call {text} has no answer after {PATIENCE:?}")),
            }
        }
    }

    /// Makes one call, retried while it is refused, and reports whether it got the right response. A refused call was
    /// not executed, so a retry is a new request.
    async fn call(&self, count: &mut u64, tool: &str, text: &str) -> bool {
        loop {
            let id = *count;
            let mut params = json!({ "name": tool, "arguments": { "text": text } });
            if tool.ends_with("steps") {
                params["_meta"] = json!({ "progressToken": id });
            }
            let seen = &self.seen;
            match self.ask(id, &self.message(id, "tools/call", params)).await {
                Outcome::Answer(answer) => {
                    let is_right = answer["id"] == id && answer["result"]["content"][0]["text"] == text;
                    if !is_right {
                        seen.note(self.kind, &format!("call {text} was answered {answer}"));
                    }
                    return is_right;
                }
                Outcome::Refused => seen.refused.set(seen.refused.get() + 1),
                Outcome::Broken => seen.broken.set(seen.broken.get() + 1),
                Outcome::Gone => {
                    seen.gone.set(seen.gone.get() + 1);
                    return false;
                }
                Outcome::Wrong(what) => {
                    seen.note(self.kind, &format!("call {text}: {what}"));
                    return false;
                }
            }
            *count += 1;
            sleep(AGAIN).await;
        }
    }

    fn message(&self, id: u64, method: &str, mut params: Value) -> Value {
        if self.kind.revision == MODERN {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    fn head(&self, request: http::request::Builder) -> http::request::Builder {
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", format!("Bearer {}", self.token));
        match &self.session {
            Some(session) => {
                request.header("mcp-session-id", session).header("mcp-protocol-version", self.kind.revision)
            }
            None => request,
        }
    }

    async fn send(&self, message: &Value) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let mut request = self.head(hyper::Request::post(&self.url));
        if self.kind.revision == MODERN {
            request = request.header("mcp-protocol-version", MODERN);
            request = request.header("mcp-method", message["method"].as_str().unwrap_or_default());
            if let Some(name) = message["params"]["name"].as_str() {
                request = request.header("mcp-name", name);
            }
        }
        // None of these headers is invalid.
        let request = request.body(Full::from(message.to_string())).unwrap_or_default();
        self.http.request(request).await
    }

    /// Makes one attempt.
    async fn ask(&self, id: u64, message: &Value) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let on_stream = matches!(self.kind.way, Way::Sse | Way::Pipe);
        if on_stream {
            self.waiting.borrow_mut().insert(id, answer);
        }
        if let Some(pipe) = &self.pipe {
            if pipe.send(message.to_string()).await.is_err() {
                return Outcome::Wrong("the pipe is closed".to_owned());
            }
        } else {
            match self.post(id, message).await {
                Outcome::Answer(_) if on_stream => {}
                other => {
                    self.waiting.borrow_mut().remove(&id);
                    return other;
                }
            }
        }
        match answered.await {
            Ok(answer) => Outcome::Answer(answer),
            Err(_) => Outcome::Wrong("its stream ended before the answer".to_owned()),
        }
    }

    async fn post(&self, id: u64, message: &Value) -> Outcome {
        let Ok(response) = self.send(message).await else { return Outcome::Broken };
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let Ok(body) = response.into_body().collect().await else {
            return Outcome::Wrong("an answer that breaks off".to_owned());
        };
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        let told = || format!("{status}: {}", body.chars().take(300).collect::<String>());
        match status {
            404 => return Outcome::Gone,
            503 if headers.contains_key("retry-after") => return Outcome::Refused,
            202 if self.kind.way == Way::Sse => return Outcome::Answer(Value::Null),
            200 => {}
            _ => return Outcome::Wrong(told()),
        }
        let is_stream = headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event"));
        let data: Vec<&str> =
            if is_stream { body.lines().filter_map(|line| line.strip_prefix("data:")).collect() } else { vec![&body] };
        let messages = data.iter().filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let mut answers: Vec<Value> = messages.filter(|message| message.get("method").is_none()).collect();
        match (answers.len(), answers.pop()) {
            (1, Some(answer)) if answer["id"] == id => Outcome::Answer(answer),
            (count, _) => Outcome::Wrong(format!("{count} answers to {id}: {}", told())),
        }
    }
}

fn begun() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}
