//! The lifecycle of one lease; pure: inputs and the time come in, work goes out.
//!
//! | state | `Start` | `Opened` | `Ready` | `Lost` | `Hopeless` | `Refused` | `Answered` | `TimedOut` | `Stop` | `Closed` |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | `Idle` | connecting | – | – | – | – | – | – | – | disconnected | – |
//! | `Disconnected` | connecting | – | – | – | – | – | – | – | = | – |
//! | `Connecting` | – | initializing | – | reconnecting or failed | failed | unauthorized | – | as `Lost` | disconnecting | – |
//! | `Initializing` | – | – | connected | reconnecting or failed | failed | unauthorized | – | as `Lost` | disconnecting | – |
//! | `Connected` | – | – | – | reconnecting or failed | failed | unauthorized | notes it | losses forgotten | disconnecting | – |
//! | `Reconnecting` | = (it never adds attempts) | – | – | – | – | – | – | connecting | disconnected | – |
//! | `Unauthorized` | connecting | – | – | – | – | – | – | – | disconnected | – |
//! | `Failed` | connecting | – | – | – | – | – | – | – | disconnected | – |
//! | `Disconnecting` | – | – | – | – | – | – | – | – | = | disconnected |
//!
//! A dash keeps the state. "reconnecting or failed": failed after `restart.maxRetries` losses in a row. Losses are
//! forgotten after `limits.healthy` connected with one answered request: a handshake alone proves nothing.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::backoff;
use crate::config::Restart;

/// The states as people see them (`product.md` 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateName {
    /// Not connected, and nobody wants it to be.
    Disconnected,
    /// Lazy: starts at the first use.
    Idle,
    /// The process is being started, or the URL dialled.
    Connecting,
    /// The handshake and the first list are under way.
    Initializing,
    /// Ready for calls.
    Connected,
    /// Lost; the next attempt waits for its time.
    Reconnecting,
    /// Being stopped.
    Disconnecting,
    /// Wants credentials.
    Unauthorized,
    /// Given up; says why.
    Failed,
    /// Switched off in the config.
    Disabled,
}

impl StateName {
    /// The word.
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

/// Where a lease is in its life.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Idle,
    Disconnected,
    Connecting { losses: u32 },
    Initializing { losses: u32 },
    Connected { losses: u32, answered: bool },
    Reconnecting { losses: u32 },
    Unauthorized,
    Failed,
    Disconnecting,
}

/// What happens to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Somebody wants it.
    Start,
    /// The transport is open.
    Opened,
    /// Handshake and first list are done.
    Ready,
    /// The attempt failed, or the connection is gone.
    Lost,
    /// Trying again cannot help: there is no such command.
    Hopeless,
    /// The server wants credentials.
    Refused,
    /// A request other than the handshake was answered.
    Answered,
    /// The timer ran out.
    TimedOut,
    /// Nobody wants it any more.
    Stop,
    /// The transport is closed for good.
    Closed,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Open the transport.
    Open,
    /// Do the handshake and list.
    Shake,
    /// Drop the connection as it is.
    Abandon,
    /// Close the connection in good order; `Closed` follows.
    Close,
    /// `TimedOut` is due then; one timer at a time.
    SetTimer(Instant),
    /// No timer.
    ClearTimer,
}

/// What the machine goes by.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) start_timeout: Duration,
    pub(super) healthy: Duration,
    pub(super) restart: Restart,
}

impl State {
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
            Self::Disconnecting => StateName::Disconnecting,
        }
    }

    /// The next state, and what is to be done. `chance` (0 to 1) is the jitter.
    pub(super) fn on(self, input: Input, policy: &Policy, now: Instant, chance: f64, todo: &mut Vec<Action>) -> Self {
        use Input as I;
        match (self, input) {
            (Self::Idle | Self::Disconnected | Self::Unauthorized | Self::Failed, I::Start) => {
                connect(0, policy, now, todo)
            }
            (Self::Connecting { losses }, I::Opened) => {
                todo.push(Action::Shake);
                Self::Initializing { losses }
            }
            (Self::Initializing { losses }, I::Ready) => {
                todo.push(Action::SetTimer(now + policy.healthy));
                Self::Connected { losses, answered: false }
            }
            (Self::Connecting { losses } | Self::Initializing { losses }, I::Lost | I::TimedOut)
            | (Self::Connected { losses, .. }, I::Lost) => lose(losses + 1, policy, now, chance, todo),
            (Self::Connecting { .. } | Self::Initializing { .. } | Self::Connected { .. }, I::Refused) => {
                todo.extend([Action::ClearTimer, Action::Abandon]);
                Self::Unauthorized
            }
            (Self::Connecting { .. } | Self::Initializing { .. } | Self::Connected { .. }, I::Hopeless) => {
                todo.extend([Action::ClearTimer, Action::Abandon]);
                Self::Failed
            }
            (Self::Connected { losses, .. }, I::Answered) => Self::Connected { losses, answered: true },
            (Self::Connected { answered: true, .. }, I::TimedOut) => Self::Connected { losses: 0, answered: true },
            (Self::Connected { losses, answered: false }, I::TimedOut) => {
                todo.push(Action::SetTimer(now + policy.healthy));
                Self::Connected { losses, answered: false }
            }
            (Self::Reconnecting { losses }, I::TimedOut) => connect(losses, policy, now, todo),
            (Self::Connecting { .. } | Self::Initializing { .. } | Self::Connected { .. }, I::Stop) => {
                todo.extend([Action::ClearTimer, Action::Close]);
                Self::Disconnecting
            }
            (
                Self::Idle | Self::Disconnected | Self::Reconnecting { .. } | Self::Unauthorized | Self::Failed,
                I::Stop,
            ) => {
                todo.push(Action::ClearTimer);
                Self::Disconnected
            }
            (Self::Disconnecting, I::Closed) => Self::Disconnected,
            (
                state @ (Self::Idle | Self::Disconnected | Self::Unauthorized | Self::Failed),
                I::Opened | I::Ready | I::Lost | I::Hopeless | I::Refused | I::Answered | I::TimedOut | I::Closed,
            )
            | (state @ Self::Connecting { .. }, I::Start | I::Ready | I::Answered | I::Closed)
            | (state @ Self::Initializing { .. }, I::Start | I::Opened | I::Answered | I::Closed)
            | (state @ Self::Connected { .. }, I::Start | I::Opened | I::Ready | I::Closed)
            | (
                state @ Self::Reconnecting { .. },
                I::Start | I::Opened | I::Ready | I::Lost | I::Hopeless | I::Refused | I::Answered | I::Closed,
            )
            | (
                state @ Self::Disconnecting,
                I::Start
                | I::Opened
                | I::Ready
                | I::Lost
                | I::Hopeless
                | I::Refused
                | I::Answered
                | I::TimedOut
                | I::Stop,
            ) => state,
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

    const INPUTS: [Input; 10] = [
        Input::Start,
        Input::Opened,
        Input::Ready,
        Input::Lost,
        Input::Hopeless,
        Input::Refused,
        Input::Answered,
        Input::TimedOut,
        Input::Stop,
        Input::Closed,
    ];

    /// The table of the module's doc, as it is written there.
    #[test]
    fn the_table_holds() {
        let states = [
            State::Idle,
            State::Disconnected,
            State::Connecting { losses: 0 },
            State::Initializing { losses: 0 },
            State::Connected { losses: 0, answered: false },
            State::Reconnecting { losses: 1 },
            State::Unauthorized,
            State::Failed,
            State::Disconnecting,
        ];
        let want = "\
            idle          connecting -            -         -            -      -            - -            disconnected  -\n\
            disconnected  connecting -            -         -            -      -            - -            -             -\n\
            connecting    -          initializing -         reconnecting failed unauthorized - reconnecting disconnecting -\n\
            initializing  -          -            connected reconnecting failed unauthorized - reconnecting disconnecting -\n\
            connected     -          -            -         reconnecting failed unauthorized - -            disconnecting -\n\
            reconnecting  -          -            -         -            -      -            - connecting   disconnected  -\n\
            unauthorized  connecting -            -         -            -      -            - -            disconnected  -\n\
            failed        connecting -            -         -            -      -            - -            disconnected  -\n\
            disconnecting -          -            -         -            -      -            - -            -             disconnected\n";
        let mut got = String::new();
        for state in states {
            let mut row = vec![state.name().to_string()];
            for input in INPUTS {
                let next = state.clone().on(input, &policy(), Instant::now(), 1.0, &mut Vec::new());
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
        for input in [Input::Start]
            .into_iter()
            .chain([Input::Opened, Input::Ready, Input::Lost, Input::TimedOut].into_iter().cycle())
        {
            let mut todo = Vec::new();
            state = state.on(input, &policy(), now, 1.0, &mut todo);
            attempts += todo.iter().filter(|action| **action == Action::Open).count();
            if state == State::Failed {
                break;
            }
        }
        assert_eq!(attempts, 4, "the first and three retries");
    }

    proptest! {
        /// Whatever happens, a state that waits has a timer or somebody to wake it, and `Stop` ends it.
        #[test]
        fn it_never_sticks(inputs in prop::collection::vec(0usize..INPUTS.len(), 0..60)) {
            let (mut state, now) = (State::Idle, Instant::now());
            let mut timer = false;
            for index in inputs {
                let mut todo = Vec::new();
                if INPUTS[index] == Input::TimedOut && !timer { continue; }
                if INPUTS[index] == Input::TimedOut { timer = false; }
                state = state.on(INPUTS[index], &policy(), now, 0.5, &mut todo);
                for action in todo {
                    match action {
                        Action::SetTimer(_) => timer = true,
                        Action::ClearTimer => timer = false,
                        _ => {}
                    }
                }
                let waits = matches!(state, State::Connecting { .. } | State::Initializing { .. } | State::Reconnecting { .. });
                prop_assert!(!waits || timer, "{state:?} has no timer");
            }
            state = state.on(Input::Stop, &policy(), now, 0.5, &mut Vec::new());
            state = state.on(Input::Closed, &policy(), now, 0.5, &mut Vec::new());
            prop_assert_eq!(state, State::Disconnected);
        }
    }
}
