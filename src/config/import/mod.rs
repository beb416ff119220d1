//! Converts the servers in files of other clients into entries of our own config, and keeps their references to
//! variables.
//!
//! In: the text of a client's file. Out: one [`Candidate`] for each server. The reader of configs interprets an entry
//! (`server.rs`), but gets references in place of values (`words.rs`); `write.rs` writes the result. An entry that
//! starts a bridge to a URL becomes an entry with that URL (`remote.rs`).
//!
//! **Invariant:** no value of a variable is in the output, and neither tokens nor approvals are copied. Start with
//! [`candidates`].

mod remote;
#[cfg(test)]
mod tests;
mod words;
mod write;

use std::path::Path;

use self::words::Words;
use super::claude::Stand;
use super::clients::Client;
use super::contents::Reads;
use super::dialect::Dialect;
use super::expand::Scope;
use super::report::{Error, Place, Report};
use super::shape::{self, Flavor};
use super::syntax::{self, Member, Node, Syntax, Value, Writer, write as written};
use super::vars::Vars;
use super::{LoadRequest, Server, helper, load, place, project, server};

/// The entry of a server in the format of our own config. `Debug` shows none of its values.
#[derive(Clone, PartialEq)]
pub struct Entry(Node);

impl Eq for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

impl Entry {
    pub(super) fn new(node: Node) -> Self {
        Self(node)
    }

    pub(super) fn node(&self) -> &Node {
        &self.0
    }

    /// Returns the entry in a form that may be shown, without values whose keys are named like secrets.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        project::lines(&self.0)
    }

    /// Reads the entry as if it were a config with this one server, in the place of the request's first file.
    ///
    /// # Errors
    /// Fails if the config would be refused.
    pub fn server(&self, name: &str, request: &LoadRequest) -> Result<Server, Error> {
        let object = |key: &str, node: Node| {
            let mut object = Writer::default();
            object.put(key, node);
            object.done()
        };
        let mut text = String::new();
        written(&object("mcpServers", object(name, self.0.clone())), false, &mut text);
        // The folder of the file matters for relative paths.
        let first = request.files.first().map_or_else(|| "mcp-host.json".into(), |file| file.with_extension("json"));
        let request = LoadRequest {
            files: vec![first.clone()],
            texts: vec![(first.clone(), text)],
            without_lock: true,
            project: false,
            project_directory: None,
            ..request.clone()
        };
        let config = load(&request)?;
        config.servers.into_iter().next().ok_or_else(|| Error::NotFound { places: vec![first] })
    }
}

/// A server of another client's file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its name in that file.
    pub name: String,
    /// The line of its entry, if known.
    pub line: Option<usize>,
    /// Its entry in our format, or why it cannot be converted.
    pub entry: Result<Entry, String>,
    /// The keys that are not copied: approvals and tokens.
    pub left: Vec<String>,
    /// Whether it is disabled in that file.
    pub is_off: bool,
}

/// Reads the servers in a client's file, except those of projects in Claude Code's own file.
///
/// ```
/// use mcp_host::config::import::candidates;
///
/// let text = "[mcp_servers.files]\ncommand = \"files-server\"\nstartup_timeout_sec = 90\n";
/// let found = candidates(text, "/home/ada/.codex/config.toml".as_ref(), None)?;
/// let entry = found[0].entry.as_ref().expect("it can be taken over");
/// assert_eq!(entry.shown(), [r#"command: "files-server""#, r#"startTimeout: "90s""#]);
/// # Ok::<_, mcp_host::config::Error>(())
/// ```
///
/// # Errors
/// Fails if the file cannot be read as a config.
pub fn candidates(text: &str, file: &Path, client: Option<&Client>) -> Result<Vec<Candidate>, Error> {
    let mut report = Report::default();
    let number = report.add_file(file);
    let syntax = Syntax::of(file);
    let Some(root) = syntax::parse(text, syntax, number, &mut report) else {
        return if syntax::is_empty(text, syntax) { Ok(Vec::new()) } else { Err(refused(report)) };
    };
    let file = place::absolute(file);
    let client = client.or_else(|| Client::of_file(&file));
    if client.is_some_and(|client| root.members().is_some() && shape::is_without(&root, client.root)) {
        return Ok(Vec::new());
    }
    let has_none = root.members().is_some() && shape::has_none(&root, &file);
    let shape = match shape::read(&root, &file, Stand::default(), &mut report) {
        Some(shape) if report.problems() == 0 => shape,
        None if has_none => return Ok(Vec::new()),
        _ => return Err(refused(report)),
    };
    let entries = shape.entries.iter().filter(|entry| server::switch(entry.node).is_none());
    Ok(entries.filter_map(|entry| candidate(entry, &file)).collect())
}

fn refused(report: Report) -> Error {
    Error::Invalid { problems: report.finish().0 }
}

/// Converts an entry. Returns `None` if it is not a server, but something built into the client.
fn candidate(entry: &shape::Entry<'_>, file: &Path) -> Option<Candidate> {
    let (mut left, mut is_off) = (Vec::new(), false);
    let taken = take(entry, file, &mut left, &mut is_off)?;
    Some(Candidate {
        name: entry.name.clone(),
        line: (entry.at.line > 0).then_some(entry.at.line),
        entry: taken.map(Entry),
        left,
        is_off,
    })
}

fn take(
    entry: &shape::Entry<'_>,
    file: &Path,
    left: &mut Vec<String>,
    is_off: &mut bool,
) -> Option<Result<Node, String>> {
    let mut report = Report::default();
    report.add_file(file);
    let node = helper::split(server::flatten(entry.node), entry.flavor.dialect(), &mut report);
    if entry.nameless {
        return Some(Err("it has no name".to_owned()));
    }
    let Some(members) = node.members() else { return Some(Err("its entry is no object".to_owned())) };
    let words = Words::of(entry.flavor, &node, file);
    let mut kept = Kept::default();
    for member in members {
        if is_left(entry.flavor, member) {
            if says_something(&member.node) {
                left.push(member.key.clone());
            }
            continue;
        }
        if entry.flavor == Flavor::Codex
            && let Some(headers) = words.headers(member)
        {
            kept.headers.extend(headers);
            continue;
        }
        match words.member(member) {
            Ok(member) => kept.put(member, file),
            Err(why) => return Some(Err(why)),
        }
    }
    let (node, places) = kept.done(node.at);
    let (vars, reads, inputs) = (Vars::default(), Reads::careful(), Default::default());
    let scope = Scope {
        vars: &vars,
        home: None,
        file,
        base: None,
        inputs: &inputs,
        dialect: Dialect::None,
        reads: &reads,
        keyring: None,
    };
    let read = server::read_as_written(entry, &node, scope, &mut report);
    let Some(read) = read else {
        // A problem of the whole file is a problem of this server here.
        let problem = report.finish().0.into_iter().next();
        return problem.map(|problem| Err(problem.message));
    };
    if let Some(wrong) = read.wrong.first().cloned().or_else(|| report.finish().0.into_iter().next()) {
        return Some(Err(wrong.message));
    }
    *is_off = read.server.disabled.is_some();
    Some(Ok(write::node(&read.server, &node, &places)))
}

/// The members of an entry: those that the reader gets, and paths, which stay as written.
#[derive(Default)]
struct Kept {
    read: Vec<Member>,
    headers: Vec<Member>,
    places: write::Places,
}

impl Kept {
    fn put(&mut self, member: Member, file: &Path) {
        let text = member.node.text().map(|path| words::absolute(file, path));
        match (member.key.as_str(), text) {
            ("envFile", Some(path)) => self.places.env_file = Some(path),
            ("cwd" | "working_directory" | "workingDirectory", Some(path)) => self.places.cwd = Some(path),
            _ => self.read.push(member),
        }
    }

    fn done(mut self, at: Place) -> (Node, write::Places) {
        if !self.headers.is_empty() {
            let node = Node::new(at, Value::Object(self.headers));
            self.read.push(Member { key: "headers".to_owned(), at, node });
        }
        (Node::new(at, Value::Object(self.read)), self.places)
    }
}

/// Reports whether a member of an entry is an approval, or holds tokens.
fn is_left(flavor: Flavor, member: &Member) -> bool {
    let has_tokens = |node: &Node| {
        let tokens = ["access_token", "accessToken", "refresh_token", "refreshToken", "tokens"];
        tokens.iter().any(|key| node.get(key).is_some())
    };
    match member.key.as_str() {
        "autoApprove" | "alwaysAllow" | "trust" | "default_tools_approval_mode" | "disabledAutoApproveTools" => true,
        "tools" => flavor == Flavor::Codex,
        "oauth" => flavor == Flavor::Cline || has_tokens(&member.node),
        _ => false,
    }
}

/// Reports whether a value is not empty.
fn says_something(node: &Node) -> bool {
    match &node.value {
        Value::Null | Value::Flag(false) => false,
        Value::List(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}
