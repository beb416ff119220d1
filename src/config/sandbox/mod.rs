//! `sandbox`: what the process of a server may read, write, and reach; in a server's entry, or under `host` for all
//! servers without one.
//!
//! **Invariant:** a level or a key that this version does not have is refused. It never becomes less in silence. Not
//! here: what a level gives (`crate::sandbox`).

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::fields::{Field, Fields, refuse_rest};
use super::keys::words;
use super::report::Report;
use super::syntax::{Node, Origin, Value};
use super::{Server, Stdio, Transport};
use crate::hex;

/// What the process of a server may read, write, and reach.
///
/// ```
/// use mcp_host::config::{Sandbox, Stdio};
///
/// let sandbox = Sandbox::on().read("~/.gitconfig").write("~/src");
/// let stdio = Stdio::new("files-server").sandbox(sandbox);
/// assert!(stdio.sandbox.is_some_and(|sandbox| sandbox.is_on()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sandbox {
    /// How much is kept from the process.
    pub level: SandboxLevel,
    /// Files and folders that it may read besides those that the level grants: whole paths, or `~/…`.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may read and write.
    pub write: Vec<PathBuf>,
    /// Whether it may open connections.
    pub network: SandboxNetwork,
    /// Whose home directory it has.
    pub home: SandboxHome,
    /// Whether it may reach Unix sockets of this machine.
    pub unix: bool,
    /// The most open files of one process; `None` means our own limit.
    pub files: Option<usize>,
    /// The most memory of one process for its data, in bytes; `None` means no limit.
    pub memory: Option<usize>,
    /// Whether the server also starts on a machine that cannot give all of the level.
    pub weak: bool,
    /// The name of the server's own folder, once it is known whose sandbox this is.
    whose: String,
    /// The folder of the project whose config has the entry; `None` for an entry of the user's own config.
    folder: Option<PathBuf>,
}

words! {
    /// How much is kept from the process of a server.
    pub enum SandboxLevel {
        /// Nothing: it may do what the user may.
        #[default]
        Off = "off",
        /// Files of the user, other processes, and sockets of this machine. It reaches the network.
        Default = "default",
    }
}

words! {
    /// Whether a confined process may open connections.
    pub enum SandboxNetwork {
        /// It may.
        #[default]
        Open = "open",
        /// It may not, not even to this machine.
        None = "none",
    }
}

words! {
    /// Whose home directory a confined process has.
    pub enum SandboxHome {
        /// One of its own, in the state directory.
        #[default]
        Own = "own",
        /// The user's HOME. The server may read and write only those of its files that are listed.
        User = "user",
    }
}

/// The key, both in a server's entry and under `host`.
pub(super) const KEY: &str = "sandbox";
/// The members of `sandbox`.
const KEYS: [&str; 9] = ["files", "home", "level", "memory", "network", "read", "unix", "weak", "write"];
/// Members that later versions may have.
const LATER: [(&str, &str); 3] = [
    ("cpu", "this version cannot limit processor time"),
    ("install", "this version has no phase for installing"),
    ("processes", "this version cannot count the processes of one server"),
];
const LEVELS: &str = "this version has \"off\" and \"default\"";

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            level: SandboxLevel::Off,
            read: Vec::new(),
            write: Vec::new(),
            network: SandboxNetwork::Open,
            home: SandboxHome::Own,
            unix: false,
            files: None,
            memory: None,
            weak: false,
            whose: String::new(),
            folder: None,
        }
    }
}

/// Each method sets one setting, like the key of the same name in a config file.
impl Sandbox {
    /// Returns the level `default`, with nothing listed.
    #[must_use]
    pub fn on() -> Self {
        Self { level: SandboxLevel::Default, ..Self::default() }
    }

    /// Reports whether anything is kept from the process.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.level != SandboxLevel::Off
    }

    /// Lets the process read a file or folder.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// Lets the process read and write a file or folder.
    #[must_use]
    pub fn write(mut self, path: impl Into<PathBuf>) -> Self {
        self.write.push(path.into());
        self
    }

    /// Lets the process open no connections.
    #[must_use]
    pub fn without_network(self) -> Self {
        Self { network: SandboxNetwork::None, ..self }
    }

    /// Returns the name of the folder with the server's own HOME: its alias, and a hash of the file that has its entry, so
    /// that a project's server does not get the HOME of another one of its name.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        expect(dead_code, reason = "elsewhere there is no such folder")
    )]
    pub(crate) fn whose(&self) -> &str {
        &self.whose
    }

    /// Returns the folder of the project whose config has the entry. Its servers are there to work on it, so they may read and
    /// write it, as they may their `cwd`.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        expect(dead_code, reason = "elsewhere nothing is granted")
    )]
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Makes this the sandbox of a server of the project in that folder.
    pub(crate) fn of_project(self, folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), ..self }
    }

    /// Also starts the server where not all of the level can be had.
    #[must_use]
    pub fn weak(self) -> Self {
        Self { weak: true, ..self }
    }
}

impl Stdio {
    /// Reports whether anything is kept from the process.
    pub(crate) fn is_confined(&self) -> bool {
        self.sandbox.as_ref().is_some_and(Sandbox::is_on)
    }
}

impl Server {
    /// Returns the sandbox of the server's process: its own, else `host`, that of the host. Without either, a server of a
    /// project's config has the level `default`, as far as this machine can give it. `None` if it has none.
    #[must_use]
    pub fn sandbox(&self, host: Option<&Sandbox>) -> Option<Sandbox> {
        let Transport::Stdio(stdio) = &self.transport else { return None };
        if self.daemon {
            return None;
        }
        let of_project = || self.project.is_some().then(|| Sandbox::on().weak());
        let sandbox = stdio.sandbox.clone().or_else(|| host.cloned()).or_else(of_project)?;
        sandbox.is_on().then_some(sandbox)
    }

    /// Settles which sandbox the server's process has.
    pub(crate) fn confine(&mut self, host: Option<&Sandbox>) {
        let sandbox = self.sandbox(host);
        let whose = || {
            let file = Sha256::digest(self.source.file.as_os_str().as_encoded_bytes());
            format!("{}-{}", self.alias, hex::encode(&file[..4]))
        };
        let folder = self.project.as_ref().and_then(|_| self.source.file.parent());
        let sandbox = sandbox.map(|sandbox| Sandbox { whose: whose(), ..sandbox }.of_project(folder));
        if let Transport::Stdio(stdio) = &mut self.transport {
            stdio.sandbox = sandbox;
        }
    }
}

/// Reports whether a value of `sandbox` is the one of VS Code, which describes another sandbox.
pub(super) fn is_of_another(node: &Node) -> bool {
    node.get("filesystem").is_some() || node.get("network").is_some_and(|network| network.members().is_some())
}

/// Reads `sandbox`: a level, or an object.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Option<Sandbox> {
    if field.node.members().is_none() {
        return Some(Sandbox { level: level(field, report)?, ..Sandbox::default() });
    }
    let mut fields = field.fields(report)?;
    let mut sandbox = Sandbox::on();
    if let Some(field) = fields.take(&["level"], report) {
        sandbox.level = level(&field, report)?;
    }
    for (key, message) in LATER {
        if let Some(field) = fields.take(&[key], report) {
            report.problem(field.at, &field.path, message).help("remove the key");
        }
    }
    sandbox.read = paths(&mut fields, "read", report);
    sandbox.write = paths(&mut fields, "write", report);
    if let Some(field) = fields.take(&["network"], report) {
        sandbox.network = network(&field, report)?;
    }
    if let Some(home) = fields.take(&["home"], report).and_then(|field| field.word(report)) {
        sandbox.home = home;
    }
    for (key, flag) in [("unix", &mut sandbox.unix), ("weak", &mut sandbox.weak)] {
        if let Some(given) = fields.take(&[key], report).and_then(|field| field.flag(report)) {
            *flag = given;
        }
    }
    sandbox.files = fields.take(&["files"], report).and_then(|field| files(&field, report));
    sandbox.memory = fields.take(&["memory"], report).and_then(|field| field.positive_size(report));
    refuse_rest(fields, &KEYS, report);
    Some(sandbox)
}

fn level(field: &Field<'_>, report: &mut Report) -> Option<SandboxLevel> {
    match field.text(report)? {
        "off" => Some(SandboxLevel::Off),
        "default" => Some(SandboxLevel::Default),
        other => {
            if field.node.origin != Origin::Missing {
                let message = format!("{} is no level of this version", field.quote(other));
                report.problem(field.at, &field.path, message).help(LEVELS);
            }
            None
        }
    }
}

fn network(field: &Field<'_>, report: &mut Report) -> Option<SandboxNetwork> {
    if let Value::List(_) = &field.node.value {
        let problem = report.problem(field.at, &field.path, "this version cannot tell hosts apart");
        problem.help("write \"open\" or \"none\"");
        return None;
    }
    field.word(report)
}

/// The fewest open files with which a runtime starts.
const FEWEST: usize = 16;

fn files(field: &Field<'_>, report: &mut Report) -> Option<usize> {
    let files = field.count(report)?;
    if files < FEWEST {
        report.problem(field.at, &field.path, format!("no program starts with less than {FEWEST} open files"));
        return None;
    }
    Some(files)
}

/// Reads a list of paths. A relative path would mean another folder for each way in which the host is started.
fn paths(fields: &mut Fields<'_>, key: &str, report: &mut Report) -> Vec<PathBuf> {
    let Some(field) = fields.take(&[key], report) else { return Vec::new() };
    let mut paths = Vec::new();
    for item in field.items(report) {
        let Some(text) = item.text(report).filter(|_| item.node.origin != Origin::Missing) else { continue };
        let is_whole = Path::new(text).is_absolute() || text == "~" || text.starts_with("~/");
        if !is_whole || text.contains('\0') {
            let message = format!("{} is not a whole path", item.quote(text));
            report.problem(item.at, &item.path, message).help("write a path that begins with / or ~/");
            continue;
        }
        paths.push(PathBuf::from(text));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Syntax, Vars, parse_str};
    use super::*;

    fn parsed(text: &str) -> Result<Config, String> {
        parse_str(text, Syntax::Toml, "mcp.toml", &Vars::default()).map_err(|error| {
            let problems = error.problems().iter().map(|problem| {
                let help = problem.help.as_deref().unwrap_or_default();
                format!("{problem}; {help}")
            });
            problems.collect::<Vec<_>>().join("\n")
        })
    }

    fn of(config: &Config) -> Option<Sandbox> {
        config.servers[0].sandbox(config.host.sandbox.as_ref())
    }

    #[test]
    fn a_level_that_this_version_lacks_is_refused_by_the_name_of_its_server() {
        for (text, expected) in [
            (
                "sandbox = \"strict\"",
                "mcp.toml:3: server \"a\": sandbox: \"strict\" is no level of this version; this version has \"off\" and \"default\"",
            ),
            (
                "sandbox = { level = \"strict\" }",
                "mcp.toml:3: server \"a\": sandbox.level: \"strict\" is no level of this version; this version has \"off\" and \"default\"",
            ),
            (
                "sandbox = { network = [\"a.example\"] }",
                "mcp.toml:3: server \"a\": sandbox.network: this version cannot tell hosts apart; write \"open\" or \"none\"",
            ),
            (
                "sandbox = { processes = 9 }",
                "mcp.toml:3: server \"a\": sandbox.processes: this version cannot count the processes of one server; remove the key",
            ),
            (
                "sandbox = { read = [\"src\"] }",
                "mcp.toml:3: server \"a\": sandbox.read[0]: \"src\" is not a whole path; write a path that begins with / or ~/",
            ),
            ("sandbox = { reads = [] }", "mcp.toml:3: server \"a\": sandbox.reads: unknown key; did you mean `read`?"),
        ] {
            let told = parsed(&format!("[mcpServers.a]\ncommand = \"x\"\n{text}\n")).unwrap_err();
            assert_eq!(told, expected);
        }
        let told = parsed("[mcpServers.a]\ncommand = \"x\"\n[host]\nsandbox = \"strict\"\n").unwrap_err();
        assert_eq!(
            told,
            "mcp.toml:4: host.sandbox: \"strict\" is no level of this version; this version has \"off\" and \"default\""
        );
    }

    #[test]
    fn the_servers_own_word_counts_before_that_of_the_host() {
        let server = "[mcpServers.a]\ncommand = \"x\"\n";
        let (off, on) = ("sandbox = \"off\"\n", "sandbox = \"default\"\n");
        for (text, expected) in [
            (server.to_owned(), None),
            (format!("{server}{off}[host]\n{on}"), None),
            (format!("{server}[host]\n{on}"), Some(Sandbox::on())),
            (format!("{server}{on}[host]\n{off}"), Some(Sandbox::on())),
            (format!("{server}sandbox = {{ write = [\"~/src\"] }}\n"), Some(Sandbox::on().write("~/src"))),
        ] {
            assert_eq!(of(&parsed(&text).unwrap()), expected, "{text}");
        }
        let mut config = parsed(server).unwrap();
        let (hash, shown) = (String::new(), Vec::new());
        config.servers[0].project = Some(super::super::Project { hash, shown, approved: true });
        assert_eq!(of(&config), Some(Sandbox::on().weak()));
        config.host.sandbox = Some(Sandbox::default());
        assert_eq!(of(&config), None, "the user said off");
    }

    #[test]
    fn another_programs_sandbox_is_noted_and_not_taken() {
        let text = "[mcpServers.a]\ncommand = \"x\"\nsandbox = { filesystem = { allowWrite = [] } }\n";
        let config = parsed(text).unwrap();
        assert_eq!((of(&config), config.notes.len()), (None, 1), "{:?}", config.notes);
    }
}
