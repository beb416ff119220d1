//! Recognizes which MCP client a config file is for: finds the server entries where that client keeps them, and decides
//! which client's rules apply to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::claude::{self, Shared, Stand};
use super::dialect::Dialect;
use super::fields::nearest;
use super::inputs::{self, Inputs};
use super::published;
use super::report::{Place, Report};
use super::syntax::{Member, Node, Value};
use super::units;
use crate::glob::is_match;
use crate::protocol::Theirs;

/// The client whose rules an entry follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavor {
    /// Our own rules, and those of Claude Desktop, Claude Code, Cursor, Windsurf and the many clients that follow them.
    Plain,
    VsCode,
    Gemini,
    Copilot,
    CherryStudio,
    Cline,
    Roo,
    Codex,
    Zed,
    Goose,
    OpenCode,
    Crush,
    Continue,
}

impl Flavor {
    pub(super) fn dialect(self) -> Dialect {
        match self {
            Self::Plain | Self::VsCode | Self::CherryStudio | Self::Cline | Self::Roo => Dialect::Dollar,
            Self::Gemini | Self::Copilot => Dialect::Shell,
            Self::Crush => Dialect::Commands,
            Self::OpenCode => Dialect::Braces,
            Self::Continue => Dialect::Templates,
            Self::Codex | Self::Zed | Self::Goose => Dialect::None,
        }
    }

    /// Returns the unit of a bare number under the key `timeout`, in seconds.
    pub(super) fn timeout_unit(self) -> f64 {
        match self {
            Self::CherryStudio | Self::Cline | Self::Roo | Self::Zed | Self::Goose | Self::Codex | Self::Crush => 1.0,
            Self::Plain | Self::VsCode | Self::Gemini | Self::Copilot | Self::OpenCode | Self::Continue => 0.001,
        }
    }
}

/// The entry of one server, as written in the file.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) name: String,
    pub(super) at: Place,
    pub(super) node: &'a Node,
    pub(super) flavor: Flavor,
    /// Whether the name is made up because the file does not name the server.
    pub(super) nameless: bool,
    /// Why the server is disabled, if a setting outside of the entry disables it.
    pub(super) disabled: Option<String>,
    /// The folder where relative paths start; also the working directory, unless the entry sets its own. `None` means
    /// that the defaults apply.
    pub(super) base: Option<PathBuf>,
    /// How long a call may go without progress, if the file sets that for entries without a timeout of their own.
    pub(super) call_timeout: Option<Duration>,
}

impl<'a> Entry<'a> {
    /// Returns an entry that is not in a file yet.
    pub(super) fn of(name: &str, node: &'a Node, flavor: Flavor) -> Self {
        Self::new(name, Place::default(), node, flavor)
    }

    /// Returns an entry without any setting that comes from outside of it.
    fn new(name: &str, at: Place, node: &'a Node, flavor: Flavor) -> Self {
        let nameless = name.trim().is_empty();
        let name = if nameless { format!("unnamed (line {})", at.line) } else { name.to_owned() };
        Self { name, at, node, flavor, nameless, disabled: None, base: None, call_timeout: None }
    }
}

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    pub(super) host: Option<&'a Node>,
    pub(super) inputs: Inputs,
    /// If one of the file's projects was chosen: what this project says about the servers of another file.
    pub(super) shared: Option<Shared>,
    /// Those of the file's projects that have servers, described in words.
    pub(super) projects: Vec<String>,
}

/// The paths under which clients keep servers, and which client uses each. A file may have several of these.
const ROOTS: [(&[&str], Flavor); 10] = [
    (&["mcpServers"], Flavor::Plain),
    (&["amp.mcpServers"], Flavor::Plain),
    (&["augment.advanced", "mcpServers"], Flavor::Plain),
    (&["servers"], Flavor::VsCode),
    (&["mcp", "servers"], Flavor::VsCode),
    (&["customizations", "vscode", "mcp", "servers"], Flavor::VsCode),
    (&["mcp_servers"], Flavor::Codex),
    (&["context_servers"], Flavor::Zed),
    (&["mcp"], Flavor::OpenCode),
    (&["extensions"], Flavor::Goose),
];

/// Finds the servers and the host settings in a file.
pub(super) fn read<'a>(root: &'a Node, file: &Path, stand: Stand<'_>, report: &mut Report) -> Option<Shape<'a>> {
    let Some(members) = root.members() else {
        report.problem(root.at, "", format!("expected an object, found {}", root.kind()));
        return None;
    };
    for (index, member) in members.iter().enumerate() {
        if let Some(first) = members[..index].iter().find(|first| first.key == member.key) {
            let message = format!("given twice, first on line {}", first.at.line);
            report.problem(member.at, &member.key, message).help("remove one of the two");
        }
    }
    let mut shape = Shape { host: root.get("host").filter(|host| !is_entry(host)), ..Shape::default() };
    shape.inputs = inputs::read(root);
    let mut roots = Vec::new();
    for (path, flavor) in ROOTS {
        let Some(node) = path.iter().try_fold(root, |node, key| node.get(key)) else { continue };
        // The last two paths mean other things in other programs. They count only if their content looks like servers,
        // and only if no other path was found.
        let vague = matches!(flavor, Flavor::OpenCode | Flavor::Goose);
        if vague && (!roots.is_empty() || !members_are_entries(node)) {
            continue;
        }
        roots.push(path[0]);
        let flavor = match flavor {
            Flavor::Plain => plain_flavor(node, file),
            Flavor::OpenCode if is_crush(root, node, file) => Flavor::Crush,
            flavor => flavor,
        };
        collect(node, flavor, &path.join("."), &mut shape, report);
    }
    if local(root, file, stand, &mut shape, report) {
        roots.push("projects");
    }
    if default_timeout(root, &mut shape) {
        roots.push(ZED_TIMEOUT);
    }
    if roots.is_empty() && published::is_one(root) {
        published::refuse(root, report);
        return None;
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

/// Reports whether a client's file has no servers: there is nothing under its keys for servers, and the file is not an
/// object that consists of servers. Other settings of a client may look like servers.
pub(super) fn is_without(root: &Node, keys: &[&str]) -> bool {
    let members = root.members().unwrap_or_default();
    // Only clients with this key have files without a key for servers.
    let may_be_bare = keys == ["mcpServers"];
    let is_bare = may_be_bare && !members.is_empty() && members.iter().all(|member| is_entry(&member.node));
    keys.iter().try_fold(root, |node, key| node.get(key)).is_none() && !is_bare
}

/// Returns under which keys a file without servers would keep them, and which client's rules would apply to them.
pub(super) fn container(root: &Node, file: &Path) -> Option<(&'static [&'static str], Flavor)> {
    let (path, flavor) = ROOTS.into_iter().find(|(path, flavor)| {
        let vague = matches!(flavor, Flavor::OpenCode | Flavor::Goose);
        let node = path.iter().try_fold(root, |node, key| node.get(key));
        !vague && node.is_some_and(|node| !matches!(node.value, Value::Text(_) | Value::Number(_) | Value::Flag(_)))
    })?;
    let node = path.iter().try_fold(root, |node, key| node.get(key))?;
    Some((path, if flavor == Flavor::Plain { plain_flavor(node, file) } else { flavor }))
}

/// Reports whether a file is an object without servers and without anything that could be one.
pub(super) fn has_none(root: &Node, file: &Path) -> bool {
    let mut shape = Shape::default();
    bare(root, file, &mut shape);
    shape.entries.is_empty() && container(root, file).is_none() && !published::is_one(root)
}

/// Collects the entries under one of the paths in `ROOTS`: an object of entries by name, or a list of entries that
/// contain their names.
fn collect<'a>(node: &'a Node, flavor: Flavor, path: &str, shape: &mut Shape<'a>, report: &mut Report) {
    match &node.value {
        Value::Null => {}
        Value::Object(members) => {
            shape.entries.extend(members.iter().map(|member| Entry::new(&member.key, member.at, &member.node, flavor)));
        }
        Value::List(items) => {
            let name = |item: &Node| item.get("name").and_then(Node::text).unwrap_or_default().to_owned();
            let entries = items.iter().map(|item| Entry::new(&name(item), item.at, item, Flavor::Continue));
            shape.entries.extend(entries);
        }
        _ => {
            report.problem(node.at, path, format!("expected an object of servers, found {}", node.kind()));
        }
    }
}

/// Reads a file with none of the paths in `ROOTS`: it is an object of servers by name, or one server, which is named
/// after the file.
fn bare<'a>(root: &'a Node, file: &Path, shape: &mut Shape<'a>) {
    let members = root.members().unwrap_or_default();
    let flavor = if members.iter().any(is_of_opencode) { Flavor::OpenCode } else { plain_flavor(root, file) };
    if is_entry(root) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        shape.entries.push(Entry::new(&name, root.at, root, flavor));
        return;
    }
    let servers = members.iter().filter(|member| is_entry(&member.node));
    shape.entries.extend(servers.map(|member| Entry::new(&member.key, member.at, &member.node, flavor)));
}

/// Reports whether opencode wrote an entry: its local servers have a list as command, and those with a URL have the
/// type "remote".
fn is_of_opencode(member: &Member) -> bool {
    let kind = member.node.get("type").and_then(Node::text);
    let list = member.node.get("command").is_some_and(|command| matches!(command.value, Value::List(_)));
    kind == Some("remote") || kind == Some("local") && list
}

/// Guesses which of the clients that use `mcpServers` wrote these entries.
fn plain_flavor(servers: &Node, file: &Path) -> Flavor {
    let lies_in = |folder: &str| file.components().any(|part| part.as_os_str() == folder);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let entries = || servers.members().unwrap_or_default().iter();
    let any_has = |keys: &[&str]| entries().any(|entry| keys.iter().any(|key| entry.node.get(key).is_some()));
    if lies_in(".gemini")
        || lies_in(".qwen")
        || name == "gemini-extension.json"
        || any_has(&["httpUrl", "trust", "authProviderType"])
    {
        Flavor::Gemini
    } else if lies_in(".roo") || lies_in(".kilocode") || name == "mcp_settings.json" || any_has(&["alwaysAllow"]) {
        Flavor::Roo
    } else if lies_in(".cline") || name == "cline_mcp_settings.json" || any_has(&["transportType"]) {
        Flavor::Cline
    } else if lies_in(".copilot") || any_has(&["deferTools", "filterMapping"]) {
        Flavor::Copilot
    } else if any_has(&["isActive", "baseUrl"]) {
        Flavor::CherryStudio
    } else {
        Flavor::Plain
    }
}

fn is_entry(node: &Node) -> bool {
    let text = |key| node.get(key).is_some_and(|value| value.text().is_some());
    ["command", "cmd", "url", "serverUrl", "httpUrl", "uri", "baseUrl"].iter().any(|key| node.get(key).is_some())
        || (node.get("config").is_some() || node.get("transport").is_some())
        || text("type")
}

fn members_are_entries(node: &Node) -> bool {
    let entry = |node: &Node| is_entry(node) || node.get("enabled").is_some();
    node.members().is_some_and(|members| members.iter().any(|member| entry(&member.node)))
}

/// Adds the servers that Claude Code keeps for the chosen project; each replaces the user's server with the same name.
/// Returns whether the file has projects.
fn local<'a>(root: &'a Node, file: &Path, stand: Stand<'_>, shape: &mut Shape<'a>, report: &mut Report) -> bool {
    let projects = claude::projects(root);
    shape.projects = claude::known(&projects);
    let Some(project) = claude::choose(&projects, stand) else {
        if stand.named.is_none() {
            claude::tell_others(&projects, report);
        }
        return !projects.is_empty();
    };
    shape.shared = Some(Shared::new(project, file));
    let members = project.servers.and_then(Node::members).unwrap_or_default();
    shape.entries.retain(|entry| !members.iter().any(|member| member.key == entry.name));
    shape.entries.extend(members.iter().map(|member| Entry {
        base: Some(project.folder.clone()),
        ..Entry::new(&member.key, member.at, &member.node, Flavor::Plain)
    }));
    true
}

const ZED_TIMEOUT: &str = "context_server_timeout";

/// Applies Zed's default timeout, in seconds, to all entries of Zed; a timeout in an entry still wins. Returns whether
/// the file sets this default.
fn default_timeout(root: &Node, shape: &mut Shape<'_>) -> bool {
    let Some(Value::Number(seconds)) = root.get(ZED_TIMEOUT).map(|node| &node.value) else { return false };
    let time = seconds.parse().ok().and_then(units::seconds_f64).filter(|time| !time.is_zero());
    for entry in shape.entries.iter_mut().filter(|entry| entry.flavor == Flavor::Zed) {
        entry.call_timeout = time;
    }
    time.is_some()
}

/// Reports whether the key `mcp` of a file is for Crush and not for opencode.
fn is_crush(root: &Node, servers: &Node, file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let schema = root.get("$schema").and_then(Node::text).unwrap_or_default();
    let mut kinds = servers.members().unwrap_or_default().iter().filter_map(|entry| entry.node.get("type")?.text());
    matches!(&*name, "crush.json" | ".crush.json")
        || schema.contains("crush")
        || !schema.contains("opencode") && kinds.any(|kind| matches!(kind, "stdio" | "http" | "sse"))
}

/// Disables servers by `mcp.allowed` and `mcp.excluded`, which the Gemini CLI uses with names and Qwen Code with globs.
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
        let named = |globs: &Vec<&str>| globs.iter().any(|glob| is_match(glob, name));
        if excluded.as_ref().is_some_and(named) {
            entry.disabled = Some("named in mcp.excluded of the config".to_owned());
        } else if allowed.as_ref().is_some_and(|globs| !named(globs)) {
            entry.disabled = Some("not named in mcp.allowed of the config".to_owned());
        }
    }
}

/// Mentions the file's other settings in a single note: most belong to another program, but one may be a misspelled
/// key.
fn others(root: &Node, roots: &[&str], report: &mut Report) {
    let ours = |key: &str| matches!(key, "host" | "inputs" | "mcp" | "$schema") || roots.contains(&key);
    let members = root.members().unwrap_or_default().iter();
    let others: Vec<_> = members.filter(|member| !ours(&member.key)).collect();
    let Some(first) = others.first() else { return };
    let mut names: Vec<_> = others.iter().take(5).map(|member| format!("`{}`", Theirs(&member.key))).collect();
    if others.len() > names.len() {
        names.push(format!("{} more", others.len() - names.len()));
    }
    report.note(first.at, "", format!("not about servers, ignored: {}", names.join(", ")));
}
