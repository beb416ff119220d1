//! Progress as a client hears of it: under its own token, and rising.

use crate::adapt;
use crate::protocol::{Message, Method, Notification, Raw};

/// By so much a sign of life of our own is more than what was said before it.
const TICK: f64 = 1e-6;

/// Progress under the client's own token: values that do not increase are dropped.
#[derive(Debug, Default)]
pub(super) struct Rising {
    /// The client's token, as JSON.
    pub(super) token: Option<Raw>,
    last: Option<f64>,
}

impl Rising {
    pub(super) fn new(token: Option<Raw>) -> Self {
        Self { token, last: None }
    }

    /// The same, under that token if it has none yet.
    pub(super) fn under(self, token: Option<Raw>) -> Self {
        Self { token: self.token.or(token), ..self }
    }

    /// The same without the message that the token came in: for what is kept longer than the call.
    pub(super) fn detached(self) -> Self {
        Self { token: self.token.as_ref().map(Raw::detached), ..self }
    }

    /// How much it holds.
    pub(super) fn weight(&self) -> usize {
        self.token.as_ref().map_or(0, |token| token.as_bytes().len())
    }

    /// The notification to send, if one is due.
    pub(super) fn step(&mut self, params: &Raw) -> Option<Message> {
        let token = self.token.as_ref()?;
        let value = params.member("progress").and_then(|value| value.read::<f64>().ok());
        self.last = Some(value.filter(|value| self.last.is_none_or(|last| *value > last))?);
        let params = Some(adapt::notice(params.clone()).with_member("progressToken", token.as_bytes()));
        Some(Message::Notification(Notification { method: Method::Progress, params }))
    }

    /// A sign of life between two rounds of questions: many clients give up on a call that is silent for a minute. It rises
    /// by so little that what the server says next is more; one that has said nothing yet may begin with 0.
    pub(super) fn tick(&mut self) -> Option<Message> {
        let next = match self.last {
            None => -TICK,
            Some(last) if last < 0.0 => last + TICK.min(last / -2.0),
            Some(last) => (last + TICK).max(last.next_up()),
        };
        self.step(&Raw::trusted(format!(r#"{{"progressToken":0,"progress":{next}}}"#).into()))
    }
}
