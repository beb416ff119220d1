//! `serve` under a service manager: uses the socket that the manager opened, and reports to the manager.
//!
//! **Invariant:** the watchdog gets a heartbeat only after every thread that serves clients has run a task.

use std::convert::Infallible;
use std::env;
use std::net::TcpListener;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::report::{Exit, Failure};

/// A service manager that expects messages, such as systemd with `Type=notify`.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often the watchdog expects a heartbeat, if there is a watchdog.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Finds the manager that started this process; `None` if there is none.
    pub(crate) fn from_process() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET")?;
        let address = address(name.to_str()?)?;
        let text = |name: &str| env::var(name).ok();
        let watchdog = watchdog(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref(), std::process::id());
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, address, watchdog })
    }

    /// Sends the manager a message. A failure is ignored, because it could be reported to no one else.
    fn tell(&self, message: &str) {
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::debug!("the service manager does not take {message}: {error}");
        }
    }
}

/// Reports that the endpoint is open, and from then on regularly that no thread is blocked.
pub(crate) async fn ready<F: Future<Output = ()>>(manager: Option<&Supervisor>, turn: impl Fn() -> F) -> Infallible {
    let Some(manager) = manager else { return std::future::pending().await };
    manager.tell("READY=1");
    match manager.watchdog {
        Some(every) => beat(every, turn, || manager.tell("WATCHDOG=1")).await,
        None => std::future::pending().await,
    }
}

/// Sends heartbeats as long as every thread still runs tasks.
async fn beat<F: Future<Output = ()>>(every: Duration, turn: impl Fn() -> F, tell: impl Fn()) -> Infallible {
    loop {
        turn().await;
        tell();
        tokio::time::sleep(every).await;
    }
}

/// Parses the name of the manager's socket: a path, or an abstract name after `@`.
fn address(name: &str) -> Option<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name).ok();
    }
    name.starts_with('/').then(|| SocketAddr::from_pathname(name).ok()).flatten()
}

/// Returns the interval of heartbeats, a third of what the watchdog allows. `None` if it watches another process.
fn watchdog(usec: Option<&str>, of: Option<&str>, own: u32) -> Option<Duration> {
    let usec: u64 = usec?.parse().ok().filter(|usec| *usec > 0)?;
    let is_ours = of.is_none_or(|of| of.parse() == Ok(own));
    is_ours.then(|| Duration::from_micros(usec) / BEATS)
}

const BEATS: u32 = 3;

/// Takes the listening socket that a service manager opened; `None` if it opened none.
pub(crate) fn listener() -> Result<Option<TcpListener>, Failure> {
    let mut given = listenfd::ListenFd::from_env();
    let wrong = |what: String| {
        Failure::new(Exit::Usage, format!("the service manager passed {what}"))
            .help("mcp-host service install --socket writes a unit with one ListenStream= address")
    };
    match given.len() {
        0 => Ok(None),
        1 => {
            let listener = given.take_tcp_listener(0).map_err(|_| wrong("no TCP socket that listens".to_owned()))?;
            let Some(listener) = listener else { return Ok(None) };
            listener.set_nonblocking(true)?;
            Ok(Some(listener))
        }
        several => Err(wrong(format!("{several} sockets, and one is expected"))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;

    use tokio::sync::Notify;

    use super::*;

    type Beating<'a> = Pin<Box<dyn Future<Output = Infallible> + 'a>>;

    async fn pass(seconds: u64, beating: &mut Beating<'_>) {
        let _ = tokio::time::timeout(Duration::from_secs(seconds), beating.as_mut()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_hears_nothing_while_a_thread_is_blocked() {
        let (beats, blocked, free) = (Cell::new(0), Cell::new(false), Notify::new());
        let turn = || async {
            if blocked.get() {
                free.notified().await;
            }
        };
        let beating = beat(Duration::from_secs(10), turn, || beats.set(beats.get() + 1));
        let mut beating: Beating<'_> = Box::pin(beating);
        pass(25, &mut beating).await;
        assert_eq!(beats.get(), 3);
        blocked.set(true);
        pass(600, &mut beating).await;
        assert_eq!(beats.get(), 3);
        blocked.set(false);
        free.notify_one();
        pass(5, &mut beating).await;
        assert_eq!(beats.get(), 4);
    }

    #[test]
    fn the_manager_is_found_by_its_variables() {
        assert!(address("/run/x").is_some() && address("relative").is_none());
        assert_eq!(address("@abstract").is_some(), cfg!(target_os = "linux"));
        assert_eq!(watchdog(Some("30000000"), None, 7), Some(Duration::from_secs(10)));
        assert_eq!(watchdog(Some("30000000"), Some("7"), 7), Some(Duration::from_secs(10)));
        for (usec, of) in [(None, None), (Some("0"), None), (Some("x"), None), (Some("1"), Some("8"))] {
            assert_eq!(watchdog(usec, of, 7), None);
        }
    }
}
