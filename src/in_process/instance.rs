//! A running server in this process, and one run of it for each lease.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Handler, InProcess, Invocation, Offers, lock};
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::registry::Kind;
use crate::transport::{Said, Wire};

/// A server with all its leases.
pub(crate) struct Running {
    server: InProcess,
    /// What is offered now.
    offers: Mutex<Offers>,
    instances: Mutex<Vec<Weak<Instance>>>,
}

impl Running {
    pub(crate) fn new(server: InProcess) -> Arc<Self> {
        let offers = Mutex::new(server.offers.clone());
        Arc::new(Self { server, offers, instances: Mutex::default() })
    }

    /// Runs one instance on `tasks`, until its wire is closed.
    pub(crate) fn start(self: &Arc<Self>, wire: Wire, tasks: &TaskTracker) {
        let instance = Arc::new(Instance {
            running: self.clone(),
            out: wire.out,
            profile: Mutex::new(Profile::EMPTY),
            asked: Mutex::default(),
            requests: Mutex::default(),
            watched: Mutex::default(),
            next: AtomicU64::new(1),
        });
        let mut instances = lock(&self.instances);
        instances.retain(|instance| instance.strong_count() > 0);
        instances.push(Arc::downgrade(&instance));
        drop(instances);
        tasks.spawn(run(instance, wire.input, tasks.clone()));
    }

    /// Changes what is offered, and tells every client if that changed a list.
    pub(super) async fn change(&self, kind: Kind, change: impl FnOnce(&mut Offers) -> bool) -> bool {
        let changed = change(&mut lock(&self.offers));
        if changed {
            let method = match kind {
                Kind::Tools => Method::ToolsListChanged,
                Kind::Prompts => Method::PromptsListChanged,
                Kind::Resources | Kind::ResourceTemplates => Method::ResourcesListChanged,
            };
            let instances: Vec<_> = lock(&self.instances).iter().filter_map(Weak::upgrade).collect();
            for instance in instances {
                let notification = Notification { method: method.clone(), params: None };
                instance.say(None, Message::Notification(notification)).await;
            }
        }
        changed
    }

    fn initialize(&self, params: Option<&Raw>) -> Outcome {
        let wanted = params.and_then(|params| params.text("protocolVersion")).unwrap_or_default();
        let version = ProtocolVersion::parse_handshake(&wanted).unwrap_or(ProtocolVersion::LATEST_HANDSHAKE);
        let mut capabilities = serde_json::json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "logging": {},
            "resources": { "subscribe": true, "listChanged": true },
        });
        if self.server.others.contains_key(&Method::Complete) {
            capabilities["completions"] = serde_json::json!({});
        }
        let info = &self.server.info;
        let mut result = serde_json::json!({ "protocolVersion": version.as_str(), "capabilities": capabilities, "serverInfo": info });
        if let Some(text) = &self.server.instructions {
            result["instructions"] = text.as_str().into();
        }
        Ok(Raw::from_value(&result))
    }

    fn handler(&self, method: &Method, params: &Raw) -> Result<Handler, ErrorObject> {
        let text = |member: &str| params.text(member).unwrap_or_default();
        match method {
            Method::ToolsCall => lock(&self.offers).named(Kind::Tools, &text("name")),
            Method::PromptsGet => lock(&self.offers).named(Kind::Prompts, &text("name")),
            Method::ResourcesRead => lock(&self.offers).reader(&text("uri")),
            other => {
                let handler = self.server.others.get(other).cloned();
                handler.ok_or_else(|| ErrorObject::method_not_found(other.as_str()))
            }
        }
    }
}

/// One run of the server, for one lease.
pub(super) struct Instance {
    pub(super) running: Arc<Running>,
    out: mpsc::Sender<Said>,
    /// What its client can be asked.
    profile: Mutex<Profile>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    requests: Mutex<HashMap<RequestId, CancellationToken>>,
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
                if let Some(token) = id.and_then(|id| lock(&instance.requests).remove(&id)) {
                    token.cancel();
                }
            }
            Message::Notification(_) => {}
        }
    }
    for token in lock(&instance.requests).values() {
        token.cancel();
    }
}

impl Instance {
    async fn take(self: &Arc<Self>, request: Request, tasks: &TaskTracker) {
        let Request { id, method, params } = request;
        if let Some(outcome) = self.at_once(&method, params.as_ref()) {
            return self.respond(id, outcome).await;
        }
        let params = params.unwrap_or_else(Raw::empty_object);
        let handler = match self.running.handler(&method, &params) {
            Ok(handler) => handler,
            Err(error) => return self.respond(id, Err(error)).await,
        };
        let cancel = CancellationToken::new();
        lock(&self.requests).insert(id.clone(), cancel.clone());
        let during = if let RequestId::Number(id) = id { u64::try_from(id).ok() } else { None };
        let invocation = Invocation::new(self.clone(), params, during, cancel.clone());
        let instance = self.clone();
        tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = handler(invocation) => outcome,
                // One that listens for its cancellation has a moment to end in its own way.
                () = async { cancel.cancelled().await; tokio::time::sleep(Duration::from_secs(1)).await } => return,
            };
            if lock(&instance.requests).remove(&id).is_some() {
                instance.respond(id, outcome).await;
            }
        });
    }

    /// What needs no closure.
    fn at_once(&self, method: &Method, params: Option<&Raw>) -> Option<Outcome> {
        let list = |kind: Kind| Some(lock(&self.running.offers).list(kind));
        match method {
            Method::Initialize => {
                let capabilities = params.and_then(|params| params.member("capabilities"));
                let profile = capabilities.map(|raw| Profile::from_capabilities(raw.as_value()));
                *lock(&self.profile) = profile.unwrap_or(Profile::EMPTY);
                Some(self.running.initialize(params))
            }
            Method::Ping | Method::SetLevel => Some(Ok(Raw::empty_object())),
            Method::ToolsList => list(Kind::Tools),
            Method::PromptsList => list(Kind::Prompts),
            Method::ResourcesList => list(Kind::Resources),
            Method::ResourceTemplatesList => list(Kind::ResourceTemplates),
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                let uri = params.and_then(|params| params.text("uri")).unwrap_or_default();
                let mut watched = lock(&self.watched);
                if *method == Method::ResourcesSubscribe {
                    watched.insert(uri)
                } else {
                    watched.remove(&uri)
                };
                Some(Ok(Raw::empty_object()))
            }
            _ => None,
        }
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

    pub(super) async fn say(&self, during: Option<u64>, message: Message) {
        // A closed wire ends the instance by itself.
        let _ = self.out.send((during, message)).await;
    }

    pub(super) async fn ask(&self, during: Option<u64>, method: Method, params: Option<Raw>) -> Outcome {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&self.asked).insert(id, sender);
        let request = Request { id: RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX)), method, params };
        self.say(during, Message::Request(request)).await;
        receiver.await.unwrap_or_else(|_| Err(ErrorObject::internal("the client is gone")))
    }

    pub(super) fn profile(&self) -> Profile {
        *lock(&self.profile)
    }

    pub(super) fn is_watched(&self, uri: &str) -> bool {
        lock(&self.watched).contains(uri)
    }
}
