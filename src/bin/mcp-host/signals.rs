//! What the outside tells a process: end, or read the config again.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    End,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Reload,
}

/// The signals of this process; from here on they no longer end it by themselves.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::End,
            _ = self.terminate.recv() => Wish::End,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }
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
    /// Waits for one that ends the program.
    pub(crate) async fn end(&mut self) {
        while self.next().await != Wish::End {}
    }
}
