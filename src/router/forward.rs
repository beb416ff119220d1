//! A client's request on its way to a server, and what a call keeps from one connection to the next.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Failure;
use super::driver::Driver;
use super::heard::Heard;
use super::plan::Plan;
use super::route::{Listed, One, Wanted};
use super::state;
use crate::adapt;
use crate::answered::NoResult;
use crate::config::{Hints, Limits};
use crate::manager::{Calling, Server, Slot, Slots, Ticket, Told, Writing};
use crate::protocol::{Edits, Method, Raw, quoted};
use crate::registry::{Offer, hints};
use crate::transport::{self, Fate};

/// The limits of one tool, where the config has any.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    pub(super) call_timeout: Option<Duration>,
    pub(super) max_call_time: Option<Duration>,
    pub(super) slots: Option<Slots>,
}

/// A client's request on its way to a server.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) server: Arc<Server>,
    pub(super) method: Method,
    pub(super) params: Raw,
    /// The JSON value in the params that names the target, as the client sent it.
    pub(super) named: Raw,
    /// The server's own name for what the request names (the target).
    pub(super) target: Arc<str>,
    /// How the server listed the tool when the call was routed.
    pub(super) listed: Listed,
    /// The `_meta` member of the params.
    pub(super) meta: Option<Raw>,
    /// The limits for this call. They do not change with the config.
    pub(super) limits: Arc<Limits>,
    /// Whether it brings the client's answers to an `input_required` result of a modern server (one without sessions).
    pub(super) answers: bool,
    /// The number of the question to a person whose answer allowed the request; `None` if no rule required one.
    pub(super) permit: Option<u64>,
    /// Whether its client was shown the page where a person decides on it.
    pub(super) saw_page: bool,
    /// The digest of the request as the client sent it; computed on demand.
    pub(super) digest: OnceLock<String>,
    /// Whether and how it runs as an MCP task.
    pub(super) task: Plan,
    /// The roots that the client brought with the request.
    pub(super) roots: Option<Arc<Told>>,
    /// The offer of the server (its tools and prompts) that the client was shown; `None` if the client saw the list of
    /// its own lease.
    pub(super) shown: Option<Arc<Offer>>,
    /// Where the server's answer is stored, if other requests may get it, too.
    pub(super) heard: Option<Arc<Heard>>,
    /// The limits of its tool alone, where the config has any.
    pub(super) own: Option<Box<Own>>,
}

impl Forward {
    pub(super) fn new(one: One, wanted: Wanted, limits: Arc<Limits>) -> Self {
        let One { server, target, listed } = one;
        let Wanted { method, params, named, meta, .. } = wanted;
        Self {
            server,
            method,
            params,
            named,
            target,
            listed,
            meta,
            limits,
            answers: false,
            permit: None,
            saw_page: false,
            digest: OnceLock::new(),
            task: Plan::default(),
            roots: None,
            shown: None,
            heard: None,
            own: None,
        }
    }

    /// Reports whether the request may safely run twice. Everything but a tool call may; a tool call may if the config
    /// says so.
    pub(super) fn is_safe_twice(&self) -> bool {
        let config = &self.server.config;
        self.method != Method::ToolsCall
            || config.repeatable.iter().any(|tool| **tool == *self.target)
            || (config.trust_annotations && self.is_marked_safe())
    }

    /// Reports whether the tool only reads or is idempotent.
    fn is_marked_safe(&self) -> bool {
        let hints = self.hints();
        hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true)
    }

    /// Reports whether the tool only reads.
    pub(super) fn only_reads(&self) -> bool {
        self.hints().read_only_hint == Some(true)
    }

    /// Returns the annotations that apply to the tool: those of the config, else those of the server as far as they
    /// were approved.
    fn hints(&self) -> Hints {
        let Some(entry) = self.listed.entry() else { return Hints::default() };
        let Some(counts) = entry.lesser_hints() else { return hints::said(entry.definition()) };
        // The tool claims more than was approved.
        let own = self.server.config.tools.of(&self.target).unwrap_or_default();
        hints::effective(&own.annotations, &counts)
    }

    /// Returns the client's progress token, as JSON; `None` if the client wants no progress.
    pub(super) fn token(&self) -> Option<Raw> {
        self.meta.as_ref()?.member("progressToken")
    }

    /// Returns a digest that stays the same if the client sends the same request again in another JSON spelling.
    pub(super) fn digest(&self) -> &str {
        self.digest.get_or_init(|| state::digest(&self.method, &self.params))
    }

    /// Returns how long the server may be silent.
    pub(super) fn call_timeout(&self) -> Duration {
        self.own.as_ref().and_then(|own| own.call_timeout).unwrap_or(self.server.config.call_timeout)
    }

    /// Returns how long the call may take.
    pub(super) fn max_call_time(&self) -> Duration {
        self.own.as_ref().and_then(|own| own.max_call_time).unwrap_or(self.server.config.max_call_time)
    }

    /// Returns the slots of the tool alone, if it has any.
    pub(super) fn tool_slots(&self) -> Option<&Slots> {
        self.own.as_ref()?.slots.as_ref()
    }

    /// Gives the arguments of a tool the server's own names, and adds those that the config presets.
    pub(super) fn arrange(&mut self) -> Result<(), NoResult> {
        let Some((name, edit)) = self.listed.entry().and_then(|entry| Some((entry.name(), entry.edit()?))) else {
            return Ok(());
        };
        let arguments = edit.apply(self.params.member("arguments").as_ref());
        let arguments = arguments.map_err(|why| Failure::not_taken(name, &why).of(&self.server))?;
        // The digest is that of what the client sent, without presets.
        self.digest();
        self.params = self.params.with_member("arguments", arguments.as_bytes());
        self.reopen();
        Ok(())
    }

    /// Looks up `named` and `meta` again after the params were edited.
    pub(super) fn reopen(&mut self) {
        self.digest();
        let [name, meta] =
            self.params.members([if self.method == Method::ResourcesRead { "uri" } else { "name" }, "_meta"]);
        if let Some(name) = name {
            self.named = name;
        }
        self.meta = meta;
    }
}

/// The members of params that only modern servers (without sessions) know.
const ANSWERS: [&str; 2] = ["inputResponses", "requestState"];

/// Returns the params as they are sent, and the client's progress token. The params hold the server's own names, a
/// progress token of ours (the request id), and none of the protocol's own keys in `_meta`. `answers` are params whose
/// `inputResponses` and `requestState` go to a server without a session. `modern` says whether the client is modern,
/// and whether the server is.
pub(super) fn outgoing(forward: &Forward, answers: Option<&Raw>, modern: (bool, bool), id: u64) -> (Raw, Option<Raw>) {
    let (params, token) = dressed(forward, modern == (false, false), id);
    let params = match answers {
        Some(answers) => ANSWERS.iter().fold(params, |params, name| match answers.member(name) {
            Some(value) => params.with_member(name, value.as_bytes()),
            None => params.without_member(name),
        }),
        None if modern == (true, false) && params.members(ANSWERS).iter().any(Option::is_some) => {
            ANSWERS.iter().fold(params, |params, name| params.without_member(name))
        }
        None => params,
    };
    // A modern server decides alone which calls run as tasks.
    let params = if modern.1 && forward.task != Plan::Theirs { params.without_member("task") } else { params };
    (params, token)
}

/// Returns the params with the server's own name for the target and with our progress token in `_meta`. The second
/// value is the client's progress token.
fn dressed(forward: &Forward, both_legacy: bool, id: u64) -> (Raw, Option<Raw>) {
    let mut edits = Edits::new(&forward.params);
    if forward.named.string().as_deref() != Some(&*forward.target) {
        edits.replace_part(&forward.named, quoted(&forward.target));
    }
    // The timeout for silent servers (`callTimeout`) restarts with progress, so tool calls always ask for it.
    let always = forward.method == Method::ToolsCall;
    match &forward.meta {
        None if always => {
            let token = [br#"{"progressToken":"#, itoa::Buffer::new().format(id).as_bytes(), b"}"].concat();
            edits.append("_meta", &token);
        }
        Some(meta) if meta.is_object() => {
            let token = meta.member("progressToken");
            let ours = (always || token.is_some()).then(|| id.to_string());
            match adapt::request_meta(Some(meta), ours.as_deref(), both_legacy, trace) {
                Some(new) if new == *meta => {}
                Some(new) => edits.replace_part(meta, new.as_bytes().to_vec()),
                None => edits.strip("_meta"),
            }
            return (edits.apply(), token);
        }
        _ => {}
    }
    (edits.apply(), None)
}

fn trace() -> adapt::Trace {
    let mut bytes = [0; 24];
    // If this fails, the only harm is that trace ids are not unique.
    let _ = getrandom::fill(&mut bytes);
    adapt::Trace::from_random(bytes)
}

/// What a call keeps if it is sent again on another connection.
pub(super) struct Course {
    pub(super) driver: Driver,
    /// The params with the client's answers to the last round of questions.
    pub(super) answers: Option<Raw>,
    /// When the call ends at the latest.
    pub(super) end: Instant,
    /// Whether the client may still be invited to sign in. It is invited once per call.
    #[cfg(feature = "server")]
    pub(super) invites: bool,
    pub(super) repeats: Repeats,
    /// Its count against its rates, if it has any.
    ticket: Option<Ticket>,
    /// Notes that the call may change what its server answers.
    _writing: Option<Writing>,
    _calling: Calling,
    _slots: [Option<Slot>; 2],
}

impl Course {
    /// Makes the state of a new call, whose deadlines count from now.
    pub(super) fn begin(
        forward: &Forward,
        calling: Calling,
        slots: [Option<Slot>; 2],
        (ticket, writing): (Option<Ticket>, Option<Writing>),
    ) -> Self {
        let now = Instant::now();
        Self {
            driver: Driver::default(),
            answers: None,
            end: now + forward.max_call_time(),
            #[cfg(feature = "server")]
            invites: true,
            repeats: Repeats { until: now + forward.call_timeout(), refused: true, lost: true },
            ticket,
            _writing: writing,
            _calling: calling,
            _slots: slots,
        }
    }

    /// Notes that the call is sent, so that it counts against its rates.
    pub(super) fn is_sent(&mut self) {
        self.ticket.iter_mut().for_each(Ticket::is_sent);
    }

    /// Notes that the call did not reach its server after all.
    pub(super) fn was_not_sent(&mut self) {
        self.ticket.iter_mut().for_each(Ticket::was_not_sent);
    }
}

/// Which retries a request still has (`docs/hazards.md` H57).
pub(super) struct Repeats {
    /// Until when a request that never left mcp-host may be sent again.
    until: Instant,
    /// Whether it may still be sent once more after a server refused it before doing any work.
    refused: bool,
    /// Whether it may still be sent once more after its answer was lost, if it is safe to run twice.
    pub(super) lost: bool,
}

impl Repeats {
    /// Reports whether the request may be sent again after this error. A yes uses up one of its retries.
    pub(super) fn allow(&mut self, error: &transport::Error, is_safe_twice: impl FnOnce() -> bool) -> bool {
        match error.fate() {
            Fate::NeverLeft => Instant::now() < self.until,
            Fate::Refused => std::mem::take(&mut self.refused),
            Fate::Lost => self.lost && is_safe_twice() && std::mem::take(&mut self.lost),
            Fate::TurnedAway | Fate::Final => false,
        }
    }
}
