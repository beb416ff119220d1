//! `processes`, `memory` and `cpu`: limits for all processes of a server, by a scope of systemd where there is one. Without,
//! processes are counted in a namespace of accounts, other than root, memory for each process, and `cpu` is refused.

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
    assert_eq!(said.contains(lack), rustix::process::geteuid().is_root() && !has_scopes(), "{said}");
}

/// Reports whether a manager of systemd gives this account scopes.
fn has_scopes() -> bool {
    let whose = if rustix::process::geteuid().is_root() { "--system" } else { "--user" };
    let found = std::process::Command::new("systemd-run").args([whose, "--scope", "--quiet", "true"]).output();
    found.is_ok_and(|output| output.status.success())
}

/// Starts two processes that each want half of too much memory, and says how they ended.
const MEMORY: &str = "code=r = []\nfor _ in range(2):\n child = subprocess.Popen(['python3', '-c', 'import time; a = bytearray(40 << 20); print(1, flush=True); \
                      time.sleep(20)'], stdout=subprocess.PIPE)\n r.append(child.stdout.readline())\nr = r.count(b'1\\n')";

#[test]
fn h108_memory_is_that_of_all_processes_where_a_scope_counts_it_and_else_that_of_each() {
    let home = Home::new();
    let call = |sandbox: serde_json::Value, code: &str| {
        home.write(&json!({ "box": home.entry(&sandbox) }));
        let output = home.run(&["call", "box__run", code]);
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
    };
    let one = "code=r = type(bytearray(90 << 20)).__name__";
    let said = call(json!({ "memory": "80MiB" }), one);
    if has_scopes() {
        assert!(!said.contains("bytearray"), "one process is over the limit: {said}");
        let said = call(json!({ "memory": "80MiB" }), MEMORY);
        assert_ne!(said, "2\n", "two processes together are");
        return;
    }
    assert!(said.contains("MemoryError"), "{said}");
    assert_eq!(call(json!({ "memory": "80MiB" }), MEMORY), "2\n", "each process has its own");
    let output = home.run(&["check", "--connect"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("`memory` is that of each process, since "), "{told}");
}

#[test]
fn h108_cpu_is_limited_by_a_scope_or_fails_the_server_by_name() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!({ "cpu": 0.1 })), "other": home.entry(&json!("off")) }));
    let code = "code=own = open('/proc/self/cgroup').read().split('::')[1].strip()\nr = open(f'/sys/fs/cgroup{own}/cpu.max').read().strip()";
    let output = home.run(&["call", "box__run", code]);
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    if has_scopes() {
        assert_eq!(said, "10000 100000\n");
    } else {
        assert!(!output.status.success() && said.contains("so `cpu` limits nothing"), "{said}");
        let told = home.run(&["check"]);
        let told = String::from_utf8(told.stderr).unwrap();
        assert!(
            told.contains("server `box`: cannot have its sandbox: there is no ")
                && told.contains("so `cpu` limits nothing"),
            "{told}"
        );
    }
    let output = home.run(&["call", "other__run", "code=r=1"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1\n", "another server is not affected");
}
