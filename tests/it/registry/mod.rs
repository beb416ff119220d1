//! Servers of a registry: `search`, `show`, `install` and `update`, at a registry of this test on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bundle;
mod hostile;
mod tree;
mod unused;

use std::path::PathBuf;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::auth::site::{Asked, Site, Told};
use crate::daemon::steady;
use crate::reload::program::{Daemon, mcp_host};

/// A home whose config names a registry, and that has a runner of packages: a script in place of `npx`, which starts the
/// demo server and writes down how it was called.
struct Home(tempfile::TempDir);

impl Home {
    fn at(registry: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let config = json!({
            "host": { "registry": { "url": registry, "headers": { "X-Team": "${env:TEAM}" } } },
            "mcpServers": { "mine": { "command": "true" } },
        });
        home.write("mcp-host/config.json", &format!("{config:#}\n"));
        home.program(
            "bin/npx",
            "#!/bin/sh\nprintf '%s|' \"$@\" >> \"$HOME/npx.log\"\nexec \"${0%/*}/demo\" __demo-server\n",
        );
        // From a sandbox, a runner reaches what lies beside it.
        let (demo, program) = (home.file("bin/demo"), env!("CARGO_BIN_EXE_mcp-host"));
        if std::fs::hard_link(program, &demo).is_err() {
            std::fs::copy(program, &demo).unwrap();
        }
        // The npm of the machine would ask its registry.
        home.program("bin/npm", "#!/bin/sh\nexit 1\n");
        home
    }

    fn program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        self.write(name, script);
        std::fs::set_permissions(self.file(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.file(name).parent().unwrap()).unwrap();
        std::fs::write(self.file(name), text).unwrap();
    }

    fn config(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// Returns what programs in place of runners noted in their HOME, which is one of their own if they are confined.
    fn log(&self, name: &str) -> String {
        let own = std::fs::read_dir(self.file("mcp-host/sandbox")).into_iter().flatten().flatten();
        let logs = own.map(|own| own.path().join("home").join(name)).chain([self.file(name)]);
        logs.filter_map(|log| std::fs::read_to_string(log).ok()).collect()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file("mcp-host/config.json")).unwrap()
    }

    /// Runs a command, and returns its exit code and all that it said.
    fn run(&self, args: &[&str]) -> String {
        let mut command = mcp_host(self.0.path(), args);
        command.env("TEAM", "the-team").env("PATH", format!("{}:/usr/bin:/bin", self.file("bin").display()));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = format!("exit {}\n{}{}", output.status.code().unwrap(), text(&output.stdout), text(&output.stderr));
        steady(&said.replace(self.0.path().to_str().unwrap(), "~").replace(env!("CARGO_BIN_EXE_mcp-host"), "PROGRAM"))
    }

    fn folder_of_answers(&self) -> PathBuf {
        self.file(".cache/mcp-host/registry")
    }
}

/// What the registry has about one server.
fn entry(server: &Value, status: &str) -> Value {
    let official = json!({ "status": status, "statusMessage": "Use another.", "publishedAt": "2026-01-02T03:04:05Z" });
    json!({ "server": server, "_meta": { "io.modelcontextprotocol.registry/official": official } })
}

fn files() -> Value {
    json!({
        "name": "io.github.ada/files", "title": "Files", "description": "Reads files\u{1b}[2J of\u{202e} a folder.", "version": "1.2.3",
        "repository": { "url": "https://example.com/ada/files", "source": "github" },
        "postInstallInstructions": "Run curl example.com | sh.",
        "packages": [{
            "registryType": "npm", "identifier": "@ada/files", "version": "1.2.3", "transport": { "type": "stdio" },
            "runtimeHint": "npx", "runtimeArguments": [{ "type": "positional", "value": "-y" }],
            "packageArguments": [
                { "type": "positional", "valueHint": "folder", "isRequired": true, "description": "The folder.", "format": "filepath" },
                { "type": "named", "name": "--level", "default": "info", "choices": ["info", "debug"] },
            ],
            "environmentVariables": [
                { "name": "FILES_TOKEN", "description": "Your token.", "isRequired": true, "isSecret": true },
                { "name": "FILES_MODE", "value": "plain" },
            ],
        }],
    })
}

fn by_name(name: &str, version: &str, more: &Value) -> Value {
    let mut server = json!({ "name": name, "description": "A server.", "version": version });
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    server
}

/// A registry with two pages of servers. `remote` is an endpoint that works.
fn answer(asked: &Asked, remote: &str) -> Told {
    let servers = [
        entry(&files(), "active"),
        entry(
            &by_name(
                "com.example/remote",
                "0.1.0",
                &json!({ "remotes": [{ "type": "streamable-http", "url": remote }] }),
            ),
            "deprecated",
        ),
        entry(
            &by_name("com.example/gone", "1.0.0", &json!({ "remotes": [{ "type": "sse", "url": remote }] })),
            "deleted",
        ),
        json!({ "server": { "name": "no name at all" } }),
    ];
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    let list = |servers: &[Value], next: Option<&str>| {
        Told::json(200, &json!({ "servers": servers, "metadata": { "count": servers.len(), "nextCursor": next } }))
    };
    match path {
        "/v0.1/servers" if query.contains("cursor=two") => list(&servers[2..], None),
        "/v0.1/servers" => list(&servers[..2], Some("two")),
        "/files/server.json" => Told::json(200, &files()),
        "/v0.1/servers/io.github.ada%2Ffiles/versions/latest"
        | "/v0.1/servers/io.github.ada%2Ffiles/versions/1.2.3" => Told::json(200, &servers[0]),
        "/v0.1/servers/com.example%2Fremote/versions/latest" => Told::json(200, &servers[1]),
        "/v0.1/servers/com.example%2Fgone/versions/latest" => Told::json(200, &servers[2]),
        _ => Told::json(404, &json!({ "title": "Not Found" })),
    }
}

async fn registry(remote: &str) -> Site {
    let remote = remote.to_owned();
    Site::start(move |_| move |asked: &Asked| answer(asked, &remote)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_found_on_all_pages_and_shown_without_harm() {
    let site = registry("https://remote.example/mcp").await;
    let home = Home::at(&site.url);
    tokio::task::block_in_place(|| {
        assert_snapshot!(home.run(&["search", "a", "EXAMPLE"]).replace(&site.url, "REGISTRY"), @r#"
        exit 0
        SERVER VERSION FORMS DESCRIPTION
        com.example/remote 0.1.0 remote (deprecated) A server.
        com.example/gone 1.0.0 remote (deleted) A server.
        warning: 1 entry left out that cannot be read; the first: its entry is wrong: name: "no name at all" is not of the form NAMESPACE/NAME
        mcp-host show NAME shows one, mcp-host install NAME adds it to the config
        "#);
        assert_snapshot!(home.run(&["search", "files", "--json"]).replace(&site.url, "REGISTRY"), @r#"
        exit 0
        [{"name":"io.github.ada/files","version":"1.2.3","title":"Files","description":"Reads files\u001b[2J of\u202e a folder.","status":"active","forms":["npm"]}]
        warning: 1 entry left out that cannot be read; the first: its entry is wrong: name: "no name at all" is not of the form NAMESPACE/NAME
        "#);
        assert_snapshot!(home.run(&["show", "io.github.ada/files"]).replace(&site.url, "REGISTRY"), @r#"
        exit 0
        io.github.ada/files 1.2.3: Files
        Reads files\u{1b}[2J of\u{202e} a folder.
        namespace io.github.ada (the registry has checked who owns this name, and nothing else)
        source https://example.com/ada/files
        published 2026-01-02T03:04:05Z

        npm
        npx -y @ada/files@1.2.3 <folder> --level info
        FILES_TOKEN a secret, required. Your token.
        folder required. The folder.
        level default info, one of info, debug
        mcp-host install io.github.ada/files adds it to the config
        "#);
        assert_snapshot!(home.run(&["show", "io.github.ada/files@9.9.9"]).replace(&site.url, "REGISTRY"), @"
        exit 2
        error: the registry at REGISTRY has no io.github.ada/files in version 9.9.9
        help: mcp-host search WORDS finds servers
        ");
        assert_snapshot!(home.run(&["show", "files"]), @"
        exit 2
        error: files: a server of a registry is called NAMESPACE/NAME, as `mcp-host search` shows it
        help: mcp-host show NAME shows what it wants to know
        ");
    });
    let asked = site.asked();
    assert!(asked.iter().all(|asked| asked.headers.get("x-team").map(String::as_str) == Some("the-team")));
    assert!(asked[0].path.contains("search=example") && asked[0].path.contains("version=latest"), "{}", asked[0].path);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_is_shown_and_asked_for_before_anything_starts() {
    let site = registry("https://remote.example/mcp").await;
    let home = Home::at(&site.url);
    tokio::task::block_in_place(|| {
        let before = home.text();
        let install = ["install", "io.github.ada/files"];
        assert_snapshot!(home.run(&install), @"
        exit 2
        error: FILES_TOKEN has no value: Your token.
        error: folder has no value: The folder.
        help: --set FILES_TOKEN=… --set folder=…
        ");
        let given = ["--set", "folder=/srv/a b", "--set", "FILES_TOKEN=${env:TEAM}"];
        let words = [&install[..], &given].concat();
        assert_snapshot!(home.run(&words), @r#"
        exit 6
        io.github.ada/files 1.2.3: Files
        Reads files\u{1b}[2J of\u{202e} a folder.
        namespace io.github.ada (the registry has checked who owns this name, and nothing else)
        source https://example.com/ada/files
        published 2026-01-02T03:04:05Z
        package npm @ada/files 1.2.3
        command npx -y @ada/files@1.2.3 '/srv/a b' --level info
        it runs as you; its tree is not locked: npm is not here; its runner fetches this version, and what that needs
        sandbox default: it reads and writes what its entry names, and its own folders
        variable FILES_TOKEN from ${env:TEAM}
        variable FILES_MODE=plain
        config ~/mcp-host/config.json, as files
        error: nothing was fetched or written: there is no terminal to ask on
        help: mcp-host install … --yes does it
        "#);
        assert_snapshot!(home.run(&[&words[..], &["--set", "level=loud", "--yes"]].concat()), @"
        exit 2
        error: level: the value is not one of info, debug
        help: mcp-host show NAME shows what it wants to know
        ");
        assert_snapshot!(home.run(&[&words[..], &["--set", "lvl=info", "--yes"]].concat()), @"
        exit 2
        error: the server has no input `lvl`
        help: it has: FILES_TOKEN, folder, level
        ");
        assert!(home.text() == before && home.log("npx.log").is_empty(), "nothing is written, nothing started");
        let said = home.run(&[&words[..], &["--yes", "--as", "notes"]].concat());
        assert!(said.contains("\ninstalled notes: 3 tools, TIME, "), "{said}");
        assert!(said.contains("\nits publisher says: Run curl example.com | sh."), "{said}");
        assert_eq!(home.log("npx.log"), "-y|@ada/files@1.2.3|/srv/a b|--level|info|");
        let written = json!({
            "command": "npx", "args": ["-y", "@ada/files@1.2.3", "/srv/a b", "--level", "info"],
            "env": { "FILES_TOKEN": "${env:TEAM}", "FILES_MODE": "plain" }, "sandbox": "default",
            "package": { "type": "npm", "name": "@ada/files", "version": "1.2.3", "registry": "io.github.ada/files" },
        });
        assert_eq!(home.config()["mcpServers"]["notes"], written);
        assert!(home.run(&["undo"]).starts_with("exit 0\ntook back edit 1: added notes"));
        assert_eq!(home.text(), before, "as before, to the byte");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_is_installed_and_what_was_taken_back_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = tokio::task::block_in_place(|| {
        Daemon::start(mcp_host(folder.path(), &["serve", "--demo", "--listen", "127.0.0.1:0"]))
    });
    let site = registry(&format!("http://127.0.0.1:{}/mcp", daemon.port)).await;
    let home = Home::at(&site.url);
    tokio::task::block_in_place(|| {
        let said = home.run(&["install", "com.example/remote@latest", "--yes", "--json"]);
        let told = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
        let told: Value = serde_json::from_str(told).unwrap();
        assert_eq!((&told["form"], &told["tools"], &told["state"]), (&json!("remote"), &json!(4), &json!("connected")));
        assert!(said.contains("\ndeprecated: Use another.\n"), "{said}");
        let entry = &home.config()["mcpServers"]["remote"];
        assert_eq!(entry["url"], format!("http://127.0.0.1:{}/mcp", daemon.port));
        assert_snapshot!(home.run(&["install", "com.example/gone", "--yes"]), @"
        exit 6
        error: com.example/gone 1.0.0 was taken back: Use another.
        help: nothing was written; mcp-host search WORDS finds others
        ");
        assert_snapshot!(home.run(&["install", "com.example/remote", "--package", "pypi"]), @"
        exit 1
        error: com.example/remote has no pypi that can be started here; it has: remote
        help: nothing was written; mcp-host add NAME (URL | -- COMMAND) adds it by hand
        ");
        assert_snapshot!(home.run(&["install", "https://a.example/mcp"]), @"
        exit 2
        error: this URL is no server.json and no install link
        help: mcp-host add NAME URL adds an endpoint
        ");
        let again = home.run(&["install", "com.example/remote", "--yes"]);
        assert!(again.starts_with("exit 2\nerror: a server is called `remote` already"), "{again}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_at_a_url_and_an_install_link_are_shown_and_asked_for() {
    let site = registry("https://remote.example/mcp").await;
    let home = Home::at(&site.url);
    tokio::task::block_in_place(|| {
        let (before, url) = (home.text(), format!("{}/files/server.json", site.url));
        let given = ["install", &url, "--set", "folder=/srv", "--set", "FILES_TOKEN=${env:TEAM}"];
        let said = home.run(&given);
        assert!(said.starts_with("exit 6\n") && home.text() == before && home.log("npx.log").is_empty(), "{said}");
        assert!(said.contains("warning: no registry has checked who wrote http://127.0.0.1:"), "{said}");
        assert!(home.run(&[&given[..], &["--yes"]].concat()).contains("\ninstalled files: 3 tools, TIME, "));
        let package = &home.config()["mcpServers"]["files"]["package"];
        assert_eq!(*package, json!({ "type": "npm", "name": "@ada/files", "version": "1.2.3" }), "of no registry");
        let missing = home.run(&["install", &format!("{}/server.json", site.url), "--yes"]);
        assert!(missing.starts_with("exit 1\n") && missing.contains("HTTP status 404"), "{missing}");

        let link = "goose://extension?cmd=npx&arg=-y&arg=notes%401.0.0&id=notes";
        assert_snapshot!(home.run(&["install", link]), @r#"
        exit 6
        notes
        command: "npx"
        args: ["-y", "notes@1.0.0"]
        error: nothing was written: there is no terminal to ask on
        help: mcp-host install … --yes adds it without asking
        "#);
        assert!(home.run(&["install", link, "--yes"]).contains("added notes: 3 tools, "));
        assert_eq!(home.config()["mcpServers"]["notes"], json!({ "command": "npx", "args": ["-y", "notes@1.0.0"] }));
        assert!(home.run(&["install", link, "--as", "x"]).starts_with("exit 2\n"));
    });
}

/// The test has no keyring, as a machine without a desktop.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_never_stands_in_the_file() {
    let site = registry("https://remote.example/mcp").await;
    let home = Home::at(&site.url);
    tokio::task::block_in_place(|| {
        let before = home.text();
        let words =
            ["install", "io.github.ada/files", "--yes", "--set", "folder=/srv", "--set", "FILES_TOKEN=the-canary"];
        let said = home.run(&words);
        assert!(said.contains("\nerror: the keyring cannot keep FILES_TOKEN: "), "{said}");
        assert!(
            said.ends_with("help: keep it in a variable, and give ${env:NAME} as its value, in single quotes"),
            "{said}"
        );
        assert!(said.contains("variable FILES_TOKEN, with a secret from the keyring\n"), "{said}");
        assert!(!said.contains("the-canary") && home.text() == before && home.log("npx.log").is_empty(), "{said}");
    });
}

/// Whoever wrote a project would else decide what is installed, and where headers with secrets go.
#[tokio::test(flavor = "multi_thread")]
async fn the_registry_of_a_project_does_not_count() {
    let (own, theirs) = (registry("https://remote.example/mcp").await, registry("https://remote.example/mcp").await);
    let home = Home::at(&own.url);
    let config = json!({ "host": { "registry": { "url": theirs.url } }, "mcpServers": { "a": { "command": "true" } } });
    home.write("mcp-host.json", &config.to_string());
    tokio::task::block_in_place(|| {
        assert!(home.run(&["search", "files"]).contains("io.github.ada/files 1.2.3 npm"));
        let said = home.run(&["install", "com.example/gone", "--project"]);
        assert!(said.starts_with("exit 6\nerror: com.example/gone 1.0.0 was taken back"), "{said}");
    });
    assert_eq!((theirs.asked().len(), own.asked().len()), (0, 3));
}
