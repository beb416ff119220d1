//! Signals, which end this process or reload its config.
//!
//! A hangup means one of two things. For a process on a terminal, the terminal is gone, and the process ends, as the
//! person who closed it expects. For a service without a terminal, it means to reload the config; likewise for a
//! process that is to outlive its terminal: started by `nohup`, or with all its streams redirected.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    End,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Reload,
    /// The terminal is gone, so this process must end.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    HangUp,
}

/// The signals of this process, which no longer end it by default.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// The meaning of a hangup.
    of_hangup: Wish,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // Checked before the signal is caught: from then on it is no longer ignored.
        let of_hangup = if ends_with_its_terminal() { Wish::HangUp } else { Wish::Reload };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            of_hangup,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::End,
            _ = self.terminate.recv() => Wish::End,
            _ = self.hangup.recv() => self.of_hangup,
        }
    }
}

/// Reports whether this process belongs to a terminal and must end with it.
#[cfg(unix)]
fn ends_with_its_terminal() -> bool {
    use std::io::IsTerminal as _;
    let at_terminal = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    // Only a process with a controlling terminal can open this file. Without one, no hangup comes from a terminal.
    at_terminal && std::fs::File::open("/dev/tty").is_ok() && !ignores_hangups()
}

/// Reports whether the process was started with hangups ignored, as by `nohup`.
#[cfg(target_os = "linux")]
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1, the hangup.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Guesses from the streams whether the process was started with hangups ignored, because there is no safe way to ask:
/// `nohup` redirects output from the terminal.
#[cfg(all(unix, not(target_os = "linux")))]
fn ignores_hangups() -> bool {
    use std::io::IsTerminal as _;
    !io::stdout().is_terminal() && !io::stderr().is_terminal()
}

/// Ctrl-C, the only signal on this system.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Wish {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Wish::End
    }
}

impl Signals {
    /// Waits for an explicit request to end. Hangups do not count: a terminal that goes away may send several.
    pub(crate) async fn end(&mut self) {
        while self.next().await != Wish::End {}
    }
}
