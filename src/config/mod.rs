//! The config: the servers and the host's own settings, read from the config files of many MCP clients.
//!
//! In: files, and a snapshot of the environment. Out: one checked [`Config`], or every problem of every file at once.
//! A file passes through these steps: `syntax` parses it into a tree whose values know their line and column, `shape`
//! finds the server entries and decides which client's rules they follow, `expand` substitutes variables, and `server`,
//! `transport`, `settings` and `host` check it field by field. `Server` below is the table of the keys that every
//! server entry may have.
//!
//! **Invariant:** nothing here starts, connects, or writes anything, and no message contains the value of a variable.
//! Start with [`load()`].

mod auth;
mod builders;
mod cases;
mod claude;
pub mod clients;
mod contents;
mod credentials;
mod dialect;
pub mod edit;
mod expand;
mod fallback;
mod fields;
mod habits;
mod helper;
mod hidden;
mod host;
pub mod import;
mod inherit;
mod inputs;
mod keyring;
mod keys;
mod load;
mod locked;
mod package;
mod place;
mod project;
mod published;
mod rate;
mod reach;
mod report;
mod sandbox;
mod secret;
mod selector;
mod server;
mod settings;
mod shape;
mod shown;
mod sign_in;
mod surroundings;
mod syntax;
#[cfg(test)]
mod tests;
mod tls;
mod tools;
mod transport;
mod units;
mod unusable;
mod validate;
mod vars;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

pub use self::cases::{Case, Target};
pub use self::contents::Contents;
pub(crate) use self::contents::Watcher;
pub use self::fallback::{BadPattern, Fallback, FallbackOn};
pub use self::helper::Helper;
pub(crate) use self::helper::is_own_header;
#[cfg(feature = "server")]
pub(crate) use self::host::ClaimsRead;
pub(crate) use self::host::{ALL_VIEW, ResultLimits};
pub use self::host::{
    Action, AnswerCache, Approval, Audience, Audit, BearerClient, CatalogMode, CatalogSettings, Cluster, Code, Compact,
    Console, Decision, HostAuth, HostOAuth, HostSettings, HostTls, Join, Limits, Matcher, Merge, Metrics, Otel,
    PeerSource, Policy, PolicyMode, Proof, ReadOnly, Registry, Results, Rule, Sample, ScriptTools, SecretKey, Secrets,
    StoreKind, View,
};
pub(crate) use self::inherit::passes as inherits;
#[cfg(feature = "keyring")]
pub(crate) use self::keyring::SERVICE as KEYRING_SERVICE;
pub use self::keyring::{Keyring, Unread};
pub(crate) use self::keys::Words;
use self::keys::{keys, words};
pub use self::load::{LoadRequest, load, parse_str};
#[cfg(feature = "fuzzing")]
pub(crate) use self::locked::read as read_lock;
pub use self::locked::{Lock, Locked};
pub use self::package::{Package, PackageKind};
pub use self::project::{Approved, NOT_APPROVED, Project};
pub use self::rate::{OnLimit, Per, Rate, Rates};
pub use self::report::{Error, Excerpt, Note, Problem};
#[cfg(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"))]
pub(crate) use self::sandbox::parse_host;
pub use self::sandbox::{BEGINS, NotAHost, Sandbox, SandboxHome, SandboxHost, SandboxLevel, SandboxNetwork, WATCHED};
pub use self::secret::Secret;
pub use self::selector::{Hint, Selector};
pub use self::sign_in::{Auth, Enterprise, Grant, OAuth, Source as SecretSource};
pub use self::surroundings::Surroundings;
pub use self::syntax::Syntax;
pub use self::tls::{Fingerprint, Tls};
pub(crate) use self::tools::Layer;
pub use self::tools::{Argument, Hints, Preset, ToolResults, ToolRules, ToolSettings};
pub use self::units::time;
pub use self::unusable::Unusable;
pub use self::validate::Validate;
pub use self::vars::Vars;
use crate::exposed::UriMode;
pub use crate::expression::Expression;
use crate::name::{self, ServerName};

/// A checked config.
///
/// ```
/// use mcp_host::config::{Syntax, Vars, parse_str};
///
/// let text = r#"{ "mcpServers": { "clock": { "command": "mcp-clock" } } }"#;
/// let config = parse_str(text, Syntax::Json, "mcp.json", &Vars::default())?;
/// assert_eq!(config.servers[0].name, "clock");
/// # Ok::<_, mcp_host::config::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The servers, in the order in which the files first name them.
    pub servers: Vec<Server>,
    /// The settings of the host itself.
    pub host: HostSettings,
    /// Remarks that the user should be told once; none of them stops the host.
    pub notes: Vec<Note>,
    /// The config files.
    pub files: Vec<PathBuf>,
    /// Every file that was read (config files, and files that they name), each with a hash of its content.
    pub contents: Contents,
    /// Whether the config was found in the working directory. Such a config comes from a project, not from the user.
    pub project: bool,
    /// What the config depends on besides its files.
    pub surroundings: Surroundings,
    /// What a team has approved: `host.lock`, or `mcp-host.lock` beside the first file.
    pub lock: Option<Lock>,
}

/// The reason shown for a server entry that is switched off because it points back to this host.
pub const ITSELF: &str = "this is this host itself; take it out of the config";

impl Config {
    /// Returns where the lock is, or would be: at `host.lock`, or beside the first file. `None` if there is no file.
    pub fn lock_file(&self) -> Option<PathBuf> {
        self.host.lock.clone().or_else(|| locked::beside(self.files.first()?))
    }

    /// Returns the config files, each with the SHA-256 of its content if it could be read.
    pub(crate) fn read_files(&self) -> impl Iterator<Item = (&Path, Option<[u8; 32]>)> {
        self.files.iter().map(|file| {
            let content = self.contents.hashes().find(|(path, _)| path == file).and_then(|(_, hash)| hash);
            (file.as_path(), content)
        })
    }
}

keys! {
    /// One server, as its entry in a config describes it.
    ///
    /// ```
    /// use mcp_host::config::{Server, Stdio};
    ///
    /// let server = Server::new("My Files", Stdio::new("files-server"))?.required();
    /// assert_eq!(server.alias.as_str(), "my-files");
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    #[non_exhaustive]
    pub struct Server(name: String, alias: ServerName, transport: Transport) {
        /// The server's name in the config.
        name: String = name,
        /// The server's name everywhere else, made from its name in the config.
        alias: ServerName = alias,
        /// Where the entry is in its file.
        source: Source = Source::default(),
        /// How to reach the server.
        transport: Transport = transport,
        /// Values that must not be shown and that the entry takes from elsewhere: from variables whose names mark them
        /// as secret, or from files, inputs or a keyring.
        secrets: Vec<Secret> = Vec::new(),
        /// Why the server cannot be started as configured: a variable that is not set, a missing file, or a setting of
        /// another client that means nothing here. Such a server is `failed` from the start; other servers are
        /// unaffected.
        unusable: Option<Unusable> = None,
        /// The server's entry in a project's config, and whether the user has approved it; `None` for other configs.
        project: Option<Project> = None,
        /// The hash of the entry as written, with its variables unexpanded; `None` if a program made it.
        entry: Option<String> = None,
        /// What the lock approves of the server; `None` if no lock has this entry.
        locked: Option<Locked> = None,
        /// Whether this is the user's own daemon, a running host that stands for all servers of a config. The failures
        /// that it reports are trusted. No config file can set this.
        daemon: bool = false,
        /// Settings of its tools, by globs over the server's own names: the key `tools`, if it holds an object.
        tools: ToolRules = ToolRules::default(),
    }
    keys {
        /// Whether clients may share one connection to the server.
        sharing: word -> Sharing = Sharing::Auto,
        /// Whether the names of its tools, prompts and resources are prefixed with its alias.
        prefix: word -> Prefix = Prefix::Always,
        /// When the server is started.
        start: word -> Start = Start::Eager,
        /// Which era of the protocol to speak with the server.
        era: word -> Era = Era::Auto,
        /// Whether to save its tool list and its other lists for the next start of the host.
        manifest: word -> Manifest = Manifest::On,
        /// How long a connection may be idle before it is closed; the next call opens another. 0 means forever.
        idle_stop: time -> Duration = Duration::ZERO,
        /// Whether the host is not ready without it.
        required: flag -> bool = false,
        /// Whether to trust the server's own annotations about which of its tools may be retried.
        trust_annotations: flag -> bool = false,
        /// How many calls may run at once; more calls wait in order of arrival. 0 means unlimited.
        max_concurrent: count -> usize = 0,
        /// How long a call may wait for its turn under `max_concurrent`.
        queue_timeout: time -> Duration = Duration::from_secs(30),
        /// How many connections clients that share one have together while all are busy, 1 to 16. It stays 1 for a server
        /// that asks its clients something.
        pool: pool_size -> usize = 1,
        /// Tools, by the server's own names, whose calls may be repeated after a lost connection.
        repeatable: list -> Vec<String> = Vec::new(),
        /// JSON pointers to parts of definitions that change all the time: a change there needs no approval.
        pin_ignore: pointers -> Vec<String> = Vec::new(),
        /// The user's description of the server.
        description: note -> Option<String> = None,
        /// Words by which selectors of views find all its tools (`tag:WORD`). They are never sent.
        tags: tags -> Vec<String> = Vec::new(),
        /// What is checked against the schemas of its tools; `None` means what the host checks.
        validate: some_validation -> Option<Validate> = None,
        /// Tools to rename: from the server's own name to the name that clients see, without the prefix.
        rename: rename -> BTreeMap<String, String> = BTreeMap::new(),
        /// What the server gets when it asks for roots.
        roots: roots -> Roots = Roots::Client,
        /// What happens when the connection is lost.
        restart: nested -> Restart = Restart::default(),
        /// Globs over tool names; a tool that matches none is withheld. An empty list withholds all.
        include_tools | "enabled_tools" | "tools": list -> Vec<String> = vec!["*".to_owned()],
        /// Globs over tool names; a tool that matches one is withheld, even if `include_tools` matches it.
        exclude_tools | "disabled_tools" | "disabledTools": list -> Vec<String> = Vec::new(),
        /// How long a start may take, including the handshake.
        start_timeout: positive_time -> Duration = Duration::from_secs(30),
        /// How long a call may go without progress; each progress notification restarts the timeout.
        call_timeout: positive_time -> Duration = Duration::from_secs(60),
        /// How long a call may take overall.
        max_call_time: positive_time -> Duration = Duration::from_secs(3600),
        /// Why the server is disabled and so is not started; `None` if it is not disabled.
        disabled: off -> Option<String> = None,
    }
}

impl Server {
    /// Returns a server with a name and a transport, and the defaults for everything else.
    ///
    /// # Errors
    ///
    /// Fails when no alias can be made from `name`.
    pub fn new(name: &str, transport: impl Into<Transport>) -> Result<Self, name::Error> {
        Ok(Self::with_defaults(name.to_owned(), ServerName::from_config(name)?, transport.into()))
    }

    /// Reports whether `name` is the server's name in the config, or its alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias.as_str() == name
    }

    /// Reports whether `other` is equal to this, apart from how and where it is written and what is approved of it.
    pub fn same_as(&self, other: &Self) -> bool {
        let Self { source, project, entry, locked, .. } = other.clone();
        Self { source, project, entry, locked, ..self.clone() } == *other
    }
}

/// Where a server's entry is in a config file. The path is empty for a server that does not come from a file.
///
/// ```
/// # fn show(server: &mcp_host::config::Server) {
/// println!("{} is from {}:{:?}", server.name, server.source.file.display(), server.source.line);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, if known.
    pub line: Option<usize>,
}

/// How to reach a server.
///
/// ```
/// use mcp_host::config::{Remote, Server, Transport};
///
/// let remote = Remote::new("https://example.com/sse".parse()?);
/// let server = Server::new("old", Transport::Sse(remote))?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// A child process that speaks over its stdin and stdout.
    Stdio(Stdio),
    /// Streamable HTTP.
    Http(Remote),
    /// HTTP with SSE, as of revision 2024-11-05.
    Sse(Remote),
    /// Streamable HTTP first, and HTTP with SSE if the server does not support it.
    Auto(Remote),
}

/// A process to start. `Debug` shows neither its arguments nor the values of its variables.
///
/// ```
/// use mcp_host::config::Stdio;
///
/// let stdio = Stdio::new("files-server").args(["--root", "."]).env("LOG", "off").cwd("/srv");
/// assert_eq!(stdio.args.len(), 2);
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Stdio {
    /// The program.
    pub command: String,
    /// Its arguments. No shell reads them.
    pub args: Vec<String>,
    /// Variables to set for it.
    pub env: Vec<(String, Secret)>,
    /// Variables to pass on from our environment if they are set: names and globs.
    pub forward_env: Vec<String>,
    /// Its working directory; `None` means ours.
    pub cwd: Option<PathBuf>,
    /// The package that the command starts. If its tree is locked, the tree is started instead.
    pub package: Option<Package>,
    /// What the process may read, write, and reach; `None` means what the host says.
    pub sandbox: Option<Sandbox>,
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // API keys are also passed as arguments, and a log line about a server must not reveal them.
        let args = format_args!("[{} arguments]", self.args.len());
        let Self { command, args: _, env, forward_env, cwd, package, sandbox } = self;
        f.debug_struct("Stdio")
            .field("command", command)
            .field("args", &args)
            .field("env", env)
            .field("forward_env", forward_env)
            .field("cwd", cwd)
            .field("package", package)
            .field("sandbox", sandbox)
            .finish()
    }
}

/// A server behind a URL. `Debug` shows only the origin of the URL.
///
/// ```
/// use mcp_host::config::Remote;
///
/// let remote = Remote::new("https://example.com/mcp".parse()?).header("X-Team", "blue");
/// assert_eq!(remote.headers.len(), 1);
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remote {
    /// The endpoint: `http` or `https`, without user and password.
    pub url: Url,
    /// Headers to send with every request.
    pub headers: Vec<(String, Secret)>,
    /// A program that runs for each connection and prints headers, which add to `headers` or replace some of them.
    pub headers_helper: Option<Helper>,
    /// Whether plain HTTP to another machine is allowed.
    pub insecure_http: bool,
    /// Which certificates to accept from the server, and which to present.
    pub tls: Tls,
    /// How requests authenticate, besides the headers.
    pub auth: Auth,
}

impl Remote {
    /// Returns a server at this URL, with the defaults for everything else.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            url,
            headers: Vec::new(),
            headers_helper: None,
            insecure_http: false,
            tls: Tls::default(),
            auth: Auth::default(),
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some services put the API key into the path.
        let origin = self.url.origin().ascii_serialization();
        let Self { url: _, headers, headers_helper, insecure_http, tls, auth } = self;
        f.debug_struct("Remote")
            .field("url", &format_args!("{origin}/…"))
            .field("headers", headers)
            .field("headers_helper", headers_helper)
            .field("insecure_http", insecure_http)
            .field("tls", tls)
            .field("auth", auth)
            .finish()
    }
}

words! {
    /// Whether clients may share one connection to a server.
    ///
    /// ```
    /// use mcp_host::config::{Sharing, Server, Stdio};
    ///
    /// let server = Server::new("files", Stdio::new("files-server"))?.sharing(Sharing::Session);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    pub enum Sharing {
        /// Clients share a connection as far as is safe for this server.
        #[default]
        Auto = "auto",
        /// Like `Auto`, but only among clients with the same capabilities: for servers whose tool lists and other lists
        /// depend on these capabilities.
        Profile = "profile",
        /// One connection per client.
        Session = "session",
        /// One connection for all clients.
        Host = "host",
    }
}

words! {
    /// When a server is started.
    ///
    /// ```
    /// use mcp_host::config::{Server, Start, Stdio};
    ///
    /// assert_eq!(Server::new("files", Stdio::new("files-server"))?.lazy().start, Start::Lazy);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    pub enum Start {
        /// When the host starts.
        #[default]
        Eager = "eager",
        /// When it is first needed.
        Lazy = "lazy",
    }
}

words! {
    /// Whether to save a server's tool list and its other lists for the next start of the host.
    ///
    /// ```
    /// use mcp_host::config::{Manifest, Server, Stdio};
    ///
    /// assert_eq!(Server::new("files", Stdio::new("files-server"))?.without_manifest().manifest, Manifest::Off);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    pub enum Manifest {
        /// Saves them in the state directory, so that a client's first list request need not wait for the server.
        #[default]
        On = "on",
        /// Does not save them.
        Off = "off",
    }
}

words! {
    /// Which era of the protocol to speak with a server.
    ///
    /// ```
    /// use mcp_host::config::{Era, Server, Stdio};
    ///
    /// let server = Server::new("files", Stdio::new("files-server"))?.era(Era::Modern);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    #[non_exhaustive]
    pub enum Era {
        /// The era that the server offers. If it offers both: over HTTP the era of each client, over stdio the legacy
        /// era.
        #[default]
        Auto = "auto",
        /// Self-contained requests for all clients, if the server offers them.
        Modern = "modern",
        /// Sessions, opened by `initialize`, for all clients.
        Legacy = "legacy",
    }
}

words! {
    /// Whether the names of a server's tools, prompts and resources are prefixed with its alias.
    ///
    /// ```
    /// use mcp_host::config::{Prefix, Server, Stdio};
    ///
    /// let server = Server::new("files", Stdio::new("files-server"))?.prefix(Prefix::Auto);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    pub enum Prefix {
        /// All names are prefixed.
        #[default]
        Always = "always",
        /// No name is prefixed; a name that another server already has is dropped.
        Never = "never",
        /// Only names that another server already has are prefixed.
        Auto = "auto",
        /// The server is a host itself: its names and URIs stay as they are, and what stands in front of them, the aliases
        /// of its own servers, belongs to it. A name that another server already has is dropped.
        Inner = "inner",
    }
}

impl Prefix {
    /// Reports whether a name of the server can carry its alias.
    pub(crate) fn may_prefix(self) -> bool {
        matches!(self, Self::Always | Self::Auto)
    }

    /// Reports whether a name of the server can stand alone.
    pub(crate) fn may_stay(self) -> bool {
        self != Self::Always
    }

    /// Returns how the URIs of the server are exposed, where the host says this of all servers.
    pub(crate) fn uris(self, of_host: UriMode) -> UriMode {
        if self.may_prefix() { of_host } else { UriMode::Passthrough }
    }
}

keys! {
    /// What happens when the connection to a server is lost.
    ///
    /// ```
    /// use mcp_host::config::{Restart, Server, Stdio};
    ///
    /// let restart = Restart { max_retries: 3, ..Restart::default() };
    /// let server = Server::new("files", Stdio::new("files-server"))?.restart(restart);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    #[derive(Copy)]
    pub struct Restart {
        /// How many attempts in a row may fail before the host gives up.
        max_retries: count -> usize = 10,
        /// The delay before the first attempt; it doubles after each failure.
        min_delay: positive_time -> Duration = Duration::from_millis(500),
        /// The longest delay.
        max_delay: positive_time -> Duration = Duration::from_secs(30),
    }
}

/// What a server gets when it asks for roots.
///
/// ```
/// use mcp_host::config::{Roots, Server, Stdio};
///
/// let server = Server::new("files", Stdio::new("files-server"))?.roots(Roots::Fixed(vec!["file:///srv".to_owned()]));
/// # Ok::<_, mcp_host::name::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Roots {
    /// The roots of the client that the server works for.
    #[default]
    Client,
    /// No roots.
    None,
    /// The roots with these URIs.
    Fixed(Vec<String>),
}
