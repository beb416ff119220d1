//! Abandoned sessions and clients that hardly read: the host's memory stays within its limits, and new clients are
//! served throughout (`docs/hazards.md` H48, H49, H62).
//!
//! Some clients connect through joined relays: a few that stay and are served from the first session to the last, every
//! fourth new one, and some of those that hardly read. Bounds apply to the daemon, where each relay is one more
//! connection.
//!
//! Memory that the system holds for sockets is not the host's, and is not counted.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::ChildStdout;
use tokio::task::JoinSet;

use crate::client::Answer;
use crate::joined::{self, Caller, Joined};
use crate::soak::{Plan, Verdict};

const MIB: usize = 1 << 20;
/// The default of `sessions`.
const SESSIONS: usize = 1024;
/// `clientQueues` of the run.
const QUEUES: usize = 32 * MIB;
/// A response, larger than the sockets of both sides hold.
const ANSWER: usize = 4 * MIB;
/// What a connection may cost beside its queue: read-ahead, tasks, session.
const CONNECTION: usize = 96 * 1024;
/// What an idle session may cost.
const SESSION: usize = 16 * 1024;
/// Overhead of any run: incoming responses, and what the allocator keeps.
const SLACK: usize = 64 * MIB;
/// How soon a new client is served, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a slow reader stays before it sends a new request.
const STAY: Duration = Duration::from_secs(6);
/// How long there are slow readers.
const LOAD: Duration = Duration::from_secs(25);
/// Joined relays that stay, and call all the time.
const STAYING: usize = 16;
/// The most slow readers behind a relay: each is a process.
const SLOW: usize = 32;

pub(crate) fn run(plan: &Plan) -> Verdict {
    let (abandoned, slow) = if plan.whole { (100_000, 1024) } else { (10_000, 128) };
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = home.path().join("mcp.json");
    let myself = std::env::current_exe().map_err(|error| error.to_string())?;
    let config = json!({
        "mcpServers": { "big": { "command": myself, "args": [SERVER] }, "little": { "command": myself, "args": [SERVER] } },
        "host": { "limits": { "clientQueues": format!("{}MiB", QUEUES / MIB) } }
    });
    std::fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut host = Host::start(plan, home.path(), &file)?;
    let way = Way { address: host.address()?, host: plan.host.clone(), home: home.path().to_owned(), config: file };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let load = async {
        let way = Rc::new(way);
        let staying = Staying::begin(&way).await?;
        let first = abandon(&host, way.address, SESSIONS, SESSIONS).await?;
        // The table is full, so more of them add nothing.
        let flat = abandon(&host, way.address, abandoned, 0).await?;
        let load = read_slowly(&host, &way, slow).await?;
        let calls = staying.end().await?;
        Ok(format!(
            "{abandoned} sessions: {first} to {flat}; {slow} slow readers, {} joined: {load}; {STAYING} joined all the while, \
             {calls} calls",
            slow.min(SLOW)
        ))
    };
    tokio::task::LocalSet::new().block_on(&runtime, load)
}

/// How the host is reached.
#[derive(Debug)]
struct Way {
    address: SocketAddr,
    host: PathBuf,
    home: PathBuf,
    config: PathBuf,
}

impl Way {
    fn relay(&self) -> Command {
        joined::command(&self.host, &self.home, &self.config)
    }
}

/// Joined relays that call all the time.
struct Staying {
    callers: JoinSet<Result<usize, String>>,
    over: Rc<AtomicBool>,
}

impl Staying {
    /// Returns once all are joined and have been served: their cost must not count as that of sessions.
    async fn begin(way: &Way) -> Result<Self, String> {
        let (mut callers, over) = (JoinSet::new(), Rc::<AtomicBool>::default());
        for _ in 0..STAYING {
            let mut caller = Caller::open(way.relay()).await?;
            let mut calls = small(&mut caller, 1).await?;
            let over = over.clone();
            callers.spawn_local(async move {
                while !over.load(Ordering::Relaxed) {
                    calls += 1;
                    let served = tokio::time::timeout(PATIENCE, small(&mut caller, calls as u64)).await;
                    served.map_err(|_| format!("a joined client was not served within {PATIENCE:?}"))??;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                caller.end().await?;
                Ok(calls)
            });
        }
        Ok(Self { callers, over })
    }

    /// Returns how many calls were answered; all must be.
    async fn end(mut self) -> Result<usize, String> {
        self.over.store(true, Ordering::Relaxed);
        let mut calls = 0;
        while let Some(ended) = self.callers.join_next().await {
            calls += ended.map_err(|error| error.to_string())??;
        }
        Ok(calls)
    }
}

/// Makes a call through a relay. A refused call is retried.
async fn small(caller: &mut Caller, id: u64) -> Result<usize, String> {
    loop {
        match caller.call(id, "little__small", &json!({})).await {
            Answer::One(answer) if answer["result"]["content"][0]["text"] == "small" => return Ok(1),
            Answer::One(answer) if answer["result"]["_meta"]["mcp-host/error"]["kind"] == "overloaded" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer => return Err(format!("a joined client was answered {answer:?}")),
        }
    }
}

/// The host under test; killed when dropped.
pub(crate) struct Host(pub(crate) Child);

impl Host {
    /// Starts a daemon of this config, on a port of its own.
    pub(crate) fn start(plan: &Plan, home: &Path, config: &Path) -> Result<Self, String> {
        let mut command = Command::new(&plan.host);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config).current_dir(home);
        command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
        let host = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Ok(Self(host.map_err(|error| error.to_string())?))
    }

    pub(crate) fn address(&mut self) -> Result<SocketAddr, String> {
        let out = self.0.stdout.take().ok_or("no stdout")?;
        let mut lines = BufReader::new(out).lines();
        let first = lines.next().ok_or("the host said nothing")?.map_err(|error| error.to_string())?;
        let url = first.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        let address = url.and_then(|url| url.split('/').next()?.parse().ok()).ok_or(format!("no address: {first}"))?;
        // Reads its output to the end, so that it never blocks on a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).count());
        Ok(address)
    }

    /// Returns its current memory.
    fn memory(&self) -> Result<Memory, String> {
        let path = format!("/proc/{}/status", self.0.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("the host is gone")?;
        let kib: usize = line.trim().trim_end_matches(" kB").parse().map_err(|_| format!("{path}: {line}"))?;
        Ok(Memory(kib * 1024))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Memory(usize);

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} MiB", self.0 as f64 / MIB as f64)
    }
}

/// Opens sessions and abandons them; only `new` of them may cost memory.
async fn abandon(host: &Host, address: SocketAddr, count: usize, new: usize) -> Result<Memory, String> {
    let before = host.memory()?;
    let mut connection = Connection::open(address).await?;
    for number in 0..count {
        let (status, _) = connection.post(None, &initialize()).await?;
        if status != 200 {
            return Err(format!("`initialize` {number} of {count} was answered {status}"));
        }
    }
    let after = host.memory()?;
    let bound = Memory(before.0 + new * SESSION + 8 * MIB);
    if after > bound {
        return Err(format!("{count} sessions, {new} of them new places: from {before} to {after}, over {bound}"));
    }
    Ok(after)
}

/// Lets clients request large responses and hardly read them, while new ones come; reports the memory.
async fn read_slowly(host: &Host, way: &Rc<Way>, count: usize) -> Result<String, String> {
    let before = host.memory()?;
    let bound = Memory(before.0 + QUEUES + count * CONNECTION + SLACK);
    let (over, asked) = (Rc::<AtomicBool>::default(), Rc::<AtomicUsize>::default());
    let wrong = Rc::<RefCell<Option<String>>>::default();
    let (mut readers, mut relays) = (JoinSet::new(), JoinSet::new());
    for number in 0..count {
        let (way, over, asked) = (way.clone(), over.clone(), asked.clone());
        if number < SLOW {
            let wrong = wrong.clone();
            relays.spawn_local(async move {
                while !over.load(Ordering::Relaxed) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    // A relay that was cut off reports it, and ends.
                    if let Err(text) = slow_relay(&way, ["bulk", "stream"][number % 2], &over).await {
                        wrong.borrow_mut().get_or_insert(text);
                        return;
                    }
                }
            });
            continue;
        }
        readers.spawn_local(async move {
            while !over.load(Ordering::Relaxed) {
                asked.fetch_add(1, Ordering::Relaxed);
                // Connections that were cut off break. The client notices only after it has read what the system
                // buffers for it, which takes longer than it stays.
                if slow(way.address, Kind::of(number), &over).await.is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        });
    }
    let begun = Instant::now();
    let (mut most, mut served, mut longest) = (before, 0, Duration::ZERO);
    while begun.elapsed() < LOAD {
        let asked = Instant::now();
        let turn = served % 4;
        let fresh = tokio::time::timeout(PATIENCE, async {
            match turn {
                3 => {
                    let mut caller = Caller::open(way.relay()).await?;
                    small(&mut caller, 1).await?;
                    caller.end().await
                }
                _ => fresh(way.address).await,
            }
        });
        tokio::pin!(fresh);
        loop {
            tokio::select! {
                done = &mut fresh => {
                    done.map_err(|_| format!("a fresh client was not served within {PATIENCE:?}"))??;
                    break;
                }
                () = tokio::time::sleep(Duration::from_millis(20)) => most = most.max(host.memory()?),
            }
        }
        (served, longest) = (served + 1, longest.max(asked.elapsed()));
        most = most.max(host.memory()?);
        if most > bound {
            return Err(format!("from {before} to {most} with {count} slow readers, over {bound}"));
        }
        if let Some(wrong) = wrong.take() {
            return Err(wrong);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    over.store(true, Ordering::Relaxed);
    readers.abort_all();
    while readers.join_next().await.is_some() {}
    // They are told to end in the middle of a response.
    while relays.join_next().await.is_some() {}
    if let Some(wrong) = wrong.take() {
        return Err(wrong);
    }
    let asked = asked.load(Ordering::Relaxed);
    if most < Memory(before.0 + QUEUES / 2) {
        return Err(format!("{asked} large answers were asked for, and from {before} to {most} is no load"));
    }
    Ok(format!(
        "{before} to {most} at most (bound {bound}), {asked} answers of {} MiB asked for; {served} fresh clients, each served \
         within {longest:?}",
        ANSWER / MIB
    ))
}

/// Runs a client from connecting to its response. A refused request is retried.
async fn fresh(address: SocketAddr) -> Result<(), String> {
    loop {
        let mut connection = Connection::open(address).await?;
        let (status, head) = connection.post(None, &initialize()).await?;
        if status == 200 {
            let session = session(&head).ok_or("no session")?;
            let (status, mut answer) = connection.post(Some(&session), &call("little", "small")).await?;
            // A slow response comes as a stream.
            while status == 200 && !answer.contains("\"result\"") {
                answer += &connection.some(4096).await?;
            }
            if status == 200 {
                return end(address, &session).await;
            }
            if status != 503 {
                return Err(format!("a fresh client was answered {status}: {answer}"));
            }
        } else if status != 503 {
            return Err(format!("a fresh client was answered {status}: {head}"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How a slow reader sends its request.
#[derive(Clone, Copy)]
enum Kind {
    /// In a session; the response comes as a whole, or as a stream.
    Session(&'static str),
    /// Without a session.
    Stateless(&'static str),
    /// By HTTP+SSE: all responses on one stream.
    Sse,
}

impl Kind {
    fn of(number: usize) -> Self {
        match number % 5 {
            0 => Self::Session("bulk"),
            1 => Self::Session("stream"),
            2 => Self::Stateless("bulk"),
            3 => Self::Stateless("stream"),
            _ => Self::Sse,
        }
    }
}

/// Requests a large response and reads a kibibyte every tenth of a second, until it is cut off, told to stop, or done.
async fn slow(address: SocketAddr, kind: Kind, over: &AtomicBool) -> Result<(), String> {
    let mut connection = Connection::open_narrow(address).await?;
    let mut opened = None;
    match kind {
        Kind::Session(tool) => {
            let (status, head) = connection.post(None, &initialize()).await?;
            let session = session(&head).filter(|_| status == 200).ok_or("refused")?;
            connection.send(&request("/mcp", Some(&session), &call("big", tool), "2025-11-25")).await?;
            opened = Some(session);
        }
        Kind::Stateless(tool) => connection.send(&stateless(tool)).await?,
        Kind::Sse => {
            connection.send("GET /sse HTTP/1.1\r\nHost: HOST\r\nAccept: text/event-stream\r\n\r\n").await?;
            let mut text = String::new();
            while !text.contains("sessionId=") || !text.ends_with("\n\n\r\n") {
                text += &connection.some(1024).await?;
            }
            let path = text.lines().find_map(|line| line.strip_prefix("data: ")).ok_or("no endpoint")?.to_owned();
            let mut messages = Connection::open(address).await?;
            for message in [initialize(), call("big", "bulk"), call("big", "stream"), call("big", "bulk")] {
                messages.send(&request(&path, None, &message, "2025-11-25")).await?;
                messages.head().await?;
            }
        }
    }
    let begun = Instant::now();
    while !over.load(Ordering::Relaxed) && begun.elapsed() < STAY {
        connection.some(1024).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    match opened {
        Some(session) => end(address, &session).await,
        None => Ok(()),
    }
}

/// Like `slow`, through a relay. It ends in the middle of the response, or was cut off by then.
async fn slow_relay(way: &Way, tool: &str, over: &AtomicBool) -> Result<(), String> {
    let command = way.relay();
    let relay = tokio::task::spawn_blocking(|| Joined::start(command)).await;
    let mut relay = relay.map_err(|error| error.to_string())??;
    let (mut input, output) = relay.pipes()?;
    let mut output = ChildStdout::from_std(output).map_err(|error| error.to_string())?;
    for message in [initialize(), call("big", tool)] {
        // Less than the pipe holds.
        writeln!(input, "{message}").map_err(|error| error.to_string())?;
    }
    let begun = Instant::now();
    let (mut piece, mut first) = ([0; 1024], None);
    while !over.load(Ordering::Relaxed) && begun.elapsed() < STAY {
        match output.read(&mut piece).await {
            Ok(0) => break,
            Ok(length) => first = first.or_else(|| Some(String::from_utf8_lossy(&piece[..length]).into_owned())),
            Err(error) => return Err(error.to_string()),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(input);
    let left = tokio::task::spawn_blocking(|| relay.leave(joined::ENDED)).await;
    let (status, said) = left.map_err(|error| error.to_string())??;
    // Its client reads no more, but keeps its side open.
    drop(output);
    let cut = status.code() == Some(1) && said.contains("has cut this client off");
    match first {
        Some(_) if status.success() && said.is_empty() || cut => Ok(()),
        first => {
            Err(format!("a relay that is hardly read ended with {status} and said {said:?}, and at first {first:?}"))
        }
    }
}

/// Ends a session: otherwise a used one keeps its slot for a minute (`docs/hazards.md` H104).
async fn end(address: SocketAddr, session: &str) -> Result<(), String> {
    let mut connection = Connection::open(address).await?;
    connection.send(&format!("DELETE /mcp HTTP/1.1\r\nHost: HOST\r\nMcp-Session-Id: {session}\r\n\r\n")).await?;
    connection.head().await.map(drop)
}

/// A connection that speaks just enough HTTP.
struct Connection {
    stream: TcpStream,
    address: SocketAddr,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        Ok(Self { stream, address })
    }

    /// Opens a connection with a small receive buffer.
    async fn open_narrow(address: SocketAddr) -> Result<Self, String> {
        let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
        socket.set_recv_buffer_size(4096).map_err(|error| error.to_string())?;
        let stream = socket.connect(address).await.map_err(|error| error.to_string())?;
        Ok(Self { stream, address })
    }

    async fn send(&mut self, request: &str) -> Result<(), String> {
        let request = request.replace("HOST", &self.address.to_string());
        self.stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())
    }

    /// Reads up to `most` bytes more.
    async fn some(&mut self, most: usize) -> Result<String, String> {
        let mut bytes = vec![0; most];
        match self.stream.read(&mut bytes).await {
            Ok(0) => Err("closed".to_owned()),
            Ok(length) => Ok(String::from_utf8_lossy(&bytes[..length]).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Reads the head of a response that has hardly a body.
    async fn head(&mut self) -> Result<String, String> {
        let mut text = String::new();
        while !text.contains("\r\n\r\n") {
            text += &self.some(4096).await?;
        }
        Ok(text)
    }

    /// Posts a message, and returns the status and the whole response with its head.
    async fn post(&mut self, session: Option<&str>, message: &Value) -> Result<(u16, String), String> {
        self.send(&request("/mcp", session, message, "2025-11-25")).await?;
        let mut text = self.head().await?;
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or_default();
        let head = text.find("\r\n\r\n").unwrap_or_default() + 4;
        while text.len() < head + length {
            text += &self.some(4096).await?;
        }
        Ok((status, text))
    }
}

fn session(head: &str) -> Option<String> {
    head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(str::to_owned)
}

fn request(path: &str, session: Option<&str>, message: &Value, version: &str) -> String {
    let body = message.to_string();
    let session = session.map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
    format!(
        "POST {path} HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nMCP-Protocol-Version: {version}\r\n\
         {session}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "soak", "version": "1" } } })
}

fn call(server: &str, tool: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": {
        "name": format!("{server}__{tool}"), "arguments": {}, "_meta": { "progressToken": 1 } } })
}

fn stateless(tool: &str) -> String {
    let mut message = call("big", tool);
    message["params"]["_meta"] = json!({
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "soak", "version": "1" },
    });
    let request = request("/mcp", None, &message, "2026-07-28");
    request.replacen("\r\n", &format!("\r\nMcp-Method: tools/call\r\nMcp-Name: big__{tool}\r\n"), 1)
}

/// The argument that makes this program the server of the stage.
pub(crate) const SERVER: &str = "__big-server";

/// A server over stdin and stdout: `small` returns itself, `bulk` four mebibytes, `stream` the same after a progress
/// report.
pub(crate) fn serve() {
    let text = "x".repeat(ANSWER);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let (id, params) = (&message["id"], &message["params"]);
        let tool = params["name"].as_str().unwrap_or_default();
        let tools =
            ["small", "bulk", "stream"].map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
        let result = match message["method"].as_str() {
            Some("initialize") => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "big", "version": "1" } }),
            Some("tools/list") => json!({ "tools": tools }),
            Some("tools/call") => {
                let text = if tool == "small" { tool } else { &text };
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            _ => continue,
        };
        let mut lines = String::new();
        if tool == "stream" {
            let token = &params["_meta"]["progressToken"];
            let params = json!({ "progressToken": token, "progress": 1 });
            let notice = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
            lines += &format!("{notice}\n");
        }
        lines += &format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        if out.write_all(lines.as_bytes()).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
