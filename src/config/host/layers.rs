//! Which layer wins: figment merges, and tells where each value came from; the value and its place are then ours.

use std::path::Path;

use figment::value::{Dict, Map, Value as Merged};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::super::keys::camel_case;
use super::super::report::{Place, Report};
use super::super::syntax::{Member, Node, Value};
use super::super::vars::Vars;

/// Every variable of ours begins with this.
const PREFIX: &str = "MCP_HOST_";

/// The sources of settings, the strongest last.
#[derive(Debug, Default)]
pub(super) struct Layers(Vec<Node>);

impl Layers {
    pub(super) fn add_file(&mut self, host: Node) {
        self.0.push(host);
    }

    /// `MCP_HOST_NAMING__MAX_LENGTH` is `naming.maxLength`.
    pub(super) fn add_environment(&mut self, vars: &Vars, report: &mut Report) {
        for (name, value) in vars.with_prefix(PREFIX) {
            // The config file, the values of VS Code inputs and the key of the secret store are no settings.
            if name == "CONFIG" || name == "SECRET_KEY" || name.starts_with("INPUT_") {
                continue;
            }
            let path: Vec<_> = name.split("__").map(camel_case).collect();
            let file = report.add_file(Path::new(&format!("environment variable {PREFIX}{name}")));
            self.0.push(nest(&path, value, file));
        }
    }

    /// A flag names its setting as a path: `naming.maxLength`.
    pub(super) fn add_flags(&mut self, flags: &[(String, String)], report: &mut Report) {
        for (name, value) in flags {
            let path: Vec<_> = name.split('.').map(str::to_owned).collect();
            let file = report.add_file(Path::new("command line"));
            self.0.push(nest(&path, value, file));
        }
    }

    /// One tree of the values that win, each with the place that it has in its own layer.
    pub(super) fn merge(&self, report: &mut Report) -> Option<Node> {
        // A layer that is no object would hide the others; it is a mistake of its own.
        let layers = self.0.iter().filter(|layer| match layer.members() {
            Some(_) => true,
            None => {
                report.problem(layer.at, "host", format!("expected an object, found {}", layer.kind()));
                false
            }
        });
        let layers: Vec<&Node> = layers.collect();
        let merge = |figment: Figment, (index, node): (usize, &&Node)| figment.merge(Layer { index, node });
        let figment = layers.iter().enumerate().fold(Figment::new(), merge);
        let merged = figment.find_value("host").ok()?;
        Some(restore(&figment, &layers, &merged, &mut Vec::new()))
    }
}

/// A tree as figment sees it.
struct Layer<'a> {
    index: usize,
    node: &'a Node,
}

impl Provider for Layer<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.index.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        let host = Dict::from([("host".to_owned(), to_figment(self.node))]);
        Ok(Map::from([(Profile::Default, host)]))
    }
}

/// Only objects merge, so the rest can stand for itself: a leaf is told by its layer and its path.
fn to_figment(node: &Node) -> Merged {
    match node.members() {
        Some(members) => {
            let members = members.iter().map(|member| (member.key.clone(), to_figment(&member.node)));
            Merged::from(members.collect::<Dict>())
        }
        None => Merged::from(true),
    }
}

fn restore(figment: &Figment, layers: &[&Node], merged: &Merged, path: &mut Vec<String>) -> Node {
    let layer = figment.get_metadata(merged.tag()).and_then(|metadata| metadata.name.parse::<usize>().ok());
    let find = |layer: &Node| path.iter().try_fold(layer, |node, key| node.get(key)).cloned();
    let origin = layer.and_then(|index| layers.get(index)).and_then(|layer| find(layer));
    let Some(dict) = merged.as_dict() else {
        return origin.unwrap_or_else(|| Node::new(Place::default(), Value::Null));
    };
    let mut members = Vec::with_capacity(dict.len());
    for (key, value) in dict {
        path.push(key.clone());
        let node = restore(figment, layers, value, path);
        path.pop();
        members.push(Member { key: key.clone(), at: node.at, node });
    }
    let at = members.first().map_or(Place::default(), |member| member.at);
    Node::new(origin.map_or(at, |origin| origin.at), Value::Object(members))
}

/// An object with one value in it. The value is read as figment reads a variable: `40`, `true`, `[a, b]`, or text.
fn nest(path: &[String], value: &str, file: usize) -> Node {
    let at = Place { file, ..Place::default() };
    let value = value
        .parse::<Merged>()
        .map_or_else(|_| Value::Text(value.to_owned()), |parsed| from_figment(&parsed, value, at));
    path.iter().rev().fold(Node::new(at, value), |node, key| {
        Node::new(at, Value::Object(vec![Member { key: key.clone(), at, node }]))
    })
}

fn from_figment(value: &Merged, text: &str, at: Place) -> Value {
    match value {
        Merged::Bool(_, flag) => Value::Flag(*flag),
        Merged::Num(..) => Value::Number(text.trim().to_owned()),
        Merged::String(_, text) => Value::Text(text.clone()),
        Merged::Array(_, items) => {
            let item = |item: &Merged| Node::new(at, from_figment(item, item.as_str().unwrap_or_default(), at));
            Value::List(items.iter().map(item).collect())
        }
        Merged::Char(..) | Merged::Dict(..) | Merged::Empty(..) => Value::Text(text.to_owned()),
    }
}
