//! Confined servers start, end, and change as others do; and what is told of them.

use std::path::Path;

use serde_json::json;

use super::support::{Home, wait};
use crate::watched::is_alive;

/// Takes a system call away from the program that it starts: `ENOSYS`.
const WITHOUT: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, int(sys.argv[1])), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
filter = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter) == 0
os.execv(sys.argv[2], sys.argv[2:])
"#;

const LANDLOCK: &str = "444";
const SECCOMP: &str = if cfg!(target_arch = "x86_64") { "317" } else { "277" };

/// Runs the program on a machine that lacks a system call. Returns its exit code, and all that it says.
fn without(call: &str, home: &Home, arguments: &[&str]) -> (Option<i32>, String) {
    let first = ["-c", WITHOUT, call, env!("CARGO_BIN_EXE_mcp-host")];
    let output = home.command_by(Path::new("python3"), &first, arguments).output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code(), said)
}

#[test]
fn h108_a_killed_host_leaves_no_confined_server() {
    let home = Home::new();
    let mut program = home.start(&json!({ "box": home.entry(&json!("default")) }));
    let code = "p = subprocess.Popen(['sleep', '600'], start_new_session=True, stdin=subprocess.DEVNULL, \
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); r = f'{os.getpid()} {p.pid}'";
    let pids = program.run("box", code).unwrap();
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    program.child.kill().unwrap();
    wait(|| (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
}

#[test]
fn h108_the_server_is_the_process_that_the_host_started() {
    let home = Home::new();
    let mut program = home.start(&json!({ "box": home.entry(&json!("default")) }));
    assert_eq!(program.run("box", "r = os.getppid()").unwrap(), program.child.id().to_string());
    assert_eq!(program.run("box", "r = os.getpgrp() == os.getpid()").unwrap(), "True");
    assert_eq!(program.run("box", "r = '_MCP_HOST_GUARD' in os.environ").unwrap(), "True");
}

#[test]
fn h108_a_reload_confines_a_server_and_frees_it() {
    let home = Home::new();
    let key = "r = open(real + '/.ssh/id').read()";
    let mut program = home.start(&json!({ "a": home.entry(&json!("off")) }));
    assert_eq!(program.run("a", key).as_deref(), Ok("a planted key"));
    home.write(&json!({ "a": home.entry(&json!("default")) }));
    wait(|| program.run("a", key).is_err_and(|error| error.starts_with("PermissionError: ")).then_some(()));
    home.write(&json!({ "a": home.entry(&json!("off")) }));
    wait(|| program.run("a", key).is_ok().then_some(()));
}

#[test]
fn h108_the_level_is_told() {
    let home = Home::new();
    home.write(&json!({ "a": home.entry(&json!("off")), "box": home.entry(&json!("default")) }));
    let output = home.run(&["check", "--connect"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let told: Vec<&str> = told.lines().filter(|line| line.contains("sandbox")).collect();
    // An older kernel does not keep signals, and the line goes on with that.
    assert!(matches!(told[..], [line] if line.starts_with("box: sandbox: default")), "{told:?}");
}

#[test]
fn h108_what_the_machine_lacks_fails_the_server_by_name() {
    let home = Home::new();
    let lack = "this kernel has no Landlock of version 3 or newer (Linux 6.2), so files are not kept";
    home.write(&json!({ "box": home.entry(&json!("default")), "other": home.entry(&json!("off")) }));
    let (code, said) = without(LANDLOCK, &home, &["check"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("server `box`: cannot have its sandbox: {lack}\n")), "{said}");
    let (code, said) = without(LANDLOCK, &home, &["call", "box__run", "code=r=1"]);
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains(&format!("this machine cannot give sandbox \"default\": {lack}")), "{said}");
    let (_, said) = without(LANDLOCK, &home, &["doctor"]);
    assert!(said.contains(&format!("D03  fail  commands: `box` cannot have all of its sandbox: {lack}\n")), "{said}");
    let (code, said) = without(LANDLOCK, &home, &["call", "other__run", "code=r=1"]);
    assert_eq!((code, said.as_str()), (Some(0), "1\n"), "another server is not affected");
}

#[test]
fn h108_weak_takes_what_there_is_and_says_so() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!({ "weak": true })) }));
    let (code, said) = without(LANDLOCK, &home, &["check", "--connect"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("box: sandbox: default, but this kernel has no Landlock"), "{said}");
    let (code, said) = without(LANDLOCK, &home, &["call", "box__run", "code=r=call(425, 0, 0)"]);
    assert_eq!((code, said.as_str()), (Some(0), "EPERM\n"), "system calls are kept all the same");
    let (code, said) =
        without(LANDLOCK, &home, &["call", "box__run", "code=r=resource.getrlimit(resource.RLIMIT_CORE)"]);
    assert_eq!((code, said.as_str()), (Some(0), "(0, 0)\n"));
}

#[test]
fn h108_a_launcher_that_cannot_confine_does_not_start_the_server() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!("default")) }));
    let (code, said) = without(SECCOMP, &home, &["call", "box__run", "code=r=1"]);
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("the server was not started, since it cannot be confined: seccomp: "), "{said}");
}

#[test]
fn h108_a_command_that_is_not_there_is_told_as_without_a_sandbox() {
    let home = Home::new();
    let mut entry = home.entry(&json!("default"));
    entry["command"] = json!("no-such-program");
    home.write(&json!({ "box": entry }));
    let output = home.run(&["call", "box__run", "code=r=1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot start `no-such-program`: not found on PATH"), "{said}");
}

#[test]
fn h108_a_listed_path_that_is_not_there_is_named() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!({ "read": ["~/nowhere"] })) }));
    let output = home.run(&["call", "box__run", "code=r=1"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let path = home.at("nowhere");
    assert!(said.contains(&format!("sandbox.read: {} does not exist, or cannot be reached", path.display())), "{said}");
    assert!(said.contains("\nhelp: create it, or take it out of the list\n"), "{said}");
}

#[test]
fn h108_a_refusal_is_explained_without_the_servers_words() {
    let home = Home::new();
    let mut entry = home.entry(&json!("default"));
    entry["command"] = json!("cat");
    entry["args"] = json!([home.at(".ssh/id")]);
    home.write(&json!({ "box": entry }));
    let output = home.run(&["check", "--connect"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let help: Vec<&str> = said.lines().filter(|line| line.starts_with("help: its sandbox may have refused")).collect();
    assert!(matches!(help[..], [line] if line.contains("`box`") && !line.contains(".ssh")), "{said}");
}

#[test]
fn h108_a_projects_servers_are_confined_and_others_are_not() {
    let home = Home::new();
    let mut entry = home.entry(&json!(null));
    entry.as_object_mut().unwrap().remove("sandbox");
    let code = "code=r=os.environ['HOME'] == real";
    home.write(&json!({ "a": entry }));
    let output = home.run(&["call", "a__run", code]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "True\n");
    std::fs::create_dir(home.at("project")).unwrap();
    std::fs::copy(home.at("mcp.json"), home.at("project/mcp-host.json")).unwrap();
    let in_project = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-host"));
        command.args(arguments).current_dir(home.at("project")).env_clear().env("HOME", home.at(""));
        command.env("PATH", std::env::var_os("PATH").unwrap()).output().unwrap()
    };
    let approved = in_project(&["approve", "--yes"]);
    assert!(approved.status.success(), "{approved:?}");
    let output = in_project(&["call", "a__run", code]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "False\n", "{}", String::from_utf8_lossy(&output.stderr));
}
