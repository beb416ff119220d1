//! The door: the way out of a sandbox with its own network. It is a socket that the launcher opens inside and passes to
//! mcp-host.
//!
//! The launcher listens on `127.0.0.1` in the sandbox's network, and sends the listening socket over a Unix socket in
//! the server's folder, once, before it becomes the server. mcp-host accepts connections on it from outside, because a
//! socket stays in the network in which it was created. So there is no process between the server and the proxy, and
//! nothing is left when the server ends. A watched server without a sandbox (`learn.rs`) has a door, too: a port of
//! this machine. **Invariant:** a door opens once for each start; the server never holds it.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::{SandboxHost, WATCHED};
use crate::counts::ServerCounts;
use crate::dial::system;
use crate::hex;
use crate::sandbox::proxy::{Beyond, Proxy, Rules, USER, accept};

/// The prefix of the names of doors.
const PREFIX: &str = "door-";
/// How long the launcher waits for mcp-host.
const PATIENCE: Duration = Duration::from_secs(10);
/// mcp-host's confirmation to the launcher.
const TAKEN: u8 = b'k';

/// mcp-host's end of the way out for one server process.
#[derive(Debug)]
pub(crate) struct Door {
    entrance: Entrance,
    hosts: Vec<SandboxHost>,
}

/// Where the connections of a server come in.
#[derive(Debug)]
enum Entrance {
    /// The network of its sandbox. The launcher connects here, and sends the socket that accepts the server's
    /// connections.
    Inside { listener: UnixListener, path: PathBuf },
    /// This machine, for a server that is watched without a sandbox. Clients have to send the password.
    Here { listener: TcpListener, password: String },
}

impl Door {
    /// Creates a door in the folder of a server.
    pub(super) fn make(folder: &Path, hosts: &[SandboxHost]) -> io::Result<Self> {
        clear(folder);
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let name = format!("{PREFIX}{}", hex::encode(&name));
        let listener = near(folder, &name, UnixListener::bind)?;
        listener.set_nonblocking(true)?;
        Ok(Self { entrance: Entrance::Inside { listener, path: folder.join(name) }, hosts: hosts.to_owned() })
    }

    /// Creates a door for a server without a sandbox, which admits every host. Also returns the URL of the proxy.
    pub(super) fn open() -> io::Result<(Self, String)> {
        let mut password = [0; 16];
        getrandom::fill(&mut password).map_err(io::Error::other)?;
        let password = hex::encode(&password);
        let listener = TcpListener::bind((WATCHED, 0))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{USER}:{password}@{}", listener.local_addr()?);
        Ok((Self { entrance: Entrance::Here { listener, password }, hosts: Vec::new() }, url))
    }

    /// Returns the path at which the launcher finds the door; `None` if there is no launcher.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.entrance {
            Entrance::Inside { path, .. } => Some(path),
            Entrance::Here { .. } => None,
        }
    }

    /// Receives the listening socket that the launcher of the sandbox opened inside, and serves its connections until `stop`.
    ///
    /// # Cancel safety
    /// A dropped future closes the door and all connections.
    pub(crate) async fn serve(self: Arc<Self>, server: Arc<str>, counts: Arc<ServerCounts>, stop: CancellationToken) {
        let beyond = Beyond::of_environment();
        let serving = async {
            match &self.entrance {
                Entrance::Inside { listener, .. } => {
                    let inside = opened(listener).await?;
                    let rules = Rules::listed(self.hosts.clone(), system());
                    accept(&inside, &Arc::new(Proxy::new(server.clone(), rules, counts).beyond(beyond))).await
                }
                Entrance::Here { listener, password } => {
                    let here = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
                    let proxy = Proxy::new(server.clone(), Rules::all(system()), counts).beyond(beyond);
                    accept(&here, &Arc::new(proxy.for_those_who_know(USER, password))).await
                }
            }
        };
        if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
            tracing::warn!("server `{server}`: the network proxy of its sandbox does not run: {error}");
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(path) = self.path() {
            // A launcher may have connected and left.
            let _ = fs::remove_file(path);
        }
    }
}

/// Waits for the launcher, and takes the socket that it sends. A client that sends no socket is not the launcher.
async fn opened(door: &UnixListener) -> io::Result<tokio::net::TcpListener> {
    let door = tokio::net::UnixListener::from_std(door.try_clone()?)?;
    loop {
        let (mut launcher, _) = door.accept().await?;
        let is_ours = launcher.peer_cred()?.uid() == rustix::process::geteuid().as_raw();
        let Ok(Ok(socket)) = timeout(PATIENCE, received(&launcher)).await else { continue };
        if !is_ours {
            continue;
        }
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        launcher.write_all(&[TAKEN]).await?;
        return Ok(listener);
    }
}

/// Removes doors of hosts that were killed.
fn clear(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let is_left = || near(folder, &name, UnixStream::connect).is_err();
        if name.starts_with(PREFIX) && is_left() {
            let _ = fs::remove_file(folder.join(name));
        }
    }
}

/// Uses a socket through a path that is short enough for a socket, however long the path of the folder is.
fn near<T>(folder: &Path, name: &str, socket: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    socket(Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

async fn received(launcher: &tokio::net::UnixStream) -> io::Result<OwnedFd> {
    loop {
        launcher.readable().await?;
        match launcher.try_io(Interest::READABLE, || receive(launcher)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            socket => return socket,
        }
    }
}

fn receive(launcher: &tokio::net::UnixStream) -> io::Result<OwnedFd> {
    let (mut space, mut byte) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [0]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(launcher, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut sent = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    sent.next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Connects the launcher to its host. The connection stays open across `exec`; returns its file descriptor.
pub(super) fn connect(path: &Path) -> io::Result<i32> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let host = near(folder, name, UnixStream::connect)?;
    host.set_read_timeout(Some(PATIENCE))?;
    rustix::io::fcntl_setfd(&host, FdFlags::empty())?;
    // `hand_over` uses the descriptor, or it is closed when this process exits.
    Ok(host.into_raw_fd())
}

/// Opens the door from inside: listens, and sends the socket to mcp-host. Returns the port.
pub(super) fn hand_over(number: i32) -> io::Result<u16> {
    let ourselves = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let mut host = UnixStream::from(rustix::process::pidfd_getfd(ourselves, number, PidfdGetfdFlags::empty())?);
    let inside = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = inside.local_addr()?.port();
    let sockets = [inside.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    rustix::net::sendmsg(&host, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    let mut answer = [0];
    host.read_exact(&mut answer)?;
    if answer == [TAKEN] { Ok(port) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;

    fn serving(folder: &Path, stop: &CancellationToken) -> (PathBuf, impl Future<Output = ()> + use<>) {
        let door = Arc::new(Door::make(folder, &["a.example".parse().expect("a host")]).expect("a door"));
        (door.path().expect("a path").to_owned(), door.serve("a".into(), Counts::default().of("a"), stop.clone()))
    }

    #[tokio::test]
    async fn h108_a_door_is_handed_over_and_goes_with_its_host() {
        let folder = tempfile::tempdir().expect("a folder");
        // A folder may have a longer path than a socket can.
        let folder = folder.path().join("long".repeat(40));
        fs::create_dir(&folder).expect("a folder");
        let stop = CancellationToken::new();
        let (path, serve) = serving(&folder, &stop);
        let serve = tokio::spawn(serve);
        let port = tokio::task::spawn_blocking(move || connect(&path).and_then(hand_over)).await.expect("it ends");
        let port = port.expect("a port");
        let connect = move || std::net::TcpStream::connect(("127.0.0.1", port));
        let got = tokio::task::spawn_blocking(move || {
            let mut client = connect()?;
            io::Write::write_all(&mut client, b"CONNECT b.example:443 HTTP/1.1\r\n\r\n")?;
            let mut got = String::new();
            client.read_to_string(&mut got).map(|_| got)
        });
        assert!(got.await.expect("it ends").expect("an answer").starts_with("HTTP/1.1 403 "));
        stop.cancel();
        serve.await.expect("it ends");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0, "nothing of it is left");
        assert!(connect().is_err());
    }

    #[test]
    fn h108_doors_of_killed_hosts_are_cleared_and_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(UnixListener::bind(folder.path().join("door-0")).expect("a socket"));
        let living = Door::make(folder.path(), &[]).expect("a door");
        let other = Door::make(folder.path(), &[]).expect("a door");
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
        names.sort();
        let mut expected: Vec<_> = [&living, &other].into_iter().filter_map(|door| door.path()).collect();
        expected.sort();
        assert_eq!(names, expected);
    }
}
