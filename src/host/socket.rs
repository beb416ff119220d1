//! A daemon without a port: the local socket is its only door, and the daemon ends when it has been unused for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::Host;
use crate::downstream::admin::{self, Answers, At, Guests, Refused, StatusSocket};
use crate::downstream::console::Console;
use crate::downstream::console::access::Access;
use crate::error::{Error, ErrorKind};
use crate::queues::STUCK;

/// The open socket of a daemon that listens on no TCP port.
///
/// ```no_run
/// # async fn serve(host: &mcp_host::Host, at: &mcp_host::admin::At) -> Result<(), mcp_host::Error> {
/// host.open_socket(at)?.serve().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a socket serves no client until `serve`"]
pub struct SocketEndpoint {
    host: Host,
    socket: StatusSocket,
    stop: CancellationToken,
}

/// How often to check whether the daemon is in use.
const LOOK: Duration = Duration::from_secs(5);
/// The least number of checks within `host.idleExit`: a short one is checked more often than every [`LOOK`].
const LOOKS: u32 = 20;

impl Host {
    /// Opens the socket of a daemon without a port. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// When another daemon has that name, or the socket cannot be created.
    pub fn open_socket(&self, at: &At) -> Result<SocketEndpoint, Error> {
        let socket = StatusSocket::open_at(at).map_err(|error| match error {
            admin::Error::Running { .. } => Error::from_source(ErrorKind::Config, error),
            error => Error::from_source(ErrorKind::Internal, error),
        })?;
        self.0.manager.record().open();
        Ok(SocketEndpoint { host: self.clone(), socket, stop: self.0.stop.child_token() })
    }
}

impl SocketEndpoint {
    /// Serves until the host shuts down, or until `host.idleExit` has passed without a client, call or task.
    pub async fn serve(self) {
        let Self { host, socket, stop } = self;
        let guests = Guests::default();
        let sign_in = |request| host.sign_in(request);
        let guest = |arrival| host.receive(arrival, socket.boot(), &guests, &stop);
        let page = |_| Err(Refused::because("this daemon has no port, and so no page"));
        let restart = |server: &str| host.0.configured.restart(server);
        let (router, run, deeds) = (host.0.router.clone(), socket.run().clone(), Arc::new(host.clone()));
        let console = Console::new(router, Access::default(), run, (Some(deeds), stop.clone()));
        let act = |request| host.act(&console, request);
        let answers = Answers { reload: || host.reload_now(), restart, sign_in, page, act };
        let door = socket.serve(&host.0.router, answers, guest, &stop);
        let idle = async {
            host.idle(&guests, &stop).await;
            // A client that connects from now on is told that the daemon is stopping, and goes elsewhere.
            stop.cancel();
        };
        // Clients that do not read the messages waiting for them are disconnected, as at the other doors.
        let stuck = stop.run_until_cancelled(async {
            let mut look = interval(LOOK);
            loop {
                look.tick().await;
                let limits = host.0.router.limits();
                let long = limits.session_idle.max(STUCK);
                host.0.router.queues().cut_stuck(limits.client_queue, STUCK, long);
            }
        });
        host.0.doors.track_future(futures_util::future::join3(door, idle, stuck)).await;
    }
}

impl Host {
    /// Waits until the daemon has been unused for `host.idleExit`, or until `stop`.
    async fn idle(&self, guests: &Guests, stop: &CancellationToken) {
        let (mut since, mut known) = (Instant::now(), 0);
        loop {
            let patience = self.0.manager.settings().idle_exit;
            let gauges = self.0.router.meter().gauges();
            let so_far = guests.so_far();
            if so_far != known || guests.count() > 0 || gauges.requests > 0 || gauges.tasks > 0 {
                (since, known) = (Instant::now(), so_far);
            }
            if since.elapsed() >= patience
                || stop.run_until_cancelled(sleep(LOOK.min(patience / LOOKS))).await.is_none()
            {
                return;
            }
        }
    }
}
