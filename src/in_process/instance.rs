//! A running in-process server, and its instance for each of the host's connections to it (leases).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::talk::{Shelf, Talk};
use super::{Handler, InProcess, Invocation, lock};
use crate::protocol::{
    ErrorObject, Message, Method, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::registry::Kind;
use crate::transport::Wire;

/// A server, and the lists that its instances share.
pub(crate) struct Running {
    server: InProcess,
    shelf: Arc<Shelf>,
}

impl Running {
    pub(crate) fn new(server: InProcess) -> Arc<Self> {
        let shelf = Shelf::new(server.offers.clone());
        Arc::new(Self { server, shelf })
    }

    /// Runs one instance as a task of `tasks`, until its connection is closed.
    pub(crate) fn start(self: &Arc<Self>, wire: Wire, tasks: &TaskTracker) {
        let talk = Talk::new(&self.shelf, wire.out);
        let instance = Arc::new(Instance { running: self.clone(), talk, requests: Mutex::default() });
        tasks.spawn(run(instance, wire.input, tasks.clone()));
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
            Method::ToolsCall => self.shelf.look(|offers| offers.named(Kind::Tools, &text("name"))),
            Method::PromptsGet => self.shelf.look(|offers| offers.named(Kind::Prompts, &text("name"))),
            Method::ResourcesRead => self.shelf.look(|offers| offers.reader(&text("uri"))),
            other => {
                let handler = self.server.others.get(other).cloned();
                handler.ok_or_else(|| ErrorObject::method_not_found(other.as_str()))
            }
        }
    }
}

/// The server's side of one connection.
struct Instance {
    running: Arc<Running>,
    talk: Arc<Talk>,
    requests: Mutex<HashMap<RequestId, CancellationToken>>,
}

async fn run(instance: Arc<Instance>, mut input: mpsc::Receiver<Message>, tasks: TaskTracker) {
    while let Some(message) = input.recv().await {
        match message {
            Message::Request(request) => instance.take(request, &tasks).await,
            Message::Response(response) => instance.talk.answered(response),
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
        let invocation = Invocation::new(self.talk.clone(), params, during, cancel.clone());
        let instance = self.clone();
        tasks.spawn(async move {
            let outcome = tokio::select! {
                outcome = handler(invocation) => outcome,
                // A handler that watches for its cancellation gets a second to finish by itself.
                () = async { cancel.cancelled().await; tokio::time::sleep(Duration::from_secs(1)).await } => return,
            };
            if lock(&instance.requests).remove(&id).is_some() {
                instance.respond(id, outcome).await;
            }
        });
    }

    /// Answers requests that need no closure.
    fn at_once(&self, method: &Method, params: Option<&Raw>) -> Option<Outcome> {
        let list = |kind: Kind| Some(self.running.shelf.look(|offers| offers.list(kind)));
        match method {
            Method::Initialize => {
                let capabilities = params.and_then(|params| params.member("capabilities"));
                let profile = capabilities.map(|raw| Profile::from_capabilities(raw.as_value()));
                self.talk.learn(profile.unwrap_or(Profile::EMPTY));
                Some(self.running.initialize(params))
            }
            Method::Ping | Method::SetLevel => Some(Ok(Raw::empty_object())),
            Method::ToolsList => list(Kind::Tools),
            Method::PromptsList => list(Kind::Prompts),
            Method::ResourcesList => list(Kind::Resources),
            Method::ResourceTemplatesList => list(Kind::ResourceTemplates),
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                let uri = params.and_then(|params| params.text("uri")).unwrap_or_default();
                self.talk.watch(uri, *method == Method::ResourcesSubscribe);
                Some(Ok(Raw::empty_object()))
            }
            _ => None,
        }
    }

    async fn respond(&self, id: RequestId, outcome: Outcome) {
        self.talk.say(None, Message::Response(Response { id: Some(id), outcome })).await;
    }
}
