//! The verdict on one request.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Decision, Proof};

/// The verdict on one request.
///
/// ```
/// use mcp_host::policy::{Decision, Verdict};
///
/// let verdict = Verdict::allow().and(Verdict::deny("no-prod"));
/// assert_eq!((verdict.decision, verdict.rule.as_deref()), (Decision::Deny, Some("no-prod")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether the request is sent, a person is asked first, or it is refused.
    pub decision: Decision,
    /// The rule that decided; if several rules ask, all their names with commas between. `None` if no rule matched.
    pub rule: Option<Arc<str>>,
    /// Whether a rule or `host.policy.default` has decided. False if nothing applies, or everything is only reported.
    pub enforced: bool,
    /// What counts as a person's yes, if a person is asked.
    pub proof: Proof,
    /// How long that yes counts; `None` means for this request only.
    pub remember: Option<Duration>,
    /// The decisions of the rules that are only reported, each with the rule's name.
    pub reported: Vec<(Decision, Arc<str>)>,
}

impl Verdict {
    /// Returns a verdict by which the request is sent, unless another rule says otherwise.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// Returns a verdict by which the rule with this name asks a person first.
    #[must_use]
    pub fn ask(rule: &str) -> Self {
        Self { decision: Decision::Ask, rule: Some(rule.into()), enforced: true, ..Self::default() }
    }

    /// Returns a verdict by which the rule with this name refuses the request.
    #[must_use]
    pub fn deny(rule: &str) -> Self {
        Self { decision: Decision::Deny, rule: Some(rule.into()), enforced: true, ..Self::default() }
    }

    /// Returns the stricter of both verdicts. If both ask, a yes is a yes to both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let reported = [self.reported.clone(), other.reported.clone()].concat();
        let strictest = match (self.decision, other.decision) {
            (Decision::Ask, Decision::Ask) => Self {
                rule: joined(self.rule.as_deref(), other.rule.as_deref()),
                proof: self.proof.max(other.proof),
                remember: self.remember.min(other.remember),
                ..self
            },
            (one, another) if another > one || self.rule.is_none() && another == one => other,
            _ => self,
        };
        Self { reported, ..strictest }
    }
}

/// Joins the names of rules with commas. No rule's name contains a comma, so the joined text is no rule's name.
fn joined(one: Option<&str>, other: Option<&str>) -> Option<Arc<str>> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Some(format!("{one}, {other}").into()),
        (one, other) => one.or(other).map(Into::into),
    }
}
