//! Finds config entries that lead back to this host: our own program, which would serve the same config again, or our
//! own address.
//!
//! Entries of the first kind are disabled, and `check` warns about both. Entries that lead back through a shell or a
//! proxy are not found here, but by the library at run time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use mcp_host::config::{Config, ITSELF, LoadRequest, Server, Stdio, Transport};

use crate::args::{Cli, Command};

/// Disables the entries that would start this host again.
pub(crate) fn switch_off(config: &mut Config, request: &LoadRequest) {
    let Some(own) = program().and_then(|path| identity(&path)) else { return };
    let files: Vec<PathBuf> = config.files.iter().filter_map(|file| file.canonicalize().ok()).collect();
    for server in config.servers.iter_mut().filter(|server| server.disabled.is_none()) {
        if let Transport::Stdio(stdio) = &server.transport
            && would_serve(stdio, own, request).is_some_and(|theirs| theirs.iter().any(|file| files.contains(file)))
        {
            server.disabled = Some(ITSELF.to_owned());
            server.unusable = None;
        }
    }
}

/// Returns the entries that lead to the address that `serve` opens with this config.
pub(crate) fn at_our_address(config: &Config) -> Vec<&Server> {
    let of_server = |server: &&Server| leads_to(&server.transport, config.host.listen);
    config.servers.iter().filter(|server| server.disabled.is_none()).filter(of_server).collect()
}

/// Reports whether an entry leads to the address at which `serve` listens.
pub(crate) fn leads_to(transport: &Transport, listen: SocketAddr) -> bool {
    let (Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote)) = transport else { return false };
    let url = &remote.url;
    let host = match url.host() {
        Some(url::Host::Ipv4(address)) => Some(address.into()),
        Some(url::Host::Ipv6(address)) => Some(address.into()),
        Some(url::Host::Domain("localhost")) => Some(std::net::IpAddr::from([127, 0, 0, 1])),
        _ => None,
    };
    let reaches = |host: std::net::IpAddr| {
        host == listen.ip() || (host.is_loopback() && (listen.ip().is_loopback() || listen.ip().is_unspecified()))
    };
    url.port_or_known_default() == Some(listen.port())
        && matches!(url.path().trim_end_matches('/'), "/mcp" | "/sse")
        && host.is_some_and(reaches)
}

/// Reports whether a command is this program, or one of its name, as a stdio server.
pub(crate) fn is_as_stdio(stdio: &Stdio) -> bool {
    let name = Path::new(&stdio.command).file_stem().is_some_and(|name| name == "mcp-host");
    let own = || program().and_then(|path| identity(&path));
    let is_own = || found(stdio).and_then(|path| identity(&path)).is_some_and(|theirs| Some(theirs) == own());
    stdio.args.iter().any(|arg| arg == "stdio") && (name || is_own())
}

/// Returns the real paths of the config files that a command would serve, if the command is this program.
fn would_serve(stdio: &Stdio, own: Identity, request: &LoadRequest) -> Option<Vec<PathBuf>> {
    if identity(&found(stdio)?)? != own {
        return None;
    }
    let words = std::iter::once("mcp-host").chain(stdio.args.iter().map(String::as_str));
    let cli = Cli::try_parse_from(words).ok()?;
    let common = cli.common();
    if common.project.as_ref().is_some_and(|project| Some(project) != request.project_directory.as_ref()) {
        // The child would serve the same file, but other servers in it.
        return None;
    }
    let named = common.config;
    match cli.command? {
        Command::Stdio(_) => {}
        Command::Serve(args) if !args.demo => {}
        _ => return None,
    }
    let folder = stdio.cwd.clone().or_else(|| std::env::current_dir().ok())?;
    let files = if named.is_empty() {
        // The child searches for a config with its own environment, which contains little of ours.
        let mut theirs = request.clone();
        theirs.files = Vec::new();
        theirs.vars = stdio.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
        theirs.working_directory = Some(folder.clone());
        let given = |name: &str| stdio.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose());
        if let Some(home) = given("HOME").map(PathBuf::from) {
            theirs.config_home = Some(home.join(".config"));
            theirs.home = Some(home);
        }
        if let Some(config) = given("XDG_CONFIG_HOME") {
            theirs.config_home = Some(config.into());
        }
        theirs.found().ok()?
    } else {
        named
    };
    Some(files.iter().filter_map(|file| folder.join(file).canonicalize().ok()).collect())
}

/// Finds the program of a command as a shell would.
fn found(stdio: &Stdio) -> Option<PathBuf> {
    let command = Path::new(&stdio.command);
    if command.components().count() > 1 {
        return Some(stdio.cwd.as_deref().unwrap_or(Path::new("")).join(command));
    }
    let own = stdio.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.expose().into());
    let path: std::ffi::OsString = own.or_else(|| std::env::var_os("PATH"))?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file())
}

/// Returns the file that this process runs, even if another file has its name by now.
fn program() -> Option<PathBuf> {
    let own = PathBuf::from("/proc/self/exe");
    if own.exists() { Some(own) } else { std::env::current_exe().ok() }
}

/// Identifies a file, whatever its name.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    path.canonicalize().ok()?.hash(&mut hasher);
    Some((0, hasher.finish()))
}

#[cfg(test)]
mod tests {
    use mcp_host::config::{Syntax, Vars, parse_str};

    use super::*;

    #[test]
    fn our_own_address_is_known_in_each_spelling() {
        let entries = [
            ("http://127.0.0.1:8808/mcp", true),
            ("http://localhost:8808/mcp/", true),
            ("http://[::1]:8808/sse", true),
            ("http://127.0.0.1:8808/other", false),
            ("http://127.0.0.1:8809/mcp", false),
            ("https://example.com:8808/mcp", false),
        ];
        for (url, ours) in entries {
            let text = format!(r#"{{"mcpServers":{{"x":{{"url":"{url}"}}}}}}"#);
            let config = parse_str(&text, Syntax::Json, "mcp.json", &Vars::default()).unwrap();
            assert_eq!(at_our_address(&config).len(), usize::from(ours), "{url}");
        }
    }
}
