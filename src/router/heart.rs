//! Heartbeats: a client whose call is silent for `host.heartbeat` gets progress from mcp-host itself, since many
//! clients give up on a call that is silent for a minute. A heartbeat moves no deadline of mcp-host (`clocks.rs`).
//!
//! In: the time, and when something was heard. Out: when the next heartbeat is due, and its text. `rising.rs` gives it
//! its number; `running.rs` sends it while a server works, `beating.rs` during all other waits, and `park.rs` to the
//! requests that attend a parked call.

use std::time::Duration;

use tokio::time::Instant;

/// What a silent call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The server: to start, or to answer.
    Server,
    /// A person, whom the server has asked something.
    Person,
    /// A person, who is to allow the call.
    Permission,
    /// Its turn: a slot of the server, or its rate.
    Turn,
}

/// When the client of one request gets the next heartbeat.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heart {
    /// How long the client may hear nothing; 0 if it gets no heartbeats.
    every: Duration,
    clock: Option<Clock>,
}

/// The clock of a request that has had to wait.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Since when the server has been silent.
    silent: Instant,
    /// When the next heartbeat is due.
    due: Instant,
}

impl Heart {
    /// Makes a heart that beats after this much silence, or never if that is 0.
    pub(super) fn every(every: Duration) -> Self {
        Self { every, clock: None }
    }

    /// Starts the clock, unless it runs. Returns when the next heartbeat is due; `None` if there are none.
    pub(super) fn start(&mut self, now: Instant) -> Option<Instant> {
        if self.every.is_zero() {
            return None;
        }
        Some(self.clock.get_or_insert(Clock { silent: now, due: now + self.every }).due)
    }

    /// Returns when the next heartbeat is due; `None` if the clock does not run.
    pub(super) fn due(&self) -> Option<Instant> {
        self.clock.map(|clock| clock.due)
    }

    /// Notes that the server reported progress.
    pub(super) fn server_spoke(&mut self) {
        if let Some(clock) = &mut self.clock {
            clock.silent = Instant::now();
        }
    }

    /// Notes that the client got progress.
    pub(super) fn told(&mut self) {
        if let Some(clock) = &mut self.clock {
            clock.due = Instant::now() + self.every;
        }
    }

    /// Returns for how long the server has been silent if a heartbeat is due now. If so, the next one is due later.
    pub(super) fn beat(&mut self, now: Instant) -> Option<Duration> {
        let clock = self.clock.as_mut().filter(|clock| clock.due <= now)?;
        clock.due = now + self.every;
        Some(now.saturating_duration_since(clock.silent))
    }
}

/// Returns the text of a heartbeat.
pub(super) fn text(server: &str, wait: Wait, silent: Duration) -> String {
    let seconds = silent.as_secs();
    match wait {
        Wait::Server => format!("{server} has not answered for {seconds} s"),
        Wait::Person => format!("{server} waits for the answer to its question"),
        Wait::Permission => format!("the call of {server} has waited {seconds} s: it is waiting for a person"),
        Wait::Turn => format!("the call has waited {seconds} s for its turn at {server}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_is_due_after_each_silence_of_the_client() {
        let (now, every) = (Instant::now(), Duration::from_secs(15));
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let mut heart = Heart::every(every);
        assert_eq!(heart.beat(at(100)), None, "its clock does not run yet");
        assert_eq!(heart.start(now), Some(at(15)));
        assert_eq!((heart.beat(at(14)), heart.beat(at(15))), (None, Some(every)));
        assert_eq!((heart.beat(at(29)), heart.beat(at(30))), (None, Some(every * 2)));
        assert_eq!(heart.start(at(31)), Some(at(45)), "the clock runs on");
        assert_eq!(Heart::every(Duration::ZERO).start(now), None);
    }

    #[test]
    fn a_heartbeat_says_what_the_call_waits_for() {
        let silent = Duration::from_millis(30_999);
        assert_eq!(text("git", Wait::Server, silent), "git has not answered for 30 s");
        assert_eq!(text("git", Wait::Person, silent), "git waits for the answer to its question");
        assert_eq!(text("git", Wait::Turn, silent), "the call has waited 30 s for its turn at git");
    }
}
