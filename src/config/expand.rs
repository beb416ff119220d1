//! Substitutes variables in the texts of a config: after parsing, once, and only in values, never in keys.
//!
//! The syntax of variables is in `dialect.rs`. Nothing is ever run to get a value, and a substituted value is never
//! searched for more variables. Lookups in a keyring are in `keyring.rs`.

use std::path::{MAIN_SEPARATOR, Path, PathBuf};

use super::contents::Reads;
use super::dialect::{Dialect, next};
use super::inputs::{self, Input, Inputs};
use super::keyring::Lookups;
use super::place;
use super::report::{Lack, Report};
use super::secret::Secret;
use super::syntax::{Member, Node, Origin, Value};
use super::tools::is_preset;
use super::vars::Vars;
use crate::protocol::Theirs;
use crate::redact;

/// The largest file that may hold a variable's value (`${file:…}`), in bytes.
const FILE: u64 = 64 * 1024;

/// Where the values of variables come from while one server's entry is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) vars: &'a Vars,
    pub(super) home: Option<&'a Path>,
    /// The absolute path of the config file.
    pub(super) file: &'a Path,
    /// The folder where relative paths start; `None` means the folder of `file`.
    pub(super) base: Option<&'a Path>,
    /// The `inputs` that the file declares, by id.
    pub(super) inputs: &'a Inputs,
    pub(super) dialect: Dialect,
    /// Reads the other files that the config names.
    pub(super) reads: &'a Reads,
    /// The keyring; `None` while it must not be asked.
    pub(super) keyring: Option<&'a Lookups<'a>>,
}

/// What an expansion yields besides the tree with the substituted values.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Variables that have no value.
    pub(super) missing: Vec<Lack>,
    /// The original texts of fields that contained variables: the field's path, and its text as written.
    written: Vec<(String, String)>,
    /// Values that must not be shown, because of their variable's name or because they come from a file, an input or a
    /// keyring.
    pub(super) secrets: Vec<Secret>,
}

impl Outcome {
    /// Returns the original text of a field, if it contained variables.
    pub(super) fn written(&self, field: &str) -> Option<&str> {
        self.written.iter().find(|(known, _)| known == field).map(|(_, text)| text.as_str())
    }
}

enum Resolved {
    Value(String),
    /// A value that may be shown, such as the config file's folder or an input's default that is written in the config.
    Plain(String),
    /// The problem, and what to do about it.
    Missing(String, Option<String>),
    Unknown,
}

impl Scope<'_> {
    /// Substitutes the variables in a tree.
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
                    if secret || redact::names_a_secret(body) || is_preset(path) {
                        outcome.secrets.push(Secret::new(value.as_str()));
                    }
                    out.push_str(&value);
                    if origin == Origin::Literal {
                        origin = Origin::Expanded;
                    }
                }
                Resolved::Plain(value) => out.push_str(&value),
                Resolved::Missing(message, help) => {
                    outcome.missing.push(Lack { at: node.at, field: path.to_owned(), message, help });
                    out.push_str(reference);
                    origin = Origin::Missing;
                }
                Resolved::Unknown => {
                    report.note(node.at, path, format!("{} is not a known variable, left as is", Theirs(reference)));
                    out.push_str(reference);
                }
            }
        }
        out.push_str(rest);
        if origin != Origin::Literal {
            outcome.written.push((path.to_owned(), text.to_owned()));
        }
        if self.dialect == Dialect::None && text.contains("${") {
            report.note(node.at, path, "this kind of file has no variables, left as is");
        }
        Node { at: node.at, value: Value::Text(out), origin }
    }

    fn resolve(&self, body: &str) -> Resolved {
        if body.starts_with("$(") {
            let message = "$(…) would run a command, which a config may not do".to_owned();
            return missing(message, "use $NAME, and set that variable before the host starts");
        }
        // Texts are expanded once. A default is plain text, so a variable inside it would be left half expanded.
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
                let message = format!("${{{kind}:…}} would run a command, which a config may not do");
                return missing(message, "use ${env:NAME}");
            }
            Some(("config", name)) => {
                return missing(format!("only an editor knows its setting {name:?}"), "use ${env:NAME}");
            }
            _ => {}
        }
        match body {
            "/" | "pathSeparator" => Resolved::Plain(MAIN_SEPARATOR.to_string()),
            "userHome" => self.home.map_or_else(|| unset("HOME"), known_place),
            "cwd" if self.vars.get("cwd").is_none() => self.workspace(body),
            _ if body.starts_with("workspaceFolder") => self.workspace(body),
            _ => self.variable(body),
        }
    }

    /// Resolves `NAME` or `NAME:-default`.
    fn variable(&self, body: &str) -> Resolved {
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
            return Resolved::Unknown;
        }
        self.reads.name(name);
        match (self.vars.get(name), default) {
            (Some(value), None) => Resolved::Value(value.to_owned()),
            (Some(value), Some(_)) if !value.is_empty() => Resolved::Value(value.to_owned()),
            (_, Some(default)) => Resolved::Value(default.to_owned()),
            (None, None) => unset(name),
        }
    }

    fn input(&self, id: &str) -> Resolved {
        let name = inputs::variable(id);
        self.reads.name(&name);
        match (self.vars.get(&name), self.inputs.get(id)) {
            (Some(value), _) => Resolved::Value(value.to_owned()),
            (None, Some(Input { default: Some(value), password: true, .. })) => Resolved::Value(value.clone()),
            (None, Some(Input { default: Some(value), .. })) => Resolved::Plain(value.clone()),
            (None, input) => {
                let about = input.map(|input| input.about.as_str()).filter(|about| !about.is_empty());
                let about = about.map_or(String::new(), |about| format!(" ({about})"));
                let one_of = input.filter(|input| !input.options.is_empty());
                let one_of = one_of.map_or(String::new(), |input| format!(" to one of {}", input.options.join(", ")));
                missing(format!("the input {id:?}{about} has no value"), format!("set {name}{one_of}"))
            }
        }
    }

    fn entry(&self, name: &str) -> Resolved {
        let Some(keyring) = self.keyring else {
            let what = "from a keyring may only be used in server entries";
            return missing(format!("{name:?} {what}"), "use ${env:NAME} or ${file:PATH}");
        };
        match keyring.value(name) {
            Ok(secret) => Resolved::Value(secret.expose().to_owned()),
            Err(reason) => Resolved::Missing(reason, None),
        }
    }

    fn file(&self, path: &str) -> Resolved {
        let full = self.path(path);
        match self.reads.text(&full, FILE) {
            Ok(text) => {
                let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
                Resolved::Value(line.unwrap_or(&text).to_owned())
            }
            Err(error) => Resolved::Missing(
                format!("the file {} cannot be read: {}", full.display(), place::reason(&error)),
                place::help(&full, &error),
            ),
        }
    }

    /// Resolves a path that the config names: `~/` is the home directory, and a relative path starts in the folder that
    /// applies to this entry.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.folder().join(path),
        }
    }

    fn folder(&self) -> &Path {
        if let Some(base) = self.base {
            return base;
        }
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Resolves variables that stand for the folder that an editor would have open.
    fn workspace(&self, body: &str) -> Resolved {
        let Some(folder) = self.base.or_else(|| place::workspace(self.file, self.home)) else {
            return missing(format!("there is no open workspace for ${{{body}}}"), "write the path");
        };
        match body {
            "workspaceFolder" | "cwd" => known_place(folder),
            "workspaceFolderBasename" => {
                folder.file_name().map_or(Resolved::Unknown, |name| known_place(Path::new(name)))
            }
            _ => match body.strip_prefix("workspaceFolder:") {
                Some(name) if folder.file_name().is_some_and(|folder| folder == name) => known_place(folder),
                Some(_) => missing(format!("only an editor knows ${{{body}}}"), "write the path"),
                None => self.variable(body),
            },
        }
    }
}

/// Suggests what to do about a variable that is not set.
pub(super) fn set_it(name: &str) -> String {
    format!("set it before mcp-host starts: export {name}=…")
}

fn unset(name: &str) -> Resolved {
    missing(format!("the variable {name} is not set"), set_it(name))
}

fn missing(message: String, help: impl Into<String>) -> Resolved {
    Resolved::Missing(message, Some(help.into()))
}

fn known_place(path: &Path) -> Resolved {
    Resolved::Plain(path.to_string_lossy().into_owned())
}
