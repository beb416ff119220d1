//! Failing starts as users see them: the output, whose words it quotes, and the suggested fix.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use serde_json::{Value, json};

/// The program in its own home with these servers and variables, and no other environment.
fn program(home: &Path, config: &Value, variables: &[(&str, &str)], args: &[&str]) -> Command {
    let file = home.join("mcp.json");
    std::fs::write(&file, config.to_string()).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).envs(places.map(|place| (place, home)));
    command.envs(variables.iter().copied()).current_dir(home).stdin(Stdio::null());
    command.args(args).args(["--config", "mcp.json"]);
    command
}

/// Returns exit code, stdout, and stderr, without log records.
fn run(config: &Value, variables: &[(&str, &str)], args: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = program(home.path(), config, variables, args).output().unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap().replace(home.path().to_str().unwrap(), "~");
        let lines = text.lines().filter(|line| !is_record(line)).map(|line| format!("{}\n", line.trim_end()));
        lines.collect::<String>()
    };
    format!("exit {}\n{}{}", output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Returns the log records, without their times.
fn log(config: &Value, args: &[&str]) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let output = program(home.path(), config, &[], args).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines()
        .filter(|line| is_record(line))
        .filter_map(|line| Some(line.split_once(' ')?.1.trim().to_owned()))
        .collect()
}

fn is_record(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_digit()) && line.contains("Z ")
}

/// A config with one shell server, and more members in its entry.
fn shell(script: &str, more: &Value) -> Value {
    let mut entry = json!({ "command": "sh", "args": ["-c", script] });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "mcpServers": { "it": entry } })
}

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/stderr/{name}.txt", env!("CARGO_MANIFEST_DIR"))
}

/// Starts an HTTP server that gives this answer to everything, and returns its port.
fn answering(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.push(byte[0]);
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

fn asked_at(path: &str, more: &Value, answer: &'static str) -> String {
    let port = answering(answer);
    let mut entry = json!({ "url": format!("http://127.0.0.1:{port}{path}") });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config = json!({ "mcpServers": { "it": entry } });
    run(&config, &[], &["tools"]).replace(&port.to_string(), "PORT")
}

#[test]
fn first_hour_h2_the_line_that_tells_is_the_cause_and_the_last_lines_are_kept() {
    let config = shell(&format!("cat '{}' >&2; exit 1", fixture("npx-missing")), &json!({}));
    assert_snapshot!(run(&config, &[("KUBECONFIG", "x")], &["tools"]), @r#"
    exit 4
    error: server `it` did not start: the process ended (exit code 1): npm error 404 The requested resource 'no-such-server@*' could not be found or you do not have permission to access it.
    help: there is no such package, or it is private: look for a misspelt name in `args` of `it`
    "#);
    let home = tempfile::tempdir().unwrap();
    let output = program(home.path(), &config, &[], &["check", "--connect", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&status[0]["state"], status[0]["stderr"].as_array().unwrap().len()), (&"failed".into(), 8), "{status}");
    assert_eq!(status[0]["stderr"][0], "npm error code E404");
    let log = log(&config, &["tools", "-v"]);
    assert!(
        log.iter().any(|line| line.contains("npm error A complete log of this run")),
        "the log has them whole: {log:?}"
    );
}

#[test]
fn first_hour_h3_a_start_that_hangs_with_a_prompt_says_so() {
    // It answers nothing and keeps its standard error open.
    let config =
        shell("printf 'Please enter your API key: ' >&2; exec sleep 600", &json!({ "startTimeout": "1500ms" }));
    assert_snapshot!(run(&config, &[], &["tools"]), @r#"
    exit 4
    error: server `it` did not start: no answer within 1.5s (startTimeout); on standard error it said: Please enter your API key:
    help: nobody can type into a server: set what it asks for in `env` or `args` of `it`, as its documentation says
    "#);
    assert_snapshot!(run(&config, &[], &["call", "it__x"]), @r#"
    exit 4
    error: server `it` did not start: no answer within 1.5s (startTimeout); on standard error it said: Please enter your API key:
    help: nobody can type into a server: set what it asks for in `env` or `args` of `it`, as its documentation says
    "#);
    let shown = run(&config, &[], &["check", "--connect"]);
    assert!(shown.contains("failed") && !shown.contains("initializing"), "{shown}");
    assert!(
        shown.contains("no answer within 1.5s (startTimeout); on standard error it said: Please enter your API key:"),
        "{shown}"
    );
}

#[test]
fn first_hour_h6_a_failed_start_names_what_it_did_not_get_and_how_it_gets_it() {
    let variables = [("KUBECONFIG", "/k"), ("AWS_PROFILE", "p"), ("HTTPS_PROXY", "http://p:1"), ("MY_OWN", "m")];
    let names = "^(KUBECONFIG|AWS_PROFILE|HTTPS_PROXY|MY_OWN|MCP_HOST_SECRET_KEY)=";
    let script = &format!("env | grep -E '{names}' | sort | tr '\\n' ' ' >&2; exit 3");
    assert_snapshot!(run(&shell(script, &json!({})), &variables, &["tools"]), @r#"
    exit 4
    error: server `it` did not start: the process ended (exit code 3): HTTPS_PROXY=http://p:1
    help: environment variables that are set here and not passed to the server: AWS_PROFILE, KUBECONFIG; if it needs them, put "inheritEnv": ["AWS_PROFILE", "KUBECONFIG"] into its entry
    help: mcp-host check --connect it -v --config mcp.json
    "#);
    let shown = run(&shell(script, &json!({ "inheritEnv": ["KUBECONFIG", "AWS_*", "M*"] })), &variables, &["tools"]);
    assert!(
        shown.contains("(exit code 3): AWS_PROFILE=p HTTPS_PROXY=http://p:1 KUBECONFIG=/k MY_OWN=m")
            && !shown.contains("not passed"),
        "{shown}"
    );
    // For all servers at once; what belongs to the host stays here.
    let mut config = shell(script, &json!({}));
    config["host"] = json!({ "inheritEnv": ["*"] });
    let key = "c".repeat(64);
    let all = [&variables[..], &[("MCP_HOST_SECRET_KEY", &key)]].concat();
    let shown = run(&config, &all, &["tools"]);
    assert!(shown.contains("(exit code 3): AWS_PROFILE=p HTTPS_PROXY=http://p:1 KUBECONFIG=/k MY_OWN=m"), "{shown}");
}

#[test]
fn first_hour_h6_a_projects_config_passes_nothing_on_to_all() {
    let home = tempfile::tempdir().unwrap();
    let config = json!({ "host": { "inheritEnv": ["*"] }, "mcpServers": {} });
    std::fs::write(home.path().join("mcp-host.json"), config.to_string()).unwrap();
    let mut command = program(home.path(), &config, &[], &[]);
    command = {
        let mut plain = Command::new(command.get_program());
        plain.env_clear().env("HOME", home.path()).current_dir(home.path()).arg("check");
        plain
    };
    let said = command.output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("a project's config cannot configure the host, ignored"), "{said}");
}

#[test]
fn noise_on_stdout_is_one_line_and_whole_on_request() {
    let config = shell("for n in 1 2 3; do echo banner $n; done; exit 1", &json!({}));
    let noise =
        |lines: Vec<String>| -> Vec<String> { lines.into_iter().filter(|line| line.contains("banner")).collect() };
    assert_eq!(
        noise(log(&config, &["tools"])),
        [
            "WARN mcp_host::transport::noise: 3 lines on stdout that are not MCP messages: first \"banner 1\" server=\"it\""
        ]
    );
    assert_eq!(noise(log(&config, &["tools", "-v"])).len(), 4, "each, and the sum");
}

#[test]
fn a_wrong_path_is_shown_with_the_likely_ones() {
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let page =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>";
    assert_snapshot!(asked_at("/mcp/v1?key=hunter2", &json!({}), missing), @r#"
    exit 4
    error: cannot connect to server `it`: it speaks neither Streamable HTTP (http://127.0.0.1:PORT/mcp/v1 answered 404) nor HTTP with SSE (http://127.0.0.1:PORT/mcp/v1 answered 404)
    help: the endpoint may be at /mcp or /sse: correct the path in `url`
    "#);
    assert_snapshot!(asked_at("/mcp", &json!({ "type": "http" }), missing), @r#"
    exit 4
    error: cannot connect to server `it`: http://127.0.0.1:PORT/mcp answered 404
    help: the endpoint may be at /sse: correct the path in `url`
    "#);
    assert_snapshot!(asked_at("/", &json!({}), page), @r#"
    exit 4
    error: cannot connect to server `it`: http://127.0.0.1:PORT/ answered with text/html, not with JSON or an event stream
    help: the endpoint may be at /mcp or /sse: correct the path in `url`
    "#);
    let shown = asked_at("/k3yk3yk3yk3yk3yk3y/sse", &json!({ "type": "sse" }), page);
    assert!(shown.contains("http://127.0.0.1:PORT/***/sse answered GET with text/html"), "{shown}");
}

#[test]
fn a_bare_401_wants_a_key_first_and_a_login_second() {
    let bare =
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_snapshot!(asked_at("/mcp", &json!({ "type": "http" }), bare), @r#"
    exit 3
    error: server `it` wants authorization: http://127.0.0.1:PORT wants a token: it answered 401 and does not say where to sign in
    help: put a token for it into `headers` of its entry, such as `Authorization: Bearer TOKEN`; if it has a login: mcp-host login it --config mcp.json
    "#);
    let speaks = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"http://127.0.0.1:9/x\"\r\n\
                  Content-Length: 0\r\nConnection: close\r\n\r\n";
    let shown = asked_at("/mcp", &json!({ "type": "http" }), speaks);
    assert!(shown.contains("help: mcp-host login it --config mcp.json, or put a token"), "{shown}");
}
