//! Reports to embedding programs what rules decided about requests, and which calls exceeded a rate.
//!
//! In: the end of each request, from `observe/mod.rs`. Out: [`Event::Verdict`](super::Event::Verdict) and
//! [`Event::Limited`](super::Event::Limited). **Invariant:** without listeners, no request is observed for this; and no
//! event says who made the request.

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use crate::answered::{Failed, Kind};
use crate::config::Words as _;
use crate::observe::{Begun, Ended, Listener, Pending, Wants};
use crate::policy::Decision;
use crate::protocol::Method;

/// What rules decided about one request. It is reported when the request has ended.
///
/// ```
/// # fn tell(news: &mcp_host::VerdictNews) {
/// use mcp_host::policy::Decision;
///
/// if news.decision == Decision::Deny && !news.enforced {
///     println!("{} of {} would be denied by {:?}", news.method.as_str(), news.server, news.rule);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerdictNews {
    /// The server's name in the config.
    pub server: String,
    /// The method of the request.
    pub method: Method,
    /// The strictest verdict.
    pub decision: Decision,
    /// The rule that decided; if several rules ask, all their names with commas between. `None` if
    /// `host.policy.default` decided.
    pub rule: Option<String>,
    /// Whether the decision is enforced, or only reported.
    pub enforced: bool,
    /// The answer of the person who was asked for permission; `None` if the request needed no permission.
    pub asked: Option<Asked>,
}

/// The answer of the person who was asked for permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// The answer was yes.
    Yes,
    /// The answer was no.
    No,
    /// No answer came in time.
    Nobody,
}

/// A call that was refused because it exceeded a rate.
///
/// ```
/// # fn tell(news: &mcp_host::LimitedNews) {
/// println!("{}: too many calls; again in {:?}", news.server, news.retry_after);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitedNews {
    /// The server's name in the config.
    pub server: String,
    /// How long until the call may be made again.
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) enum News {
    Verdict(VerdictNews),
    Limited(LimitedNews),
}

/// The listeners to decisions. Their queue is allocated for the first listener.
#[derive(Debug, Default)]
pub(super) struct Decisions(OnceLock<broadcast::Sender<News>>);

/// How many decisions a slow listener may be behind before it misses some.
const BEHIND: usize = 256;

impl Decisions {
    pub(super) fn subscribe(&self) -> broadcast::Receiver<News> {
        self.0.get_or_init(|| broadcast::Sender::new(BEHIND)).subscribe()
    }
}

impl Listener for Decisions {
    fn wants(&self, method: &Method) -> Wants {
        let is_heard = self.0.get().is_some_and(|listeners| listeners.receiver_count() > 0);
        let is_judged = || {
            matches!(
                method,
                Method::ToolsCall
                    | Method::PromptsGet
                    | Method::ResourcesRead
                    | Method::ResourcesSubscribe
                    | Method::Complete
            )
        };
        Wants::whole_if(is_heard && is_judged())
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        let listeners = self.0.get_or_init(|| broadcast::Sender::new(BEHIND)).clone();
        Ok(Box::new(Decided { method: call.method.clone(), listeners }))
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// One request in flight.
#[derive(Debug)]
struct Decided {
    method: Method,
    listeners: broadcast::Sender<News>,
}

impl Pending for Decided {
    fn end(self: Box<Self>, ended: &Ended<'_>) {
        let Some(at) = ended.at else { return };
        let server = || at.server.as_ref().to_owned();
        let decision = ended.judged.and_then(|judged| {
            Decision::WORDS.iter().find(|(word, _)| *word == judged.verdict).map(|(_, decision)| (*decision, judged))
        });
        // If no rule matches and the default allows the request, nothing was decided.
        let decided = decision.filter(|(decision, judged)| *decision > Decision::Allow || judged.rule.is_some());
        // All listeners may have left meanwhile.
        if let Some((decision, judged)) = decided {
            let _ = self.listeners.send(News::Verdict(VerdictNews {
                server: server(),
                method: self.method,
                decision,
                rule: judged.rule.as_deref().map(str::to_owned),
                enforced: judged.enforced,
                asked: ended.asked.map(|asked| match asked {
                    "yes" => Asked::Yes,
                    "no" => Asked::No,
                    _ => Asked::Nobody,
                }),
            }));
        }
        if ended.kind == Some(Kind::RateLimited) {
            let limited = LimitedNews { server: server(), retry_after: ended.retry_after };
            let _ = self.listeners.send(News::Limited(limited));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::counts::Tally;
    use crate::observe::{Observer, Passing};

    #[test]
    fn a_request_of_which_nobody_wants_to_know_is_not_observed() {
        let (decisions, observer) = (Arc::<Decisions>::default(), Observer::default());
        observer.tell(vec![decisions.clone()]);
        let observed = || {
            let mut is_observed = false;
            let tally = Tally::default();
            let passing = Passing::default();
            let noted = || unreachable!("nobody wants ends");
            let begun = observer.begin(&Method::ToolsCall, (&tally, &passing), noted, || {
                is_observed = true;
                let subject = Arc::default();
                let (method, at) = (&Method::ToolsCall, std::time::SystemTime::UNIX_EPOCH);
                Begun {
                    principal: "p",
                    client: None,
                    door: None,
                    at,
                    method,
                    params: None,
                    subject,
                    via: None,
                    parent: None,
                    revision: None,
                    id: None,
                    #[cfg(feature = "otel")]
                    origin: None,
                }
            });
            drop(begun);
            is_observed
        };
        assert!(!observed());
        let heard = decisions.subscribe();
        assert!(observed());
        drop(heard);
        assert!(!observed());
    }
}
