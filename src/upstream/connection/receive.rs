//! Reads a server over a pipe, and routes the messages of any server: responses by their id, everything else to the call
//! that it belongs to.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::Relayed;
use super::super::ask::Ask;
use super::super::inbox::{Inbox, Item};
use super::super::terms::Owner;
use super::asks::Turned;
use super::callers::Callers;
use super::{Connection, Link, PROBE_ID, PROMPTS, RESOURCES, TOOLS, Waiting, rpc_id};
use crate::counts::Count;
use crate::lock::lock;
use crate::protocol::{
    ErrorObject, Message, Method, Notification, Outcome, ProgressToken, ProtocolVersion, Raw, Request, RequestId,
    Response, code, meta, ours,
};
use crate::transport::{Error, HANG_UP, Heard, Ladder, MemoryMessage, PipeReader};

/// Two streams that report the same resource update within this time mean the same change.
const TWICE: Duration = Duration::from_millis(250);
/// The maximum number of recent resource updates that are kept for that comparison.
const UPDATES: usize = 256;

/// Reads a child process until it ends or the connection is stopped, then stops the process.
pub(in crate::upstream) async fn read_pipe(connection: Arc<Connection>, mut reader: PipeReader, ladder: Ladder) {
    let stop = connection.stop_token().clone();
    let mut stopped = pin!(stop.cancelled());
    loop {
        tokio::select! {
            biased;
            // The reader has priority. It yields after each turn (`transport/turn.rs`), and then the stop is seen.
            next = reader.next() => match next {
                Ok(Heard::Message(message)) => connection.receive(None, message),
                Ok(Heard::Batch(line, no_message)) => {
                    if let Err(no_message) = connection.take_batch(None, &line, no_message) {
                        reader.tell_noise(&line, &no_message.reason);
                    }
                }
                Ok(Heard::Broken(id, error)) => {
                    if let Some(id) = connection.answered(&id) {
                        connection.lose_one(id, error);
                    }
                }
                Err(error) => {
                    connection.lose(&error);
                    break;
                }
            },
            () = &mut stopped => break,
        }
    }
    connection.lose(&Error::Closed);
    // Boxed: the task of each child would be as large as its end for all its life.
    Box::pin(reader.stop(ladder)).await;
}

/// Reads the messages of a server that runs inside this process.
pub(in crate::upstream) async fn read_memory(connection: Arc<Connection>, mut messages: mpsc::Receiver<MemoryMessage>) {
    let stop = connection.stop_token().clone();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = messages.recv() => match next {
                Some((origin, message)) => connection.receive(origin, message),
                None => break,
            }
        }
    }
    connection.lose(&Error::Closed);
}

impl Connection {
    /// Handles one message from the server. `origin` is the exchange on whose stream it came, if any.
    pub(in crate::upstream) fn receive(self: &Arc<Self>, origin: Option<u64>, message: Message) {
        match message {
            Message::Response(response) => self.receive_response(response),
            Message::Notification(notice) if self.is_too_much(&notice.method) => {
                let is_log = notice.method == Method::LogMessage;
                let count = if is_log { Count::DroppedLog } else { Count::DroppedNotification };
                self.drop_one("too many notifications", count)
            }
            Message::Notification(notice) => self.receive_notification(origin, notice),
            Message::Request(request) => self.receive_request(origin, request),
        }
    }

    fn receive_response(self: &Arc<Self>, response: Response) {
        match response.id.as_ref().map(|id| self.answered(id)) {
            Some(Some(id)) => self.settle(id, response.outcome),
            // A request that was never sent, is answered already, or whose caller no longer waits.
            Some(None) => self.drop_one("an answer to no pending request", Count::DroppedAnswer),
            None => {
                if let Err(error) = response.outcome {
                    tracing::warn!(
                        server = &*self.parts.server,
                        code = error.code,
                        "an error that names no request: {}",
                        error.message
                    );
                }
            }
        }
    }

    /// Returns the request in flight with that id. The id must match the sent one in value and in type
    /// (`docs/hazards.md` H34).
    pub(in crate::upstream) fn answered(&self, id: &RequestId) -> Option<u64> {
        let number = Self::id_of(id)?;
        let is_probe = self.lock().waiting.get(&number)?.is_probe;
        (rpc_id(number, is_probe) == *id).then_some(number)
    }

    /// Counts a notification. Returns true if it exceeds the rate limit, which idempotent notifications never do.
    fn is_too_much(&self, method: &Method) -> bool {
        let light = matches!(
            method,
            Method::ToolsListChanged
                | Method::PromptsListChanged
                | Method::ResourcesListChanged
                | Method::Cancelled
                | Method::Acknowledged
        );
        self.lock().flood.is_too_much(Instant::now()) && !light
    }

    /// Counts a dropped message as one of this kind, and logs the total now and then.
    pub(in crate::upstream) fn drop_one(&self, what: &str, count: Count) {
        self.parts.announcer.counts().one(count);
        let told = self.lock().flood.drop_one(Instant::now());
        if let Some(dropped) = told {
            tracing::warn!(server = &*self.parts.server, dropped, "dropped: {what}");
        }
    }

    /// Returns the number in a request id of ours; `None` if the id cannot be ours.
    pub(in crate::upstream) fn id_of(id: &RequestId) -> Option<u64> {
        match id {
            RequestId::Number(id) => u64::try_from(*id).ok(),
            RequestId::Text(text) => text.strip_prefix(PROBE_ID)?.parse().ok(),
        }
    }

    /// Completes a request. If the server refused the request's revision, the revision is renegotiated first.
    pub(in crate::upstream) fn settle(self: &Arc<Self>, id: u64, outcome: Outcome) {
        match outcome {
            Err(error) if error.code == code::UNSUPPORTED_VERSION && self.is_modern() && self.is_request(id) => {
                let (task, stop) = (self.clone(), self.stop_token().clone());
                let renewed = (self.parts.renew)(self.clone(), id);
                self.parts.tasks.spawn(async move {
                    if stop.run_until_cancelled(renewed).await.is_none() {
                        // Over HTTP nothing else ends the request: its own future has finished.
                        task.finish(id, Item::Lost(Error::Renegotiated));
                    }
                });
            }
            outcome => self.finish(id, Item::Done(outcome)),
        }
    }

    /// Ends a request in flight with its last item; later calls for the same request do nothing.
    pub(in crate::upstream) fn finish(&self, id: u64, item: Item) {
        let mut table = self.lock();
        let entry = table.waiting.remove(&id);
        if let Some(entry) = entry {
            // Under the same lock, so that progress on another stream finds either the waiting or the lasting entry.
            let oldest = if entry.lasts { table.answer_lasts(id, &entry.inbox, &item) } else { None };
            drop(table);
            drop(oldest);
            if let (Some(task), Item::Done(_)) = (&entry.task, &item) {
                self.lasts_no_longer(task);
            }
            if self.peer.get().is_some() && matches!(item, Item::Done(_)) {
                self.answered.store(true, Ordering::Relaxed);
                if entry.owner != Owner::HOST {
                    self.served.fetch_add(1, Ordering::Relaxed);
                }
            }
            // Answers to the host itself may hold our own `_meta` keys: other hosts send their ids in them.
            let is_clients = entry.owner != Owner::HOST;
            entry.inbox.put(match item {
                Item::Done(Ok(result)) if is_clients => Item::Done(Ok(ours::body(result, self.parts.stays))),
                Item::Done(Err(error)) => Item::Done(Err(ours::error(error, self.parts.stays))),
                item => item,
            });
        }
    }

    /// Whether a request other than a probe is in flight under that id.
    fn is_request(&self, id: u64) -> bool {
        self.lock().waiting.get(&id).is_some_and(|waiting| !waiting.is_probe)
    }

    fn is_listen(&self, id: u64) -> bool {
        self.lock().waiting.get(&id).is_some_and(|waiting| waiting.is_listen)
    }

    /// Whether the request is in flight.
    pub(in crate::upstream) fn waits(&self, id: u64) -> bool {
        self.lock().waiting.contains_key(&id)
    }

    fn receive_notification(self: &Arc<Self>, origin: Option<u64>, notice: Notification) {
        let params = notice.params.map_or_else(Raw::empty_object, |params| ours::body(params, self.parts.stays));
        match notice.method {
            Method::Progress => {
                let token = params.member("progressToken").and_then(|token| token.read::<ProgressToken>().ok());
                self.receive_progress(token.as_ref().and_then(number_of), params);
            }
            Method::LogMessage => {
                self.parts.announcer.log(&params);
                match self.correlate(origin) {
                    Whose::Exchange(_, inbox) => inbox.put(Item::Log(params)),
                    // A modern server must not log outside of requests, and its lease may have several clients.
                    Whose::Nobody(_) if !self.is_modern() => self.relay(Relayed::Log(params)),
                    Whose::Nobody(_) | Whose::Unclear => {
                        tracing::debug!(server = &*self.parts.server, "a log line of unclear owner: {params}");
                    }
                }
            }
            Method::Cancelled => self.withdraw(&params),
            Method::ToolsListChanged => self.mark(TOOLS),
            Method::PromptsListChanged => self.mark(PROMPTS),
            Method::ResourcesListChanged => self.mark(RESOURCES),
            Method::ResourceUpdated => {
                if !(self.is_modern() && self.is_told_twice(origin, &params)) {
                    self.relay(Relayed::Updated(params));
                }
            }
            Method::Acknowledged => self.acknowledge(origin, &params),
            Method::ElicitationComplete => self.relay(Relayed::ElicitationComplete(params)),
            Method::TaskStatus | Method::TaskNews => self.relay(Relayed::Task(params)),
            Method::Other(name) if matches!(self.link(), Link::Memory(_)) && *name == *HANG_UP => self.hang_up(&params),
            other => tracing::debug!(server = &*self.parts.server, "unknown notification {other}"),
        }
    }

    fn acknowledge(&self, origin: Option<u64>, params: &Raw) {
        let sender = subscription(params).or(origin).and_then(|id| self.lock().acknowledgements.remove(&id));
        if let Some(sender) = sender {
            // The opener of the listen may have given up.
            let _ = sender.send(params.member("notifications").unwrap_or_else(Raw::empty_object));
        }
    }

    /// Whether another stream reported the same update a moment ago: while one stream replaces another, both report.
    fn is_told_twice(&self, origin: Option<u64>, params: &Raw) -> bool {
        let (id, now) = (subscription(params).or(origin), Instant::now());
        let Some(uri) = params.text("uri") else { return false };
        let mut table = self.lock();
        table.updates.retain(|(.., at)| now - *at < TWICE);
        let other = table.updates.iter().position(|(known, from, _)| *known == uri && *from != id);
        match other {
            Some(at) => drop(table.updates.swap_remove(at)),
            None if table.updates.len() < UPDATES => table.updates.push((uri, id, now)),
            None => {}
        }
        other.is_some()
    }

    fn hang_up(&self, params: &Raw) {
        let token = params.member("progressToken").and_then(|token| token.read::<ProgressToken>().ok());
        let retry = params.member("retry").and_then(|retry| retry.read::<u64>().ok()).unwrap_or_default();
        if let Some(inbox) = token.and_then(|token| self.inbox_of(&token)) {
            inbox.put(Item::HangUp(Duration::from_millis(retry)));
        }
    }

    /// Returns the lists whose changes the server reports: their names in a filter, and their dirty bits.
    pub(in crate::upstream) fn told_lists(&self) -> Vec<(&'static str, u8)> {
        let Some(offers) = self.peer().map(|peer| peer.offers) else { return Vec::new() };
        let flags = [
            (offers.tools_changed, ("toolsListChanged", TOOLS)),
            (offers.prompts_changed, ("promptsListChanged", PROMPTS)),
            (offers.resources_changed, ("resourcesListChanged", RESOURCES)),
        ];
        flags.into_iter().filter_map(|(tells, list)| tells.then_some(list)).collect()
    }

    /// Reports a change of a resource to those who watch it.
    pub(in crate::upstream) fn mark_updated(self: &Arc<Self>, uri: &str) {
        self.relay(Relayed::Updated(Raw::empty_object().with_member("uri", Raw::from_value(uri).as_bytes())));
    }

    /// Notes that lists have changed, by their dirty bits.
    pub(in crate::upstream) fn mark(&self, kind: u8) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.dirty.fetch_or(kind, Ordering::Relaxed);
        self.dirtied.notify_one();
    }

    /// Waits until the server has reported changed lists; returns and clears their dirty bits.
    pub(in crate::upstream) async fn changed(&self) -> u8 {
        loop {
            match self.dirty.swap(0, Ordering::Relaxed) {
                0 => self.dirtied.notified().await,
                kinds => return kinds,
            }
        }
    }

    /// Discards the changes reported so far.
    pub(in crate::upstream) fn forget_changes(&self) {
        self.dirty.store(0, Ordering::Relaxed);
    }

    fn receive_request(self: &Arc<Self>, origin: Option<u64>, request: Request) {
        let Request { id, method, params } = request;
        // Only the user's own daemon asks in the host's words.
        let own: &[&str] = if self.parts.stays.is_empty() { &[] } else { &[meta::HOST_ASKS] };
        let stays = [&[meta::INPUT_KEY], own].concat();
        let params = params.map(|params| ours::head(params, &stays));
        if self.is_modern() {
            // Modern servers ask in results, and clients answer no requests.
            tracing::warn!(server = &*self.parts.server, "a modern server sent a request, dropped: {method}");
            return;
        }
        let size = params.as_ref().map_or(0, |params| params.as_bytes().len());
        // Bound to a name, so that the table is not locked while the question is answered.
        let admitted = self.lock().asks.admit(&id, size, Instant::now());
        match admitted {
            Ok(()) => {}
            Err(Turned::Away(why)) => return self.refuse(id, ErrorObject::internal(why)),
            Err(Turned::Down(why)) => return self.drop_one(why, Count::DroppedNotification),
        }
        match method {
            Method::Ping => self.echo(&id, Ok(Raw::empty_object())),
            Method::RootsList | Method::CreateMessage | Method::Elicit => {
                let task = params.as_ref().and_then(related_task);
                let revision = self.peer().map_or(ProtocolVersion::LATEST_HANDSHAKE, |peer| peer.version);
                let ask = Ask::new(id.clone(), method, params, revision, self.clone());
                let whose = match &task {
                    Some(task) => self.waiting_for(task),
                    None => self.asker(origin, &ask),
                };
                match whose {
                    Whose::Exchange(exchange, inbox) => {
                        self.lock().asks.went_to(&id, exchange);
                        inbox.put(Item::Ask(ask));
                    }
                    Whose::Nobody(of) => self.relay(Relayed::Ask { ask, unclear: false, of }),
                    Whose::Unclear => self.relay(Relayed::Ask { ask, unclear: true, of: None }),
                }
            }
            other => self.echo(&id, Err(ErrorObject::method_not_found(other.as_str()))),
        }
    }

    /// Whether the server asked that question during the request and still waits for the answer.
    pub(in crate::upstream) fn was_asked(&self, id: u64, question: &RequestId) -> bool {
        self.lock().asks.exchange_of(question) == Some(id)
    }

    /// Whether the server still waits for the answer to that question.
    pub(in crate::upstream) fn waits_for_answer(&self, question: &RequestId) -> bool {
        self.lock().asks.holds(question)
    }

    /// Finds the request that waits for the result of a task: the task's questions belong to that request alone.
    fn waiting_for(&self, task: &str) -> Whose {
        let table = self.lock();
        let found = table.waiting.iter().find(|(_, entry)| entry.task.as_deref() == Some(task));
        found.map_or(Whose::Nobody(None), |(id, entry)| Whose::Exchange(*id, entry.inbox.clone()))
    }

    fn withdraw(self: &Arc<Self>, params: &Raw) {
        let Some(id) = params.member("requestId").and_then(|id| id.read::<RequestId>().ok()) else { return };
        if self.is_modern() {
            // A modern server can cancel only a change stream.
            if let Some(id) = Self::id_of(&id).filter(|id| self.is_listen(*id)) {
                self.finish(id, Item::Done(Ok(Raw::empty_object())));
            }
            return;
        }
        let (exchange, inbox) = {
            let mut table = self.lock();
            let Some(exchange) = table.asks.remove(&id) else { return };
            (exchange, exchange.and_then(|exchange| Some(table.waiting.get(&exchange)?.inbox.clone())))
        };
        match (exchange, inbox) {
            (_, Some(inbox)) => inbox.put(Item::Withdrawn(id)),
            (None, None) => self.relay(Relayed::Withdrawn(id)),
            (Some(_), None) => {}
        }
    }

    /// Withdraws the questions that belong to no call, after the connection has ended. Calls withdraw their own
    /// questions.
    pub(super) fn withdraw_all(self: &Arc<Self>, asks: Vec<(RequestId, Option<u64>)>) {
        for (id, _) in asks.into_iter().filter(|(_, exchange)| exchange.is_none()) {
            self.relay(Relayed::Withdrawn(id));
        }
    }

    /// Finds the call that a question belongs to (`docs/bridging.md` 15.2): the call on whose stream it came; else the
    /// latest call of the only client that has ever called here; else none. If that only client can be asked, the lease
    /// is bound to it: a call from another client that arrives at this moment sees the binding and goes to another
    /// lease.
    fn asker(&self, origin: Option<u64>, ask: &Ask) -> Whose {
        let table = self.lock();
        let named = origin.map(|id| table.waiting.get(&id).map(|entry| (id, entry)));
        let named = match named {
            // The call on whose stream it came is over, so it belongs to no other call.
            Some(None) => return Whose::Unclear,
            Some(Some((_, entry))) if entry.owner == Owner::HOST => None,
            named => named.flatten(),
        };
        let (owner, profile) = match table.callers {
            Callers::One(owner, profile) => (owner, profile),
            Callers::None => return Whose::Nobody(self.parts.binding.get()),
            Callers::Many => {
                return named.map_or(Whose::Unclear, |(id, entry)| Whose::Exchange(id, entry.inbox.clone()));
            }
        };
        // The host itself answers with the roots that the lease knows, so that clients with equal roots keep sharing
        // the lease.
        let is_told = ask.method == Method::RootsList && lock(&self.parts.roots).is_some();
        if ask.is_for(profile) && !is_told {
            self.parts.binding.set(owner);
        }
        let mut calls = table.waiting.iter().filter(|(_, entry)| entry.owner == owner && entry.may_ask);
        let latest = calls.clone().max_by_key(|(id, _)| **id);
        let is_one = calls.next().is_some_and(|(_, entry)| !entry.sessionless || calls.next().is_none());
        match named.or(latest.map(|(id, entry)| (*id, entry))) {
            Some((id, entry)) if named.is_some() || is_one => Whose::Exchange(id, entry.inbox.clone()),
            // A client without a session may be having two conversations.
            Some(_) => Whose::Unclear,
            None => Whose::Nobody(Some(owner)),
        }
    }

    /// Finds the call that a log line belongs to: the call on whose stream it came; else the latest call of the only
    /// client with calls in flight. With two such clients the call is unclear and never guessed.
    fn correlate(&self, origin: Option<u64>) -> Whose {
        let modern = self.is_modern();
        let table = self.lock();
        if let Some(id) = origin {
            match table.waiting.get(&id) {
                Some(entry) if entry.owner == Owner::HOST => {}
                Some(entry) => return Whose::Exchange(id, entry.inbox.clone()),
                // The call on whose stream it came is over, so it belongs to no other call.
                None => return Whose::Unclear,
            }
        }
        let mut found: Option<(u64, &Waiting)> = None;
        for (id, entry) in &table.waiting {
            if entry.owner == Owner::HOST || (modern && !entry.wants_logs) {
                continue;
            }
            match found {
                Some((_, other)) if other.owner != entry.owner || entry.sessionless => return Whose::Unclear,
                Some((other, _)) if other > *id => {}
                _ => found = Some((*id, entry)),
            }
        }
        found.map_or(Whose::Nobody(None), |(id, entry)| Whose::Exchange(id, entry.inbox.clone()))
    }

    fn inbox_of(&self, token: &ProgressToken) -> Option<Arc<Inbox>> {
        Some(self.lock().waiting.get(&number_of(token)?)?.inbox.clone())
    }

    pub(in crate::upstream) fn relay(self: &Arc<Self>, what: Relayed) {
        // A full relay means that the host itself is behind: the message is dropped, and a dropped question answers
        // itself.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.parts.relay.try_send(self, what) {
            tracing::warn!(server = &*self.parts.server, "messages of the server dropped: too many at once");
        }
    }
}

/// The number of the request that a progress token belongs to; `None` if the token cannot be ours.
fn number_of(token: &ProgressToken) -> Option<u64> {
    let RequestId::Number(token) = token else { return None };
    u64::try_from(*token).ok()
}

/// The id of the change stream (`subscriptions/listen`) that a message names.
fn subscription(params: &Raw) -> Option<u64> {
    let id = params.member("_meta")?.member(meta::SUBSCRIPTION_ID)?;
    Connection::id_of(&id.read::<RequestId>().ok()?)
}

enum Whose {
    Exchange(u64, Arc<Inbox>),
    /// No request in flight. Holds the client, if only one has ever called.
    Nobody(Option<Owner>),
    Unclear,
}

/// The id of the task that a question names (2025-11-25).
fn related_task(params: &Raw) -> Option<String> {
    params.member("_meta")?.member(meta::RELATED_TASK)?.text("taskId")
}

/// Returns the dirty bits of several lists as one.
pub(in crate::upstream) fn kinds_of(told: &[(&str, u8)]) -> u8 {
    told.iter().fold(0, |kinds, (_, kind)| kinds | kind)
}
