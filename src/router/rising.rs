//! Progress as a client gets it: under its own progress token, and always increasing.

use crate::adapt;
use crate::protocol::{Message, Method, Notification, Raw};

/// How much a progress notification of the host itself adds to the last value.
const TICK: f64 = 1e-6;

/// Sends progress under the client's own progress token. Values that do not increase are dropped.
#[derive(Debug, Default)]
pub(super) struct Rising {
    /// The client's progress token, as JSON; `None` if it wants no progress.
    pub(super) token: Option<Raw>,
    last: Option<f64>,
}

impl Rising {
    pub(super) fn new(token: Option<Raw>) -> Self {
        Self { token, last: None }
    }

    /// Sets the token, if there is none yet.
    pub(super) fn under(self, token: Option<Raw>) -> Self {
        Self { token: self.token.or(token), ..self }
    }

    /// Copies the token out of the message that it came in, so that this can be kept longer than the call without
    /// keeping that message.
    pub(super) fn detached(self) -> Self {
        Self { token: self.token.as_ref().map(Raw::detached), ..self }
    }

    /// Returns how many bytes the token holds.
    pub(super) fn weight(&self) -> usize {
        self.token.as_ref().map_or(0, |token| token.as_bytes().len())
    }

    /// Returns the notification to send, if one is due.
    pub(super) fn step(&mut self, params: &Raw) -> Option<Message> {
        let token = self.token.as_ref()?;
        let value = params.member("progress").and_then(|value| value.read::<f64>().ok());
        self.last = Some(value.filter(|value| self.last.is_none_or(|last| *value > last))?);
        let params = Some(adapt::notice(params.clone()).with_member("progressToken", token.as_bytes()));
        Some(Message::Notification(Notification { method: Method::Progress, params }))
    }

    /// Returns a progress notification of the host itself, sent between two rounds of questions because many clients
    /// give up on a call that is silent for a minute. Its value rises by so little that the server's next value is
    /// higher, even if that is a first value of 0.
    pub(super) fn tick(&mut self) -> Option<Message> {
        let next = match self.last {
            None => -TICK,
            Some(last) if last < 0.0 => last + TICK.min(last / -2.0),
            Some(last) => (last + TICK).max(last.next_up()),
        };
        self.step(&Raw::trusted(format!(r#"{{"progressToken":0,"progress":{next}}}"#).into()))
    }
}
