//! A server in this process, by closures: for embedders, for the demo, for tests.
//!
//! It speaks the protocol like any other server, over a wire in memory; [`InProcess::serve_stdio`] and
//! [`InProcess::serve_http`] offer it alone, through the doors of the host.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::registry::Kind;
use crate::transport::{HANG_UP, Said, Wire};

/// Answers one request.
type Handler = Arc<dyn Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A server made of closures. Each lease of it has its own state.
#[derive(Clone)]
pub struct InProcess {
    info: Raw,
    instructions: Option<String>,
    lists: [Vec<Raw>; 4],
    named: HashMap<(Kind, String), Handler>,
    others: HashMap<Method, Handler>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProcess({})", self.info)
    }
}

impl InProcess {
    /// A server that offers nothing yet.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            info: Raw::from_value(&serde_json::json!({ "name": name, "version": version })),
            instructions: None,
            lists: Default::default(),
            named: HashMap::new(),
            others: HashMap::new(),
        }
    }

    /// Says how it is to be used.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// Offers a tool: its definition as in `tools/list`, and what a call does.
    #[must_use]
    pub fn tool(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::Tools, definition, handler)
    }

    /// Takes calls of a tool that it does not list.
    #[must_use]
    pub fn unlisted_tool(
        mut self,
        name: &str,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.named.insert((Kind::Tools, name.to_owned()), Arc::new(handler));
        self
    }

    /// Offers a prompt: its definition as in `prompts/list`, and what makes its messages.
    #[must_use]
    pub fn prompt(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::Prompts, definition, handler)
    }

    /// Offers a resource: its definition as in `resources/list`, and what reads it.
    #[must_use]
    pub fn resource(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::Resources, definition, handler)
    }

    /// Offers a resource template: its definition, and what reads a URI that begins like it.
    #[must_use]
    pub fn resource_template(
        self,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.offer(Kind::ResourceTemplates, definition, handler)
    }

    /// Answers another method, `completion/complete` for one.
    #[must_use]
    pub fn method(
        mut self,
        method: Method,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        self.others.insert(method, Arc::new(handler));
        self
    }

    fn offer(
        mut self,
        kind: Kind,
        definition: Raw,
        handler: impl Fn(Invocation) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) -> Self {
        if let Some(name) = definition.text(kind.key()) {
            self.named.insert((kind, name), Arc::new(handler));
        }
        self.lists[kind as usize].push(definition);
        self
    }

    pub(crate) fn info(&self) -> &Raw {
        &self.info
    }

    /// Runs one instance on `tasks`, until its wire is closed.
    pub(crate) fn start(self: &Arc<Self>, wire: Wire, tasks: &TaskTracker) {
        let instance = Arc::new(Instance {
            server: self.clone(),
            out: wire.out,
            asked: Mutex::default(),
            running: Mutex::default(),
            watched: Mutex::default(),
            next: AtomicU64::new(1),
        });
        tasks.spawn(run(instance, wire.input, tasks.clone()));
    }

    fn initialize(&self, params: Option<&Raw>) -> Outcome {
        let wanted = params.and_then(|params| params.text("protocolVersion")).unwrap_or_default();
        let version = ProtocolVersion::parse_handshake(&wanted).unwrap_or(ProtocolVersion::LATEST_HANDSHAKE);
        let mut capabilities =
            serde_json::json!({ "tools": {}, "prompts": {}, "logging": {}, "resources": { "subscribe": true } });
        if self.others.contains_key(&Method::Complete) {
            capabilities["completions"] = serde_json::json!({});
        }
        let mut result = serde_json::json!({ "protocolVersion": version.as_str(), "capabilities": capabilities, "serverInfo": self.info });
        if let Some(text) = &self.instructions {
            result["instructions"] = text.as_str().into();
        }
        Ok(Raw::from_value(&result))
    }

    fn list(&self, kind: Kind) -> Outcome {
        let items: Vec<&str> = self.lists[kind as usize].iter().map(Raw::as_str).collect();
        Ok(Raw::trusted(format!(r#"{{"{}":[{}]}}"#, kind.member(), items.join(",")).into()))
    }

    fn handler(&self, method: &Method, params: &Raw) -> Result<Handler, ErrorObject> {
        let by = |kind: Kind, name: &str| self.named.get(&(kind, name.to_owned())).cloned();
        match method {
            Method::ToolsCall | Method::PromptsGet => {
                let (kind, what) =
                    if *method == Method::ToolsCall { (Kind::Tools, "tool") } else { (Kind::Prompts, "prompt") };
                let name = params.text("name").unwrap_or_default();
                by(kind, &name).ok_or_else(|| ErrorObject::invalid_params(format!("unknown {what}: {name}")))
            }
            Method::ResourcesRead => {
                let uri = params.text("uri").unwrap_or_default();
                by(Kind::Resources, &uri).or_else(|| self.template(&uri)).ok_or_else(|| {
                    let data = Raw::from_value(&serde_json::json!({ "uri": uri }));
                    ErrorObject::new(-32002, format!("no such resource: {uri}")).with_data(data)
                })
            }
            other => self.others.get(other).cloned().ok_or_else(|| ErrorObject::method_not_found(other.as_str())),
        }
    }

    fn template(&self, uri: &str) -> Option<Handler> {
        let mut templates = self.named.iter().filter(|((kind, _), _)| *kind == Kind::ResourceTemplates);
        let covers = |template: &str| {
            let head = template.split('{').next().unwrap_or(template);
            let tail = template.rsplit('}').next().unwrap_or_default();
            uri.len() > head.len() + tail.len() && uri.starts_with(head) && uri.ends_with(tail)
        };
        templates.find(|((_, template), _)| covers(template)).map(|(_, handler)| handler.clone())
    }
}

/// One run of the server, for one lease.
struct Instance {
    server: Arc<InProcess>,
    out: mpsc::Sender<Said>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    running: Mutex<HashMap<RequestId, CancellationToken>>,
    watched: Mutex<HashSet<String>>,
    next: AtomicU64,
}

async fn run(instance: Arc<Instance>, mut input: mpsc::Receiver<Message>, tasks: TaskTracker) {
    while let Some(message) = input.recv().await {
        match message {
            Message::Request(request) => instance.take(request, &tasks).await,
            Message::Response(response) => instance.answered(response),
            Message::Notification(notice) if notice.method == Method::Cancelled => {
                let id = notice.params.and_then(|params| params.member("requestId")?.read::<RequestId>().ok());
                if let Some(token) = id.and_then(|id| lock(&instance.running).remove(&id)) {
                    token.cancel();
                }
            }
            Message::Notification(_) => {}
        }
    }
    for token in lock(&instance.running).values() {
        token.cancel();
    }
}

impl Instance {
    async fn take(self: &Arc<Self>, request: Request, tasks: &TaskTracker) {
        let Request { id, method, params } = request;
        let at_once = match &method {
            Method::Initialize => Some(self.server.initialize(params.as_ref())),
            Method::Ping | Method::SetLevel => Some(Ok(Raw::empty_object())),
            Method::ToolsList => Some(self.server.list(Kind::Tools)),
            Method::PromptsList => Some(self.server.list(Kind::Prompts)),
            Method::ResourcesList => Some(self.server.list(Kind::Resources)),
            Method::ResourceTemplatesList => Some(self.server.list(Kind::ResourceTemplates)),
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                let uri = params.as_ref().and_then(|params| params.text("uri")).unwrap_or_default();
                let mut watched = lock(&self.watched);
                if method == Method::ResourcesSubscribe {
                    watched.insert(uri)
                } else {
                    watched.remove(&uri)
                };
                Some(Ok(Raw::empty_object()))
            }
            _ => None,
        };
        if let Some(outcome) = at_once {
            return self.respond(id, outcome).await;
        }
        let params = params.unwrap_or_else(Raw::empty_object);
        let handler = match self.server.handler(&method, &params) {
            Ok(handler) => handler,
            Err(error) => return self.respond(id, Err(error)).await,
        };
        let cancel = CancellationToken::new();
        lock(&self.running).insert(id.clone(), cancel.clone());
        let invocation = Invocation {
            arguments: params.member("arguments").unwrap_or_else(Raw::empty_object),
            token: params.member("_meta").and_then(|meta| meta.member("progressToken")),
            during: if let RequestId::Number(id) = id { u64::try_from(id).ok() } else { None },
            params,
            instance: self.clone(),
            cancel: cancel.clone(),
        };
        let instance = self.clone();
        tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = handler(invocation) => outcome,
                // One that listens for its cancellation has a moment to end in its own way.
                () = async { cancel.cancelled().await; tokio::time::sleep(Duration::from_secs(1)).await } => return,
            };
            if lock(&instance.running).remove(&id).is_some() {
                instance.respond(id, outcome).await;
            }
        });
    }

    async fn respond(&self, id: RequestId, outcome: Outcome) {
        self.say(None, Message::Response(Response { id: Some(id), outcome })).await;
    }

    fn answered(&self, response: Response) {
        let Some(RequestId::Number(id)) = response.id else { return };
        let waiting = u64::try_from(id).ok().and_then(|id| lock(&self.asked).remove(&id));
        if let Some(waiting) = waiting {
            // Whoever asked may have gone.
            let _ = waiting.send(response.outcome);
        }
    }

    async fn say(&self, during: Option<u64>, message: Message) {
        // A closed wire ends the instance by itself.
        let _ = self.out.send((during, message)).await;
    }
}

/// One request to a server in this process, and the way to its client meanwhile.
pub struct Invocation {
    /// The `arguments` of a tool or prompt; `{}` where there are none.
    pub arguments: Raw,
    /// All params.
    pub params: Raw,
    token: Option<Raw>,
    /// The id of its request, by which the host knows whose it is.
    during: Option<u64>,
    instance: Arc<Instance>,
    cancel: CancellationToken,
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("params", &self.params).finish_non_exhaustive()
    }
}

impl Invocation {
    /// Tells how far it is, if the caller wants to know.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        let Some(token) = &self.token else { return };
        let mut params =
            serde_json::json!({ "progressToken": token, "progress": number(progress), "message": message });
        if let Some(total) = total {
            params["total"] = number(total);
        }
        self.notify(Method::Progress, Raw::from_value(&params)).await;
    }

    /// Writes a log line for the client.
    pub async fn log(&self, level: &str, data: Raw) {
        let params = Raw::from_value(&serde_json::json!({ "level": level, "data": data }));
        self.notify(Method::LogMessage, params).await;
    }

    /// Sends any notification, in order with everything else.
    pub async fn notify(&self, method: Method, params: Raw) {
        self.instance.say(self.during, Message::Notification(Notification { method, params: Some(params) })).await;
    }

    /// Asks the client something: `sampling/createMessage`, `elicitation/create`, `roots/list`.
    ///
    /// # Errors
    /// The client's own error; `-32601` where it cannot be asked.
    pub async fn request(&self, method: Method, params: Option<Raw>) -> Outcome {
        let id = self.instance.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&self.instance.asked).insert(id, sender);
        let request = Request { id: RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX)), method, params };
        self.instance.say(self.during, Message::Request(request)).await;
        receiver.await.unwrap_or_else(|_| Err(ErrorObject::internal("the client is gone")))
    }

    /// Waits until the caller no longer wants the answer.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether the resource is watched.
    #[must_use]
    pub fn is_watched(&self, uri: &str) -> bool {
        lock(&self.instance.watched).contains(uri)
    }

    /// Asks the door to close the stream of this call and to let the client come back for the rest after `retry`
    /// (2025-11-25, transports). Doors without such streams go on as if nothing was said.
    pub async fn hang_up(&self, retry: Duration) {
        if let Some(token) = &self.token {
            let params = serde_json::json!({ "progressToken": token, "retry": u64::try_from(retry.as_millis()).unwrap_or(u64::MAX) });
            self.notify(Method::Other(HANG_UP.into()), Raw::from_value(&params)).await;
        }
    }
}

/// A whole number is written as one.
fn number(value: f64) -> serde_json::Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only whole numbers within the exact range of a double get here"
    )]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        serde_json::Value::from(value as i64)
    } else {
        serde_json::Value::from(value)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
