//! A config found in the working directory: nothing in it runs before the user has approved exactly that (H93), and an
//! approval survives whatever happens to the process that writes it (H94).

use std::path::Path;
use std::process::Output;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::program::{Daemon, mcp_host};
use super::support::{config, entry};

/// A server of a project that leaves a trace when it is started, which it could not from a sandbox.
fn traced(word: &str) -> Value {
    json!({ "command": "/bin/sh", "sandbox": "off", "args": ["-c", format!("touch ran; exec \"$0\" {word}"), env!("CARGO_BIN_EXE_mcp-host"), "__demo-server"] })
}

struct Project(tempfile::TempDir);

impl Project {
    fn new(text: &str) -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        project.write(text);
        project
    }

    fn write(&self, text: &str) {
        std::fs::write(self.home().join("mcp-host.json"), text).unwrap();
    }

    fn home(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = mcp_host(self.home(), args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    fn ran(&self) -> bool {
        std::fs::remove_file(self.home().join("ran")).is_ok()
    }
}

#[test]
fn h93_nothing_of_a_project_runs_before_it_is_approved() {
    let project = Project::new(&config(&json!({ "a": traced("__demo-server") })));
    for args in [
        &["tools"][..],
        &["tools", "a"],
        &["call", "a__echo", "text=x"],
        &["check"],
        &["check", "--connect"],
        &["approve"],
    ] {
        let (exit, _, stderr) = project.run(args);
        assert_eq!(exit, 6, "{args:?}: {stderr}");
        assert!(stderr.contains("help: mcp-host approve"), "{args:?}: {stderr}");
        assert!(!project.ran(), "{args:?}");
    }
    let (exit, stdout, stderr) = project.run(&["approve", "--yes"]);
    assert_eq!(exit, 0, "{stderr}");
    // The whole command, however long, and nothing that could pass for it.
    let args = json!(traced("__demo-server")["args"]).to_string().replace("\",\"", "\", \"");
    assert!(stdout.contains(&format!("args: {args}")), "{stdout}");
    let (exit, stdout, stderr) = project.run(&["tools"]);
    assert_eq!((exit, stdout.contains("a__echo"), project.ran()), (0, true, true), "{stderr}");
    assert_eq!(project.run(&["approve"]).0, 0, "there is nothing left to approve");
}

#[test]
fn h93_any_change_asks_again_and_is_shown() {
    let project = Project::new(&config(&json!({ "a": traced("__demo-server") })));
    assert_eq!(project.run(&["approve", "--yes"]).0, 0);
    let with = |key: &str, value: Value| {
        let mut entry = traced("__demo-server");
        entry[key] = value;
        entry
    };
    for (entry, line) in [
        (traced("'__demo-server'"), "+ args: "),
        (with("env", json!({ "LD_PRELOAD": "./x.so" })), "+ env.LD_PRELOAD: \"./x.so\""),
        (with("env", json!({ "LD_PRELOAD": "./x.so" })), "+ ! env.LD_PRELOAD: changes which code programs load"),
        (with("env", json!({ "API_TOKEN": "hunter2" })), "+ env.API_TOKEN: ***"),
        (with("cwd", json!("/")), "+ cwd: \"/\""),
        (with("description", json!("plain\u{202e}text")), "+ description: \"plain\\u{202e}text\""),
    ] {
        project.write(&config(&json!({ "a": entry })));
        let (exit, stdout, _) = project.run(&["approve"]);
        assert_eq!(exit, 6);
        assert!(stdout.contains(line), "{stdout}");
        assert_eq!(project.run(&["tools"]).0, 6);
        assert!(!project.ran());
    }
    // A server of the same name and command in another project is another one.
    let other = Project::new(&config(&json!({ "a": traced("__demo-server") })));
    let mut command = mcp_host(other.home(), &["tools"]);
    assert_eq!(command.env("XDG_STATE_HOME", project.home()).output().unwrap().status.code(), Some(6));
    // And an approval holds again once the entry is back.
    project.write(&format!("// a word\n{}", config(&json!({ "a": traced("__demo-server") }))));
    assert_eq!(project.run(&["tools"]).0, 0);
}

#[test]
fn h93_a_secret_that_is_not_shown_counts_all_the_same() {
    let with = |secret: &str| config(&json!({ "a": { "command": "x", "env": { "API_TOKEN": secret } } }));
    let project = Project::new(&with("hunter1"));
    let (exit, stdout, _) = project.run(&["approve", "--yes"]);
    assert_eq!((exit, stdout.contains("hunter1")), (0, false), "{stdout}");
    project.write(&with("hunter2"));
    let (exit, stdout, _) = project.run(&["approve", "--json"]);
    let items: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((exit, &items[0]["approved"]), (6, &json!(false)));
    let (_, stdout, _) = project.run(&["approve"]);
    assert!(stdout.contains("a hidden value has changed") && !stdout.contains("hunter"), "{stdout}");
}

#[test]
fn h93_a_program_for_headers_does_not_run_before_it_is_approved() {
    let entry = |word: &str| {
        let script = format!("touch ran; echo {word}");
        json!({ "type": "http", "url": "http://127.0.0.1:9/mcp", "headersHelper": ["/bin/sh", "-c", script],
                "restart": { "maxRetries": 0 } })
    };
    let project = Project::new(&config(&json!({ "a": entry("1") })));
    for args in [&["tools"][..], &["check"], &["check", "--connect"], &["approve"]] {
        let (exit, stdout, stderr) = project.run(args);
        assert_eq!((exit, project.ran()), (6, false), "{args:?}: {stdout}{stderr}");
        assert!(args != ["check"] || stdout.contains("/mcp, headers by /bin/sh -c touch ran"), "{stdout}");
        let told = "! headersHelper: a program that runs here for each connection to this server";
        assert!(args != ["approve"] || stdout.contains(told), "{stdout}");
    }
    assert_eq!(project.run(&["approve", "--yes"]).0, 0);
    assert_eq!((project.run(&["check"]).0, project.ran()), (0, false), "to check is not to run");
    let (_, stdout, stderr) = project.run(&["check", "--connect"]);
    assert!(project.ran(), "{stdout}{stderr}");
    project.write(&config(&json!({ "a": entry("2") })));
    assert_eq!((project.run(&["check", "--connect"]).0, project.ran()), (6, false), "another word, and it asks again");
}

#[test]
fn h93_what_an_entry_names_counts_as_well() {
    let entry = json!({ "command": "x", "envFile": ".env", "args": ["${file:../outside}"] });
    let project = Project::new(&config(&json!({ "a": entry })));
    std::fs::write(project.home().join(".env"), "X=1").unwrap();
    let (_, stdout, _) = project.run(&["approve", "--yes"]);
    assert!(stdout.contains("content of ") && stdout.contains("which is not part of the project"), "{stdout}");
    assert_eq!(project.run(&["approve"]).0, 0);
    std::os::unix::fs::symlink("/etc/hostname", project.home().join("inside")).unwrap();
    project.write(&config(&json!({ "a": { "command": "x", "args": ["${file:inside}"] } })));
    let (_, stdout, _) = project.run(&["approve"]);
    assert!(stdout.contains("inside, which is not part of the project"), "a link leads out as well: {stdout}");
    project.write(&config(&json!({ "a": entry })));
    std::fs::write(project.home().join(".env"), "X=1\nNODE_OPTIONS=--require ./x.js").unwrap();
    assert_eq!(project.run(&["approve"]).0, 6);
}

/// The default of an input lies outside of the entry, so an approval of the entry does not cover it.
#[test]
fn h93_a_default_that_stands_elsewhere_is_no_part_of_what_was_approved() {
    let text = |word: &str| {
        let script = "touch ran; exec \"$0\" \"$1\"";
        let args = ["-c", script, env!("CARGO_BIN_EXE_mcp-host"), "${input:word}"];
        let servers = json!({ "a": { "command": "/bin/sh", "args": args } });
        json!({ "inputs": [{ "id": "word", "type": "promptString", "default": word }], "mcpServers": servers })
            .to_string()
    };
    let project = Project::new(&text("__demo-server"));
    assert_eq!(project.run(&["approve", "--yes"]).0, 0);
    for word in ["__demo-server", "other"] {
        project.write(&text(word));
        let (exit, _, stderr) = project.run(&["tools"]);
        assert!(exit != 0 && stderr.contains("MCP_HOST_INPUT_WORD") && !project.ran(), "{exit}: {stderr}");
    }
}

/// Wherever an entry keeps its keys, whatever reaches out of the project is listed.
#[test]
fn h93_what_passes_variables_is_marked_in_each_shape() {
    for entry in [
        json!({ "command": "/bin/true", "inheritEnv": ["*"] }),
        json!({ "transport": { "type": "stdio", "command": "/bin/true", "inheritEnv": ["*"] } }),
    ] {
        let project = Project::new(&config(&json!({ "a": entry })));
        let (_, stdout, stderr) = project.run(&["approve"]);
        assert!(stdout.contains("! inheritEnv: these variables are passed on"), "{entry}: {stdout}{stderr}");
    }
}

#[test]
fn h93_a_project_does_not_set_up_the_host() {
    let text = json!({ "mcpServers": {}, "host": { "allowedOrigins": ["https://evil.example"], "nonsense": 1 } });
    let project = Project::new(&text.to_string());
    let (exit, _, stderr) = project.run(&["check"]);
    assert_eq!(exit, 0, "{stderr}");
    assert!(stderr.contains("a project's config cannot configure the host, ignored"), "{stderr}");
    // Naming the file shows intent.
    let (exit, _, stderr) = project.run(&["check", "--config", "mcp-host.json"]);
    assert!(exit == 2 || stderr.contains("nonsense"), "{stderr}");
}

#[test]
fn h93_a_file_that_is_named_is_the_users_word() {
    let project = Project::new(&config(&json!({ "a": entry("1") })));
    assert_eq!(project.run(&["tools", "--config", "mcp-host.json"]).0, 0);
    let mut command = mcp_host(project.home(), &["tools"]);
    assert_eq!(command.env("MCP_HOST_CONFIG", "mcp-host.json").output().unwrap().status.code(), Some(0));
}

#[test]
fn h93_a_running_daemon_takes_what_is_approved() {
    let project = Project::new(&config(&json!({ "a": entry("1") })));
    let daemon = Daemon::start(mcp_host(project.home(), &["serve", "--listen", "127.0.0.1:0"]));
    daemon.hears("○ a  disabled      not approved");
    daemon.hears("help: mcp-host approve");
    assert_eq!(project.run(&["approve", "a", "--yes"]).0, 0);
    daemon.hears("✓ a");
    // Another word in its file disables it again.
    project.write(&config(&json!({ "a": entry("2") })));
    daemon.hears("○ a  disabled      not approved");
    daemon.signal(Signal::TERM);
    daemon.hears("stopped");
}

#[test]
fn h94_a_writer_that_is_killed_leaves_a_good_file() {
    let project = Project::new(&config(&json!({})));
    let file = project.home().join("mcp-host/approvals.json");
    let change = |round: u32| {
        project.write(&config(&json!({ "a": { "command": "x", "args": [round, "y".repeat(20_000)] } })));
        let mut writer = mcp_host(project.home(), &["approve", "--yes", "--quiet"]);
        writer.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let begun = Instant::now();
    assert!(change(100).wait().unwrap().success());
    let whole = begun.elapsed();
    let mut written = 0;
    for round in 0..60 {
        let mut writer = change(round);
        // From before it has begun to after it has ended.
        #[expect(clippy::disallowed_methods, reason = "a moment of another process is only met by waiting")]
        std::thread::sleep(whole * round / 45);
        let _ = writer.kill();
        writer.wait().unwrap();
        let state: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).expect("a whole file");
        assert_eq!(state["version"], 1);
        written += u32::from(project.run(&["approve"]).0 == 0);
    }
    assert!((1..60).contains(&written), "{written} of 60 came to their end");
    // What they left behind, locks and partial files, is in no one's way.
    assert_eq!(project.run(&["approve", "--yes"]).0, 0);
    assert_eq!(project.run(&["approve"]).0, 0);
    assert!(std::fs::read_dir(file.parent().unwrap()).unwrap().count() <= 3);
}

#[test]
fn h94_a_second_daemon_is_told_of_the_first() {
    let project = Project::new(&config(&json!({})));
    let first = Daemon::start(mcp_host(project.home(), &["serve", "--listen", "127.0.0.1:0"]));
    let address = format!("127.0.0.1:{}", first.port);
    let (exit, _, stderr) = project.run(&["serve", "--listen", &address]);
    assert_eq!(exit, 1, "{stderr}");
    assert!(stderr.contains(&format!("process {}", first.child.id())), "{stderr}");
    // Another address is another daemon.
    let second = Daemon::start(mcp_host(project.home(), &["serve", "--listen", "127.0.0.1:0"]));
    assert_ne!(first.port, second.port);
}
