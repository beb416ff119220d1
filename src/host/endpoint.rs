//! The HTTP endpoint of a host. Opening and serving it are two steps, so that errors show before a client connects.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Host, lock};
use crate::config::{Console, HostSettings};
use crate::downstream::admin::{self, Answers, Guests, OpenRequest, PageLink, Refused, Run, StatusSocket};
use crate::downstream::console::Console as Page;
use crate::downstream::console::access::Access;
use crate::downstream::http::{self, Threads};
use crate::error::{Error, ErrorKind};
use crate::manager::Reload;

/// An open endpoint. Clients that connect wait until [`HttpEndpoint::serve`] runs.
///
/// ```no_run
/// # async fn serve(host: &mcp_host::Host) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8808").await?;
/// let endpoint = host.open_http(listener)?;
/// println!("open");
/// endpoint.serve().await?;
/// # Ok(()) }
/// ```
#[must_use = "an endpoint serves no client until `serve`"]
pub struct HttpEndpoint {
    host: Host,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    socket: Option<StatusSocket>,
    threads: Arc<Threads>,
    access: Access,
    #[cfg(feature = "cluster")]
    channel: Option<http::Channel>,
    stop: CancellationToken,
}

impl std::fmt::Debug for HttpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpEndpoint").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Host {
    /// Opens Streamable HTTP at `/mcp`, HTTP+SSE at `/sse`, and the local socket for `mcp-host status`. Must be called
    /// inside a Tokio runtime.
    ///
    /// # Errors
    /// When `host.cluster.listen` cannot be listened at; when the listener is not on loopback and `host.auth`, or both `host.tls` and `host.insecureHttp`, are not set;
    /// when the files of `host.tls` cannot be used; or when another daemon serves this address.
    pub fn open_http(&self, listener: TcpListener) -> Result<HttpEndpoint, Error> {
        let listen = listener.local_addr().map_err(internal)?;
        let settings = self.0.manager.settings();
        if let Some((lacks, help)) = settings.lacks_for(listen) {
            return Err(Error::new(ErrorKind::Config, format!("{lacks}; {help}")));
        }
        let tls = acceptor(&settings)?;
        #[cfg(feature = "cluster")]
        let channel = super::replica::channel(self, &settings)?;
        let threads = self.threads(settings.thread_count()).map_err(internal)?;
        let socket = match StatusSocket::open(listen) {
            Ok(socket) => Some(socket),
            Err(error @ admin::Error::Running { .. }) => return Err(Error::from_source(ErrorKind::Config, error)),
            Err(error) => {
                tracing::warn!("no status socket: {error}");
                None
            }
        };
        // Without a socket, only the page can ask for what is recorded.
        if socket.is_some() || settings.console != Console::Off {
            self.0.manager.record().open();
        }
        self.0.manager.serves_page_at(listen);
        let (host, access, stop) = (self.clone(), Access::default(), self.0.stop.child_token());
        Ok(HttpEndpoint {
            host,
            listener,
            tls,
            socket,
            threads,
            access,
            #[cfg(feature = "cluster")]
            channel,
            stop,
        })
    }

    /// Opens the endpoint and serves it until the host shuts down.
    ///
    /// # Errors
    /// As [`Host::open_http`] and [`HttpEndpoint::serve`].
    pub async fn serve_http(&self, listener: TcpListener) -> Result<(), Error> {
        self.open_http(listener)?.serve().await
    }

    /// Checks that the TLS files of these settings can be used. Starts nothing.
    ///
    /// # Errors
    /// When a file cannot be used; the error names it.
    pub fn check_endpoint(settings: &HostSettings) -> Result<(), Error> {
        acceptor(settings).map(drop)
    }

    /// Returns the threads for connections, and starts them for the first endpoint. They stay as long as the host: what a
    /// connection began may outlive it.
    fn threads(&self, count: usize) -> std::io::Result<Arc<Threads>> {
        let mut kept = lock(&self.0.threads);
        if let Some(threads) = &*kept {
            return Ok(Arc::clone(threads));
        }
        Ok(Arc::clone(kept.insert(Arc::new(Threads::start(count)?))))
    }

    /// Waits until every thread that serves clients has run a task. It takes forever while one of them is blocked, so a
    /// program can tell a watchdog that it works.
    ///
    /// ```no_run
    /// # async fn beat(host: &mcp_host::Host) {
    /// host.turn().await;
    /// println!("no thread is blocked");
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn turn(&self) {
        let threads = lock(&self.0.threads).clone();
        if let Some(threads) = threads {
            threads.turn().await;
        }
    }

    /// Reloads the config for a request over the status socket; the error is text for a user.
    pub(super) async fn reload_now(&self) -> Result<Reload, String> {
        self.0.configured.reload().await.map_err(|error| error.to_string())
    }
}

impl HttpEndpoint {
    /// Makes a link to the page that shows what goes on, as `mcp-host open` does. Whoever has the link can begin one
    /// session with it.
    ///
    /// ```no_run
    /// # fn show(endpoint: &mcp_host::HttpEndpoint) -> Result<(), mcp_host::admin::Refused> {
    /// use mcp_host::admin::OpenRequest;
    ///
    /// println!("{}", endpoint.page_link(OpenRequest::default().shown())?.url);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the config allows no page (`host.console`), or not at the address of this endpoint.
    pub fn page_link(&self, request: OpenRequest) -> Result<PageLink, Refused> {
        let listen = self.listener.local_addr().map_err(|error| Refused::because(error.to_string()))?;
        self.host.page_link(&self.access, listen, request)
    }

    /// Serves until the host shuts down.
    ///
    /// # Errors
    /// When the listener cannot be used, or no HTTP client can be made to ask the issuer of `host.auth`.
    pub async fn serve(self) -> Result<(), Error> {
        #[cfg(feature = "cluster")]
        let channel = self.channel;
        let Self { host, listener, tls, socket, threads, access, stop, .. } = self;
        let listen = listener.local_addr().map_err(internal)?;
        let guests = Guests::default();
        let status = async {
            if let Some(socket) = &socket {
                let sign_in = |request| host.sign_in(request);
                let guest = |arrival| host.receive(arrival, socket.boot(), &guests, &stop);
                let page = |request| host.page(&access, listen, request);
                let restart = |server: &str| host.0.configured.restart(server);
                let (router, run, deeds) = (host.0.router.clone(), socket.run().clone(), Arc::new(host.clone()));
                let console = Page::new(router, access.clone(), run, (Some(deeds), stop.clone()));
                let act = |request| host.act(&console, request);
                let answers = Answers { reload: || host.reload_now(), restart, sign_in, page, act };
                socket.serve(&host.0.router, answers, guest, &stop).await;
            }
        };
        let configured = host.0.manager.settings();
        let run = socket.as_ref().map_or_else(|| Run::new(Some(listen)), |socket| socket.run().clone());
        let settings = http::Settings {
            tls,
            sse: configured.sse,
            eras: host.0.eras,
            guests: guests.clone(),
            threads,
            access: access.clone(),
            run,
            deeds: Some(Arc::new(host.clone())),
            kept: Arc::clone(&host.0.sessions),
            #[cfg(feature = "cluster")]
            channel,
        };
        let door = http::serve(host.0.router.clone(), listener, settings, stop.clone());
        let (served, ()) = host.0.doors.track_future(futures_util::future::join(door, status)).await;
        served.map_err(internal)
    }
}

fn acceptor(settings: &HostSettings) -> Result<Option<TlsAcceptor>, Error> {
    let acceptor = settings.tls.as_ref().map(http::tls::acceptor).transpose();
    acceptor.map_err(|error| Error::new(ErrorKind::Config, error.to_string()))
}

fn internal(error: std::io::Error) -> Error {
    Error::from_source(ErrorKind::Internal, error)
}
