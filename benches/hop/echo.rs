//! The server behind every hop. It speaks the revisions that begin with `initialize`, over pipes or Streamable HTTP,
//! and answers at once unless the tool is to sleep.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::call::text;
use crate::process::{accept, standard_input, standard_output};

/// The wire size of one tool definition: 76 KB per hundred.
const TOOL: usize = 760;
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The state shared by all connections of one server.
#[derive(Debug)]
struct Echo {
    /// The complete `tools` array.
    tools: String,
    /// The last blob that was requested, kept because the same size is requested again and again.
    blob: std::cell::RefCell<Rc<str>>,
}

/// What to answer to one message, and when.
enum Answer {
    Nothing,
    Now(Vec<u8>),
    After(Duration, Vec<u8>),
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    protocol_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    bytes: Option<usize>,
    ms: Option<u64>,
}

/// Serves on standard input and output until the input ends.
pub(crate) async fn serve_stdio(tools: usize) -> io::Result<()> {
    let echo = Echo::new(tools);
    let (mut input, mut output) = (standard_input()?, standard_output()?);
    let mut received = BytesMut::with_capacity(64 * 1024);
    let mut out = Vec::new();
    let mut seen = 0;
    let mut sleeping = JoinSet::new();
    loop {
        tokio::select! {
            count = input.read_buf(&mut received) => if count? == 0 { return Ok(()) },
            Some(awake) = sleeping.join_next() => {
                let line: Vec<u8> = awake.map_err(io::Error::other)?;
                output.write_all(&line).await?;
                continue;
            }
        }
        while let Some(at) = memchr::memchr(b'\n', &received[seen..]) {
            let end = seen + at;
            match echo.answer(&received[..end]) {
                Answer::Nothing => {}
                Answer::Now(answer) => {
                    out.extend_from_slice(&answer);
                    out.push(b'\n');
                }
                Answer::After(time, mut answer) => {
                    answer.push(b'\n');
                    sleeping.spawn(async move {
                        tokio::time::sleep(time).await;
                        answer
                    });
                }
            }
            received.advance(end + 1);
            seen = 0;
        }
        seen = received.len();
        received.reserve(64 * 1024);
        if !out.is_empty() {
            output.write_all(&out).await?;
            out.clear();
        }
    }
}

/// Serves on a loopback port until standard input, the lifeline, ends. With `events`, each answer is an event stream.
pub(crate) async fn serve_http(port: u16, tools: usize, events: bool) -> io::Result<()> {
    let echo = Rc::new(Echo::new(tools));
    accept(port, || {
        let echo = Rc::clone(&echo);
        move |request| {
            let echo = Rc::clone(&echo);
            async move { Ok::<_, Infallible>(echo.respond(request, events).await) }
        }
    })
    .await
}

impl Echo {
    fn new(tools: usize) -> Self {
        Self { tools: definitions(tools), blob: std::cell::RefCell::new("".into()) }
    }

    async fn respond(&self, request: Request<Incoming>, events: bool) -> Response<Full<Bytes>> {
        let plain = |status, body: &'static str| {
            let mut response = Response::new(Full::from(body));
            *response.status_mut() = status;
            response
        };
        match *request.method() {
            Method::POST => {}
            Method::DELETE => return plain(StatusCode::OK, ""),
            _ => return plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        }
        let Ok(body) = request.into_body().collect().await else {
            return plain(StatusCode::BAD_REQUEST, "the body is incomplete");
        };
        let body = body.to_bytes();
        let answer = match self.answer(&body) {
            Answer::Nothing => return plain(StatusCode::ACCEPTED, ""),
            Answer::Now(answer) => answer,
            Answer::After(time, answer) => {
                tokio::time::sleep(time).await;
                answer
            }
        };
        let (kind, answer) = if events {
            ("text/event-stream", [b"event: message\ndata: ", &*answer, b"\n\n"].concat())
        } else {
            ("application/json", answer)
        };
        Response::builder()
            .header(CONTENT_TYPE, kind)
            // All sessions have the same id, since they hold nothing here. Only the id in the handshake's response is
            // checked.
            .header("Mcp-Session-Id", "echo-session-0123456789abcdef")
            .body(Full::from(answer))
            .expect("all headers are valid")
    }

    fn answer(&self, message: &[u8]) -> Answer {
        let message: Message<'_> = match serde_json::from_slice(message) {
            Ok(message) => message,
            Err(_) if message.iter().all(u8::is_ascii_whitespace) => return Answer::Nothing,
            Err(cause) => return Answer::Now(refusal("null", -32700, &cause.to_string())),
        };
        let (Some(id), Some(method)) = (message.id, message.method) else { return Answer::Nothing };
        let id = id.get();
        let params = message.params.unwrap_or_default();
        Answer::Now(match &*method {
            "initialize" => {
                let asked = params.protocol_version.unwrap_or_default();
                let revision = REVISIONS.into_iter().find(|known| *known == asked).unwrap_or("2025-11-25");
                result(
                    id,
                    &[
                        r#"{"protocolVersion":""#,
                        revision,
                        r#"","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#,
                    ],
                )
            }
            "ping" => result(id, &["{}"]),
            "tools/list" => result(id, &[r#"{"tools":"#, &self.tools, "}"]),
            "tools/call" => return self.call(id, &params),
            other => refusal(id, -32601, &format!("no method {other}")),
        })
    }

    fn call(&self, id: &str, params: &Params<'_>) -> Answer {
        let content = |text: &str| result(id, &[r#"{"content":[{"type":"text","text":"#, text, "}]}"]);
        let none = Arguments::default();
        let arguments = params.arguments.as_ref().unwrap_or(&none);
        match (params.name.as_deref(), arguments) {
            (Some("echo"), Arguments { text: Some(text), .. }) => Answer::Now(content(text.get())),
            (Some("blob"), Arguments { bytes: Some(bytes), .. }) => Answer::Now(content(&self.blob(*bytes))),
            (Some("slow"), Arguments { ms: Some(ms), .. }) => {
                Answer::After(Duration::from_millis(*ms), content(r#""slept""#))
            }
            (name, _) => Answer::Now(refusal(id, -32602, &format!("no tool {name:?} with these arguments"))),
        }
    }

    fn blob(&self, bytes: usize) -> Rc<str> {
        let mut blob = self.blob.borrow_mut();
        if blob.len() != bytes + 2 {
            *blob = format!("\"{}\"", text(bytes)).into();
        }
        Rc::clone(&blob)
    }
}

fn result(id: &str, parts: &[&str]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + id.len() + 64);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(br#","result":"#);
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'}');
    out
}

fn refusal(id: &str, code: i32, message: &str) -> Vec<u8> {
    let message = serde_json::Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#).into_bytes()
}

/// Returns the definitions of `count` tools: the three that do something, then filler.
fn definitions(count: usize) -> String {
    let mut tools = vec![
        definition("echo", r#""text":{"type":"string","description":"What comes back"}"#, "text"),
        definition("blob", r#""bytes":{"type":"integer","description":"How much comes back"}"#, "bytes"),
        definition("slow", r#""ms":{"type":"integer","description":"How long to sleep"}"#, "ms"),
    ];
    let filler = concat!(
        r#""path":{"type":"string","description":"Path of the file, relative to the root of the project"},"#,
        r#""limit":{"type":"integer","minimum":1,"maximum":1000,"default":100},"#,
        r#""mode":{"type":"string","enum":["read","write","append"],"description":"How to open it"}"#
    );
    tools.extend((tools.len()..count).map(|at| definition(&format!("filler_{at:04}"), filler, "path")));
    format!("[{}]", tools.join(","))
}

/// Returns one definition of `TOOL` bytes, followed by a comma.
fn definition(name: &str, properties: &str, required: &str) -> String {
    let tail = format!(
        r#"","inputSchema":{{"type":"object","properties":{{{properties}}},"required":["{required}"]}},"annotations":{{"readOnlyHint":true,"openWorldHint":false}}}}"#
    );
    let mut tool = String::with_capacity(TOOL);
    write!(tool, r#"{{"name":"{name}","title":"The tool {name}","description":""#).expect("a string takes all");
    let words = "Reads, changes or describes one of the things this server knows about, and says what it did. ";
    while tool.len() + tail.len() + 1 < TOOL {
        let room = TOOL - 1 - tail.len() - tool.len();
        tool.push_str(&words[..room.min(words.len())]);
    }
    tool + &tail
}
