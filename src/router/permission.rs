//! Asks a person before a request is sent, if a rule requires it.
//!
//! A client with a session is asked by a request on the stream of its call, and waited for. A client without one gets a
//! result that asks (`input_required`), and sends its request again with the answer and a sealed state. Where the rule
//! wants a person at this machine (`proof: "person"`), no client decides: the request waits for `mcp-host asks` or for
//! the page. A client that can open URLs gets the address of the page, which grants nothing by itself.
//!
//! **Invariant:** nothing is sent before a yes, and each yes allows one request (`asks.rs`).

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::Mailbox;
use super::answer::Failure;
use super::asking::{arguments, decision, declines, form, is_for_script, page};
use super::asks::{Asks, Decided, OpenAsk, Scope, State as AskState};
use super::beating::beating;
use super::client::Client;
use super::clients::Clients;
use super::forward::Forward;
use super::heart::Wait;
use super::judge::{CANNOT_ASK, ToAsk};
use super::put::{AskGuard, own_number};
use super::relay::input_required;
use super::state::{Sealer, State};
use super::toward::Toward;
use crate::adapt;
use crate::answered::NoResult;
use crate::config::{Policy, Proof};
use crate::hex;
use crate::lock::lock;
use crate::manager::Manager;
use crate::protocol::{Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Theirs, escaped};
use crate::upstream::Ask;

/// The key (in `inputRequests`) of the question.
const KEY: &str = "mcp-host-ask";
/// How much of the arguments is kept for `mcp-host asks`, in characters.
const KEPT: usize = 64 * 1024;
/// A person's decision is valid for this many times as long as a call may wait for it.
const LATE: u32 = 2;
/// How long one request of a client without a session waits for a person who is shown the page. Many clients give up
/// after a minute.
const TURN: Duration = Duration::from_secs(45);

/// Returns arguments as `mcp-host asks` shows them, and says how much of them is left out.
fn kept(arguments: &str) -> String {
    match escaped(arguments, KEPT) {
        (text, 0) => text,
        (text, more) => format!("{text}… ({more} more characters)"),
    }
}

/// Asks people before requests are sent.
#[derive(Debug)]
pub(super) struct Permissions {
    clients: Arc<Clients>,
    manager: Manager,
    sealer: Arc<Sealer>,
    /// The rules that the decisions were made for.
    policy: Mutex<Policy>,
}

impl Permissions {
    pub(super) fn new(manager: Manager, clients: Arc<Clients>, sealer: Arc<Sealer>) -> Self {
        let policy = Mutex::new(manager.settings().policy.clone());
        Self { clients, manager, sealer, policy }
    }

    fn asks(&self) -> &Asks {
        self.clients.asks()
    }

    /// Reports whether a person has allowed the request.
    pub(super) fn has_yes(&self, client: &Client, forward: &Forward, to_ask: &ToAsk) -> bool {
        let scope = scope(client, forward, to_ask);
        self.is_granted(to_ask, &scope)
            || self.goes_on(forward, &scope)
            || self.asks().has_yes(&scope, forward.digest())
    }

    /// Reports whether more than one request is allowed: for a while, or as long as a script runs.
    fn is_granted(&self, to_ask: &ToAsk, scope: &Scope) -> bool {
        let to_script = |script: &Arc<str>| self.asks().is_granted_to(script, scope);
        self.asks().is_granted(scope) || to_ask.script.as_ref().is_some_and(to_script)
    }

    /// Uses up the yes for a request that is about to be sent. Returns the number of the yes, if one is used up.
    ///
    /// # Errors
    /// If an equal request has used the yes already.
    pub(super) fn spend(&self, client: &Client, forward: &Forward, to_ask: &ToAsk) -> Result<Option<u64>, NoResult> {
        let scope = scope(client, forward, to_ask);
        if self.is_granted(to_ask, &scope) || self.goes_on(forward, &scope) {
            return Ok(None);
        }
        match self.asks().use_yes(&scope, forward.digest()) {
            Some(id) => Ok(Some(id)),
            None => {
                Err(Failure::not_permitted(&to_ask.rule, "the yes was used by an equal request").of(&forward.server))
            }
        }
    }

    /// Checks that a call which was sent already may go on. `permit` is the number of the question whose yes allowed
    /// it.
    ///
    /// # Errors
    /// With the refusal, if that yes is no longer valid, or no person was asked about the call.
    pub(super) fn still(
        &self,
        client: &Client,
        forward: &Forward,
        to_ask: &ToAsk,
        permit: Option<u64>,
    ) -> Result<(), NoResult> {
        self.forget_others();
        let scope = scope(client, forward, to_ask);
        let is_allowed = permit.is_some_and(|id| self.asks().is_allowed(id, &scope, forward.digest()));
        if is_allowed || self.is_granted(to_ask, &scope) {
            return Ok(());
        }
        Err(Failure::not_permitted(&to_ask.rule, "no person allowed it before it was sent").of(&forward.server))
    }

    /// Asks a person whether a request may be sent, unless that was decided already. Returns the answer for the client
    /// if that answer is what asks the question.
    ///
    /// # Errors
    /// With the refusal, if nobody can be asked, nobody answered, or the answer was no.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the question from the client. A person at this machine may still decide.
    pub(super) async fn permit(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        to_ask: &ToAsk,
    ) -> Result<Option<Raw>, NoResult> {
        self.forget_others();
        if self.has_yes(client, forward, to_ask) {
            return Ok(None);
        }
        let scope = scope(client, forward, to_ask);
        if to_ask.proof == Proof::Person {
            return self.wait_for_person(client, forward, toward, (to_ask, scope)).await;
        }
        if !client.profile().has(Profile::ELICITATION_FORM) || !forward.method.may_ask() {
            return Err(Failure::not_permitted(&to_ask.rule, CANNOT_ASK).of(&forward.server));
        }
        if client.revision().is_modern() {
            return self.ask_by_result(client, forward, (to_ask, scope)).map(Some);
        }
        self.ask_and_wait(client, forward, toward, (to_ask, scope)).await.map(|()| None)
    }

    /// Applies the client's answer, which a request without a session brings together with its state.
    ///
    /// # Errors
    /// With the refusal, if the answer is no.
    pub(super) fn answered(&self, forward: &Forward, leg: &Mailbox, (id, rule): (u64, &str)) -> Result<(), NoResult> {
        let answer = forward.params.member("inputResponses").and_then(|answers| answers.member(KEY));
        // A person may have decided meanwhile. Then that decision holds, and this answer is ignored.
        match answer.as_ref().map(|answer| decision(answer, self.asks().remember(id))) {
            Some(decided) => {
                self.asks().decide(id, decided);
                if let Some(subject) = leg.subject() {
                    subject.asked(if decided == Decided::No { "no" } else { "yes" });
                }
                if decided == Decided::No {
                    return Err(Failure::not_permitted(rule, "the answer was no").of(&forward.server));
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Forgets decisions that were made under rules that have changed since.
    fn forget_others(&self) {
        let settings = self.manager.settings();
        let mut policy = lock(&self.policy);
        if *policy != settings.policy {
            *policy = settings.policy.clone();
            self.asks().clear();
        }
    }

    /// Makes the yes valid again that a request used up without reaching its server.
    pub(super) fn give_back(&self, forward: &Forward) {
        if let Some(id) = forward.permit.filter(|_| !forward.answers) {
            self.asks().give_back(id);
        }
    }

    /// Reports whether the request continues one that was allowed and sent: it brings answers to its server.
    fn goes_on(&self, forward: &Forward, scope: &Scope) -> bool {
        let permit = forward.permit.filter(|_| forward.answers);
        permit.is_some_and(|id| self.asks().is_allowed(id, scope, forward.digest()))
    }

    /// Answers a request without a session with the question.
    fn ask_by_result(
        &self,
        client: &Client,
        forward: &Forward,
        (to_ask, scope): (&ToAsk, Scope),
    ) -> Result<Raw, NoResult> {
        let form = form(client, forward, to_ask);
        let (id, _) = self.open(client, forward, (to_ask, scope), 1);
        let state = State::Permission { ask: id, rule: to_ask.rule.to_string() };
        let sealed = self.sealer.seal_state(client.bound(), state, forward.digest(), forward.limits.answer)?;
        Ok(input_required(std::iter::once((KEY, &Method::Elicit, Some(&form))), &sealed))
    }

    /// Asks a client with a session, and waits for its answer or for a person's decision.
    async fn ask_and_wait(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        (to_ask, scope): (&ToAsk, Scope),
    ) -> Result<(), NoResult> {
        let Toward::Leg(leg) = &*toward else {
            return Err(Failure::not_permitted(&to_ask.rule, CANNOT_ASK).of(&forward.server));
        };
        let leg = leg.mailbox().clone();
        let call = own_number();
        let form = form(client, forward, to_ask);
        let (ask, answer) = Ask::gathered(KEY, client.revision(), Method::Elicit, Some(form));
        let granted = scope.clone();
        let (id, mut state) = self.open(client, forward, (to_ask, scope), 1);
        let open = Open { asks: self.asks(), id };
        let _taken_back = AskGuard::new(client, call);
        client.ask_as_host(ask, call, &leg);
        let asked = pin!(timeout(forward.limits.answer, async {
            tokio::select! {
                biased;
                decided = decided(&mut state) => decided,
                answer = answer => match answer {
                    Ok(Ok(answer)) => Some(match to_ask.script.as_ref().filter(|_| is_for_script(&answer)) {
                        Some(script) => {
                            self.asks().grant_to(script, &granted);
                            Decided::Once
                        }
                        None => decision(&answer, to_ask.remember),
                    }),
                    Ok(Err(_)) | Err(_) => Some(Decided::No),
                },
            }
        }));
        let decided = beating(toward, forward, Wait::Permission, asked).await;
        note(toward, &decided);
        let why = match decided {
            Ok(Some(Decided::No)) => "the answer was no",
            Ok(Some(yes)) => {
                self.asks().decide(id, yes);
                open.keep();
                return Ok(());
            }
            Ok(None) => "the question was dropped",
            Err(_) => NOBODY,
        };
        Err(Failure::not_permitted(&to_ask.rule, why).of(&forward.server))
    }

    /// Waits until a person at this machine decides. Returns the answer for a client without a session that has to be
    /// shown the page.
    async fn wait_for_person(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        (to_ask, scope): (&ToAsk, Scope),
    ) -> Result<Option<Raw>, NoResult> {
        if self.manager.is_unattended() {
            return Err(Failure::not_permitted(&to_ask.rule, UNATTENDED).of(&forward.server));
        }
        let open = self.asks().find(&scope, forward.digest());
        let is_new = open.is_none();
        let (id, mut state) = open.unwrap_or_else(|| self.open(client, forward, (to_ask, scope), LATE));
        if is_new {
            tracing::warn!(
                server = %forward.server.config.alias,
                rule = %to_ask.rule,
                "a call waits for a person: `mcp-host asks` shows it as number {id}"
            );
        }
        let page = self.page(client, forward, (to_ask, id));
        let by_result = page.as_ref().filter(|_| client.revision().is_modern());
        if let Some(page) = by_result.filter(|_| is_new || !forward.saw_page) {
            return self.show_by_result(client, forward, (to_ask, id), page).map(Some);
        }
        toward.tick();
        let patience = if by_result.is_some() { TURN.min(forward.limits.answer) } else { forward.limits.answer };
        let mut shown = match &page {
            Some(page) if is_new && by_result.is_none() => Page::show(client, toward, page),
            _ => None,
        };
        let decided = {
            let waited = pin!(timeout(patience, decided_beside(&mut state, shown.as_mut())));
            beating(toward, forward, Wait::Permission, waited).await
        };
        if let (Err(_), Some(page)) = (&decided, by_result) {
            return self.show_by_result(client, forward, (to_ask, id), page).map(Some);
        }
        drop(shown);
        let declined = matches!(decided, Ok(Some((Decided::No, true))));
        note(toward, &decided.as_ref().map(|decided| decided.map(|(decided, _)| decided)));
        let why = match decided {
            Ok(Some((Decided::No, true))) => DECLINED,
            Ok(Some((Decided::No, false))) => "a person said no",
            Ok(Some(_)) => return Ok(None),
            Ok(None) => "the question was dropped",
            Err(_) => NOBODY,
        };
        if declined {
            self.asks().decide(id, Decided::No);
        }
        Err(Failure::not_permitted(&to_ask.rule, why).of(&forward.server))
    }

    /// Returns the question that sends the client's user to the page; `None` if the client cannot open URLs, or there
    /// is no page.
    fn page(&self, client: &Client, forward: &Forward, asked: (&ToAsk, u64)) -> Option<Raw> {
        let revision = client.revision();
        let takes_urls = client.profile().has(Profile::ELICITATION_URL)
            && (revision.is_modern() || revision == ProtocolVersion::V2025_11_25)
            && !client.is_embedding()
            && forward.method.may_ask();
        let url = takes_urls.then(|| self.manager.page()).flatten()?;
        Some(page(client, forward, asked, &url))
    }

    /// Answers a request without a session with the address of the page.
    fn show_by_result(
        &self,
        client: &Client,
        forward: &Forward,
        (to_ask, id): (&ToAsk, u64),
        page: &Raw,
    ) -> Result<Raw, NoResult> {
        let state = State::Person { ask: id, rule: to_ask.rule.to_string() };
        let sealed = self.sealer.seal_state(client.bound(), state, forward.digest(), forward.limits.answer * LATE)?;
        Ok(input_required(std::iter::once((KEY, &Method::Elicit, Some(page))), &sealed))
    }

    /// Applies the answer of a client without a session that was shown the page. It can only decline, and allows
    /// nothing.
    ///
    /// # Errors
    /// With the refusal, if the client declined, or its request waits no more.
    pub(super) fn was_shown(&self, forward: &Forward, leg: &Mailbox, (id, rule): (u64, &str)) -> Result<(), NoResult> {
        let answer = forward.params.member("inputResponses").and_then(|answers| answers.member(KEY));
        let declined = answer.as_ref().is_some_and(declines) && self.asks().decide(id, Decided::No);
        let (why, asked) = match (declined, self.asks().is_there(id)) {
            (true, _) => (DECLINED, "no"),
            (false, true) => return Ok(()),
            (false, false) => ("a person said no, or nobody answered in time", "nobody"),
        };
        if let Some(subject) = leg.subject() {
            subject.asked(asked);
        }
        Err(Failure::not_permitted(rule, why).of(&forward.server))
    }

    fn open(
        &self,
        client: &Client,
        forward: &Forward,
        (to_ask, scope): (&ToAsk, Scope),
        lives: u32,
    ) -> (u64, watch::Receiver<AskState>) {
        let (name, _) = client.name_of(forward.meta.as_ref());
        let view = self.manager.as_caller(&client.who, |caller| caller.view.to_owned()).unwrap_or_default();
        let shown = OpenAsk {
            id: 0,
            rule: to_ask.rule.to_string(),
            server: forward.server.config.alias.to_string(),
            name: Theirs(&forward.target).to_string(),
            method: forward.method.to_string(),
            principal: client.principal().as_str().to_owned(),
            client: name.map(|name| Theirs(&name).to_string()),
            view,
            arguments: kept(&arguments(forward)),
            remember_secs: None,
            waits_secs: 0,
            person_only: to_ask.proof == Proof::Person,
        };
        self.asks().open(scope, forward.digest(), (shown, to_ask.remember), forward.limits.answer * lives)
    }
}

/// Records for the audit how the question was decided.
fn note<E>(toward: &Toward<'_>, decided: &Result<Option<Decided>, E>) {
    let Toward::Leg(leg) = toward else { return };
    if let Some(subject) = leg.mailbox().subject() {
        subject.asked(match decided {
            Ok(Some(Decided::No)) => "no",
            Ok(Some(_)) => "yes",
            Ok(None) | Err(_) => "nobody",
        });
    }
}

/// Why a request was refused on which nobody decided.
const NOBODY: &str = "nobody answered in time";
/// Why a request was refused where no person can decide.
const UNATTENDED: &str = "no person can be asked here: that needs a running daemon (mcp-host serve)";
/// Why a request was refused whose client was shown the page.
const DECLINED: &str = "the client declined";

/// Waits for a decision; `None` if the question is gone.
async fn decided(state: &mut watch::Receiver<AskState>) -> Option<Decided> {
    let decided = state.wait_for(|state| *state != AskState::Open).await.ok()?;
    Some(if *decided == AskState::No { Decided::No } else { Decided::Once })
}

/// Waits for a person's decision, or until the client that is shown the page declines. The flag is true if it declined.
async fn decided_beside(state: &mut watch::Receiver<AskState>, shown: Option<&mut Page>) -> Option<(Decided, bool)> {
    let declined = async {
        if let Some(page) = shown
            && let Ok(Ok(answer)) = (&mut page.answer).await
            && declines(&answer)
        {
            return;
        }
        // Every other answer of the client is ignored.
        std::future::pending().await
    };
    tokio::select! {
        biased;
        decided = decided(state) => decided.map(|decided| (decided, false)),
        () = declined => Some((Decided::No, true)),
    }
}

/// The address of the page, shown to a client with a session. Once this is dropped, the client is told that it is over.
struct Page {
    leg: Arc<Mailbox>,
    /// The id of the question.
    id: String,
    answer: oneshot::Receiver<Outcome>,
    _asked: AskGuard,
}

impl Page {
    /// Shows the page's address to the client; `None` if nobody is there to see it.
    fn show(client: &Arc<Client>, toward: &Toward<'_>, page: &Raw) -> Option<Self> {
        let Toward::Leg(leg) = toward else { return None };
        let mut random = [0; 16];
        getrandom::fill(&mut random).ok()?;
        let (id, call, leg) = (hex::encode(&random), own_number(), leg.mailbox().clone());
        let page = adapt::url::numbered(page, &id);
        let (ask, answer) = Ask::gathered(KEY, client.revision(), Method::Elicit, Some(page));
        let _asked = AskGuard::new(client, call);
        client.ask_as_host(ask, call, &leg);
        Some(Self { leg, id, answer, _asked })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let params = Some(Raw::from_value(&serde_json::json!({ "elicitationId": self.id })));
        self.leg.put(Message::Notification(Notification { method: Method::ElicitationComplete, params }));
    }
}

/// A question to a client with a session. It is dropped with its call, unless it was answered with a yes.
struct Open<'a> {
    asks: &'a Asks,
    id: u64,
}

impl Open<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.asks.drop(self.id);
    }
}

/// Returns what a yes to this request is valid for.
fn scope(client: &Client, forward: &Forward, to_ask: &ToAsk) -> Scope {
    Scope {
        bound: client.bound().clone(),
        session: (!client.revision().is_modern()).then(|| client.owner()),
        rule: to_ask.rule.clone(),
        server: forward.server.id,
        target: forward.target.clone(),
        pin: forward.listed.entry().map(|entry| entry.pin().to_string()).unwrap_or_default().into(),
    }
}
