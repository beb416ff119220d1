//! The parts of a relay's loop: its two sides, what it waits for, and how it ends.

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
    /// Returns a daemon that lets us in, if there is one now. The ids of its questions begin above `asked`. `is_wanted`
    /// says that the client waits, so a daemon may be started.
    fn find(&mut self, asked: u64, is_wanted: bool) -> Option<Joined>;
    /// Starts a host in this process and returns its socket. Fails with `NotFound` if only the named daemon will do.
    fn own(&mut self, asked: u64) -> io::Result<UnixStream>;
    /// Prints a message for the user.
    fn tell(&self, text: &str);
}

/// How the relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client has left and has received everything.
    Done,
    /// The daemon cut the client off, or the next daemon speaks another revision.
    Failed,
    /// The named daemon is gone, and no other will do.
    Gone,
}

/// The file descriptors towards the client and the system.
pub(super) struct Ends {
    pub(super) input: io::Stdin,
    pub(super) output: io::Stdout,
    /// Becomes readable once the process must end.
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
            // A terminal's flags are shared with other processes, and a file never blocks.
            if matches!(kind, FileType::Fifo | FileType::Socket) {
                let flags = rustix::fs::fcntl_getfl(end)?;
                rustix::fs::fcntl_setfl(end, flags | OFlags::NONBLOCK)?;
            }
        }
        Ok(ends)
    }
}

/// A long message of the client that is forwarded in pieces.
#[derive(Debug)]
pub(super) struct Passing {
    /// The number of the daemon that receives it; `None` if the rest is dropped.
    pub(super) to: Option<usize>,
    pub(super) scan: Scan,
    pub(super) start: kept::At,
    /// The message so far, while it is short enough to be sent again.
    pub(super) line: Option<Vec<u8>>,
}

/// The state while there is no daemon.
#[derive(Debug)]
pub(super) struct Away {
    /// When to look for a daemon next.
    pub(super) next: Instant,
    /// Since when the client has been waiting; `None` if it is not.
    pub(super) waits: Option<Instant>,
    /// Identifies the daemon that disconnected without notice. If that daemon still runs, it has cut us off.
    pub(super) boot: Option<String>,
}

/// Which operations will not block.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) signal: bool,
    pub(super) input: bool,
    pub(super) output: bool,
    /// The indexes of daemons whose sockets can be written.
    pub(super) writable: Vec<usize>,
    pub(super) readable: Vec<usize>,
}

pub(super) fn timespec(time: Duration) -> Timespec {
    // Rounded up, since waking too early costs another round.
    let time = time + Duration::from_millis(1);
    Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}
