//! The proxy for one connection of a confined server: HTTP (CONNECT and plain requests) and SOCKS5 at one port.
//!
//! In: a connection from the sandbox. Out: a tunnel to a host that the entry lists, or a refusal, which is counted
//! under the host's name. The content of a tunnel is not examined. `judge.rs` decides, `asked.rs` parses requests. The
//! proxy of a watched server without a sandbox admits everything, and counts what was requested. If this machine itself
//! uses a proxy, connections go through that one (`beyond.rs`). **Invariant:** only hosts that were judged are connected
//! to; a direct connection goes to the address that was judged.

mod asked;
mod beyond;
mod judge;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Host;

use self::asked::{Asked, Misread};
pub(super) use self::beyond::Beyond;
use self::beyond::{Reached, Via};
use self::judge::Refusal;
pub(super) use self::judge::Rules;
use crate::counts::ServerCounts;
use crate::dial::{explain, is_public};

/// How long a client may take to send its request.
const SAYS: Duration = Duration::from_secs(10);
/// How long a name may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(10);
/// The same where another proxy resolves it again: behind one, names often lead nowhere.
const GLANCE: Duration = Duration::from_secs(2);
/// How long a host may take to be connected to.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest head of a request, in bytes.
const HEAD: usize = 16 * 1024;
/// The most connections of one process at a time.
const MOST: usize = 256;
/// The user that a server names to its proxy, if others reach that, too.
pub(super) const USER: &str = "mcp-host";
/// The first byte of SOCKS5.
const SOCKS: u8 = 5;

/// The proxy of one server.
pub(super) struct Proxy {
    server: Arc<str>,
    rules: Rules,
    counts: Arc<ServerCounts>,
    beyond: Beyond,
    /// The credentials that clients have to send; `None` if only the server can reach the proxy.
    proof: Option<String>,
}

/// The protocol in which a client is answered.
#[derive(Clone, Copy)]
enum Tongue {
    Http,
    Socks,
}

impl Proxy {
    pub(super) fn new(server: Arc<str>, rules: Rules, counts: Arc<ServerCounts>) -> Self {
        Self { server, rules, counts, beyond: Beyond::nothing(), proof: None }
    }

    /// Connects by these proxies.
    pub(super) fn beyond(self, beyond: Beyond) -> Self {
        Self { beyond, ..self }
    }

    /// Serves only clients with this name and password (RFC 7617).
    pub(super) fn for_those_who_know(self, user: &str, password: &str) -> Self {
        let proof = BASE64_STANDARD.encode(format!("{user}:{password}"));
        Self { proof: Some(format!("Basic {proof}")), ..self }
    }

    /// Serves one connection until either end closes it.
    ///
    /// # Cancel safety
    /// A dropped future closes the connection.
    pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut client: S) -> io::Result<()> {
        let first = timeout(SAYS, client.read_u8()).await??;
        let tongue = if first == SOCKS { Tongue::Socks } else { Tongue::Http };
        let asked = match tongue {
            Tongue::Socks => timeout(SAYS, socks(&mut client)).await??.map(|asked| (asked, Vec::new())),
            Tongue::Http => timeout(SAYS, http(&mut client, first)).await??,
        };
        let (asked, rest) = match asked {
            Ok(asked) => asked,
            Err(misread) => return refuse(&mut client, tongue, Status::Misread, &misread.to_string()).await,
        };
        if self.proof.is_some() && self.proof != asked.proof {
            return refuse(&mut client, tongue, Status::Stranger, "this proxy is for one server").await;
        }
        let via = self.beyond.to(&asked);
        let judging = self.rules.judge(&asked.host, asked.port);
        let judging = timeout(if via.is_some() { GLANCE } else { RESOLVE }, judging);
        // A resolver that does not answer counts as one that does not know the name.
        let addresses = match judging.await.unwrap_or(Err(Refusal::Unknown)) {
            Ok(addresses) => addresses,
            // It is listed, and the other proxy may know it.
            Err(Refusal::Unknown) if via.is_some() => Vec::new(),
            Err(refusal) => return self.refused(&mut client, tongue, &asked, &refusal).await,
        };
        if self.rules.admit_all() {
            self.note(&asked, &addresses);
        }
        let reaching = timeout(CONNECT, reach(&asked, via.as_ref(), &addresses));
        let Reached { mut stream, said, head } = match reaching.await.unwrap_or_else(|_| Err(slow())) {
            Ok(reached) => reached,
            Err(error) => return refuse(&mut client, tongue, Status::Unreachable, &explain(&error)).await,
        };
        match head {
            Some(head) => stream.write_all(&head).await?,
            None => client.write_all(&[accepted(tongue), &said].concat()).await?,
        }
        stream.write_all(&rest).await?;
        copy_bidirectional(&mut client, &mut stream).await.map(|_| ())
    }

    /// Counts what a watched server requested: the host, and its addresses that would have to be listed themselves.
    fn note(&self, asked: &Asked, addresses: &[SocketAddr]) {
        self.counts.refused().count(&format!("{}:{}", asked.host, asked.port));
        let is_name = matches!(asked.host, Host::Domain(_));
        for address in addresses.iter().filter(|address| is_name && !is_public(address.ip())) {
            self.counts.refused().count(&address.to_string());
        }
    }

    /// Counts a refusal, logs the first one for each name, and answers the client.
    async fn refused<S: AsyncWrite + Unpin>(
        &self,
        client: &mut S,
        tongue: Tongue,
        asked: &Asked,
        refusal: &Refusal,
    ) -> io::Result<()> {
        // The name was parsed as a host name, so it cannot contain text that looks like ours.
        let name = format!("{}:{}", asked.host, asked.port);
        if *refusal == Refusal::Unknown {
            return refuse(client, tongue, Status::Unreachable, &format!("{name}: {refusal}")).await;
        }
        if self.counts.refused().count(&name) {
            tracing::warn!("server `{}`: its sandbox refused {name}: {refusal}", self.server);
        }
        refuse(client, tongue, Status::Refused, &format!("the sandbox of this server refused {name}: {refusal}")).await
    }
}

/// Serves connections from inside; `MOST` at a time, more wait.
pub(super) async fn accept(inside: &TcpListener, proxy: &Arc<Proxy>) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = inside.accept(), if connections.len() < MOST => {
                let (client, _) = match accepted {
                    Ok(accepted) => accepted,
                    // The client left before it was accepted.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    Err(error) => return Err(error),
                };
                let proxy = proxy.clone();
                connections.spawn(async move { proxy.serve(client).await });
            }
            // How a connection ended is for its two ends.
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

fn slow() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Connects to what was asked for: by another proxy, or at one of its addresses.
async fn reach(asked: &Asked, via: Option<&Via>, addresses: &[SocketAddr]) -> io::Result<Reached> {
    match via {
        Some(via) => via.connect(asked).await,
        None => Ok(Reached { stream: connect(addresses).await?, said: Vec::new(), head: asked.head.clone() }),
    }
}

async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Reads the head of an HTTP request whose first byte is known. Also returns the bytes after the head.
async fn http<S: AsyncRead + Unpin>(client: &mut S, first: u8) -> io::Result<Result<(Asked, Vec<u8>), Misread>> {
    let mut head = vec![first];
    let end = loop {
        if let Some(at) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if head.len() > HEAD {
            return Ok(Err(Misread::Form));
        }
        if client.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let rest = head.split_off(end);
    Ok(asked::http(&head).map(|asked| (asked, rest)))
}

/// Reads a SOCKS5 request after its first byte (RFC 1928), and answers its greeting.
async fn socks<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S) -> io::Result<Result<Asked, Misread>> {
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        client.write_all(&[SOCKS, 0xff]).await?;
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    client.write_all(&[SOCKS, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != SOCKS || command != 1 {
        return Ok(Err(Misread::Form));
    }
    let length = match kind {
        1 => 4,
        3 => client.read_u8().await?.into(),
        4 => 16,
        _ => return Ok(Err(Misread::Host)),
    };
    let (mut address, mut port) = (vec![0; length], [0; 2]);
    client.read_exact(&mut address).await?;
    client.read_exact(&mut port).await?;
    Ok(asked::socks(kind, &address, port))
}

/// Why there is no tunnel.
#[derive(Clone, Copy)]
enum Status {
    Misread,
    Stranger,
    Refused,
    Unreachable,
}

fn accepted(tongue: Tongue) -> &'static [u8] {
    match tongue {
        Tongue::Http => b"HTTP/1.1 200 Connection established\r\n\r\n",
        Tongue::Socks => &[SOCKS, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    }
}

async fn refuse<S: AsyncWrite + Unpin>(client: &mut S, tongue: Tongue, status: Status, why: &str) -> io::Result<()> {
    match tongue {
        Tongue::Http => {
            let status = match status {
                Status::Misread => "400 Bad Request",
                Status::Stranger => "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"mcp-host\"",
                Status::Refused => "403 Forbidden",
                Status::Unreachable => "502 Bad Gateway",
            };
            let body = format!("mcp-host: {why}\n");
            let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n", body.len());
            client.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await?;
        }
        Tongue::Socks => {
            let code = match status {
                Status::Misread => 7,
                Status::Refused | Status::Stranger => 2,
                Status::Unreachable => 4,
            };
            client.write_all(&[SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        }
    }
    client.shutdown().await
}

#[cfg(test)]
mod tests;
