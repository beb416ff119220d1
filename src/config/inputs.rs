//! The `inputs` of VS Code: values for which an editor would ask the user, and their defaults. This host does not ask:
//! a variable or the default has to provide the value.

use std::collections::BTreeMap;

use super::syntax::{Node, Value};

/// Inputs by their id.
pub(super) type Inputs = BTreeMap<String, Input>;

/// A value that an editor would ask for.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) about: String,
    pub(super) default: Option<String>,
    /// The allowed values; empty means any.
    pub(super) options: Vec<String>,
    /// Whether an editor hides what the user types.
    pub(super) password: bool,
}

/// Reads the inputs of a file from every place where VS Code keeps them.
pub(super) fn read(root: &Node) -> Inputs {
    let found = [&["inputs"][..], &["mcp", "inputs"], &["customizations", "vscode", "mcp", "inputs"]];
    let lists = found.iter().filter_map(|path| path.iter().try_fold(root, |node, key| node.get(key)));
    lists.flat_map(items).filter_map(|item| Some((item.get("id")?.text()?.to_owned(), input(item)))).collect()
}

/// Removes the defaults. In a project's file they are outside of the server entries, and an approval covers only
/// entries.
pub(super) fn forget_defaults(inputs: &mut Inputs) {
    inputs.values_mut().for_each(|input| input.default = None);
}

fn items(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(items) => items,
        _ => &[],
    }
}

fn input(item: &Node) -> Input {
    let about = item.get("description").and_then(Node::text).unwrap_or_default().to_owned();
    // An option is either a text, or an object with a label and a value.
    let option = |item: &Node| scalar(item.get("value").or_else(|| item.get("label")).unwrap_or(item));
    Input {
        about,
        default: item.get("default").and_then(scalar),
        options: item.get("options").map(items).unwrap_or_default().iter().filter_map(option).collect(),
        password: item.get("password").is_some_and(|flag| flag.value == Value::Flag(true)),
    }
}

fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) | Value::Number(text) => Some(text.clone()),
        Value::Flag(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Returns the name of the environment variable that provides the value of an input.
pub(super) fn variable(id: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("MCP_HOST_INPUT_{}", id.chars().map(upper).collect::<String>())
}
