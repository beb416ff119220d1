//! `mcp-host stdio` where a daemon of this user serves the same config: no host of its own, only a relay between the client
//! and the socket of the daemon.
//!
//! In: what the client says on stdin. Out: what the daemon answers, on stdout. It runs before the runtime and clap are there,
//! so that it starts in milliseconds and holds little memory. **Invariant:** each request of the client gets one answer,
//! whatever becomes of the daemon: from it, from the next one, from a host of this process, or from the relay. Start reading
//! at `pump.rs`.

mod ends;
mod kept;
mod own;
mod peer;
mod pump;
mod scan;
mod words;

use std::io::{self, IsTerminal as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use mcp_host::admin::{self, Introduction, Joined, NotJoined};
use mcp_host::config::LoadRequest;

use self::ends::{End, Ends, Source};
use self::pump::Pump;
pub(crate) use self::words::Words;
use crate::output::Output;
use crate::paint::When;
use crate::report::{Exit, Failure};

/// Serves the client by a daemon, if one lets us in; `None` where this process is to be a host itself.
pub(crate) fn attempt(words: &Words) -> Option<Exit> {
    let output = || Output::new(false, words.quiet, When::default());
    if words.own || (words.join.is_none() && !is_wanted()) {
        return None;
    }
    let port = words.join.map(|address| address.port());
    let Some(client) = introduction(words) else {
        return port.map(|_| refused("the config files are not there", &output()));
    };
    match admin::join(&client, port) {
        Ok(joined) => Some(relay(words, client, joined, &output())),
        Err(error) if port.is_some() => Some(refused(&error.to_string(), &output())),
        Err(NotJoined::NotRunning) => None,
        Err(error) => {
            output().remark(&format!("note: {error}; this process has a host of its own"));
            None
        }
    }
}

/// Whether a daemon may be joined that was not named. Below another host, that one's marks decide (`lineage`).
pub(crate) fn is_wanted() -> bool {
    let is_below = std::env::var_os("_MCP_HOST_CHAIN").is_some_and(|chain| !chain.is_empty());
    !is_below && std::env::var_os("MCP_HOST_JOIN").is_none_or(|join| join != "never")
}

/// What we say of ourselves: the config files that a host of this process would read.
fn introduction(words: &Words) -> Option<Introduction> {
    if words.join.is_some() {
        return Some(Introduction::to_any());
    }
    let (files, project) = files(&words.config);
    Introduction::of(&files, project, words.project.as_deref())
}

/// The config files, and whether they are a project's. There may be none: then any daemon will do.
pub(crate) fn files(named: &[PathBuf]) -> (Vec<PathBuf>, bool) {
    if named.is_empty() {
        return LoadRequest::from_process().standing().unwrap_or_default();
    }
    (named.to_vec(), false)
}

fn refused(why: &str, output: &Output) -> Exit {
    Failure::new(Exit::Unreachable, why)
        .help("mcp-host status lists the daemons; leave out --join for a host of its own")
        .tell(output)
}

/// Relays until the client is gone.
pub(crate) fn relay(words: &Words, client: Introduction, joined: Joined, output: &Output) -> Exit {
    output.remark(&format!("note: joined the mcp-host on port {}", joined.port));
    if io::stdin().is_terminal() {
        output.remark("note: this speaks MCP over stdin and stdout; a client is to start it");
    }
    let port = words.join.map(|address| address.port());
    let mut daemons = Daemons { words, client, port, output, own: None };
    let ended = Ends::new().and_then(|ends| Pump::new(&mut daemons, joined)?.run(&ends));
    if let Some(host) = daemons.own.take() {
        // A host of this process ends its servers, and has told what went wrong.
        let _ = host.join();
    }
    match ended {
        Ok(End::Done) => Exit::Ok,
        Ok(End::Failed) => Exit::Failed,
        Err(error) => Failure::new(Exit::Failed, format!("standard input or output: {error}")).tell(output),
    }
}

/// Where a relay finds its next daemon.
struct Daemons<'a> {
    words: &'a Words,
    client: Introduction,
    port: Option<u16>,
    output: &'a Output,
    own: Option<JoinHandle<()>>,
}

impl Source for Daemons<'_> {
    fn find(&mut self, asked: u64) -> Option<Joined> {
        admin::join(&self.client.clone().asked(asked), self.port).ok()
    }

    fn own(&mut self) -> io::Result<UnixStream> {
        let (stream, thread) = own::start(self.words, self.output)?;
        self.own = Some(thread);
        Ok(stream)
    }

    fn tell(&self, text: &str) {
        if text.starts_with("error") { self.output.talk(text) } else { self.output.remark(text) }
    }
}
