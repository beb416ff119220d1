//! `processes`: how many a server may have, counted for it alone. The kernel counts for accounts other than root.

use std::os::unix::fs::{PermissionsExt as _, chown};

use serde_json::json;

use super::support::{Home, can_have_namespaces};

/// An account without rights.
const NOBODY: u32 = 65_534;

/// Starts processes until there can be no more, or there are 60.
const FORKS: &str = "code=import time\nn = 0\ntry:\n while n < 60:\n  if os.fork() == 0: time.sleep(60); os._exit(0)\n  n += 1\n\
                     except OSError as error: r = f'{type(error).__name__} {n < 60}'";

#[test]
fn h108_the_processes_of_one_server_are_counted() {
    if !can_have_namespaces("h108: the number of processes") {
        return;
    }
    let home = Home::new();
    let program = home.at("tools/mcp-host");
    let mut words: Vec<String> = Vec::new();
    let mut runs = std::path::PathBuf::from(env!("CARGO_BIN_EXE_mcp-host"));
    if rustix::process::geteuid().is_root() {
        // Another account gets the home, and a program that it can reach.
        std::fs::copy(&runs, &program).unwrap();
        for name in ["", ".ssh", "desk", "tools"] {
            chown(home.at(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        std::fs::set_permissions(home.at(""), std::fs::Permissions::from_mode(0o755)).unwrap();
        let account = ["--reuid", "--regid"].map(|option| format!("{option}={NOBODY}"));
        words.extend(account);
        words.extend(["--clear-groups".to_owned(), program.display().to_string()]);
        runs = "setpriv".into();
    }
    let first: Vec<&str> = words.iter().map(String::as_str).collect();
    for (sandbox, expected) in [
        (json!("default"), "done\n"),
        (json!({ "processes": 24 }), "BlockingIOError True\n"),
        (json!({ "level": "strict", "processes": 24 }), "BlockingIOError True\n"),
    ] {
        home.write(&json!({ "box": home.entry(&sandbox) }));
        let output = home.command_by(&runs, &first, &["call", "box__run", FORKS]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{sandbox}: {said}");
    }
}

#[test]
fn h108_root_is_told_that_its_processes_are_not_counted() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!({ "processes": 24 })) }));
    let output = home.run(&["check"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let lack = "the kernel does not count the processes of root, so `processes` limits nothing: run mcp-host as another account";
    assert_eq!(said.contains(lack), rustix::process::geteuid().is_root(), "{said}");
}
