//! Text in, a tree with places out: the one form in which JSON, TOML and YAML are read further.
//!
//! **Invariant:** nothing here knows a key. Start with [`Node`].

mod excerpt;
mod json;
mod toml;
mod yaml;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::place;
use super::report::{Place, Report};

/// The deepest nesting that is read.
const DEPTH: usize = 128;

/// How a config file is written.
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
    /// What it is called, and how its files end.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("JSON", "json"),
            Self::Toml => ("TOML", "toml"),
            Self::Yaml => ("YAML", "yaml"),
        }
    }

    /// Tells the syntax of a file by its extension; anything unknown is JSON, as dot files such as `.mcprc` are.
    pub fn of(file: &Path) -> Self {
        let extension = file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            _ => Self::Json,
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// Whether a text is as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Origin {
    /// As written in the file.
    #[default]
    Literal,
    /// A variable was put in: never to be shown.
    Expanded,
    /// A variable had no value: not to be judged.
    Missing,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Value {
    Null,
    Flag(bool),
    /// A number as it is written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Member>),
}

/// A member of an object. The same key may come twice.
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

    /// The members, when this is an object.
    pub(super) fn members(&self) -> Option<&[Member]> {
        match &self.value {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The first member with this key.
    pub(super) fn member(&self, key: &str) -> Option<&Member> {
        self.members()?.iter().find(|member| member.key == key)
    }

    /// The value under this key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.node)
    }

    /// The text, when this is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What kind of value this is, for a message.
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

/// Reads a text. Its problems go to the report; with any there is no tree.
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

fn parse_as(text: &str, syntax: Syntax, file: usize, report: &mut Report) -> Option<Node> {
    match syntax {
        Syntax::Json => json::parse(text, file, report),
        Syntax::Toml => toml::parse(text, file, report),
        Syntax::Yaml => yaml::parse(text, file, report),
    }
}

/// In which other syntax a text is written that is not in this one.
fn other(text: &str, syntax: Syntax) -> Option<Syntax> {
    let begins_as_json = text.trim_start().starts_with(['{', '[']);
    let is = |other: Syntax| {
        // A line of prose is YAML too, and all JSON is.
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

/// Says what a file is in place of what is wrong with it as what its name says.
fn misnamed(syntax: Syntax, other: Syntax, file: usize, before: usize, report: &mut Report) {
    report.drop_from(before);
    let ((said, _), (name, ending)) = (syntax.name(), other.name());
    let path = report.file(file).to_owned();
    let quoted = |path: &Path| place::quoted(&path.to_string_lossy());
    let help = format!("mv -n {} {}", quoted(&path), quoted(&path.with_extension(ending)));
    let message = format!("this is {name}, and the name of the file says {said}");
    report.problem(Place { file, ..Place::default() }, "", message).help(help);
}

/// Finds line and column of byte offsets.
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
