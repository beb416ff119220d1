//! Checks D01 to D04: the files, the variables and commands that they name, and the runtimes that these commands need;
//! also as the installed service would see them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio as Pipe;
use std::time::{Duration, SystemTime};

use mcp_host::Unstartable;
use mcp_host::config::{Config, LoadRequest, NOT_APPROVED, Server, Stdio, Transport};
use tokio::process::Command;

use super::finding::{COMMANDS, FILES, Finding, RUNTIMES, STATE, TLS, VARIABLES};
use crate::commands::service;
use crate::report::Failure;
use crate::servers::state_directory;
use crate::text::quoted;

/// How long a runtime may take to print its version.
const PATIENCE: Duration = Duration::from_secs(5);
/// How far a file may be in the future: clocks of other machines differ a little.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
/// The oldest Node.js that today's servers run on.
const NODE: u32 = 18;

/// Returns the problems of a config that cannot be read.
pub(super) fn unread(failure: &Failure) -> Vec<Finding> {
    let help = "mcp-host check shows every mistake with its line".to_owned();
    if failure.findings().is_empty() {
        return vec![Finding::fail(FILES, failure.first(), failure.advice().map_or(help, str::to_owned))];
    }
    let problems = failure.findings().iter();
    problems.map(|problem| Finding::fail(FILES, problem.to_string(), problem.help.as_ref().unwrap_or(&help))).collect()
}

/// Checks the files: entries that wait for approval, and modification times that suggest a wrong clock.
pub(super) fn files(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for server in config.servers.iter().filter(|server| server.disabled.as_deref() == Some(NOT_APPROVED)) {
        let what = format!("`{}` of this project's config is not approved", server.name);
        found.push(Finding::warn(FILES, what, format!("mcp-host approve {}", quoted(&server.name))).of(&server.name));
    }
    let is_ahead = |file: &Path| {
        let written = file.metadata().and_then(|metadata| metadata.modified()).ok();
        written.is_some_and(|written| written > SystemTime::now() + AHEAD)
    };
    if let Some(file) = config.files.iter().find(|file| is_ahead(file)) {
        let what = format!(
            "{} was written in the future, so the clock is wrong, and certificates may seem invalid",
            file.display()
        );
        found.push(Finding::warn(TLS, what, "timedatectl shows the clock"));
    }
    found
}

/// Checks for entries that cannot be used, nearly always because a variable is not set.
pub(super) fn variables(config: &Config, request: &LoadRequest) -> Vec<Finding> {
    let mut found = Vec::new();
    for server in config.servers.iter().filter(|server| server.disabled.is_none()) {
        for problem in server.unusable.iter().flat_map(|unusable| unusable.problems()) {
            let has = |word: &str| problem.message.contains(word);
            let check = match (has("keyring"), has("variable") || has("not set")) {
                (true, _) => STATE,
                (false, true) => VARIABLES,
                (false, false) => FILES,
            };
            let help = problem.help.clone().unwrap_or_else(|| format!("mcp-host get {}", quoted(&server.name)));
            found.push(Finding::fail(check, problem.to_string(), help).of(&server.name));
        }
    }
    let lacks = service::installed().map(|service| service.variables(request, config)).unwrap_or_default();
    found.extend(lacks.into_iter().map(|lack| Finding::warn(VARIABLES, lack.what, lack.help)));
    found
}

/// Returns the processes to check, including those of entries with another problem, such as a missing variable.
fn processes(config: &Config) -> impl Iterator<Item = (&Server, &Stdio)> {
    let is_whole = |stdio: &Stdio| {
        let mut words = std::iter::once(&stdio.command).chain(&stdio.args);
        !stdio.command.is_empty() && !words.any(|word| word.contains("${"))
    };
    config.servers.iter().filter(|server| server.disabled.is_none()).filter_map(move |server| match &server.transport {
        // What the image of a container has is not looked at.
        Transport::Stdio(stdio) if stdio.is_contained() => None,
        Transport::Stdio(stdio) if server.unusable.is_none() || is_whole(stdio) => Some((server, stdio)),
        _ => None,
    })
}

/// Looks for the command of each server, in this environment and in the service's.
pub(super) fn commands(config: &Config) -> Vec<Finding> {
    let mut found = Vec::new();
    for (server, stdio) in processes(config) {
        if let Some(wrong) = Unstartable::of(stdio) {
            let what = format!("`{}` cannot start `{}`: {}", server.name, wrong.command, wrong.reason);
            found.push(Finding::fail(COMMANDS, what, wrong.help).of(&server.name));
        }
    }
    for server in config.servers.iter().filter(|server| server.disabled.is_none()) {
        let Some(sandbox) = server.sandbox(config.host.sandbox.as_ref()) else { continue };
        let lacks = sandbox.lacks(state_directory().is_some());
        if lacks.is_empty() {
            continue;
        }
        let what = format!("`{}` cannot have all of its sandbox: {}", server.name, lacks.join(", "));
        let finding = match sandbox.weak {
            _ if sandbox.container.is_some() => Finding::fail(COMMANDS, what, "it runs as soon as one is there"),
            true => Finding::warn(COMMANDS, what, "mcp-host status shows what it has"),
            false => Finding::fail(COMMANDS, what, "write \"weak\": true in its `sandbox` to take what there is"),
        };
        found.push(finding.of(&server.name));
    }
    // A command that is missing here is already reported.
    let mut fine = config.clone();
    fine.servers.retain(|server| !found.iter().any(|finding| finding.server.as_ref() == Some(&server.name)));
    let lacks = service::installed().map(|service| service.commands(&fine)).unwrap_or_default();
    found.extend(lacks.into_iter().map(|lack| Finding::warn(COMMANDS, lack.what, lack.help)));
    found
}

/// Asks each runtime for its version, once.
pub(super) async fn runtimes(config: &Config) -> Vec<Finding> {
    let mut needed: BTreeMap<&'static [&'static str], Vec<(String, String)>> = BTreeMap::new();
    for (server, stdio) in processes(config) {
        if Unstartable::of(stdio).is_some() {
            continue;
        }
        let name = Path::new(&stdio.command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some((_, asks)) = RUNTIMES_OF.iter().find(|(command, _)| *command == name) {
            needed.entry(*asks).or_default().push((server.name.clone(), stdio.command.clone()));
        }
    }
    let mut found = Vec::new();
    for (asks, servers) in needed {
        let Err((what, help)) = runs(asks).await else { continue };
        for (server, command) in servers {
            let what = format!("`{server}` needs {command}, and {what}");
            found.push(Finding::fail(RUNTIMES, what, help.clone()).of(&server));
        }
    }
    found
}

/// The commands that start servers, and the command that shows whether what they need is installed.
const RUNTIMES_OF: [(&str, &[&str]); 9] = [
    ("npx", &["node", "--version"]),
    ("node", &["node", "--version"]),
    ("npm", &["node", "--version"]),
    ("bunx", &["bun", "--version"]),
    ("uvx", &["uv", "--version"]),
    ("uv", &["uv", "--version"]),
    ("docker", &["docker", "info", "--format", "{{.ServerVersion}}"]),
    ("podman", &["podman", "--version"]),
    ("deno", &["deno", "--version"]),
];

async fn runs(asks: &[&str]) -> Result<(), (String, String)> {
    let [program, rest @ ..] = asks else { return Ok(()) };
    let (shown, help) = (asks.join(" "), format!("{} shows what is wrong", asks.join(" ")));
    let mut command = Command::new(program);
    command.args(rest).stdin(Pipe::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Err(_) => return Err((format!("`{shown}` does not answer"), help)),
        Ok(Err(error)) => return Err((format!("`{program}` cannot be started: {error}"), help)),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").trim().to_owned();
        return Err((format!("`{shown}` fails: {why}"), help));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let major = said.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if *program == "node" && major < NODE => {
            Err((format!("Node.js {major} is older than {NODE}, which servers need"), "node --version".to_owned()))
        }
        _ => Ok(()),
    }
}
