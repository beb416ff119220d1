//! MCP tasks: calls that continue after they were answered (`docs/bridging.md` 11). Client and server may each have the
//! tasks of the core protocol of 2025-11-25 or those of the extension of 2026-07-28, in any pairing.
//!
//! A task outlives the request that began it, so there is no open call to bring its answer back. Instead, the id that
//! the client gets (the *handle*) is sealed for its principal and contains the server and the server's own task id. For
//! a server with sessions it also contains the lease (connection), since the task is lost with the lease. Requests
//! about a task are short requests of their own.
//!
//! A call begins a task (`create.rs`), and later requests ask about it by its id. If the two sides have different kinds
//! of tasks, each keeps its own way. A modern client polls with `tasks/get`; so for it a `tasks/result` request is kept
//! open at a legacy server, and questions wait in the host under a key (`held.rs`, `hold.rs`). A legacy client waits
//! for the response to `tasks/result`; so for it a modern server is polled, and the questions found are put to the
//! client (`driven.rs`). A client that knows no tasks never sees one: its call waits for the task, and cancels it if
//! the call is dropped (`hidden.rs`).
//!
//! **Invariant:** a sealed id opens only for its principal, and the server's own id cannot be read from it. Start
//! reading at [`Tasks::serve`].

mod create;
mod driven;
mod held;
mod hidden;
mod hold;
mod list;
mod news;
mod registry;
mod watch;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(super) use registry::{Registry, Task};

use super::Mailbox;
use super::answer::Failure;
use super::background::Background;
use super::client::Client;
use super::finish::Finish;
use super::plan::declared;
use super::reach::Connector;
use super::state::Sealer;
use crate::adapt::task;
use crate::answered::{Answered, NoResult, reworded};
#[cfg(feature = "cluster")]
use crate::boot::Boot;
#[cfg(feature = "cluster")]
use crate::manager::Principal;
use crate::manager::{Manager, Server};
use crate::protocol::{Edits, ErrorObject, Method, ProtocolVersion, Raw, code, object, value};
use crate::queues::Queues;
use crate::registry::expose_content;
use crate::seal::Purpose;
use crate::upstream::{Connection, Terms, Upstream};
use registry::TaskPlace;

/// The content that is sealed in the id of a task that a client gets.
#[derive(Debug, Serialize, Deserialize)]
struct Handle {
    server: String,
    id: String,
    /// The number of the lease, for a server with sessions.
    lease: Option<u64>,
    /// Whether only the host knows the task, because the call was over at once.
    #[serde(default)]
    here: bool,
    /// The host that has the lease, or knows the task, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    home: Option<String>,
}

/// The server and the connection where a task runs.
#[derive(Clone, Debug)]
struct At {
    server: Arc<Server>,
    upstream: Arc<Upstream>,
    connection: Arc<Connection>,
    version: ProtocolVersion,
}

/// Creates tasks, and serves requests about them.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) registry: Registry,
    pub(super) manager: Manager,
    pub(super) connector: Arc<Connector>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) finish: Arc<Finish>,
    pub(super) queues: Queues,
    pub(super) background: Background,
}

/// One request about a task: the client, the task, where it runs, and the stream of the request.
#[derive(Clone, Copy)]
struct About<'a> {
    client: &'a Arc<Client>,
    task: &'a Task,
    at: &'a At,
    leg: &'a Arc<Mailbox>,
}

/// Returns the error for an id by which no task is found.
fn unknown() -> ErrorObject {
    ErrorObject::invalid_params("unknown task: none of yours has this id, or the server that ran it is gone")
}

impl Tasks {
    /// Serves a request about a task.
    pub(super) async fn serve(
        &self,
        client: &Arc<Client>,
        method: &Method,
        params: Option<Raw>,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let is_known = match method {
            Method::TasksGet | Method::TasksCancel => {
                client.revision().is_modern() || client.revision() == ProtocolVersion::V2025_11_25
            }
            Method::TasksUpdate => client.revision().is_modern(),
            _ => client.revision() == ProtocolVersion::V2025_11_25,
        };
        if !is_known || !self.manager.settings().tasks {
            return Err(ErrorObject::method_not_found(method.as_str()).into());
        }
        if client.revision().is_modern() && !client.declares(task::EXTENSION) {
            return Err(undeclared().into());
        }
        let params = params.unwrap_or_else(Raw::empty_object);
        if *method == Method::TasksList {
            return Ok(self.list(client, &params, leg).await?);
        }
        let missing = || ErrorObject::invalid_params(format!("{method}: `taskId` is missing"));
        let handle = params.text("taskId").ok_or_else(missing)?;
        let task = self.known(client, &handle)?;
        if let TaskPlace::Here { outcome, at } = &task.place {
            return match method {
                Method::TasksGet => Ok(task::done(&task.handle, outcome, *at)),
                Method::TasksResult => Ok(task::related(&outcome.clone()?, &task.handle)),
                _ => Err(ErrorObject::invalid_params("the task is over already").into()),
            };
        }
        let at = self.reach_task(client, &task).await?;
        leg.concerns(&at.server, &Arc::from(&*task.id), None);
        let about = About { client, task: &task, at: &at, leg };
        let answered = match (at.version.is_modern(), client.revision().is_modern()) {
            (true, true) | (false, false) => self.relay_task(about, method, &params).await,
            (false, true) => self.held_task(about, method, &params).await,
            (true, false) => self.driven_task(about, method).await,
        };
        reworded(answered, |outcome| self.finish.across(client, &at.server, at.version, method, outcome))
    }

    /// Relays a request about a task between sides with the same kind of tasks. Only ids and URIs are changed.
    async fn relay_task(&self, about: About<'_>, method: &Method, params: &Raw) -> Answered {
        let About { client, task, at, leg } = about;
        if *method == Method::TasksResult {
            let result = self.wait_for_result(client, task, at, leg).await?;
            return Ok(task::related(&exposed(&result, &at.server), &task.handle));
        }
        let mut sent = task::renamed(&Raw::empty_object(), &task.id);
        if let Some(responses) = params.member("inputResponses") {
            sent = sent.with_member("inputResponses", responses.as_bytes());
        }
        let told = at.ask(client, method, &sent, leg).await?;
        if told.member("taskId").is_none() {
            return Ok(told);
        }
        let told = task::renamed(&exposed(&told, &at.server), &task.handle);
        // Examples in the extension's proposal have the type `task` here, but by its rules only a result that creates a
        // task has that type.
        Ok(if at.version.is_modern() { told.with_member("resultType", br#""complete""#) } else { told })
    }

    /// Returns the host that a task is bound to; `None` if it is bound to none, or its id does not open.
    #[cfg(feature = "cluster")]
    pub(super) fn home_of(&self, principal: &Principal, handle: &str) -> Option<Boot> {
        let sealed = self.sealer.seal().ok()?.open::<Handle>(Purpose::Task, principal.as_str(), handle).ok()?;
        Boot::parse(sealed.home?.as_bytes())
    }

    async fn reach_task(&self, client: &Arc<Client>, task: &Task) -> Result<At, NoResult> {
        let server =
            self.manager.callable_by(&client.who).iter().find(|server| server.config.alias == task.server).cloned();
        let server = server.ok_or_else(unknown)?;
        let (upstream, connection) = match &task.place {
            TaskPlace::Session { lease, connection, .. } => {
                let upstream = server.upstreams().into_iter().find(|upstream| upstream.id == *lease);
                let connection = connection.upgrade().filter(|connection| connection.lost().is_none());
                upstream.zip(connection).ok_or_else(unknown)?
            }
            TaskPlace::Open { .. } => {
                let reached = self.connector.connect(client, &server, None).await;
                let (upstream, connection) = reached.map_err(|failure| failure.of(&server))?;
                if connection.peer().is_none_or(|peer| !peer.version.is_modern()) {
                    return Err(unknown().into());
                }
                (upstream, connection)
            }
            TaskPlace::Here { .. } => return Err(unknown().into()),
        };
        let version = connection.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
        Ok(At { server, upstream, connection, version })
    }

    /// Returns the task that a client knows by this id, also if the table has forgotten a task of a server without
    /// sessions.
    fn known(&self, client: &Client, handle: &str) -> Result<Arc<Task>, ErrorObject> {
        let principal = client.bound();
        let sealed =
            self.sealer.seal()?.open::<Handle>(Purpose::Task, principal.as_str(), handle).map_err(|_| unknown())?;
        if !self.sealer.is_home(sealed.home.as_deref()) {
            return Err(unknown());
        }
        if let Some(task) = self.registry.find(handle).filter(|task| task.principal == *principal) {
            return Ok(task);
        }
        // A server without sessions keeps its tasks itself, so the sealed id alone is enough.
        let is_elsewhere = sealed.lease.is_none() && !sealed.here;
        let servers = self.manager.callable_by(&client.who);
        let server = servers.iter().find(|server| server.config.alias.as_str() == sealed.server);
        let server = server.filter(|_| is_elsewhere).ok_or_else(unknown)?;
        Ok(self.registry.put(Task {
            handle: handle.into(),
            principal: principal.clone(),
            owner: client.owner(),
            server: server.config.alias.clone(),
            id: sealed.id.into(),
            place: TaskPlace::Open { asked: tokio::sync::Mutex::default() },
        }))
    }

    /// Makes the id that the client gets for a task, and registers the task under it.
    fn know(&self, client: &Client, server: &Server, id: &str, place: TaskPlace) -> Result<Arc<Task>, ErrorObject> {
        let principal = client.bound();
        let lease = match &place {
            TaskPlace::Session { lease, .. } => Some(*lease),
            TaskPlace::Open { .. } | TaskPlace::Here { .. } => None,
        };
        let here = matches!(place, TaskPlace::Here { .. });
        let is_bound = here || lease.is_some();
        let home = self.sealer.home().filter(|_| is_bound).map(|boot| boot.to_string());
        let handle = Handle { server: server.config.alias.to_string(), id: id.to_owned(), lease, here, home };
        let sealed = self.sealer.seal()?.seal(Purpose::Task, principal.as_str(), &handle);
        let sealed = sealed.map_err(|error| ErrorObject::internal(format!("no id can be made for a task: {error}")))?;
        Ok(self.registry.put(Task {
            handle: sealed.into(),
            principal: principal.clone(),
            owner: client.owner(),
            server: server.config.alias.clone(),
            id: id.into(),
            place,
        }))
    }
}

impl At {
    /// Sends one short request about a task to the server where it runs.
    async fn ask(&self, client: &Client, method: &Method, params: &Raw, leg: &Mailbox) -> Answered {
        let terms = self.terms(client, leg);
        let exchange = self.connection.open(self.connection.next_id(), method, Some(params), &terms);
        let limit = self.server.config.call_timeout;
        match tokio::time::timeout(limit, exchange.outcome()).await {
            Ok(Ok(outcome)) => Ok(outcome?),
            Ok(Err(error)) => Err(Failure::lost(&error).of(&self.server)),
            Err(_) => Err(Failure::timeout(limit, "callTimeout").of(&self.server)),
        }
    }

    /// Returns what a request about a task tells the server about the client.
    fn terms(&self, client: &Client, leg: &Mailbox) -> Terms {
        let mut terms = client.terms(leg);
        terms.profile = self.server.declared(&client.who);
        terms.has_fixed_roots = !matches!(self.server.config.roots, crate::config::Roots::Client);
        terms.extensions = Some(declared(terms.extensions.as_ref()));
        terms
    }
}

/// Returns the error for a client that did not declare tasks.
fn undeclared() -> ErrorObject {
    let data = serde_json::json!({ "requiredCapabilities": { "extensions": { task::EXTENSION: {} } } });
    let text = format!("this needs the extension {} among the client's capabilities", task::EXTENSION);
    ErrorObject::new(code::MISSING_CAPABILITY, text).with_data(Raw::from_value(&data))
}

/// Rewrites the URIs in a task, or in a task's result, to those that the client may use.
fn exposed(told: &Raw, server: &Server) -> Raw {
    let (alias, uris) = (&server.config.alias, server.uris);
    let mut told = expose_content(told, alias, uris);
    if let Some(result) = told.member("result") {
        told = told.with_member("result", expose_content(&result, alias, uris).as_bytes());
    }
    if let Some(requests) = told.member("inputRequests") {
        let mut edits = Edits::new(&requests);
        for (_, entry) in object(requests.as_value()).unwrap_or_default() {
            if let (Some("sampling/createMessage"), Some(params)) =
                (value::text(entry, "method").as_deref(), value::member(entry, "params"))
            {
                let exposed = expose_content(&Raw::part(requests.bytes(), params), alias, uris);
                edits.replace(params, exposed.as_bytes().to_vec());
            }
        }
        told = told.with_member("inputRequests", edits.apply().as_bytes());
    }
    told
}
