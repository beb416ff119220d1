//! Builds objects that are not in a file yet.

use super::{Member, Node, Value};
use crate::config::report::Place;

/// Collects the members of an object.
#[derive(Debug, Default)]
pub(in crate::config) struct Writer(Vec<Member>);

impl Writer {
    pub(in crate::config) fn put(&mut self, key: &str, node: Node) {
        self.0.push(Member { key: key.to_owned(), at: Place::default(), node });
    }

    pub(in crate::config) fn text(&mut self, key: &str, text: &str) {
        self.put(key, node(Value::Text(text.to_owned())));
    }

    /// Adds a text, if there is one.
    pub(in crate::config) fn some(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    pub(in crate::config) fn flag(&mut self, key: &str, flag: bool) {
        self.put(key, node(Value::Flag(flag)));
    }

    pub(in crate::config) fn number(&mut self, key: &str, number: usize) {
        self.put(key, node(Value::Number(number.to_string())));
    }

    /// Adds a list of texts, unless it is empty.
    pub(in crate::config) fn list(&mut self, key: &str, items: &[String]) {
        if !items.is_empty() {
            self.put(key, list(items));
        }
    }

    /// Adds an object of texts, unless it is empty.
    pub(in crate::config) fn pairs<'a>(&mut self, key: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let mut object = Self::default();
        pairs.into_iter().for_each(|(name, value)| object.text(name, value));
        if !object.0.is_empty() {
            self.put(key, object.done());
        }
    }

    pub(in crate::config) fn done(self) -> Node {
        node(Value::Object(self.0))
    }
}

/// Returns a list of texts.
pub(in crate::config) fn list(items: &[String]) -> Node {
    node(Value::List(items.iter().map(|item| node(Value::Text(item.clone()))).collect()))
}

/// Returns a value that has no place in a file.
pub(in crate::config) fn node(value: Value) -> Node {
    Node::new(Place::default(), value)
}
