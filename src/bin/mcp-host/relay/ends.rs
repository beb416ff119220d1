//! What the loop of a relay is made of: its two sides, what it waits for, and how it ends.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mcp_host::admin::Joined;
use rustix::event::Timespec;
use rustix::fs::{FileType, OFlags};

use super::kept;
use super::scan::Scan;

/// Where the next daemon comes from.
pub(super) trait Source {
    /// A daemon that lets us in, if there is one now. `asked`: the ids of its questions begin above. `is_wanted`: the client
    /// waits, so one may be started.
    fn find(&mut self, asked: u64, is_wanted: bool) -> Option<Joined>;
    /// A host of this process; `NotFound` where only the daemon that was named will do.
    fn own(&mut self, asked: u64) -> io::Result<UnixStream>;
    /// Says something to the user.
    fn tell(&self, text: &str);
}

/// How the relay came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client is gone, and has what was there for it.
    Done,
    /// The daemon cut it off, or another one does not speak as the first did.
    Failed,
    /// The daemon that was named is gone, and no other will do.
    Gone,
}

/// The descriptors that the client and the system know us by.
pub(super) struct Ends {
    pub(super) input: io::Stdin,
    pub(super) output: io::Stdout,
    /// Readable once the process is to end.
    pub(super) signal: UnixStream,
}

impl Ends {
    pub(super) fn new() -> io::Result<Self> {
        let (signal, sender) = UnixStream::pair()?;
        for number in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::low_level::pipe::register(number, sender.try_clone()?)?;
        }
        signal.set_nonblocking(true)?;
        let ends = Self { input: io::stdin(), output: io::stdout(), signal };
        for end in [ends.input.as_fd(), ends.output.as_fd()] {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(end)?.st_mode);
            // Others share the settings of a terminal; a file is never waited for.
            if matches!(kind, FileType::Fifo | FileType::Socket) {
                let flags = rustix::fs::fcntl_getfl(end)?;
                rustix::fs::fcntl_setfl(end, flags | OFlags::NONBLOCK)?;
            }
        }
        Ok(ends)
    }
}

/// A long message of the client that passes in pieces.
#[derive(Debug)]
pub(super) struct Passing {
    /// The daemon that gets it; none where the rest of it is dropped.
    pub(super) to: Option<usize>,
    pub(super) scan: Scan,
    pub(super) start: kept::At,
    /// The whole so far, while it is short enough to be said once more.
    pub(super) line: Option<Vec<u8>>,
}

/// No daemon is there.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) next: Instant,
    /// Since when the client waits.
    pub(super) waits: Option<Instant>,
    /// The daemon that went without a word: it has cut us off if it lives.
    pub(super) boot: Option<String>,
}

/// What can be done without waiting.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) signal: bool,
    pub(super) input: bool,
    pub(super) output: bool,
    /// Positions of daemons.
    pub(super) writable: Vec<usize>,
    pub(super) readable: Vec<usize>,
}

pub(super) fn timespec(time: Duration) -> Timespec {
    // A moment more: a wait that ends too early is another round.
    let time = time + Duration::from_millis(1);
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}
