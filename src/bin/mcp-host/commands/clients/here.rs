//! The clients on this machine: their files, and the servers in them, with a mark for those that are mcp-host.

use std::collections::BTreeSet;
use std::path::PathBuf;

use mcp_host::config::clients::{self, Client, Folders};
use mcp_host::config::import::{self, Entry};
use mcp_host::config::{Config, LoadRequest, Server, Transport};
use mcp_host::edits;

use super::own::Own;
use super::same::Endpoint;
use crate::commands::edits::failures::failed;
use crate::hidden;
use crate::itself;
use crate::nearest::{nearest, question};
use crate::report::{Exit, Failure};

/// The name of the entry that links a client with mcp-host.
pub(super) const ENTRY: &str = "mcp-host";

/// A client, and the content of its file.
#[derive(Debug)]
pub(super) struct Here {
    pub(super) client: &'static Client,
    pub(super) file: PathBuf,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// The text of the file, and its servers.
    Read(String, Vec<Known>),
    /// The client is installed but has no file.
    Empty,
    Absent,
    Broken(Failure),
}

/// A server in a client's file.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: String,
    /// Its entry in our format, or why it cannot be converted.
    pub(super) entry: Result<Entry, String>,
    /// The entry as parsed.
    pub(super) server: Option<Server>,
    /// The keys that are not copied.
    pub(super) left: Vec<String>,
    pub(super) is_off: bool,
    /// Whether it is mcp-host.
    pub(super) is_host: bool,
}

impl Known {
    pub(super) fn endpoint(&self) -> Option<Endpoint<'_>> {
        Some(Endpoint { entry: self.entry.as_ref().ok(), server: self.server.as_ref()? })
    }

    /// Reports whether the client starts a process for it.
    pub(super) fn is_process(&self) -> bool {
        !self.is_off && self.server.as_ref().is_some_and(|server| matches!(server.transport, Transport::Stdio(_)))
    }
}

impl Here {
    fn look(client: &'static Client, folders: &Folders, own: &Own) -> Option<Self> {
        let files = client.files(folders);
        let there = files.iter().find(|file| std::fs::symlink_metadata(file).is_ok());
        let file = there.or(files.first())?.clone();
        let state = match (there, edits::read(&file)) {
            (None, _) | (_, Ok(None)) => match client.sign(folders) {
                Some(sign) if sign.exists() => State::Empty,
                _ => State::Absent,
            },
            (Some(_), Err(error)) => State::Broken(failed(error, &file)),
            (Some(_), Ok(Some(text))) => match import::candidates(&text, &file, Some(client)) {
                Ok(found) => {
                    let servers = found.into_iter().map(|candidate| known(candidate, own)).collect();
                    State::Read(text, servers)
                }
                Err(error) => State::Broken(error.into()),
            },
        };
        Some(Self { client, file, state })
    }

    pub(super) fn is_here(&self) -> bool {
        !matches!(self.state, State::Absent)
    }

    pub(super) fn servers(&self) -> &[Known] {
        match &self.state {
            State::Read(_, servers) => servers,
            _ => &[],
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.state {
            State::Read(text, _) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.servers().iter().any(|known| known.is_host && !known.is_off)
    }

    /// Returns the request with which the file is edited.
    pub(super) fn request(&self, own: &Own) -> LoadRequest {
        LoadRequest {
            files: vec![self.file.clone()],
            client: Some(self.client),
            // This excludes the servers of projects in Claude Code's file.
            working_directory: None,
            ..own.request.clone()
        }
    }

    /// Returns why the client's file cannot be used; `None` if it can be read or created.
    pub(super) fn refusal(&self, folders: &Folders) -> Option<String> {
        match &self.state {
            State::Read(..) | State::Empty => None,
            State::Broken(failure) => Some(failure.first()),
            State::Absent => {
                let sign = self.client.sign(folders).unwrap_or_default();
                Some(format!("is not here: there is neither {} nor {}", self.file.display(), sign.display()))
            }
        }
    }
}

fn known(candidate: import::Candidate, own: &Own) -> Known {
    let server = candidate.entry.as_ref().ok().and_then(|entry| entry.server(&candidate.name, &own.request).ok());
    if let Some(server) = &server {
        // Its secrets must not be shown anywhere.
        hidden::learn(&Config { servers: vec![server.clone()], ..Config::default() });
    }
    let is_host = server.as_ref().is_some_and(|server| match &server.transport {
        Transport::Stdio(stdio) => itself::is_as_stdio(stdio),
        transport => server.name == ENTRY || itself::leads_to(transport, own.config.host.listen),
    });
    let import::Candidate { name, entry, left, is_off, .. } = candidate;
    Known { name, entry, server, left, is_off, is_host }
}

/// Returns all clients that have a file on this machine or are installed.
pub(super) fn all(own: &Own) -> Vec<Here> {
    let folders = Folders::of(&own.request.vars);
    clients::ALL.iter().filter_map(|client| Here::look(client, &folders, own)).filter(Here::is_here).collect()
}

/// The clients that a command changes, and those that it refuses.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) clients: Vec<Here>,
    /// The clients whose files cannot be used, and why.
    pub(super) refused: Vec<(&'static Client, String)>,
}

/// Finds the clients that a command names.
pub(super) fn chosen(names: &[String], is_all: bool, own: &Own) -> Result<Chosen, Failure> {
    let folders = Folders::of(&own.request.vars);
    let found = match is_all {
        true => all(own),
        false => {
            let mut found = Vec::new();
            for name in names {
                let client = Client::named(&name.to_ascii_lowercase()).ok_or_else(|| unknown(name))?;
                found.extend(Here::look(client, &folders, own));
            }
            found
        }
    };
    let real = |file: &PathBuf| file.canonicalize().unwrap_or_else(|_| file.clone());
    let (mut clients, mut refused, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for here in found {
        if let Some(why) = here.refusal(&folders) {
            refused.push((here.client, why));
        } else if real(&here.file) == real(&own.file) {
            let why = format!("its file is the config itself: {}", here.file.display());
            refused.push((here.client, why));
        } else if seen.insert(real(&here.file)) {
            clients.push(here);
        } else if !refused.iter().any(|(client, _)| *client == here.client) {
            let why = format!("shares its file with another client here: {}", here.file.display());
            refused.push((here.client, why));
        }
    }
    Ok(Chosen { clients, refused })
}

/// Returns the client with this id.
pub(super) fn named(name: &str) -> Result<&'static Client, Failure> {
    Client::named(&name.to_ascii_lowercase()).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    let ids = || clients::ALL.iter().map(|client| client.id);
    let near = question(&nearest(name, ids()));
    let known = ids().collect::<Vec<_>>().join(", ");
    Failure::new(Exit::Usage, format!("no client is called `{name}`"))
        .maybe_help(near.or(Some(format!("those known are: {known}"))))
}
