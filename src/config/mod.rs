//! What the user wants: the servers and the host's own settings, read from the config files of many MCP clients.
//!
//! In: files, and a snapshot of the environment. Out: one checked [`Config`], or every problem of every file at once.
//! The way of a file: `syntax` makes a tree with places, `shape` finds the servers in it and tells whose rules
//! they follow, `expand` puts variables in, `server`, `transport`, `settings` and `host` judge field by field. `Server` below is the
//! table of the keys that every entry may have.
//!
//! **Invariant:** nothing here starts, connects or writes anything, and no value of a variable reaches a message.
//! Start with [`load()`].

mod auth;
mod builders;
mod claude;
mod contents;
mod credentials;
mod dialect;
mod expand;
mod fields;
mod habits;
mod helper;
mod hidden;
mod host;
mod inherit;
mod inputs;
mod keyring;
mod keys;
mod load;
mod place;
mod project;
mod published;
mod reach;
mod report;
mod secret;
mod server;
mod settings;
mod shape;
mod sign_in;
mod surroundings;
mod syntax;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod units;
mod unusable;
mod vars;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

pub use self::contents::Contents;
pub(crate) use self::contents::Watcher;
pub use self::helper::Helper;
pub(crate) use self::helper::is_own_header;
pub use self::host::{
    Audit, BearerClient, HostAuth, HostOAuth, HostSettings, HostTls, Join, Limits, SecretKey, Secrets, StoreKind,
};
pub(crate) use self::inherit::passes as inherits;
#[cfg(feature = "keyring")]
pub(crate) use self::keyring::SERVICE as KEYRING_SERVICE;
pub use self::keyring::{Keyring, Unread};
pub(crate) use self::keys::Words;
use self::keys::{keys, words};
pub use self::load::{LoadRequest, load, parse_str};
pub use self::project::{Approved, NOT_APPROVED, Project};
pub use self::report::{Error, Excerpt, Note, Problem};
pub use self::secret::Secret;
pub use self::sign_in::{Auth, Enterprise, Grant, OAuth, Source as SecretSource};
pub use self::surroundings::Surroundings;
pub use self::syntax::Syntax;
pub use self::tls::{Fingerprint, Tls};
pub use self::units::time;
pub use self::unusable::Unusable;
pub use self::vars::Vars;
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
    /// The servers, in the order of the files.
    pub servers: Vec<Server>,
    /// The settings of the host itself.
    pub host: HostSettings,
    /// What is worth telling the user once.
    pub notes: Vec<Note>,
    /// The config files.
    pub files: Vec<PathBuf>,
    /// Everything that was read for it, with what stood there: the files, and those that they name.
    pub contents: Contents,
    /// Whether it was found in the working directory, and so is a project's word and not the user's.
    pub project: bool,
    /// What it depends on beside its files.
    pub surroundings: Surroundings,
}

/// Why a server that turns out to be this host is switched off, and what mends it.
pub const ITSELF: &str = "this is this host itself; take it out of the config";

impl Config {
    /// The config files, each with the SHA-256 of what it held, where it could be read.
    pub(crate) fn read_files(&self) -> impl Iterator<Item = (&Path, Option<[u8; 32]>)> {
        self.files.iter().map(|file| {
            let content = self.contents.hashes().find(|(path, _)| path == file).and_then(|(_, hash)| hash);
            (file.as_path(), content)
        })
    }
}

keys! {
    /// One server.
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
        /// The name in the config.
        name: String = name,
        /// The name everywhere else.
        alias: ServerName = alias,
        /// Where the entry stands.
        source: Source = Source::default(),
        /// How the server is reached.
        transport: Transport = transport,
        /// What came out of variables, files and inputs and is secret by its name or place; wherever the entry has it.
        secrets: Vec<Secret> = Vec::new(),
        /// Why it cannot be started as configured: a variable that is not set, a file that is not there, a word of another
        /// client that means nothing here. Such a server is `failed` from the beginning; the others are not concerned.
        unusable: Option<Unusable> = None,
        /// What a project's config says of it, and whether the user has approved that.
        project: Option<Project> = None,
        /// Whether it is the user's own daemon, which stands for the servers of a config: its word about a failure is
        /// believed. No config file can set this.
        daemon: bool = false,
    }
    keys {
        /// Whether clients may share one connection to it.
        sharing: word -> Sharing = Sharing::Auto,
        /// Whether its names get the alias in front.
        prefix: word -> Prefix = Prefix::Always,
        /// When it is started.
        start: word -> Start = Start::Eager,
        /// Which era of the protocol is spoken with it.
        era: word -> Era = Era::Auto,
        /// Whether what it lists is kept for the next start.
        manifest: word -> Manifest = Manifest::On,
        /// How long a connection to it may be unused before it is closed; the next call opens another. 0: for ever.
        idle_stop: time -> Duration = Duration::ZERO,
        /// Whether the host is not ready without it.
        required: flag -> bool = false,
        /// Whether the server's own word is taken for which of its tools may be sent again.
        trust_annotations: flag -> bool = false,
        /// How many calls may run at once; above it they wait, first come first served. 0: any number.
        max_concurrent: count -> usize = 0,
        /// How long a call may wait for its turn.
        queue_timeout: time -> Duration = Duration::from_secs(30),
        /// Tools that may be sent again when a connection was lost.
        repeatable: list -> Vec<String> = Vec::new(),
        /// What the user wrote about it.
        description: note -> Option<String> = None,
        /// Tools that get another name: theirs to ours, without the prefix.
        rename: rename -> BTreeMap<String, String> = BTreeMap::new(),
        /// What it is told when it asks for roots.
        roots: roots -> Roots = Roots::Client,
        /// What happens when it is lost.
        restart: nested -> Restart = Restart::default(),
        /// Globs over tool names; a tool that matches none is withheld. An empty list withholds all.
        include_tools | "enabled_tools" | "tools": list -> Vec<String> = vec!["*".to_owned()],
        /// Globs over tool names; a tool that matches one is withheld, whatever includes it.
        exclude_tools | "disabled_tools" | "disabledTools": list -> Vec<String> = Vec::new(),
        /// How long a start may take, up to the end of the handshake.
        start_timeout: positive_time -> Duration = Duration::from_secs(30),
        /// How long a call may be silent; progress starts it anew.
        call_timeout: positive_time -> Duration = Duration::from_secs(60),
        /// How long a call may take in all.
        max_call_time: positive_time -> Duration = Duration::from_secs(3600),
        /// Why it is not to be started, when the config says so.
        disabled: off -> Option<String> = None,
    }
}

impl Server {
    /// A server with the defaults for everything but its name and how it is reached.
    ///
    /// # Errors
    ///
    /// Fails when no alias can be made of `name`.
    pub fn new(name: &str, transport: impl Into<Transport>) -> Result<Self, name::Error> {
        Ok(Self::with_defaults(name.to_owned(), ServerName::from_config(name)?, transport.into()))
    }

    /// Whether that is its name in the config, or its alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias.as_str() == name
    }

    /// Whether the other entry means the same server run in the same way; the place in the file does not count.
    pub fn same_as(&self, other: &Self) -> bool {
        let Self { source, project, .. } = other;
        Self { source: source.clone(), project: project.clone(), ..self.clone() } == *other
    }
}

/// A place in a config file; empty for a server that was not read from one.
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
    /// The line, counted from one, where it is known.
    pub line: Option<usize>,
}

/// How a server is reached.
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
    /// Streamable HTTP first, HTTP with SSE when the server does not know it.
    Auto(Remote),
}

/// A process to start. `Debug` shows neither arguments nor values.
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
    /// Its arguments, one each; no shell reads them.
    pub args: Vec<String>,
    /// Variables that it gets.
    pub env: Vec<(String, Secret)>,
    /// Variables that it gets as we have them, if we have them: names and globs.
    pub forward_env: Vec<String>,
    /// Where it runs; our own directory otherwise.
    pub cwd: Option<PathBuf>,
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys come as arguments too, and a server that is logged must not tell them.
        let args = format_args!("[{} arguments]", self.args.len());
        let Self { command, args: _, env, forward_env, cwd } = self;
        f.debug_struct("Stdio")
            .field("command", command)
            .field("args", &args)
            .field("env", env)
            .field("forward_env", forward_env)
            .field("cwd", cwd)
            .finish()
    }
}

/// A server behind a URL. `Debug` shows no more of the URL than its origin.
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
    /// Headers of every request.
    pub headers: Vec<(String, Secret)>,
    /// A program that gives more of them, or others in their place, for each connection.
    pub headers_helper: Option<Helper>,
    /// Whether plain HTTP may leave this machine.
    pub insecure_http: bool,
    /// Whom to believe behind the URL, and as whom to come.
    pub tls: Tls,
    /// How requests prove whose they are, beside the headers.
    pub auth: Auth,
}

impl Remote {
    /// A server at this URL, with nothing else said of it.
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
        // Some services put the key into the path.
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
        /// As far as it is safe for this server.
        #[default]
        Auto = "auto",
        /// The same, but only among clients that can do the same: for servers that list by it.
        Profile = "profile",
        /// One for each client.
        Session = "session",
        /// One for all.
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
        /// With the host.
        #[default]
        Eager = "eager",
        /// When somebody needs it.
        Lazy = "lazy",
    }
}

words! {
    /// Whether what a server lists is kept for the next start.
    ///
    /// ```
    /// use mcp_host::config::{Manifest, Server, Stdio};
    ///
    /// assert_eq!(Server::new("files", Stdio::new("files-server"))?.without_manifest().manifest, Manifest::Off);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    pub enum Manifest {
        /// In the state directory: a first list need not wait for the server.
        #[default]
        On = "on",
        /// Nowhere.
        Off = "off",
    }
}

words! {
    /// Which era of the protocol is spoken with a server.
    ///
    /// ```
    /// use mcp_host::config::{Era, Server, Stdio};
    ///
    /// let server = Server::new("files", Stdio::new("files-server"))?.era(Era::Modern);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    #[non_exhaustive]
    pub enum Era {
        /// What the server offers. If it offers both: over HTTP the era of each client, over stdio the older one.
        #[default]
        Auto = "auto",
        /// Requests that speak for themselves, if the server offers them, for all clients.
        Modern = "modern",
        /// Sessions, opened by `initialize`, for all clients.
        Legacy = "legacy",
    }
}

words! {
    /// Whether the names of a server get its alias in front.
    ///
    /// ```
    /// use mcp_host::config::{Prefix, Server, Stdio};
    ///
    /// let server = Server::new("files", Stdio::new("files-server"))?.prefix(Prefix::Auto);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    pub enum Prefix {
        /// All of them.
        #[default]
        Always = "always",
        /// None; what another server has already is dropped.
        Never = "never",
        /// Those that another server has already.
        Auto = "auto",
    }
}

keys! {
    /// What happens when a server is lost.
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
        /// How many attempts in a row may fail before it is given up.
        max_retries: count -> usize = 10,
        /// The wait before the first attempt; it doubles from then on.
        min_delay: positive_time -> Duration = Duration::from_millis(500),
        /// The longest wait.
        max_delay: positive_time -> Duration = Duration::from_secs(30),
    }
}

/// What a server is told when it asks for roots.
///
/// ```
/// use mcp_host::config::{Roots, Server, Stdio};
///
/// let server = Server::new("files", Stdio::new("files-server"))?.roots(Roots::Fixed(vec!["file:///srv".to_owned()]));
/// # Ok::<_, mcp_host::name::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Roots {
    /// Those of the client that it works for.
    #[default]
    Client,
    /// There are none.
    None,
    /// These URIs.
    Fixed(Vec<String>),
}
