//! The client side of the daemon's socket: finds the sockets of this user's daemons and asks one to admit us.
//!
//! The code blocks and needs no async runtime: most processes that join do not have one yet.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::at::At;
use super::client::{self, Hello, Introduction, Refusal};
use super::guests::{EnvProofs, OK, Reply, ReplyBody};
use crate::hex;

/// How long a daemon may take for each line.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest line from a daemon, in bytes.
const LINE: usize = 16 * 1024;
/// How many characters of a refusal are shown.
const MOST_WORDS: usize = 500;

/// A connection to a daemon that admitted us. MCP follows on it.
///
/// ```
/// # fn show(joined: &mcp_host::admin::Joined) {
/// println!("{} speaks MCP over {:?}", joined.at, joined.stream);
/// # }
/// ```
#[derive(Debug)]
pub struct Joined {
    /// The connection to the daemon.
    pub stream: UnixStream,
    /// Identifies this run of the daemon.
    pub boot: String,
    /// Which daemon it is.
    pub at: At,
    /// The path of the daemon's socket.
    pub path: PathBuf,
}

/// Why joining failed.
///
/// ```no_run
/// use mcp_host::admin::{Introduction, NotJoined, join};
///
/// match join(&Introduction::to_any(), None) {
///     Ok(joined) => println!("joined {}", joined.at),
///     Err(NotJoined::NotRunning) => println!("no daemon runs"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotJoined {
    /// No daemon runs.
    #[error("no mcp-host is running")]
    NotRunning,
    /// The daemon did not answer.
    #[error("{at} did not answer")]
    Silent {
        /// Which daemon.
        at: At,
    },
    /// The daemon's answer does not fit this version's dialog.
    #[error("{at} is a different version and takes no clients of this one")]
    Old {
        /// Which daemon.
        at: At,
    },
    /// The daemon refused.
    #[error("{at} cannot be used: {why}")]
    No {
        /// Which daemon.
        at: At,
        /// The kind of refusal.
        no: Refusal,
        /// The reason, in the daemon's words.
        why: String,
    },
    /// Several daemons run, and we have no config to tell which is ours.
    #[error("more than one mcp-host is running")]
    Several,
}

/// Joins the named daemon, or the first that admits us.
///
/// # Errors
/// When no daemon admits us. If several refuse, the error is from the closest match: a daemon with our config rather
/// than another.
pub fn join(client: &Introduction, named: Option<&At>) -> Result<Joined, NotJoined> {
    join_in(&directories(), client, named)
}

pub(super) fn join_in(directories: &[PathBuf], client: &Introduction, named: Option<&At>) -> Result<Joined, NotJoined> {
    let mut found = sockets(directories);
    found.retain(|(at, _)| named.is_none_or(|named| named == at));
    let living = found.into_iter().filter_map(|(at, path)| Some((connect(&path)?, at, path)));
    let mut living = living.peekable();
    if named.is_none() && client.takes_any() {
        let one = living.next();
        if living.peek().is_some() {
            return Err(NotJoined::Several);
        }
        return one.map_or(Err(NotJoined::NotRunning), |(stream, at, path)| talk(stream, client, at, path));
    }
    let mut nearest = NotJoined::NotRunning;
    for (stream, at, path) in living {
        match talk(stream, client, at, path) {
            Ok(joined) => return Ok(joined),
            // The refusal by a daemon with our config says more than that by a daemon with another config.
            Err(error) if nearest == NotJoined::NotRunning || is_other_config(&nearest) => nearest = error,
            Err(_) => {}
        }
    }
    Err(nearest)
}

fn is_other_config(error: &NotJoined) -> bool {
    matches!(error, NotJoined::No { no: Refusal::Config, .. })
}

/// Lists the directories where a daemon of this user may have its socket. Programs that start us pass on few
/// environment variables, so this includes the directory that is known without any.
fn directories() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
    let home = variable("HOME").map(|home| home.join(".local/state"));
    let places = [variable("XDG_RUNTIME_DIR"), Some(runtime), variable("XDG_STATE_HOME"), home];
    let mut directories: Vec<PathBuf> = Vec::new();
    for place in places.into_iter().flatten().map(|path| path.join("mcp-host")) {
        if !directories.contains(&place) {
            directories.push(place);
        }
    }
    directories
}

/// Lists the sockets, live or stale: directories in order and, in each directory, the lowest port first.
fn sockets(directories: &[PathBuf]) -> Vec<(At, PathBuf)> {
    let mut found = Vec::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut here: Vec<(At, PathBuf)> = paths.filter_map(|path| Some((At::of_socket(&path)?, path))).collect();
        here.sort();
        found.extend(here);
    }
    found
}

/// Connects to a socket that belongs to this user and has a process of this user behind it.
fn connect(path: &Path) -> Option<UnixStream> {
    let own = rustix::process::geteuid().as_raw();
    if std::fs::symlink_metadata(path).ok()?.uid() != own {
        return None;
    }
    let stream = open(path).ok()?;
    (peer(&stream)? == own).then_some(stream)
}

/// Connects without blocking: a suspended daemon accepts no connections, and its queue may be full.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(not(target_os = "linux"))]
fn open(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}

/// Returns the user id of the process at the other end.
#[cfg(target_os = "linux")]
fn peer(stream: &UnixStream) -> Option<u32> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw())
}

/// Assumes our own user: on this system, the protection is that the folder is closed to other users and the socket is
/// ours.
#[cfg(not(target_os = "linux"))]
fn peer(_: &UnixStream) -> Option<u32> {
    Some(rustix::process::geteuid().as_raw())
}

fn talk(mut stream: UnixStream, client: &Introduction, at: At, path: PathBuf) -> Result<Joined, NotJoined> {
    match introduced(&mut stream, client) {
        Ok(Ok(boot)) => Ok(Joined { stream, boot, at, path }),
        Ok(Err((no, why))) => Err(NotJoined::No { at, no, why: escaped(&why) }),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(NotJoined::Old { at }),
        Err(_) => Err(NotJoined::Silent { at }),
    }
}

/// Escapes text for a terminal, and shortens it to [`MOST_WORDS`] characters.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(MOST_WORDS) {
        // Writing to a string cannot fail.
        let _ = crate::protocol::escape(&mut out, c);
    }
    out
}

/// Returns the boot id of the daemon that admitted us, or its refusal.
fn introduced(stream: &mut UnixStream, client: &Introduction) -> io::Result<Result<String, (Refusal, String)>> {
    say(stream, &Hello { client: client.clone() })?;
    let mut rest = Vec::new();
    let (boot, salt, compare) = match said(stream, &mut rest)? {
        ReplyBody::No { no, why } => return Ok(Err((no, why))),
        ReplyBody::Prove { boot, salt, compare } => (boot, salt, compare),
        ReplyBody::Word(_) => return Err(io::ErrorKind::InvalidData.into()),
    };
    if !compare.is_empty() {
        let mut bytes = vec![0; salt.len() / 2];
        hex::decode(salt.as_bytes(), &mut bytes).ok_or(io::ErrorKind::InvalidData)?;
        say(stream, &EnvProofs { env: client::proofs(&bytes, &compare) })?;
    }
    match said(stream, &mut rest)? {
        ReplyBody::Word(word) if word == OK && rest.is_empty() => {}
        ReplyBody::No { no, why } => return Ok(Err((no, why))),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(Ok(boot))
}

fn say(stream: &mut UnixStream, what: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line)
}

/// Reads the daemon's next line. Bytes after it stay in `rest`.
fn said(stream: &mut UnixStream, rest: &mut Vec<u8>) -> io::Result<ReplyBody> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let after = rest.split_off(at + 1);
            let line = std::mem::replace(rest, after);
            let reply: Reply = serde_json::from_slice(&line).map_err(|_| io::ErrorKind::InvalidData)?;
            return Ok(reply.client);
        }
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece)?;
        if read == 0 || rest.len() > LINE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest.extend_from_slice(&piece[..read]);
    }
}
