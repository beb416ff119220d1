//! Formats values as text, in each syntax.

use super::op::Step;
use super::splice::Style;
use crate::config::syntax::{Member, Node, Value};

/// Returns a text in the quotes that all three syntaxes understand.
pub(super) fn quoted(text: &str) -> String {
    // Serializing a string cannot fail.
    let text = serde_json::to_string(text).unwrap_or_default();
    // TOML does not allow this character, and JSON does not escape it.
    text.replace('\u{7f}', "\\u007f")
}

/// The languages with lists and objects in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Json,
    Toml,
    Yaml,
}

impl Language {
    /// Formats a value on one line.
    pub(super) fn inline(self, node: &Node) -> String {
        match &node.value {
            Value::Null => "null".to_owned(),
            Value::Flag(flag) => flag.to_string(),
            Value::Number(number) => number.clone(),
            Value::Text(text) => quoted(text),
            Value::List(items) => {
                format!("[{}]", items.iter().map(|item| self.inline(item)).collect::<Vec<_>>().join(", "))
            }
            Value::Object(members) if members.is_empty() => "{}".to_owned(),
            Value::Object(members) => {
                let member = |member: &Member| self.member(&member.key, &member.node);
                format!("{{ {} }}", members.iter().map(member).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Formats a member of an object on one line.
    pub(super) fn member(self, key: &str, node: &Node) -> String {
        match self {
            Self::Toml => format!("{} = {}", toml_key(key), self.inline(node)),
            Self::Json | Self::Yaml => format!("{}: {}", quoted(key), self.inline(node)),
        }
    }

    /// Formats a key.
    pub(super) fn key(self, key: &str) -> String {
        match self {
            Self::Toml => toml_key(key),
            Self::Json | Self::Yaml => quoted(key),
        }
    }
}

/// Formats a value as JSON, with each member of an object on its own line. The first line is not indented.
pub(super) fn json_lines(node: &Node, indent: &str, style: &Style) -> String {
    match &node.value {
        Value::Object(members) if !members.is_empty() => {
            let inner = format!("{indent}{}", style.unit);
            let member = |Member { key, node, .. }: &Member| {
                format!("{inner}{}: {}", quoted(key), json_lines(node, &inner, style))
            };
            let members: Vec<String> = members.iter().map(member).collect();
            let newline = style.newline;
            format!("{{{newline}{}{newline}{indent}}}", members.join(&format!(",{newline}")))
        }
        _ => Language::Json.inline(node),
    }
}

/// Formats a key of TOML.
pub(super) fn toml_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { quoted(key) }
}

/// Formats a value as a TOML table with its own header. `head` is the path to the table.
pub(super) fn toml_section(head: &[String], node: &Node, is_of_list: bool, style: &Style) -> String {
    let mut head = head.to_vec();
    let mut node = node;
    // A table that contains only another table needs no header.
    while let Some([Member { key, node: inner, .. }]) = node.members()
        && inner.members().is_some_and(|members| !members.is_empty())
        && !is_of_list
    {
        head.push(key.clone());
        node = inner;
    }
    let keys = head.iter().map(|key| toml_key(key)).collect::<Vec<_>>().join(".");
    let mut text = if is_of_list { format!("[[{keys}]]") } else { format!("[{keys}]") };
    text.push_str(style.newline);
    for Member { key, node, .. } in node.members().unwrap_or_default() {
        text.push_str(&Language::Toml.member(key, node));
        text.push_str(style.newline);
    }
    text
}

/// Formats a member, or an item of a list, as lines of YAML.
pub(super) fn yaml_lines(key: Option<&str>, node: &Node, indent: &str, style: &Style) -> String {
    let newline = style.newline;
    match (key, &node.value) {
        (Some(key), Value::Object(members)) if !members.is_empty() => {
            let inner = format!("{indent}{}", step(style));
            let lines = members.iter().map(|member| yaml_lines(Some(&member.key), &member.node, &inner, style));
            format!("{indent}{}:{newline}{}", yaml_text(key), lines.collect::<String>())
        }
        (Some(key), Value::List(items)) if items.iter().any(|item| item.members().is_some()) => {
            let inner = format!("{indent}{}", step(style));
            let lines = items.iter().map(|item| yaml_lines(None, item, &inner, style));
            format!("{indent}{}:{newline}{}", yaml_text(key), lines.collect::<String>())
        }
        (Some(key), _) => format!("{indent}{}: {}{newline}", yaml_text(key), yaml_value(node)),
        (None, Value::Object(members)) if !members.is_empty() => {
            let inner = format!("{indent}  ");
            let lines = members.iter().map(|member| yaml_lines(Some(&member.key), &member.node, &inner, style));
            let lines = lines.collect::<String>();
            format!("{indent}- {}", &lines[inner.len()..])
        }
        (None, _) => format!("{indent}- {}{newline}", yaml_value(node)),
    }
}

/// Returns one step of indentation for YAML, which does not allow tabs.
pub(super) fn step(style: &Style) -> &str {
    if style.unit.starts_with('\t') { "  " } else { &style.unit }
}

fn yaml_value(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => yaml_text(text),
        _ => Language::Yaml.inline(node),
    }
}

/// Formats a text of YAML without quotes, if every reader takes it for a text then.
pub(super) fn yaml_text(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@');
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(plain)
        && !word.contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// Returns the keys of a path; `None` if it leads through a list.
pub(super) fn keys(path: &[Step]) -> Option<Vec<String>> {
    let key = |step: &Step| match step {
        Step::Key(key) => Some(key.clone()),
        Step::Index(_) => None,
    };
    path.iter().map(key).collect()
}
