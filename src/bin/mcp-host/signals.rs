//! What the outside tells a process: end, or read the config again.
//!
//! A hangup means one of two things. A process of a terminal is told by it that the terminal is gone, and ends, as the person
//! who closed it expects. One without a terminal, a service, is told by it to read its config again; so is one that was
//! started to outlive its terminal: by `nohup`, or with all its streams led elsewhere.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    End,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Reload,
    /// The terminal is gone, so this process is to end.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    HangUp,
}

/// The signals of this process; from here on they no longer end it by themselves.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// What a hangup asks for.
    of_hangup: Wish,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // Before we take the signal: from then on it is not ignored any more.
        let of_hangup = if ends_with_its_terminal() { Wish::HangUp } else { Wish::Reload };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            of_hangup,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::End,
            _ = self.terminate.recv() => Wish::End,
            _ = self.hangup.recv() => self.of_hangup,
        }
    }
}

/// Whether this process belongs to a terminal, and is to end with it.
#[cfg(unix)]
fn ends_with_its_terminal() -> bool {
    use std::io::IsTerminal as _;
    let at_terminal = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    // Only a process that has a controlling terminal can open this file. Without one, no hangup comes from a terminal.
    at_terminal && std::fs::File::open("/dev/tty").is_ok() && !ignores_hangups()
}

/// Whether it was started with hangups ignored, as `nohup` does.
#[cfg(target_os = "linux")]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1, the hangup.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// There is no safe way to ask. `nohup` leads what would go to the terminal elsewhere.
#[cfg(all(unix, not(target_os = "linux")))]
fn ignores_hangups() -> bool {
    use std::io::IsTerminal as _;
    !io::stdout().is_terminal() && !io::stderr().is_terminal()
}

/// Ctrl-C.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Wish {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Wish::End
    }
}

impl Signals {
    /// Waits for one by which somebody wants the program to end. A terminal that goes away may say so more than once.
    pub(crate) async fn end(&mut self) {
        while self.next().await != Wish::End {}
    }
}
