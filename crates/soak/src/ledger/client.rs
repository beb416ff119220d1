//! The clients of the ledger run: through every endpoint, of both eras, each with several calls in flight and ids from
//! 0.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::history::{History, mark};
use super::server::{KINDS, MODERN};
use crate::joined::{self, Joined};
use crate::kill9::Chance;

/// How a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Streamable HTTP, in a session.
    Session,
    /// Streamable HTTP of 2026-07-28.
    Modern,
    Sse,
    /// A host of its own over stdio.
    Pipe,
    ModernPipe,
    /// A relay to the daemon.
    Joined,
    ModernJoined,
}

impl Door {
    fn is_modern(self) -> bool {
        matches!(self, Self::Modern | Self::ModernPipe | Self::ModernJoined)
    }

    pub(crate) fn is_joined(self) -> bool {
        matches!(self, Self::Joined | Self::ModernJoined)
    }
}

/// Concurrent calls of one client.
const LANES: usize = 4;
/// Longer than the host waits for any server.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait for duplicate responses.
const LATE: Duration = Duration::from_millis(500);
/// How long a host over stdio may take to end (`docs/hazards.md` H95).
const ENDED: Duration = Duration::from_secs(17);

/// The state shared by all clients.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    /// The endpoint, without a path.
    pub(crate) origin: String,
    pub(crate) host: &'a Path,
    pub(crate) home: &'a Path,
    pub(crate) config: &'a Path,
    /// Calls that no client has begun yet.
    pub(crate) left: Rc<Cell<usize>>,
    pub(crate) seed: u64,
}

type Http = hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>;
type Waiting = RefCell<HashMap<u64, oneshot::Sender<()>>>;

/// The connection to the host.
enum Link {
    Http { http: Http, url: String, session: Option<String>, modern: bool },
    Sse { http: Http, url: String, waiting: Waiting },
    Pipe { out: mpsc::Sender<String>, waiting: Waiting },
}

/// The process of a client.
enum Process {
    Host(Child),
    Relay(Joined),
}

struct Client {
    history: History,
    link: Link,
    modern: bool,
    left: Rc<Cell<usize>>,
}

/// Runs one client from start to end, and returns what it saw.
pub(crate) async fn run(number: usize, door: Door, load: &Load<'_>) -> Result<History, String> {
    let history = History::new(number);
    let (client, process) = match door {
        Door::Session | Door::Modern => (http(history, door, load).await?, None),
        Door::Sse => (sse(history, load).await?, None),
        Door::Pipe | Door::ModernPipe => {
            let (client, child) = host(history, door, load).await?;
            (client, Some(Process::Host(child)))
        }
        Door::Joined | Door::ModernJoined => {
            let (client, relay) = relay(history, door, load).await?;
            (client, Some(Process::Relay(relay)))
        }
    };
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let chance = Chance(load.seed ^ ((number * LANES + lane) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        lanes.spawn_local(self::lane(client.clone(), chance));
    }
    while lanes.join_next().await.is_some() {}
    tokio::time::sleep(LATE).await;
    let history = client.history.take_all();
    drop(client);
    // Its input was closed with the client.
    match process {
        Some(Process::Host(mut child)) => {
            let ended = timeout(ENDED, child.wait()).await;
            ended
                .map_err(|_| "a host over stdio is alive after the end of its input")?
                .map_err(|error| error.to_string())?;
        }
        Some(Process::Relay(relay)) => {
            tokio::task::spawn_blocking(|| relay.end()).await.map_err(|error| error.to_string())??;
        }
        None => {}
    }
    Ok(history)
}

/// Waits until the host lists the tool of every server.
pub(crate) async fn ready(load: &Load<'_>, patience: Duration) -> Result<(), String> {
    let (http, url) = (new_http(), format!("{}/mcp", load.origin));
    let heads = [("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")];
    let own = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {} });
    let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": { "_meta": own } }).to_string();
    let begun = Instant::now();
    loop {
        let response = post(&http, &url, message.clone(), &heads).await?;
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let list: Value = serde_json::from_slice(&body).map_err(|error| format!("tools/list: {error}"))?;
        let count = list["result"]["tools"].as_array().map_or(0, Vec::len);
        if count == KINDS.len() {
            return Ok(());
        }
        if begun.elapsed() > patience {
            return Err(format!("{count} of {} servers are ready after {patience:?}: {list}", KINDS.len()));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn lane(client: Rc<Client>, mut chance: Chance) {
    while let Some(left) = client.left.get().checked_sub(1) {
        client.left.set(left);
        let server = chance.below(KINDS.len());
        let id = client.history.begin(Some(server));
        let name = format!("{}__note", KINDS[server].name);
        let mut params = json!({ "name": name, "arguments": { "mark": mark(client.history.client, id) } });
        if chance.below(4) == 0 {
            // Tokens count from 0 as well.
            params["_meta"] = json!({ "progressToken": id });
        }
        let asked = client.ask(id, "tools/call", params);
        match timeout(PATIENCE, asked).await {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => client.history.wrong(&format!("call {id} of {name}: {wrong}")),
            // A call without a response is counted as such.
            Err(_) => {}
        }
    }
}

impl Client {
    /// Sends a request and waits for its response, recording it and everything before it.
    async fn ask(&self, id: u64, method: &str, mut params: Value) -> Result<(), String> {
        if self.modern {
            let own = &mut params["_meta"];
            own["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            own["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        match &self.link {
            Link::Http { http, url, session, modern } => {
                let mut heads = vec![];
                if *modern {
                    heads = vec![("mcp-protocol-version", MODERN), ("mcp-method", method), ("mcp-name", name.as_str())];
                } else if let Some(session) = session {
                    heads = vec![("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
                }
                let response = post(http, url, message, &heads).await?;
                let answered = self.take_body(response).await?;
                if answered == [id] { Ok(()) } else { Err(format!("answers to {answered:?}")) }
            }
            Link::Sse { http, url, waiting } => {
                let answered = wait(waiting, id);
                let response = post(http, url, message, &[]).await?;
                if response.status() != 202 {
                    return Err(format!("status {} to a message", response.status()));
                }
                answered.await.map_err(|_| "the stream ended".to_owned())
            }
            Link::Pipe { out, waiting } => {
                let answered = wait(waiting, id);
                out.send(message).await.map_err(|_| "the pipe is closed")?;
                answered.await.map_err(|_| "the pipe ended".to_owned())
            }
        }
    }

    /// Takes every message of a response, and returns the ids that were answered.
    async fn take_body(&self, response: hyper::Response<Incoming>) -> Result<Vec<u64>, String> {
        let status = response.status();
        let kind = response.headers().get("content-type").map(|kind| kind.as_bytes().to_vec()).unwrap_or_default();
        let body = response.into_body().collect().await.map_err(|error| format!("a body that broke: {error}"))?;
        let body = body.to_bytes();
        if !status.is_success() {
            return Err(format!("status {status}: {}", String::from_utf8_lossy(&body)));
        }
        let text = std::str::from_utf8(&body).map_err(|error| error.to_string())?;
        let messages: Vec<&str> = if kind.starts_with(b"text/event-stream") {
            text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect()
        } else {
            vec![text]
        };
        Ok(messages.into_iter().filter(|text| !text.is_empty()).filter_map(|text| self.history.take(text)).collect())
    }

    /// Takes a message of a stream shared by all requests.
    fn take(&self, text: &str) {
        let (Link::Sse { waiting, .. } | Link::Pipe { waiting, .. }) = &self.link else { return };
        if let Some(waits) = self.history.take(text).and_then(|id| waiting.borrow_mut().remove(&id)) {
            // The caller may have timed out.
            let _ = waits.send(());
        }
    }

    /// Ends all waits: nothing more comes.
    fn end(&self) {
        if let Link::Sse { waiting, .. } | Link::Pipe { waiting, .. } = &self.link {
            waiting.borrow_mut().clear();
        }
    }
}

fn wait(waiting: &Waiting, id: u64) -> oneshot::Receiver<()> {
    let (answer, answered) = oneshot::channel();
    waiting.borrow_mut().insert(id, answer);
    answered
}

fn hello(revision: &str) -> Value {
    json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": "ledger", "version": "1" } })
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

async fn post(
    http: &Http,
    url: &str,
    message: String,
    heads: &[(&'static str, &str)],
) -> Result<hyper::Response<Incoming>, String> {
    let mut request = hyper::Request::post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in heads {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::from(message)).map_err(|error| error.to_string())?;
    http.request(request).await.map_err(|error| format!("the connection broke: {error}"))
}

fn new_http() -> Http {
    hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http()
}

async fn http(history: History, door: Door, load: &Load<'_>) -> Result<Rc<Client>, String> {
    let (http, url, modern) = (new_http(), format!("{}/mcp", load.origin), door.is_modern());
    let mut session = None;
    if !modern {
        let id = history.begin(None);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": hello("2025-11-25") });
        let response = post(&http, &url, message.to_string(), &[]).await?;
        let named = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok().map(str::to_owned));
        let named = named.ok_or_else(|| format!("no session: {}", response.status()))?;
        let heads = [("mcp-session-id", named.as_str()), ("mcp-protocol-version", "2025-11-25")];
        post(&http, &url, INITIALIZED.to_owned(), &heads).await?;
        session = Some(named);
    }
    let link = Link::Http { http, url, session, modern };
    Ok(Rc::new(Client { history, link, modern, left: load.left.clone() }))
}

async fn sse(history: History, load: &Load<'_>) -> Result<Rc<Client>, String> {
    let http = new_http();
    let request = hyper::Request::get(format!("{}/sse", load.origin)).header("accept", "text/event-stream");
    let request = request.body(Full::default()).map_err(|error| error.to_string())?;
    let response = http.request(request).await.map_err(|error| error.to_string())?;
    let mut stream = response.into_body();
    let mut text = String::new();
    let path = loop {
        let piece = stream.frame().await.ok_or("a stream without an endpoint")?.map_err(|error| error.to_string())?;
        text += &String::from_utf8_lossy(piece.data_ref().map_or(&[][..], |data| &data[..]));
        if let Some((first, rest)) = text.split_once("\n\n") {
            let path = first.lines().find_map(|line| line.strip_prefix("data:")).ok_or("no endpoint")?;
            let path = path.trim().to_owned();
            text = rest.to_owned();
            break path;
        }
    };
    let link = Link::Sse { http, url: format!("{}{path}", load.origin), waiting: RefCell::default() };
    let client = Rc::new(Client { history, link, modern: false, left: load.left.clone() });
    let reader = client.clone();
    tokio::task::spawn_local(async move {
        // Bytes, since a chunk may end within a character.
        let mut bytes = text.into_bytes();
        while let Some(Ok(piece)) = stream.frame().await {
            bytes.extend_from_slice(piece.data_ref().map_or(&[][..], |data| &data[..]));
            while let Some(end) = bytes.windows(2).position(|pair| pair == b"\n\n") {
                let event = bytes.drain(..end + 2).collect::<Vec<u8>>();
                let event = String::from_utf8_lossy(&event);
                event.lines().filter_map(|line| line.strip_prefix("data:")).for_each(|data| reader.take(data.trim()));
            }
        }
        reader.end();
    });
    shake(&client, "2024-11-05").await?;
    Ok(client)
}

/// Performs the handshake of a client whose responses share one stream.
async fn shake(client: &Client, revision: &str) -> Result<(), String> {
    let id = client.history.begin(None);
    timeout(PATIENCE, client.ask(id, "initialize", hello(revision))).await.map_err(|_| "no answer to initialize")??;
    match &client.link {
        Link::Sse { http, url, .. } => post(http, url, INITIALIZED.to_owned(), &[]).await.map(drop),
        Link::Pipe { out, .. } => out.send(INITIALIZED.to_owned()).await.map_err(|_| "the pipe is closed".to_owned()),
        Link::Http { .. } => Ok(()),
    }
}

async fn host(history: History, door: Door, load: &Load<'_>) -> Result<(Rc<Client>, Child), String> {
    let mut command = Command::from(joined::command(load.host, load.home, load.config));
    // The daemon of the same config is for other clients.
    command.arg("--own");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (input, output) = (child.stdin.take().ok_or("no stdin")?, child.stdout.take().ok_or("no stdout")?);
    Ok((pipe(history, door, load, input, output).await?, child))
}

async fn relay(history: History, door: Door, load: &Load<'_>) -> Result<(Rc<Client>, Joined), String> {
    let command = joined::command(load.host, load.home, load.config);
    let relay = tokio::task::spawn_blocking(|| Joined::start(command)).await;
    let mut relay = relay.map_err(|error| error.to_string())??;
    let (input, output) = relay.pipes()?;
    let input = ChildStdin::from_std(input).map_err(|error| error.to_string())?;
    let output = ChildStdout::from_std(output).map_err(|error| error.to_string())?;
    Ok((pipe(history, door, load, input, output).await?, relay))
}

async fn pipe(
    history: History,
    door: Door,
    load: &Load<'_>,
    mut input: ChildStdin,
    output: ChildStdout,
) -> Result<Rc<Client>, String> {
    let (out, mut lines) = mpsc::channel::<String>(64);
    tokio::task::spawn_local(async move {
        while let Some(line) = lines.recv().await {
            if input.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let modern = door.is_modern();
    let client = Rc::new(Client {
        history,
        link: Link::Pipe { out, waiting: RefCell::default() },
        modern,
        left: load.left.clone(),
    });
    // Weak: the client's end must close the pipe.
    let reader = Rc::downgrade(&client);
    tokio::task::spawn_local(async move {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(reader) = reader.upgrade() {
                reader.take(&line);
            }
        }
        if let Some(reader) = reader.upgrade() {
            reader.end();
        }
    });
    if !modern {
        shake(&client, "2025-11-25").await?;
    }
    Ok(client)
}
