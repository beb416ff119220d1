//! A request as it goes to a server, and what is kept of it from one connection to the next.

use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::driver::Driver;
use super::plan::Plan;
use super::route::{Listed, One};
use super::state;
use super::wanted::Wanted;
use crate::config::{self, Limits};
use crate::manager::{Calling, Server, Slot, Told};
use crate::protocol::{Method, Raw};
use crate::registry::Offer;
use crate::transport::{self, Fate};

/// A request as it goes to a server.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) server: Arc<Server>,
    pub(super) method: Method,
    pub(super) params: Raw,
    /// The member of the params that names the target, as it stands.
    pub(super) named: Raw,
    /// What the server itself calls the target.
    pub(super) target: Arc<str>,
    /// How the target was listed when the call was routed.
    pub(super) listed: Listed,
    /// `_meta` of the params.
    pub(super) meta: Option<Raw>,
    /// The limits that hold for the call to its end.
    pub(super) limits: Arc<Limits>,
    /// It brings answers to a result that asked: its server was without a session when it did.
    pub(super) answers: bool,
    /// Of the request as the client sent it; made when it is asked for.
    pub(super) digest: OnceLock<String>,
    /// Whether it runs as a task.
    pub(super) task: Plan,
    /// The roots that its client told for it.
    pub(super) roots: Option<Arc<Told>>,
    /// What the client was shown of the server, where that is not what its own lease lists.
    pub(super) shown: Option<Arc<Offer>>,
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
            digest: OnceLock::new(),
            task: Plan::default(),
            roots: None,
            shown: None,
        }
    }

    /// Whether doing it twice does no harm: reads do none, and tools where the user says so.
    pub(super) fn is_safe_twice(&self) -> bool {
        let config = &self.server.config;
        self.method != Method::ToolsCall
            || config.repeatable.iter().any(|tool| **tool == *self.target)
            || (config.trust_annotations && self.is_marked_safe())
    }

    /// Whether the server says of the tool that calling it twice does no harm.
    fn is_marked_safe(&self) -> bool {
        let entry = self.listed.entry();
        let Some(annotations) = entry.and_then(|entry| entry.definition().member("annotations")) else { return false };
        let hints = annotations.members(["readOnlyHint", "idempotentHint"]);
        hints.into_iter().flatten().any(|hint| hint.as_bytes() == b"true")
    }

    /// The client's progress token, as JSON.
    pub(super) fn token(&self) -> Option<Raw> {
        self.meta.as_ref()?.member("progressToken")
    }

    /// Stands for the request, however a client writes it down again.
    pub(super) fn digest(&self) -> &str {
        self.digest.get_or_init(|| state::digest(&self.method, &self.params))
    }

    /// Finds its parts again after its params were edited.
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

/// What is kept of a call from one connection to the next.
pub(super) struct Course {
    pub(super) driver: Driver,
    /// The params with the client's answers in.
    pub(super) answers: Option<Raw>,
    /// Nothing of it may run longer.
    pub(super) end: Instant,
    /// Whether its client may be invited to sign in: once.
    #[cfg(feature = "server")]
    pub(super) invites: bool,
    pub(super) repeats: Repeats,
    _calling: Calling,
    _slot: Option<Slot>,
}

impl Course {
    /// Its beginning.
    pub(super) fn begin(config: &config::Server, calling: Calling, slot: Option<Slot>) -> Self {
        let now = Instant::now();
        Self {
            driver: Driver::default(),
            answers: None,
            end: now + config.max_call_time,
            #[cfg(feature = "server")]
            invites: true,
            repeats: Repeats { until: now + config.call_timeout, refused: true, lost: true },
            _calling: calling,
            _slot: slot,
        }
    }
}

/// How a request may be sent again (`docs/hazards.md` H57).
pub(super) struct Repeats {
    /// Until then one that never left us.
    until: Instant,
    /// Once more after it was refused before any work.
    refused: bool,
    /// Once more after its answer was lost.
    pub(super) lost: bool,
}

impl Repeats {
    /// Whether it may be after this; counts it.
    pub(super) fn allow(&mut self, error: &transport::Error, is_safe_twice: impl FnOnce() -> bool) -> bool {
        match error.fate() {
            Fate::NeverLeft => Instant::now() < self.until,
            Fate::Refused => std::mem::take(&mut self.refused),
            Fate::Lost => self.lost && is_safe_twice() && std::mem::take(&mut self.lost),
            Fate::TurnedAway | Fate::Final => false,
        }
    }
}
