//! The four lists of an in-process server (tools, prompts, resources, resource templates), and the handlers behind
//! their entries.

use std::collections::HashMap;

use super::Handler;
use crate::protocol::{ErrorObject, Outcome, Raw, Theirs};
use crate::registry::Kind;

/// The lists, and the handlers by name, URI or URI template. A handler without a definition serves an unlisted tool.
#[derive(Clone, Default)]
pub(super) struct Offers {
    lists: [Vec<Raw>; 4],
    named: HashMap<(Kind, String), Handler>,
}

impl Offers {
    /// Adds a handler without a definition, so that the name can be called but is not listed.
    pub(super) fn handle(&mut self, kind: Kind, name: &str, handler: Handler) {
        self.named.insert((kind, name.to_owned()), handler);
    }

    /// Adds a definition and its handler, or replaces those with the same name.
    pub(super) fn add(&mut self, kind: Kind, definition: Raw, handler: Handler) {
        let name = definition.text(kind.key());
        let list = &mut self.lists[kind as usize];
        match list.iter_mut().find(|old| name.is_some() && old.text(kind.key()) == name) {
            Some(old) => *old = definition,
            None => list.push(definition),
        }
        if let Some(name) = name {
            self.named.insert((kind, name), handler);
        }
    }

    /// Removes a definition and its handler; returns false if no definition has that name.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> bool {
        let list = &mut self.lists[kind as usize];
        let before = list.len();
        list.retain(|definition| definition.text(kind.key()).as_deref() != Some(name));
        let removed = list.len() < before;
        if removed {
            self.named.remove(&(kind, name.to_owned()));
        }
        removed
    }

    /// Returns the result of a list request, such as `tools/list`.
    pub(super) fn list(&self, kind: Kind) -> Outcome {
        let items: Vec<&str> = self.lists[kind as usize].iter().map(Raw::as_str).collect();
        Ok(Raw::trusted(format!(r#"{{"{}":[{}]}}"#, kind.member(), items.join(",")).into()))
    }

    /// Returns the handler of a tool or prompt.
    pub(super) fn named(&self, kind: Kind, name: &str) -> Result<Handler, ErrorObject> {
        let what = if kind == Kind::Tools { "tool" } else { "prompt" };
        let handler = self.named.get(&(kind, name.to_owned())).cloned();
        handler.ok_or_else(|| ErrorObject::invalid_params(format!("unknown {what}: {}", Theirs(name))))
    }

    /// Returns the handler that reads a resource: that of its URI, or else that of a template that matches.
    pub(super) fn reader(&self, uri: &str) -> Result<Handler, ErrorObject> {
        let exact = self.named.get(&(Kind::Resources, uri.to_owned()));
        exact.or_else(|| self.template(uri)).cloned().ok_or_else(|| {
            let data = Raw::from_value(&serde_json::json!({ "uri": uri }));
            ErrorObject::new(-32002, format!("no such resource: {}", Theirs(uri))).with_data(data)
        })
    }

    fn template(&self, uri: &str) -> Option<&Handler> {
        let mut templates = self.named.iter().filter(|((kind, _), _)| *kind == Kind::ResourceTemplates);
        let covers = |template: &str| {
            let head = template.split('{').next().unwrap_or(template);
            let tail = template.rsplit('}').next().unwrap_or_default();
            uri.len() > head.len() + tail.len() && uri.starts_with(head) && uri.ends_with(tail)
        };
        templates.find(|((_, template), _)| covers(template)).map(|(_, handler)| handler)
    }
}
