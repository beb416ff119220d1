//! What people are shown about a client: its name, when and how it connected, its last request, and its number of
//! calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The door (transport) that a client connects through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "there is no HTTP door"))]
    Http,
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "there is no HTTP door"))]
    Sse,
    Stdio,
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "there is no page"))]
    Console,
    /// The daemon's local socket: a `mcp-host stdio`, or a command, that joined the daemon.
    Socket,
}

impl Via {
    pub(super) const ALL: [Self; 5] = [Self::Http, Self::Sse, Self::Stdio, Self::Console, Self::Socket];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Stdio => "stdio",
            Self::Console => "console",
            Self::Socket => "socket",
        }
    }
}

/// What people are shown about a session. There is one for each session, so it is small.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// The milliseconds from the roster's creation to the start of the session, times eight, plus the number of the
    /// door (1 to 5). 0 means that the session is not shown.
    came: AtomicU64,
    /// The milliseconds from the start of the session to its last request.
    pub(super) used: AtomicU32,
    pub(super) calls: AtomicU32,
}

impl Presence {
    /// Shows the session from now on; `now` is in milliseconds since the roster's creation. Returns false if it was
    /// shown before.
    pub(super) fn begin(&self, now: u64, via: Via) -> bool {
        let came = now << 3 | (via as u64 + 1);
        self.came.compare_exchange(0, came, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns when the session began (see [`Presence::begin`]) and through which door, or `None` if it is not shown.
    pub(super) fn came(&self) -> Option<(u64, Via)> {
        let came = self.came.load(Ordering::Relaxed);
        let door = usize::try_from(came & 7).ok()?.checked_sub(1)?;
        Some((came >> 3, *Via::ALL.get(door)?))
    }
}

/// A client's name for itself and its version, each `None` if it gave none.
#[derive(Debug, Default)]
pub(crate) struct Named {
    name: Option<Arc<str>>,
    version: Option<Box<str>>,
}

/// Who sent a request without a session.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// The name that it gave for itself; `None` if it gave none.
    pub(super) name: Option<Arc<str>>,
    /// The door that it came through.
    pub(super) via: Via,
}

/// How many characters of the name, and of the version, are kept.
const LONGEST: usize = 200;

impl Named {
    pub(crate) fn new(name: &str, version: Option<&str>) -> Self {
        let short = |text: &str| text.chars().take(LONGEST).collect::<String>();
        let (name, version) = (short(name), version.map(short).unwrap_or_default());
        Self { name: (!name.is_empty()).then(|| name.into()), version: (!version.is_empty()).then(|| version.into()) }
    }

    /// Returns the name and the version, each `None` if the client did not give it.
    pub(super) fn parts(&self) -> (Option<&str>, Option<&str>) {
        (self.name.as_deref(), self.version.as_deref())
    }

    /// Returns the name and the version as text, each empty if the client did not give it.
    #[cfg(feature = "server")]
    pub(super) fn texts(&self) -> [&str; 2] {
        [self.name.as_deref().unwrap_or_default(), self.version.as_deref().unwrap_or_default()]
    }

    /// Returns the name, to be kept.
    pub(super) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }
}
