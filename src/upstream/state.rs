//! The lifecycle of one lease, as a pure state machine: inputs and the current time come in, actions go out.
//!
//! | state | `Start` | `Try` | `Opened` | `Ready` | `Lost` | `Expired` | `Hopeless` | `Refused` | `TimedOut` | `Admitted` | `Stop` | `Closed` | `Itself` |
//! |---|---|---|---|---|---|---|---|---|---|---|---|---|---|
//! | `Idle` | connecting | connecting | – | – | – | – | – | – | – | – | disconnected | – | – |
//! | `Disconnected` | connecting | connecting | – | – | – | – | – | – | – | – | = | – | – |
//! | `Connecting` | – | – | initializing | – | reconnecting or failed | as `Lost` | failed | unauthorized | as `Lost` | – | disconnecting | – | – |
//! | `Initializing` | – | – | – | connected | reconnecting or failed | as `Lost` | failed | unauthorized | as `Lost` | – | disconnecting | – | disabled |
//! | `Connected` | – | – | – | – | reconnecting or failed | reconnecting, at once | failed | unauthorized | – | – | disconnecting | – | – |
//! | `Reconnecting` | = (adds no attempt) | = | – | – | – | – | – | – | = (queues for its turn) | connecting | disconnected | – | – |
//! | `Unauthorized` | connecting | reconnecting | – | – | – | – | – | – | – | – | disconnected | – | – |
//! | `Failed` | connecting | reconnecting | – | – | – | – | – | – | – | – | disconnected | – | – |
//! | `Disabled` | – | – | – | – | – | – | – | – | – | – | disconnected | – | – |
//! | `Disconnecting` | – | – | – | – | – | – | – | – | – | – | = | disconnected | – |
//!
//! A dash or `=` keeps the state. "Reconnecting or failed" means failed after `restart.maxRetries` losses in a row.
//! Earlier losses are forgotten if the connection was healthy before it was lost: it lasted `limits.healthy` and
//! answered a request, because a handshake alone proves nothing. A server that was given up has no retries left: `Try`
//! allows a single attempt, and `Start` begins anew with all retries. An expired session (`Expired`) counts as a loss
//! only if it neither served a client nor was healthy. `Answered` and `Served` are recorded while connected and change
//! no state.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::backoff;
use crate::config::Restart;

/// The states as users see them.
///
/// ```
/// # fn is_there(server: &mcp_host::ServerStatus) -> bool {
/// matches!(server.state, mcp_host::StateName::Connected | mcp_host::StateName::Idle)
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateName {
    /// Not connected, and not wanted.
    #[default]
    Disconnected,
    /// Not started yet; starts on first use.
    Idle,
    /// The process is being started, or the URL dialed.
    Connecting,
    /// The handshake and the first listing are in flight.
    Initializing,
    /// Ready for calls.
    Connected,
    /// The connection was lost, and the next attempt is not due yet.
    Reconnecting,
    /// Being stopped.
    Disconnecting,
    /// The server requires credentials that are missing or rejected.
    Unauthorized,
    /// The server was given up; the status has the cause.
    Failed,
    /// Disabled in the config, or because the server is this host itself.
    Disabled,
}

impl StateName {
    /// Returns the lowercase name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Initializing => "initializing",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Disconnecting => "disconnecting",
            Self::Unauthorized => "unauthorized",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        }
    }

    /// Whether the server is on its way to `connected`.
    #[must_use]
    pub fn is_starting(self) -> bool {
        matches!(self, Self::Connecting | Self::Initializing)
    }
}

impl std::fmt::Display for StateName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The current state of a lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Idle,
    Disconnected,
    Connecting { losses: u32 },
    Initializing { losses: u32 },
    Connected { losses: u32, since: Instant, proof: Proof },
    Reconnecting { losses: u32 },
    Unauthorized,
    Failed,
    Disabled,
    Disconnecting,
}

/// What a connection has proven so far, in increasing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Proof {
    /// Nothing but the handshake.
    None,
    /// A request other than the handshake was answered.
    Answered,
    /// A client's request was answered.
    Served,
}

/// Something that happens to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A first use, a user's command, or a new access token.
    Start,
    /// A call wants a server that was given up: one more attempt.
    Try,
    /// The transport is open.
    Opened,
    /// The handshake and the first listing are done.
    Ready,
    /// The attempt failed, or the connection was lost.
    Lost,
    /// The server says that the session has expired.
    Expired,
    /// Retrying cannot help: the command does not exist, for example.
    Hopeless,
    /// The server requires credentials.
    Refused,
    /// The server is this host itself.
    Itself,
    /// A request other than the handshake was answered.
    Answered,
    /// A client's request was answered.
    Served,
    /// The timer fired.
    TimedOut,
    /// The queued attempt may begin.
    Admitted,
    /// The lease is no longer wanted.
    Stop,
    /// The transport is closed for good.
    Closed,
}

/// What the lease's task must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Open the transport.
    Open,
    /// Do the handshake and the first listing.
    Shake,
    /// Drop the connection immediately.
    Abandon,
    /// Wait for a turn to reconnect; `Admitted` follows.
    Queue,
    /// Close the connection in good order; `Closed` follows.
    Close,
    /// Send `TimedOut` at that time; replaces any other timer.
    SetTimer(Instant),
    /// Cancel the timer.
    ClearTimer,
}

/// The settings of the machine.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) start_timeout: Duration,
    pub(super) healthy: Duration,
    pub(super) restart: Restart,
}

impl State {
    /// Returns since when it is connected, if it is.
    #[cfg(feature = "otel")]
    pub(super) fn since(&self) -> Option<Instant> {
        match self {
            Self::Connected { since, .. } => Some(*since),
            _ => None,
        }
    }

    /// Returns its name.
    pub(super) fn name(&self) -> StateName {
        match self {
            Self::Idle => StateName::Idle,
            Self::Disconnected => StateName::Disconnected,
            Self::Connecting { .. } => StateName::Connecting,
            Self::Initializing { .. } => StateName::Initializing,
            Self::Connected { .. } => StateName::Connected,
            Self::Reconnecting { .. } => StateName::Reconnecting,
            Self::Unauthorized => StateName::Unauthorized,
            Self::Failed => StateName::Failed,
            Self::Disabled => StateName::Disabled,
            Self::Disconnecting => StateName::Disconnecting,
        }
    }

    /// Returns the next state and appends the actions to `todo`. `chance` (0 to 1) is the jitter of a retry delay.
    pub(super) fn on(self, input: Input, policy: &Policy, now: Instant, chance: f64, todo: &mut Vec<Action>) -> Self {
        use Input as I;
        match (self, input) {
            (Self::Idle | Self::Disconnected, I::Start | I::Try) | (Self::Unauthorized | Self::Failed, I::Start) => {
                connect(0, policy, now, todo)
            }
            (Self::Unauthorized | Self::Failed, I::Try) => {
                todo.push(Action::Queue);
                Self::Reconnecting { losses: u32::try_from(policy.restart.max_retries).unwrap_or(u32::MAX) }
            }
            (Self::Connecting { losses }, I::Opened) => {
                todo.push(Action::Shake);
                Self::Initializing { losses }
            }
            (Self::Initializing { losses }, I::Ready) => {
                todo.push(Action::ClearTimer);
                Self::Connected { losses, since: now, proof: Proof::None }
            }
            (Self::Connecting { losses } | Self::Initializing { losses }, I::Lost | I::Expired | I::TimedOut) => {
                lose(losses.saturating_add(1), policy, now, chance, todo)
            }
            (Self::Connected { losses, since, proof }, I::Lost) => {
                let before = if is_healthy(since, proof, policy, now) { 0 } else { losses };
                lose(before.saturating_add(1), policy, now, chance, todo)
            }
            (Self::Connected { losses, since, proof }, I::Expired) => {
                let healthy = is_healthy(since, proof, policy, now);
                if !healthy && proof < Proof::Served {
                    return lose(losses.saturating_add(1), policy, now, chance, todo);
                }
                todo.extend([Action::Abandon, Action::ClearTimer, Action::Queue]);
                Self::Reconnecting { losses: if healthy { 0 } else { losses } }
            }
            (Self::Connecting { .. } | Self::Initializing { .. } | Self::Connected { .. }, I::Refused) => {
                todo.extend([Action::ClearTimer, Action::Abandon]);
                Self::Unauthorized
            }
            (Self::Connecting { .. } | Self::Initializing { .. } | Self::Connected { .. }, I::Hopeless) => {
                todo.extend([Action::ClearTimer, Action::Abandon]);
                Self::Failed
            }
            (Self::Initializing { .. }, I::Itself) => {
                todo.extend([Action::ClearTimer, Action::Abandon]);
                Self::Disabled
            }
            (Self::Connected { losses, since, proof }, I::Answered) => {
                Self::Connected { losses, since, proof: proof.max(Proof::Answered) }
            }
            (Self::Connected { losses, since, .. }, I::Served) => {
                Self::Connected { losses, since, proof: Proof::Served }
            }
            (Self::Reconnecting { losses }, I::TimedOut) => {
                todo.push(Action::Queue);
                Self::Reconnecting { losses }
            }
            (Self::Reconnecting { losses }, I::Admitted) => connect(losses, policy, now, todo),
            (Self::Connecting { .. } | Self::Initializing { .. } | Self::Connected { .. }, I::Stop) => {
                todo.extend([Action::ClearTimer, Action::Close]);
                Self::Disconnecting
            }
            (
                Self::Idle
                | Self::Disconnected
                | Self::Reconnecting { .. }
                | Self::Unauthorized
                | Self::Failed
                | Self::Disabled,
                I::Stop,
            ) => {
                todo.push(Action::ClearTimer);
                Self::Disconnected
            }
            (Self::Disconnecting, I::Closed) => Self::Disconnected,
            (state, input) => state.keeps(input),
        }
    }

    /// Returns the state unchanged; lists every pair of state and input that changes nothing.
    fn keeps(self, input: Input) -> Self {
        use Input as I;
        match (&self, input) {
            (
                Self::Idle | Self::Disconnected | Self::Unauthorized | Self::Failed,
                I::Opened
                | I::Ready
                | I::Lost
                | I::Expired
                | I::Hopeless
                | I::Refused
                | I::Answered
                | I::Served
                | I::TimedOut
                | I::Admitted
                | I::Itself
                | I::Closed,
            )
            | (
                Self::Connecting { .. },
                I::Start | I::Try | I::Ready | I::Answered | I::Served | I::Admitted | I::Itself | I::Closed,
            )
            | (
                Self::Initializing { .. },
                I::Start | I::Try | I::Opened | I::Answered | I::Served | I::Admitted | I::Closed,
            )
            | (
                Self::Connected { .. },
                I::Start | I::Try | I::Opened | I::Ready | I::TimedOut | I::Admitted | I::Itself | I::Closed,
            )
            | (
                Self::Reconnecting { .. },
                I::Start
                | I::Try
                | I::Opened
                | I::Ready
                | I::Lost
                | I::Expired
                | I::Hopeless
                | I::Refused
                | I::Answered
                | I::Served
                | I::Itself
                | I::Closed,
            )
            // A disabled lease stays disabled, whatever comes, until it is stopped. A closing one waits for `Closed`.
            | (Self::Disabled | Self::Disconnecting, _) => self,
            (state, input) => {
                debug_assert!(false, "`on` has an arm of its own for {input:?} in {state:?}");
                self
            }
        }
    }
}

fn connect(losses: u32, policy: &Policy, now: Instant, todo: &mut Vec<Action>) -> State {
    todo.extend([Action::SetTimer(now + policy.start_timeout), Action::Open]);
    State::Connecting { losses }
}

fn lose(losses: u32, policy: &Policy, now: Instant, chance: f64, todo: &mut Vec<Action>) -> State {
    todo.push(Action::Abandon);
    if usize::try_from(losses).is_ok_and(|losses| losses > policy.restart.max_retries) {
        todo.push(Action::ClearTimer);
        return State::Failed;
    }
    todo.push(Action::SetTimer(now + backoff::delay(&policy.restart, losses, chance)));
    State::Reconnecting { losses }
}

/// Whether the connection was healthy, so that earlier losses may be forgotten.
fn is_healthy(since: Instant, proof: Proof, policy: &Policy, now: Instant) -> bool {
    proof >= Proof::Answered && now.saturating_duration_since(since) >= policy.healthy
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy() -> Policy {
        Policy {
            start_timeout: Duration::from_secs(30),
            healthy: Duration::from_secs(60),
            restart: Restart {
                max_retries: 3,
                min_delay: Duration::from_millis(500),
                max_delay: Duration::from_secs(30),
            },
        }
    }

    const INPUTS: [Input; 15] = [
        Input::Start,
        Input::Try,
        Input::Opened,
        Input::Ready,
        Input::Lost,
        Input::Expired,
        Input::Hopeless,
        Input::Refused,
        Input::TimedOut,
        Input::Admitted,
        Input::Stop,
        Input::Closed,
        Input::Itself,
        // Covered by the text below the table.
        Input::Answered,
        Input::Served,
    ];

    /// Checks the table in the module's doc.
    #[test]
    fn the_table_holds() {
        let now = Instant::now();
        let states = [
            State::Idle,
            State::Disconnected,
            State::Connecting { losses: 0 },
            State::Initializing { losses: 0 },
            State::Connected { losses: 0, since: now, proof: Proof::None },
            State::Reconnecting { losses: 1 },
            State::Unauthorized,
            State::Failed,
            State::Disabled,
            State::Disconnecting,
        ];
        let want = "\
            idle          connecting connecting   -            -         -            -            -      -            -            -          disconnected  - - - -\n\
            disconnected  connecting connecting   -            -         -            -            -      -            -            -          -             - - - -\n\
            connecting    -          -            initializing -         reconnecting reconnecting failed unauthorized reconnecting -          disconnecting - - - -\n\
            initializing  -          -            -            connected reconnecting reconnecting failed unauthorized reconnecting -          disconnecting - disabled - -\n\
            connected     -          -            -            -         reconnecting reconnecting failed unauthorized -            -          disconnecting - - - -\n\
            reconnecting  -          -            -            -         -            -            -      -            -            connecting disconnected  - - - -\n\
            unauthorized  connecting reconnecting -            -         -            -            -      -            -            -          disconnected  - - - -\n\
            failed        connecting reconnecting -            -         -            -            -      -            -            -          disconnected  - - - -\n\
            disabled      -          -            -            -         -            -            -      -            -            -          disconnected  - - - -\n\
            disconnecting -          -            -            -         -            -            -      -            -            -          -             disconnected - - -\n";
        let mut got = String::new();
        for state in states {
            let mut row = vec![state.name().to_string()];
            for input in INPUTS {
                let next = state.clone().on(input, &policy(), now, 1.0, &mut Vec::new());
                row.push(if next.name() == state.name() { "-".to_owned() } else { next.name().to_string() });
            }
            got += &row.join(" ");
            got += "\n";
        }
        let squeeze = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(squeeze(&got), squeeze(want));
    }

    #[test]
    fn h8_a_crash_loop_that_looks_like_success_ends_in_failed() {
        let (mut state, now) = (State::Idle, Instant::now());
        let mut attempts = 0;
        for input in [Input::Start].into_iter().chain(
            [Input::Opened, Input::Ready, Input::Answered, Input::Lost, Input::TimedOut, Input::Admitted]
                .into_iter()
                .cycle(),
        ) {
            let mut todo = Vec::new();
            state = state.on(input, &policy(), now, 1.0, &mut todo);
            attempts += todo.iter().filter(|action| **action == Action::Open).count();
            if state == State::Failed {
                break;
            }
        }
        assert_eq!(attempts, 4, "the first and three retries");
    }

    /// Returns the losses counted after a connection that lasted `connected` and showed `proof`.
    fn losses_after(connected: Duration, proof: Proof, end: Input) -> u32 {
        let since = Instant::now();
        let state = State::Connected { losses: 2, since, proof };
        match state.on(end, &policy(), since + connected, 1.0, &mut Vec::new()) {
            State::Reconnecting { losses } => losses,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn h8_losses_are_forgotten_after_a_healthy_minute_with_an_answer_and_not_before() {
        let (healthy, little) = (policy().healthy, Duration::from_millis(1));
        assert_eq!(losses_after(healthy - little, Proof::Served, Input::Lost), 3);
        assert_eq!(losses_after(healthy, Proof::None, Input::Lost), 3);
        assert_eq!(losses_after(healthy * 1000, Proof::None, Input::Lost), 3);
        assert_eq!(losses_after(healthy, Proof::Answered, Input::Lost), 1);
        assert_eq!(losses_after(healthy + little, Proof::Served, Input::Lost), 1);
    }

    #[test]
    fn h30_a_session_that_served_is_renewed_at_once_and_one_that_never_did_is_a_loss() {
        let healthy = policy().healthy;
        assert_eq!(losses_after(Duration::ZERO, Proof::Served, Input::Expired), 2);
        assert_eq!(losses_after(healthy, Proof::Answered, Input::Expired), 0);
        assert_eq!(losses_after(Duration::ZERO, Proof::Answered, Input::Expired), 3);
        let (now, mut todo) = (Instant::now(), Vec::new());
        let state = State::Connected { losses: 0, since: now, proof: Proof::Served };
        let state = state.on(Input::Expired, &policy(), now, 1.0, &mut todo);
        assert_eq!((state.name(), todo.last()), (StateName::Reconnecting, Some(&Action::Queue)), "without a delay");
    }

    #[test]
    fn h8_a_server_that_was_given_up_gets_one_attempt_of_a_call_and_all_of_a_command() {
        for (input, wanted) in [(Input::Try, 1), (Input::Start, 4)] {
            let (mut state, now, mut attempts) = (State::Failed, Instant::now(), 0);
            for input in [input].into_iter().chain([Input::Admitted, Input::Lost, Input::TimedOut].into_iter().cycle())
            {
                let mut todo = Vec::new();
                state = state.on(input, &policy(), now, 1.0, &mut todo);
                attempts += todo.iter().filter(|action| **action == Action::Open).count();
                if state == State::Failed {
                    break;
                }
            }
            assert_eq!(attempts, wanted, "{input:?}");
        }
    }

    /// Every sequence of inputs from every state: anything in flight can always be ended, an attempt begins only by
    /// `Start` or in its turn, and no timer outlives its attempt (`docs/hazards.md` H56).
    #[test]
    fn h56_all_ways_through_the_machine() {
        let now = Instant::now();
        let mut seen = vec![(State::Idle, false, false)];
        let mut at = 0;
        while let Some((state, timer, queued)) = seen.get(at).cloned() {
            at += 1;
            for input in INPUTS {
                if (input == Input::TimedOut && !timer) || (input == Input::Admitted && !queued) {
                    continue;
                }
                let mut todo = Vec::new();
                let next = state.clone().on(input, &policy(), now, 0.5, &mut todo);
                let mut timer = timer && input != Input::TimedOut;
                let mut queued = queued && input != Input::Admitted;
                let mut opens = 0;
                for action in todo {
                    match action {
                        Action::SetTimer(_) => timer = true,
                        Action::ClearTimer => timer = false,
                        Action::Queue => queued = true,
                        Action::Open => opens += 1,
                        // A state other than `Reconnecting` waits for no turn.
                        Action::Shake | Action::Abandon | Action::Close => {}
                    }
                }
                queued &= matches!(next, State::Reconnecting { .. });
                let was = format!("{state:?} {input:?} {next:?}");
                let name = next.name();
                assert!(opens == usize::from(name == StateName::Connecting && state.name() != name), "{was}");
                assert_eq!(timer, name.is_starting() || (name == StateName::Reconnecting && !queued), "{was}");
                assert!(opens == 0 || matches!(input, Input::Start | Input::Try | Input::Admitted), "{was}");
                if !seen.contains(&(next.clone(), timer, queued)) {
                    seen.push((next, timer, queued));
                }
            }
        }
        assert!((20..200).contains(&seen.len()), "{}", seen.len());
    }

    proptest! {
        /// A waiting state always has a timer or a queued turn, and `Stop` always ends it.
        #[test]
        fn it_never_sticks(inputs in prop::collection::vec(0usize..INPUTS.len(), 0..60)) {
            let (mut state, now) = (State::Idle, Instant::now());
            let (mut timer, mut queued) = (false, false);
            for index in inputs {
                let mut todo = Vec::new();
                if INPUTS[index] == Input::TimedOut && !timer { continue; }
                if INPUTS[index] == Input::Admitted && !queued { continue; }
                if INPUTS[index] == Input::TimedOut { timer = false; }
                if INPUTS[index] == Input::Admitted { queued = false; }
                state = state.on(INPUTS[index], &policy(), now, 0.5, &mut todo);
                for action in todo {
                    match action {
                        Action::SetTimer(_) => timer = true,
                        Action::ClearTimer => timer = false,
                        Action::Queue => queued = true,
                        _ => {}
                    }
                }
                queued &= matches!(state, State::Reconnecting { .. });
                let waits = matches!(state, State::Connecting { .. } | State::Initializing { .. } | State::Reconnecting { .. });
                prop_assert!(!waits || timer || queued, "{state:?} has no timer");
            }
            state = state.on(Input::Stop, &policy(), now, 0.5, &mut Vec::new());
            state = state.on(Input::Closed, &policy(), now, 0.5, &mut Vec::new());
            prop_assert_eq!(state, State::Disconnected);
        }
    }
}
