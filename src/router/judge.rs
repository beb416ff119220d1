//! Judges requests by the rules that can match their client (`host.policy`), before anything is sent.
//!
//! In: a request on its way to a server. Out: nothing, a refusal, or what a person has to be asked first
//! (`permission.rs`). Decisions that do not depend on the request are made in the catalog already (`registry/lens.rs`);
//! a tool there carries only the remaining rules.

use std::sync::Arc;
use std::time::Duration;

use super::Mailbox;
use super::answer::{Failure, said};
use super::client::Client;
use super::forward::Forward;
use crate::answered::NoResult;
use crate::config::{Action, Decision, Hints, Proof, Words as _};
use crate::counts;
use crate::manager::{Manager, Server};
use crate::observe::Judged;
use crate::policy::{Facts, Subject, Verdict};
use crate::protocol::{Method, Raw};
use crate::registry::{Catalog, Ruled, Target};

/// What a person has to be asked before a request is sent.
#[derive(Clone, Debug)]
pub(super) struct ToAsk {
    /// The rule that requires the question.
    pub(super) rule: Arc<str>,
    /// Who may say yes.
    pub(super) proof: Proof,
    /// For how long a yes may allow equal requests.
    pub(super) remember: Option<Duration>,
    /// The script that makes the call, if any. A yes may hold until the script ends.
    pub(super) script: Option<Arc<str>>,
}

/// Judges a request. Returns what a person has to be asked first, if that is what the rules want.
///
/// # Errors
/// With the refusal, if the rules deny the request.
pub(super) fn judge(
    manager: &Manager,
    client: &Client,
    forward: &Forward,
    leg: &Mailbox,
) -> Result<Option<ToAsk>, NoResult> {
    let action = match forward.method {
        Method::ToolsCall => Action::Call,
        Method::PromptsGet => Action::Get,
        Method::ResourcesRead => Action::Read,
        Method::Complete => Action::Complete,
        _ => return Ok(None),
    };
    let listed = forward.listed.entry();
    if let (Some(entry), Action::Call | Action::Get) = (listed, action) {
        // Nearly every call ends here.
        let Some(ruled) = entry.rules() else { return Ok(None) };
        return decide(manager, client, forward, leg, (action, ruled));
    }
    if !manager.has_rules() {
        return Ok(None);
    }
    let catalog = client.view(manager).callable;
    let Some(ruled) = ruled(&catalog, action, forward) else { return Ok(None) };
    decide(manager, client, forward, leg, (action, &ruled))
}

/// Judges a subscription to a resource. No person can be asked about it.
///
/// # Errors
/// With the refusal, if the rules do not allow it.
pub(super) fn judge_subscription(
    manager: &Manager,
    client: &Client,
    (server, raw, exposed): (&Server, &str, &str),
    leg: Option<&Mailbox>,
) -> Result<(), NoResult> {
    let Some(verdict) = of_subscription(manager, client, (server, raw, exposed))? else { return Ok(()) };
    note(manager, leg, &verdict);
    match (verdict.decision, verdict.enforced) {
        (Decision::Allow, _) | (_, false) => Ok(()),
        (Decision::Deny, true) => Err(denied(&verdict).of(server)),
        (Decision::Ask, true) => Err(Failure::not_permitted(&rule_of(&verdict), CANNOT_ASK).of(server)),
    }
}

/// Returns the verdict of the rules on a subscription to a resource; `None` if no rules apply.
fn of_subscription(
    manager: &Manager,
    client: &Client,
    (server, raw, exposed): (&Server, &str, &str),
) -> Result<Option<Verdict>, NoResult> {
    if !manager.has_rules() {
        return Ok(None);
    }
    let catalog = client.view(manager).callable;
    let subject = Subject::resource(exposed, raw, server.config.alias.as_str());
    let Some(ruled) = catalog.judged(Action::Subscribe, &subject) else { return Ok(None) };
    let action = Action::Subscribe;
    let verdict = manager.as_caller(&client.who, |caller| {
        ruled.judge(&Facts { subject, action, caller, client: ("", None), arguments: None })
    });
    // If there is no verdict, the rules were removed just now.
    verdict.transpose().map_err(|_| Failure::denied(None).of(server))
}

/// Reports whether a client may go on watching a resource, by its current view and rules. Nothing is recorded, because
/// this is no request.
pub(super) fn may_watch(
    manager: &Manager,
    client: &Client,
    (server, raw, exposed): (&Server, &Arc<str>, &str),
) -> bool {
    let target = Target { server: server.id, alias: server.config.alias.clone(), name: raw.clone(), uris: server.uris };
    let is_shown = client.view(manager).callable.shows_resource(&target);
    let verdict = of_subscription(manager, client, (server, raw, exposed));
    is_shown && verdict.is_ok_and(|said| said.is_none_or(|said| !said.enforced || said.decision == Decision::Allow))
}

/// Why no person is asked about a request.
pub(super) const CANNOT_ASK: &str = "this client cannot be asked";

/// Finds the rules for a request whose tool or prompt brings none.
fn ruled(catalog: &Catalog, action: Action, forward: &Forward) -> Option<Ruled> {
    let named = forward.named.string().unwrap_or_default();
    let (raw, alias) = (&*forward.target, forward.server.config.alias.as_str());
    let nothing = Hints::default();
    let is_prompt = || {
        let kind = forward.params.member("ref").and_then(|reference| reference.text("type"));
        kind.as_deref() == Some("ref/prompt")
    };
    let subject = match action {
        Action::Call => Subject::tool((&named, raw), alias, (&[], &nothing)),
        Action::Get => Subject::prompt(&named, raw, alias),
        Action::Complete if is_prompt() => Subject::prompt(&named, raw, alias),
        _ => Subject::resource(&named, raw, alias),
    };
    catalog.judged(action, &subject)
}

fn decide(
    manager: &Manager,
    client: &Client,
    forward: &Forward,
    leg: &Mailbox,
    (action, ruled): (Action, &Ruled),
) -> Result<Option<ToAsk>, NoResult> {
    let server = &forward.server;
    let (name, version) = client.name_of(forward.meta.as_ref());
    let arguments = forward.params.member("arguments").filter(Raw::is_object);
    let exposed = forward.listed.entry().map(|entry| entry.name().to_owned());
    let exposed = exposed.unwrap_or_else(|| forward.named.string().unwrap_or_default().into_owned());
    let verdict = manager.as_caller(&client.who, |caller| {
        let subject = ruled.subject(&exposed, &forward.target, server.config.alias.as_str());
        let client = (name.as_deref().unwrap_or_default(), version.as_deref());
        ruled.judge(&Facts { subject, action, caller, client, arguments: arguments.as_ref() })
    });
    let verdict = match verdict {
        // The rules were removed just now.
        None => return Ok(None),
        Some(Ok(verdict)) => verdict,
        Some(Err(errors)) => {
            let said = said(&errors);
            return Err(Failure::invalid_arguments(&forward.target, errors, &said).of(server));
        }
    };
    note(manager, Some(leg), &verdict);
    match (verdict.decision, verdict.enforced) {
        (Decision::Allow, _) | (_, false) => Ok(None),
        (Decision::Deny, true) => Err(denied(&verdict).of(server)),
        (Decision::Ask, true) => {
            let (proof, remember, script) = (verdict.proof, verdict.remember, leg.script().cloned());
            Ok(Some(ToAsk { rule: rule_of(&verdict), proof, remember, script }))
        }
    }
}

fn denied(verdict: &Verdict) -> Failure {
    Failure::denied(verdict.rule.as_deref())
}

/// Returns the name of the rule, or `default` if no rule matched.
fn rule_of(verdict: &Verdict) -> Arc<str> {
    verdict.rule.clone().unwrap_or_else(|| "default".into())
}

/// Records a verdict for listeners such as the audit. If the request is allowed but a rule that is only reported would
/// not allow it, the strictest such rule is recorded instead.
fn note(manager: &Manager, leg: Option<&Mailbox>, verdict: &Verdict) {
    let strictest = verdict.reported.iter().max_by_key(|(decision, _)| *decision);
    let reported = strictest.filter(|(decision, _)| verdict.decision == Decision::Allow && *decision > Decision::Allow);
    let judged = match reported {
        Some((decision, rule)) => Judged { verdict: decision.word(), rule: Some(rule.clone()), enforced: false },
        None => {
            let (rule, enforced) = (verdict.rule.clone(), verdict.enforced);
            Judged { verdict: verdict.decision.word(), rule, enforced }
        }
    };
    let Judged { verdict, rule, enforced } = judged.clone();
    manager.record().counts().judged(counts::Verdict { rule, verdict, enforced });
    let Some(leg) = leg else { return };
    leg.passing().judged(judged.rule.as_ref());
    if let Some(subject) = leg.subject() {
        subject.judged(judged);
    }
}
