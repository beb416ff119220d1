//! The program from outside: what it prints, where, and how it exits.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod check;
mod help;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;

/// The program with its own home and no other environment, in its own folder.
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

/// Returns exit code, stdout, and stderr, each under its name.
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
      serve        Serve all servers at one HTTP endpoint
      stdio        Serve all servers over stdin and stdout, for clients that start their servers
      check        Check the config; nothing is started without --connect
      tools        List the tools, or show one with its arguments
      resources    List the resources and resource templates
      prompts      List the prompts
      call         Call a tool
      read         Read a resource
      prompt       Get a prompt
      add          Add a server to the config: a URL, or a command after `--`; it is tried once
      remove       Take a server out of the config
      enable       Turn a server of the config on
      disable      Turn a server of the config off, and keep its entry
      rename       Give a server of the config another name
      list         List the servers of the config, and how they are if a daemon runs; nothing is started
      get          Show the entry of a server in the config
      undo         Take back the last edit of a config, or the one with this number
      clients      List the MCP clients on this machine: which are linked with this host, and which start a server twice
      import       Take over the servers of clients into the config; their files stay as they are
      export       Print what `link` would write into a client's file
      link         Write this host into clients' files as one more server
      unlink       Take this host out of clients' files
      migrate      Take over the servers of clients, link the clients, and take out of their files what works here
      search       Find servers in the registry
      show         Show what the registry has about a server: how it is started, and what it wants to know
      install      Add a server of the registry to the config; it is shown and asked for first
      outdated     Show which servers of the config have newer versions in the registry
      update       Take a newer version of a server; what changes is shown and asked for first
      approve      Show what is new or has changed at servers and in a project's config, and approve it
      lock         Start the servers, and lock what they list in mcp-host.lock, beside the config
      policy       Test the rules of the config (host.policy), or say why they allow, ask about, or deny a call
      sandbox      Show what the sandbox of a server refuses to it
      status       Show the servers and clients of a running `serve`
      open         Open the page of a running `serve`, which shows what goes on and calls tools, in your browser
      logs         Show the last lines of the servers of a running `serve`: standard error, log messages, changes of state
      calls        Show the last calls of a running `serve`: who called what, how it ended, and how long it took
      top          Show what the servers of a running `serve` do, on the whole terminal
      metrics      Print the metrics of a running `serve`, as Prometheus reads them at /metrics
      tokens       Show what the tools of a running `serve` cost, in tokens
      asks         Show the calls that wait for your permission, and decide on them
      login        Sign in to a server, for a running `serve` and all that start later
      logout       Forget the login of a server and revoke it
      auth         List the logins; no token is shown
      token        Make a token for a client of the endpoint, or for /metrics
      restart      Start a server of a running `serve` anew; calls in flight may end first
      doctor       Look for what is wrong with the config, the servers, the logins and this machine, and say what to do
      service      Run `serve` as a service of your account, which starts with it and after a crash
      completions  Print the script that completes commands, servers and tools in a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -c, --config <FILE>  A config file, ours or any MCP client's. Repeatable: if two files have the same server, the later wins
          --project <DIR>  Which project of Claude Code's ~/.claude.json to use [default: the current directory]
          --json           Print JSON for machines
      -v, --verbose...     Log more on stderr; twice for every message, three times for its contents
      -q, --quiet          Print only data and errors
          --color <WHEN>   When to use colors: auto, always or never
      -h, --help           Print help
      -V, --version        Print version

    Start here:
      mcp-host serve --demo             two bundled servers at one endpoint, nothing to install
      mcp-host check --config FILE      what the config of your MCP client says, nothing started
      mcp-host serve --config FILE      its servers at one endpoint

    The guide is in docs/ of the repository; docs/troubleshooting.md explains error messages.
    ");
}

#[test]
fn h80_a_token_is_told_once_and_its_hash_goes_into_the_config() {
    let config = r#"{ "mcpServers": { "a": { "command": "sh" } }, "host": { LINE } }"#;
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
    // What it prints is accepted in the config, and the next one goes beside it.
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
    help: use up to 64 letters, digits, `.`, `-` and `_`
    ");
}

#[test]
fn bad_files_for_tls_are_found_before_anything_starts() {
    let config = r#"{ "mcpServers": {}, "host": { "tls": { "cert": "a.pem", "key": "b.pem" } } }"#;
    for command in ["check", "serve"] {
        let shown = run_with(config, &[command, "--config", "mcp.json", "--quiet"]);
        let shown = shown.split("--- stderr").last().unwrap();
        let (error, help) = shown.trim().split_once('\n').unwrap();
        assert_eq!(error, "error: host.tls: \"a.pem\" cannot be read: No such file or directory (os error 2)");
        assert_eq!(help, "help: correct it in the config, and run this again");
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
      [JSON | KEY=VALUE]...  One JSON object, or key=value as the tool's schema says

    Options:
          --timeout <TIME>       How long the call may take: 500ms, 30s, 5m
          --out <FILE | FOLDER>  Save images, audio and the like; overwrites nothing
          --no-check             Send the arguments without checking them first
          --view <VIEW>          Use this view (host.views) [default: host.view]
          --demo                 Use the bundled demo servers; needs no config
      -c, --config <FILE>        A config file (more options: mcp-host --help)
          --json                 Print JSON for machines
      -h, --help                 Print help

    Arguments from elsewhere:
      -           one JSON object from stdin
      @FILE       one JSON object from a file
      key=@FILE   the text of a file as one value; key=@- takes stdin
      key=@@TEXT  the text @TEXT itself
    ");
}

#[test]
fn an_unknown_command_is_an_error_of_usage() {
    assert_snapshot!(run(&["tolls"]), @"
    exit 2
    --- stderr
    error: no command is called `tolls`
    help: mcp-host tools
    ");
    assert_snapshot!(run(&["frobnicate", "x"]), @"
    exit 2
    --- stderr
    error: no command is called `frobnicate`
    help: mcp-host --help lists the commands
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
    error: the arguments are not valid JSON: the text ends early at byte 5
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

#[cfg(target_os = "linux")]
#[test]
fn without_a_config_those_of_other_clients_are_told() {
    let home = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(".cursor/mcp.json", r#"{ "mcpServers": { "a": { "command": "a" }, "b": { "command": "b" } } }"#);
    write(".gemini/settings.json", r#"{ "mcpServers": {} }"#);
    write("Code/User/mcp.json", r#"{ "servers": { "a": { "command": "a" } } }"#);
    let shown = shown(&mcp_host(home.path(), &["serve"]).output().unwrap(), home.path());
    let help: Vec<&str> = shown.lines().filter(|line| line.starts_with("help: ")).collect();
    assert_snapshot!(help.join("\n"), @"
    help: mcp-host serve --demo needs none; else name one with --config FILE, any MCP client's will do
    help: Cursor has 2 servers: mcp-host serve --config ~/.cursor/mcp.json
    help: VS Code has 1 server: mcp-host serve --config ~/Code/User/mcp.json
    help: mcp-host migrate --all takes the servers over and makes mcp-host the one server of each client; mcp-host undo takes that back
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
fn the_demo_is_listed() {
    assert_snapshot!(run(&["tools", "--demo"]), @"
    exit 0
    --- stdout
    TOOL             ARGUMENTS  DESCRIPTION
    echo__echo       text=      Answers with the text it was given.
    echo__countdown  [from=]    Counts down to zero, one number a second, and reports its progress.
    echo__ask                   Asks the user for a name and a color, and answers with a greeting.
    clock__now                  Tells the time in UTC.
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
    assert_snapshot!(run(&["call", "--demo", "echo__ask"]), @r#"
    exit 0
    --- stdout
    As you like, stranger.
    --- stderr
    note: server `echo` asked "Who are you?" and was declined: there is no terminal
    help: run the command in a terminal to answer
    "#);
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
    help: it is not one of your mcp-hosts; --listen 127.0.0.1:0 takes a free port
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

#[test]
fn a_token_is_told_with_what_to_do_with_it() {
    let config = r#"{ "mcpServers": {}, "host": {} }"#;
    let shown = run_with(config, &["token", "laptop", "--config", "mcp.json"]);
    let secret = |word: &str| {
        let secret = word.trim_matches(['"', ' ', ',', '}']);
        (secret.starts_with("mcph_") || secret.starts_with("sha256:")).then(|| secret.to_owned())
    };
    let secrets: Vec<String> = shown.split([' ', '\n']).filter_map(secret).collect();
    assert_eq!(secrets.len(), 2, "{shown}");
    let shown = secrets.iter().fold(shown, |shown, secret| shown.replace(secret.as_str(), &secret[..5]));
    assert_snapshot!(shown, @r#"
    exit 0
    --- stdout
    mcph_
    --- stderr
    this is shown once; the client sends it as `Authorization: Bearer TOKEN`
    put this line into `host` of the config:
    "auth": { "type": "bearer", "clients": { "laptop": "sha25" } },
    "#);
}

#[test]
fn colors_are_ours_alone() {
    let config =
        r#"{ "mcpServers": { "a\u001b[2J": { "command": "\u001b[31mx" }, "b": { "command": "${NOT_SET}" } } }"#;
    let shown = run_with(config, &["check", "--color", "always", "-c", "mcp.json"]).replace('\u{1b}', "ESC");
    assert_snapshot!(shown, @r#"
    exit 2
    --- stdout
    mcp.json: 2 of 2 servers cannot start

    ESC[1mSERVERESC[0m             ESC[1mTRANSPORTESC[0m  ESC[1mSTATEESC[0m     ESC[1mTARGETESC[0m
    a\u{1b}[2J (a-2j)  stdio      ESC[31munusableESC[0m  \u{1b}[31mx
    b                  stdio      ESC[31munusableESC[0m  ${NOT_SET}
    --- stderr
    ESC[31mESC[1merror:ESC[0m mcp.json:1: server `a\u{1b}[2J`: cannot start `\u{1b}[31mx`: not found on PATH
    ESC[36mESC[1mhelp:ESC[0m install it, or give its full path
    ESC[31mESC[1merror:ESC[0m mcp.json:1: server "b": command: the variable NOT_SET is not set
    ESC[36mESC[1mhelp:ESC[0m set it before mcp-host starts: export NOT_SET=…
    "#);
    for args in [["check", "--json", "--color=always"], ["check", "--quiet", "--color=never"], ["check", "-q", "-q"]] {
        let shown = run_with(config, &[&args[..], &["-c", "mcp.json"]].concat());
        let stdout = shown.split("--- stderr").next().unwrap();
        assert!(!stdout.contains('\u{1b}'), "{args:?}: {stdout}");
    }
}

#[test]
fn the_environment_asks_for_colors_and_forbids_them() {
    let colored = |variables: &[(&str, &str)]| {
        let home = tempfile::tempdir().unwrap();
        let mut command = mcp_host(home.path(), &["status"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        String::from_utf8(output.stderr).unwrap().starts_with('\u{1b}')
    };
    assert!(!colored(&[]), "a pipe");
    assert!(colored(&[("CLICOLOR_FORCE", "1")]));
    assert!(!colored(&[("CLICOLOR_FORCE", "0")]));
    assert!(!colored(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}
