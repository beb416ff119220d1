//! One request of a client on its way through a server: sent under another id and name, with what comes back in between
//! turned back, until there is one answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::answer::Failure;
use super::client::Client;
use super::{Mailbox, Router};
use crate::config::Roots;
use crate::manager::Server;
use crate::protocol::{self, Edits, ErrorObject, Message, Method, Notification, Outcome, Profile, Raw};
use crate::registry::{Resolution, Target, expose_content};
use crate::transport;
use crate::upstream::{Ask, Connection, Item, Upstream};

/// A request as it goes to a server.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) server: Arc<Server>,
    pub(super) method: Method,
    pub(super) params: Raw,
    /// The member of the params that names the target, as it stands.
    pub(super) named: Raw,
    /// What the server itself calls the target.
    pub(super) target: Arc<str>,
    /// `_meta` of the params.
    pub(super) meta: Option<Raw>,
}

/// What is kept of a call while it runs.
struct Running<'a> {
    client: &'a Arc<Client>,
    leg: &'a Arc<Mailbox>,
    server: &'a Arc<Server>,
    /// The client's own progress token, as JSON.
    token: Option<Raw>,
    progress: Option<f64>,
    answered: Option<Arc<Notify>>,
}

impl Router {
    pub(super) async fn call_tool(&self, client: &Arc<Client>, params: Option<Raw>, leg: &Arc<Mailbox>) -> Outcome {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [named, arguments, meta] = params.members(["name", "arguments", "_meta"]);
        let missing = || ErrorObject::invalid_params("tools/call: `name` is missing");
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?;
        if arguments.is_some_and(|arguments| !arguments.is_object() && arguments.as_bytes() != b"null") {
            return Err(ErrorObject::invalid_params(format!("tool {name:?}: `arguments` is not an object")));
        }
        let target = self.find(client, "tool", &name, |catalog| catalog.tool(&name)).await?;
        let server = self.server(&target)?;
        drop(name);
        let forward = Forward { server, method: Method::ToolsCall, params, named, target: target.name, meta };
        self.forward(client, forward, leg).await
    }

    pub(super) async fn get_prompt(&self, client: &Arc<Client>, params: Option<Raw>, leg: &Arc<Mailbox>) -> Outcome {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [named, meta] = params.members(["name", "_meta"]);
        let missing = || ErrorObject::invalid_params("prompts/get: `name` is missing");
        let named = named.ok_or_else(missing)?;
        let name = named.string().ok_or_else(missing)?.into_owned();
        let target = self.find(client, "prompt", &name, |catalog| catalog.prompt(&name)).await?;
        let server = self.server(&target)?;
        let forward = Forward { server, method: Method::PromptsGet, params, named, target: target.name, meta };
        self.forward(client, forward, leg).await
    }

    pub(super) fn server(&self, target: &Target) -> Result<Arc<Server>, ErrorObject> {
        self.manager().server(target.server).ok_or_else(|| ErrorObject::internal("its server was removed a moment ago"))
    }

    /// Finds whom a name belongs to; a client that never listed waits for the servers as a list does.
    pub(super) async fn find(
        &self,
        client: &Arc<Client>,
        what: &str,
        name: &str,
        look: impl Fn(&crate::registry::Catalog) -> Resolution,
    ) -> Result<Target, ErrorObject> {
        let mut found = look(&self.catalog(client));
        if found == Resolution::Unknown && !self.is_settled(client) {
            found = look(&*self.settled_catalog(client).await);
        }
        match found {
            Resolution::Found(target) => Ok(target),
            Resolution::Unknown => Err(ErrorObject::invalid_params(format!("unknown {what}: {name}"))),
            Resolution::Ambiguous(names) => {
                let text = format!("several servers offer the {what} {name}; use one of {}", names.join(", "));
                Err(ErrorObject::invalid_params(text))
            }
        }
    }

    /// Sends a request to a server and brings its answer back; once more where that is safe (`hazards.md` H57).
    pub(super) async fn forward(&self, client: &Arc<Client>, forward: Forward, leg: &Arc<Mailbox>) -> Outcome {
        let server = forward.server.clone();
        server.count_call();
        let _slot = match self.slot(&server).await {
            Ok(slot) => slot,
            Err(failure) => return failure.answer(&server, &forward.method),
        };
        let mut again = true;
        loop {
            let failure = match self.attempt(client, &forward, leg).await {
                Ok(outcome) => return outcome,
                Err(Attempt::Failed(failure)) => failure,
                Err(Attempt::Lost(error)) => {
                    if again && self.may_repeat(client, &forward, &error) {
                        again = false;
                        continue;
                    }
                    Failure::lost(&error)
                }
            };
            return failure.answer(&server, &forward.method);
        }
    }

    /// Whether the request may be sent once more: it was refused before any work, or doing it twice does no harm.
    fn may_repeat(&self, client: &Arc<Client>, forward: &Forward, error: &transport::Error) -> bool {
        use transport::Error as E;
        if matches!(error, E::Overloaded(_) | E::Unauthorized { .. }) {
            return false;
        }
        if error.not_sent() {
            return true;
        }
        if !matches!(error, E::Broken | E::Exited { .. } | E::Closed) {
            return false;
        }
        let config = &forward.server.config;
        forward.method != Method::ToolsCall
            || config.repeatable.iter().any(|tool| **tool == *forward.target)
            || (config.trust_annotations && self.is_marked_safe(client, forward))
    }

    /// Whether the server says of the tool that calling it twice does no harm.
    fn is_marked_safe(&self, client: &Arc<Client>, forward: &Forward) -> bool {
        let catalog = self.catalog(client);
        let mut tools = catalog.tools().iter();
        let tool =
            tools.find(|tool| *tool.server() == forward.server.config.alias && *tool.raw_name() == *forward.target);
        let Some(annotations) = tool.and_then(|tool| tool.definition().member("annotations")) else { return false };
        let hints = annotations.members(["readOnlyHint", "idempotentHint"]);
        hints.into_iter().flatten().any(|hint| hint.as_bytes() == b"true")
    }

    async fn slot<'a>(&self, server: &'a Server) -> Result<Option<tokio::sync::SemaphorePermit<'a>>, Failure> {
        let Some(slots) = &server.slots else { return Ok(None) };
        let wait = server.config.queue_timeout;
        match tokio::time::timeout(wait, slots.acquire()).await {
            Ok(Ok(slot)) => Ok(Some(slot)),
            _ => Err(Failure::queue(wait)),
        }
    }

    async fn attempt(&self, client: &Arc<Client>, forward: &Forward, leg: &Arc<Mailbox>) -> Result<Outcome, Attempt> {
        let server = &forward.server;
        let upstream = self.lease(client, server).map_err(Attempt::Failed)?;
        let connection = upstream.ready().await.map_err(|why| Attempt::Failed(Failure::unavailable(&why)))?;
        let id = connection.next_id();
        let (params, token) = outgoing(forward, id);
        let mut exchange = connection.open(id, &forward.method, Some(&params), &client.terms(leg));
        let running = Running { client, leg, server, token, progress: None, answered: None };
        let outcome = running.wait(id, &mut exchange, &upstream, &connection, self.limits().answer).await?;
        Ok(match outcome {
            Ok(result) => Ok(expose_content(&result, &server.config.alias, server.uris)),
            Err(error) => Err(error),
        })
    }
}

enum Attempt {
    /// The transport lost the request or its answer.
    Lost(transport::Error),
    Failed(Failure),
}

/// The params as they go out: raw names, our progress token, and none of the protocol's own keys in `_meta`. Also the
/// client's progress token.
fn outgoing(forward: &Forward, id: u64) -> (Raw, Option<Raw>) {
    let mut edits = Edits::new(&forward.params);
    if forward.named.string().as_deref() != Some(&*forward.target) {
        edits.replace_part(&forward.named, Raw::from_value(&*forward.target).as_bytes().to_vec());
    }
    let Some(meta) = forward.meta.as_ref().filter(|meta| meta.is_object()) else {
        // A call has our own watchdog, which progress feeds.
        if forward.method == Method::ToolsCall && forward.meta.is_none() {
            edits.append("_meta", format!(r#"{{"progressToken":{id}}}"#).as_bytes());
        }
        return (edits.apply(), None);
    };
    let mut own = Edits::new(meta);
    let mut token = None;
    let value = meta.as_value();
    for (key, value) in protocol::object(value).unwrap_or_default() {
        if key == "progressToken" {
            token = Some(Raw::part(meta.bytes(), value));
        } else if key.starts_with("io.modelcontextprotocol/") && key != "io.modelcontextprotocol/related-task" {
            own.remove(meta.as_value(), &key);
        }
    }
    if token.is_some() || forward.method == Method::ToolsCall {
        own.set(value, "progressToken", id.to_string().as_bytes());
    }
    if !own.is_empty() {
        edits.replace_part(meta, own.apply().as_bytes().to_vec());
    }
    (edits.apply(), token)
}

impl Running<'_> {
    /// Waits for the answer, and hands on what comes before it. The clock of `callTimeout` starts anew with each progress
    /// and stops while a person is asked.
    async fn wait(
        mut self,
        id: u64,
        exchange: &mut crate::upstream::Exchange,
        upstream: &Arc<Upstream>,
        connection: &Arc<Connection>,
        answer: Duration,
    ) -> Result<Outcome, Attempt> {
        let config = &self.server.config;
        let (idle, maximum) = (config.call_timeout, config.max_call_time);
        let mut end = Instant::now() + maximum;
        let mut asked_at = None;
        let clock = tokio::time::sleep_until((Instant::now() + idle).min(end));
        tokio::pin!(clock);
        let asks = AskGuard { client: self.client, call: id };
        loop {
            let answered = self.answered.clone();
            let item = tokio::select! {
                biased;
                item = exchange.next() => item,
                () = notified(answered.as_deref()) => {
                    if !self.client.is_asked(id) {
                        end += asked_at.take().map_or(Duration::ZERO, |at: Instant| at.elapsed());
                        reset(clock.as_mut(), idle, end);
                    }
                    continue;
                }
                () = &mut clock => {
                    if self.client.is_asked(id) {
                        self.client.drop_asks(id, unanswered);
                        end += asked_at.take().map_or(Duration::ZERO, |at| at.elapsed());
                        reset(clock.as_mut(), idle, end);
                        continue;
                    }
                    let (limit, name) = if Instant::now() < end { (idle, "callTimeout") } else { (maximum, "maxCallTime") };
                    return Err(Attempt::Failed(Failure::timeout(limit, name)));
                }
            };
            match item {
                Item::Progress(params) => {
                    if !self.client.is_asked(id) {
                        reset(clock.as_mut(), idle, end);
                    }
                    self.progress(&params);
                }
                Item::Log(params) => log(self.client, self.leg, self.server, &params),
                Item::Ask(ask) => {
                    let at = *asked_at.get_or_insert_with(Instant::now);
                    clock.as_mut().reset(at + answer);
                    let answered = self.answered.get_or_insert_with(Arc::default).clone();
                    question(self.client, self.server, upstream, ask, Some((id, self.leg)), Some(answered));
                    if !self.client.is_asked(id) {
                        asked_at = None;
                        reset(clock.as_mut(), idle, end);
                    }
                }
                Item::HangUp(retry) => self.leg.hang_up(retry),
                Item::Withdrawn(ask) => self.client.withdraw(connection, &ask),
                Item::Done(outcome) => {
                    drop(asks);
                    return Ok(outcome);
                }
                Item::Lost(error) => return Err(Attempt::Lost(error)),
            }
        }
    }

    /// Hands progress on under the client's own token; values that do not increase are dropped.
    fn progress(&mut self, params: &Raw) {
        let Some(token) = &self.token else { return };
        let value = params.member("progress").and_then(|value| value.read::<f64>().ok());
        let Some(value) = value.filter(|value| self.progress.is_none_or(|last| *value > last)) else { return };
        self.progress = Some(value);
        let params = Some(params.with_member("progressToken", token.as_bytes()));
        self.leg.put(Message::Notification(Notification { method: Method::Progress, params }));
    }
}

/// However a call ends, its open questions are taken back.
struct AskGuard<'a> {
    client: &'a Client,
    call: u64,
}

impl Drop for AskGuard<'_> {
    fn drop(&mut self) {
        self.client.drop_asks(self.call, drop);
    }
}

fn reset(clock: std::pin::Pin<&mut Sleep>, limit: Duration, end: Instant) {
    clock.reset((Instant::now() + limit).min(end));
}

async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}

/// What a server gets when no person answers in time.
fn unanswered(ask: Ask) {
    let outcome = match ask.method {
        Method::Elicit => Ok(Raw::trusted(bytes::Bytes::from_static(br#"{"action":"cancel"}"#))),
        Method::CreateMessage => Err(ErrorObject::internal("the client gave no answer in time")),
        _ => Err(ErrorObject::method_not_found(ask.method.as_str())),
    };
    ask.answer(outcome);
}

/// Puts a server's question to a client, or answers it: what was not declared is refused, configured roots are told.
pub(super) fn question(
    client: &Client,
    server: &Server,
    upstream: &Upstream,
    mut ask: Ask,
    call: Option<(u64, &Arc<Mailbox>)>,
    answered: Option<Arc<Notify>>,
) {
    server.note_ask();
    let declared = upstream.profile();
    let (known, mode) = match ask.method {
        Method::RootsList => (declared.has(Profile::ROOTS), true),
        Method::CreateMessage => (declared.has(Profile::SAMPLING), true),
        _ => {
            let url = ask.params.as_ref().and_then(|params| params.text("mode")).as_deref() == Some("url");
            let mode = if url { Profile::ELICITATION_URL } else { Profile::ELICITATION_FORM };
            (declared.has(Profile::ELICITATION_FORM) || declared.has(Profile::ELICITATION_URL), declared.has(mode))
        }
    };
    if !known {
        let method = ask.method.clone();
        return ask.answer(Err(ErrorObject::method_not_found(method.as_str())));
    }
    if !mode {
        return ask.answer(Err(ErrorObject::invalid_params("the client did not declare this mode of elicitation")));
    }
    match (&ask.method, &server.config.roots) {
        (Method::RootsList, Roots::Fixed(uris)) => {
            let roots: Vec<_> = uris.iter().map(|uri| serde_json::json!({ "uri": uri })).collect();
            return ask.answer(Ok(Raw::from_value(&serde_json::json!({ "roots": roots }))));
        }
        (Method::CreateMessage, _) => {
            if let Some(params) = ask.params.take() {
                ask.params = Some(expose_content(&params, &server.config.alias, server.uris));
            }
        }
        _ => {}
    }
    client.ask(ask, call, answered);
}

/// Hands a log line to a client that wants its level, with the alias in front of the logger's name.
pub(super) fn log(client: &Client, mailbox: &Mailbox, server: &Server, params: &Raw) {
    if !client.wants(params.text("level").as_deref().unwrap_or_default(), mailbox) {
        return;
    }
    let alias = &server.config.alias;
    let logger = match params.text("logger") {
        Some(logger) => Cow::Owned(format!("{alias}/{logger}")),
        None => Cow::Borrowed(alias.as_str()),
    };
    let params = Some(params.with_member("logger", Raw::from_value(&*logger).as_bytes()));
    mailbox.put(Message::Notification(Notification { method: Method::LogMessage, params }));
}
