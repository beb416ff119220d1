//! Command lines of podman and docker, word by word. `tests/it/sandbox/container.rs` starts one.

use std::ffi::OsStr;

use super::engine::Facts;
use super::enter::{Now, words};
use super::*;
use crate::config::SandboxLevel;

/// A HOME with something to list, and the state of a host.
struct Account(tempfile::TempDir);

/// A folder below `/tmp`, whatever the environment says of temporary files.
fn folder() -> std::io::Result<tempfile::TempDir> {
    tempfile::tempdir_in("/tmp")
}

impl Account {
    fn new() -> Self {
        let account = Self(folder().expect("a folder"));
        for folder in ["me/ada", "me/state", "data"] {
            std::fs::create_dir_all(account.at(folder)).expect("a folder");
        }
        std::fs::create_dir_all(account.at("me/deep/er")).expect("a folder");
        std::fs::write(account.at("me/.gitconfig"), "").expect("a file");
        account
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().expect("it is there").join(path)
    }

    fn options(&self, stdio: &Stdio, sandbox: &Sandbox) -> Result<Vec<String>, Error> {
        let own = Own::make(&self.at("me/state"), "a-0").expect("folders");
        let places = Places::of(&self.at("me/state"), Some(self.at("me")), None);
        options(stdio, sandbox, &places, &own)
    }

    /// Returns a command line with the account's root as `AT:`.
    fn line(&self, stdio: &Stdio, sandbox: &Sandbox, is_podman: bool, is_rootless: bool) -> String {
        let container = Container {
            engine: "/usr/bin/engine".into(),
            is_podman,
            image: "node:24".to_owned(),
            kept: self.at("me/state/image"),
            options: self.options(stdio, sandbox).expect("options"),
            limits: Vec::new(),
        };
        let facts = Facts { is_rootless, can: Vec::new() };
        let now = Now {
            facts: &facts,
            image: "docker.io/library/node@sha256:00",
            name: "mcp-host-0011",
            mark: "above.1 own.2",
            account: (1000, 1001),
        };
        let words = words(&container, &now, OsStr::new("server"));
        let words: Vec<_> = words.iter().map(|word| word.to_str().expect("UTF-8")).collect();
        words.join("\n").replace(self.at("").to_str().expect("UTF-8").trim_end_matches('/'), "AT:")
    }
}

#[test]
fn h108_a_container_gets_what_is_listed_and_no_value_of_a_variable() {
    let account = Account::new();
    let stdio = Stdio::new("server").args(["--flag"]).env("TOKEN", "correct-horse").cwd(account.at("me/ada"));
    let listed = Sandbox::strict().read("~/.gitconfig").read(account.at("data")).write("~/ada").container("node:24");
    let mut sandbox = listed;
    (sandbox.files, sandbox.memory) = (Some(64), Some(1 << 20));
    (sandbox.cpu, sandbox.processes) = (Some(1500), Some(32));
    insta::assert_snapshot!(account.line(&stdio, &sandbox, true, true), @r"
    run
    --rm
    --interactive
    --init
    --pull=never
    --log-driver=none
    --read-only
    --cap-drop=ALL
    --security-opt=no-new-privileges
    --ulimit=core=0:0
    --userns=keep-id
    --name=mcp-host-0011
    --label=mcp-host=own.2
    --network=none
    --ulimit=nofile=64:64
    --memory=1048576
    --memory-swap=1048576
    --cpus=1.500
    --pids-limit=32
    --tmpfs=/tmp:rw,mode=1777
    --mount=type=bind,source=AT:/data,target=AT:/data,readonly
    --mount=type=bind,source=AT:/me/.gitconfig,target=AT:/me/.gitconfig,readonly
    --mount=type=bind,source=AT:/me/ada,target=AT:/me/ada
    --mount=type=bind,source=AT:/me/state/sandbox/a-0/cache,target=AT:/me/state/sandbox/a-0/cache
    --mount=type=bind,source=AT:/me/state/sandbox/a-0/home,target=AT:/me/state/sandbox/a-0/home
    --mount=type=bind,source=AT:/me/.gitconfig,target=AT:/me/state/sandbox/a-0/home/.gitconfig,readonly
    --mount=type=bind,source=AT:/me/ada,target=AT:/me/state/sandbox/a-0/home/ada
    --env=HOME=AT:/me/state/sandbox/a-0/home
    --env=XDG_CACHE_HOME=AT:/me/state/sandbox/a-0/cache
    --env=npm_config_cache=AT:/me/state/sandbox/a-0/cache/npm
    --env=UV_CACHE_DIR=AT:/me/state/sandbox/a-0/cache/uv
    --env=PIP_CACHE_DIR=AT:/me/state/sandbox/a-0/cache/pip
    --env=TOKEN
    --env=_MCP_HOST_GUARD
    --workdir=AT:/me/ada
    --entrypoint=server
    docker.io/library/node@sha256:00
    ");
}

#[test]
fn h108_a_container_of_docker_runs_as_the_user() {
    let account = Account::new();
    let line = |is_podman, is_rootless| {
        let sandbox = Sandbox::on().container("node:24");
        let line = account.line(&Stdio::new("server"), &sandbox, is_podman, is_rootless);
        assert!(!line.contains("--network"), "the level `default` has a network: {line}");
        let is_account = |word: &&str| word.starts_with("--user");
        line.lines().filter(is_account).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line(false, false), ["--user=1000:1001"]);
    assert_eq!(line(false, true), ["--user=0:0"]);
    assert_eq!(line(true, false), ["--user=1000:1001"]);
}

#[test]
fn h108_what_no_container_can_have_is_named() {
    let account = Account::new();
    std::fs::create_dir(account.at("a,b")).expect("a folder");
    let on = Sandbox::on().container("a");
    assert_eq!(on.level, SandboxLevel::Default);
    for (stdio, sandbox, expected) in [
        (
            Stdio::new("x").env("DOCKER_HOST", "tcp://x"),
            on.clone(),
            "`env` sets DOCKER_HOST, which podman and docker read themselves; set it in the image",
        ),
        (Stdio::new("x").env("PATH", "/x"), on.clone(), "`env` sets PATH, which "),
        (Stdio::new("x").env("LD_PRELOAD", "/x"), on.clone(), "`env` sets LD_PRELOAD, which "),
        (
            Stdio::new("x").cwd("/srv"),
            on.clone(),
            "its `cwd` /srv is not in the container; list it in `read` or `write`",
        ),
        (Stdio::new("x"), on.clone().read(account.at("a,b")), "has a comma, "),
        (
            Stdio::new("x"),
            on.read("~/absent"),
            "does not exist, or cannot be reached; create it, or take it out of the list",
        ),
    ] {
        let error = account.options(&stdio, &sandbox).expect_err("it cannot be had").to_string();
        assert!(error.starts_with("sandbox.") && error.contains(expected), "{error}");
    }
}

#[test]
fn h108_what_is_listed_has_a_place_in_the_own_home_past_every_planted_link() {
    let account = Account::new();
    let listed = Sandbox::on().read("~/.gitconfig").write("~/deep/er").container("a");
    let own = account.at("me/state/sandbox/a-0/home");
    for _ in 0..2 {
        account.options(&Stdio::new("x"), &listed).expect("options");
        assert!(own.join("deep/er").is_dir() && own.join(".gitconfig").is_file());
    }
    // The server puts a link in the way.
    std::fs::remove_dir_all(own.join("deep")).expect("it is there");
    std::os::unix::fs::symlink(account.at("data"), own.join("deep")).expect("a link");
    let error = account.options(&Stdio::new("x"), &listed).expect_err("a link").to_string();
    assert!(error.starts_with("sandbox.container: ") && error.ends_with("; remove it"), "{error}");
    assert!(!account.at("data/er").exists(), "nothing was made behind the link");
}
