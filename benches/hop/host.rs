//! The host under test: its config and home, its start, and the wait until it is ready.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::http::{Connection, Session};
use crate::load;
use crate::process::{PATIENCE, Process, Role, free_port, loopback};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-host");
/// The time between two requests for a tool list that is still incomplete.
const LOOK: Duration = Duration::from_millis(1);

/// How servers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Streamable HTTP.
    Http,
    /// Streamable HTTP, where each answer is an event stream.
    Events,
    /// Child processes.
    Stdio,
}

impl Link {
    /// Returns the role of a server that is reached over HTTP.
    pub(crate) fn over_http(self, port: u16, tools: usize) -> Role {
        match self {
            Self::Events => Role::EchoEvents { port, tools },
            Self::Http | Self::Stdio => Role::EchoHttp { port, tools },
        }
    }
}

/// The servers of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers {
    pub(crate) link: Link,
    pub(crate) count: usize,
    /// The number of tools of each server.
    pub(crate) tools: usize,
}

impl Servers {
    /// One server with the three tools that calls need.
    pub(crate) const fn one(link: Link) -> Self {
        Self { link, count: 1, tools: 3 }
    }

    pub(crate) const fn all_tools(self) -> usize {
        self.count * self.tools
    }
}

/// The host and the servers behind it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) process: Process,
    pub(crate) port: u16,
    /// The time from the start of the program to a tool list with every tool.
    pub(crate) started_in: Duration,
    home: TempDir,
    _servers: Vec<Process>,
}

impl Host {
    /// Returns its home, which also has its status socket.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Starts the servers that are not the host's children, then a host on one thread with its default settings.
    pub(crate) async fn start(servers: Servers) -> Result<Self> {
        Self::with(servers, &json!({ "threads": 1 })).await
    }

    /// Starts the same with these settings.
    pub(crate) async fn with(servers: Servers, settings: &Value) -> Result<Self> {
        Self::of(Path::new(PROGRAM), servers, settings).await
    }

    /// Starts the same with these settings, where the host is the build at `program`.
    pub(crate) async fn of(program: &Path, servers: Servers, settings: &Value) -> Result<Self> {
        let home = TempDir::new().context("no temporary directory")?;
        let mut behind = Vec::new();
        let mut entries = serde_json::Map::new();
        for at in 0..servers.count {
            entries.insert(format!("s{at:02}"), entry(servers, &mut behind)?);
        }
        let config = json!({ "mcpServers": entries, "host": settings });
        let file = home.path().join("bench.json");
        fs::write(&file, config.to_string())?;

        let port = free_port()?;
        let log = home.path().join("stderr");
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(&file).args(["--listen", &loopback(port).to_string()]);
        command.env_clear().current_dir(home.path());
        command.envs(["PATH", "SystemRoot"].into_iter().filter_map(|key| Some((key, std::env::var_os(key)?))));
        for key in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "TMPDIR"] {
            command.env(key, home.path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);

        let started = Instant::now();
        let mut process = Process::spawn(command)?;
        match first_list(&mut process, port, servers.all_tools(), started).await {
            Ok(started_in) => Ok(Self { process, port, started_in, home, _servers: behind }),
            Err(cause) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                Err(cause.context(match said.trim() {
                    "" => "the host did not start, and printed nothing".to_owned(),
                    said => format!("the host did not start; it printed: {}", last_lines(said)),
                }))
            }
        }
    }
}

/// Returns the config entry for one more server, and starts the server if it is reached over HTTP.
fn entry(servers: Servers, behind: &mut Vec<Process>) -> Result<Value> {
    let tools = servers.tools;
    Ok(match servers.link {
        Link::Stdio => {
            let program = std::env::current_exe()?;
            json!({ "command": program, "args": Role::EchoStdio { tools }.arguments() })
        }
        Link::Http | Link::Events => {
            let port = free_port()?;
            let mut server = Process::start(servers.link.over_http(port, tools))?;
            server.wait_for(port).context("an echo server")?;
            behind.push(server);
            json!({ "type": "http", "url": format!("http://{}/mcp", loopback(port)) })
        }
    })
}

/// Waits until the endpoint on `port` lists `tools` tools, and returns the time since `started`.
pub(crate) async fn first_list(process: &mut Process, port: u16, tools: usize, started: Instant) -> Result<Duration> {
    process.wait_for(port)?;
    let mut connection = Connection::open(loopback(port)).await?;
    let session = Session::open(&mut connection).await?;
    loop {
        let found = load::list(&mut connection, &session).await?.len();
        let took = started.elapsed();
        if found == tools {
            connection.delete(&session).await?;
            return Ok(took);
        }
        if took > PATIENCE {
            bail!("lists {found} of {tools} tools after {PATIENCE:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
