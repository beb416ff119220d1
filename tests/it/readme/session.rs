//! The commands of README.md and then of each page of `docs/`, from top to bottom: each runs, and its output is what is
//! shown below it, except for times.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-host");

/// Commands that are shown but not run here, each with where they are run.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cargo install", "it builds for minutes; `.ci/run` builds it in the profile `checks`"),
    ("cargo build", "`.ci/run` builds it in the profile `checks`, and the examples without optimization"),
    ("taskset -c 0 cargo bench", "it measures for minutes"),
    ("cargo test", "this is one of them"),
    ("MCP_HOST_SIM_SEEDS=10000 cargo test", ".ci/run"),
    ("MCP_HOST_BEAT_CALLS=100000 cargo test", ".ci/run"),
    ("tests/", ".ci/run"),
    ("fuzz/run", ".ci/run"),
    ("mcp-host lock", "tests/it/pins locks, and changes what it locked"),
    ("git add", "another program"),
    ("mcp-host check --locked", "tests/it/pins"),
    ("mcp-host add", "tests/it/edits adds servers that can be started here"),
    ("mcp-host undo", "tests/it/edits"),
    ("mcp-host search", "tests/it/registry has a registry"),
    ("mcp-host show", "tests/it/registry"),
    ("mcp-host install", "tests/it/registry"),
    ("mcp-host outdated", "tests/it/registry"),
    ("mcp-host update", "tests/it/registry"),
    ("mcp-host migrate", "tests/it/edits has clients to migrate"),
    ("mcp-host clients", "tests/it/edits has clients to list"),
    ("claude mcp add", "another program; tests/interop has real clients"),
    ("mcp-host login github", "tests/oauth and tests/it/auth sign in"),
    ("mcp-host logout github", "tests/it/auth"),
    ("read -rs password", "tests/keyring unlocks a real keyring"),
];

/// The content of `mcp.json` when a block that reads it is shown, in reading order.
const CONFIGS: [&str; 2] = [
    r#"{ "mcpServers": {
  "files": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/ada"] },
  "github": { "url": "https://api.example.com/mcp", "headers": { "Authorization": "Bearer ${GITHUB_TOKEN}" } }
} }
"#,
    r#"{
  "mcpServers": {
    "files": {
      "command": "npx",
      "args": "-y @modelcontextprotocol/server-filesystem",
      "required": "yes"
    },
    "search": { "command": "npx", "sharing": "everyone" }
  }
}
"#,
];

/// One reader of all pages, with a home of their own.
struct Reader {
    home: tempfile::TempDir,
    daemon: Option<Daemon>,
    code: i32,
    configs: std::slice::Iter<'static, &'static str>,
}

struct Daemon {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Reader {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = home.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        std::fs::set_permissions(folder("run"), PermissionsExt::from_mode(0o700)).unwrap();
        let programs = folder("bin");
        std::os::unix::fs::symlink(PROGRAM, programs.join("mcp-host")).unwrap();
        // `check` looks whether there is one, and starts nothing.
        let npx = programs.join("npx");
        std::fs::write(&npx, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(&npx, PermissionsExt::from_mode(0o755)).unwrap();
        let cursor = folder(".cursor").join("mcp.json");
        let config =
            format!(r#"{{ "mcpServers": {{ "echo": {{ "command": "{PROGRAM}", "args": ["__demo-server"] }} }} }}"#);
        std::fs::write(cursor, config).unwrap();
        Self { home, daemon: None, code: 0, configs: CONFIGS.iter() }
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        let programs = self.home.path().join("bin");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        command.args(["-c", line]).current_dir(self.home.path()).stdin(Stdio::null());
        command.env_clear().env("HOME", self.home.path()).env("PATH", path);
        command.env("XDG_RUNTIME_DIR", self.home.path().join("run"));
        command
    }

    /// Runs a command, and returns its output.
    fn run(&mut self, line: &str) -> String {
        let line = line.replace("cargo run --release --", "mcp-host");
        let line = line.split("  #").next().unwrap_or_default().trim();
        if line == "echo $?" {
            return self.code.to_string();
        }
        if line.starts_with("mcp-host serve") {
            return self.serve(line);
        }
        if line.contains("--config mcp.json") {
            let file = self.home.path().join("mcp.json");
            std::fs::write(&file, self.configs.next().expect("a config for each block that reads one")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        }
        let output = self.shell(line).output().unwrap();
        self.code = output.status.code().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
    }

    /// Starts a daemon at a free port in place of the previous one, and returns its output until it waits for clients.
    fn serve(&mut self, line: &str) -> String {
        (self.daemon, self.code) = (None, 0);
        let mut command = self.shell(&format!("exec {line} --listen 127.0.0.1:0 2>&1"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let daemon = self.daemon.insert(Daemon { child, lines });
        let mut said = Vec::new();
        loop {
            let line = daemon.lines.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("{said:#?}"));
            let is_last = line.starts_with("stop ") || line.starts_with("see what goes on ");
            said.push(line);
            if is_last {
                return said.join("\n");
            }
        }
    }
}

/// Removes what differs from run to run: times, widths of columns, the port, tokens.
fn plain(text: &str, home: &Path) -> String {
    let text = text.replace(&home.display().to_string(), "~");
    let lines = text.trim_end().lines().map(|line| {
        let words: Vec<String> = line.split_whitespace().map(word).collect();
        let mut line = words.join(" ");
        for unit in [" ms", " s", " min"] {
            line = line.replace(&format!("N{unit}"), "TIME");
        }
        line.replace(" --listen 127.0.0.1:PORT", "")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces a number that may be a time by `N`, a port by `PORT`.
fn word(word: &str) -> String {
    if let Some((before, rest)) = word.split_once("127.0.0.1:") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        return format!("{before}127.0.0.1:PORT{rest}");
    }
    if word.starts_with("mcph_") {
        return "mcph_TOKEN".to_owned();
    }
    if let Some(at) = word.find("sha256:") {
        let rest = word[at + 7..].trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '…');
        return format!("{}sha256:HASH{rest}", &word[..at]);
    }
    let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if number { "N".to_owned() } else { word.to_owned() }
}

/// Returns the commands of a block, each with the output shown below it.
fn commands(language: &str, block: &str) -> Vec<(String, Option<String>)> {
    if language == "sh" {
        return block.lines().map(|line| (line.to_owned(), None)).collect();
    }
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => found.push((command.to_owned(), None)),
            None => {
                let (_, shown) = found.last_mut().expect("a block begins with a command");
                let shown = shown.get_or_insert_default();
                shown.push_str(line);
                shown.push('\n');
            }
        }
    }
    found
}

#[test]
fn every_command_of_the_guide_does_what_is_shown() {
    let mut reader = Reader::new();
    let mut elsewhere = vec![false; ELSEWHERE.len()];
    let mut ran = 0;
    for block in super::blocks_in_order(&["console", "sh"]) {
        if let Some(name) = block.file() {
            let file = reader.home.path().join(name);
            std::fs::write(&file, &block.text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            continue;
        }
        for (command, shown) in commands(&block.language, &block.text) {
            if let Some(at) = ELSEWHERE.iter().position(|(begin, _)| command.starts_with(begin)) {
                elsewhere[at] = true;
                continue;
            }
            let said = reader.run(&command);
            if let Some(shown) = shown {
                let home = reader.home.path();
                assert_eq!(plain(&said, home), plain(&shown, home), "$ {command}\n{said}");
            } else {
                assert_eq!(reader.code, 0, "$ {command}\n{said}");
            }
            ran += 1;
        }
    }
    assert!(ran >= 12, "{ran}");
    let unused: Vec<_> = ELSEWHERE.iter().zip(elsewhere).filter(|(_, used)| !used).map(|(entry, _)| entry).collect();
    assert!(unused.is_empty(), "not in the guide any more: {unused:?}");
}
