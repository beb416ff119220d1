//! Progress as a client gets it: under its own progress token, and always increasing.
//!
//! MCP wants each value to be higher than the one before. A server's value that does not rise above the server's own
//! last one is dropped. If it rises, but not above what mcp-host has sent meanwhile, a value just above that is sent
//! instead.

use std::time::Duration;

use tokio::time::Instant;

use super::heart::{self, Heart, Wait};
use crate::adapt;
use crate::protocol::{Message, Method, Notification, Raw, meta};

/// How much a progress notification of mcp-host itself adds to the last value.
const TICK: f64 = 1e-6;

/// Sends progress under the client's own progress token. A server's values that do not increase are dropped.
#[derive(Debug, Default)]
pub(super) struct Rising {
    /// The client's progress token, as JSON; `None` if it wants no progress.
    pub(super) token: Option<Raw>,
    /// The last value that the client got.
    sent: Option<f64>,
    /// The last value of the server that rose.
    theirs: Option<f64>,
    heart: Heart,
}

impl Rising {
    #[cfg(test)]
    pub(super) fn new(token: Option<Raw>) -> Self {
        Self { token, ..Self::default() }
    }

    /// Sets after how much silence the client gets a heartbeat, or never if that is 0.
    pub(super) fn beating(self, every: Duration) -> Self {
        Self { heart: Heart::every(every), ..self }
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

    /// Forgets what the server reported. Another server begins with low values, which are then raised above what was
    /// sent.
    pub(super) fn another_server(&mut self) {
        self.theirs = None;
    }

    /// Returns how many bytes the token holds.
    pub(super) fn weight(&self) -> usize {
        self.token.as_ref().map_or(0, |token| token.as_bytes().len())
    }

    /// Returns the notification to send, if one is due.
    pub(super) fn step(&mut self, params: &Raw) -> Option<Message> {
        self.heart.server_spoke();
        let message = self.risen(params)?;
        self.heart.told();
        Some(message)
    }

    fn risen(&mut self, params: &Raw) -> Option<Message> {
        let token = self.token.as_ref()?;
        let value = params.member("progress").and_then(|value| value.read::<f64>().ok())?;
        if self.theirs.is_some_and(|last| value <= last) {
            return None;
        }
        self.theirs = Some(value);
        let mut params = adapt::notice(params.clone()).with_member("progressToken", token.as_bytes());
        self.sent = Some(match self.sent {
            Some(sent) if value <= sent => {
                let lifted = above(sent).filter(|lifted| lifted.is_finite())?;
                params = params.with_member("progress", lifted.to_string().as_bytes());
                lifted
            }
            _ => value,
        });
        Some(Message::Notification(Notification { method: Method::Progress, params: Some(params) }))
    }

    /// Returns a progress notification of mcp-host itself, sent between two rounds of questions because many clients
    /// give up on a call that is silent for a minute. Its value rises by so little that the server's next value is
    /// nearly always higher, even if that is a first value of 0.
    pub(super) fn tick(&mut self) -> Option<Message> {
        let message = self.own("")?;
        self.heart.told();
        Some(message)
    }

    /// Starts the clock of the heartbeats, unless it runs. Returns when the next one is due; `None` if there are none.
    pub(super) fn start_heart(&mut self, now: Instant) -> Option<Instant> {
        self.token.as_ref()?;
        self.heart.start(now)
    }

    /// Returns when the next heartbeat is due; `None` if the clock does not run.
    pub(super) fn next_beat(&self) -> Option<Instant> {
        self.heart.due()
    }

    /// Returns the heartbeat to send, if one is due now.
    pub(super) fn beat(&mut self, server: &str, wait: Wait) -> Option<Message> {
        let silent = self.heart.beat(Instant::now())?;
        let (text, key) = (Raw::from_value(&heart::text(server, wait, silent)), meta::HEARTBEAT);
        self.own(&format!(r#","message":{text},"_meta":{{"{key}":{{"silentMs":{}}}}}"#, silent.as_millis()))
    }

    /// Returns progress of mcp-host itself; `more` is JSON text with further members, each with a comma in front.
    fn own(&mut self, more: &str) -> Option<Message> {
        let token = self.token.as_ref()?;
        let next = self.sent.map_or(Some(-TICK), above).filter(|next| next.is_finite())?;
        self.sent = Some(next);
        let params = format!(r#"{{"progressToken":{token},"progress":{next}{more}}}"#);
        let params = Some(Raw::trusted(params.into()));
        Some(Message::Notification(Notification { method: Method::Progress, params }))
    }
}

/// Returns a value slightly above `last`, and still below 0 if that is.
fn above(last: f64) -> Option<f64> {
    let next = if last < 0.0 { last + TICK.min(last / -2.0) } else { last + TICK };
    Some(next.max(last.next_up()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(message: Option<Message>) -> Option<f64> {
        let Message::Notification(notice) = message? else { unreachable!("it is progress") };
        notice.params.expect("it has params").member("progress").and_then(|value| value.read().ok())
    }

    fn step(rising: &mut Rising, value: f64) -> Option<f64> {
        self::value(rising.step(&Raw::from_value(&serde_json::json!({ "progressToken": 0, "progress": value }))))
    }

    #[test]
    fn what_a_server_reports_after_signs_of_life_still_rises_and_none_is_lost() {
        let mut rising = Rising::new(Some(Raw::trusted("1".into())));
        assert_eq!(step(&mut rising, 1.0), Some(1.0));
        let mut last = 1.0;
        for value in (0..5).map(|_| value(rising.tick()).expect("it ticks")) {
            assert!(value > last && value < 1.001, "{value} after {last}");
            last = value;
        }
        let lifted = step(&mut rising, 1.000_000_1).expect("it rose above what the server said before");
        assert!(lifted > last && lifted < 1.001, "{lifted} after {last}");
        assert_eq!(step(&mut rising, 1.000_000_1), None, "the server repeats itself");
        assert_eq!(step(&mut rising, 2.0), Some(2.0));
    }

    #[test]
    fn another_server_begins_anew_and_its_progress_rises() {
        let mut rising = Rising::new(Some(Raw::trusted("1".into())));
        assert_eq!(step(&mut rising, 5.0), Some(5.0));
        rising.another_server();
        let lifted = step(&mut rising, 1.0).expect("it is its first");
        assert!(lifted > 5.0 && lifted < 5.001, "{lifted}");
        assert_eq!(step(&mut rising, 1.0), None);
        assert_eq!(step(&mut rising, 6.0), Some(6.0));
    }

    #[test]
    fn no_number_is_written_that_json_does_not_have() {
        let mut rising = Rising::new(Some(Raw::trusted("1".into())));
        assert_eq!(step(&mut rising, f64::MAX), Some(f64::MAX));
        assert!(rising.tick().is_none() && step(&mut rising, 1.0).is_none());
    }
}
