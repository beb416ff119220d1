//! A lease, and scripted servers that record what they are sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use super::super::*;
use crate::config::Remote;
use crate::lock::lock;
use crate::protocol::{Era, Message, Method};
use crate::transport::Endpoint;

/// Messages that servers send on their own.
pub(super) type News = mpsc::Receiver<(u64, Arc<Connection>, Relayed)>;

/// A lease and its events.
pub(super) struct Lease {
    pub(super) upstream: Arc<Upstream>,
    pub(super) news: News,
    pub(super) noted: Arc<Mutex<Vec<Era>>>,
    tasks: TaskTracker,
    _changes: mpsc::Receiver<Change>,
}

impl Lease {
    pub(super) fn start(target: Target, era: config::Era) -> Self {
        Self::remembering(target, era, None)
    }

    /// A lease of a known server.
    pub(super) fn remembering(target: Target, era: config::Era, known: Option<Era>) -> Self {
        Self::within(target, era, known, Duration::from_secs(20))
    }

    /// A lease with that start timeout.
    pub(super) fn within(target: Target, era: config::Era, known: Option<Era>, start_timeout: Duration) -> Self {
        Self::of(world(Nature::real()), known, Settings { start_timeout, ..settings(target, era) })
    }

    /// A lease under these limits.
    pub(super) fn limited(target: Target, era: config::Era, limits: config::Limits) -> Self {
        Self::of(world(Nature::real()), None, Settings { limits: Arc::new(limits), ..settings(target, era) })
    }

    /// A lease with given randomness and outer clock, which notices sleeps.
    pub(super) fn in_world(target: Target, era: config::Era, nature: Nature) -> Self {
        let surroundings = world(nature);
        tokio::spawn(surroundings.world.vigil.clone().keep(CancellationToken::new()));
        Self::of(surroundings, None, settings(target, era))
    }

    fn of(surroundings: Surroundings, known: Option<Era>, settings: Settings) -> Self {
        let Surroundings { world, news, changes } = surroundings;
        let noted = Arc::<Mutex<Vec<Era>>>::default();
        let notes = (noted.clone(), noted.clone());
        let memory = Memory {
            recall: Arc::new(move || lock(&notes.0).last().copied().or(known)),
            note: Arc::new(move |era| lock(&notes.1).push(era)),
            ..Memory::none()
        };
        let settings = Settings { memory, ..settings };
        let tasks = TaskTracker::new();
        let upstream = Upstream::spawn(1, settings, world, true, &tasks);
        Self { upstream, news, noted, tasks, _changes: changes }
    }

    pub(super) async fn connected(&self) -> Arc<Connection> {
        self.upstream.ready().await.unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// Waits for a state and returns the last cause.
    pub(super) async fn state(&self, wanted: StateName) -> String {
        let mut status = self.upstream.watch();
        let status = status.wait_for(|status| status.state == wanted).await.unwrap();
        status.cause.clone().unwrap_or_default()
    }

    /// Waits for the first loss and returns its cause.
    pub(super) async fn lost(&self) -> String {
        let mut status = self.upstream.watch();
        let status = status.wait_for(|status| status.restarts > 0).await.unwrap();
        status.cause.clone().unwrap_or_default()
    }

    pub(super) async fn revision(&self) -> &'static str {
        self.connected().await.peer().unwrap().version.as_str()
    }

    /// Asks as a client would.
    pub(super) async fn ask(&self, method: &Method, params: &Value) -> Result<Value, String> {
        let connection = self.connected().await;
        let terms = Terms { owner: Owner(7), ..Terms::host() };
        let params = Raw::from_value(params);
        let exchange = connection.open(connection.next_id(), method, Some(&params), &terms);
        match exchange.outcome().await {
            Ok(Ok(result)) => Ok(result.read().unwrap()),
            Ok(Err(error)) => Err(error.code.to_string()),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    pub(super) fn noted(&self) -> Vec<Era> {
        lock(&self.noted).clone()
    }

    /// Returns the next resource that is reported to have changed.
    pub(super) async fn updated(&mut self) -> String {
        loop {
            if let (_, _, Relayed::Updated(params)) = self.news.recv().await.unwrap() {
                return params.text("uri").unwrap();
            }
        }
    }

    pub(super) async fn end(self) {
        self.upstream.stop();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A world and the receivers of its events.
pub(super) struct Surroundings {
    pub(super) world: World,
    pub(super) news: News,
    pub(super) changes: mpsc::Receiver<Change>,
}

pub(super) fn world(nature: Nature) -> Surroundings {
    let (relay, news) = mpsc::channel(64);
    let (sender, changes) = mpsc::channel(64);
    Surroundings { world: World::new(Arc::default(), relay, sender, nature), news, changes }
}

/// Settings of a lease that is retried three times, quickly.
pub(super) fn settings(target: Target, era: config::Era) -> Settings {
    let delay = Duration::from_millis(10);
    Settings {
        server: "it".into(),
        announcer: Announcer::new("it", Default::default(), Default::default()),
        scrubber: Arc::default(),
        target,
        profile: Profile::EMPTY,
        client_info: Raw::from_value(&json!({"name": "host", "version": "0"})),
        start_timeout: Duration::from_secs(20),
        restart: config::Restart { max_retries: 3, min_delay: delay, max_delay: delay },
        limits: Arc::default(),
        caps: Caps::default(),
        era,
        daemon: false,
        memory: Memory::none(),
    }
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Value,
}

impl Seen {
    /// Returns a summary: `POST tools/call`, `GET`.
    pub(crate) fn what(&self) -> String {
        match self.body["method"].as_str() {
            Some(method) => format!("{} {method}", self.verb),
            None => self.verb.clone(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Builds the response with this result.
    pub(crate) fn result(&self, result: &Value) -> Reply {
        Reply::Json(200, json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string())
    }

    pub(crate) fn error(&self, status: u16, code: i64, data: &Value) -> Reply {
        let error = json!({"code": code, "message": "no", "data": data});
        Reply::Json(status, json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error}).to_string())
    }
}

/// A server's response to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Json(u16, String),
    /// JSON and a session id.
    Session(String, String),
    /// A body that is not JSON.
    Text(u16, &'static str),
    /// The data of events, until the sender is dropped.
    Stream(mpsc::Receiver<String>),
    /// A status without a body, once the value is true.
    Late(watch::Receiver<bool>, u16),
    /// Nothing, forever.
    Silence,
    /// Closes the connection.
    HangUp,
}

pub(crate) type Script = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// A server behind a URL.
pub(crate) struct Server {
    pub(crate) port: u16,
    log: Arc<Log>,
    _served: JoinSet<()>,
}

#[derive(Debug)]
struct Log {
    seen: watch::Sender<Vec<Seen>>,
    /// The requests whose streams the client closed.
    closed: watch::Sender<Vec<String>>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Log { seen: watch::Sender::default(), closed: watch::Sender::default() });
        let (script, shared): (Script, _) = (Arc::new(script), log.clone());
        let mut served = JoinSet::new();
        served.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, script.clone(), shared.clone()));
            }
        });
        Self { port, log, _served: served }
    }

    pub(crate) fn target(&self) -> Target {
        let url = format!("http://127.0.0.1:{}/mcp", self.port).parse().unwrap();
        Target::Http(Endpoint::new("s", Remote::new(url), None))
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.seen.borrow().clone()
    }

    /// Returns a summary of all requests so far.
    pub(crate) fn story(&self) -> Vec<String> {
        self.seen().iter().map(Seen::what).collect()
    }

    /// Waits until `count` such requests have arrived and returns the last.
    pub(crate) async fn until(&self, what: &str, count: usize) -> Seen {
        let mut seen = self.log.seen.subscribe();
        let found = |seen: &Vec<Seen>| seen.iter().filter(|seen| seen.what() == what).nth(count - 1).cloned();
        let seen = seen.wait_for(|seen| found(seen).is_some()).await.unwrap();
        found(&seen).unwrap()
    }

    /// Waits until the client has closed `count` streams of such requests.
    pub(crate) async fn until_closed(&self, what: &str, count: usize) {
        let mut closed = self.log.closed.subscribe();
        let enough = |closed: &Vec<String>| closed.iter().filter(|closed| *closed == what).count() >= count;
        drop(closed.wait_for(enough).await.unwrap());
    }
}

async fn serve(stream: TcpStream, script: Script, log: Arc<Log>) {
    let mut stream = BufReader::new(stream);
    while let Some(seen) = read(&mut stream).await {
        log.seen.send_modify(|all| all.push(seen.clone()));
        let (status, head, body) = match script(&seen) {
            Reply::Json(status, body) => (status, "Content-Type: application/json\r\n".to_owned(), body),
            Reply::Session(id, body) => {
                (200, format!("Content-Type: application/json\r\nMcp-Session-Id: {id}\r\n"), body)
            }
            Reply::Text(status, body) => (status, "Content-Type: text/html\r\n".to_owned(), body.to_owned()),
            Reply::Stream(events) => {
                if !pour(&mut stream, events).await {
                    log.closed.send_modify(|all| all.push(seen.what()));
                }
                return;
            }
            Reply::Late(mut now, status) => {
                drop(now.wait_for(|now| *now).await.unwrap());
                (status, String::new(), String::new())
            }
            Reply::Silence => return std::future::pending().await,
            Reply::HangUp => return,
        };
        let text = format!("HTTP/1.1 {status} X\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
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
    let pairs = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
    let headers: HashMap<_, _> = pairs.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    let verb = lines[0].split(' ').next().unwrap().to_owned();
    Some(Seen { verb, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Writes events until there are no more; returns false if the client left earlier.
async fn pour(stream: &mut BufReader<TcpStream>, mut events: mpsc::Receiver<String>) -> bool {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    if stream.write_all(head.as_bytes()).await.is_err() {
        return false;
    }
    let mut nothing = [0; 1];
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(data) => {
                    if stream.write_all(format!("data: {data}\n\n").as_bytes()).await.is_err() {
                        return false;
                    }
                }
                None => return true,
            },
            read = stream.read(&mut nothing) => if !matches!(read, Ok(1..)) { return false; },
        }
    }
}

/// A stream with these messages; it ends unless the sender is kept.
pub(crate) fn stream(says: impl IntoIterator<Item = Value>) -> (mpsc::Sender<String>, Reply) {
    let (sender, receiver) = mpsc::channel(64);
    for said in says {
        sender.try_send(said.to_string()).unwrap();
    }
    (sender, Reply::Stream(receiver))
}

/// A DiscoverResult with these capabilities.
pub(crate) fn discovered(capabilities: &Value) -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
           "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}})
}

/// The InitializeResult of a server without capabilities.
pub(crate) fn initialized() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}})
}

/// The usual responses of a legacy server behind a URL.
pub(crate) fn legacy(seen: &Seen) -> Reply {
    match seen.what().as_str() {
        "POST initialize" => {
            let body = json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": initialized()});
            Reply::Session("s-1".to_owned(), body.to_string())
        }
        "POST notifications/initialized" | "POST notifications/cancelled" => Reply::Text(202, ""),
        "GET" => Reply::Text(405, ""),
        "DELETE" => Reply::Text(200, ""),
        _ => seen.error(400, -32000, &json!({})),
    }
}

/// The other end of a link in memory: receives the host's messages, and answers them.
pub(super) struct Peer {
    pub(super) heard: mpsc::Receiver<Message>,
    pub(super) say: mpsc::Sender<transport::MemoryMessage>,
}

impl Peer {
    /// A server that hands out its end of each connection.
    pub(super) fn target() -> (Target, mpsc::Receiver<Self>) {
        let (sender, peers) = mpsc::channel(8);
        let start: Starter = Arc::new(move |wire, _| {
            let peer = Self { heard: wire.input, say: wire.out };
            sender.try_send(peer).unwrap_or_else(|_| panic!("too many connections"));
        });
        (Target::Memory(start), peers)
    }

    /// Returns the next request or notification: its id, method, and params.
    pub(super) async fn next(&mut self) -> (Value, String, Value) {
        let value = |raw: Option<Raw>| raw.map_or(Value::Null, |raw| raw.read().unwrap());
        match self.heard.recv().await.expect("the wire is open") {
            Message::Request(request) => {
                let id = serde_json::to_value(&request.id).unwrap();
                (id, request.method.to_string(), value(request.params))
            }
            Message::Notification(notice) => (Value::Null, notice.method.to_string(), value(notice.params)),
            Message::Response(response) => panic!("a response: {response:?}"),
        }
    }

    /// Returns the next message, which must have that method.
    pub(super) async fn hears(&mut self, method: &str) -> (Value, Value) {
        let (id, said, params) = self.next().await;
        assert_eq!(said, method);
        (id, params)
    }

    pub(super) async fn say(&self, message: &Value) {
        let message = Message::parse(&message.to_string().into()).unwrap();
        self.say.send((None, message)).await.unwrap_or_else(|_| panic!("the wire is open"));
    }

    pub(super) async fn result(&self, id: &Value, result: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    pub(super) async fn error(&self, id: &Value, code: i64, data: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no", "data": data}})).await;
    }
}
