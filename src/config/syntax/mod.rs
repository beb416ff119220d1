//! Parses JSON, TOML and YAML into one kind of tree, whose values know their line and column. Later steps read only
//! this tree.
//!
//! **Invariant:** nothing here depends on the name of any config key. Start with [`Node`].

mod build;
mod excerpt;
mod json;
mod toml;
mod write;
mod yaml;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(super) use self::build::{Writer, list, node};
pub(super) use self::excerpt::masked;
pub(super) use self::write::write;
use super::place;
use super::report::{Place, Report};

/// The deepest nesting accepted.
const DEPTH: usize = 128;

/// The language in which a config file is written.
///
/// ```
/// use mcp_host::config::Syntax;
///
/// assert_eq!(Syntax::of("config.yaml".as_ref()), Syntax::Yaml);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Syntax {
    /// JSON; comments and trailing commas are allowed.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

impl Syntax {
    /// Returns the name of the syntax, and its file extension.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("JSON", "json"),
            Self::Toml => ("TOML", "toml"),
            Self::Yaml => ("YAML", "yaml"),
        }
    }

    /// Guesses the syntax of a file from its extension. Anything unknown is JSON, such as dotfiles like `.mcprc`.
    pub fn of(file: &Path) -> Self {
        let extension = file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Json,
        }
    }
}

/// A value, and its place in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// Whether a text is as written in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Origin {
    /// The text is as written in the file; nothing was substituted.
    #[default]
    Literal,
    /// A variable was substituted, so the text must never be shown.
    Expanded,
    /// A variable had no value, so there is no point in checking the text.
    Missing,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Value {
    Null,
    Flag(bool),
    /// A number, as written in the file.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Member>),
}

/// A member of an object. An object may have several members with the same key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) at: Place,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn new(at: Place, value: Value) -> Self {
        Self { at, value, origin: Origin::Literal }
    }

    /// Returns the members, if this is an object.
    pub(super) fn members(&self) -> Option<&[Member]> {
        match &self.value {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the first member with this key.
    pub(super) fn member(&self, key: &str) -> Option<&Member> {
        self.members()?.iter().find(|member| member.key == key)
    }

    /// Returns the value under this key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.node)
    }

    /// Returns the text, if this is a text.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the kind of this value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Flag(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

/// Parses a text. Returns `None`, and adds the problems to the report, if there are any.
pub(super) fn parse(text: &str, syntax: Syntax, file: usize, report: &mut Report) -> Option<Node> {
    // Editors on Windows still write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let before = report.problems();
    let node = parse_as(text, syntax, file, report);
    if node.is_none() {
        match other(text, syntax) {
            Some(other) => misnamed(syntax, other, file, before, report),
            None => report.show_lines(before, |line, column| excerpt::excerpt(text, line, column)),
        }
    }
    let node = node?;
    if matches!(node.value, Value::Null) {
        let problem = report.problem(Place { file, ..Place::default() }, "", "the file is empty");
        problem.help("begin with: { \"mcpServers\": { \"files\": { \"command\": \"…\", \"args\": [] } } }");
        return None;
    }
    Some(node)
}

/// Reports whether a text has no content, only blanks and comments.
pub(super) fn is_empty(text: &str, syntax: Syntax) -> bool {
    let node = parse_as(text, syntax, 0, &mut Report::default());
    node.is_some_and(|node| node.value == Value::Null)
}

fn parse_as(text: &str, syntax: Syntax, file: usize, report: &mut Report) -> Option<Node> {
    match syntax {
        Syntax::Json => json::parse(text, file, report),
        Syntax::Toml => toml::parse(text, file, report),
        Syntax::Yaml => yaml::parse(text, file, report),
    }
}

/// Returns the syntax in which a text is really written, or `None` if that is not clear or is the expected one.
fn other(text: &str, syntax: Syntax) -> Option<Syntax> {
    let begins_as_json = text.trim_start().starts_with(['{', '[']);
    let is = |other: Syntax| {
        // A line of prose is valid YAML, and so is all JSON.
        let likely = match other {
            Syntax::Json => begins_as_json,
            Syntax::Toml => true,
            Syntax::Yaml => !begins_as_json,
        };
        let node = if likely { parse_as(text, other, 0, &mut Report::default()) } else { None };
        node.is_some_and(|node| node.members().is_some_and(|members| !members.is_empty()))
    };
    [Syntax::Json, Syntax::Toml, Syntax::Yaml].into_iter().find(|other| *other != syntax && is(*other))
}

/// Replaces the syntax errors of a file, which begin at index `before`, by one problem: its extension is wrong.
fn misnamed(syntax: Syntax, other: Syntax, file: usize, before: usize, report: &mut Report) {
    report.drop_from(before);
    let ((said, _), (name, ending)) = (syntax.name(), other.name());
    let path = report.file(file).to_owned();
    let quoted = |path: &Path| place::quoted(&path.to_string_lossy());
    let help = format!("mv -n {} {}", quoted(&path), quoted(&path.with_extension(ending)));
    let message = format!("this is {name}, but the file name says {said}");
    report.problem(Place { file, ..Place::default() }, "", message).help(help);
}

/// Converts byte offsets to lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    file: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, file: usize) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(ends.map(|(offset, _)| offset + 1)).collect();
        Self { text, starts, file }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        Place { file: self.file, line, column: before.chars().count() + 1 }
    }
}

fn too_deep(at: Place, report: &mut Report) -> Option<Node> {
    report.problem(at, "", format!("nested deeper than {DEPTH} levels"));
    None
}
