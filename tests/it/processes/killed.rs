//! A host that is killed, its guard, and what is left of both.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::support::{Program, assert_gone, below, entry, guard_of, is_alive, server, stat, wait};

/// Starts processes that become orphans: prints the pids of itself, of a grandchild, of one in another session, and of
/// one in another session whose parent is gone.
const FAMILY: &str = r#"trap '' HUP TERM
sleep 600 </dev/null >/dev/null 2>&1 & g=$!
setsid sleep 600 </dev/null >/dev/null 2>&1 & e=$!
(setsid sh -c 'echo $$ >>"$0"; exec sleep 600' "$0" </dev/null >/dev/null 2>&1 &)
echo $$ >>"$0"; echo $g >>"$0"; echo $e >>"$0""#;

fn family() -> (Program, Vec<u32>) {
    let home = tempfile::tempdir().unwrap();
    let file = home.keep().join("pids");
    let program = Program::start(&json!({ "family": entry(&server(FAMILY, "reply '{}'"), &file) }));
    let lines = wait(|| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        (text.lines().count() >= 4 && text.ends_with('\n')).then_some(text)
    });
    let pids: Vec<u32> = lines.lines().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    (program, pids)
}

#[test]
fn h13_nothing_outlives_a_host_that_is_killed() {
    let (mut program, pids) = family();
    let guard = wait(|| guard_of(program.child.id()));
    program.child.kill().unwrap();
    assert_gone(pids, Duration::from_secs(2));
    // It does not stay either.
    assert_gone([guard], Duration::from_secs(2));
}

#[test]
fn h13_a_program_for_headers_does_not_outlive_its_host() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("pids");
    let script = format!("{FAMILY}\nwait");
    let helper = json!(["sh", "-c", script, file]);
    let mut program =
        Program::start(&json!({ "a": { "type": "http", "url": "http://127.0.0.1:9/mcp", "headersHelper": helper } }));
    let lines = wait(|| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        (text.lines().count() >= 4 && text.ends_with('\n')).then_some(text)
    });
    program.child.kill().unwrap();
    assert_gone(lines.lines().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>(), Duration::from_secs(2));
}

#[test]
fn h13_a_guard_that_is_killed_is_replaced() {
    let (mut program, pids) = family();
    let host = program.child.id();
    let first = wait(|| guard_of(host));
    kill_process(Pid::from_raw(first as i32).unwrap(), Signal::KILL).unwrap();
    let second = wait(|| guard_of(host).filter(|guard| *guard != first));
    assert!(pids.iter().all(|pid| is_alive(*pid)), "the servers do not notice");
    program.child.kill().unwrap();
    assert_gone(pids, Duration::from_secs(2));
    assert_gone([second], Duration::from_secs(2));
}

#[test]
fn h13_the_guard_has_nothing_of_the_host() {
    let (mut program, pids) = family();
    let guard = wait(|| guard_of(program.child.id()));
    let (_, _, session) = stat(guard).unwrap();
    assert_eq!(session, guard, "a Ctrl-C at the terminal of the host is not for it");
    // It may just be looking at its host, through a descriptor of its own.
    let files = std::fs::read_dir(format!("/proc/{guard}/fd")).unwrap().flatten();
    let targets = files.filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.display().to_string()));
    let open: Vec<String> = targets.filter(|file| !file.starts_with("/proc/")).collect();
    let pipes = open.iter().filter(|file| file.starts_with("pipe:")).count();
    assert_eq!((pipes, open.iter().filter(|file| *file == "/dev/null").count(), open.len()), (1, 2, 3), "{open:?}");
    assert_eq!(std::fs::read(format!("/proc/{guard}/environ")).unwrap(), b"");
    program.child.kill().unwrap();
    assert_gone(pids, Duration::from_secs(2));
}

#[test]
fn h12_what_left_the_group_ends_with_its_server() {
    let (mut program, pids) = family();
    // The end of its input ends the program, cleanly.
    drop(program.stdin.take());
    assert!(program.child.wait().unwrap().success());
    assert_gone(pids, Duration::from_secs(2));
}

#[test]
fn h13_one_guard_for_all_children_and_none_without() {
    let quiet = server("", "reply '{}'");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut program = Program::start(&json!({ "a": entry(&quiet, file.path()), "b": entry(&quiet, file.path()) }));
    program.ask(1, "tools/list", &json!({}));
    let host = program.child.id();
    let guards = |host| {
        below(host)
            .into_iter()
            .filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "mcp-host-guard\n")
            })
            .count()
    };
    assert_eq!(guards(host), 1);
    let program = Program::start(&json!({}));
    assert_eq!(guards(program.child.id()), 0);
}

#[test]
fn h16_what_the_program_was_started_with_is_not_for_servers() {
    let home = tempfile::tempdir().unwrap();
    let (lock, out) = (home.path().join("lock"), home.path().join("out"));
    std::fs::write(&lock, "").unwrap();
    let script = server(r#"ls -l /proc/$$/fd >"$0"; echo >>"$0""#, "reply '{}'");
    let program = Program::start_by(&json!({ "a": entry(&script, &out) }), |program| {
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec 9<"$1"; shift; exec "$0" "$@""#, program]).arg(&lock);
        command
    });
    let text = wait(|| std::fs::read_to_string(&out).ok().filter(|text| text.ends_with("\n\n")));
    let held = std::fs::read_link(format!("/proc/{}/fd/9", program.child.id())).unwrap();
    assert_eq!(held, lock, "the program itself keeps what it was given");
    assert!(!text.contains("/lock"), "{text}");
}

#[test]
fn h15_too_few_descriptors_are_waited_for() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let quiet = server("", "reply '{\"content\":[]}'");
    let servers: serde_json::Map<_, _> = (0..12).map(|n| (format!("s{n}"), entry(&quiet, file.path()))).collect();
    let mut program = Program::start_by(&servers.into(), |program| {
        let mut command = Command::new("sh");
        command.args(["-c", r#"ulimit -n 32; exec "$0" "$@""#, program]);
        command
    });
    // It serves with those that fit.
    let tools = program.ask(1, "tools/list", &json!({}));
    let count = tools["result"]["tools"].as_array().unwrap().len();
    assert!((1..12).contains(&count), "{count} of 12 servers: {tools}");
    let name = tools["result"]["tools"][0]["name"].clone();
    let answer = program.ask(2, "tools/call", &json!({ "name": name, "arguments": {} }));
    assert!(answer.get("result").is_some(), "{answer}");
}

#[test]
fn a_guard_without_a_host_ends_at_once() {
    let mut guard = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    guard.args(["__guard", "nobody"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut guard = guard.spawn().unwrap();
    let mut said = String::new();
    guard.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(guard.wait().unwrap().success());
    assert_eq!(said, "");
}
