//! Finds config files of MCP clients on this machine, for users who have none of ours yet.
//!
//! Reads only the user's own files, never a project's, and names only those that contain a server.

use std::fs;
use std::path::{Path, PathBuf};

use mcp_host::config::clients::{self, Client, Folders};
use mcp_host::config::{Syntax, Vars, parse_str};

use crate::text::{self, quoted};

/// A client's config file that contains servers.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    client: &'static str,
    path: PathBuf,
    /// The number of servers; `None` if the file has a problem.
    servers: Option<usize>,
}

/// Returns where all known clients keep their config files.
fn places(folders: &Folders) -> Vec<(&'static str, PathBuf)> {
    let of = |client: &'static Client| client.files(folders).into_iter().map(|file| (client.name, file));
    clients::ALL.iter().flat_map(of).collect()
}

/// The largest file that is read, in bytes.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Returns the client that owns a config file.
pub(crate) fn client(file: &Path) -> Option<&'static str> {
    let file = std::path::absolute(file).ok()?;
    let folders = Folders::of(&Vars::from_process());
    places(&folders).into_iter().find(|(_, place)| *place == file).map(|(client, _)| client)
}

/// Returns commands, ready to run, for the files that exist.
pub(crate) fn commands() -> Vec<String> {
    let folders = Folders::of(&Vars::from_process());
    let found = find(&places(&folders));
    let mut lines: Vec<String> = found.iter().map(|found| command(found, folders.home())).collect();
    if !lines.is_empty() {
        lines.push(INTO_CLIENTS.to_owned());
    }
    lines
}

/// If the host served the file that names it, it would start itself, so this only suggests `migrate`.
const INTO_CLIENTS: &str = "mcp-host migrate --all takes the servers over and makes mcp-host the one server of each client; mcp-host undo takes that back";

fn find(places: &[(&'static str, PathBuf)]) -> Vec<Found> {
    let found = places.iter().filter_map(|(client, path)| {
        let servers = servers(path)?;
        (servers != Some(0)).then(|| Found { client, path: path.clone(), servers })
    });
    found.collect()
}

/// Counts the servers in a file: `Some(None)` if it has a problem, `None` if it does not exist.
fn servers(path: &Path) -> Option<Option<usize>> {
    let kind = fs::metadata(path).ok()?;
    if !kind.is_file() || kind.len() > LARGEST {
        return None;
    }
    let text = fs::read_to_string(path).ok()?;
    match parse_str(&text, Syntax::of(path), path, &Vars::default()) {
        Ok(config) => Some(Some(config.servers.len())),
        Err(error) => error.problems().iter().any(|problem| problem.server.is_some()).then_some(None),
    }
}

fn command(found: &Found, home: Option<&Path>) -> String {
    let Found { client, path, servers } = found;
    let path = match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if cfg!(unix) => format!("~/{}", quoted(&rest.to_string_lossy())),
        _ => quoted(&path.to_string_lossy()),
    };
    match servers {
        Some(count) => {
            format!("{client} has {}: mcp-host serve --config {path}", text::count(*count, "server"))
        }
        None => format!("{client} has servers, but its file has mistakes; mcp-host check --config {path} shows them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_servers_are_named() {
        let home = tempfile::tempdir().unwrap();
        let named = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let folders = Folders::of(&Vars::from_iter([("HOME", named("")), ("XDG_CONFIG_HOME", named("App Data"))]));
        let write = |path: &str, text: &str| {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            ".cursor/mcp.json",
            r#"{ "mcpServers": { "a": { "command": "a" }, "b": { "url": "https://b.example/mcp" } } }"#,
        );
        write(".codex/config.toml", "[mcp_servers.a]\ncommand = \"a\"\nenv = { KEY = \"${NOT_SET}\" }\n");
        write(".gemini/settings.json", r#"{ "theme": "dark" }"#);
        write(".kiro/settings/mcp.json", r#"{ "mcpServers": {} }"#);
        write(".lmstudio/mcp.json", r#"{ "mcpServers": "#);
        write(".junie/mcp/mcp.json/no-file", "");
        write("App Data/Claude/claude_desktop_config.json", r#"{ "mcpServers": { "a": { "command": "a" } } }"#);
        let found = find(&places(&folders));
        let commands: Vec<String> = found.iter().map(|found| command(found, Some(home.path()))).collect();
        assert_eq!(
            commands,
            [
                "Claude Desktop has 1 server: mcp-host serve --config ~/'App Data/Claude/claude_desktop_config.json'",
                "Codex has 1 server: mcp-host serve --config ~/.codex/config.toml",
                "Cursor has 2 servers: mcp-host serve --config ~/.cursor/mcp.json",
            ]
        );
    }
}
