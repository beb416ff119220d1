//! Which source of host settings wins; each source is a layer. figment parses the variables, and merges the layers.
//! Each value keeps its place in its own layer. The rules of the policy are those of all layers together: if one file
//! could remove the rules of another, something would stay open that the user believes closed.

use std::collections::BTreeMap;
use std::path::Path;

use figment::Figment;
use figment::providers::Serialized;
use figment::value::Value as Parsed;
use serde::{Deserialize, Serialize};

use super::super::fields::Fields;
use super::super::keys::camel_case;
use super::super::report::{Place, Report};
use super::super::syntax::{Member, Node, Origin, Value};
use super::super::vars::Vars;

/// The prefix of all our environment variables.
const PREFIX: &str = "MCP_HOST_";

/// The sources of settings; a later one wins over an earlier one.
#[derive(Debug, Default)]
pub(super) struct Layers(Vec<Node>);

impl Layers {
    pub(super) fn add_file(&mut self, host: Node) {
        self.0.push(host);
    }

    /// Adds each environment variable of ours as a layer: `MCP_HOST_NAMING__MAX_LENGTH` sets `naming.maxLength`.
    pub(super) fn add_environment(&mut self, vars: &Vars, report: &mut Report) {
        for (name, value) in vars.with_prefix(PREFIX) {
            // The config file, the values of VS Code inputs and the key of the secret store are not settings.
            if name == "CONFIG" || name == "SECRET_KEY" || name.starts_with("INPUT_") {
                continue;
            }
            let path: Vec<_> = name.split("__").map(camel_case).collect();
            let file = report.add_file(Path::new(&format!("environment variable {PREFIX}{name}")));
            self.0.push(nest(&path, value, file));
        }
    }

    /// Adds each flag as a layer. A flag names its setting by a path: `naming.maxLength`.
    pub(super) fn add_flags(&mut self, flags: &[(String, String)], report: &mut Report) {
        for (name, value) in flags {
            let path: Vec<_> = name.split('.').map(str::to_owned).collect();
            let file = report.add_file(Path::new("command line"));
            self.0.push(nest(&path, value, file));
        }
    }

    /// Returns one tree of the winning values, each with its place in its own layer; `None` if no layer has any
    /// settings.
    pub(super) fn merge(&mut self, report: &mut Report) -> Option<Node> {
        let mut figment = Figment::new();
        let mut rules: Option<Vec<Node>> = None;
        for layer in &mut self.0 {
            // A layer that is not an object would hide the others, and is reported as a mistake.
            cut(layer, LEVELS);
            if open(layer, "host", report) {
                if let Some(Value::List(items)) = rules_of(layer) {
                    let before = rules.get_or_insert_default();
                    before.append(items);
                    items.clone_from(before);
                }
                figment = figment.merge(Serialized::default("host", Layered::from(&*layer)));
            }
        }
        figment.contains("host").then(|| {
            let merged: Layered = figment.extract_inner("host").expect("what this type wrote, it reads");
            merged.into()
        })
    }
}

/// Returns the rules of the policy of a layer.
fn rules_of(layer: &mut Node) -> Option<&mut Value> {
    fn member<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
        let Value::Object(members) = &mut node.value else { return None };
        members.iter_mut().find(|member| member.key == key).map(|member| &mut member.node)
    }
    Some(&mut member(member(layer, "policy")?, "rules")?.value)
}

/// How many levels of nesting are read in a layer; deeper levels are cut off.
const LEVELS: usize = 24;

/// Returns whether this is an object. Adds a problem to the report if not, and for duplicate keys in it, of which the
/// merge would lose one.
fn open(node: &Node, path: &str, report: &mut Report) -> bool {
    let Some(mut fields) = Fields::open(node, path, report) else { return false };
    for field in fields.rest().iter().filter(|field| field.node.members().is_some()) {
        open(field.node, &field.path, report);
    }
    true
}

fn cut(node: &mut Node, levels: usize) {
    match &mut node.value {
        Value::List(items) if levels == 0 => items.clear(),
        Value::Object(members) if levels == 0 => members.clear(),
        Value::List(items) => items.iter_mut().for_each(|item| cut(item, levels - 1)),
        Value::Object(members) => members.iter_mut().for_each(|member| cut(&mut member.node, levels - 1)),
        Value::Null | Value::Flag(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

/// A value in the form in which figment merges values. figment merges dicts and replaces everything else, so the
/// members of an object become a dict, and anything else becomes the only item of a list.
///
/// figment only knows from which provider a value came. But messages name the value's line, even for an item of a list,
/// and hide values that contain variables. So this type carries the place and the origin along.
#[derive(Serialize, Deserialize)]
struct Layered {
    at: Place,
    origin: Origin,
    members: Option<BTreeMap<String, Self>>,
    other: Option<[Value; 1]>,
}

impl From<&Node> for Layered {
    fn from(node: &Node) -> Self {
        let (members, other) = match &node.value {
            Value::Object(members) => {
                let members = members.iter().map(|member| (member.key.clone(), Self::from(&member.node)));
                (Some(members.collect()), None)
            }
            other => (None, Some([other.clone()])),
        };
        Self { at: node.at, origin: node.origin, members, other }
    }
}

impl From<Layered> for Node {
    fn from(given: Layered) -> Self {
        let member = |(key, given): (String, Layered)| Member { key, at: given.at, node: given.into() };
        let value = match (given.members, given.other) {
            (Some(members), _) => Value::Object(members.into_iter().map(member).collect()),
            (None, Some([other])) => other,
            (None, None) => Value::Null,
        };
        Self { at: given.at, value, origin: given.origin }
    }
}

/// Returns nested objects that hold one value at this path. The value is parsed as figment parses a variable: `40`,
/// `true`, `[a, b]`, or text.
fn nest(path: &[String], value: &str, file: usize) -> Node {
    let at = Place { file, ..Place::default() };
    let value = value
        .parse::<Parsed>()
        .map_or_else(|_| Value::Text(value.to_owned()), |parsed| from_figment(&parsed, value, at));
    path.iter().rev().fold(Node::new(at, value), |node, key| {
        Node::new(at, Value::Object(vec![Member { key: key.clone(), at, node }]))
    })
}

fn from_figment(value: &Parsed, text: &str, at: Place) -> Value {
    match value {
        Parsed::Bool(_, flag) => Value::Flag(*flag),
        Parsed::Num(..) => Value::Number(text.trim().to_owned()),
        Parsed::String(_, text) => Value::Text(text.clone()),
        Parsed::Array(_, items) => {
            let item = |item: &Parsed| Node::new(at, from_figment(item, item.as_str().unwrap_or_default(), at));
            Value::List(items.iter().map(item).collect())
        }
        Parsed::Char(..) | Parsed::Dict(..) | Parsed::Empty(..) => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::{Syntax, parse_str};
    use super::*;

    fn node() -> impl Strategy<Value = Node> {
        let at = (0..4usize, 0..9usize, 0..9usize).prop_map(|(file, line, column)| Place { file, line, column });
        let origin = prop_oneof![Just(Origin::Literal), Just(Origin::Expanded), Just(Origin::Missing)];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Flag),
            prop_oneof!["-?[0-9]{1,40}", "[0-9]{1,3}\\.[0-9]{1,3}0", Just("1e3".to_owned())].prop_map(Value::Number),
            "\\PC{0,6}".prop_map(Value::Text),
        ];
        let node =
            |value| (at.clone(), value, origin.clone()).prop_map(|(at, value, origin)| Node { at, value, origin });
        let (at, origin) = (at.clone(), origin.clone());
        node(leaf.boxed()).prop_recursive(4, 24, 4, move |inner| {
            let members = proptest::collection::btree_map("[ab.]{0,2}", inner.clone(), 0..4).prop_map(|members| {
                let member = |(key, node): (String, Node)| Member { key, at: node.at, node };
                Value::Object(members.into_iter().map(member).collect())
            });
            let value = prop_oneof![members, proptest::collection::vec(inner, 0..3).prop_map(Value::List)];
            (at.clone(), value, origin.clone()).prop_map(|(at, value, origin)| Node { at, value, origin })
        })
    }

    /// Merges one layer over another, by definition.
    fn over(under: &Node, upper: &Node) -> Node {
        let (Value::Object(below), Value::Object(above)) = (&under.value, &upper.value) else { return upper.clone() };
        let mut members: BTreeMap<&str, Node> =
            below.iter().map(|member| (&*member.key, member.node.clone())).collect();
        for Member { key, node, .. } in above {
            let merged = members.get(&**key).map_or_else(|| node.clone(), |below| over(below, node));
            members.insert(key, merged);
        }
        let member = |(key, node): (&str, Node)| Member { key: key.to_owned(), at: node.at, node };
        Node { value: Value::Object(members.into_iter().map(member).collect()), ..upper.clone() }
    }

    proptest! {
        #[test]
        fn later_layers_win_and_every_value_keeps_its_place(layers in proptest::collection::vec(node(), 0..4)) {
            let mut report = Report::default();
            let merged = Layers(layers.clone()).merge(&mut report);
            let objects: Vec<&Node> = layers.iter().filter(|layer| layer.members().is_some()).collect();
            let expected = objects.iter().copied().cloned().reduce(|under, upper| over(&under, &upper));
            prop_assert_eq!(merged, expected);
            prop_assert_eq!(report.problems(), layers.len() - objects.len());
        }
    }

    #[test]
    fn a_setting_that_comes_twice_is_told() {
        let text = "{ \"host\": { \"tasks\": true,\n\"naming\": { \"maxLength\": 50, \"maxLength\": 60 },\n\"tasks\": false } }";
        let error = parse_str(text, Syntax::Json, "f.json", &Vars::default()).unwrap_err();
        insta::assert_snapshot!(error, @"
        f.json:2: host.naming.maxLength: given twice, first on line 2
        f.json:3: host.tasks: given twice, first on line 1
        ");
    }

    #[test]
    fn what_is_nested_too_deep_is_no_setting_and_no_harm() {
        let deep = (0..500).fold(Node::new(Place::default(), Value::Flag(true)), |node, _| {
            Node::new(Place::default(), Value::Object(vec![Member { key: "a".to_owned(), at: node.at, node }]))
        });
        let mut at = &Layers(vec![deep]).merge(&mut Report::default()).unwrap();
        let mut levels = 0;
        while let Some(inner) = at.get("a") {
            (at, levels) = (inner, levels + 1);
        }
        assert_eq!((levels, &at.value), (LEVELS, &Value::Object(Vec::new())));
    }
}
