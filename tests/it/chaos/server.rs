//! A server over raw sockets: it reads HTTP requests and writes whatever a script says, HTTP or not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// One request as received.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The number of its connection.
    pub(super) connection: usize,
    pub(super) verb: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Value,
}

impl Seen {
    /// The method of the message, or the HTTP verb.
    pub(super) fn what(&self) -> &str {
        self.body["method"].as_str().unwrap_or(&self.verb)
    }

    pub(super) fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the text of a response with this result.
    pub(super) fn answer(&self, result: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result }).to_string()
    }

    /// Returns the text of a good response to a call.
    pub(super) fn done(&self, text: &str) -> String {
        self.answer(&json!({ "content": [{ "type": "text", "text": text }] }))
    }
}

/// What to do with a connection, step by step. After the last step the next request is read.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write(Vec<u8>),
    /// Repeats until the client is gone.
    Endless(Vec<u8>),
    /// Sends single bytes at this interval, until the client is gone.
    Drip(Vec<u8>, Duration),
    /// Does nothing, forever.
    Hold,
    Close,
    /// Ends the connection like a crash.
    Reset,
}

pub(super) use Step::{Close, Drip, Endless, Hold, Reset, Write};

/// A complete response.
pub(super) fn http(status: u16, kind: &str, body: &str) -> Vec<Step> {
    with(status, &[("Content-Type", kind)], body)
}

/// A complete response with these headers.
pub(super) fn with(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<Step> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    vec![Write(format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())]
}

pub(super) fn json_answer(body: &str) -> Vec<Step> {
    http(200, "application/json", body)
}

/// A literal text.
pub(super) fn text(text: impl AsRef<str>) -> Step {
    Write(text.as_ref().as_bytes().to_vec())
}

/// The start of an event stream that ends with its connection.
pub(super) const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

type Script = dyn Fn(&Seen) -> Option<Vec<Step>> + Send + Sync;

/// The server. By default it is a good one of the legacy era with the tools `go` and `good`.
pub(super) struct Server {
    pub(super) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    _served: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(script: impl Fn(&Seen) -> Option<Vec<Step>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (script, log, count): (Arc<Script>, _, _) = (Arc::new(script), seen.clone(), connections.clone());
        let mut served = JoinSet::new();
        served.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                all.spawn(serve(stream, number, script.clone(), log.clone()));
            }
        });
        Self { port, seen, connections, _served: served }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Returns the config entry of this server.
    pub(super) fn entry(&self) -> Value {
        json!({ "type": "http", "url": self.url(), "era": "legacy" })
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns how often it got such a request.
    pub(super) fn count(&self, what: &str) -> usize {
        self.seen().iter().filter(|seen| seen.what() == what).count()
    }

    /// Returns how many connections were made to it.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, number: usize, script: Arc<Script>, log: Arc<Mutex<Vec<Seen>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = read(&mut stream, number).await {
        log.lock().unwrap().push(seen.clone());
        let steps = script(&seen).unwrap_or_else(|| good(&seen, "2025-11-25"));
        for step in steps {
            if !act(&mut stream, step).await {
                return;
            }
        }
    }
}

/// Does one step; returns false if it was the last one of its connection.
async fn act(stream: &mut BufReader<TcpStream>, step: Step) -> bool {
    match step {
        Write(bytes) => stream.write_all(&bytes).await.is_ok(),
        Endless(bytes) => {
            let many = bytes.repeat((64 * 1024 / bytes.len().max(1)).max(1));
            while stream.write_all(&many).await.is_ok() {}
            false
        }
        Drip(bytes, apart) => {
            for byte in bytes.iter().cycle() {
                tokio::time::sleep(apart).await;
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
            false
        }
        Hold => {
            // Until the client gives up.
            let mut nothing = [0; 1024];
            while matches!(stream.read(&mut nothing).await, Ok(1..)) {}
            false
        }
        Close => false,
        Reset => {
            stream.get_ref().set_zero_linger().unwrap();
            false
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>, connection: usize) -> Option<Seen> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let pairs = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers: HashMap<_, _> = pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    let mut words = lines[0].split(' ').map(str::to_owned);
    let verb = words.next()?;
    Some(Seen { connection, verb, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// What a good server of this revision does.
pub(super) fn good(seen: &Seen, revision: &str) -> Vec<Step> {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let result = match seen.what() {
        "initialize" => json!({ "protocolVersion": revision, "capabilities": { "tools": {} },
            "serverInfo": { "name": "bad", "version": "1" } }),
        "server/discover" => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} } }),
        "tools/list" => json!({ "resultType": "complete", "tools": [tool("go"), tool("good")] }),
        "tools/call" => return json_answer(&seen.done(seen.tool())),
        "GET" => return with(405, &[], ""),
        _ => return with(202, &[], ""),
    };
    json_answer(&seen.answer(&result))
}
