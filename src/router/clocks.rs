//! The deadlines of a request to a server. Pure: events ([`Sign`]) and the time come in; what comes out is whether the
//! wait is over ([`Late`]).
//!
//! | turn | `Progress` | `Asked`: a question came | `Settled`: one was answered | `Slept`: the machine did | `Due`: the deadline is past |
//! |---|---|---|---|---|---|
//! | `Server` | `idle` starts anew | `Person` | – | later | silent, or too long |
//! | `Person` | – | – | `Server`, once no question is open | later | unanswered |
//!
//! A cell says whose turn it is then, or what happens to the deadline. A dash is nothing; "later" moves the deadline by the
//! time slept. If a question is answered before its event comes, the server has the turn and `idle` starts anew.
//!
//! `idle` is how long the server may be silent, `patience` how long a person may take to answer, and `end` when the request
//! ends at the latest. A person's time does not count toward `end`.

use std::time::Duration;

use tokio::time::Instant;

/// The deadlines that run while a request waits for the server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    idle: Duration,
    patience: Duration,
    end: Instant,
    turn: Turn,
    /// How long persons took to answer.
    person: Duration,
}

/// Whose turn it is to act, and until when (`due`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Server { due: Instant },
    Person { since: Instant, due: Instant },
}

/// An event while the request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// The server reported progress.
    Progress,
    /// The server asked the client something.
    Asked,
    /// A question was answered or taken back.
    Settled,
    /// The machine slept for this long. That time counts against neither the server nor the person.
    Slept(Duration),
    /// The deadline of [`Clocks::due`] passed.
    Due,
}

/// Why the wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// The server was silent for too long.
    Silent,
    /// The whole request took too long.
    End,
    /// The server's question got no answer.
    Unanswered,
}

impl Clocks {
    pub(super) fn start(now: Instant, idle: Duration, patience: Duration, end: Instant) -> Self {
        Self { idle, patience, end, turn: Turn::Server { due: (now + idle).min(end) }, person: Duration::ZERO }
    }

    /// Returns for how long it was a person's turn until now.
    pub(super) fn person(&self, now: Instant) -> Duration {
        match self.turn {
            Turn::Server { .. } => self.person,
            Turn::Person { since, .. } => self.person + now.saturating_duration_since(since),
        }
    }

    /// Returns the next deadline.
    pub(super) fn due(&self) -> Instant {
        match self.turn {
            Turn::Server { due } | Turn::Person { due, .. } => due,
        }
    }

    /// Returns when the request ends at the latest.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Returns how long the server may be silent.
    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Applies an event. `is_asked` says whether the client has an open question of this request now. Returns why the
    /// wait is over, or `None` if it goes on.
    pub(super) fn step(&mut self, now: Instant, sign: Sign, is_asked: bool) -> Option<Late> {
        match (sign, self.turn) {
            (Sign::Slept(slept), _) => self.sleep(slept),
            (Sign::Progress, _) if !is_asked => self.listen(now),
            (Sign::Asked, Turn::Server { .. }) if is_asked => {
                self.turn = Turn::Person { since: now, due: now + self.patience };
            }
            (Sign::Asked | Sign::Settled, Turn::Person { since, .. }) if !is_asked => self.resume(now, since),
            // The question was refused, or answered at once.
            (Sign::Asked, Turn::Server { .. }) => self.listen(now),
            (Sign::Due, _) if is_asked => return Some(Late::Unanswered),
            (Sign::Due, _) if now < self.end => return Some(Late::Silent),
            (Sign::Due, _) => return Some(Late::End),
            (Sign::Progress | Sign::Asked | Sign::Settled, _) => {}
        }
        None
    }

    /// Gives the turn back to the server, and moves `end` by the time that the person took.
    fn resume(&mut self, now: Instant, since: Instant) {
        let took = now.saturating_duration_since(since);
        self.person += took;
        self.end += took;
        self.turn = Turn::Server { due: (now + self.idle).min(self.end) };
    }

    /// Restarts the `idle` time, but never past `end`.
    fn listen(&mut self, now: Instant) {
        let heard = (now + self.idle).min(self.end);
        match &mut self.turn {
            Turn::Server { due } | Turn::Person { due, .. } => *due = heard,
        }
    }

    fn sleep(&mut self, slept: Duration) {
        self.end += slept;
        match &mut self.turn {
            Turn::Server { due } | Turn::Person { due, .. } => *due += slept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(10);
    const PATIENCE: Duration = Duration::from_secs(100);
    const END: Duration = Duration::from_secs(25);

    /// A request, and when it began.
    struct Run(Clocks, Instant);

    impl Run {
        fn new() -> Self {
            let now = Instant::now();
            Self(Clocks::start(now, IDLE, PATIENCE, now + END), now)
        }

        /// Applies an event `at` seconds after the beginning. Returns why the wait is over, if it is, and the deadline
        /// in seconds after the beginning.
        fn step(&mut self, at: u64, sign: Sign, is_asked: bool) -> (Option<Late>, u64) {
            let late = self.0.step(self.1 + Duration::from_secs(at), sign, is_asked);
            (late, (self.0.due() - self.1).as_secs())
        }
    }

    #[test]
    fn a_server_may_be_silent_for_a_while_and_work_until_the_end() {
        let mut run = Run::new();
        assert_eq!(run.step(4, Sign::Progress, false), (None, 14));
        assert_eq!(run.step(13, Sign::Progress, false), (None, 23));
        assert_eq!(run.step(22, Sign::Progress, false), (None, 25), "never after its end");
        assert_eq!(run.step(25, Sign::Due, false), (Some(Late::End), 25));
        assert_eq!(Run::new().step(10, Sign::Due, false), (Some(Late::Silent), 10));
    }

    #[test]
    fn the_time_of_a_person_counts_for_nobody() {
        let mut run = Run::new();
        assert_eq!(run.step(5, Sign::Asked, true), (None, 105));
        assert_eq!(run.step(50, Sign::Asked, true), (None, 105), "a second question gets no time of its own");
        assert_eq!(run.step(60, Sign::Progress, true), (None, 105));
        assert_eq!(run.step(65, Sign::Settled, true), (None, 105), "one question is open still");
        assert_eq!(run.step(70, Sign::Settled, false), (None, 80));
        assert_eq!(run.step(79, Sign::Progress, false), (None, 89));
        assert_eq!(run.step(89, Sign::Progress, false), (None, 90), "65 s later than it would have been");
        assert_eq!(run.step(90, Sign::Due, false), (Some(Late::End), 90));
    }

    #[test]
    fn nobody_answers() {
        let mut run = Run::new();
        run.step(5, Sign::Asked, true);
        assert_eq!(run.step(105, Sign::Due, true), (Some(Late::Unanswered), 105));
        assert_eq!(run.step(105, Sign::Settled, false), (None, 115), "its questions were taken back");
    }

    #[test]
    fn a_question_that_nobody_is_asked_stops_no_clock() {
        let mut run = Run::new();
        assert_eq!(run.step(3, Sign::Asked, false), (None, 13));
        assert_eq!(run.step(5, Sign::Settled, false), (None, 13));
    }

    #[test]
    fn what_was_slept_through_is_given_back() {
        let mut run = Run::new();
        assert_eq!(run.step(1000, Sign::Slept(Duration::from_secs(990)), false), (None, 1000));
        assert_eq!(run.step(1000, Sign::Progress, false), (None, 1010));
        assert_eq!(run.step(1014, Sign::Progress, false), (None, 1015), "its end is later, too");
    }
}
