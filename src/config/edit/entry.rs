//! The content of an entry in the format of the client whose file it is: how a new server is written, and which member
//! disables a server.

use crate::config::Package;
use crate::config::clients::{Address, Client};
use crate::config::import::Entry;
use crate::config::shape::Flavor;
use crate::config::syntax::{Node, Value, Writer, list};

/// A server to add.
///
/// ```
/// use mcp_host::config::edit::NewServer;
///
/// let mut server = NewServer::process("mcp-files", ["--all"]);
/// server.env.push(("LEVEL".to_owned(), "warn".to_owned()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewServer {
    /// The program and its arguments; empty for a URL.
    pub command: Vec<String>,
    /// The endpoint, if it is not a program.
    pub url: Option<String>,
    /// The transport, if the user named one.
    pub kind: Option<Kind>,
    /// The variables of its environment.
    pub env: Vec<(String, String)>,
    /// The headers of its requests.
    pub headers: Vec<(String, String)>,
    /// Its working directory.
    pub cwd: Option<String>,
    /// Whether it starts only when a request needs it.
    pub lazy: bool,
    /// Whether its process has the sandbox `default`; only for an entry of our own config.
    pub confined: bool,
    /// The package that the command starts.
    pub package: Option<Package>,
}

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A process.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP with SSE.
    Sse,
}

impl NewServer {
    /// Returns a server that is a process.
    pub fn process<T: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = T>) -> Self {
        let command = std::iter::once(command.into()).chain(args.into_iter().map(Into::into)).collect();
        Self { command, ..Self::default() }
    }

    /// Returns a server at a URL.
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Returns it as an entry of our own config.
    #[must_use]
    pub fn own_entry(&self, name: &str) -> Entry {
        Entry::new(self.entry(name, Flavor::Plain, None))
    }

    /// Returns it as an entry of a file with these rules, and of this client, if it is known.
    pub(super) fn entry(&self, name: &str, flavor: Flavor, client: Option<&Client>) -> Node {
        let mut entry = Writer::default();
        let address = client.and_then(|client| client.address).filter(|_| self.kind != Some(Kind::Sse));
        if flavor == Flavor::Continue {
            entry.text("name", name);
        }
        if flavor == Flavor::Goose {
            entry.flag("enabled", true);
            entry.text("name", name);
        }
        let key = match address {
            Some(Address::Under(key)) => Some(key),
            _ => None,
        };
        let word = match (address, key) {
            // The key of the URL implies the transport.
            (_, Some(_)) if self.url.is_some() => None,
            (Some(Address::Typed), _) if self.url.is_some() => {
                Self { kind: Some(Kind::Http), ..self.clone() }.word(flavor)
            }
            _ => self.word(flavor),
        };
        if let Some(word) = word {
            entry.text("type", word);
        }
        match &self.url {
            Some(url) => {
                entry.text(key.unwrap_or_else(|| url_key(flavor, self.kind)), url);
                match flavor {
                    Flavor::Codex => entry.pairs("http_headers", pairs(&self.headers)),
                    Flavor::Continue if !self.headers.is_empty() => {
                        let mut options = Writer::default();
                        options.pairs("headers", pairs(&self.headers));
                        entry.put("requestOptions", options.done());
                    }
                    _ => entry.pairs("headers", pairs(&self.headers)),
                }
            }
            None => self.process_keys(flavor, &mut entry),
        }
        if self.lazy {
            entry.text("start", "lazy");
        }
        if self.confined && self.url.is_none() && flavor == Flavor::Plain {
            entry.text("sandbox", "default");
        }
        if let Some(package) = self.package.as_ref().filter(|_| flavor == Flavor::Plain) {
            entry.put("package", package.node());
        }
        if flavor == Flavor::Goose && client.is_some() {
            entry.number("timeout", GOOSE_TIMEOUT);
        }
        if flavor == Flavor::Copilot {
            entry.put("tools", list(&["*".to_owned()]));
        }
        entry.done()
    }

    fn process_keys(&self, flavor: Flavor, entry: &mut Writer) {
        let (command, args) = match self.command.split_first() {
            Some((command, args)) => (command.as_str(), args),
            None => ("", &[][..]),
        };
        match flavor {
            Flavor::OpenCode => entry.put("command", list(&self.command)),
            Flavor::Goose => entry.text("cmd", command),
            _ => entry.text("command", command),
        }
        if flavor != Flavor::OpenCode && !args.is_empty() {
            entry.put("args", list(args));
        }
        let env = match flavor {
            Flavor::Goose => "envs",
            Flavor::OpenCode => "environment",
            _ => "env",
        };
        entry.pairs(env, pairs(&self.env));
        if let Some(cwd) = &self.cwd {
            entry.text("cwd", cwd);
        }
    }

    /// Returns the client's word for the transport; `None` if the key of the URL implies it.
    fn word(&self, flavor: Flavor) -> Option<&'static str> {
        if self.url.is_none() {
            return match flavor {
                Flavor::VsCode | Flavor::Goose | Flavor::Crush => Some("stdio"),
                Flavor::OpenCode | Flavor::Copilot => Some("local"),
                _ => self.kind.map(|_| "stdio"),
            };
        }
        let http = match flavor {
            Flavor::Cline | Flavor::CherryStudio => "streamableHttp",
            Flavor::Roo | Flavor::Continue => "streamable-http",
            Flavor::Goose => "streamable_http",
            _ => "http",
        };
        match (self.kind, flavor) {
            (Some(Kind::Sse), _) => Some("sse"),
            (_, Flavor::OpenCode) => Some("remote"),
            // These clients read a bare URL as Streamable HTTP.
            (_, Flavor::Codex | Flavor::Zed) => None,
            (Some(_), Flavor::Gemini) => None,
            (Some(_), _) => Some(http),
            // These clients refuse a bare URL, or read it as HTTP with SSE.
            (None, Flavor::Cline | Flavor::Roo | Flavor::VsCode | Flavor::Goose | Flavor::Crush | Flavor::Copilot) => {
                Some(http)
            }
            (None, _) => None,
        }
    }
}

/// The timeout that Goose writes into every entry, in seconds.
const GOOSE_TIMEOUT: usize = 300;

fn pairs(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

fn url_key(flavor: Flavor, kind: Option<Kind>) -> &'static str {
    match flavor {
        Flavor::Goose => "uri",
        Flavor::CherryStudio => "baseUrl",
        Flavor::Gemini if kind == Some(Kind::Http) => "httpUrl",
        _ => "url",
    }
}

/// Returns the member with which a client disables a server, and its value.
pub(super) fn off(flavor: Flavor) -> (&'static str, bool) {
    match flavor {
        Flavor::Codex | Flavor::Goose | Flavor::OpenCode | Flavor::Zed => ("enabled", false),
        Flavor::CherryStudio => ("isActive", false),
        _ => ("disabled", true),
    }
}

/// Returns the members of an entry that enable or disable servers: each key, and whether its value enables the server.
pub(super) fn switches(entry: &Node) -> Vec<(&'static str, bool)> {
    let read = |(key, on): (&'static str, bool)| match entry.get(key)?.value {
        Value::Flag(flag) => Some((key, flag == on)),
        _ => None,
    };
    [("enabled", true), ("isActive", true), ("disabled", false)].into_iter().filter_map(read).collect()
}
