//! Signing in if no daemon runs, or one that does not know the server; and the key that the first login creates.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::json;
use tokio::process::Command;

use super::program::{Said, come_back, daemon, mcp_host, once, spawn};
use super::site::Site;
use super::world::{PATIENCE, protected};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A config with the site as server `b`.
fn config(home: &Path, site: &Site) -> &'static str {
    let entry = json!({ "type": "http", "era": "legacy", "url": format!("{}/mcp", site.url) });
    std::fs::write(home.join("own.json"), json!({ "mcpServers": { "b": entry } }).to_string()).unwrap();
    "own.json"
}

/// Returns what a command prints on both streams, without the home.
fn shown(home: &Path, output: &std::process::Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&home.display().to_string(), "~");
    format!("exit {}\n{}{}", output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

async fn run(home: &Path, args: &[&str]) -> String {
    shown(home, &once(home, args, &Said::default()).await)
}

/// Reports whether the site got requests beyond those for signing in.
fn was_connected_to(site: &Site) -> bool {
    site.asked().iter().any(|asked| asked.body.contains("initialize"))
}

#[tokio::test]
async fn first_hour_h1_a_login_without_a_daemon_is_there_for_all_that_start_later() {
    let (_issuing, issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let config = config(home, &site);
    let keyed = |args: &[&str]| {
        let mut command = mcp_host(home, args);
        command.env("MCP_HOST_SECRET_KEY", KEY);
        command
    };
    let mut login = spawn(keyed(&["login", "b", "--no-browser", "--config", config]), &said);
    said.line(|line| line == "note: no mcp-host is running, so this command uses the config").await;
    let page = said.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
    come_back(&page).await;
    assert!(tokio::time::timeout(PATIENCE, login.wait()).await.unwrap().unwrap().success());
    said.line(|line| line == "signed in to `b`; the token is kept in an encrypted file").await;
    assert!(!was_connected_to(&site), "nothing else is started");

    let auth = keyed(&["auth", "--json", "-q", "--config", config]).output().await.unwrap();
    let auth: serde_json::Value = serde_json::from_slice(&auth.stdout).unwrap();
    assert_eq!((&auth[0]["name"], &auth[0]["holding"]["kept"]), (&json!("b"), &json!("file")), "{auth}");
    let tools = keyed(&["tools", "--config", config]).output().await.unwrap();
    assert!(String::from_utf8_lossy(&tools.stdout).contains("b__t"), "{tools:?}");
    assert_eq!(issuer.count("POST /token"), 1);

    let out = keyed(&["logout", "b", "-q", "--config", config]).output().await.unwrap();
    assert_snapshot!(shown(home, &out), @"
    exit 0
    signed out of `b`
    ");
    assert_eq!(issuer.count("POST /revoke"), 1);
    assert!(!said.all().iter().any(|line| line.contains("canary")));
}

#[tokio::test]
async fn first_hour_h1_a_daemon_that_does_not_know_the_server_leaves_it_to_the_config() {
    let (_issuing, _issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let own = config(home, &site);
    let _daemon = daemon(home, &site, &said).await;
    assert_snapshot!(run(home, &["logout", "b", "--config", own]).await, @"
    exit 0
    note: the running mcp-host has no server `b`, so this command uses own.json
    there was no login of `b`
    ");
    assert_snapshot!(run(home, &["logout", "a", "--config", own]).await, @"
    exit 0
    note: the running mcp-host is asked; --config is only used for servers that it does not know
    there was no login of `a`
    ");
    // Neither knows it, and each says so and suggests what to do.
    let unknown = run(home, &["login", "nowhere", "--config", own]).await;
    assert_snapshot!(unknown, @"
    exit 2
    error: no server is called `nowhere`
    help: the running mcp-host has: a
    ");
    assert_eq!(run(home, &["logout", "nowhere", "--config", own]).await, unknown);
    assert!(run(home, &["login", "A", "--config", own]).await.ends_with("help: did you mean `a`?\n"));
}

#[tokio::test]
async fn first_hour_r15_each_error_of_these_commands_has_a_last_word() {
    let (_issuing, _issuer, site) = protected().await;
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let own = config(home, &site);
    assert_snapshot!(run(home, &["login", "bb", "-q", "--config", own]).await, @"
    exit 2
    error: no server is called `bb`
    help: did you mean `b`?
    ");
    // A given address means that daemon only, and the hint keeps the config.
    assert_snapshot!(run(home, &["login", "b", "--listen", "127.0.0.1:9", "--config", own]).await, @"
    exit 4
    error: no mcp-host is running on port 9
    help: mcp-host serve --listen 127.0.0.1:9 --config own.json
    ");
    std::fs::write(home.join("stdio.json"), r#"{ "mcpServers": { "c": { "command": "c" } } }"#).unwrap();
    assert_snapshot!(run(home, &["login", "c", "-q", "--config", "stdio.json"]).await, @"
    exit 2
    error: server `c` is a program of this machine, so there is no login for it: what it needs goes into its `env`
    help: mcp-host auth --config stdio.json lists the servers to sign in to
    ");
}

#[tokio::test]
async fn first_hour_r10_without_a_keyring_and_a_terminal_a_login_says_how_to_make_a_key() {
    let (_issuing, issuer, site) = protected().await;
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let own = config(home, &site);
    let refused = run(home, &["login", "b", "-q", "--config", own]).await;
    let (error, help) = refused.split_once("\nhelp: ").unwrap();
    assert!(error.starts_with("exit 1\nerror: nowhere to keep the login of `b`: there is no keyring: "), "{error}");
    let made = "make a key for encrypted files: \
         (umask 077; set -C; mkdir -p ~/mcp-host; openssl rand -base64 32 > ~/mcp-host/secret.key)";
    assert_eq!(help.trim_end(), made);
    assert_eq!(issuer.count("POST /register"), 0, "no user is sent to a page in vain");
    assert!(!home.join("mcp-host/secret.key").exists());
    // The entry gets what the config asks for.
    let entry = json!({ "type": "http", "url": format!("{}/mcp", site.url) });
    let memory = json!({ "mcpServers": { "b": entry }, "host": { "secrets": { "store": "memory" } } });
    std::fs::write(home.join("memory.json"), memory.to_string()).unwrap();
    assert_snapshot!(run(home, &["login", "b", "-q", "--config", "memory.json"]).await, @r#"
    exit 1
    error: nowhere to keep the login of `b`: `host.secrets.store` is "memory"
    help: mcp-host serve --config memory.json keeps it in memory: start it, then sign in
    "#);
    // A file that is not a key stays as it is.
    std::fs::create_dir_all(home.join("mcp-host")).unwrap();
    std::fs::write(home.join("mcp-host/secret.key"), "hunter2").unwrap();
    let refused = run(home, &["login", "b", "-q", "--config", own]).await;
    assert!(refused.contains("~/mcp-host/secret.key holds no key") && !refused.contains("hunter2"), "{refused}");
    assert_eq!(std::fs::read_to_string(home.join("mcp-host/secret.key")).unwrap(), "hunter2");
}

/// The program at a terminal of its own, with typed input.
#[cfg(target_os = "linux")]
fn at_a_terminal(home: &Path, arguments: &str) -> Command {
    let mut command = mcp_host(home, &[]);
    let program = command.as_std().get_program().to_owned();
    let envs: Vec<_> =
        command.as_std().get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = Command::new("script");
    let line = format!("{} {arguments}", program.to_str().unwrap());
    command.args(["-qec", &line, "/dev/null"]).env_clear().current_dir(home).kill_on_drop(true);
    command.envs(envs.into_iter().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("SHELL", "/bin/sh");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    command
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn first_hour_r10_the_first_login_makes_the_key_after_one_yes() {
    use tokio::io::AsyncWriteExt as _;

    let (_issuing, _issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let own = config(home, &site);
    let key = home.join("mcp-host/secret.key");
    let mut login = spawn(at_a_terminal(home, &format!("login b --no-browser --config {own}")), &said);
    let mut keys = login.stdin.take().unwrap();
    said.line(|line| line.contains("a login cannot be kept in a keyring here: there is no keyring")).await;
    keys.write_all(b"y\n").await.unwrap();
    said.line(|line| line.contains("secret.key; each mcp-host that you start reads it from there")).await;
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let page = said.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
    come_back(page.trim_end()).await;
    said.line(|line| line.contains("signed in to `b`; the token is kept in an encrypted file")).await;
    assert!(tokio::time::timeout(PATIENCE, login.wait()).await.unwrap().unwrap().success());
    // No config names the key, yet it is used.
    let tools = once(home, &["tools", "--config", own], &said).await;
    assert!(String::from_utf8_lossy(&tools.stdout).contains("b__t"), "{tools:?}");
    let key = std::fs::read_to_string(&key).unwrap();
    assert!(!said.all().iter().any(|line| line.contains(key.trim())));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn first_hour_r10_a_daemon_that_runs_uses_the_key_from_then_on() {
    use tokio::io::AsyncWriteExt as _;

    let (_issuing, _issuer, site) = protected().await;
    let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
    let home = home.path();
    let _daemon = daemon(home, &site, &said).await;
    said.line(|line| line.contains("mcp-host login a")).await;
    let mut login = spawn(at_a_terminal(home, "login a --no-browser"), &said);
    let mut keys = login.stdin.take().unwrap();
    said.line(|line| line.contains("a login cannot be kept in a keyring here")).await;
    keys.write_all(b"y\n").await.unwrap();
    let page = said.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
    come_back(page.trim_end()).await;
    said.line(|line| line.contains("signed in to `a`; the token is kept in an encrypted file")).await;
    said.line(|line| line.contains("✓ a")).await;
}
