//! A tree as JSON text, with its values as written in the file.

use super::{Member, Node, Value};

/// Writes the tree as JSON, with its values as written, and in the order of the file unless it is to be `sorted`.
pub(in crate::config) fn write(node: &Node, sorted: bool, out: &mut String) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Flag(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(number),
        Value::Text(text) => quote(text, out),
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write(item, sorted, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<&Member> = members.iter().collect();
            if sorted {
                members.sort_by(|one, other| one.key.cmp(&other.key));
            }
            out.push('{');
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                quote(&member.key, out);
                out.push_str(": ");
                write(&member.node, sorted, out);
            }
            out.push('}');
        }
    }
}

fn quote(text: &str, out: &mut String) {
    // Serializing a string cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}
