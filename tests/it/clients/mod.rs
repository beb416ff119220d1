//! The config files of other clients, with everything that their documentation allows: `tests/fixtures/clients`.
//! Nothing is started here; `tests/interop` starts real servers from the same files.

mod assistants;
mod editors;
mod terminals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_host::config::{Auth, Config, LoadRequest, Server, Start, Transport, load};
use mcp_host::registry::ServerNaming;
use serde::Deserialize;

use crate::config::describe;

/// The content of `table.json`: the files, and the expected outcome of each.
#[derive(Deserialize)]
struct Table {
    /// The variables that the files use.
    vars: BTreeMap<String, String>,
    files: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    client: String,
    file: String,
    /// The user's current project, for the file that has servers per project.
    project: Option<PathBuf>,
    /// Idle timeouts of calls in seconds, by server.
    #[serde(default)]
    call: BTreeMap<String, f64>,
    /// Start timeouts in seconds, by server.
    #[serde(default)]
    start: BTreeMap<String, f64>,
    /// Servers that the file disables.
    #[serde(default)]
    off: Vec<String>,
    /// Servers that start on demand.
    #[serde(default)]
    lazy: Vec<String>,
    /// Servers that this host cannot connect to.
    #[serde(default)]
    failed: Vec<String>,
    /// The tools that clients see of a server.
    #[serde(default)]
    tools: BTreeMap<String, Vec<String>>,
}

/// All tools of the time server.
const TOOLS: [&str; 2] = ["get_current_time", "convert_time"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/clients").canonicalize().expect("the folder is there")
}

fn table() -> Table {
    let text = std::fs::read_to_string(fixtures().join("table.json")).expect("the table is there");
    serde_json::from_str(&text).expect("the table can be read")
}

/// Loads a file from where its client's user has it: in the home or in a project.
fn read(file: &str) -> Config {
    let fixtures = fixtures();
    let client = file.split('/').next().expect("a path has a first part");
    let table = table();
    let row = table.files.iter().find(|row| row.file == file).expect("the table has the file");
    let request = LoadRequest {
        files: vec![fixtures.join(file)],
        vars: table.vars.into_iter().collect(),
        project_directory: row.project.clone(),
        home: Some(fixtures.join(client).join("home")),
        ..LoadRequest::default()
    };
    load(&request).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the outcome of a file: each server with its settings that differ from the defaults, and the notes.
fn outcome(file: &str) -> String {
    let config = read(file);
    let servers = config.servers.iter().map(|server| format!("{}{}", describe(server), login(server)));
    // Git keeps no modes, so other users can often read a checkout.
    let notes = config.notes.iter().filter(|note| !note.message.starts_with("other users"));
    let text: String = servers.chain(notes.map(|note| format!("note {note}\n"))).collect();
    let path = fixtures().join(file);
    let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
    let client = fixtures().join(file.split('/').next().unwrap_or_default()).display().to_string();
    let text = text.replace(&path.display().to_string(), &name);
    // Paths below the checkout are shown relative to it.
    let relative = format!("tests/fixtures/clients/{}", file.split('/').next().unwrap_or_default());
    let shorten = |text: String, from: &str| {
        text.replace(&format!("{from}/project"), "<project>").replace(&format!("{from}/home"), "~")
    };
    shorten(shorten(text, &client), &relative)
}

/// Returns what is known for a login in advance.
fn login(server: &Server) -> String {
    let (Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote)) = &server.transport else {
        return String::new();
    };
    match &remote.auth {
        Auth::Headers => "  no login\n".to_owned(),
        Auth::OAuth(oauth) if oauth.client_id.is_none() && oauth.scopes.is_empty() => String::new(),
        Auth::OAuth(oauth) => {
            let id = oauth.client_id.as_deref().unwrap_or("anyone");
            let secret = if oauth.client_secret.is_some() { " with a secret" } else { "" };
            format!("  login as {id}{secret}, scopes {:?}\n", oauth.scopes)
        }
        other => format!("  {other:?}\n"),
    }
}

/// Reports whether clients see a tool.
fn is_seen(server: &Server, tool: &str) -> bool {
    let (include, exclude) = (server.include_tools.clone(), server.exclude_tools.clone());
    ServerNaming { include, exclude, ..ServerNaming::default() }.admits(tool)
}

/// Every file loads, and everything in it is understood: each key, each variable, each unit.
#[test]
fn every_documented_key_is_understood() {
    let table = table();
    assert!(table.files.len() >= 25);
    let mut wrong = Vec::new();
    for row in &table.files {
        let config = read(&row.file);
        let server = |name: &String| {
            let found = config.servers.iter().find(|server| server.is_called(name));
            found.unwrap_or_else(|| panic!("{}: no server {name}", row.client))
        };
        let mut say = |what: String| wrong.push(format!("{}: {what}", row.client));
        for note in &config.notes {
            if ["unknown key", "not a known variable"].iter().any(|words| note.message.contains(words)) {
                say(note.to_string());
            }
        }
        for server in &config.servers {
            let (off, failed) = (row.off.contains(&server.name), row.failed.contains(&server.name));
            if (server.disabled.is_some(), server.unusable.is_some()) != (off, failed) {
                say(format!("{}: disabled {:?}, unusable {:?}", server.name, server.disabled, server.unusable));
            }
            if (server.start == Start::Lazy) != row.lazy.contains(&server.name) {
                say(format!("{}: starts {:?}", server.name, server.start));
            }
        }
        for (name, seconds) in &row.call {
            let (found, wanted) = (server(name).call_timeout, Duration::from_secs_f64(*seconds));
            if found != wanted {
                say(format!("{name}: a call may take {found:?}"));
            }
        }
        for (name, seconds) in &row.start {
            let (found, wanted) = (server(name).start_timeout, Duration::from_secs_f64(*seconds));
            if found != wanted {
                say(format!("{name}: a start may take {found:?}"));
            }
        }
        for (name, tools) in &row.tools {
            let seen: Vec<_> = TOOLS.into_iter().filter(|tool| is_seen(server(name), tool)).collect();
            if seen != *tools {
                say(format!("{name}: shows {seen:?}"));
            }
        }
        for name in row.off.iter().chain(&row.lazy).chain(&row.failed) {
            server(name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every fixture is in the table, and every name in the table is a fixture.
#[test]
fn the_table_is_complete() {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() { collect(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    collect(&fixtures(), &mut found);
    // Values that the files refer to are not configs, and neither is the table.
    found.retain(|path| {
        !path.ends_with("table.json") && !path.extension().is_some_and(|end| end == "env" || end == "key")
    });
    let mut listed: Vec<_> = table().files.iter().map(|row| fixtures().join(&row.file)).collect();
    found.sort();
    listed.sort();
    assert_eq!(found, listed);
}
