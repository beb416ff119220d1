//! Clients of one host over each transport. They keep every byte that they get.

use std::net::SocketAddr;
use std::time::Duration;

use mcp_host::Host;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::unix::{OwnedReadHalf as PipeReader, OwnedWriteHalf as PipeWriter};
use tokio::net::{TcpStream, UnixStream};

/// The longest that a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a client reaches the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Sse,
    Pipe,
}

/// One client of one revision.
pub(crate) struct Client {
    revision: &'static str,
    count: u64,
    way: Way,
    capabilities: Value,
    /// Its answer to whatever it is asked but roots, over a pipe and over SSE, null if it gives none; and what it was asked.
    pub(crate) answer: Value,
    pub(crate) asked: Vec<Value>,
    /// Everything that it got.
    pub(crate) heard: String,
}

enum Way {
    Http { to: SocketAddr, path: String, headers: String },
    Sse { to: SocketAddr, post: String, stream: BufReader<OwnedReadHalf>, _writer: tokio::net::tcp::OwnedWriteHalf },
    Pipe { reader: BufReader<PipeReader>, writer: PipeWriter },
}

impl Client {
    /// Connects a client. `at` is what follows the path of the endpoint, such as `/review`.
    pub(crate) async fn enter(
        host: &Host,
        to: SocketAddr,
        transport: Transport,
        revision: &'static str,
        at: &str,
    ) -> Self {
        Self::able(host, to, transport, revision, (at, json!({}))).await
    }

    /// Connects a client with these capabilities.
    pub(crate) async fn able(
        host: &Host,
        to: SocketAddr,
        transport: Transport,
        revision: &'static str,
        (at, capabilities): (&str, Value),
    ) -> Self {
        Self::with_headers(host, to, transport, revision, (at, capabilities, "")).await
    }

    /// Connects a client over HTTP that proves who it is.
    pub(crate) async fn proving(host: &Host, to: SocketAddr, revision: &'static str, token: &str) -> Self {
        let headers = format!("authorization: Bearer {token}\r\n");
        Self::with_headers(host, to, Transport::Http, revision, ("", json!({}), &headers)).await
    }

    async fn with_headers(
        host: &Host,
        to: SocketAddr,
        transport: Transport,
        revision: &'static str,
        (at, capabilities, headers): (&str, Value, &str),
    ) -> Self {
        let mut heard = String::new();
        let way = match transport {
            Transport::Http => Way::Http { to, path: format!("/mcp{at}"), headers: headers.to_owned() },
            Transport::Sse => {
                let (reader, mut writer) = TcpStream::connect(to).await.unwrap().into_split();
                let head = format!("GET /sse{at} HTTP/1.1\r\nhost: {to}\r\naccept: text/event-stream\r\n\r\n");
                writer.write_all(head.as_bytes()).await.unwrap();
                let mut stream = BufReader::new(reader);
                let post = loop {
                    let line = line(&mut stream, &mut heard).await;
                    if let Some(data) = line.strip_prefix("data: ") {
                        break data.to_owned();
                    }
                };
                Way::Sse { to, post, stream, _writer: writer }
            }
            Transport::Pipe => {
                let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                let host = host.clone();
                tokio::spawn(async move { host.serve_stream(theirs, 0).await });
                ours.set_nonblocking(true).unwrap();
                let (reader, writer) = UnixStream::from_std(ours).unwrap().into_split();
                Way::Pipe { reader: BufReader::new(reader), writer }
            }
        };
        let (answer, asked) = (json!({ "action": "cancel" }), Vec::new());
        let mut client = Self { revision, count: 0, way, capabilities, answer, asked, heard };
        if !client.is_modern() {
            let info = json!({ "name": "client", "version": "1" });
            let capabilities = client.capabilities.clone();
            let hello = json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": info });
            let answer = client.ask("initialize", hello).await;
            assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        }
        client
    }

    /// Waits until the host has ended its stream.
    pub(crate) async fn ended(&mut self) -> bool {
        let Way::Sse { stream, .. } = &mut self.way else { return false };
        let mut rest = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut rest)).await.is_ok()
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.revision == "2026-07-28"
    }

    /// Returns the answer to a request, without its id.
    pub(crate) async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.count += 1;
        let id = self.count;
        let more = self.headers(method, &params);
        if self.is_modern() {
            params["_meta"] = self.meta();
        }
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        let answer = tokio::time::timeout(PATIENCE, self.say(id, &body, &more));
        let mut answer = answer.await.unwrap_or_else(|_| panic!("no answer to {body}"));
        answer["id"] = Value::Null;
        answer
    }

    /// Returns what a request without a session says of its sender.
    fn meta(&self) -> Value {
        json!({
            "io.modelcontextprotocol/protocolVersion": self.revision,
            "io.modelcontextprotocol/clientInfo": { "name": "client", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        })
    }

    /// Returns the headers that repeat what a request without a session says.
    fn headers(&self, method: &str, params: &Value) -> String {
        if !self.is_modern() {
            return String::new();
        }
        let name = params["name"].as_str().or(params["uri"].as_str());
        let name = name.map_or(String::new(), |name| format!("mcp-name: {name}\r\n"));
        format!("mcp-protocol-version: {}\r\nmcp-method: {method}\r\n{name}", self.revision)
    }

    /// Returns the answer to a request with these params, as they are written.
    pub(crate) async fn ask_raw(&mut self, method: &str, params: &str) -> Value {
        self.count += 1;
        let (id, mut params) = (self.count, params.to_owned());
        let more = self.headers(method, &serde_json::from_str(&params).unwrap());
        if self.is_modern() {
            params = format!(r#"{{"_meta":{},{}"#, self.meta(), &params[1..]);
        }
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let answer = tokio::time::timeout(PATIENCE, self.say(id, &body, &more));
        answer.await.unwrap_or_else(|_| panic!("no answer to {body}"))
    }

    /// Opens the change stream of a client without a session, and ends it once the host has said what it grants. Returns
    /// that.
    pub(crate) async fn listen(&mut self, filter: &Value) -> Value {
        self.count += 1;
        let (id, method) = (self.count, "subscriptions/listen");
        let params = json!({ "_meta": self.meta(), "notifications": filter });
        let more = self.headers(method, &params);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        let said = tokio::time::timeout(PATIENCE, self.granted(id, &body, &more));
        said.await.unwrap_or_else(|_| panic!("nothing is granted of {body}"))
    }

    async fn granted(&mut self, id: u64, body: &str, more: &str) -> Value {
        let heard = &mut self.heard;
        match &mut self.way {
            Way::Http { to, path, headers } => {
                let stream = open(*to, "POST", path, &format!("{headers}{more}"), body).await;
                // The client does not close its sending side.
                let (reader, _writer) = stream.into_split();
                let mut stream = BufReader::new(reader);
                loop {
                    let said = acknowledged(&line(&mut stream, heard).await, id);
                    if let Some(granted) = said {
                        return granted;
                    }
                }
            }
            Way::Pipe { reader, writer } => {
                writer.write_all(format!("{body}\n").as_bytes()).await.unwrap();
                loop {
                    let mut line = String::new();
                    assert!(reader.read_line(&mut line).await.unwrap() > 0, "{body}: the pipe has ended");
                    heard.push_str(&line);
                    if let Some(granted) = acknowledged(&line, id) {
                        let params = json!({ "requestId": id });
                        let over = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
                        writer.write_all(format!("{over}\n").as_bytes()).await.unwrap();
                        return granted;
                    }
                }
            }
            Way::Sse { .. } => panic!("a client with a session has no such stream"),
        }
    }

    async fn say(&mut self, id: u64, body: &str, more: &str) -> Value {
        let heard = &mut self.heard;
        match &mut self.way {
            Way::Http { to, path, headers } => {
                let answer = send(*to, "POST", path, &format!("{headers}{more}"), body).await;
                heard.push_str(&answer);
                let session = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
                if let Some(session) = session {
                    *headers += &format!("mcp-session-id: {session}\r\n");
                }
                of(&answer, id).unwrap_or_else(|| panic!("{body}: {answer}"))
            }
            Way::Sse { to, post, stream, .. } => {
                let answer = send(*to, "POST", post, more, body).await;
                heard.push_str(&answer);
                loop {
                    let line = line(stream, heard).await;
                    if let Some(answer) = of(&line, id) {
                        return answer;
                    }
                    let message = line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok());
                    if let Some(asked) =
                        message.filter(|message| message["method"].is_string() && !message["id"].is_null())
                    {
                        let reply = reply(&asked, &self.answer);
                        send(*to, "POST", post, "", &reply).await;
                        self.asked.push(asked);
                    }
                }
            }
            Way::Pipe { reader, writer } => {
                writer.write_all(format!("{body}\n").as_bytes()).await.unwrap();
                loop {
                    let mut line = String::new();
                    assert!(reader.read_line(&mut line).await.unwrap() > 0, "{body}: the pipe has ended");
                    heard.push_str(&line);
                    let message: Value = serde_json::from_str(&line).unwrap();
                    if message["method"].is_string() {
                        if !message["id"].is_null() {
                            if !self.answer.is_null() {
                                let reply = reply(&message, &self.answer);
                                writer.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
                            }
                            self.asked.push(message);
                        }
                    } else if message["id"] == id {
                        return message;
                    }
                }
            }
        }
    }
}

/// The text of the response to a question.
fn reply(asked: &Value, answer: &Value) -> String {
    let roots = json!({ "roots": [{ "uri": "file:///of-the-client" }] });
    let result = if asked["method"] == "roots/list" { &roots } else { answer };
    json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string()
}

async fn line(stream: &mut BufReader<OwnedReadHalf>, heard: &mut String) -> String {
    let mut line = String::new();
    assert!(stream.read_line(&mut line).await.unwrap() > 0, "the stream has ended: {heard}");
    heard.push_str(&line);
    line.trim_end().to_owned()
}

/// Returns what a host grants of the change stream with this id, if that is what the line says.
fn acknowledged(line: &str, id: u64) -> Option<Value> {
    let mut message: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap_or(line)).ok()?;
    let is_it = message["method"] == "notifications/subscriptions/acknowledged"
        && message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == id;
    is_it.then(|| message["params"]["notifications"].take())
}

/// Finds the answer with this id in lines that may be JSON or events.
fn of(text: &str, id: u64) -> Option<Value> {
    text.lines().find_map(|line| {
        let line = line.strip_prefix("data: ").unwrap_or(line);
        let message: Value = serde_json::from_str(line).ok()?;
        (message["id"] == id).then_some(message)
    })
}

/// Sends one request, and returns the whole response. The head is in lower case.
pub(crate) async fn send(to: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = open(to, method, path, headers, body).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    // Values keep their case: ids of sessions have both.
    let head = head.split("\r\n").map(|line| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
        None => line.to_lowercase(),
    });
    format!("{}\r\n\r\n{body}", head.collect::<Vec<_>>().join("\r\n"))
}

/// Sends one request, and returns the connection.
async fn open(to: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let fixed =
        "accept: application/json, text/event-stream\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let length = body.len();
    let text =
        format!("{method} {path} HTTP/1.1\r\nhost: {to}\r\n{fixed}{headers}content-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}
