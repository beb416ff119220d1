//! Eight hosts share one login whose tokens live two seconds, and whose refresh tokens are single-use: a host that
//! sends one twice loses the login for all (`docs/hazards.md` H74).

mod issuer;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use self::issuer::{Issuer, LIFE};
use crate::client::{Answer, Peer};
use crate::soak::{Plan, Verdict};

const HOSTS: usize = 8;
/// Time between two calls of one client, so that tokens expire during the run.
const PACE: Duration = Duration::from_millis(20);
/// How long a host may take to start, to sign in, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(plan: &Plan) -> Verdict {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(said)?;
    runtime.block_on(all(plan))
}

async fn all(plan: &Plan) -> Verdict {
    let calls = if plan.whole { 1000 } else { 300 };
    let issuer = Issuer::start().await?;
    let home = tempfile::tempdir().map_err(said)?;
    let entry = json!({ "type": "http", "era": "legacy", "url": format!("{}/mcp", issuer.url) });
    let config = json!({ "mcpServers": { "a": entry }, "host": { "secrets": { "store": "file", "keyFile": "key" } } });
    std::fs::write(home.path().join("mcp.json"), config.to_string()).map_err(said)?;
    std::fs::write(home.path().join("key"), "11".repeat(32)).map_err(said)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(home.path().join("key"), std::fs::Permissions::from_mode(0o600)).map_err(said)?;
    }
    let mut hosts = vec![Daemon::start(plan, home.path())?];
    sign_in(plan, home.path(), &hosts[0]).await?;
    for _ in 1..HOSTS {
        hosts.push(Daemon::start(plan, home.path())?);
    }
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for host in &hosts {
        clients.spawn(calls_of(host.url.clone(), calls));
    }
    while let Some(done) = clients.join_next().await {
        done.map_err(said)??;
    }
    let elapsed = begun.elapsed();
    let told = issuer.told();
    drop(hosts);
    // Each token but the last may be renewed once; a fresh one need not be.
    let expiries = elapsed.as_secs_f64() / LIFE.as_secs_f64();
    let text = format!(
        "{HOSTS} hosts, {} calls in {:.1} s: tokens of {LIFE:?} renewed {} times, {} refresh tokens sent twice, {} sign-in",
        HOSTS * calls,
        elapsed.as_secs_f64(),
        told.refreshes,
        told.reused,
        told.sign_ins
    );
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let often = told.refreshes as f64 > 2.0 * expiries + 2.0;
    let seldom = told.refreshes == 0;
    if told.reused > 0 || told.sign_ins != 1 || often || seldom { Err(text) } else { Ok(text) }
}

/// Runs one client of one host: each of its calls must succeed.
async fn calls_of(url: String, calls: usize) -> Result<(), String> {
    let mut peer = Peer::open(url).await.map_err(|answer| format!("no session: {answer:?}"))?;
    let mut pace = tokio::time::interval(PACE);
    for id in 1..=calls {
        pace.tick().await;
        match peer.call(id as u64, "a__t", &json!({})).await {
            Answer::One(answer) if answer["result"]["isError"] != true && answer["result"].is_object() => {}
            other => return Err(format!("call {id}: {other:?}")),
        }
    }
    Ok(())
}

/// Signs in at this host, and plays the browser.
async fn sign_in(plan: &Plan, home: &Path, host: &Daemon) -> Result<(), String> {
    let mut command = tokio::process::Command::from(program(plan, home));
    command.args(["login", "a", "--no-browser", "--listen", host.address()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().map_err(said)?;
    let mut stderr = tokio::io::BufReader::new(child.stderr.take().ok_or("no stderr")?);
    let login = async {
        let mut heard = String::new();
        let mut line = String::new();
        loop {
            line.clear();
            if tokio::io::AsyncBufReadExt::read_line(&mut stderr, &mut line).await.map_err(said)? == 0 {
                return Err(format!("login: {heard}"));
            }
            if let Ok(page) = url::Url::parse(line.trim())
                && page.path() == "/authorize"
            {
                break come_back(&page).await?;
            }
            heard.push_str(&line);
        }
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).await.map_err(said)?;
        let status = child.wait().await.map_err(said)?;
        if status.success() { Ok(()) } else { Err(format!("login: {rest}")) }
    };
    tokio::time::timeout(PATIENCE, login).await.map_err(said)?
}

/// Plays the browser: the user agrees, and the browser is redirected back.
async fn come_back(page: &url::Url) -> Result<(), String> {
    let field = |name: &str| page.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let (back, state) = (field("redirect_uri").ok_or("no redirect_uri")?, field("state").ok_or("no state")?);
    let back = url::Url::parse_with_params(&back, [("code", "code"), ("state", state.as_str())]).map_err(said)?;
    let (host, port) = (back.host_str().ok_or("no host")?, back.port().ok_or("no port")?);
    let mut stream = tokio::net::TcpStream::connect((host, port)).await.map_err(said)?;
    let path = &back[url::Position::BeforePath..];
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n").as_bytes()).await.map_err(said)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(said)?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
}

fn program(plan: &Plan, home: &Path) -> Command {
    let mut command = Command::new(&plan.host);
    let places = ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name, home));
    command.env_clear().envs(places).current_dir(home).stdin(Stdio::null());
    command
}

/// A host under test; killed when dropped.
struct Daemon {
    child: Child,
    url: String,
}

impl Daemon {
    fn start(plan: &Plan, home: &Path) -> Result<Self, String> {
        let mut command = program(plan, home);
        command.args(["serve", "--quiet", "--config", "mcp.json", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(said)?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        let first = lines.next().ok_or("the host said nothing")?.map_err(said)?;
        // Reads its output to the end, so that it never blocks on a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).count());
        let url = first.split_whitespace().find(|word| word.starts_with("http://")).ok_or(first.clone())?.to_owned();
        Ok(Self { child, url })
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
