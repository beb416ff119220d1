//! Opens the transport of a lease: a process, or requests to a URL.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Link, Parts, read_memory, read_pipe};
use super::{Relay, Target, Upstream, World, renew};
use crate::config;
use crate::keep;
use crate::lineage;
use crate::protocol::meta;
use crate::sandbox::{self, Ready};
use crate::transport::{self, Error, Http, Ladder, Memory, Sse, Unstartable};
use crate::trees;

/// Returns the program that starts a server. For a locked tree, that is the tree's own program, after each file of the
/// tree is checked; for a sandboxed server, it is the launcher of the sandbox. If the package is fetched in a separate
/// step, fetches it first. `state` is the host's state directory.
///
/// # Cancel safety
/// A dropped future leaves behind only folders and the part of a package that was fetched.
pub(super) async fn prepared(
    upstream: Arc<Upstream>,
    stdio: config::Stdio,
    state: Option<Arc<Path>>,
) -> Result<Ready, Error> {
    let command = stdio.command.clone();
    let ready = ready(stdio, state).await?;
    let Some(first) = ready.first.clone() else { return Ok(ready) };
    let settings = &upstream.settings;
    let server = settings.server.clone();
    tracing::info!(server = &*server, "its package is fetched before its first start");
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let serving = async {
        if let Some(door) = &first.door {
            door.clone().serve(server.clone(), settings.announcer.counts().clone(), stop).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        done = transport::run(&first.stdio, server.clone(), upstream.new_tail()) => done?,
        () = serving => {}
    }
    let noted = keep::done(move || first.done()).await;
    noted.map_err(|error| Error::Spawn { command, reason: error.to_string() })?;
    Ok(ready)
}

async fn ready(stdio: config::Stdio, state: Option<Arc<Path>>) -> Result<Ready, Error> {
    let prepared = move || {
        let command = stdio.command.clone();
        let wrong = |reason: String| Error::Spawn { command: command.clone(), reason };
        let ready = match trees::is_locked(&stdio) {
            true => trees::program(&stdio).map_err(|error| wrong(format!("{error}; {}", error.help(&stdio))))?,
            false => stdio,
        };
        if !ready.is_confined() {
            return Ok(Ready::plain(ready));
        }
        // The launcher itself can always be started, so the program that it would start is checked here.
        if let Some(found) = Unstartable::of(&ready) {
            let reason = found.to_string();
            return Err(Error::Spawn { command: found.command, reason });
        }
        sandbox::start(ready, state.as_deref()).map_err(|error| wrong(error.to_string()))
    };
    keep::done(prepared).await
}

/// The host's own `_meta` keys that the user's own daemon may use.
const DAEMON: &[&str] = &[meta::HOST_ERROR, meta::HEARTBEAT, meta::CACHE, meta::FALLBACK, meta::HOST_ASKS];

/// Opens the transport and starts its reader. `program` replaces the entry's command, if there is one.
pub(super) fn connect(
    upstream: &Upstream,
    world: &World,
    tasks: &TaskTracker,
    program: Option<&Ready>,
) -> Result<Arc<Connection>, Error> {
    let settings = &upstream.settings;
    upstream.declares();
    let limits = &settings.limits;
    let parts = |link| Parts {
        server: settings.server.clone(),
        announcer: settings.announcer.clone(),
        link,
        relay: Relay { lease: upstream.id, sender: world.relay.clone() },
        binding: upstream.binding.clone(),
        roots: upstream.roots.clone(),
        client_info: settings.client_info.clone(),
        caps: settings.caps,
        pending_cap: limits.pending_per_server,
        queue: limits.server_queue,
        depth: limits.depth,
        stays: if settings.daemon { DAEMON } else { &[] },
        users: upstream.users.clone(),
        tasks: tasks.clone(),
        stop: CancellationToken::new(),
        nature: world.nature.clone(),
        renew: |connection, id| Box::pin(renew::revision(connection, id)),
    };
    let over_sse = |remote| {
        let sse = Sse::new(remote, &world.dialer, limits)?;
        Ok(Connection::new(parts(Link::Sse(Arc::new(sse)))))
    };
    match &settings.target {
        Target::Stdio(stdio) => {
            let sizes = transport::Limits { message: limits.message, queue: limits.server_queue, depth: limits.depth };
            let (mut stdio, door) = match program {
                Some(ready) => (ready.stdio.clone(), ready.door.clone()),
                None if stdio.is_confined() => {
                    let reason = "its sandbox was not prepared".to_owned();
                    return Err(Error::Spawn { command: stdio.command.clone(), reason });
                }
                None => (stdio.clone(), None),
            };
            if let Some(chain) = world.nature.lineage.chain() {
                // Added after the config's own variables, so that the config cannot override it by mistake.
                stdio.env.push((lineage::VARIABLE.to_owned(), config::Secret::new(chain)));
            }
            let (pipe, reader) = transport::spawn(&stdio, &sizes, settings.server.clone(), upstream.new_tail(), tasks)?;
            upstream.ran.store(true, Ordering::Relaxed);
            let connection = Connection::new(parts(Link::Pipe(pipe)));
            if let Some(door) = door {
                let (server, counts) = (settings.server.clone(), settings.announcer.counts().clone());
                tasks.spawn(door.serve(server, counts, connection.stop_token().clone()));
            }
            let ladder = Ladder { close: limits.stop_close, terminate: limits.stop_term, kill: world.kill.clone() };
            tasks.spawn(read_pipe(connection.clone(), reader, ladder));
            Ok(connection)
        }
        Target::Auto(remote, inferred) if inferred.is_sse() => over_sse(remote),
        Target::Sse(remote) => over_sse(remote),
        Target::Http(remote) | Target::Auto(remote, _) => {
            let http = Http::new(remote, &world.dialer, limits)?;
            Ok(Connection::new(parts(Link::Http(Arc::new(http)))))
        }
        Target::Memory(start) => {
            let (memory, messages, wire) = Memory::pair();
            start(wire, tasks);
            let connection = Connection::new(parts(Link::Memory(memory)));
            tasks.spawn(read_memory(connection.clone(), messages));
            Ok(connection)
        }
    }
}
