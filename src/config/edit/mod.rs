//! Edits of one entry in the text of a config, of any syntax and any client: text in, text out.
//!
//! In: the text, and a [`Change`]. Out: the new text with every other byte kept, or why there is none ([`Refused`]).
//! The reader of configs finds the entry (`shape.rs`), an `Op` describes the change of the tree, the file of the syntax
//! turns it into replacements, and `proof.rs` compares the result with the intended change.
//!
//! **Invariant:** nothing here reads or writes a file, and only a proven text is returned. Start with [`edit`].

mod change;
mod entry;
mod flow;
mod json;
mod op;
mod proof;
mod render;
mod scan;
mod setting;
mod splice;
#[cfg(test)]
mod tests;
mod toml;
mod undo;
mod yaml;

use std::path::Path as FilePath;

pub use self::change::Change;
pub use self::entry::{Kind, NewServer};
use self::op::{Op, Path, Step, find, path_to};
use self::render::Language;
pub use self::undo::{Around, Done, What, revert, revert_all};
use super::claude::Stand;
use super::clients::Client;
use super::report::{Error, Place, Report};
use super::shape::{self, Entry, Flavor, Shape};
use super::syntax::{self, Node, Syntax, Value};
use super::{LoadRequest, Server, Stdio, Transport, place};

/// A text after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The new text.
    pub text: String,
    /// The name of the changed server in the file; after a rename, the old one.
    pub name: String,
}

/// Why a text was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The text has mistakes.
    #[error("{0}")]
    Mistakes(Error),
    /// The file has no such server.
    #[error("no server is called `{name}`")]
    Unknown {
        /// The name.
        name: String,
        /// The names that the file has.
        known: Vec<String>,
    },
    /// The file has such a server already.
    #[error("a server is called `{0}` already")]
    Exists(String),
    /// A server cannot have this name.
    #[error("a server cannot be called `{0}`")]
    Name(String),
    /// There is nothing to change.
    #[error("{0}")]
    Nothing(String),
    /// The change cannot be made in the entry, because something else decides it.
    #[error("{0}")]
    Elsewhere(String),
    /// It could not be proven that the edit changes nothing else.
    #[error("{why}")]
    Unproven {
        /// What prevents the proof.
        why: String,
        /// What the user can write instead.
        snippet: String,
    },
}

/// Makes several changes to a text, one after the other, each with its proof. Returns the text, and a record of each
/// edit.
///
/// # Errors
/// Fails if one of the changes does not fit, or cannot be proven. Then nothing must be written.
pub fn edit_all(
    text: &str,
    file: &FilePath,
    request: &LoadRequest,
    changes: &[Change],
) -> Result<(String, Vec<Done>), Refused> {
    let (mut text, mut done) = (text.to_owned(), Vec::with_capacity(changes.len()));
    for change in changes {
        let edited = edit(&text, file, request, change)?;
        done.push(change.done(&edited.name));
        text = edited.text;
    }
    Ok((text, done))
}

/// Changes the text of a config. `request` gives the directories that select projects in Claude Code's file; an empty
/// text is that of a new file.
///
/// ```
/// use mcp_host::config::LoadRequest;
/// use mcp_host::config::edit::{Change, edit};
///
/// let text = "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" }, // mine\n  }\n}\n";
/// let change = Change::Switch { name: "a".to_owned(), on: false };
/// let edited = edit(text, "mcp.json".as_ref(), &LoadRequest::default(), &change)?;
/// assert_eq!(edited.text, text.replace("\"a\" }", "\"a\", \"disabled\": true }"));
/// # Ok::<_, mcp_host::config::edit::Refused>(())
/// ```
///
/// # Errors
/// Fails if the change does not fit the text, or cannot be proven. Then nothing must be written.
pub fn edit(text: &str, file: &FilePath, request: &LoadRequest, change: &Change) -> Result<Edited, Refused> {
    let file = File::open(text, file, request)?;
    let shape = file.shape()?;
    let (op, name) = match change {
        Change::Add { name, server } => {
            check_name(name)?;
            file.free(&shape, name, None)?;
            let target = file.container(&shape)?;
            let client = file.client();
            target.takes(name, server, client)?;
            (target.insert(name, server.entry(name, target.flavor, client)), name.clone())
        }
        Change::Put { name, entry } => {
            check_name(name)?;
            file.free(&shape, name, None)?;
            let target = file.container(&shape)?;
            if target.flavor != Flavor::Plain || target.is_list {
                let why = "this config is written in the words of another client, and gets no entries of others";
                return Err(Refused::Elsewhere(why.to_owned()));
            }
            (target.insert(name, entry.node().clone()), name.clone())
        }
        Change::Setting { key, value } => (setting::op(&file, key, value)?, change.name().to_owned()),
        Change::Text { name, at, value } => {
            let entry = file.entry(&shape, name)?;
            let path = setting::inside(entry.node, file.path(entry)?, at);
            (setting::op_at(&file, path, value, &at.join("."))?, entry.name.clone())
        }
        Change::Remove { name } => {
            let entry = file.entry(&shape, name)?;
            (Op::Remove(file.path(entry)?), entry.name.clone())
        }
        Change::Rename { name, to } => {
            let entry = file.entry(&shape, name)?;
            check_name(to)?;
            file.free(&shape, to, Some(&entry.name))?;
            (rename(file.path(entry)?, to), entry.name.clone())
        }
        Change::Switch { name, on } => {
            let entry = file.entry(&shape, name)?;
            (switch(entry, &file.path(entry)?, *on)?, entry.name.clone())
        }
    };
    let touched = match change {
        Change::Rename { to, .. } => vec![name.as_str(), to],
        Change::Setting { .. } => Vec::new(),
        _ => vec![name.as_str()],
    };
    match file.prove(&op, &shape, &touched) {
        Some(text) => Ok(Edited { text, name }),
        None if shape.entries.len() == 1 && matches!(change, Change::Remove { .. }) => {
            Err(Refused::Elsewhere(format!("`{name}` is the last server of this file, which is not read without one")))
        }
        None => Err(file.unproven(&op, change)),
    }
}

/// Returns the entry of a server as text, without its secrets, and the line where it starts.
///
/// # Errors
/// Fails if the text has mistakes, or no such server.
pub fn shown(
    text: &str,
    file: &FilePath,
    request: &LoadRequest,
    name: &str,
) -> Result<(Vec<String>, Option<usize>), Refused> {
    let file = File::open(text, file, request)?;
    let shape = file.shape()?;
    let entry = file.entry(&shape, name)?;
    Ok((super::project::lines(entry.node), (entry.at.line > 0).then_some(entry.at.line)))
}

/// Returns the lines of a text in a form that may be shown: values appear only under keys that hold no secret.
#[must_use]
pub fn masked(text: &str) -> Vec<String> {
    syntax::masked(text)
}

/// Returns the names of the servers in a text; empty if it has mistakes.
pub fn names(text: &str, file: &FilePath, request: &LoadRequest) -> Vec<String> {
    let Ok(file) = File::open(text, file, request) else { return Vec::new() };
    let names = file.shape().map(|shape| shape.entries.iter().map(|entry| entry.name.clone()).collect());
    names.unwrap_or_default()
}

/// Reports whether a text has a server with this name or alias.
pub fn has(text: &str, file: &FilePath, request: &LoadRequest, name: &str) -> bool {
    names(text, file, request).iter().any(|known| known == name || alias(known).as_deref() == Some(name))
}

fn check_name(name: &str) -> Result<(), Refused> {
    let is_good = !name.trim().is_empty() && !name.chars().any(char::is_control) && alias(name).is_some();
    if is_good { Ok(()) } else { Err(Refused::Name(name.to_owned())) }
}

/// Returns the alias for a server with this name.
fn alias(name: &str) -> Option<String> {
    let server = Server::new(name, Transport::Stdio(Stdio::default())).ok()?;
    Some(server.alias.as_str().to_owned())
}

fn rename(path: Path, to: &str) -> Op {
    match path.last() {
        Some(Step::Index(_)) => {
            let name = std::iter::once(Step::Key("name".to_owned()));
            Op::Set(path.into_iter().chain(name).collect(), Value::Text(to.to_owned()))
        }
        _ => Op::Rename(path, to.to_owned()),
    }
}

/// Returns the operation that enables or disables a server.
fn switch(entry: &Entry<'_>, path: &Path, on: bool) -> Result<Op, Refused> {
    let name = &entry.name;
    if entry.node.members().is_none() {
        let why = format!("the entry of `{name}` has no members: write it as an object, with `command` and `args`");
        return Err(Refused::Elsewhere(why));
    }
    let switches = entry::switches(entry.node);
    let is_on = switches.iter().all(|(_, on)| *on);
    let at = |key: &str| path.iter().cloned().chain([Step::Key(key.to_owned())]).collect::<Path>();
    if on {
        let mut off = switches.iter().filter(|(_, on)| !on);
        return match (off.next(), off.next(), &entry.disabled) {
            (Some(_), Some(_), _) => Err(Refused::Elsewhere(format!(
                "the entry of `{name}` is turned off twice: remove one of the two keys"
            ))),
            (None, _, Some(why)) => Err(Refused::Elsewhere(format!("`{name}` is {why}"))),
            (None, ..) => Err(Refused::Nothing(format!("`{name}` is enabled already"))),
            (Some(("disabled", _)), ..) if switches.len() < entry.node.members().map_or(0, <[_]>::len) => {
                Ok(Op::Remove(at("disabled")))
            }
            (Some((key, _)), ..) => Ok(Op::Set(at(key), Value::Flag(*key != "disabled"))),
        };
    }
    if !is_on {
        return Err(Refused::Nothing(format!("`{name}` is disabled already")));
    }
    match switches.first() {
        Some((key, _)) => Ok(Op::Set(at(key), Value::Flag(*key == "disabled"))),
        None => {
            let (key, value) = entry::off(entry.flavor);
            let (node, key) = (Node::new(Place::default(), Value::Flag(value)), Some(key.to_owned()));
            Ok(Op::Insert { into: path.clone(), at: None, key, node, source: None })
        }
    }
}

/// The text of a file, parsed.
struct File<'a> {
    /// The text without its byte order mark.
    text: &'a str,
    mark: &'a str,
    path: std::path::PathBuf,
    syntax: Syntax,
    /// The tree; `None` if the text has no content.
    root: Option<Node>,
    request: &'a LoadRequest,
}

/// The object or list to which a new entry is added.
struct Target {
    into: Path,
    flavor: Flavor,
    is_list: bool,
    /// The keys on the path that do not exist yet.
    missing: Vec<String>,
}

impl Target {
    /// Refuses references to the keyring for a client that would use them as the value itself.
    fn takes(&self, name: &str, server: &NewServer, client: Option<&Client>) -> Result<(), Refused> {
        let mut pairs = server.env.iter().chain(&server.headers);
        let wanted = pairs.find(|(_, value)| value.contains("${keyring:"));
        let node = server.entry(name, self.flavor, client);
        if wanted.is_none() || !super::server::keyring_names(&Entry::of(name, &node, self.flavor)).is_empty() {
            return Ok(());
        }
        let why = "in the file of this client, `${keyring:…}` is a text like any other: its secrets belong elsewhere";
        Err(Refused::Elsewhere(why.to_owned()))
    }

    fn insert(&self, name: &str, node: Node) -> Op {
        let mut key = (!self.is_list).then(|| name.to_owned());
        let mut node = node;
        for missing in self.missing.iter().rev() {
            let value = match key.take() {
                Some(key) => Value::Object(vec![syntax::Member { key, at: Place::default(), node }]),
                None => Value::List(vec![node]),
            };
            node = Node::new(Place::default(), value);
            key = Some(missing.clone());
        }
        Op::Insert { into: self.into.clone(), at: None, key, node, source: None }
    }
}

impl<'a> File<'a> {
    fn open(text: &'a str, path: &FilePath, request: &'a LoadRequest) -> Result<Self, Refused> {
        let (mark, text) = text.split_at(if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 });
        let syntax = Syntax::of(path);
        let mut report = Report::default();
        let number = report.add_file(path);
        let root = syntax::parse(text, syntax, number, &mut report);
        // A text of blanks and comments is no mistake here, because something is about to be added.
        let is_empty = root.is_none() && syntax::is_empty(text, syntax);
        if root.is_none() && !is_empty {
            return Err(mistakes(report));
        }
        Ok(Self { text, mark, path: place::absolute(path), syntax, root, request })
    }

    /// Returns the client whose file this is, if it is known.
    fn client(&self) -> Option<&'static Client> {
        self.request.client.or_else(|| Client::of_file(&self.path))
    }

    fn stand(&self) -> Stand<'_> {
        let request = self.request;
        let named = request.project_directory.as_deref();
        Stand { named, here: request.working_directory.as_deref(), home: request.home.as_deref() }
    }

    /// Finds the entries.
    fn shape(&self) -> Result<Shape<'_>, Refused> {
        let Some(root) = &self.root else { return Ok(Shape::default()) };
        self.shape_of(root).map_err(|report| mistakes(*report))
    }

    fn shape_of<'n>(&self, root: &'n Node) -> Result<Shape<'n>, Box<Report>> {
        let named = self.request.project_directory.is_some();
        if let Some(client) = self.client().filter(|_| !named && root.members().is_some())
            && shape::is_without(root, client.root)
        {
            return Ok(Shape::default());
        }
        let mut report = Report::default();
        report.add_file(&self.path);
        let none = root.members().is_some_and(|_| shape::has_none(root, &self.path));
        let shape = shape::read(root, &self.path, self.stand(), &mut report);
        match shape {
            Some(shape) if report.problems() == 0 => Ok(shape),
            // There are no servers yet.
            None if none => Ok(Shape::default()),
            _ => Err(Box::new(report)),
        }
    }

    fn entry<'s, 'n>(&self, shape: &'s Shape<'n>, name: &str) -> Result<&'s Entry<'n>, Refused> {
        let exact = shape.entries.iter().find(|entry| entry.name == name);
        let by_alias = || shape.entries.iter().find(|entry| alias(&entry.name).as_deref() == Some(name));
        exact.or_else(by_alias).ok_or_else(|| Refused::Unknown {
            name: name.to_owned(),
            known: shape.entries.iter().map(|entry| entry.name.clone()).collect(),
        })
    }

    /// Refuses a name that equals the name of a server or yields the alias of one; the server `but` may have it.
    fn free(&self, shape: &Shape<'_>, name: &str, but: Option<&str>) -> Result<(), Refused> {
        let wanted = alias(name);
        let taken = |entry: &&Entry<'_>| {
            but != Some(entry.name.as_str()) && (entry.name == name || alias(&entry.name) == wanted)
        };
        match shape.entries.iter().find(taken) {
            Some(entry) => Err(Refused::Exists(entry.name.clone())),
            None if but == Some(name) => Err(Refused::Nothing(format!("`{name}` is its name already"))),
            None => Ok(()),
        }
    }

    /// Returns the path to an entry.
    fn path(&self, entry: &Entry<'_>) -> Result<Path, Refused> {
        let path = self.root.as_ref().and_then(|root| path_to(root, entry.node)).unwrap_or_default();
        if path.is_empty() {
            let why = format!("the whole file is the entry of `{}`, and named after it", entry.name);
            return Err(Refused::Elsewhere(why));
        }
        Ok(path)
    }

    /// Finds where to add a new entry: beside the others, or where the file would keep them.
    fn container(&self, shape: &Shape<'_>) -> Result<Target, Refused> {
        let named = self.request.project_directory.is_some();
        if named && let Some(target) = self.of_project()? {
            return Ok(target);
        }
        if let Some(entry) = shape.entries.iter().find(|entry| entry.base.is_none()) {
            let mut into = self.path(entry)?;
            let is_list = matches!(into.pop(), Some(Step::Index(_)));
            return Ok(Target { into, flavor: entry.flavor, is_list, missing: Vec::new() });
        }
        let known = self.root.as_ref().and_then(|root| shape::container(root, &self.path));
        let (keys, flavor) = match (self.client(), known) {
            (Some(client), _) => (client.root, client.flavor),
            (None, Some(known)) => known,
            (None, None) => (&["mcpServers"][..], Flavor::Plain),
        };
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        Ok(self.at(&keys, flavor))
    }

    /// Finds where a named project of Claude Code's file keeps its servers.
    fn of_project(&self) -> Result<Option<Target>, Refused> {
        let Some(named) = self.request.project_directory.as_deref().map(place::absolute) else { return Ok(None) };
        let Some(projects) = self.root.as_ref().and_then(|root| root.get("projects")) else { return Ok(None) };
        let members = projects.members().unwrap_or_default();
        let Some(project) = members.iter().find(|member| super::claude::same(FilePath::new(&member.key), &named))
        else {
            let why = format!("the file has no project {}", named.display());
            return Err(Refused::Elsewhere(why));
        };
        let keys = ["projects", &project.key, "mcpServers"].map(str::to_owned);
        Ok(Some(self.at(&keys, Flavor::Plain)))
    }

    /// Returns the target to which these keys lead; the last keys may not exist yet.
    fn at(&self, keys: &[String], flavor: Flavor) -> Target {
        let there = |count: &usize| {
            let path: Path = keys[..*count].iter().cloned().map(Step::Key).collect();
            self.root.as_ref().is_some_and(|root| find(root, &path).is_some())
        };
        let count = (0..=keys.len()).rev().find(there).unwrap_or(0);
        let into: Path = keys[..count].iter().cloned().map(Step::Key).collect();
        let node = self.root.as_ref().and_then(|root| find(root, &into));
        // Continue has a list, which may not exist yet.
        let is_empty = count < keys.len() || node.is_some_and(|node| node.value == Value::Null);
        let is_list =
            node.is_some_and(|node| matches!(node.value, Value::List(_))) || is_empty && flavor == Flavor::Continue;
        let flavor = if is_list { Flavor::Continue } else { flavor };
        Target { into, flavor, is_list, missing: keys[count..].to_vec() }
    }

    /// Returns the new text, with its byte order mark, if the change can be proven.
    fn prove(&self, op: &Op, shape: &Shape<'_>, touched: &[&str]) -> Option<String> {
        let after = match (&self.root, op, self.syntax) {
            // An empty JSON file gets its first object.
            (None, Op::Insert { .. }, Syntax::Json) if self.text.trim().is_empty() => {
                let newline = splice::Style::of(self.text).newline;
                proof::proven("{}", None, self.syntax, op)?.replace('\n', newline) + newline
            }
            _ => proof::proven(self.text, self.root.as_ref(), self.syntax, op)?,
        };
        let root = syntax::parse(&after, self.syntax, 0, &mut Report::default())?;
        let new = self.shape_of(&root).ok()?;
        // If a file contains nothing but servers, it needs at least one to be recognized.
        if new.entries.is_empty() && !matches!(op, Op::Insert { .. }) && self.client().is_none() {
            shape::read(&root, &self.path, self.stand(), &mut Report::default())?;
        }
        let is_there = |name: &str| new.entries.iter().any(|entry| entry.name == name);
        let is_read = match op {
            Op::Rename(_, to) => is_there(to),
            _ => true,
        };
        let same = proof::others_are_same(&shape.entries, &new.entries, touched);
        (is_read && same).then(|| format!("{}{after}", self.mark))
    }

    fn unproven(&self, op: &Op, change: &Change) -> Refused {
        let snippet = match op {
            Op::Insert { key, node, .. } => self.snippet(key.as_deref(), node),
            Op::Set(path, value) => {
                let node = Node::new(Place::default(), value.clone());
                match path.last() {
                    Some(Step::Key(key)) => self.snippet(Some(key), &node),
                    _ => String::new(),
                }
            }
            Op::Rename(_, to) => format!("the new name: {to}"),
            Op::Remove(path) => match path.last() {
                Some(Step::Key(key)) => format!("the key to remove: {key}"),
                _ => format!("the entry to remove: {}", change.name()),
            },
        };
        let why = format!("`{}` cannot be edited here without changing something else", change.name());
        Refused::Unproven { why, snippet }
    }

    /// Formats a member as the user would write it.
    fn snippet(&self, key: Option<&str>, node: &Node) -> String {
        let style = splice::Style::of(self.text);
        match (self.syntax, key) {
            (Syntax::Yaml, key) => render::yaml_lines(key, node, "", &style),
            (Syntax::Toml, Some(key)) if node.members().is_some() => {
                render::toml_section(&[key.to_owned()], node, false, &style)
            }
            (Syntax::Toml, Some(key)) => Language::Toml.member(key, node),
            (Syntax::Json, Some(key)) => format!("{}: {}", render::quoted(key), render::json_lines(node, "", &style)),
            (_, None) => Language::Json.inline(node),
        }
    }
}

fn mistakes(report: Report) -> Refused {
    Refused::Mistakes(Error::Invalid { problems: report.finish().0 })
}
