//! The program: a daemon, and the commands that sign in, show what is stored, and sign out.

#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use super::site::Site;
use super::world::{PATIENCE, agreed, gives_codes, protected};

/// What a program prints, as it prints it.
#[derive(Clone, Default)]
pub(super) struct Said(Arc<(Mutex<Vec<String>>, Notify)>);

impl Said {
    pub(super) fn read(&self, stream: impl AsyncRead + Unpin + Send + 'static) {
        let said = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                said.0.0.lock().unwrap().push(line);
                said.0.1.notify_waiters();
            }
        });
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }

    /// Waits for a matching line.
    pub(super) async fn line(&self, meant: impl Fn(&str) -> bool) -> String {
        let found = async {
            loop {
                let news = self.0.1.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if let Some(line) = self.all().into_iter().find(|line| meant(line)) {
                    return line;
                }
                news.await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{:#?}", self.all()))
    }
}

pub(super) fn mcp_host(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    command.env_clear().envs(places.map(|place| (place, home))).env("PATH", home.join("bin")).current_dir(home);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

pub(super) fn spawn(mut command: Command, said: &Said) -> Child {
    let mut child = command.spawn().unwrap();
    said.read(child.stdout.take().unwrap());
    said.read(child.stderr.take().unwrap());
    child
}

pub(super) async fn once(home: &Path, args: &[&str], said: &Said) -> Output {
    let output = tokio::time::timeout(PATIENCE, mcp_host(home, args).output()).await.unwrap().unwrap();
    for text in [&output.stdout, &output.stderr] {
        said.0.0.lock().unwrap().extend(String::from_utf8_lossy(text).lines().map(str::to_owned));
    }
    output
}

/// A daemon that logs everything, with the site as server `a`.
pub(super) async fn daemon(home: &Path, site: &Site, said: &Said) -> Child {
    daemon_with(home, site, said, &[]).await
}

/// Like `daemon`, with these variables.
pub(super) async fn daemon_with(home: &Path, site: &Site, said: &Said, vars: &[(&str, &str)]) -> Child {
    let config =
        json!({ "mcpServers": { "a": { "type": "http", "era": "legacy", "url": format!("{}/mcp", site.url) } } });
    std::fs::write(home.join("mcp.json"), config.to_string()).unwrap();
    let mut command = mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0", "-vvv"]);
    command.envs(vars.iter().copied());
    let child = spawn(command, said);
    said.line(|line| line.starts_with("listening on ")).await;
    child
}

/// Plays the browser: returns to the address in the page's URL.
pub(super) async fn come_back(page: &str) {
    let back = agreed(&page.parse().unwrap());
    let back: url::Url = back.parse().unwrap_or_else(|_| panic!("{page}"));
    let (host, port) = (back.host_str().unwrap().to_owned(), back.port().unwrap());
    let mut stream = TcpStream::connect((host.as_str(), port)).await.unwrap();
    let path = &back[url::Position::BeforePath..];
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn h97_a_login_from_a_shell_says_no_token_and_no_code_anywhere() {
    let (issuing, issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let nobody = once(home, &["login", "a"], &said).await;
    assert_eq!(nobody.status.code(), Some(2), "no daemon runs, and there is no config");
    let _daemon = daemon(home, &site, &said).await;
    said.line(|line| line.contains("mcp-host login a")).await;

    for command in [&["login", "nobody"][..], &["login", "nobody", "--device"], &["logout", "nobody"]] {
        assert_eq!(once(home, command, &said).await.status.code(), Some(2), "{command:?}");
        said.line(|line| line.contains("no server is called `nobody`")).await;
    }
    let mut login = spawn(mcp_host(home, &["login", "a", "--no-browser", "-vvv"]), &said);
    let page = said.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
    come_back(&page).await;
    assert!(tokio::time::timeout(PATIENCE, login.wait()).await.unwrap().unwrap().success());
    said.line(|line| line.contains("signed in to `a`")).await;
    said.line(|line| line.contains("✓ a")).await;

    let auth = once(home, &["auth"], &said).await;
    let shown = String::from_utf8(auth.stdout).unwrap();
    assert!(auth.status.success() && shown.contains(&issuer.url), "{shown}");
    let json = once(home, &["auth", "--json"], &said).await;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json[0]["holding"]["renewable"], true, "{json}");
    assert!(!said.all().iter().any(|line| line.contains("--device")), "it gives no codes");
    // A refresh, and one whose response is lost.
    issuing.expire();
    once(home, &["logout", "a", "-vvv"], &said).await;
    assert_eq!((issuer.count("POST /revoke"), issuing.reused.load(Ordering::SeqCst)), (1, 0));
    let canary: Vec<_> = said.all().into_iter().filter(|line| line.contains("canary")).collect();
    assert_eq!(canary, Vec::<String>::new());
}

#[tokio::test]
async fn a_login_is_told_to_begin_and_to_end() {
    let (_issuing, _issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let _daemon = daemon(home, &site, &said).await;
    let listening = said.line(|line| line.starts_with("listening on ")).await;
    let port = listening.rsplit(':').next().unwrap().trim_end_matches("/mcp").to_owned();
    said.line(|line| line.contains("mcp-host login a")).await;
    let mut feed = UnixStream::connect(home.join(format!("mcp-host/{port}.sock"))).await.unwrap();
    feed.write_all(b"{\"feed\":{\"parts\":[\"logins\"]}}\n").await.unwrap();
    let mut events = BufReader::new(feed).lines();
    // One whose browser comes back with another state, and one that succeeds.
    for spoils in [true, false] {
        let begun = Said::default();
        let mut login = spawn(mcp_host(home, &["login", "a", "--no-browser"]), &begun);
        let page = begun.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
        let page = if spoils { page.replace("&state=", "&state=x") } else { page };
        come_back(&page).await;
        let ended = tokio::time::timeout(PATIENCE, login.wait()).await.unwrap().unwrap();
        assert_eq!(ended.success(), !spoils);
    }
    let mut told = Vec::new();
    while told.last().is_none_or(|last| *last != "done") {
        let line = tokio::time::timeout(PATIENCE, events.next_line()).await.unwrap().unwrap().unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["type"] == "login" {
            assert_eq!(event["login"]["server"], "a", "{line}");
            told.push(event["login"]["what"].as_str().unwrap().to_owned());
        }
    }
    told.retain(|what| what != "needed");
    assert_eq!(told, ["begun", "failed", "begun", "done"]);
}

#[tokio::test]
async fn a_login_ends_with_the_shell_that_began_it() {
    let (issuing, issuer, site) = protected().await;
    gives_codes(&issuing, &issuer);
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let _daemon = daemon(home, &site, &said).await;
    let listening = said.line(|line| line.starts_with("listening on ")).await;
    let port = listening.rsplit(':').next().unwrap().trim_end_matches("/mcp").to_owned();
    said.line(|line| line.contains("mcp-host login a")).await;
    let mut feed = UnixStream::connect(home.join(format!("mcp-host/{port}.sock"))).await.unwrap();
    feed.write_all(b"{\"feed\":{\"parts\":[\"logins\"]}}\n").await.unwrap();
    let mut events = BufReader::new(feed).lines();
    let begun = Said::default();
    let mut by_code = spawn(mcp_host(home, &["login", "a", "--device", "--no-browser"]), &begun);
    begun.line(|line| line.contains("WDJB-MJHT")).await;
    let mut by_browser = spawn(mcp_host(home, &["login", "a", "--no-browser"]), &begun);
    begun.line(|line| line.contains("/authorize?")).await;
    for login in [&mut by_code, &mut by_browser] {
        login.kill().await.unwrap();
    }
    let mut told = Vec::new();
    while told.iter().filter(|what| *what == "failed").count() < 2 {
        let line = tokio::time::timeout(PATIENCE, events.next_line()).await.unwrap().unwrap().unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        told.extend(event["login"]["what"].as_str().map(str::to_owned));
    }
    told.retain(|what| what != "needed");
    assert_eq!(told, ["begun", "begun", "failed", "failed"]);
}

/// A browser that writes a file with the number of its arguments, and the arguments.
pub(super) fn opener(home: &Path) -> PathBuf {
    let (opened, opener) = (home.join("opened"), home.join("bin/xdg-open"));
    std::fs::create_dir(home.join("bin")).unwrap();
    let script = format!("#!/bin/sh\necho \"$#\" \"$@\" >{0}.new && /bin/mv {0}.new {0}\n", opened.display());
    std::fs::write(&opener, script).unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o700)).unwrap();
    opened
}

/// Waits until that browser was started, and returns its arguments.
pub(super) async fn started(opened: &Path) -> String {
    let looking = async {
        while !opened.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap();
    std::fs::read_to_string(opened).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn h67_a_browser_is_started_by_one_argument_and_no_shell() {
    let (issuing, issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let (opened, marker) = (opener(home), home.join("marker"));
    let _daemon = daemon(home, &site, &said).await;
    let hostile = format!("/authorize;touch${{IFS}}{0}|$(touch${{IFS}}{0})&touch'{0}'", marker.display());
    *issuing.metadata.lock().unwrap() = json!({ "authorization_endpoint": format!("{}{hostile}", issuer.url) });
    said.line(|line| line.contains("mcp-host login a")).await;
    let _login = spawn(mcp_host(home, &["login", "a"]), &said);
    let page = said.line(|line| line.starts_with("http://") && line.contains("/authorize")).await;
    assert_eq!(started(&opened).await, format!("1 {page}"));
    // Text that could pass for a command opens no page at all.
    for hostile in
        ["javascript:alert(1)", "file:///bin/sh", "calc.exe", "--help", "https://a.example/ -x", "http://a.example/"]
    {
        *issuing.metadata.lock().unwrap() = json!({ "authorization_endpoint": hostile });
        std::fs::remove_file(&opened).unwrap_or_default();
        let refused = once(home, &["login", "a"], &said).await;
        assert_eq!(refused.status.code(), Some(3), "{hostile}");
        assert!(!opened.exists(), "{hostile}");
    }
    assert!(!marker.exists());
}
