//! What the user has approved of each server: a pin, which is a hash, for each of its definitions. A server cannot
//! change an approved definition without anyone noticing (`docs/hazards.md` H85).
//!
//! In: listings of servers, approvals. Out: which definitions pass, and what has changed. Each server has one file,
//! `STATE/pins/*.json`, shared by the hosts of one user and by `mcp-host approve`. **Invariant:** every change of a
//! file is made to its newest content under its lock, so two hosts never lose each other's approvals. Start reading at
//! `book.rs`.

mod book;
mod identity;
mod locks;
mod memory;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

pub(crate) use book::{Book, Form, Judged, Listing, Notice, Said, Wary, classes};
pub(crate) use locks::Allowed;
pub use locks::{Stated, Unlocked, compare, lock, text_in, texts};
pub(crate) use memory::Memory;

use crate::config::{Approval, Server};
use crate::glob;
pub use crate::keep::Error;
use crate::keep::{self, Keep, Mark};
use crate::lineage;
use crate::protocol::{Pointer, Raw};
pub use crate::registry::{Class, DefinitionChange, Finding, Pin};
use crate::registry::{Kind, Neighbours, changes, findings};

/// The kinds of things that have pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// The text that tells a model how to use the server.
    Instructions,
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource template.
    ResourceTemplate,
}

impl What {
    /// Returns the list that contains such entries; `None` for instructions.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::Instructions => None,
            Self::Tool => Some(Kind::Tools),
            Self::Prompt => Some(Kind::Prompts),
            Self::ResourceTemplate => Some(Kind::ResourceTemplates),
        }
    }

    /// Returns the kind of a list's entries; `None` for resources, which have no pins.
    pub(crate) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Tools => Some(Self::Tool),
            Kind::Prompts => Some(Self::Prompt),
            Kind::ResourceTemplates => Some(Self::ResourceTemplate),
            Kind::Resources => None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instructions => "instructions",
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::ResourceTemplate => "resource template",
        })
    }
}

/// A definition that a server has changed since it was approved, or that was never approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Waiting {
    /// The server's name in the config.
    pub server: String,
    /// What it is.
    pub what: What,
    /// The server's own name for it; empty for instructions.
    pub name: String,
    /// The pin of what the server says now.
    pub pin: Pin,
    /// The former name of an added definition: a name that is no longer listed, with a very similar definition.
    pub renamed: Option<String>,
    /// Whether the server has listed three or more forms of it within an hour. Then each form needs its own approval.
    pub unstable: bool,
    /// Whether clients see it nevertheless: the server's config entry has changed, and the definition differs from what
    /// was approved before.
    pub passes: bool,
    /// What differs from the last approved form.
    pub changes: Vec<DefinitionChange>,
    /// What is suspicious in it.
    pub findings: Vec<Finding>,
    /// The definition as the server sent it.
    pub text: String,
}

/// Something suspicious that a server lists.
///
/// ```
/// # fn show(found: &mcp_host::pins::Suspicion) {
/// println!("{} {} of {}: {}", found.what, found.name, found.server, found.finding.what);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Suspicion {
    /// The server's name in the config.
    pub server: String,
    /// Which kind of definition it is in.
    pub what: What,
    /// The server's own name for it; empty for instructions.
    pub name: String,
    /// What was found.
    pub finding: Finding,
}

/// Finds what is suspicious in a definition of the server `alias`, as the server sent it.
pub(crate) fn suspicions(what: What, alias: &str, text: &str, neighbours: &Neighbours) -> Vec<Finding> {
    let raw = match what {
        What::Instructions => Some(Raw::from_value(text)),
        _ => Raw::parse(&text.to_owned().into()).ok(),
    };
    raw.map(|raw| findings(what.kind(), alias, &raw, neighbours)).unwrap_or_default()
}

/// Reports whether a definition has a hard finding: whether it is nearly always an attack or a mistake.
pub(crate) fn is_suspicious(what: What, alias: &str, text: &str, neighbours: &Neighbours) -> bool {
    suspicions(what, alias, text, neighbours).iter().any(|finding| finding.hard)
}

/// Reports whether a glob over names matches a definition.
#[must_use]
pub fn matches(glob: &str, waiting: &Waiting) -> bool {
    glob::is_match(glob, &waiting.name)
}

/// Reports whether a server of a host has started this process, so that no person may be behind it.
#[must_use]
pub fn is_below_a_host() -> bool {
    lineage::is_below()
}

/// Returns the members that the server's pins leave out. The pointers were checked when the config was read.
pub(crate) fn pointers(server: &Server) -> Box<[Pointer]> {
    server.pin_ignore.iter().filter_map(|text| Pointer::parse(text).ok()).collect()
}

/// Returns the seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Compares two forms of a definition, either of which may be absent.
fn differing(what: What, before: Option<&str>, now: Option<&str>, ignore: &[Pointer]) -> Vec<DefinitionChange> {
    let raw = |text: &str| match what {
        What::Instructions => Some(Raw::from_value(text)),
        _ => Raw::parse(&text.to_owned().into()).ok(),
    };
    changes(before.and_then(raw).as_ref(), now.and_then(raw).as_ref(), ignore)
}

/// The records of a user.
///
/// ```no_run
/// use mcp_host::pins::Pins;
///
/// # async fn approve(servers: &[mcp_host::config::Server]) -> Result<(), mcp_host::pins::Error> {
/// let pins = Pins::of("/var/lib/my-agent".as_ref());
/// for change in pins.waiting(servers).await? {
///     println!("{} {}: {:?}", change.what, change.name, change.changes);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Pins {
    folder: PathBuf,
    is_strict: bool,
}

const VERSION: u32 = 1;

impl Pins {
    /// Returns the records that are kept in a state directory.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self { folder: state.join("pins"), is_strict: false }
    }

    /// Withholds suspicious definitions until a person has approved them, including those that the server listed first:
    /// the effect of `host.approvalStrict`.
    #[must_use]
    pub fn strict(self, is_strict: bool) -> Self {
        Self { is_strict, ..self }
    }

    /// Returns what waits for approval at these servers, in their order. Findings about a definition take the tools of
    /// all these servers into account.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub async fn waiting(&self, servers: &[Server]) -> Result<Vec<Waiting>, Error> {
        let records: Vec<(Keep, Server)> = servers.iter().map(|server| (self.keep(server), server.clone())).collect();
        let is_strict = self.is_strict;
        keep::done(move || {
            let read = |(keep, server): (Keep, Server)| Ok((keep.read::<Book>()?, server));
            let books = records.into_iter().map(read).collect::<Result<Vec<_>, Error>>()?;
            let mut neighbours = Neighbours::default();
            for (book, server) in &books {
                book.tools().for_each(|tool| neighbours.add(server.alias.as_str(), &tool));
            }
            Ok(books.iter().flat_map(|(book, server)| book.shown(server, &neighbours, is_strict)).collect())
        })
        .await
    }

    /// Approves exactly the definitions that were shown, if the server still lists them. Returns how many were
    /// approved. If the server has a lock, the approval has no effect while the lock is there.
    ///
    /// Fails if the record cannot be read or written. Then nothing is approved.
    pub async fn approve(&self, server: &Server, shown: &[Waiting]) -> Result<usize, Error> {
        let forms: Vec<_> = shown.iter().map(|one| (one.what, one.name.clone(), one.pin)).collect();
        let keep = self.keep(server);
        keep::done(move || {
            keep.revise(|book: &mut Book| {
                let count = book.approve(&forms);
                (count, count > 0)
            })
        })
        .await
    }

    /// Revokes the approval of a server's definitions whose names match `glob`, or of all of them. Returns how many
    /// were revoked.
    ///
    /// Fails if the record cannot be read or written. Then nothing is revoked.
    pub async fn revoke(&self, server: &Server, glob: Option<&str>) -> Result<usize, Error> {
        let (keep, pattern) = (self.keep(server), glob.map(str::to_owned));
        keep::done(move || {
            keep.revise(|book: &mut Book| {
                let is_meant = |_: What, name: &str| pattern.as_ref().is_none_or(|glob| glob::is_match(glob, name));
                let count = book.revoke(is_meant);
                (count, count > 0)
            })
        })
        .await
    }

    /// Returns the text with this pin that was approved here for a server; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the record cannot be read.
    pub async fn text(&self, server: &Server, what: What, name: &str, pin: Pin) -> Result<Option<String>, Error> {
        let (keep, name) = (self.keep(server), name.to_owned());
        keep::done(move || Ok(keep.read::<Book>()?.text(what, &name, pin))).await
    }

    /// Reads a server's record, and returns the mark of its file. Blocks.
    pub(crate) fn read(&self, server: &Server) -> Result<(Book, Mark), Error> {
        self.keep(server).read_marked()
    }

    /// Returns the mark of the file with a server's record. Blocks.
    pub(crate) fn mark(&self, server: &Server) -> Mark {
        self.keep(server).mark()
    }

    /// Compares what a server lists with its record, and updates the record. Returns the result, the record, and the
    /// mark of its file. Blocks.
    pub(crate) fn judge(
        &self,
        server: &Server,
        listing: &Listing,
        strictness: (Approval, Option<Wary<'_>>),
    ) -> Result<(Judged, Book, Mark), Error> {
        let before = self.former(server);
        let at = now();
        let done = self.keep(server).revise_marked(|book: &mut Book| {
            let judged = book.judge(listing, strictness, at, before.as_ref());
            book.server.clone_from(&server.name);
            let is_changed = judged.is_changed;
            ((judged, book.clone()), is_changed)
        });
        done.map(|((judged, book), mark)| (judged, book, mark))
    }

    /// Returns when a record last changed: the time of the folder, in which every write replaces a file.
    pub(crate) fn changed(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.folder).and_then(|folder| folder.modified()).ok()
    }

    fn keep(&self, server: &Server) -> Keep {
        let (name, way) = identity::identity(server);
        Keep::new(self.folder.join(format!("{name}-{way}.json")), VERSION)
    }

    /// Returns the server's newest record from before its config entry changed; `None` if it has a current record, or
    /// never had one.
    fn former(&self, server: &Server) -> Option<Book> {
        let (name, way) = identity::identity(server);
        let own = format!("{name}-{way}.json");
        let entries = std::fs::read_dir(&self.folder).ok()?.flatten();
        let others = entries.filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let is_others = file.starts_with(&name) && file.ends_with(".json") && !file.starts_with('.');
            is_others.then(|| (entry.metadata().and_then(|meta| meta.modified()).ok(), file))
        });
        let mut files: Vec<_> = others.collect();
        if files.iter().any(|(_, file)| *file == own) {
            return None;
        }
        files.sort();
        let (_, newest) = files.pop()?;
        Keep::new(self.folder.join(newest), VERSION).read().ok()
    }
}
