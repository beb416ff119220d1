//! Locked trees: installed, started from, refused after a change, the same elsewhere, and updated. npm and Node.js are scripts of
//! this test; `tests/install/run` has the real ones.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{Home, entry};
use crate::auth::site::{Asked, Site, Told};

/// Takes the place of npm: notes how it is called, locks the version that it is asked for, and installs one script.
const NPM: &str = r#"#!/bin/sh
printf '%s|' "$@" >> "$HOME/npm.log"
version=$(sed -n 's/.*"@ada\/notes": "\(.*\)".*/\1/p' package.json 2> /dev/null)
case "$1" in
--version) echo 11.0.0 ;;
install)
  printf '{"lockfileVersion":3,"packages":{"":{"dependencies":{"@ada/notes":"%s"}},"node_modules/@ada/notes":{"version":"%s","integrity":"sha512-AA=="}}}' "$version" "$version" > package-lock.json ;;
ci)
  mkdir -p node_modules/@ada/notes
  echo '{"bin":{"notes":"cli.js"}}' > node_modules/@ada/notes/package.json
  echo "// $version" > node_modules/@ada/notes/cli.js ;;
esac
"#;

/// The latest version is `latest`; there is also 1.0.0.
pub(super) async fn registry(latest: &'static str) -> Site {
    Site::start(move |_| move |asked: &Asked| answer(asked, latest)).await
}

fn answer(asked: &Asked, latest: &str) -> Told {
    let version = match asked.path.strip_prefix("/v0.1/servers/io.github.ada%2Fnotes/versions/") {
        Some("latest") => latest,
        Some("1.0.0") => "1.0.0",
        _ => return Told::json(404, &json!({})),
    };
    let mut variables = vec![json!({ "name": "NOTES_MODE", "default": "plain" })];
    if version != "1.0.0" {
        variables.push(json!({ "name": "NOTES_TEAM", "isRequired": true }));
    }
    let server = json!({
        "name": "io.github.ada/notes", "description": "Notes.", "version": version,
        "packages": [{
            "registryType": "npm", "identifier": "@ada/notes", "version": version, "transport": { "type": "stdio" },
            "packageArguments": [{ "type": "positional", "value": "/srv" }], "environmentVariables": variables,
        }],
    });
    Told::json(200, &entry(&server, "active"))
}

impl Home {
    /// A home with an npm that locks, and a Node.js that starts the demo server.
    pub(super) fn with_npm(registry: &str) -> Self {
        let home = Self::at(registry);
        home.program("bin/npm", NPM);
        let node = "#!/bin/sh\nprintf '%s|' \"$@\" >> \"$HOME/node.log\"\n";
        home.program("bin/node", &format!("{node}exec \"${{0%/*}}/demo\" __demo-server\n"));
        home
    }

    /// Returns the only folder in a folder.
    pub(super) fn only(&self, folder: &str) -> PathBuf {
        let mut entries = std::fs::read_dir(self.file(folder)).unwrap();
        let first = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none(), "{folder} has one entry");
        first
    }

    fn script(&self) -> PathBuf {
        self.only(".local/share/mcp-host/store/npm").join("tree/node_modules/@ada/notes/cli.js")
    }
}

pub(super) const INSTALL: [&str; 3] = ["install", "io.github.ada/notes@1.0.0", "--yes"];
pub(super) const CONNECT: [&str; 3] = ["check", "notes", "--connect"];

pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => copy(&path, &to.join(entry.file_name())),
            path => drop(std::fs::copy(path, to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_locked_started_from_and_refused_after_a_change() {
    let site = registry("1.0.0").await;
    let home = Home::with_npm(&site.url);
    tokio::task::block_in_place(|| {
        let before = home.text();
        let said = home.run(&INSTALL);
        assert!(said.contains("from a locked copy of its packages: npm ci --ignore-scripts\n"), "{said}");
        assert!(said.contains("\ninstalled notes: 3 tools, TIME, "), "{said}");
        assert!(home.log("npx.log").is_empty(), "the runner is not started");
        let npm = std::fs::read_to_string(home.file("npm.log")).unwrap();
        assert!(npm.contains("|ci|--ignore-scripts|") && npm.contains("|--ignore-scripts|--no-audit|"), "{npm}");
        let package = &home.config()["mcpServers"]["notes"]["package"];
        assert_eq!((&package["name"], &package["version"]), (&json!("@ada/notes"), &json!("1.0.0")));
        let digest = package["digest"].as_str().unwrap().to_owned();
        let lock = home.only("mcp-host/mcp-host.packages");
        assert!(
            lock.ends_with(format!("ada-notes-1.0.0-{}", &digest[7..23])) && lock.join("package-lock.json").is_file()
        );
        let script = home.script();
        let node = home.log("node.log");
        assert_eq!(node, format!("{}|/srv|", script.display()), "with the arguments of the entry");

        std::fs::write(&script, "// 1.0.1\n").unwrap();
        assert_snapshot!(home.run(&CONNECT).replace(&digest[7..23], "DIGEST"), @"
        exit 4
        SERVER STATE REVISION TOOLS RESOURCES TEMPLATES PROMPTS TIME
        notes failed - - - - - -
        notes: sandbox: default
        error: server `notes` did not start: cannot start `npx`: the installed tree of @ada/notes@1.0.0 differs from its lock: its files were changed since it was installed; mcp-host install --locked installs it from its lock
        help: mcp-host check --connect notes -v
        ");
        assert_eq!(home.log("node.log"), node, "nothing is started");
        let said = home.run(&["install", "notes", "--locked"]);
        assert!(said.starts_with("exit 0\nnotes: @ada/notes@1.0.0 installed, tree sha256:"), "{said}");
        assert!(home.run(&["install", "--locked"]).contains(" is installed already, tree sha256:"));
        assert!(home.run(&CONNECT).starts_with("exit 0\n"));

        assert!(home.run(&["undo"]).starts_with("exit 0\n"));
        assert_eq!(home.text(), before);
        assert!(home.run(&["install", "--locked"]).ends_with("no server of this config has a locked tree"));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_tree_is_installed_elsewhere_and_another_lock_is_refused() {
    let site = registry("1.0.0").await;
    let (home, other) = (Home::with_npm(&site.url), Home::with_npm(&site.url));
    tokio::task::block_in_place(|| {
        let said = home.run(&[&INSTALL[..], &["--json"]].concat());
        let told = |said: &str| -> Value {
            serde_json::from_str(said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}")))
                .unwrap()
        };
        let tree = told(&said)["tree"].clone();
        copy(&home.file("mcp-host"), &other.file("mcp-host"));
        // The state of programs is in the same folder here, and stays behind.
        std::fs::remove_dir_all(other.file("mcp-host/sandbox")).unwrap();
        assert_snapshot!(other.run(&["check", "notes"]), @"
        exit 2
        ~/mcp-host/config.json: 1 of 1 server cannot start

        SERVER TRANSPORT STATE TARGET
        notes stdio unusable npx -y @ada/notes@1.0.0 /srv
        error: ~/mcp-host/config.json:14: server `notes`: cannot start `npx`: the locked tree of @ada/notes@1.0.0 is not installed here
        help: mcp-host install --locked installs it from its lock
        ");
        assert!(other.run(&CONNECT).contains("the locked tree of @ada/notes@1.0.0 is not installed here"));
        assert!(other.log("node.log").is_empty() && other.log("npx.log").is_empty(), "nothing is started");
        assert_eq!(told(&other.run(&["install", "--locked", "--json"]))["tree"], tree);
        assert!(other.run(&CONNECT).starts_with("exit 0\n"));

        let lock = other.only("mcp-host/mcp-host.packages").join("package-lock.json");
        let text = std::fs::read_to_string(&lock).unwrap();
        std::fs::write(&lock, text.replace("AA==", "BB==")).unwrap();
        let said = other.run(&["install", "notes", "--locked"]);
        assert!(said.starts_with("exit 1\nerror: server `notes`: the lock of @ada/notes@1.0.0: ~/mcp-host/"), "{said}");
        assert!(said.contains("/package-lock.json is not the one that the entry names\n"), "{said}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn install_scripts_run_only_if_the_user_says_so() {
    let site = registry("1.0.0").await;
    let home = Home::with_npm(&site.url);
    tokio::task::block_in_place(|| {
        let log = || std::fs::read_to_string(home.file("npm.log")).unwrap();
        let with = |words: &[&str]| home.run(&[words, &["--scripts"]].concat());
        assert!(home.run(&INSTALL).starts_with("exit 0\n"));
        assert!(!log().contains("|ci|--no-audit|"), "{}", log());
        assert!(home.run(&["remove", "notes"]).starts_with("exit 0\n"));
        // The tree that is there lacks what the scripts would have made.
        let said = with(&INSTALL);
        assert!(said.contains("from a locked copy of its packages: npm ci, with install scripts\n"), "{said}");
        assert!(said.contains("\ninstalled notes: 3 tools, TIME, "), "{said}");
        assert_eq!(log().matches("|ci|--no-audit|").count(), 1, "{}", log());
        assert!(log().contains("|install|--package-lock-only|--package-lock=true|--ignore-scripts|"), "{}", log());
        assert!(!log().contains("|install|--package-lock-only|--package-lock=true|--no-audit|"), "a lock needs none");
        assert!(with(&["install", "notes", "--locked"]).contains(" is installed already, tree sha256:"));
        assert!(home.run(&["install", "notes", "--locked"]).contains(" is installed already, tree sha256:"));
        std::fs::remove_dir_all(home.file(".local/share/mcp-host/store")).unwrap();
        assert!(with(&["install", "notes", "--locked"]).contains(" installed, tree sha256:"));
        assert_eq!(log().matches("|ci|--no-audit|").count(), 2, "{}", log());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_is_shown_and_taken_and_given_back() {
    let (first, second) = (registry("1.0.0").await, registry("2.0.0").await);
    let home = Home::with_npm(&first.url);
    tokio::task::block_in_place(|| {
        assert!(home.run(&INSTALL).starts_with("exit 0\n"));
        assert!(home.run(&["outdated"]).ends_with("all servers from the registry have its latest versions"));
        let text = home.text().replace(&first.url, &second.url);
        home.write("mcp-host/config.json", &text);
        assert_snapshot!(home.run(&["outdated"]), @"
        exit 0
        SERVER PACKAGE HAS LATEST TREE
        notes npm @ada/notes 1.0.0 2.0.0 locked
        mcp-host update NAME installs the latest version
        ");
        assert_snapshot!(home.run(&["update", "notes", "--yes"]), @"
        exit 2
        error: server `notes`: the new version wants NOTES_TEAM
        help: mcp-host update notes --set NOTES_TEAM=…
        ");
        let update = ["update", "notes", "--set", "NOTES_TEAM=blue"];
        assert_snapshot!(home.run(&update), @"
        exit 6
        notes 2.0.0
        version 1.0.0 to 2.0.0
        command npx -y @ada/notes@1.0.0 /srv, with @ada/notes@2.0.0 in place of @ada/notes@1.0.0
        it runs as you, from a locked copy of its packages: npm ci --ignore-scripts
        variable NOTES_TEAM, new
        error: server `notes`: nothing was fetched or written: there is no terminal to ask on
        help: mcp-host update notes … --yes does it
        ");
        assert_eq!(home.text(), text);
        let said = home.run(&[&update[..], &["--yes"]].concat());
        assert!(said.contains("\nits tools have the same definitions\nupdated notes: 1.0.0 to 2.0.0\n"), "{said}");
        let entry = &home.config()["mcpServers"]["notes"];
        assert_eq!(entry["args"], json!(["-y", "@ada/notes@2.0.0", "/srv"]));
        assert_eq!((&entry["env"]["NOTES_TEAM"], &entry["package"]["version"]), (&json!("blue"), &json!("2.0.0")));
        assert!(home.run(&CONNECT).starts_with("exit 0\n"));
        assert!(
            home.run(&["update"]).ends_with("nothing to update: the config has the latest versions of the registry")
        );
        assert!(home.run(&["undo"]).starts_with("exit 0\ntook back edit 2: update notes"));
        assert_eq!(home.text(), text, "as before, to the byte");
        assert!(home.run(&CONNECT).starts_with("exit 0\n"), "its tree is still there");
        let logged = home.log("node.log");
        assert!(logged.ends_with(&format!("{}|/srv|", "cli.js")), "{logged}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_version_first_starts_in_a_sandbox_unless_the_config_says_no() {
    let (first, second) = (registry("1.0.0").await, registry("2.0.0").await);
    let home = Home::with_npm(&first.url);
    tokio::task::block_in_place(|| {
        assert!(home.run(&INSTALL).starts_with("exit 0\n"));
        home.write("keys/secret", "");
        let secret = home.file("keys/secret").display().to_string();
        home.program(
            "bin/node",
            &format!("#!/bin/sh\n: < {secret} || exit 1\nexec \"${{0%/*}}/demo\" __demo-server\n"),
        );
        let text = home.text().replace(&first.url, &second.url);
        let plain = text.replace("\"sandbox\": \"default\",\n", "");
        assert_ne!(plain, text);
        home.write("mcp-host/config.json", &plain);
        let update = ["update", "notes", "--set", "NOTES_TEAM=blue", "--yes"];
        let said = home.run(&update);
        assert_snapshot!(&said[said.find("error: ").unwrap()..], @r#"
        error: server `notes` did not start: the process ended (exit code 2): ~/bin/node: 2: cannot open ~/keys/secret: Permission denied
        help: its sandbox may have refused that: if `notes` is to have it, list it in its entry: "sandbox": { "read": ["~/…"], "write": ["~/…"] }
        help: it was started in a sandbox; "sandbox": "off" in the entry of notes starts it without one
        "#);
        assert_eq!(home.text(), plain, "nothing was written");
        home.write("mcp-host/config.json", &text.replace("\"sandbox\": \"default\"", "\"sandbox\": \"off\""));
        assert!(home.run(&update).contains("\nupdated notes: 1.0.0 to 2.0.0\n"));
    });
}
