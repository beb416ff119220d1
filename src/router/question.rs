//! A question of a server: judged here, reworded, or answered by the config. `put.rs` puts it to the client.
//!
//! It goes out under an id of ours, and its answer goes back under the server's id. `callTimeout` stops meanwhile.

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

/// The answer to a question with a page that is shown to nobody.
pub(super) const NO_PAGE: &str = "a page to visit must be one of https, or of this machine";

/// Lets a question pass that may be asked. What was not declared is refused, configured roots are told.
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

/// The question as the client's revision has it; nothing if it was answered instead, since the client cannot take it.
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

/// A question of a task, naming the task as the client knows it.
pub(super) fn of_task(mut ask: Ask, handle: &str) -> Ask {
    ask.params = ask.params.take().map(|params| adapt::task::related(&params, handle));
    ask
}

/// Whether a page may be put to a person (`docs/hazards.md` H45): over https, or on this very machine. We never open it.
pub(super) fn may_visit(params: &Raw) -> bool {
    let Some(url) = params.text("url").and_then(|url| Url::parse(&url).ok()) else { return false };
    let is_bare = url.username().is_empty() && url.password().is_none();
    is_bare && (url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url)))
}

/// Whether a client with this profile can be asked this.
///
/// # Errors
/// `-32601` for a capability that it lacks, `-32602` for a mode of it (2025-11-25, elicitation) or a page that is shown to
/// nobody.
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

/// What a server gets when no person answers in time.
pub(super) fn unanswered(ask: Ask) {
    let outcome = match ask.method {
        Method::Elicit => Ok(cancelled()),
        Method::CreateMessage => Err(ErrorObject::internal("the client gave no answer in time")),
        _ => Err(ErrorObject::method_not_found(ask.method.as_str())),
    };
    ask.answer(outcome);
}

/// A question that is nobody's for sure is never guessed to be somebody's (`docs/bridging.md` 5.5).
pub(super) fn refuse(ask: Ask) {
    tracing::info!("{} belongs to no call of one client that may be asked: refused", ask.method);
    let outcome = match ask.method {
        Method::Elicit => Ok(cancelled()),
        Method::CreateMessage => Err(ErrorObject::internal("no client request is in progress")),
        _ => Err(ErrorObject::method_not_found(ask.method.as_str())),
    };
    ask.answer(outcome);
}

/// The answer to an elicitation that nobody gave.
pub(super) fn cancelled() -> Raw {
    Raw::trusted(bytes::Bytes::from_static(br#"{"action":"cancel"}"#))
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
    let params = Some(adapt::notice(params.clone()).with_member("logger", Raw::from_value(&*logger).as_bytes()));
    mailbox.put(Message::Notification(Notification { method: Method::LogMessage, params }));
}

/// The key that a server would like its question to have, taken out of it: clients may show keys to people. Only a name;
/// a question of ours that has none is as good.
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
