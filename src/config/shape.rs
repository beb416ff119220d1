//! Whose file is this? Finds the servers in the shapes that MCP clients use, and says which client's rules apply.

use std::collections::BTreeMap;
use std::path::Path;

use super::expand::Dialect;
use super::fields::nearest;
use super::report::{Place, Report};
use super::syntax::{Node, Value};

/// Whose rules an entry follows where clients differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    /// Ours, Claude Desktop, Claude Code, Cursor, Windsurf and the many that follow them.
    Plain,
    VsCode,
    Gemini,
    Cline,
    Roo,
    Codex,
    Zed,
    Goose,
    OpenCode,
    Continue,
}

impl Flavor {
    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::Plain | Self::VsCode | Self::Cline | Self::Roo => Dialect::Dollar,
            Self::Gemini => Dialect::Shell,
            Self::OpenCode => Dialect::Braces,
            Self::Continue => Dialect::Templates,
            Self::Codex | Self::Zed | Self::Goose => Dialect::None,
        }
    }

    /// What one unit of `timeout` is, in seconds.
    pub(super) fn timeout_unit(self) -> f64 {
        match self {
            Self::Cline | Self::Roo | Self::Zed | Self::Goose | Self::Codex => 1.0,
            Self::Plain | Self::VsCode | Self::Gemini | Self::OpenCode | Self::Continue => 0.001,
        }
    }
}

/// One server as the file has it.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: String,
    pub(super) at: Place,
    pub(super) node: &'a Node,
    pub(super) flavor: Flavor,
    /// Why a setting outside the entry keeps the server from starting.
    pub(super) disabled: Option<String>,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    pub(super) host: Option<&'a Node>,
    /// The `inputs` of VS Code: id and description.
    pub(super) inputs: BTreeMap<String, String>,
}

/// Where servers are kept, and by whom. More than one may be in a file.
const ROOTS: [(&[&str], Flavor); 9] = [
    (&["mcpServers"], Flavor::Plain),
    (&["amp.mcpServers"], Flavor::Plain),
    (&["servers"], Flavor::VsCode),
    (&["mcp", "servers"], Flavor::VsCode),
    (&["customizations", "vscode", "mcp", "servers"], Flavor::VsCode),
    (&["mcp_servers"], Flavor::Codex),
    (&["context_servers"], Flavor::Zed),
    (&["mcp"], Flavor::OpenCode),
    (&["extensions"], Flavor::Goose),
];

/// Finds the servers and the settings in a file.
pub(super) fn read<'a>(root: &'a Node, file: &Path, report: &mut Report) -> Option<Shape<'a>> {
    let Some(members) = root.members() else {
        report.problem(root.at, "", format!("expected an object, found {}", root.kind()));
        return None;
    };
    for (index, member) in members.iter().enumerate() {
        if let Some(first) = members[..index].iter().find(|first| first.key == member.key) {
            report.problem(member.at, &member.key, format!("given twice, first on line {}", first.at.line));
        }
    }
    let mut shape = Shape { host: root.get("host").filter(|host| !is_entry(host)), ..Shape::default() };
    shape.inputs = inputs(root);
    let mut roots = Vec::new();
    for (path, flavor) in ROOTS {
        let Some(node) = path.iter().try_fold(root, |node, key| node.get(key)) else { continue };
        // The last two names mean other things to other programs: only what looks like servers counts, and only
        // where nothing else was found.
        let vague = matches!(flavor, Flavor::OpenCode | Flavor::Goose);
        if vague && (!roots.is_empty() || !members_are_entries(node)) {
            continue;
        }
        roots.push(path[0]);
        let flavor = if flavor == Flavor::Plain { plain_flavor(node, file) } else { flavor };
        collect(node, flavor, &path.join("."), &mut shape, report);
    }
    if roots.is_empty() {
        bare(root, file, &mut shape);
        roots.extend(shape.entries.iter().map(|entry| entry.name.as_str()));
        if shape.entries.is_empty() && shape.host.is_none() {
            let meant =
                members.iter().find_map(|member| nearest(&member.key, &["mcpServers", "servers", "mcp_servers"]));
            let problem = report.problem(root.at, "", "no servers in this file");
            problem.help(match meant {
                Some(name) => format!("did you mean `{name}`?"),
                None => "put them under `mcpServers`, each with its name and a `command` or `url`".to_owned(),
            });
            return None;
        }
    }
    if !is_entry(root) {
        others(root, &roots, report);
    }
    exclude(root, &mut shape);
    Some(shape)
}

/// Entries under one root: an object by name, or a list of entries that hold their name.
fn collect<'a>(node: &'a Node, flavor: Flavor, path: &str, shape: &mut Shape<'a>, report: &mut Report) {
    match &node.value {
        Value::Null => {}
        Value::Object(members) => {
            for member in members {
                let entry =
                    Entry { name: member.key.clone(), at: member.at, node: &member.node, flavor, disabled: None };
                shape.entries.push(entry);
            }
        }
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                match item.get("name").and_then(Node::text) {
                    Some(name) => {
                        let flavor = Flavor::Continue;
                        let entry = Entry { name: name.to_owned(), at: item.at, node: item, flavor, disabled: None };
                        shape.entries.push(entry);
                    }
                    None => {
                        report.problem(item.at, &format!("{path}[{index}].name"), "a server in a list needs a name");
                    }
                }
            }
        }
        _ => {
            report.problem(node.at, path, format!("expected an object of servers, found {}", node.kind()));
        }
    }
}

/// A file without a root key: a map of servers, or one server that is called like the file.
fn bare<'a>(root: &'a Node, file: &Path, shape: &mut Shape<'a>) {
    let flavor = plain_flavor(root, file);
    if is_entry(root) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        shape.entries.push(Entry { name, at: root.at, node: root, flavor, disabled: None });
        return;
    }
    let members = root.members().unwrap_or_default();
    let servers = members.iter().filter(|member| is_entry(&member.node));
    let entry = |member: &'a super::syntax::Member| Entry {
        name: member.key.clone(),
        at: member.at,
        node: &member.node,
        flavor,
        disabled: None,
    };
    shape.entries.extend(servers.map(entry));
}

/// Which of the clients with a root `mcpServers` wrote this.
fn plain_flavor(servers: &Node, file: &Path) -> Flavor {
    let lies_in = |folder: &str| file.components().any(|part| part.as_os_str() == folder);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let entries = || servers.members().unwrap_or_default().iter();
    let any_has = |keys: &[&str]| entries().any(|entry| keys.iter().any(|key| entry.node.get(key).is_some()));
    if lies_in(".gemini") || name == "gemini-extension.json" || any_has(&["httpUrl", "trust", "authProviderType"]) {
        Flavor::Gemini
    } else if lies_in(".roo") || lies_in(".kilocode") || name == "mcp_settings.json" || any_has(&["alwaysAllow"]) {
        Flavor::Roo
    } else if lies_in(".cline") || name == "cline_mcp_settings.json" || any_has(&["transportType"]) {
        Flavor::Cline
    } else {
        Flavor::Plain
    }
}

fn is_entry(node: &Node) -> bool {
    let text = |key| node.get(key).is_some_and(|value| value.text().is_some());
    ["command", "cmd", "url", "serverUrl", "httpUrl", "uri"].iter().any(|key| node.get(key).is_some())
        || (node.get("config").is_some() || node.get("transport").is_some())
        || text("type")
}

fn members_are_entries(node: &Node) -> bool {
    let entry = |node: &Node| is_entry(node) || node.get("enabled").is_some();
    node.members().is_some_and(|members| members.iter().any(|member| entry(&member.node)))
}

fn inputs(root: &Node) -> BTreeMap<String, String> {
    let found = [&["inputs"][..], &["mcp", "inputs"]];
    let lists = found.iter().filter_map(|path| path.iter().try_fold(root, |node, key| node.get(key)));
    let items = lists.filter_map(|list| match &list.value {
        Value::List(items) => Some(items),
        _ => None,
    });
    let input = |item: &Node| {
        let about = item.get("description").and_then(Node::text).unwrap_or_default();
        Some((item.get("id")?.text()?.to_owned(), about.to_owned()))
    };
    items.flatten().filter_map(input).collect()
}

/// The Gemini CLI turns servers off beside their entries.
fn exclude(root: &Node, shape: &mut Shape<'_>) {
    let names = |key: &str| match root.get("mcp").and_then(|mcp| mcp.get(key)).map(|node| &node.value) {
        Some(Value::List(items)) => Some(items.iter().filter_map(Node::text).collect::<Vec<_>>()),
        _ => None,
    };
    let (allowed, excluded) = (names("allowed"), names("excluded"));
    for entry in
        shape.entries.iter_mut().filter(|entry| entry.flavor == Flavor::Gemini || entry.flavor == Flavor::Plain)
    {
        let name = entry.name.as_str();
        if excluded.as_ref().is_some_and(|names| names.contains(&name)) {
            entry.disabled = Some("named in mcp.excluded of the config".to_owned());
        } else if allowed.as_ref().is_some_and(|names| !names.contains(&name)) {
            entry.disabled = Some("not named in mcp.allowed of the config".to_owned());
        }
    }
}

/// Says in one note which other settings the file has: most are another program's, and one may be a misspelt key.
fn others(root: &Node, roots: &[&str], report: &mut Report) {
    let ours = |key: &str| matches!(key, "host" | "inputs" | "mcp" | "$schema") || roots.contains(&key);
    let members = root.members().unwrap_or_default().iter();
    let others: Vec<_> = members.filter(|member| !ours(&member.key)).collect();
    let Some(first) = others.first() else { return };
    let mut names: Vec<_> = others.iter().take(5).map(|member| format!("`{}`", member.key)).collect();
    if others.len() > names.len() {
        names.push(format!("{} more", others.len() - names.len()));
    }
    report.note(first.at, "", format!("not about servers, ignored: {}", names.join(", ")));
}
