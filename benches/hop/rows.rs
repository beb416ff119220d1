//! The workloads, one row each, with the bounds they must meet.

use crate::call::Work;
use crate::host::{Link, Servers};

/// One workload.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) gate: Bound,
    pub(crate) goal: Bound,
}

/// How a row is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Requests through one hop.
    Hop { servers: Servers, work: Work, callers: Callers, calls: usize },
    /// Small calls through a host with ten servers, and through one with a single server in the floor's column.
    Ten { calls: usize },
    /// Small calls through a host with a hundred rules about other tools, and through one without rules in the floor's
    /// column.
    Rules { calls: usize },
    /// Small calls of sixty-four callers through a host on two threads, and through one on one thread in the floor's
    /// column.
    Threads { servers: Servers, calls: usize },
    /// Clients that connect, initialize, list, and close.
    Churn { clients: usize },
    /// The memory that each idle session takes, in KB.
    Idle { sessions: usize, after: After },
    /// The memory of the program in the middle after a tool list and some calls, in MB.
    Memory { servers: Servers },
    /// The time from the start of the program to a tool list with all tools, in ms.
    Start { servers: Servers },
    /// The tail latency of fast calls while slow calls run, divided by their tail latency alone.
    Slow { link: Link, calls: usize },
}

/// What a session did before it fell idle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Handshake,
    List,
}

/// How many clients call at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callers {
    One,
    /// Sixteen callers in four sessions.
    Sixteen,
    /// Sixty-four callers in sixteen sessions.
    SixtyFour,
}

impl Callers {
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::One => 1,
            Self::Sixteen => 16,
            Self::SixtyFour => 64,
        }
    }

    pub(crate) const fn sessions(self) -> usize {
        match self {
            Self::One => 1,
            Self::Sixteen => 4,
            Self::SixtyFour => 16,
        }
    }
}

/// The upper bound of the host's figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// This many times the floor's CPU time.
    Times(f64),
    /// This much in the row's own unit.
    Most(f64),
    /// Unbounded.
    Free,
}

const fn hop(link: Link, work: Work, callers: Callers, calls: usize) -> Kind {
    Kind::Hop { servers: Servers::one(link), work, callers, calls }
}

const fn row(name: &'static str, kind: Kind, gate: Bound, goal: Bound) -> Row {
    Row { name, kind, gate, goal }
}

const SMALL: Work = Work::Echo(32);
const LARGE: Work = Work::Echo(64 * 1024);
const BLOB: Work = Work::Blob(1024 * 1024);
const HUNDRED: Servers = Servers { link: Link::Http, count: 1, tools: 100 };
const THOUSAND: Servers = Servers { link: Link::Http, count: 10, tools: 100 };
const TWO_HUNDRED: Servers = Servers { link: Link::Stdio, count: 200, tools: 50 };
const FIFTY: Servers = Servers { link: Link::Stdio, count: 50, tools: 20 };
const TEN: Servers = Servers { link: Link::Stdio, count: 10, tools: 20 };
const TWO_OVER_HTTP: Servers = Servers { link: Link::Http, count: 2, tools: 3 };
const TWO_CHILDREN: Servers = Servers { link: Link::Stdio, count: 2, tools: 3 };
const ONE: Servers = Servers::one(Link::Stdio);

/// Every workload, in the order of the report. In the names, `h` is HTTP to the server, and `s` is pipes to a child.
pub(crate) const ROWS: &[Row] = &[
    row("call32 h1", hop(Link::Http, SMALL, Callers::One, 2000), Bound::Times(4.0), Bound::Times(1.9)),
    row("call32 s1", hop(Link::Stdio, SMALL, Callers::One, 2000), Bound::Times(4.0), Bound::Times(1.35)),
    row("call32 c16 h1", hop(Link::Http, SMALL, Callers::Sixteen, 8000), Bound::Times(5.0), Bound::Times(2.3)),
    row("call32 c16 s1", hop(Link::Stdio, SMALL, Callers::Sixteen, 8000), Bound::Times(5.0), Bound::Times(1.5)),
    row("call32 c64 h1", hop(Link::Http, SMALL, Callers::SixtyFour, 16000), Bound::Free, Bound::Times(2.3)),
    row("call32 c64 s1", hop(Link::Stdio, SMALL, Callers::SixtyFour, 16000), Bound::Free, Bound::Times(1.5)),
    row("call64k h1", hop(Link::Http, LARGE, Callers::One, 800), Bound::Times(5.0), Bound::Times(2.2)),
    row("call64k events", hop(Link::Events, LARGE, Callers::One, 800), Bound::Free, Bound::Times(2.2)),
    row("call64k s1", hop(Link::Stdio, LARGE, Callers::One, 800), Bound::Times(2.5), Bound::Times(1.1)),
    row("blob1m h1", hop(Link::Http, BLOB, Callers::One, 80), Bound::Times(3.0), Bound::Times(2.0)),
    row("blob1m s1", hop(Link::Stdio, BLOB, Callers::One, 80), Bound::Times(2.0), Bound::Times(1.25)),
    row("list 100 h1", list(HUNDRED, 1000), Bound::Times(4.0), Bound::Times(0.8)),
    row("list 1000 of 10", list(THOUSAND, 150), Bound::Times(3.0), Bound::Free),
    row("10 servers : 1", Kind::Ten { calls: 2000 }, Bound::Times(1.2), Bound::Times(1.1)),
    row("100 rules : 0", Kind::Rules { calls: 2000 }, Bound::Times(1.1), Bound::Times(1.02)),
    row("2 threads : 1 h2", Kind::Threads { servers: TWO_OVER_HTTP, calls: 16000 }, Bound::Free, Bound::Times(1.15)),
    row("2 threads : 1 s2", Kind::Threads { servers: TWO_CHILDREN, calls: 16000 }, Bound::Free, Bound::Times(1.15)),
    row("churn", Kind::Churn { clients: 300 }, Bound::Times(5.0), Bound::Times(0.8)),
    row("idle session", idle(1000, After::Handshake), Bound::Most(8.0), Bound::Most(2.0)),
    row("idle, listed", idle(1000, After::List), Bound::Most(8.0), Bound::Most(2.0)),
    row("idle, 10000", idle(10000, After::Handshake), Bound::Free, Bound::Most(2.0)),
    row("memory 1", Kind::Memory { servers: ONE }, Bound::Most(16.0), Bound::Most(8.0)),
    row("memory 50", Kind::Memory { servers: FIFTY }, Bound::Most(40.0), Bound::Most(16.0)),
    row("memory 200", Kind::Memory { servers: TWO_HUNDRED }, Bound::Free, Bound::Most(40.0)),
    row("start 1", Kind::Start { servers: ONE }, Bound::Most(13.0), Bound::Most(9.1)),
    row("start 10", Kind::Start { servers: TEN }, Bound::Most(40.0), Bound::Most(28.0)),
    row("start 50", Kind::Start { servers: FIFTY }, Bound::Most(183.0), Bound::Most(128.0)),
    row("start 200", Kind::Start { servers: TWO_HUNDRED }, Bound::Free, Bound::Most(576.0)),
    row("slow beside h1", Kind::Slow { link: Link::Http, calls: 4000 }, Bound::Most(1.4), Bound::Most(1.1)),
    row("slow beside s1", Kind::Slow { link: Link::Stdio, calls: 4000 }, Bound::Most(1.4), Bound::Most(1.1)),
];

const fn list(servers: Servers, calls: usize) -> Kind {
    Kind::Hop { servers, work: Work::List(servers.all_tools()), callers: Callers::One, calls }
}

const fn idle(sessions: usize, after: After) -> Kind {
    Kind::Idle { sessions, after }
}
