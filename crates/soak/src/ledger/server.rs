//! The upstreams of the ledger run, as hidden modes of this program: each writes the mark of a call into its ledger
//! before it answers, so that the record survives a `kill -9`. Written by hand on the wire of each revision, so that no
//! code of the host vouches for itself.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, LocalBoxStream, Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The first argument of a process that runs one.
pub(crate) const MODE: &str = "__ledger-server";

/// The protocol and transport of such a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    pub(crate) revision: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Pipe,
    /// Streamable HTTP that answers with JSON.
    Json,
    /// Streamable HTTP that answers with streams.
    Stream,
    /// HTTP with SSE.
    Sse,
}

/// All servers of a run.
pub(crate) const KINDS: [Kind; 8] = [
    Kind { name: "pipe24", wire: Wire::Pipe, revision: "2024-11-05" },
    Kind { name: "pipe25", wire: Wire::Pipe, revision: "2025-11-25" },
    Kind { name: "pipe26", wire: Wire::Pipe, revision: MODERN },
    Kind { name: "json25", wire: Wire::Json, revision: "2025-03-26" },
    Kind { name: "stream25", wire: Wire::Stream, revision: "2025-11-25" },
    Kind { name: "json26", wire: Wire::Json, revision: MODERN },
    Kind { name: "stream26", wire: Wire::Stream, revision: MODERN },
    Kind { name: "sse24", wire: Wire::Sse, revision: "2024-11-05" },
];

pub(crate) const MODERN: &str = "2026-07-28";
/// How long a restarted server may have to wait for the port of the killed one.
const BIND: Duration = Duration::from_secs(10);

/// Runs one: `__ledger-server FOLDER/NAME [PORT]`.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let path = arguments.next().ok_or("which ledger?")?;
    let name = Path::new(&path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let kind = KINDS.into_iter().find(|kind| kind.name == name).ok_or("no such server")?;
    let port = arguments.next().and_then(|port| port.parse::<u16>().ok());
    let ledger = File::options().append(true).create(true).open(format!("{path}-{}", std::process::id()));
    let server = Rc::new(Server { kind, ledger: ledger.map_err(|error| error.to_string())? });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let serve = async {
        match port {
            None => pipe(server).await,
            Some(port) => http(server, port).await,
        }
    };
    tokio::task::LocalSet::new().block_on(&runtime, serve).map_err(|error| error.to_string())
}

struct Server {
    kind: Kind,
    ledger: File,
}

/// The messages of one response, in order, each after a delay.
type Said = LocalBoxStream<'static, Value>;

impl Server {
    fn is_modern(&self) -> bool {
        self.kind.revision == MODERN
    }

    /// Returns everything sent in response to a request.
    fn answer(&self, request: &Value) -> Said {
        let answer = |result: Result<Value, Value>| {
            let mut message = json!({ "jsonrpc": "2.0", "id": request["id"] });
            match result {
                Ok(mut result) => {
                    if self.is_modern() {
                        result["resultType"] = "complete".into();
                    }
                    message["result"] = result;
                }
                Err(error) => message["error"] = error,
            }
            message
        };
        let now = |result| stream::once(std::future::ready(answer(result))).boxed_local();
        match (request["method"].as_str().unwrap_or_default(), self.is_modern()) {
            ("initialize", true) => now(Err(json!({
                "code": -32022, "message": "one revision only", "data": { "supported": [MODERN] } }))),
            ("initialize", false) => now(Ok(json!({
                "protocolVersion": self.kind.revision, "capabilities": { "tools": {} },
                "serverInfo": { "name": self.kind.name, "version": "1" } }))),
            ("server/discover", true) => now(Ok(json!({
                "supportedVersions": [MODERN], "capabilities": { "tools": {} }, "ttlMs": 3_600_000,
                "cacheScope": "public" }))),
            ("ping", false) => now(Ok(json!({}))),
            ("tools/list", modern) => {
                let mut list = json!({ "tools": [{ "name": "note", "inputSchema": { "type": "object" } }] });
                if modern {
                    (list["ttlMs"], list["cacheScope"]) = (3_600_000.into(), "public".into());
                }
                now(Ok(list))
            }
            ("tools/call", _) => self.call(request, answer),
            (method, _) => now(Err(json!({ "code": -32601, "message": format!("no method {method}") }))),
        }
    }

    /// Runs the one tool: records the mark, then waits as long as the mark says, so that responses come in another
    /// order.
    fn call(&self, request: &Value, answer: impl Fn(Result<Value, Value>) -> Value) -> Said {
        let params = &request["params"];
        let mark = params["arguments"]["mark"].as_str().unwrap_or_default().to_owned();
        // One write, so that a line is complete or missing.
        if (&self.ledger).write_all(format!("{mark}\n").as_bytes()).is_err() {
            return stream::once(std::future::ready(answer(Err(json!({ "code": -32603, "message": "no ledger" })))))
                .boxed_local();
        }
        let chance = mark.bytes().fold(7u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let token = &params["_meta"]["progressToken"];
        let progress = (chance & 0x30 == 0 && !token.is_null()).then(|| {
            json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                "params": { "progressToken": token, "progress": 1, "message": mark } })
        });
        let text = format!("{mark} {}", self.kind.name);
        let last = answer(Ok(json!({ "content": [{ "type": "text", "text": text }] })));
        // JSON responses carry only one message.
        let progress = progress.filter(|_| self.kind.wire != Wire::Json);
        let pause = Duration::from_millis([0, 1, 2, 3, 5, 8, 12, 0][(chance % 8) as usize]);
        let messages = stream::iter(progress.into_iter().chain([last]));
        messages
            .then(move |message| async move {
                if pause > Duration::ZERO {
                    tokio::time::sleep(pause).await;
                }
                message
            })
            .boxed_local()
    }
}

async fn pipe(server: Rc<Server>) -> std::io::Result<()> {
    let (out, mut lines) = mpsc::channel::<Value>(4096);
    let write = async {
        let mut stdout = tokio::io::stdout();
        let mut ready = Vec::new();
        while let Some(message) = lines.recv().await {
            ready.clear();
            writeln!(ready, "{message}")?;
            while let Ok(message) = lines.try_recv() {
                writeln!(ready, "{message}")?;
            }
            stdout.write_all(&ready).await?;
            stdout.flush().await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let read = async {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        while let Some(line) = input.next_line().await? {
            let Some(request) = request(line.as_bytes()) else { continue };
            let mut said = server.answer(&request);
            let out = out.clone();
            tokio::task::spawn_local(async move {
                while let Some(message) = said.next().await {
                    // The pipe may be gone.
                    let _ = out.send(message).await;
                }
            });
        }
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}

/// Parses a message, if it expects a response.
fn request(bytes: &[u8]) -> Option<Value> {
    let message: Value = serde_json::from_slice(bytes).ok()?;
    (message.get("id").is_some() && message.get("method").is_some()).then_some(message)
}

/// Complete, or a stream.
type Body = Either<Full<Bytes>, StreamBody<LocalBoxStream<'static, Result<Frame<Bytes>, Infallible>>>>;

/// The state shared by all connections of one server.
struct Shared {
    server: Rc<Server>,
    /// Streams of HTTP with SSE, by session.
    streams: std::cell::RefCell<Vec<mpsc::Sender<Bytes>>>,
    /// The session id of this run of the server; ids of earlier runs are unknown.
    session: String,
}

async fn http(server: Rc<Server>, port: u16) -> std::io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let begun = std::time::Instant::now();
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if begun.elapsed() > BIND => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let session = format!("life-{}-", std::process::id());
    let shared = Rc::new(Shared { server, streams: std::cell::RefCell::default(), session });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let shared = shared.clone();
        let service = hyper::service::service_fn(move |request| {
            let shared = shared.clone();
            async move { Ok::<_, Infallible>(shared.respond(request).await) }
        });
        tokio::task::spawn_local(async move {
            // Clients may disconnect midway.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Shared {
    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let over_sse = self.server.kind.wire == Wire::Sse;
        let query = request.uri().query().and_then(|query| query.strip_prefix(&*self.session)?.parse::<usize>().ok());
        match *request.method() {
            Method::GET if over_sse => return self.open(),
            Method::POST => {}
            _ => return plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        }
        let session = request.headers().get("mcp-session-id").cloned();
        let Ok(body) = request.into_body().collect().await else { return plain(StatusCode::BAD_REQUEST, "") };
        let Some(request) = self::request(&body.to_bytes()) else { return plain(StatusCode::ACCEPTED, "") };
        if over_sse {
            let Some(out) = query.and_then(|at| self.streams.borrow().get(at).cloned()) else {
                return plain(StatusCode::NOT_FOUND, "");
            };
            let mut said = self.server.answer(&request);
            tokio::task::spawn_local(async move {
                while let Some(message) = said.next().await {
                    let _ = out.send(format!("event: message\ndata: {message}\n\n").into()).await;
                }
            });
            return plain(StatusCode::ACCEPTED, "");
        }
        let opens = request["method"] == "initialize";
        let known = session.is_some_and(|session| session.as_bytes() == self.session.as_bytes());
        if !self.server.is_modern() && !opens && !known {
            return plain(StatusCode::NOT_FOUND, "");
        }
        let mut said = self.server.answer(&request);
        let mut response = if self.server.kind.wire == Wire::Stream && request["method"] == "tools/call" {
            events(said.map(|message| Bytes::from(format!("data: {message}\n\n"))))
        } else {
            let message = said.next().await.unwrap_or_default();
            let refused = self.server.is_modern() && message["error"].is_object();
            let status = if refused { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            typed(plain(status, &message.to_string()), "application/json")
        };
        if opens && let Ok(session) = self.session.parse() {
            response.headers_mut().insert("mcp-session-id", session);
        }
        response
    }

    fn open(&self) -> Response<Body> {
        let (out, waiting) = mpsc::channel::<Bytes>(4096);
        let mut streams = self.streams.borrow_mut();
        let first = Bytes::from(format!("event: endpoint\ndata: /messages?{}{}\n\n", self.session, streams.len()));
        streams.push(out);
        let rest = stream::unfold(waiting, |mut waiting| async move { Some((waiting.recv().await?, waiting)) });
        events(stream::once(std::future::ready(first)).chain(rest))
    }
}

fn plain(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::from(body.to_owned())));
    *response.status_mut() = status;
    response
}

fn typed(mut response: Response<Body>, kind: &'static str) -> Response<Body> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn events(pieces: impl Stream<Item = Bytes> + 'static) -> Response<Body> {
    let frames = pieces.map(|piece| Ok(Frame::data(piece))).boxed_local();
    typed(Response::new(Either::Right(StreamBody::new(frames))), "text/event-stream")
}
