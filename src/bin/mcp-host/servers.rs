//! From a command line to servers: load the config, and keep the servers that are needed.

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
use crate::{hidden, itself};

/// What a one-shot command is about, so that nothing else is started for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection<'a> {
    All,
    /// By its name in the config, or its alias.
    Server(&'a str),
    /// The owner of a tool or prompt; all, where the name does not tell.
    Named(&'a str),
    /// The owner of a resource; all, where the URI does not tell.
    Uri(&'a str),
}

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    /// The demo server that runs in this process.
    clock: bool,
    /// Whether the demo servers were asked for, also where only one of them is needed.
    demo: bool,
    /// A daemon stands for its servers.
    led: bool,
    /// Its servers are those of a daemon; there is no config.
    lent: bool,
    /// How the config came to be.
    request: LoadRequest,
}

/// Where what is learned of servers, and what the user has approved, is kept: `$XDG_STATE_HOME/mcp-host`.
pub(crate) fn state_directory() -> Option<PathBuf> {
    // A path that begins in the working directory would be in the hands of whoever filled that.
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("mcp-host"))
}

impl Plan {
    /// The servers of the config, with the demo servers if they are asked for. A demo needs no config, so only one that
    /// was named is read for it.
    pub(crate) fn load(common: &Common, demo: bool, listen: Option<SocketAddr>) -> Result<Self, Failure> {
        let request = request(common, listen);
        if !demo {
            return Ok(Self { config: first(&request)?, clock: false, demo: false, led: false, lent: false, request });
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

    /// The plan of a command without a config: the servers of a daemon, by name and alias. They can only be had through it.
    #[cfg(unix)]
    pub(crate) fn of_daemon(common: &Common, servers: impl Iterator<Item = (String, String)>) -> Option<Self> {
        let server = |(name, alias): (String, String)| {
            let mut server = Server::new(&alias, Transport::Stdio(Stdio::default())).ok()?;
            // How its tools are called is the daemon's word.
            (server.name, server.prefix) = (name, Prefix::Auto);
            Some(server)
        };
        let servers = servers.map(server).collect::<Option<_>>()?;
        let config = Config { servers, ..Config::default() };
        Some(Self { config, clock: false, demo: false, led: false, lent: true, request: request(common, None) })
    }

    /// Whether its servers are known from a daemon only.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// The plan where no daemon stands for its servers.
    pub(crate) fn alone(self) -> Result<Self, Failure> {
        if !self.lent {
            return Ok(self);
        }
        first(&self.request)?;
        Err(Failure::new(Exit::Unreachable, "the mcp-host that was running has ended"))
    }

    /// What reads the config again: the files that were read, whatever else may be found by then.
    pub(crate) fn again(&self) -> impl Fn() -> Result<Config, config::Error> + Send + Sync + 'static {
        let (files, project) = (self.config.files.clone(), self.config.project);
        let request = LoadRequest { files, project, ..self.request.clone() };
        move || load(&LoadRequest { approved: approved(), ..request.clone() })
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

    /// Whether the demo servers were asked for.
    pub(crate) fn is_demo(&self) -> bool {
        self.demo
    }

    /// Puts a daemon in the place of its servers.
    pub(crate) fn lead(&mut self, daemon: Server) {
        self.config.servers = vec![daemon];
        self.led = true;
    }

    /// The folder that was named to choose among the projects of a file.
    pub(crate) fn project_directory(&self) -> Option<&Path> {
        self.request.project_directory.as_deref()
    }

    /// Whether a server is called that.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().contains(&name)
    }

    /// Whether a tool of that name is shown without its server's prefix, or begins with one.
    pub(crate) fn may_have_tool(&self, name: &str) -> bool {
        let separator = &self.config.host.naming.separator;
        let bare = self.config.servers.iter().any(|server| server.prefix != Prefix::Always);
        let begins = |server: &str| name.strip_prefix(server).is_some_and(|rest| rest.starts_with(separator.as_str()));
        bare || self.names().iter().any(|server| begins(server) || of_server(name, server).is_some())
    }

    /// The names in the config and the aliases.
    pub(crate) fn names(&self) -> Vec<&str> {
        let names = self.config.servers.iter().flat_map(|server| [server.name.as_str(), server.alias.as_str()]);
        let mut names: Vec<&str> = names.chain(self.clock.then_some(CLOCK)).collect();
        names.dedup();
        names
    }

    /// The one server of that name in the config.
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

    /// The builder of a host for this plan. It has looked which hosts are above: this program does nothing else yet.
    pub(crate) fn builder(self) -> Result<HostBuilder, Failure> {
        let led = self.led;
        let mut builder = Host::builder().client_info("mcp-host", env!("CARGO_PKG_VERSION")).config(self.config);
        // Of a daemon there is nothing to keep: it keeps what its servers are.
        if let Some(state) = state_directory().filter(|_| !led) {
            builder = builder.state_directory(state);
        }
        let builder = if self.clock { builder.in_process(CLOCK, demo::clock()) } else { builder };
        Ok(builder.enter()?)
    }

    /// Says once what is worth knowing about the config.
    pub(crate) fn tell_notes(&self, output: &Output) {
        for note in &self.config.notes {
            output.remark(&format!("note: {note}"));
            if let Some(help) = &note.help {
                output.remark(&format!("help: {help}"));
            }
        }
    }
}

/// The tool that is meant if `typed` begins with that server: `read` in `files.read`.
pub(crate) fn of_server<'a>(typed: &'a str, server: &str) -> Option<&'a str> {
    let rest = typed.strip_prefix(server).filter(|_| !server.is_empty())?;
    rest.strip_prefix(SIGNS).filter(|tool| !tool.is_empty())
}

fn request(common: &Common, listen: Option<SocketAddr>) -> LoadRequest {
    let mut request = LoadRequest::from_process();
    request.files.clone_from(&common.config);
    request.project_directory.clone_from(&common.project);
    request.approved = approved();
    request.keyring = mcp_host::auth::keyring();
    request.flags.extend(listen.map(|listen| ("listen".to_owned(), listen.to_string())));
    request
}

fn approved() -> Approved {
    state_directory().map(|directory| Approvals::of(&directory).approved()).unwrap_or_default()
}

/// Loads the config of a command. Without one, the files of other clients are told.
fn first(request: &LoadRequest) -> Result<Config, Failure> {
    load(request).map_err(|error| match error {
        config::Error::NotFound { .. } => Failure::from(error).more_help(found::commands()),
        _ => error.into(),
    })
}

/// Loads a config, whose secrets are hidden from now on.
fn load(request: &LoadRequest) -> Result<Config, config::Error> {
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

/// The demo server that is a real child process: this program in a hidden mode.
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

/// What may stand between the name of a server and that of its tool.
const SIGNS: [char; 4] = ['.', '/', ':', ' '];
const CLOCK: &str = "clock";
/// What is left to say where nobody but us can be wrong.
const BUG: &str = "this is a fault of mcp-host: please report it";

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
