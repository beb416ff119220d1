//! Passes a tool call on to another tool, its fallback, if its own tool did not serve it (`fallback` of a tool).
//!
//! In: a tool call. Out: its answer or, after a failure that the config names, the fallback's answer to the same
//! arguments. The fallback runs as if the client had called it: its view, approvals, presets, and rates apply. A
//! fallback of the fallback is ignored.
//!
//! **Invariants:** a call that may have done its work is not passed on, unless it may run twice. A client never gets a
//! structured result that does not fit the output schema of the tool that it called. Each of the two calls has its own
//! line in the audit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::Mailbox;
use super::call::Forwarder;
use super::client::Client;
use super::find::Routes;
use super::forward::Forward;
use super::observed;
use super::own::{Said, exposed, said};
use super::plan::Plan;
use super::route::{Route, Wanted, What};
use super::tasks::Tasks;
use crate::answered::{Answered, Kind, NoResult};
use crate::config::{Fallback, FallbackOn, ToolRules};
use crate::lock::lock;
use crate::manager::Manager;
use crate::observe::Observer;
use crate::protocol::{Method, Raw, Request, RequestId, Theirs, meta};
use crate::registry::Entry;

/// Makes calls of tools that have a fallback.
#[derive(Debug)]
pub(super) struct Fallbacks {
    pub(super) manager: Manager,
    pub(super) routes: Arc<Routes>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) calls: Arc<Forwarder>,
    pub(super) observer: Arc<Observer>,
    /// The problems that were logged already.
    pub(super) told: Mutex<BTreeSet<String>>,
}

/// A call as it is passed on to the fallback.
struct Given {
    fallback: Fallback,
    /// The name by which the client called the tool.
    from: String,
    /// The params as the client sent them, but with the name of the other tool.
    params: Raw,
    /// The tool that was called, as it is listed.
    entry: Option<Entry>,
    /// Whether the call may run twice.
    is_safe_twice: bool,
}

/// The most problems that are remembered as logged.
const TOLD: usize = 1000;
/// How much of an error's text is searched.
const SEARCHED: usize = 64 * 1024;
/// The reason given for passing on a call that brings answers to questions of the fallback.
const ANSWERS: &str = "input_required";

impl Fallbacks {
    /// Returns the fallback of a call; `None` if it has none.
    pub(super) fn of(&self, client: &Client, forward: &Forward) -> Option<Fallback> {
        if !self.manager.answers().falls_back() || forward.method != Method::ToolsCall {
            return None;
        }
        let of = |rules: &ToolRules, name: &str| rules.said(name, |tool| tool.fallback.as_ref()).cloned();
        said(&self.manager, client, forward, of).map(Said::value)
    }

    /// Makes a call and, if its tool does not serve it, calls the fallback.
    pub(super) async fn call(
        &self,
        client: &Arc<Client>,
        (forward, fallback): (Box<Forward>, Fallback),
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let mut toward = self.calls.toward(client, &forward, leg);
        let given = Given::of(&forward, fallback);
        if self.is_answer(client, &given)
            && let Some(second) = self.second(client, &given, leg).await
        {
            let answered = self.calls.forward_on(client, second, leg, &mut toward).await;
            return answered.map(|result| given.marked(&result, ANSWERS));
        }
        let answered = self.calls.forward_on(client, forward, leg, &mut toward).await;
        let Some(why) = given.why(&answered) else { return answered };
        let Some(second) = self.second(client, &given, leg).await else { return answered };
        // From here on there are two calls, each with its own end.
        self.observer.ended(leg.tally(), leg.passing(), &answered);
        leg.tally_anew();
        if let Some(subject) = leg.subject() {
            subject.ended(&answered);
            leg.observe_anew();
        }
        let request =
            Request { id: RequestId::Number(0), method: Method::ToolsCall, params: Some(second.params.clone()) };
        let observer = (&*self.observer, &self.manager);
        let observed = observed::begin_by(observer, client, (&request, Instant::now()), leg, Some("fallback"));
        let observed = observed.map_err(NoResult::from)?.beside();
        toward.another_server();
        let other = self.calls.forward_on(client, second, leg, &mut toward).await;
        observed.finish(Some(&other));
        match other {
            Ok(result) => Ok(given.marked(&result, why)),
            // Neither tool got the call, so it ends as if there were no fallback.
            Err(NoResult::Failed(failed)) if !failed.sent => answered,
            failed => failed,
        }
    }

    /// Reports whether the request brings answers to questions that the fallback has asked.
    fn is_answer(&self, client: &Client, given: &Given) -> bool {
        client.revision().is_modern() && self.calls.sealer.continues(client.bound(), &Method::ToolsCall, &given.params)
    }

    /// Returns the call of the fallback. Logs why and returns `None` if the client may make no such call.
    async fn second(&self, client: &Arc<Client>, given: &Given, leg: &Arc<Mailbox>) -> Option<Box<Forward>> {
        let (from, to) = (Theirs(&given.from), Theirs(&given.fallback.tool));
        let mut wanted = Wanted::tool(Some(given.params.clone())).ok()?;
        let found = self.routes.find(client, What::Tool, &given.fallback.tool).await;
        let Ok(Route::One(mut one)) = found else {
            self.tell(&format!("the fallback of {from} is not used: its client may call no tool {to}"));
            return None;
        };
        self.tasks.get_to_know(client, &mut one, &given.fallback.tool).await;
        let task = wanted.task.take();
        let mut second = Box::new(Forward::new(one, wanted, leg.limits().clone()));
        self.tasks.plan(client, &mut second, task.as_ref());
        let entry = second.listed.entry();
        if exposed(&second) == given.from
            || entry.zip(given.entry.as_ref()).is_some_and(|(one, other)| one.is_as(other))
        {
            self.tell(&format!("the fallback of {from} is not used: it is the tool itself"));
            return None;
        }
        if given.entry.as_ref().is_some_and(|called| !called.can_be_replaced_by(entry)) {
            self.tell(&format!("the fallback of {from} is not used: the `outputSchema` of {to} is different"));
            return None;
        }
        Some(second)
    }

    /// Logs a problem, once.
    fn tell(&self, problem: &str) {
        let mut told = lock(&self.told);
        if told.len() < TOLD && told.insert(problem.to_owned()) {
            drop(told);
            tracing::warn!("{problem}");
        }
    }
}

impl Given {
    fn of(forward: &Forward, fallback: Fallback) -> Self {
        let mut params = forward.params.with_member("name", Raw::from_value(&fallback.tool).as_bytes());
        // Only a client's own wish for a task is passed on. Otherwise, the plan for the first tool set the member.
        if forward.task != Plan::Wanted {
            params = params.without_member("task");
        }
        let (from, entry) = (exposed(forward), forward.listed.entry().cloned());
        Self { fallback, from, params, entry, is_safe_twice: forward.is_safe_twice() }
    }

    /// Returns why the call goes to the fallback; `None` if it does not.
    fn why(&self, answered: &Answered) -> Option<&'static str> {
        match answered {
            Ok(result) => self.fallback.pattern.as_ref()?.is_in(&error_text(result)?).then_some("match"),
            Err(NoResult::Error(_)) => None,
            Err(NoResult::Failed(failed)) => {
                let on = match failed.kind {
                    Kind::Unavailable => FallbackOn::Unavailable,
                    Kind::Overloaded => FallbackOn::Overloaded,
                    Kind::RateLimited => FallbackOn::RateLimited,
                    Kind::Timeout => FallbackOn::Timeout,
                    _ => return None,
                };
                // A server that is overloaded says itself that it did not serve the request.
                let did_nothing = !failed.sent || failed.kind == Kind::Overloaded;
                let goes = self.fallback.on.contains(&on) && (did_nothing || self.is_safe_twice);
                goes.then_some(failed.kind.word())
            }
        }
    }

    /// Notes in a result which tool it comes from.
    fn marked(&self, result: &Raw, why: &str) -> Raw {
        let own = result.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
        let mark = serde_json::json!({ "from": self.from, "to": self.fallback.tool, "why": why });
        let own = own.with_member(meta::FALLBACK, Raw::from_value(&mark).as_bytes());
        result.with_member("_meta", own.as_bytes())
    }
}

/// Returns the text of a result that is an error of the tool; `None` of another result.
fn error_text(result: &Raw) -> Option<String> {
    let [is_error, content] = result.members(["isError", "content"]);
    is_error.filter(|flag| flag.as_bytes() == b"true")?;
    let content: Vec<Raw> = content?.read().ok()?;
    let mut text = String::new();
    for part in content.iter().filter_map(|part| part.text("text")) {
        text += &part;
        text.push('\n');
        if text.len() > SEARCHED {
            let end = (0..=SEARCHED).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            break;
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answered::Failed;

    fn given(fallback: Fallback, is_safe_twice: bool) -> Given {
        Given { fallback, from: "a__x".to_owned(), params: Raw::empty_object(), entry: None, is_safe_twice }
    }

    fn failed(kind: Kind, sent: bool) -> Answered {
        let (text, errors) = ("it is so".into(), Box::default());
        Err(Failed {
            kind,
            server: None,
            text,
            cause: None,
            sent,
            retryable: true,
            retry_after: None,
            errors,
            rule: None,
        }
        .into())
    }

    #[test]
    fn a_call_whose_outcome_is_unknown_goes_nowhere_else_unless_it_may_run_twice() {
        let usual = || Fallback::to("b__x");
        let all = || usual().on([FallbackOn::Unavailable, FallbackOn::Timeout]);
        for (fallback, kind, sent, once, twice) in [
            (usual(), Kind::Unavailable, false, true, true),
            (usual(), Kind::Unavailable, true, false, true),
            (usual(), Kind::Overloaded, false, true, true),
            (usual(), Kind::Overloaded, true, true, true),
            (usual(), Kind::RateLimited, false, true, true),
            (usual(), Kind::Timeout, true, false, false),
            (all(), Kind::Timeout, true, false, true),
            (all(), Kind::Overloaded, false, false, false),
            (all(), Kind::OutcomeUnknown, true, false, false),
            (all(), Kind::AuthRequired, false, false, false),
        ] {
            let answered = failed(kind, sent);
            assert_eq!(given(fallback.clone(), false).why(&answered), once.then_some(kind.word()), "{kind:?} {sent}");
            assert_eq!(given(fallback, true).why(&answered), twice.then_some(kind.word()), "{kind:?} {sent}");
        }
    }

    #[test]
    fn only_the_text_of_an_error_is_searched() {
        let given = given(Fallback::to("b__x").matching("(?i)over quota").unwrap(), false);
        let answer = |text: &str| Ok(Raw::trusted(text.to_owned().into()));
        let error = r#"{"isError":true,"content":[{"type":"text","text":"no:"},{"type":"text","text":"Over quota"}]}"#;
        assert_eq!(given.why(&answer(error)), Some("match"));
        for other in [
            r#"{"isError":false,"content":[{"type":"text","text":"over quota"}]}"#,
            r#"{"isError":true,"content":[{"type":"text","text":"not found"}],"more":"over quota"}"#,
            r#"{"isError":true}"#,
        ] {
            assert_eq!(given.why(&answer(other)), None, "{other}");
        }
        let long =
            format!(r#"{{"isError":true,"content":[{{"type":"text","text":"{}over quota"}}]}}"#, "é".repeat(SEARCHED));
        assert_eq!(given.why(&answer(&long)), None);
    }
}
