//! Handles a question, that is a request from a server to a client: checks it, translates it, or answers it from the
//! config. `put.rs` puts it to the client.
//!
//! The client gets the question under a new request id, and its answer goes back to the server under the server's id.
//! Meanwhile the time for `callTimeout` stands still.

use std::borrow::Cow;

use url::Url;

use super::Mailbox;
use super::client::Client;
use crate::adapt;
use crate::config::Roots;
use crate::loopback::is_loopback;
use crate::manager::Server;
use crate::protocol::{ErrorObject, Message, Method, Notification, Profile, ProtocolVersion, Raw, meta};
use crate::registry::expose_content;
use crate::upstream::Ask;

/// The error for a question that asks a person to visit a page that must not be shown.
pub(super) const NO_PAGE: &str = "a page to visit must be one of https, or of this machine";

/// Returns the question if the client may be asked it. Otherwise returns `None` and answers it: with the configured
/// roots, or with a refusal if the capability was not declared.
pub(super) fn judge(server: &Server, declared: Profile, mut ask: Ask) -> Option<Ask> {
    server.note_ask(&ask);
    if let (Method::RootsList, Roots::Fixed(uris)) = (&ask.method, &server.config.roots) {
        let roots: Vec<_> = uris.iter().map(|uri| serde_json::json!({ "uri": uri })).collect();
        ask.answer(Ok(Raw::from_value(&serde_json::json!({ "roots": roots }))));
        return None;
    }
    if let Err(error) = permit(declared, &ask.method, ask.params.as_ref()) {
        ask.answer(Err(error));
        return None;
    }
    if ask.method == Method::CreateMessage {
        ask.params = ask.params.take().map(|params| expose_content(&params, &server.config.alias, server.uris));
    }
    Some(ask)
}

/// Translates a question into the client's revision. Returns `None` if that revision cannot express it; then the
/// question is answered here.
pub(super) fn reword(server: &Server, ask: Ask, to: ProtocolVersion) -> Option<Ask> {
    let alias = server.config.alias.as_str();
    match adapt::question(&ask.method, ask.params.clone(), ask.revision(), to, alias) {
        Ok(adapt::AdaptedQuestion { params, fold }) => {
            Some(ask.put(params, Box::new(move |outcome| fold.answer(outcome))))
        }
        Err(adapt::Refusal(outcome)) => {
            ask.answer(outcome);
            None
        }
    }
}

/// Replaces the task's id in a question that belongs to a task with the id that the client knows.
pub(super) fn of_task(mut ask: Ask, handle: &str) -> Ask {
    ask.params = ask.params.take().map(|params| adapt::task::related(&params, handle));
    ask
}

/// Reports whether a person may be asked to visit the page (`docs/hazards.md` H45): it is one over https or on this
/// machine, without credentials in its URL. mcp-host itself never opens it.
pub(super) fn may_visit(params: &Raw) -> bool {
    let Some(url) = params.text("url").and_then(|url| Url::parse(&url).ok()) else { return false };
    let is_bare = url.username().is_empty() && url.password().is_none();
    is_bare && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)))
}

/// Checks that a client that declared this profile can be asked this question.
///
/// # Errors
/// `-32601` for a capability that the client lacks, `-32602` for an elicitation mode that it lacks (2025-11-25), or for
/// a page that must not be shown to a person.
pub(super) fn permit(declared: Profile, method: &Method, params: Option<&Raw>) -> Result<(), ErrorObject> {
    let known = match method {
        Method::RootsList => declared.has(Profile::ROOTS),
        Method::CreateMessage => declared.has(Profile::SAMPLING),
        Method::Elicit => declared.has(Profile::ELICITATION_FORM) || declared.has(Profile::ELICITATION_URL),
        _ => false,
    };
    if !known {
        return Err(ErrorObject::method_not_found(method.as_str()));
    }
    let url = params.and_then(|params| params.text("mode")).as_deref() == Some("url");
    let mode = if url { Profile::ELICITATION_URL } else { Profile::ELICITATION_FORM };
    if *method == Method::Elicit && !declared.has(mode) {
        return Err(ErrorObject::invalid_params("the client did not declare this mode of elicitation"));
    }
    if *method == Method::Elicit && url && !params.is_some_and(may_visit) {
        return Err(ErrorObject::invalid_params(NO_PAGE));
    }
    Ok(())
}

/// Answers a question in the client's place after no answer came in time.
pub(super) fn unanswered(ask: Ask) {
    let outcome = match ask.method {
        Method::Elicit => Ok(cancelled()),
        Method::CreateMessage => Err(ErrorObject::internal("the client gave no answer in time")),
        _ => Err(ErrorObject::method_not_found(ask.method.as_str())),
    };
    ask.expire(outcome);
}

/// Refuses a question if it is not certain which client it is for. mcp-host never guesses (`docs/bridging.md` 5.5).
pub(super) fn refuse(ask: Ask) {
    tracing::info!("{} belongs to no call of one client that may be asked: refused", ask.method);
    let outcome = match ask.method {
        Method::Elicit => Ok(cancelled()),
        Method::CreateMessage => {
            Err(ErrorObject::internal("no request of a client is in flight, so no client can be asked"))
        }
        _ => Err(ErrorObject::method_not_found(ask.method.as_str())),
    };
    ask.refuse(outcome);
}

/// Returns the answer to an elicitation that nobody answered.
pub(super) fn cancelled() -> Raw {
    Raw::trusted(bytes::Bytes::from_static(br#"{"action":"cancel"}"#))
}

/// Passes a server's log message on if the client wants its level. The logger's name gets the server's alias in front.
pub(super) fn log(client: &Client, mailbox: &Mailbox, server: &Server, params: &Raw) {
    if !client.wants(params.text("level").as_deref().unwrap_or_default(), mailbox) {
        return;
    }
    let alias = &server.config.alias;
    let logger = match params.text("logger") {
        Some(logger) => Cow::Owned(format!("{alias}/{logger}")),
        None => Cow::Borrowed(alias.as_str()),
    };
    let params = Some(adapt::notice(params.clone()).with_member("logger", Raw::from_value(&*logger).as_bytes()));
    mailbox.put(Message::Notification(Notification { method: Method::LogMessage, params }));
}

/// Removes from a question the key (in `inputRequests`) that the server would like it to have, and returns that key if
/// it is a plain name. Clients may show keys to people, so any other key is ignored, and mcp-host makes one.
pub(super) fn wished_key(ask: &mut Ask) -> Option<String> {
    let params = ask.params.as_ref()?;
    let meta = params.member("_meta")?;
    let wish = meta.text(meta::INPUT_KEY)?;
    let meta = meta.without_member(meta::INPUT_KEY);
    ask.params = Some(if meta.as_bytes() == b"{}" {
        params.without_member("_meta")
    } else {
        params.with_member("_meta", meta.as_bytes())
    });
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    ((1..=64).contains(&wish.len()) && wish.bytes().all(legal)).then_some(wish)
}
