//! Configs of a project: they are found in the working directory, and so written by whoever wrote the project
//! (`docs/hazards.md` H93). Their servers stay `disabled` until the user has approved exactly these entries.
//!
//! An approval covers the entry as written, which client's rules the entry follows, the path of the config file, the text
//! of the files that the entry names, and what the project's lock approves of the server. The values of the user's own
//! variables need no approval: the entry shows
//! where they go. Only after the approval are keyring entries read, and may a headers program run. The `host` key of a
//! project's file is not read at all. Approvals are stored in the state directory (`approvals.rs`), and a running host
//! follows changes to them like changes to its config files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::shape::Entry;
use super::syntax::{Member, Node, Value, write};
use super::{Contents, Locked, helper, locked, sandbox, server};
use crate::hex;

/// The reason shown for a project's server that is disabled because the user has not approved it.
pub const NOT_APPROVED: &str = "not approved";

/// A server's entry in a project's config.
///
/// ```
/// # fn show(server: &mcp_host::config::Server) {
/// if let Some(project) = server.project.as_ref().filter(|project| !project.approved) {
///     println!("{} waits for approval:", server.name);
///     project.shown.iter().for_each(|line| println!("  {line}"));
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Project {
    /// A hash of everything that an approval covers; it changes with the entry.
    pub hash: String,
    /// The entry as shown to the user, line by line. Only the values of config keys that are named like secrets are
    /// hidden. A line that starts with `!` warns of something that changes how programs run, or that reaches outside of
    /// the project.
    pub shown: Vec<String>,
    /// Whether the user has approved it.
    pub approved: bool,
}

impl Project {
    /// Returns the shown lines without the one about the project's lock.
    pub fn without_lock(&self) -> Vec<&str> {
        self.shown.iter().map(String::as_str).filter(|line| !line.starts_with(locked::SHOWN)).collect()
    }
}

impl fmt::Debug for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, shown, approved } = self;
        let shown = format_args!("[{} lines]", shown.len());
        f.debug_struct("Project").field("hash", hash).field("shown", &shown).field("approved", approved).finish()
    }
}

/// The user's approvals.
///
/// ```
/// use mcp_host::config::{Approved, LoadRequest};
///
/// let entry = (("project/.mcp.json".into(), "files".to_owned()), "hash of the entry".to_owned());
/// let mut request = LoadRequest::default();
/// request.approved = Approved::new("approvals.json".into(), [entry]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approved {
    /// The file that holds the approvals, if there is one.
    pub(super) file: Option<PathBuf>,
    hashes: BTreeMap<(PathBuf, String), String>,
}

impl Approved {
    /// Takes the content of the approvals file: the hash of each approved entry, by the path of its config file and the
    /// server's name.
    pub fn new(file: PathBuf, hashes: impl IntoIterator<Item = ((PathBuf, String), String)>) -> Self {
        Self { file: Some(file), hashes: hashes.into_iter().collect() }
    }

    /// Also approves one entry, by the path of its config file, the server's name, and its hash.
    #[must_use]
    pub fn and(mut self, file: PathBuf, server: String, hash: String) -> Self {
        self.hashes.insert((file, server), hash);
        self
    }
}

/// Decides whether an entry of a project's file is approved; `reads` holds the hashes of the files that the entry
/// names, `locked` the definitions that the project's lock approves for the server.
pub(super) fn judge(
    entry: &Entry<'_>,
    file: &Path,
    reads: &Contents,
    approved: &Approved,
    locked: Option<&Locked>,
) -> Project {
    let mut text = String::new();
    write(entry.node, false, &mut text);
    let mut hash = Sha256::new();
    for part in [file.to_string_lossy().as_bytes(), entry.name.as_bytes(), format!("{:?}", entry.flavor).as_bytes()] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(text.as_bytes());
    if let Some(base) = &entry.base {
        hash.update([0]);
        hash.update(base.as_os_str().as_encoded_bytes());
    }
    for (path, content) in reads.hashes() {
        hash.update([0]);
        hash.update(path.to_string_lossy().as_bytes());
        hash.update(content.unwrap_or_default());
    }
    if let Some(locked) = locked {
        locked.hash_into(&mut hash);
    }
    let hash = hex::encode(&hash.finalize());
    let key = (file.to_owned(), entry.name.clone());
    let approved = approved.hashes.get(&key) == Some(&hash);
    let mut shown = shown(entry, file, reads);
    shown.extend(locked.map(Locked::shown));
    Project { hash, shown, approved }
}

/// Returns an entry in a form that may be shown, without values whose keys are named like secrets.
pub(super) fn lines(entry: &Node) -> Vec<String> {
    let mut lines = Vec::new();
    for Member { key, node, .. } in entry.members().unwrap_or_default() {
        match &node.value {
            // Each member has a line of its own, so that a change is easy to see.
            Value::Object(members) => {
                for member in members {
                    lines.push(line(&format!("{key}.{}", member.key), &member.key, &member.node));
                }
                if members.is_empty() {
                    lines.push(format!("{key}: {{}}"));
                }
            }
            _ => lines.push(line(key, key, node)),
        }
    }
    if let Value::Text(_) = &entry.value {
        lines.push(line("entry", "entry", entry));
    }
    lines
}

fn shown(entry: &Entry<'_>, file: &Path, reads: &Contents) -> Vec<String> {
    let mut lines = lines(entry.node);
    for (path, content) in reads.hashes() {
        let short = content.map(|hash| hex::encode(&hash[..8]));
        let path = path.display();
        lines.push(match short {
            Some(short) => format!("content of {path}: {short}"),
            None => format!("content of {path}: not there"),
        });
    }
    for (path, _) in reads.hashes().filter(|(path, _)| leads_out(path, file)) {
        lines.push(format!("! reads {}, which is not part of the project", path.display()));
    }
    if let Some(base) = &entry.base {
        lines.push(format!("! runs in {}", base.display()));
    }
    risky(&server::flatten(entry.node), "", &mut lines);
    let names = server::keyring_names(entry);
    lines.extend(names.into_iter().map(|(path, name)| format!("! {path}: takes {name:?} out of your keyring")));
    lines
}

/// Reports whether a path leads out of the folder that contains a project's file. The target of the path counts, not
/// its spelling: a symlink in the project may lead anywhere.
fn leads_out(path: &Path, file: &Path) -> bool {
    let folder = file.parent().unwrap_or(Path::new(""));
    match (std::fs::canonicalize(path), std::fs::canonicalize(folder)) {
        (Ok(path), Ok(folder)) => !path.starts_with(folder),
        _ => path.components().any(|part| part == Component::ParentDir) || !path.starts_with(folder),
    }
}

/// Formats one value as JSON, in full, so that its start and end are visible.
fn line(path: &str, key: &str, node: &Node) -> String {
    let mut text = String::new();
    match &node.value {
        Value::Text(value) if names_a_secret(key) && !value.contains("${") => text.push_str("***"),
        _ => write(node, false, &mut text),
    }
    format!("{path}: {text}")
}

fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "APIKEY", "API_KEY", "API-KEY", "AUTHORIZATION"]
        .iter()
        .any(|part| key.contains(part))
}

/// Reports whether an environment variable can make a program load other code.
fn loads_code(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("LD_")
        || name.starts_with("DYLD_")
        || ["NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "PERL5OPT", "RUBYOPT", "BASH_ENV", "ENV", "PATH"]
            .contains(&name.as_str())
}

fn risky(node: &Node, path: &str, lines: &mut Vec<String>) {
    for Member { key, node, .. } in node.members().unwrap_or_default() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if !path.contains('.') && matches!(key.as_str(), "envFile") {
            lines.push("! envFile: the variables in that file are set as well".to_owned());
        }
        if !path.contains('.') && matches!(key.as_str(), "inheritEnv" | "env_vars" | "env_keys") {
            lines.push(format!("! {path}: these variables are passed on as you have them set"));
        }
        if path == sandbox::KEY && node.text() != Some("default") {
            lines.push("! sandbox: changes what is kept from its program".to_owned());
        }
        if path.contains('.') && loads_code(key) {
            lines.push(format!("! {path}: changes which code programs load"));
        }
        if helper::KEYS.contains(&key.as_str()) {
            lines.push(format!("! {path}: a program that runs here for each connection to this server"));
        }
        risky(node, &path, lines);
    }
}
