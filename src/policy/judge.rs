//! Judges one request by the rules that are not settled before any request (see `Rules::settle`).
//!
//! What is checked is what is sent (`docs/hazards.md` H37): where a rule looks at arguments, those that another reader may
//! take differently are refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::facts::Facts;
use super::rules::{Rules, Settled};
use super::verdict::Verdict;
use crate::answered::FieldError;
use crate::config::{Decision, Matcher, Policy, PolicyMode, Rule};
use crate::doubled;
use crate::expression::{Arguments, Budget, Expression, Reads, Values};

/// The most errors in arguments that an answer lists.
const MOST: usize = 20;
/// The name under which the default decision is reported.
pub(crate) const DEFAULT: &str = "default";

impl Rules {
    /// Judges one request. `rest` is what [`Rules::settle`] returned for its subject and action.
    ///
    /// # Errors
    /// Fails if a rule looks at arguments that readers may take differently. The error lists these arguments.
    pub(crate) fn judge(&self, rest: &Settled, request: &Facts<'_>) -> Result<Verdict, Vec<FieldError>> {
        let mut judging = Judging::new(self, &rest.rest, request)?;
        let mut said = Said::default();
        for place in self.places(rest) {
            let rule = self.rule(place);
            if rest.always.binary_search(&place).is_ok() || judging.matches(rule, self.excepts(place)) {
                said.add(self, rule);
            }
        }
        Ok(said.verdict(self))
    }

    /// Returns the rules that always match and those that remain to be judged, in the order of the policy.
    fn places(&self, rest: &Settled) -> Vec<usize> {
        let mut places: Vec<usize> = rest.always.iter().chain(&*rest.rest).copied().collect();
        places.sort_unstable();
        places
    }

    fn excepts(&self, place: usize) -> bool {
        self.live[place].excepts
    }
}

/// What rules have said so far.
#[derive(Default)]
struct Said {
    verdict: Option<Verdict>,
    reported: Vec<(Decision, Arc<str>)>,
    /// Whether a rule that is only reported has matched. If so, the default decision is not reported.
    any_reported: bool,
}

impl Said {
    fn add(&mut self, rules: &Rules, rule: &Rule) {
        if rules.only_reports(rule) {
            self.any_reported = true;
            self.reported.push((rule.verdict, rule.name.as_str().into()));
            return;
        }
        let verdict = Verdict {
            decision: rule.verdict,
            rule: Some(rule.name.as_str().into()),
            enforced: true,
            proof: rule.proof.unwrap_or(rules.policy.proof),
            remember: rule.remember,
            reported: Vec::new(),
        };
        self.verdict = Some(match self.verdict.take() {
            None => verdict,
            Some(before) => before.and(verdict),
        });
    }

    fn verdict(self, rules: &Rules) -> Verdict {
        let default = rules.policy.default;
        let mut reported = self.reported;
        if rules.policy.mode == PolicyMode::Report {
            if !self.any_reported && default > Decision::Allow {
                reported.push((default, DEFAULT.into()));
            }
            return Verdict { reported, ..Verdict::default() };
        }
        let by_default = || Verdict {
            decision: default,
            enforced: default > Decision::Allow,
            proof: rules.policy.proof,
            ..Verdict::default()
        };
        Verdict { reported, ..self.verdict.unwrap_or_else(by_default) }
    }
}

/// One request while it is judged.
struct Judging<'a> {
    request: &'a Facts<'a>,
    arguments: Arguments,
    /// Whether readers may take the arguments differently, in places that only reported rules look at.
    ambiguous: bool,
    budget: Budget,
}

impl<'a> Judging<'a> {
    fn of(request: &'a Facts<'a>) -> Self {
        Self { request, arguments: Arguments::new(request.arguments), ambiguous: false, budget: Budget::default() }
    }

    /// Prepares a request. Fails if an enforced rule among these looks at ambiguous arguments.
    fn new(rules: &Rules, places: &[usize], request: &'a Facts<'a>) -> Result<Self, Vec<FieldError>> {
        let mut judging = Self::of(request);
        let reading = places.iter().map(|place| rules.rule(*place)).filter(|rule| reads(rule).next().is_some());
        let (reported, enforced): (Vec<&Rule>, Vec<&Rule>) = reading.partition(|rule| rules.only_reports(rule));
        let errors = judging.ambiguities(&enforced);
        if !errors.is_empty() {
            return Err(errors);
        }
        judging.ambiguous = !judging.ambiguities(&reported).is_empty();
        Ok(judging)
    }

    /// Finds keys that readers may take differently: names of arguments, and keys inside the arguments that the rules
    /// read.
    fn ambiguities(&self, rules: &[&Rule]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let expressions: Vec<&Expression> = rules.iter().copied().flat_map(reads).collect();
        // If the arguments cannot be read, each of these conditions fails instead.
        let Some(members) = self.arguments.members().filter(|_| !expressions.is_empty()) else { return errors };
        let mut names: BTreeSet<String> = BTreeSet::new();
        expressions.iter().for_each(|expression| names.extend(expression.names().iter().cloned()));
        doubled::find_among(members.iter().map(|member| member.name.as_str()), &names, MOST, &mut errors);
        for member in members {
            let is_read = |expression: &&Expression| match expression.reads() {
                Reads::Nothing => false,
                Reads::Members(names) => names.contains(&member.name),
                Reads::All => true,
            };
            if expressions.iter().any(is_read) {
                doubled::find_in(&member.name, member.raw.as_value(), &names, MOST, &mut errors);
            }
        }
        errors
    }

    /// Reports whether the request matches a rule that can match its subject.
    fn matches(&mut self, rule: &Rule, excepts: bool) -> bool {
        let strict = rule.verdict > Decision::Allow;
        let found = self.part(&rule.matches).unwrap_or(strict);
        found
            && !match rule.unless.as_ref().filter(|_| excepts) {
                None => false,
                Some(unless) => self.is_excepted(unless).unwrap_or(!strict),
            }
    }

    fn is_excepted(&mut self, unless: &Matcher) -> Result<bool, String> {
        let named = Matcher { actions: unless.actions.clone().or(Some(vec![self.request.action])), ..unless.clone() };
        self.part(&named)
    }

    fn part(&mut self, matcher: &Matcher) -> Result<bool, String> {
        if !self.request.subject.is_named(self.request.action, matcher) {
            return Ok(false);
        }
        matcher.when.as_ref().map_or(Ok(true), |when| self.evaluate(when))
    }

    fn evaluate(&mut self, when: &Expression) -> Result<bool, String> {
        if self.ambiguous && when.reads().any() {
            return Err("readers may take the arguments differently".to_owned());
        }
        let Facts { subject, caller, client, .. } = self.request;
        let hints = subject.hints;
        let values = Values {
            principal: caller.principal,
            claims: caller.claims,
            client: *client,
            view: caller.view,
            server: subject.server,
            tool: subject.exposed,
            name: subject.raw,
            tags: subject.tags,
            hints: [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint],
            args: &self.arguments,
        };
        when.evaluate(&values, &mut self.budget)
    }

    /// Returns why the rule does not match the request, or `Ok` if it does.
    fn explain(&mut self, rule: &Rule) -> Result<(), String> {
        let (action, subject, caller) = (self.request.action, self.request.subject, self.request.caller);
        let strict = rule.verdict > Decision::Allow;
        if !caller.is_meant(&rule.matches) {
            return Err("it is for other clients, or another view".to_owned());
        }
        if !subject.is_named(action, &rule.matches) {
            return Err("it is for something else".to_owned());
        }
        match self.part(&rule.matches) {
            Ok(true) => {}
            Ok(false) => return Err("`when` is false".to_owned()),
            Err(_) if strict => {}
            Err(error) => return Err(format!("`when` fails: {error}")),
        }
        let unless = rule.unless.as_ref().filter(|unless| caller.is_meant(unless));
        match unless.map(|unless| self.is_excepted(unless)) {
            None | Some(Ok(false)) => Ok(()),
            Some(Err(_)) if strict => Ok(()),
            Some(_) => Err("`unless` excepts it".to_owned()),
        }
    }
}

/// Returns the conditions of a rule that look at arguments.
fn reads(rule: &Rule) -> impl Iterator<Item = &Expression> {
    let parts = std::iter::once(&rule.matches).chain(&rule.unless);
    parts.filter_map(|part| part.when.as_ref()).filter(|when| when.reads().any())
}

/// Returns for each rule of a policy whether it matches the request, and if not, why.
pub(crate) fn explain(policy: &Policy, request: &Facts<'_>) -> Vec<Result<(), String>> {
    let mut judging = Judging::of(request);
    policy.rules.iter().map(|rule| judging.explain(rule)).collect()
}
