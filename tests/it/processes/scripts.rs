//! The process of a script: what it has, how it ends, and that nothing of it is left.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::{Program, assert_gone, below, entry, is_alive, server, wait};

/// The program with a server whose tool `act` answers, or never does.
fn program(on_call: &str, code: &Value) -> Program {
    let catalog = json!({ "mode": "code", "code": code });
    let entry = entry(&server("", on_call), "unused".as_ref());
    let config = json!({ "host": { "catalog": catalog }, "mcpServers": { "s": entry } });
    Program::start_with(&config, |program| Command::new(program))
}

/// Returns the processes of scripts of a host.
fn scripts(host: u32) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("__script") && is_alive(*pid)
    };
    below(host).into_iter().filter(is_one).collect()
}

fn begin(program: &mut Program, id: u64, script: &str) {
    let params = json!({ "name": "run_script", "arguments": { "script": script } });
    program.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
}

/// Starts a script that does not end, and returns its process.
fn begun(program: &mut Program, script: &str) -> u32 {
    begin(program, 7, script);
    wait(|| scripts(program.child.id()).first().copied())
}

const ENDLESS: &str = "for (;;) {}";

#[test]
fn whatever_a_script_does_it_ends_and_nothing_of_it_is_left() {
    let code =
        json!({ "tools": "all", "time": "60s", "cpu": "100ms", "memory": "16MiB", "calls": 50, "output": "1KiB" });
    let mut program = program("reply '{\"content\":[{\"type\":\"text\",\"text\":\"yes\"}]}'", &code);
    let host = program.child.id();
    for (id, (script, text)) in (100..).zip([
        (ENDLESS, "it computed for more than 100ms: do less, or raise host.catalog.code.cpu"),
        ("const f = () => Promise.resolve().then(f); await f()", "run_script: "),
        ("try { for (;;) {} } catch {} finally { for (;;) {} }", "raise host.catalog.code.cpu"),
        ("/(a+)+$/.test('a'.repeat(40) + 'b')", "host.catalog.code.cpu"),
        ("'x'.repeat(1e6).split('').map((x) => x.repeat(9)).sort().join(); for (;;) {}", "host.catalog.code"),
        ("const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)", "raise host.catalog.code.memory"),
        ("const a = []; for (;;) try { a.push('x'.repeat(1e6) + a.length) } catch {}", "host.catalog.code"),
        ("return new ArrayBuffer(1 << 30).byteLength", "memory"),
        ("const f = () => f() + 1; f()", "RangeError at line 1: Maximum call stack size exceeded"),
        ("await new Promise(() => {})", "Error: the script waits for a promise that nothing can settle"),
        (
            "for (let i = 0; i < 10000; i++) await call('s__act')",
            "made more than 50 calls: make fewer, or raise host.catalog.code.calls",
        ),
        ("await Promise.all(Array.from({ length: 10000 }, () => call('s__act')))", "raise host.catalog.code.calls"),
        (
            "await call('s__act', { text: 'x'.repeat(1 << 20) }); return 'x'.repeat(2000)",
            "raise host.catalog.code.output",
        ),
        ("const { open } = await import('fs'); open('/etc/passwd')", "run_script: "),
        ("return require('child_process').fork('x')", "ReferenceError at line 1: require is not defined"),
        ("return std.open('/etc/passwd')", "ReferenceError at line 1: std is not defined"),
        ("return os.exec(['sh'])", "ReferenceError at line 1: os is not defined"),
        ("return await fetch('http://127.0.0.1')", "ReferenceError at line 1: fetch is not defined"),
        ("new WebSocket('ws://127.0.0.1')", "ReferenceError at line 1: WebSocket is not defined"),
        ("process.exit(0)", "ReferenceError at line 1: process is not defined"),
        ("setTimeout(() => {}, 1)", "ReferenceError at line 1: setTimeout is not defined"),
        ("new Worker('x')", "ReferenceError at line 1: Worker is not defined"),
        ("throw new Error('x'.repeat(1e5))", "Error at line 1: x"),
        ("}); (async () => { throw 1", "run_script: "),
        ("Promise.prototype.then = null; JSON.parse = null; globalThis.call = null; throw 1", "Error: 1"),
        ("Object.defineProperty(Error.prototype, 'name', { get() { for (;;) {} } }); throw new Error('x')", "cpu"),
        ("throw { toString() { throw 1 } }", "run_script: "),
        ("throw new Proxy({}, { get() { throw 1 } })", "Error: what the script threw cannot be shown"),
        ("RegExp.prototype.exec = null; Map.prototype.get = null; throw new Error('x')", "cannot be shown"),
        (
            "await call('x'.repeat(1025))",
            "RangeError at line 1: call: the name of the tool has more than 1024 characters",
        ),
        ("throw { toJSON() { for (;;) {} } }", "cpu"),
        ("return { toJSON() { for (;;) {} } }", "cpu"),
        ("console.log({ toJSON() { for (;;) {} } })", "cpu"),
    ]) {
        begin(&mut program, id, script);
        let answer = program.answer(id);
        let told = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{script}: {answer}"));
        assert_eq!(answer["result"]["isError"], true, "{script}: {told}");
        assert!(told.contains(text) && !told.contains('\n'), "{script}: {told}");
        assert_eq!(scripts(host), [0; 0], "{script}");
    }
    begin(&mut program, 1, "for (let i = 0; i < 1000; i++) console.log('line', i); return 1");
    let log = program.answer(1)["result"]["content"][1]["text"].to_string();
    assert!(log.len() < 1400 && log.contains("more lines of the log are left out"), "{log}");
}

#[test]
fn the_process_of_a_script_has_nothing_that_it_does_not_need() {
    let mut program = program("sleep 600", &json!({ "tools": "all" }));
    let script = begun(&mut program, "await call('s__act')");
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{script}/{name}")).unwrap();
    // It has set its limits once it has asked for the call, which takes its server to start.
    let limits = wait(|| Some(read("limits")).filter(|limits| limits.contains("Max open files            0 ")));
    for (limit, most) in [("Max open files", "0"), ("Max file size", "0"), ("Max core file size", "0")] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        let words: Vec<&str> = line[limit.len()..].split_whitespace().collect();
        assert_eq!(words[..2], [most, most], "{line}");
    }
    for limit in ["Max cpu time", "Max address space", "Max processes"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert!(!line.contains("unlimited"), "{line}");
    }
    let environment = read("environ");
    assert!(environment.split_terminator('\0').all(|one| one.starts_with("_MCP_HOST_GUARD=")), "{environment}");
    let files = std::fs::read_dir(format!("/proc/{script}/fd")).unwrap().count();
    assert_eq!(files, 3, "its two pipes, and nothing as its standard error");
    let stat = read("stat");
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    assert_eq!((fields[2], fields[16]), (script.to_string().as_str(), "19"), "its own group, and the last to get time");
    assert!(read("status").contains("NoNewPrivs:\t1"));
    #[cfg(all(target_os = "linux", feature = "sandbox"))]
    if Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        let filtered = wait(|| Some(read("status")).filter(|status| status.contains("Seccomp:\t2")));
        assert!(filtered.contains("Seccomp_filters:\t1"), "{filtered}");
    }
    assert_eq!(std::fs::read_link(format!("/proc/{script}/cwd")).unwrap(), Path::new("/"));
}

#[test]
fn a_script_ends_with_its_call() {
    let mut program = program("sleep 600", &json!({ "tools": "all", "cpu": "60s" }));
    for script in [ENDLESS, "await call('s__act')"] {
        let process = begun(&mut program, script);
        program.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } }));
        assert_gone([process], Duration::from_secs(5));
    }
}

#[test]
fn h13_a_script_does_not_outlive_a_host_that_is_killed() {
    let mut program = program("sleep 600", &json!({ "tools": "all", "cpu": "60s" }));
    let script = begun(&mut program, ENDLESS);
    program.child.kill().unwrap();
    assert_gone([script], Duration::from_secs(2));
}

#[test]
fn a_script_ends_with_its_host() {
    let mut program = program("sleep 600", &json!({ "tools": "all", "cpu": "60s" }));
    let script = begun(&mut program, ENDLESS);
    drop(program.stdin.take());
    assert_gone([script], Duration::from_secs(15));
    program.child.wait().unwrap();
}
