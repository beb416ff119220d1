//! Limits on one server's open questions, that is, its requests to clients that have no answer yet: their number, their
//! total size, and their rate.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::RequestId;

/// The maximum number of open questions per server.
const OPEN: usize = 256;
/// The maximum bytes of open questions per server; a single one may be larger. A person may take minutes for each.
const BYTES: usize = 16 << 20;
/// The maximum number of questions per server and second (`docs/hazards.md` H18).
const PER_SECOND: u32 = 50;
/// The maximum bytes of a question's id, which is kept as long as the question and repeated in the answer.
const ID: usize = 1024;

/// The open questions of one connection, by the server's own ids.
#[derive(Debug, Default)]
pub(super) struct Asks {
    open: BTreeMap<RequestId, Open>,
    /// The start of the current one-second window, and the questions counted in it.
    window: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Open {
    /// The exchange that the question went to, if it belongs to one.
    exchange: Option<u64>,
    size: usize,
}

/// What happens to a question that no client is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// It is answered with an error that has this text.
    Away(String),
    /// It gets no answer, for this reason.
    Down(&'static str),
}

impl Asks {
    /// Registers a question, for which `size` bytes are kept.
    pub(super) fn admit(&mut self, id: &RequestId, size: usize, now: Instant) -> Result<(), Turned> {
        // Such a question is not even answered: each answer would hold the id until the server takes it.
        if matches!(id, RequestId::Text(text) if text.len() > ID) {
            return Err(Turned::Down("a question whose id is longer than 1 KiB"));
        }
        let (since, count) = self.window.get_or_insert((now, 0));
        if now - *since >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        if *count > PER_SECOND {
            return Err(Turned::Away(format!("more than {PER_SECOND} requests in a second")));
        }
        if self.open.contains_key(id) {
            return Err(Turned::Down("a question with an id in use"));
        }
        if self.open.len() >= OPEN {
            return Err(Turned::Down("a question over the limit of open questions"));
        }
        let held: usize = self.open.values().map(|open| open.size).sum();
        if held > 0 && held.saturating_add(size) > BYTES {
            let text = format!("requests of this server that wait for an answer are over {} MiB together", BYTES >> 20);
            return Err(Turned::Away(text + "; send this one again when one of them has its answer"));
        }
        self.open.insert(id.clone(), Open { exchange: None, size });
        Ok(())
    }

    /// Records the exchange that a question went to.
    pub(super) fn went_to(&mut self, id: &RequestId, exchange: u64) {
        if let Some(open) = self.open.get_mut(id) {
            open.exchange = Some(exchange);
        }
    }

    /// Returns the exchange that an open question went to.
    pub(super) fn exchange_of(&self, id: &RequestId) -> Option<u64> {
        self.open.get(id)?.exchange
    }

    /// Removes a question. Returns `None` if it was not open; else the exchange that it went to, if any.
    pub(super) fn remove(&mut self, id: &RequestId) -> Option<Option<u64>> {
        Some(self.open.remove(id)?.exchange)
    }

    /// The number of open questions.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether that question is open.
    pub(super) fn holds(&self, id: &RequestId) -> bool {
        self.open.contains_key(id)
    }

    /// Removes all open questions and returns them with their exchanges.
    pub(super) fn take(&mut self) -> Vec<(RequestId, Option<u64>)> {
        std::mem::take(&mut self.open).into_iter().map(|(id, open)| (id, open.exchange)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> RequestId {
        RequestId::Number(number)
    }

    fn away(turned: Result<(), Turned>) -> String {
        let Err(Turned::Away(text)) = turned else { panic!("{turned:?}") };
        text
    }

    #[tokio::test(start_paused = true)]
    async fn h55_questions_without_an_answer_have_a_size() {
        let (mut asks, now) = (Asks::default(), Instant::now());
        asks.admit(&id(1), 3 * BYTES, now).expect("one of any size");
        assert!(away(asks.admit(&id(2), 1, now)).contains("over 16 MiB together"));
        assert_eq!(asks.remove(&id(1)), Some(None));
        asks.admit(&id(2), BYTES - 1, now).unwrap();
        asks.admit(&id(3), 1, now).expect("at the limit");
        away(asks.admit(&id(4), 1, now));
        asks.remove(&id(3));
        asks.admit(&id(4), 1, now).expect("what has its answer counts no more");
    }

    #[tokio::test(start_paused = true)]
    async fn h18_questions_have_a_count_and_a_rate() {
        let mut asks = Asks::default();
        for number in 0..256 {
            if number % 50 == 0 {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            asks.admit(&id(number), 100, Instant::now()).unwrap();
        }
        assert_eq!(asks.admit(&id(0), 1, Instant::now()), Err(Turned::Down("a question with an id in use")));
        let turned = asks.admit(&id(256), 1, Instant::now());
        assert!(matches!(turned, Err(Turned::Down(_))) && asks.len() == 256, "{turned:?}");
        assert_eq!(asks.take().len(), 256);
        let admitted = (0..100).filter(|number| asks.admit(&id(*number), 1, Instant::now()).is_ok()).count();
        assert_eq!(admitted, 50 - 8, "eight of this second came before");
    }

    #[tokio::test(start_paused = true)]
    async fn h55_an_id_of_a_question_has_a_length() {
        let mut asks = Asks::default();
        let text = |length: usize| RequestId::Text("x".repeat(length).into());
        asks.admit(&text(ID), 1, Instant::now()).unwrap();
        let turned = asks.admit(&text(ID + 1), 1, Instant::now());
        assert!(matches!(turned, Err(Turned::Down(_))) && asks.len() == 1, "{turned:?}");
    }
}
