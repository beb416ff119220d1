//! The status socket on Unix: `<directory>/<port>.sock`, beside a lock file that names its holder.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::acts::CALL;
use super::at::At;
use super::client::{Hello, Introduction};
use super::feed::{FEED, HELD};
use super::{AskError, Error};
use crate::keep;
use crate::lineage;

/// How long to wait for the reply to a request that the daemon answers by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the daemon may take for any request, and how long to wait for the reply if it asks authorization servers,
/// each with its own timeout.
const ASKING: Duration = Duration::from_secs(60);
/// How long a new connection may take for each line that introduces it.
const TALK: Duration = Duration::from_secs(1);
/// How many new connections are read at once; others wait.
const COMERS: usize = 64;
/// How many requests are answered at once. `WAITING` may be unanswered in all; requests beyond that are dropped.
const ASKERS: usize = 8;
const WAITING: usize = 64;
/// How long to stop accepting after `accept` failed.
const PAUSE: Duration = Duration::from_millis(100);
/// How many feeds, and connections of logins, are served or refused at once. Those beyond that are dropped.
const FEEDS: usize = 64;
/// How many calls run at once. Those beyond that are dropped.
const CALLS: usize = 64;
const REQUEST_BYTES: u64 = 16 * 1024;
pub(super) const ANSWER_BYTES: u64 = 64 * 1024 * 1024;

/// An open socket and its lock.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The lock is released when the file is closed, however the process ends.
    _lock: File,
}

/// Lists the directories for sockets, best first.
pub(super) fn directories() -> Vec<PathBuf> {
    let named = ["XDG_RUNTIME_DIR", "XDG_STATE_HOME"].into_iter().filter_map(variable);
    let mut directories: Vec<PathBuf> = Vec::new();
    for directory in named.map(|path| path.join("mcp-host")).chain(home()) {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

/// Lists the directories for the socket of a daemon, best first. A daemon without a port has only one, in the user's
/// home, which every process with its config knows whatever other environment variables it inherited: otherwise two
/// such processes would start a daemon each.
pub(super) fn directories_of(at: &At) -> Vec<PathBuf> {
    match at {
        At::Port(_) => directories(),
        At::Config(_) => home().into_iter().collect(),
    }
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(|home| home.join(".local/state/mcp-host"))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

impl Socket {
    /// Opens the socket in the first usable directory. `note` is the address or name that the lock file states.
    pub(super) fn open(directories: &[PathBuf], at: &At, note: &str) -> Result<Self, Error> {
        let mut result = Err(Error::NoDirectory);
        for directory in directories {
            result = match prepare(directory) {
                Ok(()) => return Self::open_in(directory, at, note),
                Err(source) => Err(Error::Make { path: directory.clone(), source }),
            };
        }
        result
    }

    fn open_in(directory: &Path, at: &At, note: &str) -> Result<Self, Error> {
        let lock = lock(&directory.join(format!("{}.lock", at.word())), note)?;
        let path = directory.join(format!("{}.sock", at.word()));
        let make = || {
            // We hold the lock, so an existing socket is left over from a daemon that crashed.
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        match make() {
            Ok(listener) => Ok(Self { listener, path, _lock: lock }),
            Err(source) => Err(Error::Make { path, source }),
        }
    }

    /// Answers until `stop`, then waits until the last guest leaves and the last call has ended.
    pub(super) async fn serve<F, E, G>(
        &self,
        reply: impl Fn(Vec<u8>, Peer) -> F,
        feed: impl Fn(Vec<u8>, Asker) -> E,
        guest: impl Fn(Arrival) -> G,
        stop: &CancellationToken,
    ) where
        F: Future<Output = String>,
        E: Future<Output = io::Result<()>>,
        G: Future<Output = ()>,
    {
        let mut comers = FuturesUnordered::new();
        let places = Semaphore::new(ASKERS);
        let mut askers = FuturesUnordered::new();
        let (mut feeds, mut calls) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut guests = FuturesUnordered::new();
        let mut pause = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => pause = None,
                accepted = self.listener.accept(), if pause.is_none() && comers.len() < COMERS => match accepted {
                    Ok((stream, _)) => comers.push(timeout(TALK, come(stream))),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept on the status socket");
                        pause = Some(Instant::now() + PAUSE);
                    }
                },
                // A connection that closes early or takes too long gets no answer.
                Some(come) = comers.next() => match come {
                    Ok(Ok(Some(Came::Guest(arrival)))) => guests.push(guest(arrival)),
                    Ok(Ok(Some(Came::Feed(asker, request)))) if request.starts_with(CALL) && calls.len() < CALLS => {
                        calls.push(feed(request, asker));
                    }
                    Ok(Ok(Some(Came::Feed(asker, request)))) if !request.starts_with(CALL) && feeds.len() < FEEDS => {
                        feeds.push(feed(request, asker));
                    }
                    Ok(Ok(Some(Came::Asker(stream, request)))) if askers.len() < WAITING => {
                        askers.push(timeout(ASKING, answer(stream, request, &reply, &places)));
                    }
                    _ => {}
                },
                Some(_) = askers.next() => {}
                Some(_) = feeds.next() => {}
                Some(_) = calls.next() => {}
                Some(()) = guests.next() => {}
            }
        }
        // Feeds end here. From here on no new client finds the socket. Connected guests are told that the daemon stops,
        // and leave.
        drop(feeds);
        let _ = std::fs::remove_file(&self.path);
        while guests.next().await.is_some() {}
        while calls.next().await.is_some() {}
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The lock is still held, so both are our own.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("lock"));
    }
}

/// Creates the directory if necessary, and makes it accessible to this user only.
pub(super) fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = directory.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Locks the file at `path`, and writes into it who holds it.
fn lock(path: &Path, listen: &str) -> Result<File, Error> {
    let make = |source: io::Error| Error::Make { path: path.to_owned(), source };
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = loop {
        let mut file = open().map_err(make)?;
        if !keep::try_lock(&file).map_err(make)? {
            let (pid, at) = holder(&mut file);
            return Err(Error::Running { listen: at.unwrap_or_else(|| listen.to_owned()), pid });
        }
        // A daemon removes its lock as it stops, perhaps after this one was opened.
        if is_at(&file, path) {
            break file;
        }
    };
    let note = || {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{} {listen}", std::process::id())
    };
    let mut note = note;
    note().map_err(make)?;
    Ok(file)
}

/// Reports whether the file is the one that the path leads to.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |metadata: io::Result<Metadata>| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino()));
    place(file.metadata()) == place(path.metadata())
}

/// Returns the id of the process that holds the lock on an address's port, if one does.
pub(super) fn serving(directories: &[PathBuf], listen: SocketAddr) -> Option<u32> {
    directories.iter().find_map(|directory| {
        let mut lock = File::open(directory.join(format!("{}.lock", listen.port()))).ok()?;
        if keep::is_held(&lock) { holder(&mut lock).0 } else { None }
    })
}

/// Returns the process id and the address of a lock's holder, as the lock file states them.
fn holder(lock: &mut File) -> (Option<u32>, Option<String>) {
    let mut note = String::new();
    // The text is short; if it cannot be read, the holder stays unknown.
    let _ = lock.take(128).read_to_string(&mut note);
    let mut words = note.split_whitespace();
    (words.next().and_then(|pid| pid.parse().ok()), words.next().map(str::to_owned))
}

/// A process that wants to become a client of the daemon.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(super) introduction: Introduction,
    stream: UnixStream,
    /// Bytes after the last line that was read.
    rest: Vec<u8>,
}

impl Arrival {
    /// Sends a line.
    pub(super) async fn say(&mut self, what: &impl serde::Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
        line.push(b'\n');
        timeout(TALK, self.stream.write_all(&line)).await?
    }

    /// Reads the next line.
    pub(super) async fn line(&mut self) -> io::Result<Vec<u8>> {
        let rest = std::mem::take(&mut self.rest);
        let (line, rest) = timeout(TALK, line(&mut self.stream, rest)).await??;
        self.rest = rest;
        Ok(line)
    }

    /// Returns the reading and writing ends of the connection, on which MCP follows.
    pub(crate) fn pipes(self) -> (impl tokio::io::AsyncRead + Unpin + Send, impl tokio::io::AsyncWrite + Unpin + Send) {
        let (input, output) = self.stream.into_split();
        (tokio::io::AsyncReadExt::chain(io::Cursor::new(self.rest), input), output)
    }
}

/// Returns the next line, and the bytes read after it. A line may lack its newline: the end of the stream, or
/// `REQUEST_BYTES`, ends it.
async fn line(stream: &mut UnixStream, mut read: Vec<u8>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    loop {
        if let Some(at) = read.iter().position(|byte| *byte == b'\n') {
            let rest = read.split_off(at + 1);
            return Ok((read, rest));
        }
        let left = REQUEST_BYTES.saturating_sub(read.len() as u64);
        if left == 0 || stream.take(left).read_buf(&mut read).await? == 0 {
            return Ok((read, Vec::new()));
        }
    }
}

/// The process at the other end of a connection, by its id if the system tells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(Option<u32>);

impl Peer {
    fn of(stream: &UnixStream) -> Self {
        Self(stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok()))
    }

    /// Reports whether a host's server has started the process, so that no person may be behind it.
    pub(super) async fn is_below_a_host(self) -> bool {
        match self.0 {
            Some(pid) => keep::done(move || lineage::is_above(pid)).await,
            None => false,
        }
    }
}

/// A process whose request is answered by many lines.
#[derive(Debug)]
pub(super) struct Asker(UnixStream);

impl Asker {
    /// Returns the process that asked.
    pub(super) fn peer(&self) -> Peer {
        Peer::of(&self.0)
    }

    /// Returns the reading and writing ends of the connection.
    pub(super) fn pipes(self) -> (impl tokio::io::AsyncRead + Unpin + Send, impl tokio::io::AsyncWrite + Unpin + Send) {
        self.0.into_split()
    }
}

/// A connection to a daemon that sends many lines.
pub(super) type Feed = UnixStream;

/// A new connection, classified by its first line.
enum Came {
    Guest(Arrival),
    Feed(Asker, Vec<u8>),
    Asker(UnixStream, Vec<u8>),
}

/// Reads the first line, if the connection is from our user.
async fn come(mut stream: UnixStream) -> io::Result<Option<Came>> {
    if stream.peer_cred()?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    let (request, rest) = line(&mut stream, Vec::new()).await?;
    Ok(Some(match serde_json::from_slice(&request) {
        Ok(Hello { client }) => Came::Guest(Arrival { introduction: client, stream, rest }),
        Err(_) if [FEED, HELD, CALL].iter().any(|begin| request.starts_with(begin)) => {
            Came::Feed(Asker(stream), request)
        }
        Err(_) => Came::Asker(stream, request),
    }))
}

async fn answer<F>(
    mut stream: UnixStream,
    request: Vec<u8>,
    reply: &impl Fn(Vec<u8>, Peer) -> F,
    places: &Semaphore,
) -> io::Result<()>
where
    F: Future<Output = String>,
{
    // The semaphore is never closed.
    let _place = places.acquire().await.map_err(io::Error::other)?;
    let answer = reply(request, Peer::of(&stream)).await;
    stream.write_all(answer.as_bytes()).await?;
    stream.write_all(b"\n").await?;
    stream.shutdown().await
}

/// Asks the daemon on this port or, without a port, the only daemon.
pub(super) async fn ask(directories: &[PathBuf], port: Option<u16>, what: &str) -> Result<String, AskError> {
    let (path, stream) = connect(directories, port).await?;
    put(stream, path, what).await
}

/// Asks the daemon on this port or, without a port, the only daemon, for many lines. Returns the path of its socket, too.
pub(super) async fn ask_for_feed(
    directories: &[PathBuf],
    port: Option<u16>,
    what: &str,
) -> Result<(PathBuf, Feed), AskError> {
    let (path, mut stream) = connect(directories, port).await?;
    let written = timeout(PATIENCE, stream.write_all(format!("{what}\n").as_bytes())).await;
    match written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(()) => Ok((path, stream)),
        Err(source) => Err(AskError::Silent { path, source }),
    }
}

async fn connect(directories: &[PathBuf], port: Option<u16>) -> Result<(PathBuf, UnixStream), AskError> {
    let mut living = Vec::new();
    for path in directories.iter().flat_map(|directory| sockets(directory, port)) {
        if let Ok(stream) = UnixStream::connect(&path).await {
            living.push((path, stream));
        }
    }
    let Some((path, stream)) = living.pop() else { return Err(AskError::NotRunning { port }) };
    if port.is_none() && !living.is_empty() {
        let mut listen: Vec<String> = living.iter().map(|(path, _)| address(path)).chain([address(&path)]).collect();
        listen.sort();
        return Err(AskError::Several { listen });
    }
    Ok((path, stream))
}

/// Asks the daemon behind this socket.
pub(super) async fn ask_at(path: &Path, what: &str) -> Result<String, AskError> {
    let stream =
        UnixStream::connect(path).await.map_err(|source| AskError::Silent { path: path.to_owned(), source })?;
    put(stream, path.to_owned(), what).await
}

async fn put(stream: UnixStream, path: PathBuf, what: &str) -> Result<String, AskError> {
    let patience = if what.starts_with('{') { ASKING } else { PATIENCE };
    let answer = timeout(patience, said(stream, what)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    answer.map_err(|source| AskError::Silent { path, source })
}

/// Lists the sockets in a directory, live or stale.
fn sockets(directory: &Path, port: Option<u16>) -> Vec<PathBuf> {
    if let Some(port) = port {
        return vec![directory.join(format!("{port}.sock"))];
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
}

/// Returns the address of the daemon behind a socket, or else the socket's name.
fn address(socket: &Path) -> String {
    let noted = File::open(socket.with_extension("lock")).ok().and_then(|mut lock| holder(&mut lock).1);
    noted.unwrap_or_else(|| socket.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}

async fn said(mut stream: UnixStream, what: &str) -> io::Result<String> {
    stream.write_all(format!("{what}\n").as_bytes()).await?;
    let mut line = String::new();
    stream.take(ANSWER_BYTES).read_to_string(&mut line).await?;
    if line.pop() != Some('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}
