//! From a command line to a plan: loads the config, and keeps the servers that are needed.

use std::ffi::OsStr;
use std::net::SocketAddr;

use std::path::{Path, PathBuf};

use mcp_host::approvals::Approvals;
use mcp_host::config::{self, Approved, Config, HostSettings, LoadRequest, Prefix, Server, Stdio, Transport};
use mcp_host::{Host, HostBuilder, demo};

use crate::args::Common;
use crate::found;
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::{hidden, itself, text};

/// Which servers a one-shot command needs; only those are started.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection<'a> {
    All,
    /// The server with this name or alias.
    Server(&'a str),
    /// The server of this tool or prompt; all servers if the name does not tell which.
    Named(&'a str),
    /// The server of this resource; all servers if the URI does not tell which.
    Uri(&'a str),
}

/// The servers that a command starts, and the config that they come from.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// Whether to run the demo server that lives in this process.
    clock: bool,
    /// Whether the demo servers were requested, even if only one of them is needed.
    demo: bool,
    /// Whether a daemon replaces the servers.
    led: bool,
    /// Whether the servers come from a daemon, without a config.
    lent: bool,
    /// How the config was loaded.
    request: LoadRequest,
}

/// Returns the directory for what the host learns of servers and what the user approved: `$XDG_STATE_HOME/mcp-host`.
pub(crate) fn state_directory() -> Option<PathBuf> {
    // Relative paths are ignored: the working directory's owner would control what is there.
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("mcp-host"))
}

impl Plan {
    /// Loads the servers of the config, and the demo servers if requested. The demo needs no config, so it reads only
    /// one that was named.
    pub(crate) fn load(common: &Common, demo: bool, listen: Option<SocketAddr>) -> Result<Self, Failure> {
        let request = request(common, listen);
        if !demo {
            return Ok(Self { config: first(&request)?, clock: false, demo: false, led: false, lent: false, request });
        }
        if let Some(view) = common.view.as_ref().filter(|view| common.config.is_empty() && *view != "all") {
            let error = format!("there is no view `{}`: the demo has no config", text::line(view));
            return Err(Failure::new(Exit::Usage, error).help("leave out --view"));
        }
        let mut config = if common.config.is_empty() { demo_only(listen)? } else { first(&request)? };
        let child = demo_child()?;
        let clash = |server: &&Server| server.alias == child.alias || server.alias.as_str() == CLOCK;
        if let Some(server) = config.servers.iter().find(clash) {
            return Err(Failure::new(
                Exit::Usage,
                format!("the config has a server `{}`, and so has the demo", server.name),
            )
            .help("leave out --config or --demo"));
        }
        config.servers.push(child);
        Ok(Self { config, clock: true, demo: true, led: false, lent: false, request })
    }

    /// Loads the servers of the config. If the lock has mistakes, it is ignored, because it is about to be rewritten.
    pub(crate) fn without_lock(common: &Common) -> Result<Self, Failure> {
        Self::load(common, false, None).or_else(|failure| {
            let request = LoadRequest { without_lock: true, ..request(common, None) };
            let config = load(&request).map_err(|_| failure)?;
            Ok(Self { config, clock: false, demo: false, led: false, lent: false, request })
        })
    }

    /// Plans a command for a config that was loaded in its own way.
    pub(crate) fn of(config: Config, request: LoadRequest) -> Self {
        Self { config, clock: false, demo: false, led: false, lent: false, request }
    }

    /// Plans a command without a config: a daemon's servers, by name and alias, which are only reachable through it.
    #[cfg(unix)]
    pub(crate) fn of_daemon(common: &Common, servers: impl Iterator<Item = (String, String)>) -> Option<Self> {
        let server = |(name, alias): (String, String)| {
            let mut server = Server::new(&alias, Transport::Stdio(Stdio::default())).ok()?;
            // The daemon decides the names of its tools.
            (server.name, server.prefix) = (name, Prefix::Auto);
            Some(server)
        };
        let servers = servers.map(server).collect::<Option<_>>()?;
        let config = Config { servers, ..Config::default() };
        Some(Self { config, clock: false, demo: false, led: false, lent: true, request: request(common, None) })
    }

    /// Returns the view that the command line names.
    pub(crate) fn view(&self) -> Option<&str> {
        let named = self.request.flags.iter().find(|(name, _)| name == "view");
        named.map(|(_, view)| view.as_str())
    }

    /// Reports whether the servers are known only from a daemon.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Returns the plan for use without a daemon. Fails if its servers came from a daemon.
    pub(crate) fn alone(self) -> Result<Self, Failure> {
        if !self.lent {
            return Ok(self);
        }
        first(&self.request)?;
        Err(Failure::new(Exit::Unreachable, "the mcp-host that was running has ended"))
    }

    /// Returns a function that reloads the config from the same files, even if other files would be found by then.
    pub(crate) fn again(&self) -> impl Fn() -> Result<Config, config::Error> + Send + Sync + 'static {
        let request = self.same_files();
        move || load(&LoadRequest { approved: approved(), ..request.clone() })
    }

    /// Returns how the config is loaded from the same files, even if other files would be found by then.
    pub(crate) fn same_files(&self) -> LoadRequest {
        LoadRequest { files: self.config.files.clone(), project: self.config.project, ..self.request.clone() }
    }

    /// Drops the servers that are not needed.
    pub(crate) fn keep(&mut self, wanted: Selection<'_>) -> Result<(), Failure> {
        let separator = self.config.host.naming.separator.clone();
        let starts =
            |text: &str, alias: &str, by: &str| text.strip_prefix(alias).is_some_and(|rest| rest.starts_with(by));
        let owns = |name: &str, alias: &str| match wanted {
            Selection::All => true,
            Selection::Server(server) => server == name || server == alias,
            Selection::Named(tool) => {
                let typed = |server: &str| of_server(tool, server).is_some();
                starts(tool, alias, &separator) || typed(alias) || typed(name)
            }
            Selection::Uri(uri) => {
                starts(uri, alias, "+") || uri.strip_prefix("ui://").is_some_and(|rest| starts(rest, alias, "--"))
            }
        };
        let clock = self.clock && owns(CLOCK, CLOCK);
        if clock || self.config.servers.iter().any(|server| owns(&server.name, server.alias.as_str())) {
            self.config.servers.retain(|server| owns(&server.name, server.alias.as_str()));
            self.clock = clock;
        } else if let Selection::Server(name) = wanted {
            return Err(self.unknown_server(name));
        }
        Ok(())
    }

    /// Reports whether the demo servers were requested.
    pub(crate) fn is_demo(&self) -> bool {
        self.demo
    }

    /// Replaces the servers with a daemon.
    pub(crate) fn lead(&mut self, daemon: Server) {
        self.config.servers = vec![daemon];
        self.led = true;
    }

    /// Returns the folder that `--project` names to choose among the projects in a file, if it was given.
    pub(crate) fn project_directory(&self) -> Option<&Path> {
        self.request.project_directory.as_deref()
    }

    /// Reports whether a server has that name or alias.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().contains(&name)
    }

    /// Reports whether a tool may have that name: it begins with a server's prefix, or a server may have no prefix.
    pub(crate) fn may_have_tool(&self, name: &str) -> bool {
        let separator = &self.config.host.naming.separator;
        let bare = self.config.servers.iter().any(|server| server.prefix != Prefix::Always);
        let begins = |server: &str| name.strip_prefix(server).is_some_and(|rest| rest.starts_with(separator.as_str()));
        bare || self.names().iter().any(|server| begins(server) || of_server(name, server).is_some())
    }

    /// Returns the servers' names in the config and their aliases.
    pub(crate) fn names(&self) -> Vec<&str> {
        let names = self.config.servers.iter().flat_map(|server| [server.name.as_str(), server.alias.as_str()]);
        let mut names: Vec<&str> = names.chain(self.clock.then_some(CLOCK)).collect();
        names.dedup();
        names
    }

    /// Returns the server with that name or alias.
    pub(crate) fn server(&self, name: &str) -> Result<&Server, Failure> {
        let found = self.config.servers.iter().find(|server| server.is_called(name));
        found.ok_or_else(|| self.unknown_server(name))
    }

    pub(crate) fn unknown_server(&self, name: &str) -> Failure {
        let names = self.names();
        let all = || (!names.is_empty()).then(|| format!("the config has: {}", names.join(", ")));
        let help = question(&nearest(name, names.iter().copied())).or_else(all);
        Failure::new(Exit::Usage, format!("no server is called `{name}`")).maybe_help(help)
    }

    /// Returns a host builder for this plan. The builder has already searched for hosts above this one, now while the
    /// program does nothing else.
    pub(crate) fn builder(self) -> Result<HostBuilder, Failure> {
        let led = self.led;
        let mut builder = Host::builder().client_info("mcp-host", env!("CARGO_PKG_VERSION")).config(self.config);
        // A daemon keeps what it learns of its servers itself.
        if let Some(state) = state_directory().filter(|_| !led) {
            builder = builder.state_directory(state);
        }
        let builder = if self.clock { builder.in_process(CLOCK, demo::clock()) } else { builder };
        Ok(builder.enter()?)
    }

    /// Prints the notes about the config.
    pub(crate) fn tell_notes(&self, output: &Output) {
        for note in &self.config.notes {
            output.remark(&format!("note: {note}"));
            if let Some(help) = &note.help {
                output.remark(&format!("help: {help}"));
            }
        }
    }
}

/// Returns the tool in `typed` if `typed` begins with that server: `read` in `files.read`.
pub(crate) fn of_server<'a>(typed: &'a str, server: &str) -> Option<&'a str> {
    let rest = typed.strip_prefix(server).filter(|_| !server.is_empty())?;
    rest.strip_prefix(SIGNS).filter(|tool| !tool.is_empty())
}

/// Returns how a command loads its config.
pub(crate) fn request(common: &Common, listen: Option<SocketAddr>) -> LoadRequest {
    let mut request = LoadRequest::from_process();
    request.files.clone_from(&common.config);
    request.project_directory.clone_from(&common.project);
    request.approved = approved();
    request.keyring = mcp_host::auth::keyring();
    request.flags.extend(common.view.iter().map(|view| ("view".to_owned(), view.clone())));
    request.flags.extend(listen.map(|listen| ("listen".to_owned(), listen.to_string())));
    request
}

fn approved() -> Approved {
    state_directory().map(|directory| Approvals::of(&directory).approved()).unwrap_or_default()
}

/// Loads the config of a command. If there is none, suggests the files of other clients.
fn first(request: &LoadRequest) -> Result<Config, Failure> {
    load(request).map_err(|error| match error {
        config::Error::NotFound { .. } => Failure::from(error).more_help(found::commands()),
        _ => error.into(),
    })
}

/// Loads a config. Its secrets are hidden in output from now on.
pub(crate) fn load(request: &LoadRequest) -> Result<Config, config::Error> {
    let mut config = config::load(request)?;
    hidden::learn(&config);
    itself::switch_off(&mut config, request);
    Ok(config)
}

fn demo_only(listen: Option<SocketAddr>) -> Result<Config, Failure> {
    let mut host = HostSettings::default();
    if let Some(listen) = listen {
        if !listen.ip().is_loopback() {
            return Err(Failure::new(
                Exit::Usage,
                format!("the demo has no access control, so it cannot listen on {listen}"),
            )
            .help("mcp-host serve --demo --listen 127.0.0.1:8808"));
        }
        host.listen = listen;
    }
    Ok(Config { host, ..Config::default() })
}

/// Returns the demo server that is a child process: this program in a hidden mode.
fn demo_child() -> Result<Server, Failure> {
    let path = std::env::current_exe().ok();
    let Some(command) = path.as_deref().map(|path| path.as_os_str()).and_then(OsStr::to_str) else {
        return Err(Failure::new(Exit::Failed, "cannot find the path of this program, which the demo starts again")
            .help("start it by its whole path"));
    };
    let stdio = Stdio { command: command.to_owned(), args: vec!["__demo-server".to_owned()], ..Stdio::default() };
    Server::new("echo", Transport::Stdio(stdio))
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()).help(BUG))
}

/// Separators that users type between the name of a server and that of its tool.
const SIGNS: [char; 4] = ['.', '/', ':', ' '];
const CLOCK: &str = "clock";
/// Help for errors that only a bug can cause.
const BUG: &str = "this is a bug in mcp-host: please report it";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let mut config = demo_only(None).unwrap();
        for name in ["Files", "file", "git"] {
            config.servers.push(Server::new(name, Transport::Stdio(Stdio::default())).unwrap());
        }
        Plan { config, clock: true, demo: true, led: false, lent: false, request: LoadRequest::default() }
    }

    fn kept(wanted: Selection<'_>) -> Vec<String> {
        let mut plan = plan();
        plan.keep(wanted).unwrap();
        let clock = plan.clock.then(|| CLOCK.to_owned());
        plan.config.servers.into_iter().map(|server| server.name).chain(clock).collect()
    }

    #[test]
    fn only_what_is_needed_is_kept() {
        assert_eq!(kept(Selection::Server("files")), ["Files"]);
        assert_eq!(kept(Selection::Server("Files")), ["Files"]);
        assert_eq!(kept(Selection::Named("file__files__x")), ["file"]);
        assert_eq!(kept(Selection::Named("clock__now")), ["clock"]);
        assert_eq!(kept(Selection::Named("Files.read")), ["Files"]);
        assert_eq!(kept(Selection::Named("git status")), ["git"]);
        assert_eq!(kept(Selection::Uri("git+ssh://x")), ["git"]);
        assert_eq!(kept(Selection::Uri("ui://files--x/y")), ["Files"]);
        assert_eq!(kept(Selection::Named("read_file")).len(), 4);
        assert_eq!(kept(Selection::All).len(), 4);
    }

    #[test]
    fn a_server_and_its_tool_are_told_apart() {
        let cases = [
            ("files.read", Some("read")),
            ("files/read", Some("read")),
            ("files read", Some("read")),
            ("files:read", Some("read")),
            ("files.read.all", Some("read.all")),
            ("files__read", None),
            ("files.", None),
            ("filesystem.read", None),
            ("other.read", None),
        ];
        for (typed, tool) in cases {
            assert_eq!(of_server(typed, "files"), tool, "{typed}");
        }
        assert_eq!(of_server("My Files.read", "My Files"), Some("read"));
        assert_eq!(of_server(".read", ""), None);
    }

    #[test]
    fn an_unknown_server_is_an_error_of_usage() {
        assert_eq!(plan().keep(Selection::Server("fils")).unwrap_err().exit, Exit::Usage);
    }
}
