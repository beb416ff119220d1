//! Decides what a server's answer means for its call. Pure.
//!
//! | server | answer | call |
//! |---|---|---|
//! | with sessions | a result with `task`, and a task was planned | is a task |
//! | with sessions, 2025-11-25 | error `-32042` | needs pages visited first |
//! | with sessions | any other | is over |
//! | without | an error, or a result that is complete | is over |
//! | without | a complete result, and the client wants a task | is a finished task |
//! | without | a result of the type `task` | is a task |
//! | without | `input_required` | asks: by a result, or by requests where the client has a session |
//! | without | any other type | has no valid answer |

use super::plan::Plan;
use crate::protocol::{ErrorObject, Method, Outcome, ProtocolVersion, Raw, code};
use crate::transport::excerpt;

/// What happens to a call next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Over(Outcome),
    /// The call was to run as a task, and is over already with this result.
    TaskOver(Raw),
    /// The call continues as the task in this result.
    Task(Raw),
    /// The server wants web pages visited first.
    Visits(ErrorObject),
    /// The questions in this result go to the client as a result, too.
    Relay(Raw),
    /// The questions in this result are put to the client, and the call is sent again with the answers.
    Ask(Raw),
    /// The server's answer is not valid MCP. The text describes what it is instead.
    Malformed(String),
}

/// What the verdict depends on in addition to the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bench<'a> {
    pub(super) method: &'a Method,
    pub(super) plan: Plan,
    /// The revision of the server.
    pub(super) server: ProtocolVersion,
    /// The revision of the client.
    pub(super) client: ProtocolVersion,
}

impl Bench<'_> {
    pub(super) fn judge(&self, outcome: Outcome) -> Verdict {
        if !self.server.is_modern() {
            return self.judge_session(outcome);
        }
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return Verdict::Over(Err(error)),
        };
        // A `resultType` that is not a string counts as unknown.
        let kind = result.member("resultType");
        let kind = kind.as_ref().map(|kind| kind.string().unwrap_or_else(|| kind.as_str().into()));
        match kind.as_deref() {
            None | Some("complete") if self.plan == Plan::Upward => Verdict::TaskOver(result),
            None | Some("complete") => Verdict::Over(Ok(result)),
            Some("task") => Verdict::Task(result),
            Some("input_required") if !self.method.may_ask() => {
                Verdict::Malformed(format!("a result of {} that asks something", self.method))
            }
            Some("input_required") if self.client.is_modern() => Verdict::Relay(result),
            Some("input_required") => Verdict::Ask(result),
            Some(other) => {
                Verdict::Malformed(format!("a result of the unknown type {}", excerpt(other.as_bytes(), 60)))
            }
        }
    }

    /// Judges the answer of a server with sessions.
    fn judge_session(&self, outcome: Outcome) -> Verdict {
        match outcome {
            Ok(result) if self.plan != Plan::Theirs && result.member("task").is_some() => Verdict::Task(result),
            Err(error)
                if error.code == code::URL_ELICITATION_REQUIRED && self.server == ProtocolVersion::V2025_11_25 =>
            {
                Verdict::Visits(error)
            }
            outcome => Verdict::Over(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: ProtocolVersion = ProtocolVersion::V2025_11_25;
    const MODERN: ProtocolVersion = ProtocolVersion::V2026_07_28;

    fn raw(text: &'static str) -> Raw {
        Raw::trusted(text.into())
    }

    fn judge(server: ProtocolVersion, client: ProtocolVersion, plan: Plan, result: &'static str) -> Verdict {
        Bench { method: &Method::ToolsCall, plan, server, client }.judge(Ok(raw(result)))
    }

    #[test]
    fn of_a_server_with_sessions() {
        let task = r#"{"task":{}}"#;
        assert_eq!(judge(SESSION, SESSION, Plan::Core, task), Verdict::Task(raw(task)));
        assert_eq!(judge(SESSION, SESSION, Plan::Theirs, task), Verdict::Over(Ok(raw(task))), "nobody planned one");
        // A server with sessions knows no types of results.
        let asks = r#"{"resultType":"input_required"}"#;
        assert_eq!(judge(SESSION, MODERN, Plan::Theirs, asks), Verdict::Over(Ok(raw(asks))));
        let error = ErrorObject::new(code::URL_ELICITATION_REQUIRED, "visit");
        let of = |server| {
            let bench = Bench { method: &Method::ToolsCall, plan: Plan::Theirs, server, client: SESSION };
            bench.judge(Err(error.clone()))
        };
        assert_eq!(of(SESSION), Verdict::Visits(error.clone()));
        for other in [ProtocolVersion::V2025_06_18, MODERN] {
            assert_eq!(of(other), Verdict::Over(Err(error.clone())), "{other}");
        }
    }

    #[test]
    fn of_a_server_without_sessions() {
        for complete in ["{}", r#"{"resultType":"complete"}"#] {
            assert_eq!(judge(MODERN, SESSION, Plan::Theirs, complete), Verdict::Over(Ok(raw(complete))));
            assert_eq!(judge(MODERN, SESSION, Plan::Upward, complete), Verdict::TaskOver(raw(complete)));
        }
        let task = r#"{"resultType":"task"}"#;
        assert_eq!(judge(MODERN, MODERN, Plan::Theirs, task), Verdict::Task(raw(task)));
        let asks = r#"{"resultType":"input_required"}"#;
        assert_eq!(judge(MODERN, MODERN, Plan::Theirs, asks), Verdict::Relay(raw(asks)));
        assert_eq!(judge(MODERN, SESSION, Plan::Theirs, asks), Verdict::Ask(raw(asks)));
        let bench = Bench { method: &Method::Complete, plan: Plan::Theirs, server: MODERN, client: MODERN };
        let refused = Verdict::Malformed("a result of completion/complete that asks something".to_owned());
        assert_eq!(bench.judge(Ok(raw(asks))), refused);
        for (odd, name) in [(r#"{"resultType":"other"}"#, "other"), (r#"{"resultType":1}"#, "1")] {
            let Verdict::Malformed(what) = judge(MODERN, MODERN, Plan::Theirs, odd) else { panic!("{odd}") };
            assert!(what.starts_with("a result of the unknown type") && what.contains(name), "{what}");
        }
    }
}
