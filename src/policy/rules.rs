//! The rules that can match one caller, and their verdict on a subject before any request.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::caller::Caller;
use super::facts::Subject;
use crate::config::{Action, Decision, Matcher, Policy, PolicyMode, Rule};

/// The rules that can match one caller.
///
/// Two are equal if the same rules can match in the same way, so that callers with equal rules can share a catalog.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(super) policy: Arc<Policy>,
    pub(super) live: Arc<[Live]>,
}

/// A rule that can match the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Live {
    /// Its index in the policy.
    pub(super) at: usize,
    /// Whether its `unless` applies to the caller, so that it may except a request.
    pub(super) excepts: bool,
}

/// What rules say of a subject, for one caller and action, and which rules have to judge each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Whether the subject is left out of lists: it is always denied, and the rule hides what it denies.
    pub(crate) hidden: bool,
    /// The rules that remain to be judged, as indices into the live rules.
    pub(crate) rest: Arc<[usize]>,
    /// The rules that match every such request, as indices into the live rules.
    pub(super) always: Arc<[usize]>,
    /// Whether requests need no judging.
    settled: bool,
}

impl Settled {
    /// Reports whether a request needs no judging: it is allowed, and there is nothing to report.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }
}

/// Whether a part of a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    Never,
    Always,
    /// It depends on the request.
    Maybe,
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.live == other.live && (Arc::ptr_eq(&self.policy, &other.policy) || self.policy == other.policy)
    }
}

impl Eq for Rules {}

impl Hash for Rules {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.live.hash(state);
    }
}

impl Rules {
    /// Returns the rules for this caller; `None` if they can never deny, ask about, or report a request.
    pub(crate) fn of(policy: &Arc<Policy>, caller: &Caller<'_>) -> Option<Self> {
        let live: Vec<Live> =
            policy.rules.iter().enumerate().filter_map(|(at, rule)| live(policy, at, rule, caller)).collect();
        let silent = live.is_empty() && policy.default == Decision::Allow;
        (!silent).then(|| Self { policy: policy.clone(), live: live.into() })
    }

    /// Reports whether a request for an unlisted name may be refused: an enforced rule, or the default, denies or asks.
    pub(crate) fn may_refuse_unlisted(&self) -> bool {
        let enforces = self.policy.mode == PolicyMode::Enforce;
        let refuses = |live: &Live| {
            let rule = &self.policy.rules[live.at];
            rule.verdict > Decision::Allow && !rule.report
        };
        enforces && (self.policy.default > Decision::Allow || self.live.iter().any(refuses))
    }

    /// Returns what the rules say of a subject before any request.
    pub(crate) fn settle(&self, action: Action, subject: &Subject<'_>) -> Settled {
        let (mut always, mut rest) = (Vec::new(), Vec::new());
        let mut strictest: Option<Decision> = None;
        for (place, live) in self.live.iter().enumerate() {
            let rule = self.rule(place);
            match self.matches(rule, *live, action, subject) {
                Match::Never => {}
                Match::Maybe => rest.push(place),
                Match::Always => {
                    always.push(place);
                    if !self.only_reports(rule) {
                        strictest = strictest.max(Some(rule.verdict));
                    }
                }
            }
        }
        // A rule that cannot change the verdict is dropped. One that asks is kept: its `proof` and its name count.
        rest.retain(|place| {
            let rule = self.rule(*place);
            self.only_reports(rule)
                || strictest.is_none_or(|strictest| rule.verdict > strictest)
                || strictest == Some(Decision::Ask) && rule.verdict == Decision::Ask
        });
        let by_rule = |place: &usize| {
            let rule = self.rule(*place);
            rule.verdict == Decision::Deny && rule.hide && !self.only_reports(rule)
        };
        let enforces = self.policy.mode == PolicyMode::Enforce;
        let by_default = enforces
            && strictest.is_none()
            && self.policy.default == Decision::Deny
            && rest.iter().all(|place| self.only_reports(self.rule(*place)));
        let said = if strictest.is_none() { self.policy.default } else { strictest.unwrap_or_default() };
        let is_reported = always.iter().any(|place| self.only_reports(self.rule(*place)));
        Settled {
            hidden: always.iter().any(by_rule) || by_default,
            settled: rest.is_empty() && said == Decision::Allow && !is_reported,
            rest: rest.into(),
            always: always.into(),
        }
    }

    /// Returns the live rule with this index.
    pub(super) fn rule(&self, place: usize) -> &Rule {
        &self.policy.rules[self.live[place].at]
    }

    /// Reports whether the verdict of the rule is only reported, not enforced.
    pub(super) fn only_reports(&self, rule: &Rule) -> bool {
        rule.report || self.policy.mode == PolicyMode::Report
    }

    fn matches(&self, rule: &Rule, live: Live, action: Action, subject: &Subject<'_>) -> Match {
        let found = part(&rule.matches, action, subject);
        let excepted = match &rule.unless {
            Some(unless) if live.excepts => part_of_unless(unless, action, subject),
            _ => Match::Never,
        };
        match (found, excepted) {
            (Match::Never, _) | (_, Match::Always) => Match::Never,
            (Match::Always, Match::Never) => Match::Always,
            _ => Match::Maybe,
        }
    }
}

fn part(matcher: &Matcher, action: Action, subject: &Subject<'_>) -> Match {
    match (subject.is_named(action, matcher), &matcher.when) {
        (false, _) => Match::Never,
        (true, None) => Match::Always,
        (true, Some(_)) => Match::Maybe,
    }
}

/// Matches the `unless` of a rule. Unlike the rule itself, it applies to requests of servers without naming an action.
fn part_of_unless(unless: &Matcher, action: Action, subject: &Subject<'_>) -> Match {
    if unless.actions.is_some() {
        return part(unless, action, subject);
    }
    part(&Matcher { actions: Some(vec![action]), ..unless.clone() }, action, subject)
}

/// Returns a rule if it can match requests of this caller, and can change their outcome.
fn live(policy: &Policy, at: usize, rule: &Rule, caller: &Caller<'_>) -> Option<Live> {
    // If everything is allowed by default, a rule that only allows is not needed.
    let is_needless = rule.verdict == Decision::Allow && policy.default == Decision::Allow && !rule.report;
    if is_needless || !caller.is_meant(&rule.matches) || caller.is_ruled_out(&rule.matches) {
        return None;
    }
    let excepts = rule.unless.as_ref().is_some_and(|unless| caller.is_meant(unless));
    if excepts && rule.unless.as_ref().is_some_and(names_only_callers) {
        return None;
    }
    Some(Live { at, excepts })
}

/// Reports whether a part of a rule matches all requests of the callers to which it applies.
fn names_only_callers(matcher: &Matcher) -> bool {
    let Matcher { tools, prompts, resources, actions, principals: _, clients: _, views: _, when } = matcher;
    tools.is_none() && prompts.is_none() && resources.is_none() && actions.is_none() && when.is_none()
}
