//! The questions put to one client: sent, answered, and taken back.
//!
//! **Invariant:** a question is answered once. A question of mcp-host itself is marked when it is sent, so that no text
//! of a server can pass for one of mcp-host.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Mailbox;
use super::client::{Client, OpenQuestion};
use crate::protocol::{Message, Method, Notification, Raw, Request, RequestId, Response};
use crate::upstream::{Ask, Connection};

impl Client {
    /// Sends a question to the client, into the leg of the call that it belongs to or, outside of calls, into the
    /// client's general mailbox. `answered` is woken by the client's answer.
    pub(super) fn ask(&self, ask: Ask, call: Option<(u64, &Arc<Mailbox>)>, answered: Option<Arc<Notify>>) {
        let leg = call.map(|(_, leg)| leg.clone());
        self.put_question(OpenQuestion { ask, call: call.map(|(call, _)| call), is_of_host: false, answered, leg });
    }

    /// Sends a question of mcp-host itself to the client, in mcp-host's words. `number` stands in for that of a call.
    pub(super) fn ask_as_host(&self, ask: Ask, number: u64, leg: &Arc<Mailbox>) {
        let (call, leg) = (Some(number), Some(leg.clone()));
        self.put_question(OpenQuestion { ask, call, is_of_host: true, answered: None, leg });
    }

    /// Reports whether mcp-host itself asks a question, in its own words; `None` if the question is not open any more.
    pub(crate) fn is_asked_by_host(&self, id: &RequestId) -> Option<bool> {
        let RequestId::Number(id) = id else { return None };
        Some(self.state().asked.get(&u64::try_from(*id).ok()?)?.is_of_host)
    }

    fn put_question(&self, mut question: OpenQuestion) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.asked_so_far += 1;
        let id = state.asked_so_far;
        let request = Message::Request(Request {
            id: RequestId::Number(i64::try_from(id).unwrap_or(i64::MAX)),
            method: question.ask.method.clone(),
            // From here on the mailbox holds and counts the params. Nothing needs them once the answer comes.
            params: question.ask.params.take(),
        });
        let leg = question.leg.clone();
        state.asked.insert(id, question);
        drop(state);
        match leg {
            Some(leg) => leg.put(request),
            None => self.mailbox().put(request),
        }
    }

    /// Sends a question of mcp-host itself to the client. `number` stands in for the number of a call.
    pub(super) fn ask_beside(&self, ask: Ask, number: u64, leg: Option<Arc<Mailbox>>) {
        self.put_question(OpenQuestion { ask, call: Some(number), is_of_host: false, answered: None, leg });
    }

    /// Takes the client's response to a request that was sent to it through a mailbox.
    pub(crate) fn answer(&self, response: Response) {
        let Some(RequestId::Number(id)) = response.id else { return };
        let asked = u64::try_from(id).ok().and_then(|id| self.state().asked.remove(&id));
        if let Some(asked) = asked {
            asked.ask.answer(response.outcome);
            if let Some(answered) = asked.answered {
                answered.notify_one();
            }
        }
    }

    /// Takes back a question that its server cancelled: the client is told with `notifications/cancelled`.
    pub(super) fn withdraw(&self, connection: &Arc<Connection>, id: &RequestId) {
        self.take_back(|asked| asked.ask.is(connection, id), Ask::forget);
    }

    /// Takes back the open questions of a call that is over, or whose questions nobody answered in time. `answer` is
    /// run with each question, to answer its server.
    pub(super) fn drop_asks(&self, call: u64, answer: impl Fn(Ask)) {
        self.take_back(|asked| asked.call == Some(call), answer);
    }

    fn take_back(&self, which: impl Fn(&OpenQuestion) -> bool, answer: impl Fn(Ask)) {
        let taken: Vec<(u64, OpenQuestion)> = {
            let mut state = self.state();
            let ids: Vec<u64> = state.asked.iter().filter(|(_, asked)| which(asked)).map(|(id, _)| *id).collect();
            ids.into_iter().filter_map(|id| Some((id, state.asked.remove(&id)?))).collect()
        };
        for (id, asked) in taken {
            let params = Some(Raw::trusted(format!(r#"{{"requestId":{id}}}"#).into()));
            let notice = Message::Notification(Notification { method: Method::Cancelled, params });
            match &asked.leg {
                Some(leg) => leg.put(notice),
                None => self.mailbox().put(notice),
            }
            answer(asked.ask);
        }
    }

    /// Reports whether any question of that call still waits for the client's answer.
    pub(super) fn is_asked(&self, call: u64) -> bool {
        self.state().asked.values().any(|asked| asked.call == Some(call))
    }
}
