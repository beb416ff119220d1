//! Finds servers that their sandbox is likely to break, judging by their entries, and names the key that helps. These
//! are notes of `check`; no server is started.

use std::path::Path;
use std::process::{Command, Stdio as Stream};

use mcp_host::config::{Config, Sandbox, SandboxNetwork, Server, Stdio, Transport};

use crate::text;

/// The first Node version that reads `HTTPS_PROXY` if `NODE_USE_ENV_PROXY` is set.
const NODE: u32 = 24;
/// Programs that run another program, which is named by their first argument.
const RUNNERS: [&str; 11] = ["bun", "bunx", "deno", "node", "npx", "pipx", "pnpm", "python", "python3", "uv", "uvx"];
const NODES: [&str; 3] = ["node", "npx", "pnpm"];
const BROWSERS: [&str; 7] = ["browser", "chrome", "chromium", "firefox", "playwright", "puppeteer", "selenium"];
const BY_SOCKET: [&str; 3] = ["docker", "keyring", "podman"];
/// Command-line tools of clouds, and the folders with their logins.
const CLOUDS: [(&str, &str); 6] = [
    ("aws", "~/.aws"),
    ("azure", "~/.azure"),
    ("awslabs", "~/.aws"),
    ("gcloud", "~/.config/gcloud"),
    ("kubectl", "~/.kube"),
    ("kubernetes", "~/.kube"),
];

/// Returns a note for each server that its sandbox is likely to break. May run `node --version`.
pub(super) fn notes(config: &Config) -> Vec<String> {
    let note = |server: &Server| {
        let sandbox = server.sandbox(config.host.sandbox.as_ref()).filter(Sandbox::is_on)?;
        // What the image has is not known here.
        let sandbox = Some(sandbox).filter(|sandbox| sandbox.container.is_none())?;
        let Transport::Stdio(stdio) = &server.transport else { return None };
        let why = why(stdio, &sandbox, node_version).filter(|_| server.disabled.is_none())?;
        Some(format!("note: server `{}`: its sandbox may break it: {why}", text::line(&server.name)))
    };
    config.servers.iter().filter_map(note).collect()
}

/// Returns what a server needs but its sandbox does not provide; `version` returns the version of Node.
fn why(stdio: &Stdio, sandbox: &Sandbox, version: impl Fn(&Stdio) -> Option<u32>) -> Option<String> {
    let program = Path::new(&stdio.command).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let words = words(program, stdio);
    let has = |word: &str| words.iter().any(|own| own == word);
    let args = || stdio.args.iter().chain([&stdio.command]);
    if BROWSERS.iter().any(|word| has(word)) && !args().any(|word| word == "--no-sandbox") {
        let help = "browsers make a sandbox of their own, and none can be made in this one; write \"sandbox\": \"off\", or give the browser its option --no-sandbox";
        return Some(help.to_owned());
    }
    let is_socket = |word: &String| word.ends_with(".sock") || word.contains("/run/") && !word.contains("://");
    if !sandbox.unix && (BY_SOCKET.iter().any(|word| has(word)) || args().any(is_socket)) {
        return Some("it reaches others by a Unix socket; write \"unix\": true into its `sandbox`".to_owned());
    }
    let lists = |path: &str| sandbox.read.iter().chain(&sandbox.write).any(|own| Path::new(path).starts_with(own));
    if let Some((_, folder)) = CLOUDS.iter().find(|(word, folder)| has(word) && !lists(folder)) {
        return Some(format!("its logins are in {folder}; write \"read\": [\"{folder}\"] into its `sandbox`"));
    }
    if args().any(|word| word.starts_with("git@") || word.starts_with("ssh://")) && !lists("~/.ssh") {
        let help =
            "git over SSH needs your keys; write \"read\": [\"~/.ssh\"] into its `sandbox`, or use HTTPS with a token";
        return Some(help.to_owned());
    }
    let version = || version(stdio).filter(|version| *version < NODE);
    if matches!(sandbox.network, SandboxNetwork::Hosts(_)) && NODES.contains(&program) {
        let version = version()?;
        return Some(format!(
            "Node {version} does not read HTTPS_PROXY, so it reaches no host of its list unless its program does; use Node {NODE} or newer"
        ));
    }
    None
}

/// Returns the words in the name of the started program, and of the program that a runner runs.
fn words(program: &str, stdio: &Stdio) -> Vec<String> {
    let mut named = vec![program];
    if RUNNERS.contains(&program) {
        named.extend(stdio.args.iter().map(String::as_str).find(|word| !word.starts_with('-')));
    }
    let words = named.iter().flat_map(|name| name.split(|letter: char| !letter.is_ascii_alphanumeric()));
    words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

/// Asks Node for its version, with the server's PATH.
fn node_version(stdio: &Stdio) -> Option<u32> {
    let mut command = Command::new("node");
    command.arg("--version").stdin(Stream::null()).stderr(Stream::null());
    if let Some((_, path)) = stdio.env.iter().rev().find(|(name, _)| name == "PATH") {
        command.env("PATH", path.expose());
    }
    let said = command.output().ok().filter(|output| output.status.success())?.stdout;
    let said = String::from_utf8(said).ok()?;
    said.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_breaks_is_told_with_the_key_that_helps() {
        let of = |line: &str, sandbox: &Sandbox, version: u32| {
            let mut words = line.split(' ');
            let stdio = Stdio::new(words.next().unwrap_or_default()).args(words);
            why(&stdio, sandbox, |_| Some(version)).unwrap_or_default()
        };
        let on = Sandbox::on();
        let hosts = Sandbox::strict().hosts(["a.example".parse().expect("a host")]);
        for (line, sandbox, version, expected) in [
            ("npx -y @playwright/mcp@latest", &on, 20, "\"sandbox\": \"off\""),
            ("npx -y chrome-devtools-mcp", &on, 20, "--no-sandbox"),
            ("npx -y @playwright/mcp --no-sandbox", &on, 20, ""),
            ("npx -y server-files /srv/browser", &on, 20, ""),
            ("docker run -i x", &on, 20, "\"unix\": true"),
            ("server --db /var/run/postgresql/a.sock", &on, 20, "\"unix\": true"),
            ("uvx awslabs.iam-mcp-server", &on, 20, "\"read\": [\"~/.aws\"]"),
            ("uvx awslabs.iam-mcp-server", &on.clone().read("~/.aws"), 20, ""),
            ("npx -y mcp-server-kubernetes", &on, 20, "~/.kube"),
            ("uvx mcp-server-git --remote git@example.com:a/b", &on, 20, "~/.ssh"),
            ("npx -y server-files", &hosts, 20, "Node 20 does not read HTTPS_PROXY"),
            ("npx -y server-files", &hosts, 24, ""),
            ("npx -y server-files", &on, 20, ""),
            ("uvx server-files", &hosts, 20, ""),
        ] {
            let told = of(line, sandbox, version);
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{line}: {told}");
        }
    }
}
