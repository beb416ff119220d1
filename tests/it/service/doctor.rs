//! `doctor`: one fault after the other is planted, and exactly that one is found.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{own, works};
use crate::reload::program::mcp_host;

/// What was found: the numbers of the checks with their verdicts, and all that was said.
fn found(home: &Path, vars: &[(&str, &str)]) -> (Vec<String>, Value) {
    let mut command = mcp_host(home, &["doctor", "--json"]);
    command.env("PATH", format!("{}/bin:/usr/bin:/bin", home.display())).envs(vars.iter().copied());
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let fails = report["checks"].as_array().unwrap().iter().any(|check| check["verdict"] == "fail");
    assert_eq!((output.status.code(), report["ok"].as_bool()), (Some(i32::from(fails)), Some(!fails)));
    // Hosts that other tests kill at the same time may have left something behind for a moment.
    let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["check"] != "D12");
    let bad = checks.filter(|check| check["verdict"] != "ok" && check["verdict"] != "unchecked");
    let bad = bad.map(|check| format!("{} {}", check["check"].as_str().unwrap(), check["verdict"].as_str().unwrap()));
    (bad.collect(), report)
}

/// A config with these servers beside one that works, and an address that is free.
fn home(servers: &Value) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut all = servers.clone();
    all["works"] = works();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    own(home.path(), &json!({ "host": { "listen": format!("127.0.0.1:{port}") }, "mcpServers": all }));
    std::fs::create_dir(home.path().join("bin")).unwrap();
    home
}

/// Asserts that exactly this was found, once, about what names `word`.
#[track_caller]
fn only(home: &Path, expected: &str, word: &str) {
    let (bad, report) = found(home, &[]);
    assert_eq!(bad, [expected], "{report:#}");
    let check = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| expected.starts_with(check["check"].as_str().unwrap()));
    let findings = check.unwrap()["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{report:#}");
    assert!(findings[0].to_string().contains(word), "{report:#}");
    assert!(findings[0]["help"].as_str().is_some_and(|help| !help.is_empty()));
}

/// Writes a program.
fn program(home: &Path, name: &str, text: &str) {
    let file = home.join("bin").join(name);
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let home = home(&json!({}));
    let (bad, report) = found(home.path(), &[]);
    assert!(bad.is_empty(), "{report:#}");
    assert!(!home.path().join("mcp-host/.doctor").exists());
}

#[test]
fn d01_a_file_that_cannot_be_read() {
    let home = home(&json!({}));
    std::fs::write(home.path().join("mcp-host/config.json"), "{ \"mcpServers\": ").unwrap();
    only(home.path(), "D01 fail", "config.json");
}

#[test]
fn without_a_config_no_check_of_its_contents_says_ok() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("bin")).unwrap();
    let (bad, report) = found(home.path(), &[]);
    assert_eq!(bad, ["D01 fail"], "{report:#}");
    let checks = report["checks"].as_array().unwrap().iter();
    let unchecked =
        checks.filter(|check| check["verdict"] == "unchecked").map(|check| check["check"].as_str().unwrap());
    let wanted = ["D02", "D03", "D04", "D05", "D06", "D07", "D08", "D09", "D10", "D11", "D14", "D15"];
    assert_eq!(unchecked.collect::<Vec<_>>(), wanted);
    let mut command = mcp_host(home.path(), &["doctor"]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(said.contains("\nD02  -     variables: no config\n"), "{said}");
}

#[test]
fn d02_d03_an_entry_without_its_variable_still_has_its_command_looked_at() {
    let home = home(&json!({
        "lame": { "command": "no-such-command", "env": { "KEY": "${KEY_OF_THE_TEST}" } },
        "vague": { "command": "${COMMAND_OF_THE_TEST}" },
    }));
    let (bad, report) = found(home.path(), &[]);
    assert_eq!(bad, ["D02 fail", "D03 fail"], "{report:#}");
    let of = |number: usize| report["checks"][number]["findings"].as_array().unwrap().len();
    assert_eq!((of(1), of(2)), (2, 1), "{report:#}");
}

#[test]
fn d05_a_server_that_prints_what_is_no_message() {
    let mut noisy = scripted("2025-06-18", &json!([]));
    let script = noisy["args"][1].as_str().unwrap_or_default().to_owned();
    noisy["args"][1] = json!(format!("echo starting up; {script}"));
    only(home(&json!({ "noisy": noisy })).path(), "D05 warn", "1 line");
}

#[test]
fn d02_a_variable_that_is_not_set() {
    let mut broken = works();
    broken["env"] = json!({ "TOKEN": "${PLANTED}" });
    let home = home(&json!({ "broken": broken }));
    only(home.path(), "D02 fail", "PLANTED");
    assert!(found(home.path(), &[("PLANTED", "x")]).0.is_empty());
}

#[test]
fn d03_a_command_that_is_missing() {
    let home = home(&json!({ "broken": { "command": "planted-command" } }));
    only(home.path(), "D03 fail", "planted-command");
}

#[test]
fn d04_a_runtime_that_is_too_old() {
    let home = home(&json!({ "broken": { "command": "npx", "args": ["-y", "x"] } }));
    program(home.path(), "npx", "#!/bin/sh\n");
    program(home.path(), "node", "#!/bin/sh\necho v12.22.0\n");
    only(home.path(), "D04 fail", "Node.js 12");
}

#[test]
fn d05_a_server_that_does_not_start() {
    let home = home(&json!({ "broken": { "command": "sh", "args": ["-c", "echo planted words >&2; exit 3"] } }));
    only(home.path(), "D05 fail", "broken");
}

/// A server over stdio that speaks this revision, and lists these tools.
fn scripted(revision: &str, tools: &Value) -> Value {
    let hello = json!({ "protocolVersion": revision, "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" } });
    let answer = |result: &str| {
        format!("printf '%s\\n' \"{{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":${result}}}\"")
    };
    let script = format!(
        "while read -r line; do id=$(printf '%s' \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p')\n\
         case \"$line\" in *'\"initialize\"'*) {};; *tools/list*) {};; *'\"id\":'*) {};; esac; done",
        answer("HELLO"),
        answer("TOOLS"),
        answer("NOTHING"),
    );
    let env = json!({ "HELLO": hello.to_string(), "TOOLS": json!({ "tools": tools }).to_string(), "NOTHING": "{}" });
    json!({ "command": "sh", "args": ["-c", script], "env": env })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

#[test]
fn d06_a_server_of_the_first_revision() {
    let home = home(&json!({ "old": scripted("2024-11-05", &json!([])) }));
    only(home.path(), "D06 warn", "2024-11-05");
}

/// Answers every request with this status.
fn web(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream
                .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes());
        }
    });
    url
}

/// A server that wants a login, and its authorization server with these members of metadata.
fn wants_login(more: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let mut issuer = json!({
        "issuer": base, "token_endpoint": format!("{base}/token"), "code_challenge_methods_supported": ["S256"],
    });
    for (name, value) in more.as_object().unwrap() {
        issuer[name] = value.clone();
    }
    let url = format!("{base}/mcp");
    let resource = json!({ "resource": url, "authorization_servers": [base] });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let (status, body) = match head.split(' ').nth(1).unwrap_or_default() {
                "/mcp" => ("401 Unauthorized\r\nWWW-Authenticate: Bearer", String::new()),
                path if path.contains("oauth-protected-resource") => ("200 OK", resource.to_string()),
                path if path.contains("oauth-authorization-server") => ("200 OK", issuer.to_string()),
                path if path.starts_with("/register") => panic!("a client was registered"),
                _ => ("404 Not Found", String::new()),
            };
            let _ = stream.write_all(
                format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
                .as_bytes(),
            );
        }
    });
    url
}

#[test]
fn d07_a_login_that_is_missing() {
    let ways = json!({ "authorization_endpoint": "http://127.0.0.1:1/authorize", "registration_endpoint": "http://127.0.0.1:1/register" });
    let url = wants_login(&ways);
    let issuer = url.trim_end_matches("/mcp").to_owned();
    let home = home(&json!({ "broken": { "url": url } }));
    only(home.path(), "D07 warn", &format!("`broken` wants a login: {issuer} would sign you in"));
}

#[test]
fn d07_a_login_that_would_fail() {
    for (metadata, why) in [
        (json!({ "authorization_endpoint": "http://127.0.0.1:1/a" }), "does not let clients register themselves"),
        (json!({ "registration_endpoint": "http://127.0.0.1:1/r" }), "has no authorization endpoint"),
        (
            json!({ "authorization_endpoint": "http://127.0.0.1:1/a", "code_challenge_methods_supported": ["plain"] }),
            "S256",
        ),
        (json!({ "issuer": "https://other.example" }), "names a different issuer"),
    ] {
        let home = home(&json!({ "broken": { "url": wants_login(&metadata) } }));
        only(home.path(), "D07 fail", why);
    }
}

#[test]
fn d08_a_server_without_the_tls_that_it_promises() {
    let url = web("200 OK").replace("http:", "https:");
    let home = home(&json!({ "broken": { "url": url } }));
    only(home.path(), "D08 fail", "broken");
}

#[test]
fn d09_names_that_clients_refuse() {
    let home = home(&json!({}));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = json!({ "listen": format!("127.0.0.1:{port}"), "naming": { "maxLength": 64 } });
    let tools = json!([tool(&"t".repeat(50))]);
    own(home.path(), &json!({ "host": host, "mcpServers": { "long": scripted("2025-11-25", &tools) } }));
    only(home.path(), "D09 warn", "49 characters");
}

#[test]
fn d09_more_tools_than_a_client_takes() {
    let tools: Vec<Value> = (0..41).map(|number| tool(&format!("t{number}"))).collect();
    let home = home(&json!({ "many": scripted("2025-11-25", &json!(tools)) }));
    let config = home.path().join("mcp-host/config.json");
    let entry = json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["stdio", "--config", config] });
    std::fs::create_dir(home.path().join(".cursor")).unwrap();
    std::fs::write(home.path().join(".cursor/mcp.json"), json!({ "mcpServers": { "mcp-host": entry } }).to_string())
        .unwrap();
    only(home.path(), "D09 warn", "Cursor takes 40 tools");
}

#[test]
fn d10_a_definition_that_had_to_be_dropped() {
    let home = home(&json!({ "odd": scripted("2025-11-25", &json!([tool("a"), { "inputSchema": {} }])) }));
    only(home.path(), "D10 warn", "odd");
}

#[test]
fn d12_a_process_that_a_host_left_behind() {
    let home = home(&json!({}));
    let mut left = Command::new("sleep");
    left.env("_MCP_HOST_GUARD", "0123456789abcdef0123456789abcdef/1").arg("600").stdin(Stdio::null());
    let mut left = left.spawn().unwrap();
    let (_, report) = found(home.path(), &[]);
    left.kill().unwrap();
    left.wait().unwrap();
    let orphans = report["checks"][11]["findings"].to_string();
    assert!(orphans.contains(&format!("process {} (`sleep`)", left.id())), "{orphans}");
}

#[test]
fn d13_a_state_folder_that_others_may_write_into() {
    let home = home(&json!({}));
    std::fs::set_permissions(home.path().join("mcp-host"), std::fs::Permissions::from_mode(0o777)).unwrap();
    only(home.path(), "D13 fail", "chmod 700");
}

#[test]
fn d14_an_address_that_is_taken() {
    let home = home(&json!({}));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    own(home.path(), &json!({ "host": { "listen": listen }, "mcpServers": { "works": works() } }));
    only(home.path(), "D14 fail", &listen);
}

#[test]
fn d15_a_client_that_starts_the_same_server() {
    let home = home(&json!({}));
    std::fs::create_dir(home.path().join(".cursor")).unwrap();
    std::fs::write(home.path().join(".cursor/mcp.json"), json!({ "mcpServers": { "mine": works() } }).to_string())
        .unwrap();
    only(home.path(), "D15 warn", "Cursor");
}

#[test]
fn d01_a_project_that_is_not_approved() {
    let home = home(&json!({}));
    std::fs::write(home.path().join("mcp-host.json"), json!({ "mcpServers": { "theirs": works() } }).to_string())
        .unwrap();
    only(home.path(), "D01 warn", "mcp-host approve theirs");
}

#[test]
fn d08_a_clock_that_is_behind_a_file() {
    let home = home(&json!({}));
    let config = std::fs::File::options().append(true).open(home.path().join("mcp-host/config.json")).unwrap();
    config.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(400 * 24 * 3600)).unwrap();
    only(home.path(), "D08 warn", "written in the future");
}

/// Installs a service by hand: its program, and a line of its unit. Its manager says that it is in this state.
fn service(home: &Path, program_of_it: &str, line: &str, state: &str) {
    let unit = home.join("systemd/user/mcp-host.service");
    std::fs::create_dir_all(unit.parent().unwrap()).unwrap();
    std::fs::write(unit, format!("[Service]\nExecStart={program_of_it} serve\n{line}\n")).unwrap();
    program(
        home,
        "systemctl",
        &format!("#!/bin/sh\ncase \"$*\" in *is-enabled*) echo enabled;; *) echo {state};; esac\n"),
    );
}

#[test]
fn d02_a_variable_that_the_service_lacks() {
    let mut broken = works();
    broken["env"] = json!({ "TOKEN": "${PLANTED}" });
    let home = home(&json!({ "broken": broken }));
    service(home.path(), env!("CARGO_BIN_EXE_mcp-host"), "Environment=PATH=/usr/bin:/bin", "active");
    let (bad, report) = found(home.path(), &[("PLANTED", "x")]);
    assert_eq!(bad, ["D02 warn"], "{report:#}");
    assert!(report["checks"][1].to_string().contains("--env-file"), "{report:#}");
}

#[test]
fn d03_a_command_that_the_service_does_not_find() {
    let home = home(&json!({ "mine": { "command": "planted", "args": ["__demo-server"] } }));
    program(home.path(), "planted", &format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_mcp-host")));
    service(home.path(), env!("CARGO_BIN_EXE_mcp-host"), "Environment=PATH=/usr/bin:/bin", "active");
    only(home.path(), "D03 warn", "in the service, `mine` cannot start `planted`");
}

#[test]
fn d14_a_service_that_does_not_run_or_has_lost_its_program() {
    let home = home(&json!({}));
    service(home.path(), env!("CARGO_BIN_EXE_mcp-host"), "Environment=PATH=/usr/bin:/bin", "failed");
    only(home.path(), "D14 warn", "mcp-host service status");
    service(home.path(), "/no/such/mcp-host", "Environment=PATH=/usr/bin:/bin", "failed");
    only(home.path(), "D14 fail", "/no/such/mcp-host");
}
