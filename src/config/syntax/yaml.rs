//! YAML. Its parser states the line and column of syntax errors, but not of values, so this file searches the text for
//! keys.

use std::collections::HashMap;

use serde_yaml_ng as yaml;

use super::{DEPTH, Member, Node, Value, too_deep};
use crate::config::report::{Place, Report};

pub(super) fn parse(text: &str, file: usize, report: &mut Report) -> Option<Node> {
    match yaml::from_str::<yaml::Value>(text) {
        Ok(value) => Converter { places: places(text, file), report }.convert(value, &mut Vec::new()),
        Err(error) => {
            let at = error.location().map_or(Place { file, ..Place::default() }, |location| Place {
                file,
                line: location.line(),
                column: location.column(),
            });
            let line = at.line.checked_sub(1).and_then(|line| text.lines().nth(line)).unwrap_or_default();
            if line.trim_start_matches(' ').starts_with('\t') {
                report
                    .problem(at, "", "not valid YAML: a tab, but YAML indents with spaces only")
                    .help("write two spaces for each tab");
            } else {
                report.problem(at, "", format!("not valid YAML: {error}"));
            }
            None
        }
    }
}

/// The keys and list indices that lead to a value from the root.
type Path = Vec<String>;

struct Converter<'a> {
    places: HashMap<Path, Place>,
    report: &'a mut Report,
}

impl Converter<'_> {
    fn convert(&mut self, value: yaml::Value, path: &mut Path) -> Option<Node> {
        let at = self.place(path);
        if path.len() > DEPTH {
            return too_deep(at, self.report);
        }
        let value = match value {
            yaml::Value::Null => Value::Null,
            yaml::Value::Bool(flag) => Value::Flag(flag),
            yaml::Value::Number(number) => Value::Number(number.to_string()),
            yaml::Value::String(text) => Value::Text(text),
            yaml::Value::Sequence(list) => {
                let mut nodes = Vec::with_capacity(list.len());
                for (index, value) in list.into_iter().enumerate() {
                    path.push(index.to_string());
                    nodes.push(self.convert(value, path)?);
                    path.pop();
                }
                Value::List(nodes)
            }
            yaml::Value::Mapping(mapping) => {
                let mut members = Vec::with_capacity(mapping.len());
                for (key, value) in mapping {
                    let key = name(key);
                    path.push(key.clone());
                    let at = self.place(path);
                    let node = self.convert(value, path)?;
                    members.push(Member { key, at, node });
                    path.pop();
                }
                Value::Object(members)
            }
            yaml::Value::Tagged(tagged) => {
                // A tag counts as one more level of recursion, and is otherwise ignored.
                path.push(String::new());
                let node = self.convert(tagged.value, path)?;
                path.pop();
                node.value
            }
        };
        Some(Node::new(at, value))
    }

    /// Returns the place of a value, or of the nearest value around it.
    fn place(&self, path: &[String]) -> Place {
        (0..=path.len()).rev().find_map(|length| self.places.get(&path[..length])).copied().unwrap_or_default()
    }
}

fn name(key: yaml::Value) -> String {
    match key {
        yaml::Value::String(text) => text,
        yaml::Value::Number(number) => number.to_string(),
        yaml::Value::Bool(flag) => flag.to_string(),
        _ => "?".to_owned(),
    }
}

/// Finds the places of keys as far as the indentation shows them: only in block style, and only one key per line.
fn places(text: &str, file: usize) -> HashMap<Path, Place> {
    let mut found = HashMap::from([(Path::new(), Place { file, ..Place::default() })]);
    // The open blocks: the column where each starts, and its current key or index.
    let mut open: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start_matches(' ');
        let mut column = line.len() - rest.len();
        while let Some(after) = rest.strip_prefix("- ").or_else(|| (rest == "-").then_some("")) {
            // A list may start at the column of its key, so a list item at this column does not end that key's block.
            while open.last().is_some_and(|(at, key)| *at > column || (*at == column && is_index(key))) {
                let Some((at, key)) = open.pop() else { break };
                if at == column {
                    open.push((column, format!("{}", key.parse::<usize>().unwrap_or(0) + 1)));
                    break;
                }
            }
            if !open.last().is_some_and(|(at, key)| *at == column && is_index(key)) {
                open.push((column, "0".to_owned()));
            }
            insert(&mut found, &open, Place { file, line: number + 1, column: column + 1 });
            let trimmed = after.trim_start_matches(' ');
            column += rest.len() - trimmed.len();
            rest = trimmed;
        }
        let Some(key) = key_of(rest) else { continue };
        while open.last().is_some_and(|(at, _)| *at >= column) {
            open.pop();
        }
        open.push((column, key.to_owned()));
        insert(&mut found, &open, Place { file, line: number + 1, column: column + 1 });
    }
    found
}

fn insert(found: &mut HashMap<Path, Place>, open: &[(usize, String)], at: Place) {
    found.entry(open.iter().map(|(_, key)| key.clone()).collect()).or_insert(at);
}

fn is_index(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the key at the start of a line.
fn key_of(line: &str) -> Option<&str> {
    if line.starts_with(['#', '{', '[', '&', '*', '!', '|', '>', '%', '@', '`']) {
        return None;
    }
    if let Some(quote @ ('"' | '\'')) = line.chars().next() {
        let (key, after) = line[1..].split_once(quote)?;
        return after.trim_start().starts_with(':').then_some(key);
    }
    let (key, after) = line.split_once(':')?;
    (after.is_empty() || after.starts_with(' ')).then_some(key.trim_end())
}
