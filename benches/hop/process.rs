//! Child processes: this binary in one of its roles, or the host. Dropping the handle of a child kills it, by its own
//! id.
//!
//! This module also has what a role needs in the child: its standard streams, and a port that is served until standard
//! input ends.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

/// How long a process may take to become ready.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often to check whether a port is open. It is far shorter than any measured time.
const LOOK: Duration = Duration::from_micros(200);

/// The role of this binary when the bench starts it again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// The echo server on its standard streams.
    EchoStdio { tools: usize },
    /// The echo server over Streamable HTTP.
    EchoHttp { port: u16, tools: usize },
    /// The same server; each of its answers is an event stream.
    EchoEvents { port: u16, tools: usize },
    /// Parses HTTP and passes it on to another port.
    FloorHttp { port: u16, upstream: u16 },
    /// Serves HTTP, with an echo server on pipes behind it.
    FloorBridge { port: u16, tools: usize },
}

impl Role {
    pub(crate) fn arguments(self) -> Vec<String> {
        let (name, numbers) = match self {
            Self::EchoStdio { tools } => ("--echo-stdio", vec![tools]),
            Self::EchoHttp { port, tools } => ("--echo-http", vec![port.into(), tools]),
            Self::EchoEvents { port, tools } => ("--echo-events", vec![port.into(), tools]),
            Self::FloorHttp { port, upstream } => ("--floor-http", vec![port.into(), upstream.into()]),
            Self::FloorBridge { port, tools } => ("--floor-bridge", vec![port.into(), tools]),
        };
        std::iter::once(name.to_owned()).chain(numbers.iter().map(ToString::to_string)).collect()
    }

    /// Parses what `arguments` wrote. Returns `None` if this process is the bench itself.
    pub(crate) fn parse(arguments: &[String]) -> Result<Option<Self>> {
        let number = |at: usize| -> Result<usize> {
            arguments
                .get(at)
                .with_context(|| format!("{arguments:?}: a number is missing"))?
                .parse()
                .context("a number")
        };
        let port = |at: usize| -> Result<u16> { u16::try_from(number(at)?).context("a port") };
        Ok(match arguments.first().map(String::as_str) {
            Some("--echo-stdio") => Some(Self::EchoStdio { tools: number(1)? }),
            Some("--echo-http") => Some(Self::EchoHttp { port: port(1)?, tools: number(2)? }),
            Some("--echo-events") => Some(Self::EchoEvents { port: port(1)?, tools: number(2)? }),
            Some("--floor-http") => Some(Self::FloorHttp { port: port(1)?, upstream: port(2)? }),
            Some("--floor-bridge") => Some(Self::FloorBridge { port: port(1)?, tools: number(2)? }),
            _ => None,
        })
    }
}

/// A running child; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: u32,
}

impl Process {
    /// Starts this binary in a role that listens on a port. Its standard input is its lifeline, so the child ends with
    /// this process.
    pub(crate) fn start(role: Role) -> Result<Self> {
        let mut command = itself(role)?;
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Self::spawn(command)
    }

    /// Starts this binary in a role that speaks over its pipes.
    pub(crate) fn piped(role: Role) -> Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = itself(role)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::spawn(command)?;
        let stdin = process.child.stdin.take().expect("asked for above");
        let stdout = process.child.stdout.take().expect("asked for above");
        Ok((process, stdin, stdout))
    }

    /// Starts a program.
    pub(crate) fn spawn(mut command: Command) -> Result<Self> {
        let name = command.as_std().get_program().to_owned();
        let child = command.kill_on_drop(true).spawn().with_context(|| format!("cannot start {}", name.display()))?;
        let pid = child.id().expect("not yet waited for");
        Ok(Self { child, pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the process accepts connections on `port`.
    #[expect(clippy::disallowed_methods, reason = "it blocks, and nothing else runs at this time")]
    pub(crate) fn wait_for(&mut self, port: u16) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(loopback(port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("ended before it listened on port {port}: {status}");
            }
            if started.elapsed() > PATIENCE {
                bail!("does not listen on port {port} after {PATIENCE:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Closes the standard input of the process, and kills it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.kill().await.context("cannot end a child")
    }
}

/// Returns the command that starts this binary in a role.
pub(crate) fn itself(role: Role) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.args(role.arguments());
    Ok(command)
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(loopback(0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Accepts connections on a loopback port and serves each with its own service, until standard input ends.
pub(crate) async fn accept<S, F, B, E>(port: u16, mut service: impl FnMut() -> S) -> io::Result<()>
where
    S: Fn(Request<Incoming>) -> F + 'static,
    F: Future<Output = Result<Response<B>, E>> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
    E: std::error::Error + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::bind(loopback(port)).await?;
    let mut lifeline = standard_input()?;
    let mut connections = JoinSet::new();
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = lifeline.read_u8() => return Ok(()),
                    Some(_) = connections.join_next() => continue,
                };
                let (stream, _) = accepted?;
                stream.set_nodelay(true)?;
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(service()));
                // A broken connection is its client's problem.
                connections.spawn_local(async move { connection.await.ok() });
            }
        })
        .await
}

/// Returns standard input, without a thread between the runtime and the pipe.
#[cfg(unix)]
pub(crate) fn standard_input() -> io::Result<impl AsyncRead + Unpin> {
    use std::os::fd::AsFd as _;
    tokio::net::unix::pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)
}

#[cfg(unix)]
pub(crate) fn standard_output() -> io::Result<impl AsyncWrite + Unpin> {
    use std::os::fd::AsFd as _;
    tokio::net::unix::pipe::Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as on Unix")]
pub(crate) fn standard_input() -> io::Result<impl AsyncRead + Unpin> {
    Ok(tokio::io::stdin())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as on Unix")]
pub(crate) fn standard_output() -> io::Result<impl AsyncWrite + Unpin> {
    Ok(tokio::io::stdout())
}
