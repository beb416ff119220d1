//! The program from outside: what it prints, where, and how it exits.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;

/// The program with a home of its own and no other environment, in a folder of its own.
fn mcp_host(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "USERPROFILE", "APPDATA"];
    command.env_clear().envs(places.map(|place| (place, home))).current_dir(home).args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    shown(&mcp_host(home.path(), args).output().unwrap(), home.path())
}

/// Runs with this text as `mcp.json`.
fn run_with(config: &str, args: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config).unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    shown(&mcp_host(home.path(), args).output().unwrap(), home.path())
}

/// Exit code, stdout and stderr, each under its name.
fn shown(output: &Output, home: &Path) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(home.to_str().unwrap(), "~");
    let parts = [("stdout", text(&output.stdout)), ("stderr", text(&output.stderr))];
    let parts = parts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("--- {name}\n{text}"));
    format!("exit {}\n{}", output.status.code().unwrap(), parts.collect::<String>())
}

#[test]
fn no_arguments_show_the_next_steps() {
    assert_snapshot!(run(&[]), @"
    exit 0
    --- stdout
    One endpoint for many MCP servers

    Usage: mcp-host [OPTIONS] [COMMAND]

    Commands:
      serve      Serve all servers at one HTTP endpoint
      stdio      Serve all servers over stdin and stdout, for clients that start their servers
      check      Check the config; nothing is started without --connect
      tools      List the tools
      resources  List the resources and resource templates
      prompts    List the prompts
      call       Call a tool
      read       Read a resource
      prompt     Get a prompt
      approve    Show what a project's config would start, and approve it
      status     Ask a running `serve` how its servers are
      login      Sign in to a server of a running `serve`
      logout     Forget the login of a server of a running `serve`, and tell whoever gave it
      auth       What logins a running `serve` holds; what is secret is not shown
      token      Make a token for a client of the endpoint

    Options:
      -c, --config <FILE>  A config file; any MCP client's will do. Given more than once, a later file wins by server name
          --json           Print data for machines
      -v, --verbose...     Log more on stderr; twice for every message, three times for its contents
      -q, --quiet          Say nothing but data and errors
      -h, --help           Print help
      -V, --version        Print version

    Start here:
      mcp-host serve --demo             two bundled servers at one endpoint, nothing to install
      mcp-host check --config FILE      what the config of your MCP client says, nothing started
      mcp-host serve --config FILE      its servers at one endpoint
    ");
}

#[test]
fn h80_a_token_is_told_once_and_its_hash_goes_into_the_config() {
    let config = r#"{ "mcpServers": { "a": { "command": "a" } }, "host": { LINE } }"#;
    let minted = |config: &str| {
        let shown = run_with(config, &["token", "laptop", "--json", "--config", "mcp.json"]);
        let line = shown.strip_prefix("exit 0\n--- stdout\n").unwrap_or_else(|| panic!("{shown}"));
        serde_json::from_str::<serde_json::Value>(line).unwrap()
    };
    let first = minted(&config.replace("LINE", ""));
    let token = first["token"].as_str().unwrap();
    assert_eq!((token.len(), &token[..5]), (48, "mcph_"), "256 bits");
    let client = mcp_host::config::BearerClient::of_token("laptop", token).unwrap();
    assert_eq!(first["hash"], client.to_string());
    assert_eq!(first["into"], "host");
    assert_ne!(minted(config)["token"], token, "each is another");
    // What it prints is what the config takes, and the next one goes beside it.
    let filled = config.replace("LINE", first["line"].as_str().unwrap());
    assert!(run_with(&filled, &["check", "--config", "mcp.json"]).starts_with("exit 0"));
    let second = minted(&filled);
    assert_eq!(second["into"], "host.auth.clients");
    assert!(second["line"].as_str().unwrap().starts_with(r#""laptop": "sha256:"#));
    let shown = run(&["token", "a b"]);
    assert_snapshot!(shown, @r"
    exit 2
    --- stderr
    error: a client cannot be called that
    help: take up to 64 of letters, digits, - _ and .
    ");
}

#[test]
fn bad_files_for_tls_are_found_before_anything_starts() {
    let config = r#"{ "mcpServers": {}, "host": { "tls": { "cert": "a.pem", "key": "b.pem" } } }"#;
    for command in ["check", "serve"] {
        let shown = run_with(config, &[command, "--config", "mcp.json", "--quiet"]);
        let shown = shown.split("--- stderr").last().unwrap();
        assert_eq!(shown.trim(), "error: host.tls: \"a.pem\" cannot be read: No such file or directory (os error 2)");
    }
}

#[test]
fn help_of_a_command() {
    assert_snapshot!(run(&["call", "--help"]), @"
    exit 0
    --- stdout
    Call a tool

    Usage: mcp-host call [OPTIONS] <TOOL> [JSON | KEY=VALUE]...

    Arguments:
      <TOOL>                 The tool, as `mcp-host tools` shows it
      [JSON | KEY=VALUE]...  Its arguments: one JSON object, or key=value by the types of the tool's schema

    Options:
          --demo           Use the bundled demo servers; needs no config
      -c, --config <FILE>  A config file; any MCP client's will do. Given more than once, a later file wins by server name
          --json           Print data for machines
      -v, --verbose...     Log more on stderr; twice for every message, three times for its contents
      -q, --quiet          Say nothing but data and errors
      -h, --help           Print help
    ");
}

#[test]
fn an_unknown_command_is_an_error_of_usage() {
    assert_snapshot!(run(&["tolls"]), @"
    exit 2
    --- stderr
    error: unrecognized subcommand 'tolls'
    help: mcp-host tools
    ");
    assert_snapshot!(run(&["frobnicate", "x"]), @"
    exit 2
    --- stderr
    error: unrecognized subcommand 'frobnicate'
    help: mcp-host --help
    ");
}

#[test]
fn a_missing_argument_is_named() {
    assert_snapshot!(run(&["call"]), @"
    exit 2
    --- stderr
    error: the following required arguments were not provided: <TOOL>
    help: mcp-host call <TOOL> [JSON | KEY=VALUE]...
    ");
}

#[test]
fn broken_arguments_are_told_before_anything_starts() {
    assert_snapshot!(run(&["call", "a__b", "{\"x\":"]), @r#"
    exit 2
    --- stderr
    error: the arguments are no JSON: the text ends early at byte 5
    help: mcp-host call TOOL '{"key": "value"}', or mcp-host call TOOL key=value
    "#);
    assert_snapshot!(run(&["call", "a__b", "x"]), @"
    exit 2
    --- stderr
    error: `x` is neither key=value nor a JSON object
    help: write it as key=value, in quotes where the value holds blanks
    ");
}

#[test]
fn without_a_config_there_is_a_way_on() {
    assert_snapshot!(run(&["tools"]), @"
    exit 2
    --- stderr
    error: no config found; looked for ~/mcp-host.json, ~/mcp-host.toml, ~/mcp-host/config.json, ~/mcp-host/config.toml
    help: mcp-host serve --demo needs none; else name one with --config FILE, any MCP client's will do
    ");
}

#[test]
fn status_without_a_daemon() {
    assert_snapshot!(run(&["status"]), @"
    exit 4
    --- stderr
    error: no mcp-host is running
    help: mcp-host serve
    ");
    assert_snapshot!(run(&["status", "--listen", "127.0.0.1:9"]), @"
    exit 4
    --- stderr
    error: no mcp-host is running on port 9
    help: mcp-host serve --listen 127.0.0.1:9
    ");
}

#[test]
fn check_shows_the_servers_without_their_keys() {
    let config = r#"{
      "mcpServers": {
        "My Files": { "command": "npx", "args": ["-y", "server", "--api-key", "hunter2"] },
        "web": { "url": "https://example.com/mcp?key=hunter2", "headers": { "Authorization": "Bearer hunter2" } },
        "off": { "command": "x\u001b[2J", "disabled": true }
      }
    }"#;
    assert_snapshot!(run_with(config, &["check", "--config", "mcp.json"]), @r#"
    exit 0
    --- stdout
    mcp.json: ok

    SERVER               TRANSPORT  STATE                   TARGET
    My Files (my-files)  stdio      ok                      npx -y server --api-key ***
    web                  http       ok                      https://example.com/mcp?…
    off                  stdio      disabled in the config  x\u{1b}[2J
    --- stderr
    note: mcp.json:4: server "web": headers.Authorization: a secret is written into the file
    help: keep it in a variable: "${env:NAME}"
    "#);
    assert_snapshot!(run_with(config, &["check", "-c", "mcp.json", "--json"]), @r#"
    exit 0
    --- stdout
    {"ok":true,"files":["mcp.json"],"problems":[],"notes":[{"file":"mcp.json","line":4,"column":77,"server":"web","field":"headers.Authorization","message":"a secret is written into the file","help":"keep it in a variable: \"${env:NAME}\""}],"servers":[{"name":"My Files","alias":"my-files","transport":"stdio","target":"npx -y server --api-key ***","disabled":null,"unusable":null},{"name":"web","alias":"web","transport":"http","target":"https://example.com/mcp?…","disabled":null,"unusable":null},{"name":"off","alias":"off","transport":"stdio","target":"x\u001b[2J","disabled":"disabled in the config","unusable":null}]}
    "#);
}

#[test]
fn a_variable_that_is_not_set_fails_the_check() {
    let config = r#"{ "mcpServers": { "a": { "command": "x", "env": { "KEY": "${NOT_SET}" } } } }"#;
    assert_snapshot!(run_with(config, &["check", "-c", "mcp.json"]), @"
    exit 2
    --- stdout
    mcp.json: ok

    SERVER  TRANSPORT  STATE     TARGET
    a       stdio      unusable  x
    --- stderr
    error: mcp.json:1: server `a`: env.KEY: the variable NOT_SET is not set; set it before the host starts
    ");
}

#[test]
fn every_problem_of_a_config_is_told() {
    let config =
        "{\n  \"mcpServers\": {\n    \"a\": {},\n    \"b\": { \"command\": \"x\", \"callTimeout\": 5 }\n  }\n}";
    assert_snapshot!(run_with(config, &["check", "-c", "mcp.json"]), @r#"
    exit 2
    --- stderr
    error: mcp.json:3: server "a": neither `command` nor `url` is given
    help: give `command`, a program to start, or `url`, an endpoint to connect to
    error: mcp.json:4: server "b": callTimeout: 5 has no unit
    help: write it with a unit: "500ms", "1.5s", "2m", "1h"
    "#);
    assert_snapshot!(run_with(config, &["serve", "-c", "mcp.json"]), @r#"
    exit 2
    --- stderr
    error: mcp.json:3: server "a": neither `command` nor `url` is given
    help: give `command`, a program to start, or `url`, an endpoint to connect to
    error: mcp.json:4: server "b": callTimeout: 5 has no unit
    help: write it with a unit: "500ms", "1.5s", "2m", "1h"
    "#);
}

#[test]
fn the_demo_is_listed() {
    assert_snapshot!(run(&["tools", "--demo"]), @"
    exit 0
    --- stdout
    TOOL             DESCRIPTION
    echo__echo       Answers with the text it was given.
    echo__countdown  Counts down to zero, one number a second, and reports its progress.
    echo__ask        Asks the user for a name and a colour, and answers with a greeting.
    clock__now       Tells the time in UTC.
    ");
    assert_snapshot!(run(&["prompts", "clock", "--demo"]), @"
    exit 0
    --- stdout
    PROMPT       ARGUMENTS  DESCRIPTION
    clock__plan  topic=     Plans the hour that has begun.
    ");
    assert_snapshot!(run(&["resources", "--demo"]), @"
    exit 0
    --- stdout
    URI                TYPE        DESCRIPTION
    clock+clock://now  text/plain  The time in UTC, as of the moment it is read.
    ");
    assert_snapshot!(run(&["tools", "--demo", "clok"]), @"
    exit 2
    --- stderr
    error: no server is called `clok`
    help: did you mean `clock`?
    ");
}

#[test]
fn arguments_take_their_type_from_the_schema() {
    assert_snapshot!(run(&["call", "--demo", "echo__echo", "text=5"]), @"
    exit 0
    --- stdout
    5
    ");
    assert_snapshot!(run(&["call", "echo__echo", "{\"text\":\"a\\u001b[2Jb\"}", "--demo"]), @r"
    exit 0
    --- stdout
    a\u{1b}[2Jb
    ");
    assert_snapshot!(run(&["call", "--demo", "echo__countdown", "from=soon"]), @"
    exit 2
    --- stderr
    error: `from` must be a whole number, not `soon`
    help: for example from=3
    ");
}

#[test]
fn a_raw_answer_holds_no_control_character() {
    assert_snapshot!(run(&["call", "--json", "--demo", "echo__echo", "{\"text\":\"a\\u009b\\u001b\"}"]), @r#"
    exit 0
    --- stdout
    {"content":[{"text":"a\u009b\u001b","type":"text"}]}
    "#);
}

#[test]
fn an_unknown_tool_has_neighbours() {
    assert_snapshot!(run(&["call", "--demo", "echo__ecko"]), @"
    exit 2
    --- stderr
    error: no tool is called `echo__ecko`
    help: did you mean `echo__echo` or `echo__ask`?
    ");
}

#[test]
fn prompts_say_what_they_need() {
    assert_snapshot!(run(&["prompt", "--demo", "clock__plan"]), @"
    exit 2
    --- stderr
    error: prompt `clock__plan` needs topic
    help: mcp-host prompt clock__plan topic=VALUE --demo
    ");
    assert_snapshot!(run(&["prompt", "--demo", "clock__plan", "topik=x"]), @"
    exit 2
    --- stderr
    error: prompt `clock__plan` takes no `topik`
    help: did you mean `topic`?
    ");
}

#[test]
fn a_question_without_a_terminal_is_declined() {
    assert_snapshot!(run(&["call", "--demo", "echo__ask"]), @"
    exit 0
    --- stdout
    As you like, stranger.
    --- stderr
    note: server `echo` asked a question; declined, since this is no terminal
    ");
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let home = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = mcp_host(home.path(), &["--help"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn a_taken_address_is_told_before_servers_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let shown = run(&["serve", "--demo", "--listen", &address]).replace(&address, "ADDRESS");
    assert_snapshot!(shown, @"
    exit 1
    --- stderr
    error: ADDRESS is in use already
    help: it is no mcp-host of yours; --listen 127.0.0.1:0 takes a free port
    ");
}

#[cfg(unix)]
#[test]
fn serve_tells_its_endpoint_first_and_ends_well() {
    use std::io::{BufRead as _, BufReader};

    let home = tempfile::tempdir().unwrap();
    let mut command = mcp_host(home.path(), &["serve", "--demo", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().starts_with("listening on http://127.0.0.1:"));
    let mut servers = [next(), next()].map(|line| line.chars().take(20).collect::<String>());
    servers.sort();
    assert_eq!(servers, ["✓ clock  connected  ", "✓ echo   connected  "]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_hidden_demo_server_speaks_mcp() {
    let home = tempfile::tempdir().unwrap();
    let mut command = mcp_host(home.path(), &["__demo-server"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    writeln!(child.stdin.take().unwrap(), "{initialize}").unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "echo");
    assert_eq!(output.status.code(), Some(0));
}
