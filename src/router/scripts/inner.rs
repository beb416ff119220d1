//! Makes one call of a script as the script's client would: the call takes every step of a call by name. The view,
//! approval, rules, rates, checks of arguments, questions, the audit and the metrics are those of the client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::outcome::{refusal, reply, written};
use crate::answered::Answered;
use crate::config::ScriptTools;
use crate::keep;
use crate::lock::lock;
use crate::protocol::{Message, Method, Notification, Raw, Request, RequestId, Theirs};
use crate::registry::search::{FIND, is_own};
use crate::router::client::Client;
use crate::router::route::Routed;
use crate::router::through::{By, Through};
use crate::router::{Identity, Mailbox, Router, merged, observed};

/// The script and the client for which calls are made.
pub(super) struct Inner<'a> {
    pub(super) router: &'a Router,
    /// The client that the calls are made as.
    client: Arc<Client>,
    leg: &'a Arc<Mailbox>,
    /// Names the script in the audit. What is allowed for this script alone is kept under the same name.
    id: Arc<str>,
    tools: ScriptTools,
    /// The `_meta` of each call.
    meta: Raw,
    progress: Option<Mutex<Progress>>,
    made: AtomicU64,
}

/// The progress that the client gets of the script: how many calls are over.
struct Progress {
    token: Raw,
    over: u64,
    /// The last progress value that the client got.
    sent: f64,
}

impl<'a> Inner<'a> {
    pub(super) fn new(
        router: &'a Router,
        client: &'a Arc<Client>,
        leg: &'a Arc<Mailbox>,
        params: &Raw,
        (id, tools): (Arc<str>, ScriptTools),
    ) -> Self {
        let meta = params.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
        let token = meta.member("progressToken");
        // Progress that a call reports is passed on under the token of the script.
        let meta = match token {
            Some(_) => meta.with_member("progressToken", br#""script""#),
            None => meta,
        };
        let progress = token.map(|token| Mutex::new(Progress { token: token.detached(), over: 0, sent: 0.0 }));
        Self { router, client: asker(router, client), leg, id, tools, meta, progress, made: AtomicU64::new(0) }
    }

    /// Revokes what was allowed for the script alone.
    pub(super) fn over(&self) {
        self.router.0.clients.asks().end_script(&self.id);
    }

    /// Tells the client that one more call is over, or passes on what a call reports.
    fn tell(&self, tool: &str, of_call: Option<&Raw>) {
        let Some(progress) = &self.progress else { return };
        let mut progress = lock(progress);
        progress.over += u64::from(of_call.is_none());
        #[expect(clippy::cast_precision_loss, reason = "far fewer calls than 2^52")]
        let over = progress.over as f64;
        // The value must rise even while no call ends.
        progress.sent = if over > progress.sent { over } else { progress.sent + 1e-6 };
        let said = of_call.and_then(|params| params.text("message")).map(|said| format!(": {said}"));
        let params = json!({ "progress": progress.sent, "message": format!("{tool}{}", said.unwrap_or_default()) });
        let params = Raw::from_value(&params).with_member("progressToken", progress.token.as_bytes());
        drop(progress);
        self.leg.put(Message::Notification(Notification { method: Method::Progress, params: Some(params) }));
    }
}

impl Drop for Inner<'_> {
    fn drop(&mut self) {
        self.over();
    }
}

/// Returns the client that the calls are made as. A client without a session cannot be asked anything while its script
/// runs, because the answer would come with another request; so the calls are made as those of a client that cannot be
/// asked.
fn asker(router: &Router, client: &Arc<Client>) -> Arc<Client> {
    if client.is_one_conversation() {
        return client.clone();
    }
    let who = &client.who;
    let (principal, view, claims) = (who.principal.clone(), who.view.clone(), who.claims.clone());
    let identity = Identity { principal, view, claims };
    router.pool().get(identity, &Raw::empty_object(), None).unwrap_or_else(|_| client.clone())
}

/// A result of more bytes is read on a thread that may block.
const LARGE: usize = 64 * 1024;

/// Makes one call, and returns the message that the script gets. A result over `most` bytes becomes an error.
///
/// # Cancel safety
/// Dropping the future cancels the call at its server.
pub(super) async fn call(
    inner: &Inner<'_>,
    (id, name, arguments): (u32, String, Box<RawValue>),
    most: usize,
) -> Vec<u8> {
    if is_own(&name) && name != FIND {
        let text = "a script calls tools of servers by their names, and find_tools";
        return written(&refusal(id, "unknown", &name, text), most);
    }
    let Ok(arguments) = Raw::parse(&arguments.get().to_owned().into()) else {
        let text = "the arguments are nested too deeply";
        return written(&refusal(id, "invalid_arguments", &name, text), most);
    };
    let answered = made(inner, &name, &arguments).await;
    inner.tell(&format!("{}", Theirs(&name)), None);
    match answered {
        Some(Ok(result)) if result.as_bytes().len() > LARGE => {
            keep::done(move || written(&reply(id, &name, &Ok(result)), most)).await
        }
        Some(answered) => written(&reply(id, &name, &answered), most),
        None => written(&refusal(id, "cancelled", &name, "it was cancelled"), most),
    }
}

async fn made(inner: &Inner<'_>, name: &str, arguments: &Raw) -> Option<Answered> {
    let params = Raw::empty_object().with_member("name", Raw::from_value(name).as_bytes());
    let params = params.with_member("arguments", arguments.as_bytes()).with_member("_meta", inner.meta.as_bytes());
    let number = inner.made.fetch_add(1, Ordering::Relaxed) + 1;
    let request_id = RequestId::Text(format!("{}/{number}", inner.id).into());
    let request = Request { id: request_id, method: Method::ToolsCall, params: Some(params) };
    let reads = inner.tools == ScriptTools::Read;
    let through = Through { tool: name.to_owned(), reads, refused: None, by: By::Script };
    let routed = Routed { request, route: None, through: Some(Box::new(through)) };
    let leg = Arc::new(inner.leg.of_part().of_script(inner.id.clone(), inner.leg.level()));
    let mut serving = std::pin::pin!(serve(inner, routed, &leg));
    loop {
        tokio::select! {
            biased;
            Some(message) = leg.next() => pass_on(inner, name, message),
            answered = &mut serving => {
                while let Some(message) = leg.try_next() {
                    pass_on(inner, name, message);
                }
                return answered;
            }
        }
    }
}

/// Passes on what a call brings before its answer.
fn pass_on(inner: &Inner<'_>, name: &str, message: Message) {
    match message {
        Message::Notification(notice) if notice.method == Method::Progress => {
            inner.tell(&format!("{}", Theirs(name)), notice.params.as_ref());
        }
        other => inner.leg.put(other),
    }
}

/// Serves a request like one of a client, except that its result is not cut: the script gets the whole.
async fn serve(inner: &Inner<'_>, routed: Routed, leg: &Arc<Mailbox>) -> Option<Answered> {
    let Inner { router, client, .. } = inner;
    let parts = &router.0;
    let routed = merged::unwrap(&parts.manager, client, routed);
    let limits = leg.limits();
    let begun = parts.clients.enter(client, limits.pending);
    let begun = begun.and_then(|load| Ok((client.begin(&routed.request.id, leg, limits.pending_per_client)?, load)));
    let asked = (&routed.request, Instant::now());
    let observer = (&*parts.observer, &parts.manager);
    let observed = match observed::begin_by(observer, client, asked, leg, Some(By::Script.word())) {
        Ok(observed) => observed.beside(),
        Err(refused) => return Some(Err(refused.into())),
    };
    let answered = router.answer_to(client, routed, &Method::ToolsCall, begun, leg).await;
    observed.finish(answered.as_ref());
    answered
}
