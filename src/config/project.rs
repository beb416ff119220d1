//! Files of a project: found in the working directory, and so the word of whoever wrote the project (`docs/hazards.md`
//! H93). Its servers stay `disabled` until the user has approved exactly what they are.
//!
//! The user approves the entry as it is written with its client's reading of it, the path of the file, and the text of
//! the files that it names. Values of the user's own variables are the user's word: the entry shows where they go, and
//! their text is not asked about. Keyring entries are read, and a program for headers runs, only after the approval.
//! The `host` of a project's file is not read at all. Approvals lie in the state directory (`approvals.rs`), and a
//! running host follows them like the files of its config.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::Contents;
use super::shape::Entry;
use super::syntax::{Member, Node, Value};
use super::{helper, server};

/// Why a server of a project is not started before it is approved.
pub const NOT_APPROVED: &str = "not approved";

/// A server's entry in the file of a project.
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
    /// Stands for the exact entry.
    pub hash: String,
    /// The entry as it is to be shown, a line each; nothing is left out but values that are named as secrets. What changes
    /// how programs run, or reaches out of the project, has a line that begins with `!`.
    pub shown: Vec<String>,
    /// Whether the user has approved it.
    pub approved: bool,
}

impl fmt::Debug for Project {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, shown, approved } = self;
        let shown = format_args!("[{} lines]", shown.len());
        f.debug_struct("Project").field("hash", hash).field("shown", &shown).field("approved", approved).finish()
    }
}

/// What the user has approved.
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
    /// The file that says so, where there is one.
    pub(super) file: Option<PathBuf>,
    hashes: BTreeMap<(PathBuf, String), String>,
}

impl Approved {
    /// Takes what a file says: by the path of a project's file and the name of a server, the hash of the entry.
    pub fn new(file: PathBuf, hashes: impl IntoIterator<Item = ((PathBuf, String), String)>) -> Self {
        Self { file: Some(file), hashes: hashes.into_iter().collect() }
    }
}

/// Judges an entry of a project's file; `reads` is what stands in the files that it names.
pub(super) fn judge(entry: &Entry<'_>, file: &Path, reads: &Contents, approved: &Approved) -> Project {
    let mut text = String::new();
    write(entry.node, &mut text);
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
    let hash = hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let key = (file.to_owned(), entry.name.clone());
    let approved = approved.hashes.get(&key) == Some(&hash);
    Project { hash, shown: shown(entry, file, reads), approved }
}

fn shown(entry: &Entry<'_>, file: &Path, reads: &Contents) -> Vec<String> {
    let mut lines = Vec::new();
    for Member { key, node, .. } in entry.node.members().unwrap_or_default() {
        match &node.value {
            // One line for each, so that a change is seen where it is.
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
    if let Value::Text(_) = &entry.node.value {
        lines.push(line("entry", "entry", entry.node));
    }
    for (path, content) in reads.hashes() {
        let short = content.map(|hash| hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>());
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

/// Whether a path leads out of the folder of a project's file. Where it leads counts, not how it is written: a link of the
/// project may lead anywhere.
fn leads_out(path: &Path, file: &Path) -> bool {
    let folder = file.parent().unwrap_or(Path::new(""));
    match (std::fs::canonicalize(path), std::fs::canonicalize(folder)) {
        (Ok(path), Ok(folder)) => !path.starts_with(folder),
        _ => path.components().any(|part| part == Component::ParentDir) || !path.starts_with(folder),
    }
}

/// One value, whole, in JSON: where it begins and ends is seen.
fn line(path: &str, key: &str, node: &Node) -> String {
    let mut text = String::new();
    match &node.value {
        Value::Text(value) if names_a_secret(key) && !value.contains("${") => text.push_str("***"),
        _ => write(node, &mut text),
    }
    format!("{path}: {text}")
}

fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "APIKEY", "API_KEY", "API-KEY", "AUTHORIZATION"]
        .iter()
        .any(|part| key.contains(part))
}

/// Variables by which one program loads code of another.
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
            lines.push("! envFile: what stands in that file is set as well".to_owned());
        }
        if !path.contains('.') && matches!(key.as_str(), "inheritEnv" | "env_vars" | "env_keys") {
            lines.push(format!("! {path}: these variables are passed on as you have them set"));
        }
        if path.contains('.') && loads_code(key) {
            lines.push(format!("! {path}: changes which code programs load"));
        }
        if helper::KEYS.contains(&key.as_str()) {
            lines.push(format!("! {path}: a program that runs here whenever this server is connected to"));
        }
        risky(node, &path, lines);
    }
}

/// The tree as JSON, as it is written and in the order of the file.
fn write(node: &Node, out: &mut String) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Flag(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(number),
        Value::Text(text) => quote(text, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                quote(&member.key, out);
                out.push_str(": ");
                write(&member.node, out);
            }
            out.push('}');
        }
    }
}

fn quote(text: &str, out: &mut String) {
    // Nothing in a text can fail to be written.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
