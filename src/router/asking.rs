//! Writes the question that people are asked before a request is sent, as a form or as the address of the page where a
//! person at this machine decides. Also reads the answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::asks::Decided;
use super::client::Client;
use super::forward::Forward;
use super::judge::ToAsk;
use super::limit::in_words;
use crate::protocol::{Method, Raw, Theirs, escaped, meta};

/// How much of the arguments a question shows, in characters.
const SHOWN: usize = 1024;

/// Returns the arguments to show to people: those that the server gets, without hidden arguments and without the
/// server's secrets.
pub(super) fn arguments(forward: &Forward) -> String {
    let arguments = forward.params.member("arguments").unwrap_or_else(Raw::empty_object);
    let shown = match forward.listed.entry().and_then(|entry| entry.edit()) {
        Some(edit) => edit.without_hidden(&arguments),
        None => arguments,
    };
    forward.server.scrubber.scrub(shown.as_str()).into_owned()
}

/// Marks the params of a question as asked by mcp-host itself, for programs of the same user that show questions of
/// servers and of mcp-host side by side (`protocol/ours.rs`).
pub(super) fn own(mut params: Value) -> Raw {
    params["_meta"] = json!({ meta::HOST_ASKS: true });
    Raw::from_value(&params)
}

/// Returns the params of the question in form mode.
pub(super) fn form(client: &Client, forward: &Forward, to_ask: &ToAsk) -> Raw {
    let (wish, shown, rule) = (wish(client, forward), shown(forward), &to_ask.rule);
    let message = format!("mcp-host asks: {wish}. The rule {rule:?} wants you to decide.\n\n{shown}");
    let mut answers = vec![ONCE.to_owned(), NO.to_owned()];
    if let Some(time) = to_ask.remember {
        answers.insert(1, for_a_while(time));
    }
    if to_ask.script.is_some() {
        answers.insert(1, SCRIPT.to_owned());
    }
    own(json!({
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "answer": { "type": "string", "title": "May it?", "enum": answers } },
            "required": ["answer"],
        },
    }))
}

const ONCE: &str = "once";
const SCRIPT: &str = "for this script";
const NO: &str = "no";

fn for_a_while(time: Duration) -> String {
    format!("for {}", in_words(time))
}

/// Reads the answer to the question. Anything but a plain yes is a no.
pub(super) fn decision(answer: &Raw, remember: Option<Duration>) -> Decided {
    if answer.text("action").as_deref() != Some("accept") {
        return Decided::No;
    }
    match answer.member("content").and_then(|content| content.text("answer")).as_deref() {
        Some(ONCE) => Decided::Once,
        Some(text) if remember.is_some_and(|time| text == for_a_while(time)) => Decided::Remember,
        _ => Decided::No,
    }
}

/// Reports whether the answer allows the tool until the calling script ends.
pub(super) fn is_for_script(answer: &Raw) -> bool {
    let is_yes = answer.text("action").as_deref() == Some("accept");
    is_yes && answer.member("content").and_then(|content| content.text("answer")).as_deref() == Some(SCRIPT)
}

/// Returns the text that says which client wants to do what at which server.
fn wish(client: &Client, forward: &Forward) -> String {
    let (server, target) = (forward.server.config.alias.as_str(), Theirs(&forward.target));
    let what = match forward.method {
        Method::PromptsGet => format!("get the prompt {target} of"),
        Method::ResourcesRead => format!("read {target} of"),
        _ => format!("call {target} of"),
    };
    let who =
        client.name_of(forward.meta.as_ref()).0.map_or("The client".to_owned(), |name| format!("{}", Theirs(&name)));
    format!("{who} wants to {what} the server {server:?}")
}

/// Returns the line that shows the arguments, and says how much of them is left out.
fn shown(forward: &Forward) -> String {
    let (arguments, more) = escaped(&arguments(forward), SHOWN);
    let more = match more {
        0 => String::new(),
        more => format!(" … and {more} more characters, which `mcp-host asks` shows"),
    };
    format!("Arguments: {arguments}{more}")
}

/// Returns the params of the question that sends a person to the page of mcp-host. The client's answer grants nothing:
/// only a person with a session on that page decides.
pub(super) fn page(client: &Client, forward: &Forward, (to_ask, id): (&ToAsk, u64), url: &str) -> Raw {
    let (wish, shown, rule) = (wish(client, forward), shown(forward), &to_ask.rule);
    let message = format!(
        "mcp-host asks: {wish}. The rule {rule:?} wants a person at the host to decide: on the page of mcp-host, which \
         `mcp-host open` opens, or by `mcp-host asks {id}`.\n\n{shown}"
    );
    own(json!({ "mode": "url", "message": message, "url": url }))
}

/// Reports whether the client's answer to the question of [`page`] says that its user does not want the request.
pub(super) fn declines(answer: &Raw) -> bool {
    answer.text("action").as_deref() == Some("decline")
}
