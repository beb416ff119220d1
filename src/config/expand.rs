//! Variables in the texts of a config: put in after parsing, once, in values only.
//!
//! Each client has its own way to write them; [`Dialect`] tells which one a file uses. Nothing is ever run to get a
//! value, and a value is never looked at again for more variables. What a keyring has is asked by `keyring.rs`.

use std::collections::BTreeMap;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use super::contents::Reads;
use super::keyring::Asked;
use super::report::Report;
use super::secret::Secret;
use super::syntax::{Member, Node, Origin, Value};
use super::vars::Vars;
use crate::redact;

/// The most that is read of a file with values.
const FILE: u64 = 64 * 1024;

/// How a file writes its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `${X}`, `${X:-default}`, `${env:X}`, `${file:…}`, `${input:…}`, `${userHome}` and the editors' others.
    Dollar,
    /// The same, and `$X`; on Windows `%X%` too.
    Shell,
    /// `{env:X}` and `{file:…}`.
    Braces,
    /// `${{ secrets.X }}` and `${{ inputs.X }}` beside [`Dialect::Dollar`].
    Templates,
    /// No variables at all.
    None,
}

/// Where values come from while one server's entry is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) vars: &'a Vars,
    pub(super) home: Option<&'a Path>,
    /// The config file.
    pub(super) file: &'a Path,
    /// What the file's `inputs` say of each id.
    pub(super) inputs: &'a BTreeMap<String, String>,
    pub(super) dialect: Dialect,
    /// What reads other files.
    pub(super) reads: &'a Reads,
    /// What asks a keyring, for a server that may be started.
    pub(super) keyring: Option<&'a Asked<'a>>,
}

/// What came of an expansion beside the tree.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What had no value: field and reason.
    pub(super) missing: Vec<String>,
    /// Values that are not to be seen, by the name of their variable or because they come from a file or an input.
    pub(super) secrets: Vec<Secret>,
}

enum Resolved {
    Value(String),
    Missing(String),
    Unknown,
}

impl Scope<'_> {
    /// Puts the variables into a tree.
    pub(super) fn expand(&self, node: &Node, path: &str, outcome: &mut Outcome, report: &mut Report) -> Node {
        let value = match &node.value {
            Value::Text(text) => return self.expand_text(node, text, path, outcome, report),
            Value::List(items) => {
                let items = items.iter().enumerate();
                Value::List(
                    items.map(|(i, item)| self.expand(item, &format!("{path}[{i}]"), outcome, report)).collect(),
                )
            }
            Value::Object(members) => {
                let mut expanded = Vec::with_capacity(members.len());
                for Member { key, at, node } in members {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let node = self.expand(node, &path, outcome, report);
                    expanded.push(Member { key: key.clone(), at: *at, node });
                }
                Value::Object(expanded)
            }
            other => other.clone(),
        };
        Node { at: node.at, value, origin: node.origin }
    }

    fn expand_text(&self, node: &Node, text: &str, path: &str, outcome: &mut Outcome, report: &mut Report) -> Node {
        let mut origin = Origin::Literal;
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, reference, body, after)) = next(rest, self.dialect) {
            out.push_str(before);
            rest = after;
            match self.resolve(body) {
                Resolved::Value(value) => {
                    let secret = ["file:", "input", "keyring:"].iter().any(|kind| body.starts_with(kind));
                    if secret || redact::names_a_secret(body) {
                        outcome.secrets.push(Secret::new(value.as_str()));
                    }
                    out.push_str(&value);
                    if origin == Origin::Literal {
                        origin = Origin::Expanded;
                    }
                }
                Resolved::Missing(reason) => {
                    outcome.missing.push(format!("{path}: {reason}"));
                    out.push_str(reference);
                    origin = Origin::Missing;
                }
                Resolved::Unknown => {
                    report.note(node.at, path, format!("{reference} is no variable known here, left as it is"));
                    out.push_str(reference);
                }
            }
        }
        out.push_str(rest);
        if self.dialect == Dialect::None && text.contains("${") {
            report.note(node.at, path, "this kind of file has no variables, left as it is");
        }
        Node { at: node.at, value: Value::Text(out), origin }
    }

    fn resolve(&self, body: &str) -> Resolved {
        // One look only: a default is text, and a variable inside it would be left half read.
        if body.contains("${") {
            return Resolved::Unknown;
        }
        if let Some(name) = body.strip_prefix("secrets.").filter(|_| self.dialect == Dialect::Templates) {
            return self.variable(name);
        }
        if let Some(id) = body.strip_prefix("inputs.").filter(|_| self.dialect == Dialect::Templates) {
            return self.input(id);
        }
        match body.split_once(':') {
            Some(("env", name)) => return self.variable(name),
            Some(("input", id)) => return self.input(id),
            Some(("file", path)) => return self.file(path),
            Some(("keyring", name)) => return self.entry(name),
            Some((kind @ ("cmd" | "command"), _)) => {
                return Resolved::Missing(format!(
                    "${{{kind}:…}} would run a command, which a config may not; use ${{env:NAME}}"
                ));
            }
            Some(("config", name)) => {
                return Resolved::Missing(format!("only an editor knows its setting {name:?}; use ${{env:NAME}}"));
            }
            _ => {}
        }
        match body {
            "/" | "pathSeparator" => Resolved::Value(MAIN_SEPARATOR.to_string()),
            "userHome" => self.home.map_or_else(|| unset("HOME"), path_value),
            _ if body.starts_with("workspaceFolder") => self.workspace(body),
            _ => self.variable(body),
        }
    }

    /// `NAME` or `NAME:-default`.
    fn variable(&self, body: &str) -> Resolved {
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
            return Resolved::Unknown;
        }
        match (self.vars.get(name), default) {
            (Some(value), None) => Resolved::Value(value.to_owned()),
            (Some(value), Some(_)) if !value.is_empty() => Resolved::Value(value.to_owned()),
            (_, Some(default)) => Resolved::Value(default.to_owned()),
            (None, None) => unset(name),
        }
    }

    fn input(&self, id: &str) -> Resolved {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name = format!("MCP_HOST_INPUT_{}", id.chars().map(upper).collect::<String>());
        match self.vars.get(&name) {
            Some(value) => Resolved::Value(value.to_owned()),
            None => {
                let about = self.inputs.get(id).filter(|about| !about.is_empty());
                let about = about.map_or(String::new(), |about| format!(" ({about})"));
                Resolved::Missing(format!("the input {id:?}{about} has no value; set {name}"))
            }
        }
    }

    fn entry(&self, name: &str) -> Resolved {
        let Some(keyring) = self.keyring else {
            let what = "of a keyring is only for the entries of servers; use ${env:NAME} or ${file:PATH}";
            return Resolved::Missing(format!("{name:?} {what}"));
        };
        match keyring.value(name) {
            Ok(secret) => Resolved::Value(secret.expose().to_owned()),
            Err(reason) => Resolved::Missing(reason),
        }
    }

    fn file(&self, path: &str) -> Resolved {
        let full = self.path(path);
        match self.reads.text(&full, FILE) {
            Ok(text) => {
                let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
                Resolved::Value(line.unwrap_or(&text).to_owned())
            }
            Err(error) => Resolved::Missing(format!("the file {} cannot be read: {error}", full.display())),
        }
    }

    /// A path of the config: `~` is the home, and a relative one starts at the config file.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.folder().join(path),
        }
    }

    fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// The folder that an editor would have open, told from where the file lies: `x/.vscode/mcp.json` and
    /// `x/.mcp.json` mean `x`.
    fn workspace(&self, body: &str) -> Resolved {
        let hidden = |path: &&Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let inside = [self.file, self.folder()].into_iter().find(hidden);
        let Some(folder) = inside.and_then(Path::parent).filter(|folder| Some(*folder) != self.home) else {
            return Resolved::Missing(format!("there is no open workspace for ${{{body}}}; write the path"));
        };
        match body {
            "workspaceFolder" => path_value(folder),
            "workspaceFolderBasename" => {
                folder.file_name().map_or(Resolved::Unknown, |name| path_value(Path::new(name)))
            }
            _ => match body.strip_prefix("workspaceFolder:") {
                Some(name) if folder.file_name().is_some_and(|folder| folder == name) => path_value(folder),
                Some(_) => Resolved::Missing(format!("only an editor knows ${{{body}}}; write the path")),
                None => self.variable(body),
            },
        }
    }
}

fn unset(name: &str) -> Resolved {
    Resolved::Missing(format!("the variable {name} is not set; set it before the host starts"))
}

fn path_value(path: &Path) -> Resolved {
    Resolved::Value(path.to_string_lossy().into_owned())
}

/// Finds the next reference: the text before it, itself, its body, the text after it.
pub(super) fn next(text: &str, dialect: Dialect) -> Option<(&str, &str, &str, &str)> {
    let found = |start: usize, open: usize, close: &str| {
        let length = text[start + open..].find(close)?;
        let end = start + open + length;
        let after = end + close.len();
        Some((&text[..start], &text[start..after], text[start + open..end].trim(), &text[after..]))
    };
    for (start, c) in text.char_indices() {
        let rest = &text[start..];
        let reference = match (c, dialect) {
            (_, Dialect::None) => return None,
            ('{', Dialect::Braces) if rest.starts_with("{env:") || rest.starts_with("{file:") => found(start, 1, "}"),
            ('$', Dialect::Templates) if rest.starts_with("${{") => found(start, 3, "}}"),
            ('$', Dialect::Dollar | Dialect::Shell | Dialect::Templates) if rest.starts_with("${") => {
                found(start, 2, "}")
            }
            ('$', Dialect::Shell) => bare(text, start),
            ('%', Dialect::Shell) if cfg!(windows) => found(start, 1, "%").filter(|(_, _, body, _)| is_plain(body)),
            _ => None,
        };
        if reference.is_some() {
            return reference;
        }
    }
    None
}

/// `$NAME` at `start`.
fn bare(text: &str, start: usize) -> Option<(&str, &str, &str, &str)> {
    let body = &text[start + 1..];
    let length = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(body.len());
    let end = start + 1 + length;
    let name = &text[start + 1..end];
    let named = is_plain(name) && !name.starts_with(|c: char| c.is_ascii_digit());
    named.then(|| (&text[..start], &text[start..end], name, &text[end..]))
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
