//! `mcp-host.lock`: which definitions of which servers a team has approved (`docs/approval.md`).
//!
//! In: the text of a lock, and entries of servers. Out: for each server whose entry is unchanged since it was locked,
//! the pins of the approved definitions. `mcp-host lock` writes the file (`pins/locks.rs`). A lock that cannot be read
//! refuses the whole config: a host that ignored it would approve more than the team did.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::contents::Reads;
use super::fields::{Field, Fields, refuse_rest};
use super::report::{Place, Report};
use super::syntax::{Node, write};
use super::{Syntax, place, syntax};
use crate::hex;

/// The name of the lock beside a config file.
const NAME: &str = "mcp-host.lock";
/// The largest lock that is read.
const MOST: u64 = 16 * 1024 * 1024;
/// The version of the file format.
const VERSION: usize = 1;
/// The start of the line that shows a project's lock.
pub(super) const SHOWN: &str = "! mcp-host.lock says which definitions are approved: ";
const PREFIX: &str = "sha256:";
const LISTS: [&str; 3] = ["tools", "prompts", "templates"];
const AGAIN: &str = "`mcp-host lock` writes the file anew";

/// A lock: what a team has approved.
///
/// ```
/// # fn show(config: &mcp_host::Config) {
/// for (alias, locked) in config.lock.iter().flat_map(|lock| &lock.servers) {
///     println!("{} tools of {alias} are locked", locked.tools.len());
/// }
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// The file.
    pub file: PathBuf,
    /// The locked servers, by their aliases.
    pub servers: BTreeMap<String, Locked>,
}

/// The approved definitions of one server. Each hash is the text of a [`Pin`](crate::pins::Pin).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Locked {
    /// The hash of the server's entry in the config. If the entry's hash differs, nothing here applies.
    pub entry: String,
    /// The hash of the instructions, if the server had any.
    pub instructions: Option<String>,
    /// The hashes of the tools, by the server's own names.
    pub tools: BTreeMap<String, String>,
    /// The hashes of the prompts, by name.
    pub prompts: BTreeMap<String, String>,
    /// The hashes of the resource templates, by name.
    pub templates: BTreeMap<String, String>,
}

impl Locked {
    /// Returns the line about the lock that is shown to people who approve a project.
    pub(super) fn shown(&self) -> String {
        let mut hash = Sha256::new();
        self.hash_into(&mut hash);
        let short = hex::encode(&hash.finalize()[..8]);
        let count = self.tools.len() + self.prompts.len() + self.templates.len();
        format!("{SHOWN}{count}, {short}")
    }

    /// Adds the content of the lock to a hash.
    pub(super) fn hash_into(&self, hash: &mut Sha256) {
        let Self { entry, instructions, tools, prompts, templates } = self;
        let mut add = |text: &str| {
            hash.update(text);
            hash.update([0]);
        };
        add(entry);
        add(instructions.as_deref().unwrap_or_default());
        for list in [tools, prompts, templates] {
            add("");
            for (name, pin) in list {
                add(name);
                add(pin);
            }
        }
    }
}

/// Hashes an entry as written, before variables are expanded. The order of its members and the syntax of the file make
/// no difference.
pub(super) fn entry_hash(entry: &Node) -> String {
    let mut text = String::new();
    write(entry, true, &mut text);
    format!("{PREFIX}{}", hex::encode(&Sha256::digest(text)))
}

/// Reads the lock of a config: the file that the config names, else the one beside the config. Returns `None` if there
/// is none, or if it has mistakes, which are reported.
pub(super) fn find(named: Option<&Path>, config: Option<&Path>, reads: &Reads, report: &mut Report) -> Option<Lock> {
    let path = match named {
        Some(named) => named.to_owned(),
        None => beside(config?)?,
    };
    match reads.text(&path, MOST) {
        Ok(text) => parse(&text, &path, report),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let at = Place { file: report.add_file(&path), ..Place::default() };
            let problem = report.problem(at, "", format!("the lock cannot be read: {}", place::reason(&error)));
            problem.help("run `mcp-host lock` to make it, or remove `host.lock` from the config");
            None
        }
    }
}

/// Returns the path of the lock beside a config file.
pub(super) fn beside(file: &Path) -> Option<PathBuf> {
    Some(place::absolute(file).parent()?.join(NAME))
}

/// Reads the text of a lock for the fuzzers. Returns the problems if it is refused.
#[cfg(feature = "fuzzing")]
pub(crate) fn read(text: &str) -> Result<Lock, Vec<super::Problem>> {
    let mut report = Report::default();
    let lock = parse(text, Path::new(NAME), &mut report);
    let (problems, _) = report.finish();
    lock.ok_or(problems)
}

/// Reads the text of a lock.
fn parse(text: &str, file: &Path, report: &mut Report) -> Option<Lock> {
    let before = report.problems();
    let number = report.add_file(file);
    let Some(root) = syntax::parse(text, Syntax::Json, number, report) else {
        // The advice for config files does not help with a lock.
        report.advise(before, AGAIN);
        return None;
    };
    let mut fields = Fields::open(&root, "", report)?;
    let version = fields.take(&["version"], report);
    match version.as_ref().map(|field| (field.count(report), field)) {
        Some((Some(VERSION), _)) => {}
        Some((Some(other), field)) => {
            let message = format!("{other} is not a version that this mcp-host knows");
            report.problem(field.at, "version", message).help("a newer mcp-host may have written it: update this one");
        }
        Some((None, _)) => {}
        None => {
            report.problem(root.at, "version", "is missing").help(AGAIN);
        }
    }
    let servers = fields.take(&["servers"], report).map(|field| field.entries(report)).unwrap_or_default();
    refuse_rest(fields, &["version", "servers"], report);
    let servers = servers.into_iter().filter_map(|(alias, field)| Some((alias.to_owned(), locked(&field, report)?)));
    let servers = servers.collect();
    (report.problems() == before).then(|| Lock { file: file.to_owned(), servers })
}

fn locked(field: &Field<'_>, report: &mut Report) -> Option<Locked> {
    let mut fields = field.fields(report)?;
    let entry = fields.take(&["entry"], report);
    if entry.is_none() {
        report.problem(field.at, &format!("{}.entry", field.path), "is missing").help(AGAIN);
    }
    let mut locked =
        Locked { entry: entry.and_then(|field| pin(&field, report)).unwrap_or_default(), ..Locked::default() };
    locked.instructions = fields.take(&["instructions"], report).and_then(|field| pin(&field, report));
    let lists = [&mut locked.tools, &mut locked.prompts, &mut locked.templates];
    for (key, list) in LISTS.into_iter().zip(lists) {
        let named = fields.take(&[key], report).map(|field| field.entries(report)).unwrap_or_default();
        list.extend(named.into_iter().filter_map(|(name, field)| Some((name.to_owned(), pin(&field, report)?))));
    }
    refuse_rest(fields, &["entry", "instructions", "tools", "prompts", "templates"], report);
    Some(locked)
}

/// Reads a hash.
fn pin(field: &Field<'_>, report: &mut Report) -> Option<String> {
    let text = field.text(report)?;
    let is_pin = text.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    });
    if !is_pin {
        report.problem(field.at, &field.path, "expected `sha256:` and 64 hexadecimal digits").help(AGAIN);
        return None;
    }
    Some(text.to_owned())
}
