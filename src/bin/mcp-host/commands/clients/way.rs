//! How a client reaches mcp-host: the entry that `link` writes into its file.

use std::path::Path;

use mcp_host::config::clients::Client;
use mcp_host::config::edit::{Change, NewServer};
use mcp_host::config::{BearerClient, HostAuth, Join};

use super::own::Own;
use crate::commands::service;
use crate::commands::token::mint;
use crate::report::{Exit, Failure};

/// An entry for a client, and the settings that our own config needs for it.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) server: NewServer,
    /// The hash of a token that was created for the client.
    pub(super) token: Option<BearerClient>,
    /// Whether the client starts a process, which joins the one daemon of the config.
    pub(super) is_process: bool,
}

/// The placeholder for a token that is not created yet.
const TOKEN: &str = "Bearer TOKEN";

impl Way {
    /// Decides how a client reaches mcp-host. `url` is the user's choice; if it is empty, the address in the config is
    /// used. That address is also used without a choice if the installed service serves the config.
    pub(super) fn to(client: &Client, url: Option<&str>, own: &Own) -> Result<Self, Failure> {
        let url = url.or_else(|| service::serves(&own.file).then_some(""));
        let Some(url) = url.filter(|_| client.takes_urls()) else { return Self::process(client, own) };
        let url = match url {
            "" => address(own),
            url => {
                let is_url = url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
                if !is_url {
                    let error = format!("`{url}` is no http or https URL");
                    return Err(Failure::new(Exit::Usage, error).help("write it as --url=http://127.0.0.1:8808/mcp"));
                }
                url.to_owned()
            }
        };
        Ok(Self { server: NewServer::at(url), token: None, is_process: false })
    }

    fn process(client: &Client, own: &Own) -> Result<Self, Failure> {
        let unknown = || {
            let error = "the path of this program is not known, or is no Unicode";
            Failure::new(Exit::Failed, error).help("start it by its whole path, or link by --url")
        };
        let program = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
        let file = own.file.to_str().ok_or_else(unknown)?;
        let mut server = NewServer::process(program.ok_or_else(unknown)?, ["stdio", "--config", file]);
        if client.hides_home()
            && let Some(home) = own.request.home.as_ref().and_then(|home| home.to_str())
        {
            // Without HOME the process would not find the daemon.
            server.env.push(("HOME".to_owned(), home.to_owned()));
        }
        Ok(Self { server, token: None, is_process: true })
    }

    /// Reports whether mcp-host requires a token.
    pub(super) fn wants_token(&self, own: &Own) -> bool {
        !self.is_process && matches!(own.config.host.auth, HostAuth::Bearer(_))
    }

    /// Shows where the token will be.
    pub(super) fn with_placeholder(mut self) -> Self {
        self.server.headers.push(("Authorization".to_owned(), TOKEN.to_owned()));
        self
    }

    /// Creates a token for the client and puts it into the entry. Fails if the token would not be safe in the client's
    /// file.
    pub(super) fn with_token(mut self, client: &Client, file: &Path) -> Result<Self, Failure> {
        if let Some(why) = exposed(file) {
            let error = format!("its entry would hold a token, and {why}");
            return Err(Failure::new(Exit::Denied, error));
        }
        let (token, hash) = mint(client.id)?;
        self.server.headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        self.token = Some(hash);
        Ok(self)
    }

    /// Returns the changes of our own config that these entries need.
    pub(super) fn settings(ways: &[Self], own: &Own) -> Vec<Change> {
        let mut changes = Vec::new();
        if ways.iter().any(|way| way.is_process) && own.config.host.join != Some(Join::Start) {
            changes.push(Change::Setting { key: vec!["join".to_owned()], value: "start".to_owned() });
        }
        for hash in ways.iter().filter_map(|way| way.token.as_ref()) {
            let key = ["auth", "clients", &hash.name].map(str::to_owned).to_vec();
            changes.push(Change::Setting { key, value: hash.to_string() });
        }
        changes
    }
}

/// Returns the URL at which `serve` serves this config.
fn address(own: &Own) -> String {
    let (host, scheme) = (&own.config.host, if own.config.host.tls.is_some() { "https" } else { "http" });
    let listen = match host.listen.ip() {
        ip if ip.is_unspecified() => format!("127.0.0.1:{}", host.listen.port()),
        _ => host.listen.to_string(),
    };
    format!("{scheme}://{listen}/mcp")
}

/// Returns why a file must not hold a token; `None` if only its owner can read it and it is in no git work tree.
fn exposed(file: &Path) -> Option<String> {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let work_tree = file.ancestors().skip(1).find(|folder| folder.join(".git").exists());
    if let Some(folder) = work_tree {
        return Some(format!("{} is in the git work tree {}", file.display(), folder.display()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&file).map(|metadata| metadata.permissions().mode() & 0o077);
        if mode.is_ok_and(|mode| mode != 0) {
            return Some(format!("others may read {}: chmod 600 it first", file.display()));
        }
    }
    None
}
