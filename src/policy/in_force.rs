//! The policy for one caller: the rules that can match it, and the policy of the embedding program.

use std::sync::Arc;

use super::Policy;
use super::caller::Caller;
use super::facts::{CallFacts, Facts, Subject};
use super::rules::{Rules, Settled};
use super::verdict::Verdict;
use crate::answered::FieldError;
use crate::config::{self, Action, Decision};

/// The policy for one caller. Two are equal if they always give the same verdicts.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    /// The rules; `None` if none can match.
    rules: Option<Rules>,
    program: Option<Arc<dyn Policy>>,
}

/// The policy for one caller and one subject.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    all: InForce,
    /// What the rules say before any request; `None` if they allow every request.
    settled: Option<Settled>,
}

impl InForce {
    /// Returns the policy for this caller; `None` if no rule can deny, ask about, or report a request.
    pub(crate) fn of(
        policy: &Arc<config::Policy>,
        program: Option<&Arc<dyn Policy>>,
        caller: &Caller<'_>,
    ) -> Option<Self> {
        let rules = Rules::of(policy, caller);
        (rules.is_some() || program.is_some()).then(|| Self { rules, program: program.cloned() })
    }

    /// Reports whether a request for a name that no catalog lists may be refused.
    pub(crate) fn may_refuse_unlisted(&self) -> bool {
        self.program.is_some() || self.rules.as_ref().is_some_and(Rules::may_refuse_unlisted)
    }

    /// Returns the policy for a subject; `None` if every request for it is allowed.
    pub(crate) fn about(&self, action: Action, subject: &Subject<'_>) -> Option<Held> {
        let settled = self.rules.as_ref().map(|rules| rules.settle(action, subject));
        let settled = settled.filter(|settled| settled.hidden || !settled.is_settled());
        (settled.is_some() || self.program.is_some()).then(|| Held { all: self.clone(), settled })
    }
}

impl Held {
    /// Reports whether the subject is left out of lists.
    pub(crate) fn hides(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.hidden)
    }

    /// Judges one request.
    ///
    /// # Errors
    /// Fails if a rule looks at arguments that readers may take differently. The error lists these arguments.
    pub(crate) fn judge(&self, request: &Facts<'_>) -> Result<Verdict, Vec<FieldError>> {
        let said = match (&self.all.rules, &self.settled) {
            (Some(rules), Some(settled)) => rules.judge(settled, request)?,
            _ => Verdict::allow(),
        };
        match &self.all.program {
            Some(program) if said.decision != Decision::Deny => Ok(said.and(program.judge(&CallFacts::new(*request)))),
            _ => Ok(said),
        }
    }
}

impl PartialEq for InForce {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.program, &other.program) {
            (Some(one), Some(another)) => Arc::ptr_eq(one, another),
            (None, None) => true,
            _ => false,
        };
        same && self.rules == other.rules
    }
}
