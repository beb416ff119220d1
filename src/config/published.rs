//! The `server.json` of an MCP registry, which is not a config: how to recognize one, and what to write instead.

use serde_json::{Map, Value as Json, json};

use super::report::Report;
use super::syntax::{Node, Value};

/// Reports whether a file is a `server.json`.
pub(super) fn is_one(root: &Node) -> bool {
    let named = root.get("name").and_then(Node::text).is_some_and(|name| name.contains('/'));
    let schema = root.get("$schema").and_then(Node::text).is_some_and(|schema| schema.ends_with("server.schema.json"));
    let lists = ["packages", "remotes"].iter().any(|key| !items(root.get(key)).is_empty());
    lists && (named || schema)
}

/// Refuses the file, and suggests what to write instead.
pub(super) fn refuse(root: &Node, report: &mut Report) {
    let message = "this is the server.json of a registry: it tells how a server is published, not how to start it";
    let problem = report.problem(root.at, "", message);
    problem.help(match entry(root) {
        Some(entry) => {
            let name = root.get("name").and_then(Node::text).unwrap_or_default();
            let name = name.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("server");
            format!("write this into a config instead: {{\"mcpServers\": {{{}: {entry}}}}}", json!(name))
        }
        None => "look at the server's own page for the command that starts it, or its URL".to_owned(),
    });
}

/// Returns a config entry for the first package that a command can start, else for the first URL. It is only a
/// suggestion, which the user checks.
fn entry(root: &Node) -> Option<String> {
    let package = items(root.get("packages")).iter().find_map(package);
    package.or_else(|| items(root.get("remotes")).iter().find_map(remote))
}

/// Returns a config entry whose command runs a package over stdio.
fn package(package: &Node) -> Option<String> {
    let kind = transport(package.get("transport")).unwrap_or("stdio");
    let identifier = text(package, &["identifier", "name"])?;
    let version = text(package, &["version"]).filter(|version| !version.is_empty() && *version != "latest");
    let at = |sign: &str| version.map_or(identifier.to_owned(), |version| format!("{identifier}{sign}{version}"));
    let (mut env, mut names) = (Map::new(), Vec::new());
    for variable in items(package.get("environmentVariables").or_else(|| package.get("environment_variables"))) {
        if let Some(name) = text(variable, &["name"]).filter(|_| is_required(variable)) {
            env.insert(name.to_owned(), Json::String(format!("${{{name}}}")));
            names.push(name);
        }
    }
    let mut args = Vec::new();
    let command = match (kind, text(package, &["registryType", "registry_type", "registry_name"])?) {
        ("stdio", "npm") => {
            args.push("-y".to_owned());
            args.extend(arguments(package, &["runtimeArguments", "runtime_arguments"]));
            args.push(at("@"));
            "npx"
        }
        ("stdio", "pypi") => {
            args.extend(arguments(package, &["runtimeArguments", "runtime_arguments"]));
            args.push(at("=="));
            "uvx"
        }
        ("stdio", "nuget") => {
            args.extend([at("@"), "--yes".to_owned(), "--".to_owned()]);
            "dnx"
        }
        ("stdio", "oci" | "docker") => {
            args.extend(["run", "-i", "--rm"].map(str::to_owned));
            args.extend(names.iter().flat_map(|name| ["-e".to_owned(), (*name).to_owned()]));
            args.extend(arguments(package, &["runtimeArguments", "runtime_arguments"]));
            let tagged = identifier.rsplit('/').next().is_some_and(|last| last.contains([':', '@']));
            args.push(if tagged { identifier.to_owned() } else { at(":") });
            "docker"
        }
        _ => return None,
    };
    args.extend(arguments(package, &["packageArguments", "package_arguments"]));
    let env = if env.is_empty() { String::new() } else { format!(", \"env\": {}", Json::Object(env)) };
    Some(format!("{{\"command\": {}, \"args\": {}{env}}}", json!(command), json!(args)))
}

fn remote(remote: &Node) -> Option<String> {
    let url = text(remote, &["url"])?;
    let kind = transport(Some(remote))?;
    let kind = if kind == "sse" { "sse" } else { "http" };
    let required = items(remote.get("headers")).iter().filter(|header| is_required(header));
    let headers: Map<String, Json> = required
        .filter_map(|header| {
            let name = text(header, &["name"])?;
            let value = text(header, &["value"]).map_or_else(|| format!("<{name}>"), str::to_owned);
            Some((name.to_owned(), Json::String(value)))
        })
        .collect();
    let headers = if headers.is_empty() { String::new() } else { format!(", \"headers\": {}", Json::Object(headers)) };
    Some(format!("{{\"type\": {}, \"url\": {}{headers}}}", json!(kind), json!(url)))
}

/// Returns the arguments that have a value, and a placeholder for each required argument without one.
fn arguments(package: &Node, keys: &[&str]) -> Vec<String> {
    let list = keys.iter().find_map(|key| package.get(key));
    let mut words = Vec::new();
    for argument in items(list) {
        let name = text(argument, &["name"]);
        let named = name.filter(|name| name.starts_with('-'));
        let value = text(argument, &["value", "default"]).map(str::to_owned);
        let wanted = || {
            let hint = text(argument, &["valueHint", "value_hint"]).or(name).unwrap_or("value");
            format!("<{}>", hint.trim_start_matches('-'))
        };
        let value = value.or_else(|| is_required(argument).then(wanted));
        if value.is_some() {
            words.extend(named.map(str::to_owned));
        }
        words.extend(value);
    }
    words
}

fn is_required(node: &Node) -> bool {
    ["isRequired", "is_required"].iter().any(|key| node.get(key).is_some_and(|flag| flag.value == Value::Flag(true)))
}

/// Returns the type of a transport, from its current JSON key or from its old one.
fn transport(node: Option<&Node>) -> Option<&str> {
    let node = node?;
    node.text().or_else(|| text(node, &["type", "transport_type"]))
}

fn text<'a>(node: &'a Node, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| node.get(key)?.text())
}

fn items(node: Option<&Node>) -> &[Node] {
    match node.map(|node| &node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}
