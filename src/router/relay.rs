//! Questions that travel as results: those of a server without a session to a client without one, and pages that a server of
//! 2025-11-25 wants visited before it does anything (`-32042`); `docs/bridging.md` 5.4.

use std::sync::Arc;

use super::Router;
use super::answer::Failure;
use super::client::Client;
use super::forward::Forward;
use super::question::{NO_PAGE, may_visit, permit};
use super::roots;
use super::state::{Sealer, State, expired};
use super::toward::Toward;
use crate::adapt;
use crate::answered::Answered;
use crate::protocol::{Edits, ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, Theirs, code, object};
use crate::registry::expose_content;

impl Router {
    /// Serves a request of a client without a session that may ask it something: a new one, or one that brings answers.
    pub(super) async fn forward_modern(
        &self,
        client: &Arc<Client>,
        mut forward: Forward,
        leg: &Arc<super::Mailbox>,
    ) -> Answered {
        let state = match forward.params.member("requestState") {
            None => None,
            Some(state) => {
                let text = state.string().ok_or_else(expired)?;
                Some(self.0.sealer.open_state(client.principal(), &text, forward.digest())?)
            }
        };
        match state {
            Some(State::Parked { call, round }) => return self.resume(client, (call, round), &forward, leg).await,
            Some(State::Relay { server, state }) => {
                if server != *forward.server.config.alias.as_str() {
                    return Err(expired().into());
                }
                forward.params = match state {
                    Some(state) => forward.params.with_member("requestState", Raw::from_value(&state).as_bytes()),
                    None => forward.params.without_member("requestState"),
                };
                forward.reopen();
                forward.answers = true;
            }
            Some(State::Afresh { keys }) => {
                if let Some(outcome) = forward.not_visited(&keys) {
                    return Ok(outcome?);
                }
                forward.params = forward.params.without_member("requestState").without_member("inputResponses");
                forward.reopen();
            }
            #[cfg(feature = "server")]
            Some(State::SignIn { invitation, why }) => {
                if let Some(answered) = self.invited(client, &forward, invitation, why).await {
                    return answered;
                }
                forward.params = forward.params.without_member("requestState").without_member("inputResponses");
                forward.reopen();
            }
            Some(State::Roots) => {
                let told = roots::brought(forward.params.member("inputResponses"));
                if client.is_one_conversation() {
                    client.keep_roots(Some(told.clone()));
                }
                forward.params = forward.params.without_member("requestState").without_member("inputResponses");
                forward.reopen();
                forward.roots = Some(told);
            }
            None => {}
        }
        if forward.roots.is_none() && !forward.answers && wants_roots_first(client, &forward) {
            let sealed =
                self.0.sealer.seal_state(client.principal(), State::Roots, forward.digest(), forward.limits.answer)?;
            return Ok(input_required([(roots::KEY, &Method::RootsList, None)].into_iter(), &sealed));
        }
        self.carry(client, &forward, &mut Toward::leg(client, leg)).await
    }
}

/// The `input_required` result of a server as its client gets it: the questions as they are, the server's state sealed.
/// It is sealed although the way back is by name: the server sees one credential for several people.
pub(super) fn relay_questions(sealer: &Sealer, client: &Client, forward: &Forward, result: &Raw) -> Answered {
    let [requests, state] = result.members(["inputRequests", "requestState"]);
    let state = state.and_then(|state| state.string().map(std::borrow::Cow::into_owned));
    let server = forward.server.config.alias.to_string();
    let sealed = State::Relay { server, state };
    let sealed = sealer.seal_state(client.principal(), sealed, forward.digest(), forward.limits.answer)?;
    let declared = forward.server.declared(client.profile());
    let mut edits = Edits::new(result);
    edits.set(result.as_value(), "requestState", Raw::from_value(&sealed).as_bytes());
    if let Some(requests) = &requests {
        for (_, entry) in object(requests.as_value()).unwrap_or_default() {
            let entry = Raw::part(result.bytes(), entry);
            let method = entry.text("method").map(|method| Method::parse(&method));
            let known =
                method.filter(|method| matches!(method, Method::RootsList | Method::CreateMessage | Method::Elicit));
            // It was told with its request what this client can be asked.
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

/// What becomes of `-32042`: a client without a session gets the pages as questions, one of 2025-11-25 the error with the
/// ids as it may send them back, every other one a sentence.
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
    let sealed = sealer.seal_state(client.principal(), state, forward.digest(), forward.limits.answer)?;
    let questions = keys.iter().zip(pages).map(|(key, page)| (&**key, &Method::Elicit, Some(page)));
    Ok(input_required(questions, &sealed))
}

/// Whether the client is asked for its roots before anything is sent: once, if it is one conversation for sure.
fn wants_roots_first(client: &Client, forward: &Forward) -> bool {
    let server = &forward.server;
    server.wants_roots(client.profile()) && !server.is_sessionless(&client.who) && client.roots().is_none()
}

/// A result that asks: each question under its key, and the state to come back with.
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
    /// The answer if a page was not agreed to be visited.
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
