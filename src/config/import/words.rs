//! Converts a client's references to variables into those of our own config; pure.
//!
//! A text with a reference is marked, so that the reader of entries does not take it for a literal value.

use std::path::Path;

use crate::config::dialect::{Dialect, next};
use crate::config::shape::Flavor;
use crate::config::syntax::{Member, Node, Origin, Value};

/// How one entry refers to variables.
pub(super) struct Words<'a> {
    flavor: Flavor,
    file: &'a Path,
    /// The values to which headers of Goose may refer.
    own: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    pub(super) fn of(flavor: Flavor, entry: &'a Node, file: &'a Path) -> Self {
        let envs = entry.get("envs").filter(|_| flavor == Flavor::Goose).and_then(Node::members).unwrap_or_default();
        let own = envs.iter().filter_map(|member| Some((member.key.as_str(), member.node.text()?))).collect();
        Self { flavor, file, own }
    }

    /// Returns a member of the entry with its references converted, or why they cannot be.
    pub(super) fn member(&self, member: &Member) -> Result<Member, String> {
        let is_headers = self.flavor == Flavor::Goose && member.key == "headers";
        let dialect = if is_headers { Dialect::Shell } else { self.flavor.dialect() };
        Ok(Member { node: self.node(&member.node, dialect, &member.key)?, ..member.clone() })
    }

    /// Returns the headers that a member of Codex's entry gives; `None` if it gives none. Codex names variables where
    /// other clients have values.
    pub(super) fn headers(&self, member: &Member) -> Option<Vec<Member>> {
        let reference = |key: &str, member: &Member, scheme: &str| {
            let name = member.node.text()?;
            let text = Value::Text(format!("{scheme}${{{name}}}"));
            let node = Node { origin: Origin::Missing, ..Node::new(member.node.at, text) };
            Some(Member { key: key.to_owned(), at: member.at, node })
        };
        match member.key.as_str() {
            "bearer_token_env_var" => Some(reference("Authorization", member, "Bearer ").into_iter().collect()),
            "env_http_headers" => {
                Some(member.node.members()?.iter().filter_map(|each| reference(&each.key, each, "")).collect())
            }
            "http_headers" => Some(self.member(member).ok()?.node.members()?.to_vec()),
            _ => None,
        }
    }

    fn node(&self, node: &Node, dialect: Dialect, path: &str) -> Result<Node, String> {
        let value = match &node.value {
            Value::Text(text) => {
                let (text, has_reference) = self.text(text, dialect, path)?;
                let origin = if has_reference { Origin::Missing } else { Origin::Literal };
                return Ok(Node { origin, ..Node::new(node.at, Value::Text(text)) });
            }
            Value::List(items) => {
                let item = |(at, item): (usize, &Node)| self.node(item, dialect, &format!("{path}[{at}]"));
                Value::List(items.iter().enumerate().map(item).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let member = |member: &Member| {
                    let node = self.node(&member.node, dialect, &format!("{path}.{}", member.key))?;
                    Ok::<_, String>(Member { node, ..member.clone() })
                };
                Value::Object(members.iter().map(member).collect::<Result<_, _>>()?)
            }
            other => other.clone(),
        };
        Ok(Node::new(node.at, value))
    }

    /// Returns a text with its references converted, and whether it has any.
    fn text(&self, text: &str, dialect: Dialect, path: &str) -> Result<(String, bool), String> {
        let (mut out, mut rest, mut has_reference) = (String::with_capacity(text.len()), text, false);
        let literal = |part: &str| match dialect != Dialect::Dollar && part.contains("${") {
            true => Err(format!("{path}: `${{` is plain text there, and would be a variable here")),
            false => Ok(()),
        };
        while let Some((before, reference, body, after)) = next(rest, dialect) {
            literal(before)?;
            out.push_str(before);
            match self.reference(reference, body, dialect, path)? {
                Word::Reference(text) => {
                    has_reference = true;
                    out.push_str(&text);
                }
                Word::Value(text) => out.push_str(&text),
            }
            rest = after;
        }
        literal(rest)?;
        out.push_str(rest);
        Ok((out, has_reference))
    }

    fn reference(&self, reference: &str, body: &str, dialect: Dialect, path: &str) -> Result<Word, String> {
        if body.starts_with("$(") {
            return Err(format!("{path}: `$(…)` would run a command, which a config may not do"));
        }
        if self.flavor == Flavor::Goose
            && let Some((_, value)) = self.own.iter().find(|(name, _)| *name == body)
        {
            return Ok(Word::Value((*value).to_owned()));
        }
        if let Some(file) = body.strip_prefix("file:") {
            return Ok(Word::Reference(format!("${{file:{}}}", absolute(self.file, file))));
        }
        Ok(Word::Reference(match dialect {
            Dialect::Braces => format!("${{{body}}}"),
            Dialect::Templates if body.starts_with("secrets.") => format!("${{env:{}}}", &body["secrets.".len()..]),
            Dialect::Templates if body.starts_with("inputs.") => format!("${{input:{}}}", &body["inputs.".len()..]),
            _ if reference.starts_with("${") => reference.to_owned(),
            _ => format!("${{{body}}}"),
        }))
    }
}

enum Word {
    Reference(String),
    Value(String),
}

/// Returns a path that means from any folder what it means in this file. Paths that start with the home directory or a
/// variable are unchanged.
pub(super) fn absolute(file: &Path, path: &str) -> String {
    if path.starts_with("~/") || path.starts_with("${") || Path::new(path).is_absolute() {
        return path.to_owned();
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    file.parent().unwrap_or(Path::new("")).join(path).to_string_lossy().into_owned()
}
