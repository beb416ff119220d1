//! One call of a tool by the page: the messages before its answer, and the answer, as lines of JSON.
//!
//! **Invariant:** a call goes the same way through the router as every client's call (`Router::answered`). Closing the
//! stream cancels it. Only the session that made a call may answer its questions or cancel it. Whether the host or a
//! server asks a question is known from the router, never from the question's text.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::access::{InUse, Session};
use super::{Answer, Asked, Console, No, read};
use crate::answered::{Answered, End, NoResult};
use crate::lock::lock;
use crate::protocol::{Message, Method, Notification, Raw, Request, RequestId, Response};
use crate::registry::Resolution;
use crate::router::{Client, Mailbox};

/// The body of `POST call`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted<'a> {
    tool: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// The body of `POST answer`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given<'a> {
    call: u64,
    question: i64,
    action: Action,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// What a person does about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Accept,
    Decline,
    Cancel,
}

/// The body of `POST cancel`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Withdrawn {
    call: u64,
}

/// Reports whether any route about calls accepts this body.
#[cfg(feature = "fuzzing")]
pub(super) fn takes(body: &[u8]) -> bool {
    read::<Wanted<'_>>(body).is_ok() || read::<Given<'_>>(body).is_ok() || read::<Withdrawn>(body).is_ok()
}

/// A line of a call.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Begin {
        call: u64,
        tool: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<&'a str>,
    },
    Question {
        question: i64,
        from: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        server: Option<&'a str>,
        method: &'a str,
    },
    Withdrawn {
        question: i64,
    },
    End {
        outcome: &'static str,
        ms: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<&'a str>,
    },
}

/// One running call.
struct Call {
    number: u64,
    tool: String,
    /// The configured name of the server that has the tool.
    server: Option<String>,
    leg: Arc<Mailbox>,
    /// The answer; `None` once it has come.
    answer: Option<BoxFuture<'static, Option<Answered>>>,
    begun: Instant,
    has_begun: bool,
    /// Lines that are ready and not sent yet.
    lines: VecDeque<Bytes>,
    registered: Registered,
}

/// Registers a call with its session until this is dropped.
struct Registered {
    in_use: InUse,
    client: Arc<Client>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.in_use.session().calls).remove(&self.number);
    }
}

/// Writes a line. The values in `more` are written verbatim.
fn line(line: &Line<'_>, more: &[(&str, &[u8])]) -> Bytes {
    // Lines always serialize.
    let mut raw = Raw::from_value(line);
    for (name, value) in more {
        raw = raw.with_member(name, value);
    }
    finished(&raw)
}

/// Adds the line end. JSON from a server may contain line breaks between members: they become spaces.
fn finished(raw: &Raw) -> Bytes {
    let mut text = Vec::with_capacity(raw.as_bytes().len() + 1);
    text.extend(raw.as_bytes().iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    text.push(b'\n');
    text.into()
}

impl Console {
    /// Calls a tool.
    pub(super) fn call(&self, asked: Asked) -> Result<Answer, No> {
        let Wanted { tool, arguments } = read(&asked.body)?;
        let arguments = arguments.map_or("{}", RawValue::get);
        if !arguments.starts_with('{') {
            return Err(No::malformed("arguments: not an object"));
        }
        let client = self.client(asked.in_use.session(), &asked.identity);
        let number = self.next_call();
        let request = request(number, &tool, arguments, self.router.limits().depth)?;
        let server = match client.view(self.router.manager()).callable.tool(&tool) {
            Resolution::Found(target) => self.router.manager().server(target.server),
            _ => None,
        };
        let leg = client.leg(self.router.limits());
        let answer = Box::pin(self.router.answered(&client, request, &leg));
        lock(&asked.in_use.session().calls).insert(number, Default::default());
        let end = asked.in_use.session().end.clone();
        let call = Call {
            number,
            tool,
            server: server.map(|server| server.config.name.clone()),
            leg,
            answer: Some(answer),
            begun: Instant::now(),
            has_begun: false,
            lines: VecDeque::new(),
            registered: Registered { in_use: asked.in_use, client, number },
        };
        let lines = stream::unfold(call, |mut call| async move { Some((call.next().await?, call)) });
        Ok(Answer::Lines(lines.take_until(end.cancelled_owned()).boxed()))
    }

    /// Cancels a call of the session.
    pub(super) fn cancel(&self, session: &Session, body: &[u8]) -> Result<Answer, No> {
        let Withdrawn { call } = read(body)?;
        let client = client_of(session, call)?;
        let params = Raw::from_value(&serde_json::json!({ "requestId": call }));
        self.router.notify(&client, Notification { method: Method::Cancelled, params: Some(params) });
        Ok(Answer::of(&serde_json::json!({ "cancelled": true })))
    }
}

/// Makes the request, as strictly as a door reads one.
fn request(number: u64, tool: &str, arguments: &str, depth: usize) -> Result<Request, No> {
    let name = serde_json::Value::from(tool);
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":{name},"arguments":{arguments},"_meta":{{"progressToken":{number}}}}}}}"#
    );
    match Message::parse_within(&Bytes::from(text), depth) {
        Ok(Message::Request(request)) => Ok(request),
        Ok(_) => Err(No::malformed("arguments: not an object")),
        Err(malformed) => Err(No::malformed(format!("arguments: {}", malformed.reason))),
    }
}

/// Returns the client behind a running call of the session.
fn client_of(session: &Session, call: u64) -> Result<Arc<Client>, No> {
    let is_own = lock(&session.calls).contains_key(&call);
    let client = lock(&session.client).as_ref().map(|(_, client)| client.clone());
    client.filter(|_| is_own).ok_or_else(|| No::unknown(format!("no call of this session with the number {call} runs")))
}

/// Answers a question of a call of the session.
pub(super) fn answer(session: &Session, body: &[u8]) -> Result<Answer, No> {
    let Given { call, question, action, content } = read(body)?;
    let client = client_of(session, call)?;
    let mut given = Raw::from_value(&serde_json::json!({ "action": action }));
    if let Some(content) = content {
        if action != Action::Accept || !content.get().starts_with('{') {
            return Err(No::malformed("content: an object, and only with the action \"accept\""));
        }
        given = given.with_member("content", content.get().as_bytes());
    }
    let was_open = lock(&session.calls).get_mut(&call).is_some_and(|open| open.remove(&question));
    if !was_open {
        return Err(No::unknown(format!("call {call} has no open question with the number {question}")));
    }
    client.answer(Response { id: Some(RequestId::Number(question)), outcome: Ok(given) });
    Ok(Answer::of(&serde_json::json!({ "answered": true })))
}

impl Call {
    /// Returns the next line; `None` after the last one.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.has_begun, true) {
            let begin = Line::Begin { call: self.number, tool: &self.tool, server: self.server.as_deref() };
            return Some(line(&begin, &[]));
        }
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            let answer = self.answer.as_mut()?;
            tokio::select! {
                biased;
                message = self.leg.next() => match message {
                    Some(message) => self.hear(message),
                    // The reader is too slow for the messages of the call, so the call is dropped.
                    None => return None,
                },
                answered = answer => {
                    self.answer = None;
                    while let Some(message) = self.leg.try_next() {
                        self.hear(message);
                    }
                    self.lines.push_back(self.end(answered));
                }
            }
        }
    }

    fn hear(&mut self, message: Message) {
        let line = match message {
            Message::Notification(notice) => self.note(notice),
            Message::Request(request) => self.question(request),
            Message::Response(_) => None,
        };
        self.lines.extend(line);
    }

    fn note(&self, notice: Notification) -> Option<Bytes> {
        let params = notice.params?;
        let typed = |word: &str, names: &[&str]| {
            let mut line = Raw::from_value(&serde_json::json!({ "type": word }));
            for name in names {
                if let Some(value) = params.member(name) {
                    line = line.with_member(name, value.as_bytes());
                }
            }
            finished(&line)
        };
        match notice.method {
            Method::Progress => Some(typed("progress", &["progress", "total", "message"])),
            Method::LogMessage => Some(typed("line", &["level", "logger", "data"])),
            Method::Cancelled => {
                let question = params.member("requestId")?.read::<i64>().ok()?;
                let mut calls = lock(&self.registered.in_use.session().calls);
                // A question that was not shown needs no withdrawal.
                let was_told = calls.get_mut(&self.number)?.remove(&question);
                was_told.then(|| line(&Line::Withdrawn { question }, &[]))
            }
            _ => None,
        }
    }

    /// Writes a question, unless it was withdrawn meanwhile.
    fn question(&self, request: Request) -> Option<Bytes> {
        let RequestId::Number(question) = request.id else { return None };
        let is_of_host = self.registered.client.is_asked_by_host(&request.id)?;
        if request.method != Method::Elicit {
            let outcome = super::refusal(&request.method);
            self.registered.client.answer(Response { id: Some(request.id), outcome });
            return None;
        }
        lock(&self.registered.in_use.session().calls).get_mut(&self.number)?.insert(question);
        let (method, server) = (request.method.to_string(), self.server.as_deref());
        let from = if is_of_host { "host" } else { "server" };
        let params = request.params.unwrap_or_else(Raw::empty_object);
        Some(line(&Line::Question { question, from, server, method: &method }, &[("params", params.as_bytes())]))
    }

    fn end(&self, answered: Option<Answered>) -> Bytes {
        let ms = self.begun.elapsed().as_secs_f64() * 1000.0;
        let end = |end: End| Line::End { outcome: end.word(), ms, kind: None, rule: None };
        match answered {
            None => line(&end(End::Cancelled), &[]),
            Some(Ok(result)) => line(&end(End::of_result(&result)), &[("result", result.as_bytes())]),
            Some(Err(NoResult::Error(error))) => {
                line(&end(End::Error), &[("error", Raw::from_value(&error).as_bytes())])
            }
            Some(Err(NoResult::Failed(failed))) => {
                let outcome = End::HostError.word();
                let (kind, rule) = (Some(failed.kind.word()), failed.rule.as_deref());
                let error = Raw::from_value(&failed.error());
                line(&Line::End { outcome, ms, kind, rule }, &[("error", error.as_bytes())])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_a_door_reads_them() {
        let read = |arguments: &str| {
            request(7, "a\"b", arguments, 8).map(|request| request.params.unwrap().as_str().to_owned())
        };
        let params = r#"{"name":"a\"b","arguments":{"n":1.0},"_meta":{"progressToken":7}}"#;
        assert_eq!(read(r#"{"n":1.0}"#).unwrap(), params);
        let deep = format!("{}{}", r#"{"a":"#.repeat(8), "1".to_owned() + &"}".repeat(8));
        assert_eq!(read(&deep).unwrap_err().error, "malformed");
    }

    #[test]
    fn a_line_has_no_line_break() {
        let raw = Raw::parse(&Bytes::from_static(b"{\n\"a\":\r\n\"b\\n\"\n}")).unwrap();
        let text = line(&Line::Withdrawn { question: 1 }, &[("result", raw.as_bytes())]);
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value, serde_json::json!({ "type": "withdrawn", "question": 1, "result": { "a": "b\n" } }));
    }
}
