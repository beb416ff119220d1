//! Questions that reach the client in a result (`docs/bridging.md` 5.4). A server without sessions asks a client
//! without a session this way, and a server of 2025-11-25 that wants web pages visited before it does anything (error
//! `-32042`) is translated to it. The host's own question for roots takes the same way.

use super::answer::Failure;
use super::client::Client;
use super::forward::Forward;
use super::question::{NO_PAGE, may_visit, permit};
use super::roots;
use super::state::{Sealer, State, expired};
use crate::adapt;
use crate::answered::Answered;
use crate::config::Transport;
use crate::protocol::{Edits, ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, Theirs, code, object};
use crate::registry::expose_content;

/// How to go on with a request of a client without a session, by the `requestState` that it brings.
pub(super) enum Continuation {
    /// The request is sent to its server.
    Ready,
    /// The request brings the answers to this round of this parked call.
    Parked { call: u64, round: u32 },
    /// The request is answered at once with this outcome.
    Over(Outcome),
    /// The request answers this question, which a rule wants asked before the request is sent.
    Permission { ask: u64, rule: String },
    /// The client was shown the page where a person decides on this question, which a rule wants.
    Person { ask: u64, rule: String },
    /// The request answers this invitation to sign in. `why` is the text of the failure if the client declined.
    #[cfg(feature = "server")]
    SignIn { invitation: u64, why: String },
}

impl Forward {
    /// Opens the `requestState` that the request brings, and changes the params to those for the server.
    ///
    /// # Errors
    /// When the host did not make the state for this request, or it has expired.
    pub(super) fn open_state(&mut self, sealer: &Sealer, client: &Client) -> Result<Continuation, ErrorObject> {
        let Some(state) = self.params.member("requestState") else { return Ok(Continuation::Ready) };
        let text = state.string().ok_or_else(expired)?;
        match sealer.open_state(client.bound(), &text, self.digest())? {
            State::Parked { call, round } => return Ok(Continuation::Parked { call, round }),
            State::Relay { server, state, permit } => {
                self.permit = permit;
                if server != *self.server.config.alias.as_str() {
                    return Err(expired());
                }
                self.params = match state {
                    Some(state) => self.params.with_member("requestState", Raw::from_value(&state).as_bytes()),
                    None => self.params.without_member("requestState"),
                };
                self.reopen();
                self.answers = true;
            }
            State::Afresh { keys } => {
                if let Some(outcome) = self.not_visited(&keys) {
                    return Ok(Continuation::Over(outcome));
                }
                self.start_afresh();
            }
            State::Permission { ask, rule } => return Ok(Continuation::Permission { ask, rule }),
            State::Person { ask, rule } => return Ok(Continuation::Person { ask, rule }),
            #[cfg(feature = "server")]
            State::SignIn { invitation, why } => return Ok(Continuation::SignIn { invitation, why }),
            State::Roots => {
                let told = roots::brought(self.params.member("inputResponses"));
                if client.is_one_conversation() {
                    client.keep_roots(Some(told.clone()));
                }
                self.start_afresh();
                self.roots = Some(told);
            }
        }
        Ok(Continuation::Ready)
    }

    /// Removes the answers to a question of the host itself from the params.
    pub(super) fn start_afresh(&mut self) {
        self.params = self.params.without_member("requestState").without_member("inputResponses");
        self.reopen();
    }

    /// Returns the result that asks the client for its roots, or `None` if they need not be known before anything is
    /// sent.
    pub(super) fn ask_for_roots(&self, sealer: &Sealer, client: &Client) -> Result<Option<Raw>, ErrorObject> {
        if self.roots.is_some() || self.answers || !wants_roots_first(client, self) {
            return Ok(None);
        }
        let sealed = sealer.seal_state(client.bound(), State::Roots, self.digest(), self.limits.answer)?;
        Ok(Some(input_required([(roots::KEY, &Method::RootsList, None)].into_iter(), &sealed)))
    }
}

/// Returns a server's `input_required` result as its client gets it: the questions as they are, the server's state
/// sealed. The seal binds the state to the principal. The name of the tool alone would lead back to the server, but the
/// server sees one credential for several people and could not tell whose state it is.
pub(super) fn relay_questions(sealer: &Sealer, client: &Client, forward: &Forward, result: &Raw) -> Answered {
    let [requests, state] = result.members(["inputRequests", "requestState"]);
    let state = state.and_then(|state| state.string().map(std::borrow::Cow::into_owned));
    let server = forward.server.config.alias.to_string();
    let sealed = State::Relay { server, state, permit: forward.permit };
    // Another host of a cluster has another process of this server, which may not know what this one has begun.
    let is_bound = forward.permit.is_some() || matches!(forward.server.config.transport, Transport::Stdio(_));
    let sealed = sealer.seal_at(client.bound(), sealed, forward.digest(), (forward.limits.answer, is_bound))?;
    let declared = forward.server.declared(&client.who);
    let mut edits = Edits::new(result);
    edits.set(result.as_value(), "requestState", Raw::from_value(&sealed).as_bytes());
    if let Some(requests) = &requests {
        for (_, entry) in object(requests.as_value()).unwrap_or_default() {
            let entry = Raw::part(result.bytes(), entry);
            let method = entry.text("method").map(|method| Method::parse(&method));
            let known =
                method.filter(|method| matches!(method, Method::RootsList | Method::CreateMessage | Method::Elicit));
            // Such a question is an error: the request told the server what this client can be asked.
            if let Some(Err(error)) = known.map(|method| permit(declared, &method, entry.member("params").as_ref())) {
                let what = format!("a question that this client cannot be asked ({})", error.message);
                return Err(Failure::malformed(&what).of(&forward.server));
            }
            if let (Some("sampling/createMessage"), Some(params)) =
                (entry.text("method").as_deref(), entry.member("params"))
            {
                let exposed = expose_content(&params, &forward.server.config.alias, forward.server.uris);
                edits.replace_part(&params, exposed.as_bytes().to_vec());
            }
        }
    }
    Ok(edits.apply())
}

/// Returns the client's answer if a server demands page visits (error `-32042`). A client without a session gets the
/// pages as questions, a client of 2025-11-25 the error with ids that name the server, and every other client a
/// sentence.
pub(super) fn visits_required(sealer: &Sealer, client: &Client, forward: &Forward, error: ErrorObject) -> Answered {
    let pages = adapt::url::required(&error).unwrap_or_default();
    if !pages.iter().all(may_visit) {
        return Err(Failure::malformed(NO_PAGE).of(&forward.server));
    }
    let can = client.profile().has(Profile::ELICITATION_URL) && !pages.is_empty();
    if can && client.revision() == ProtocolVersion::V2025_11_25 {
        return Err(adapt::url::scoped_error(error, forward.server.config.alias.as_str()).into());
    }
    if can && client.revision().is_modern() {
        return Ok(ask_for_visits(sealer, client, forward, &pages)?);
    }
    let text = format!(
        "server {:?} wants a page visited before it does this, and this client cannot be asked to: {}{}",
        forward.server.config.name,
        Theirs(&error.message),
        adapt::url::addresses(&pages)
    );
    if forward.method != Method::ToolsCall {
        return Err(ErrorObject::internal(text).into());
    }
    Ok(Raw::from_value(&serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
}

fn ask_for_visits(sealer: &Sealer, client: &Client, forward: &Forward, pages: &[Raw]) -> Outcome {
    let keys: Vec<String> = (1..=pages.len()).map(|number| format!("u{number}")).collect();
    let state = State::Afresh { keys: keys.clone() };
    let sealed = sealer.seal_state(client.bound(), state, forward.digest(), forward.limits.answer)?;
    let questions = keys.iter().zip(pages).map(|(key, page)| (&**key, &Method::Elicit, Some(page)));
    Ok(input_required(questions, &sealed))
}

/// Reports whether the client must be asked for its roots before anything is sent. A client that is known to be one
/// conversation is asked once, any other with each request.
fn wants_roots_first(client: &Client, forward: &Forward) -> bool {
    let server = &forward.server;
    server.wants_roots(&client.who) && !server.is_sessionless(&client.who) && client.roots().is_none()
}

/// Returns an `input_required` result with each question under its key, and the `requestState` for the client to send
/// back.
pub(super) fn input_required<'a>(
    questions: impl Iterator<Item = (&'a str, &'a Method, Option<&'a Raw>)>,
    state: &str,
) -> Raw {
    let entries: Vec<String> = questions
        .map(|(key, method, params)| {
            let params = params.map_or("{}", Raw::as_str);
            format!(r#"{}:{{"method":"{method}","params":{params}}}"#, Raw::from_value(key))
        })
        .collect();
    let text = format!(
        r#"{{"resultType":"input_required","inputRequests":{{{}}},"requestState":{}}}"#,
        entries.join(","),
        Raw::from_value(state)
    );
    Raw::trusted(text.into())
}

impl Forward {
    /// Returns the answer if the client declined to visit a page, or `None` if it visits all of them.
    fn not_visited(&self, keys: &[String]) -> Option<Outcome> {
        let answers = self.params.member("inputResponses").unwrap_or_else(Raw::empty_object);
        let action = |key: &String| answers.member(key).and_then(|answer| answer.text("action"));
        if keys.iter().all(|key| action(key).as_deref() == Some("accept")) {
            return None;
        }
        let text = format!("server {:?} wants a page visited first, and that was declined", self.server.config.name);
        Some(if self.method == Method::ToolsCall {
            Ok(Raw::from_value(&serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
        } else {
            Err(ErrorObject::new(code::INTERNAL, text))
        })
    }
}
