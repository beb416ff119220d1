//! Puts the questions of a modern server (without sessions) to a legacy client (with a session) (`docs/bridging.md`
//! 5.4). Each `input_required` result becomes requests to the client, and the client's answers go into the next request
//! to the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Notify;

use super::answer::Failure;
use super::client::Client;
use super::put::AskGuard;
use super::{Mailbox, put, question};
use crate::adapt;
use crate::manager::Server;
use crate::protocol::{
    Edits, ErrorObject, Message, Method, Notification, Outcome, ProtocolVersion, Raw, Theirs, object,
};
use crate::upstream::{Ask, Upstream};

/// The most rounds of questions in one call. Rounds that only wait for the user to visit a web page do not count.
const ROUNDS: u32 = 10;
/// How long to wait at first before sending the call again to a server that asked nothing new.
const PACE: Duration = Duration::from_millis(250);
/// The longest such wait; each one doubles the one before.
const PACE_MAX: Duration = Duration::from_secs(5);

/// What a call remembers from one round of questions to the next.
#[derive(Debug, Default)]
pub(super) struct Driver {
    rounds: u32,
    pause: Option<Duration>,
    visits: Visits,
}

/// Web pages that the client agreed to visit (elicitation in URL mode). Once the call is over, however it ends, the
/// client is told that each of these elicitations is complete.
#[derive(Debug, Default)]
struct Visits {
    /// For each page (keyed as by [`page`]), the `elicitationId` under which the client was asked.
    agreed: HashMap<String, String>,
    whose: Option<(Arc<Client>, Arc<Server>)>,
}

impl Drop for Visits {
    fn drop(&mut self) {
        let Some((client, server)) = &self.whose else { return };
        for id in self.agreed.values() {
            let id = adapt::url::scoped_id(id, server.config.alias.as_str());
            let params = Some(Raw::from_value(&serde_json::json!({ "elicitationId": id })));
            let notice = Notification { method: Method::ElicitationComplete, params };
            client.mailbox().put(Message::Notification(notice));
        }
    }
}

/// The client and the server of a call, and what is needed to ask both.
pub(super) struct Stage<'a> {
    pub(super) client: &'a Arc<Client>,
    pub(super) leg: &'a Arc<Mailbox>,
    pub(super) server: &'a Arc<Server>,
    pub(super) upstream: &'a Arc<Upstream>,
    pub(super) version: ProtocolVersion,
    pub(super) method: &'a Method,
    pub(super) call: u64,
    pub(super) patience: Duration,
}

/// How a call continues.
pub(super) enum Next {
    /// The call is sent again with these params.
    Again(Raw),
    /// The call is over with this outcome.
    Over(Outcome),
}

impl Driver {
    /// Reports whether the server has asked anything so far. If so, it has already worked on the call.
    pub(super) fn has_asked(&self) -> bool {
        self.rounds > 0 || self.pause.is_some()
    }

    /// Puts the questions in a server's result to the client, and gathers the answers into the params of the next
    /// request to the server.
    pub(super) async fn round(&mut self, stage: &Stage<'_>, result: &Raw, params: &Raw) -> Result<Next, Failure> {
        let [requests, state] = result.members(["inputRequests", "requestState"]);
        let requests = requests.filter(|requests| requests.is_object()).unwrap_or_else(Raw::empty_object);
        let entries: Vec<(String, Raw)> = object(requests.as_value())
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key.into_owned(), Raw::part(requests.bytes(), value)))
            .collect();
        if entries.is_empty() && state.is_none() {
            return Err(Failure::malformed("an `input_required` result that asks nothing"));
        }
        let known = |(_, entry): &(String, Raw)| self.visited(entry).is_some();
        if entries.iter().all(known) {
            self.wait().await;
        } else {
            self.pause = None;
            self.rounds += 1;
            if self.rounds > ROUNDS {
                return Err(Failure::malformed(&format!("the server asked more than {ROUNDS} rounds of questions")));
            }
        }
        let mut answers = Vec::new();
        match self.ask(stage, entries).await? {
            Ok(given) => answers.extend(given),
            Err(error) => return Ok(Next::Over(refused(stage, error))),
        }
        Ok(Next::Again(again(params, &answers, state.as_ref())))
    }

    async fn wait(&mut self) {
        let pause = self.pause.map_or(PACE, |last| (last * 2).min(PACE_MAX));
        self.pause = Some(pause);
        tokio::time::sleep(pause).await;
    }

    fn visited(&self, entry: &Raw) -> Option<&String> {
        self.visits.agreed.get(&page(entry)?)
    }

    /// Puts all questions to the client concurrently. Returns the answers by key, or the client's error: the first
    /// refusal ends all questions.
    async fn ask(
        &mut self,
        stage: &Stage<'_>,
        entries: Vec<(String, Raw)>,
    ) -> Result<Result<Vec<(String, Raw)>, ErrorObject>, Failure> {
        let _asks = AskGuard::new(stage.client, stage.call);
        let answered = Arc::new(Notify::new());
        let mut answers = Vec::new();
        let mut waiting = FuturesUnordered::new();
        for (key, entry) in entries {
            if self.visited(&entry).is_some() {
                answers.push((key, Raw::trusted(bytes::Bytes::from_static(br#"{"action":"accept"}"#))));
                continue;
            }
            let method = entry.text("method").map(|method| Method::parse(&method));
            let method = method
                .filter(|method| matches!(method, Method::RootsList | Method::CreateMessage | Method::Elicit))
                .ok_or_else(|| Failure::malformed("an `input_required` result with a request of an unknown kind"))?;
            let (params, id) = self.params(&entry);
            let (ask, answer) = Ask::gathered(&key, stage.version, method.clone(), params);
            let (ask, call) = (ask.of(stage.server.counts()), Some((stage.call, stage.leg)));
            put::put(stage.client, stage.server, stage.upstream, ask, call, Some(answered.clone()));
            waiting.push(async move { (key, entry, method, id, answer.await) });
        }
        let deadline = tokio::time::sleep(stage.patience);
        tokio::pin!(deadline);
        loop {
            let (key, entry, method, id, outcome) = tokio::select! {
                biased;
                given = waiting.next() => match given {
                    Some(given) => given,
                    None => break,
                },
                () = &mut deadline, if !deadline.is_elapsed() => {
                    stage.client.drop_asks(stage.call, question::unanswered);
                    continue;
                }
            };
            let outcome = outcome.unwrap_or_else(|_| Err(ErrorObject::internal("the client is gone")));
            match (outcome, method) {
                (Ok(answer), _) => {
                    if let (Some(id), Some(page), Some("accept")) = (id, page(&entry), answer.text("action").as_deref())
                    {
                        self.visits.whose.get_or_insert_with(|| (stage.client.clone(), stage.server.clone()));
                        self.visits.agreed.insert(page, id);
                    }
                    answers.push((key, answer));
                }
                // The answer to an elicitation can express a refusal: `cancel`.
                (Err(_), Method::Elicit) => answers.push((key, question::cancelled())),
                (Err(error), _) => return Ok(Err(error)),
            }
        }
        Ok(Ok(answers))
    }

    /// Returns the params of a question and, if it asks for a page visit, the new `elicitationId` in them, which
    /// 2025-11-25 requires.
    fn params(&self, entry: &Raw) -> (Option<Raw>, Option<String>) {
        let params = entry.member("params");
        if page(entry).is_none() {
            return (params, None);
        }
        let id = format!("{:016x}{:016x}", random(), random());
        let params = params.map(|params| adapt::url::numbered(&params, &id));
        (params, Some(id))
    }
}

/// Returns the key of the page that this entry asks the user to visit (its URL and message); `None` if it asks for no
/// visit.
fn page(entry: &Raw) -> Option<String> {
    let params = entry.member("params")?;
    let [mode, url, message] = params.members(["mode", "url", "message"]);
    (mode?.string().as_deref() == Some("url")).then_some(())?;
    Some(format!("{}\n{}", url?, message.map(|message| message.to_string()).unwrap_or_default()))
}

fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// Returns the params of the next request to the server: the same as before, with the answers and the server's own
/// `requestState`.
fn again(params: &Raw, answers: &[(String, Raw)], state: Option<&Raw>) -> Raw {
    let mut edits = Edits::new(params);
    let whole = params.as_value();
    if answers.is_empty() {
        edits.remove(whole, "inputResponses");
    } else {
        let members: Vec<String> =
            answers.iter().map(|(key, answer)| format!("{}:{answer}", Raw::from_value(&**key))).collect();
        edits.set(whole, "inputResponses", format!("{{{}}}", members.join(",")).as_bytes());
    }
    let params = edits.apply();
    match state {
        Some(state) => params.with_member("requestState", state.as_bytes()),
        None => params.without_member("requestState"),
    }
}

/// Ends a call whose client refused a question of a kind whose answer cannot express a refusal. The server is not
/// called again; the returned outcome tells the client why.
fn refused(stage: &Stage<'_>, error: ErrorObject) -> Outcome {
    if *stage.method != Method::ToolsCall {
        return Err(error);
    }
    let name = &stage.server.config.name;
    let text = format!("server {name:?} asked something that was refused: {}", Theirs(&error.message));
    Ok(Raw::from_value(&serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
}
