//! First lists do not wait. At a warm daemon, a client with capabilities that no client before it had gets its first
//! list as fast as its second; and a program that has just started lists what it has kept, while not one of its servers
//! says a word.
//!
//! 50 servers of 20 tools each. A measurement ends when the whole list has arrived.

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::process::pause;
use crate::soak::{Plan, Verdict};

const SERVERS: usize = 50;
const TOOLS: usize = 20;
/// Clients of the warm daemon, all with different capabilities.
const SESSIONS: usize = 1000;
/// How much longer a first list may take than a second one, at the 99th percentile.
const MORE: Duration = Duration::from_millis(1);
/// From the start of the program to its whole list, in the median.
const COLD: Duration = Duration::from_millis(40);
/// How long servers may take to start, and their lists to be written.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(plan: &Plan) -> Verdict {
    let home = Home::new()?;
    let mut daemon = Program::serve(plan, &home)?;
    home.wait_kept()?;
    let (first, second) = warm(daemon.address()?)?;
    daemon.end()?;
    home.silence()?;
    let rounds = if plan.whole { 100 } else { 20 };
    let (mut serve, mut stdio) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        serve.push(cold_serve(plan, &home)?);
        stdio.push(cold_stdio(plan, &home)?);
    }
    let (first, second, serve, stdio) = (Times(first), Times(second), Times(serve), Times(stdio));
    let text = format!(
        "warm: first list {first}, second {second}; cold, {rounds} times, no server answers: `serve` {serve}, `stdio` {stdio}"
    );
    let slow = first.at(99) > second.at(99) + MORE || [&serve, &stdio].iter().any(|times| times.at(50) > COLD);
    if slow {
        return Err(format!("{text}; at most {MORE:?} more at p99, and {COLD:?} at p50"));
    }
    Ok(text)
}

/// Measured durations.
struct Times(Vec<Duration>);

impl Times {
    fn at(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most] = [50, 99].map(|percent| self.at(percent).as_secs_f64() * 1e3);
        write!(f, "p50 {half:.2} ms, p99 {most:.2} ms")
    }
}

/// A folder with a config, the program's state, and a file whose presence silences servers.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Result<Self, String> {
        let home = Self(tempfile::tempdir().map_err(told)?);
        let myself = std::env::current_exe().map_err(told)?;
        let server = |number: usize| {
            let args = json!([SERVER, home.at("silent"), number.to_string()]);
            (format!("s{number}"), json!({ "command": myself, "args": args }))
        };
        let servers: serde_json::Map<_, _> = (0..SERVERS).map(server).collect();
        fs::write(home.at("mcp.json"), json!({ "mcpServers": servers }).to_string()).map_err(told)?;
        Ok(home)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Silences all servers from now on.
    fn silence(&self) -> Result<(), String> {
        fs::write(self.at("silent"), "").map_err(told)
    }

    /// Waits until the lists of every server are in the state directory.
    fn wait_kept(&self) -> Result<(), String> {
        let begun = Instant::now();
        let is_listing = |path: &Path| path.extension().is_some_and(|end| end == "json");
        while begun.elapsed() < PATIENCE {
            let files = fs::read_dir(self.at("mcp-host/offers")).into_iter().flatten().flatten();
            if files.filter(|file| is_listing(&file.path())).count() >= SERVERS {
                return Ok(());
            }
            pause(Duration::from_millis(20));
        }
        Err(format!("the lists of {SERVERS} servers are not in the state directory after {PATIENCE:?}"))
    }
}

/// The program under test; killed when dropped.
struct Program {
    child: Child,
    began: Instant,
}

impl Program {
    fn start(plan: &Plan, home: &Home, args: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(&plan.host);
        let folder = home.0.path();
        let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
        command.env_clear().envs(places.map(|place| (place, folder))).current_dir(folder);
        command.args(args).args(["--config", "mcp.json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let began = Instant::now();
        Ok(Self { child: command.spawn().map_err(told)?, began })
    }

    fn serve(plan: &Plan, home: &Home) -> Result<Self, String> {
        Self::start(plan, home, &["serve", "--listen", "127.0.0.1:0"])
    }

    /// Returns the address that it announces first.
    fn address(&mut self) -> Result<SocketAddr, String> {
        let mut out = BufReader::new(self.child.stdout.take().ok_or("no stdout")?);
        let mut line = String::new();
        out.read_line(&mut line).map_err(told)?;
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
        let address = url.and_then(|url| url.split('/').next()?.parse().ok()).ok_or(format!("no address: {line}"))?;
        // Reads its output to the end, so that it never blocks on a full pipe.
        std::thread::spawn(move || out.lines().map_while(Result::ok).count());
        Ok(address)
    }

    /// Ends it cleanly.
    fn end(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().map(drop).map_err(told)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the durations of first and second lists of clients of a running daemon, each with other capabilities.
fn warm(address: SocketAddr) -> Result<(Vec<Duration>, Vec<Duration>), String> {
    let mut door = Door::open(address)?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        let mut capabilities = json!({ "extensions": { format!("com.example/c{number}"): {} } });
        for (bit, name) in ["roots", "sampling", "elicitation"].into_iter().enumerate() {
            if number >> bit & 1 == 1 {
                capabilities[name] = json!({});
            }
        }
        let session = door.session(&capabilities)?;
        for times in [&mut first, &mut second] {
            let begun = Instant::now();
            door.list(&session)?;
            times.push(begun.elapsed());
        }
        door.send("DELETE", Some(&session), "")?;
    }
    Ok((first, second))
}

/// Returns the time from the start of a daemon to the whole first list.
fn cold_serve(plan: &Plan, home: &Home) -> Result<Duration, String> {
    let mut program = Program::serve(plan, home)?;
    let address = program.address()?;
    let mut door = Door::open(address)?;
    let session = door.session(&json!({}))?;
    door.list(&session)?;
    let took = program.began.elapsed();
    program.end()?;
    Ok(took)
}

/// Like `cold_serve`, for a stdio server whose client sends everything at once.
fn cold_stdio(plan: &Plan, home: &Home) -> Result<Duration, String> {
    let mut program = Program::start(plan, home, &["stdio"])?;
    let input = program.child.stdin.as_mut().ok_or("no stdin")?;
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    for message in [initialize(&json!({})), initialized, list(None)] {
        writeln!(input, "{message}").map_err(told)?;
    }
    let mut output = BufReader::new(program.child.stdout.take().ok_or("no stdout")?);
    let mut tools = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line).map_err(told)? == 0 {
            return Err("the program ended before its list".to_owned());
        }
        // Other lines are its greeting, or notifications.
        let Some(page) = Page::of(&line) else { continue };
        tools += page.tools;
        let Some(cursor) = page.next else { break };
        let input = program.child.stdin.as_mut().ok_or("no stdin")?;
        writeln!(input, "{}", list(Some(&cursor))).map_err(told)?;
    }
    let took = program.began.elapsed();
    whole(tools)?;
    program.end()?;
    Ok(took)
}

/// A page of a list, parsed no further than needed, so that reading costs next to nothing.
struct Page {
    tools: usize,
    next: Option<String>,
}

impl Page {
    fn of(answer: &str) -> Option<Self> {
        if !answer.contains("\"tools\":[") {
            return None;
        }
        let next = answer.split("\"nextCursor\":\"").nth(1).and_then(|rest| rest.split('"').next());
        Some(Self { tools: answer.matches("\"inputSchema\"").count(), next: next.map(str::to_owned) })
    }
}

fn whole(tools: usize) -> Result<(), String> {
    let all = SERVERS * TOOLS;
    if tools == all { Ok(()) } else { Err(format!("a first list of {tools} tools, not {all}")) }
}

/// A connection to a daemon.
struct Door {
    stream: TcpStream,
    address: SocketAddr,
    bytes: Vec<u8>,
}

impl Door {
    fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(told)?;
        stream.set_nodelay(true).map_err(told)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
        Ok(Self { stream, address, bytes: Vec::new() })
    }

    /// Sends a request, and returns the response with its head.
    fn send(&mut self, method: &str, session: Option<&str>, body: &str) -> Result<String, String> {
        let session = session.map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n{session}\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).map_err(told)?;
        self.bytes.clear();
        let mut read = [0; 64 << 10];
        let mut end = None;
        while end.is_none_or(|end| self.bytes.len() < end) {
            let count = self.stream.read(&mut read).map_err(told)?;
            if count == 0 {
                return Err("the daemon closed the connection".to_owned());
            }
            self.bytes.extend_from_slice(&read[..count]);
            if end.is_none()
                && let Some(head) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n")
            {
                let text = String::from_utf8_lossy(&self.bytes[..head]).to_ascii_lowercase();
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
                end = Some(head + 4 + length.and_then(|length| length.parse().ok()).unwrap_or(0_usize));
            }
        }
        let answer = String::from_utf8_lossy(&self.bytes).into_owned();
        if answer.starts_with("HTTP/1.1 2") {
            return Ok(answer);
        }
        Err(format!("{method} was answered {}", answer.chars().take(300).collect::<String>()))
    }

    /// Opens a session.
    fn session(&mut self, capabilities: &Value) -> Result<String, String> {
        let answer = self.send("POST", None, &initialize(capabilities).to_string())?;
        let head = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let session = head.ok_or("no session")?.to_owned();
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send("POST", Some(&session), &initialized.to_string())?;
        Ok(session)
    }

    /// Requests the whole list.
    fn list(&mut self, session: &str) -> Result<(), String> {
        let (mut tools, mut cursor) = (0, None);
        loop {
            let answer = self.send("POST", Some(session), &list(cursor.as_deref()).to_string())?;
            let page = Page::of(&answer).ok_or_else(|| format!("no list: {answer:.300}"))?;
            tools += page.tools;
            cursor = page.next;
            if cursor.is_none() {
                return whole(tools);
            }
        }
    }
}

fn initialize(capabilities: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": { "name": "soak", "version": "1" } } })
}

fn list(cursor: Option<&str>) -> Value {
    let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params })
}

fn told(error: impl fmt::Display) -> String {
    error.to_string()
}

/// The argument that makes this program a server of the stage.
pub(crate) const SERVER: &str = "__listed-server";

/// A server over stdin and stdout that lists some tools; silent while a file named `silent` exists.
pub(crate) fn serve(mut arguments: impl Iterator<Item = String>) {
    let is_silent = arguments.next().is_some_and(|silent| Path::new(&silent).exists());
    let number = arguments.next().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok).filter(|_| !is_silent) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => {
                json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": format!("s{number}"), "version": "1" } })
            }
            Some("tools/list") => {
                json!({ "tools": (0..TOOLS).map(|tool| definition(&number, tool)).collect::<Vec<_>>() })
            }
            _ => continue,
        };
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// Returns a definition as large as those of real servers.
fn definition(server: &str, tool: usize) -> Value {
    let property =
        |name: &str| (name.to_owned(), json!({ "type": "string", "description": format!("The {name}, as text.") }));
    let properties: serde_json::Map<_, _> = ["path", "pattern", "format", "limit"].into_iter().map(property).collect();
    json!({
        "name": format!("tool_{tool}"),
        "description": format!("Tool {tool} of server {server}: looks for what is asked for, and tells what was found there."),
        "inputSchema": { "type": "object", "properties": properties, "required": ["path"] },
    })
}
