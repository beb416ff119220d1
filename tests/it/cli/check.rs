//! `mcp-host check`: what it finds in configs, and what it says to do.

use super::*;

#[test]
fn check_shows_the_servers_without_their_keys() {
    let config = r#"{
      "mcpServers": {
        "My Files": { "command": "sh", "args": ["-y", "server", "--api-key", "hunter2"] },
        "web": { "url": "https://example.com/mcp?key=hunter2", "headers": { "Authorization": "Bearer hunter2" } },
        "off": { "command": "x\u001b[2J", "disabled": true }
      }
    }"#;
    assert_snapshot!(run_with(config, &["check", "--config", "mcp.json"]), @r#"
    exit 0
    --- stdout
    mcp.json: ok

    SERVER               TRANSPORT  STATE                   TARGET
    My Files (my-files)  stdio      ok                      sh -y server --api-key ***
    web                  http       ok                      https://example.com/mcp?…
    off                  stdio      disabled in the config  x\u{1b}[2J
    --- stderr
    note: mcp.json:4: server "web": headers.Authorization: a secret is written in this file
    help: keep it in a variable: "${env:NAME}"
    "#);
    assert_snapshot!(run_with(config, &["check", "-c", "mcp.json", "--json"]), @r#"
    exit 0
    --- stdout
    {"ok":true,"files":["mcp.json"],"problems":[],"notes":[{"file":"mcp.json","line":4,"column":77,"server":"web","field":"headers.Authorization","message":"a secret is written in this file","help":"keep it in a variable: \"${env:NAME}\""}],"servers":[{"name":"My Files","alias":"my-files","transport":"stdio","target":"sh -y server --api-key ***","disabled":null,"unusable":null},{"name":"web","alias":"web","transport":"http","target":"https://example.com/mcp?…","disabled":null,"unusable":null},{"name":"off","alias":"off","transport":"stdio","target":"x\u001b[2J","disabled":"disabled in the config","unusable":null}]}
    "#);
}

#[test]
fn a_variable_that_is_not_set_fails_the_check() {
    let config = r#"{ "mcpServers": { "a": { "command": "x", "env": { "KEY": "${NOT_SET}" } } } }"#;
    assert_snapshot!(run_with(config, &["check", "-c", "mcp.json"]), @r#"
    exit 2
    --- stdout
    mcp.json: 1 of 1 server cannot start

    SERVER  TRANSPORT  STATE     TARGET
    a       stdio      unusable  x
    --- stderr
    error: mcp.json:1: server "a": env.KEY: the variable NOT_SET is not set
    help: set it before mcp-host starts: export NOT_SET=…
    "#);
}

#[test]
fn first_hour_h4_check_names_the_one_entry_that_fails() {
    let config = r#"{
      "mcpServers": {
        "files": { "command": "files" },
        "grafana": { "url": "http://host.docker.internal:3000/mcp" },
        "socket": { "type": "ws", "url": "wss://example.com/mcp" }
      }
    }"#;
    assert_snapshot!(run_with(config, &["check", "-c", "mcp.json"]), @r#"
    exit 2
    --- stdout
    mcp.json: 3 of 3 servers cannot start

    SERVER   TRANSPORT  STATE     TARGET
    files    stdio      unusable  files
    grafana  http       unusable  http://host.docker.internal:3000/mcp
    socket   -          unusable  -
    --- stderr
    error: mcp.json:3: server `files`: cannot start `files`: not found on PATH
    help: install it, or give its full path
    error: mcp.json:4: server "grafana": url: plain http beyond this machine can be read and changed on the way
    help: use https, or add "insecureHttp": true to this entry if you trust the network in between
    error: mcp.json:5: server "socket": type: "ws" is not an MCP transport and cannot be used
    help: if the server has an http or https endpoint too, write that as `url` with "type": "http"; else set "disabled": true
    "#);
    let json = run_with(config, &["check", "-c", "mcp.json", "--json"]);
    assert!(
        json.contains(r#"{"ok":false,"#) && json.contains(r#""server":"grafana","field":"url","message":"plain http"#)
    );
}

/// The file lies in a folder of the project, and its paths begin there.
#[test]
fn first_hour_h5_the_workspace_of_a_relative_config_is_its_project() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("shop/.cursor");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(home.path().join("shop/.env"), "MODE=test").unwrap();
    let entry = |file: &str| {
        format!(
            r#"{{ "command": "${{workspaceFolder}}/bin/server", "args": ["${{workspaceFolderBasename}}"], "envFile": "{file}" }}"#
        )
    };
    let (there, not) = (entry("${workspaceFolder}/.env"), entry("${workspaceFolder}/missing.env"));
    let text = format!("{{ \"mcpServers\": {{\n\"there\": {there},\n\"not\": {not} }} }}");
    std::fs::write(folder.join("mcp.json"), text).unwrap();
    let check = |place: &Path, config: &str| {
        let mut command = mcp_host(home.path(), &["check", "-c", config]);
        shown(&command.current_dir(place).output().unwrap(), home.path())
    };
    assert_snapshot!(check(&home.path().join("shop"), ".cursor/mcp.json"), @r#"
    exit 2
    --- stdout
    .cursor/mcp.json: 2 of 2 servers cannot start

    SERVER  TRANSPORT  STATE     TARGET
    there   stdio      unusable  ~/shop/bin/server shop
    not     stdio      unusable  ~/shop/bin/server shop
    --- stderr
    error: .cursor/mcp.json:2: server `there`: cannot start `~/shop/bin/server`: no such file
    help: correct the path, or install it
    error: .cursor/mcp.json:3: server "not": envFile: "~/shop/missing.env" cannot be read: no such file or directory
    help: look for its name: ls -a ~/shop
    "#);
    let same = check(&folder, "mcp.json").replace("mcp.json:", ".cursor/mcp.json:");
    assert_eq!(same, check(&home.path().join("shop"), ".cursor/mcp.json"));
}

#[cfg(unix)]
#[test]
fn first_hour_r8_commands_that_cannot_start_are_found_by_the_check() {
    let home = tempfile::tempdir().unwrap();
    let config = r#"{
      "mcpServers": {
        "good": { "command": "good" },
        "line": { "command": "npx -y pkg --token=hunter2", "args": ["more"] },
        "home": { "command": "~/bin/x" },
        "uvx": { "command": "uvx", "args": ["x"] },
        "folder": { "command": "./folder", "cwd": "." },
        "plain": { "command": "./plain.py", "cwd": "." },
        "bare": { "command": "./bare", "cwd": "." },
        "elsewhere": { "command": "good", "env": { "PATH": "/nowhere" } },
        "off": { "command": "nothing", "disabled": true }
      }
    }"#;
    std::fs::create_dir(home.path().join("folder")).unwrap();
    let files = [
        ("mcp.json", config, 0o600),
        ("good", "#!/bin/sh\n", 0o700),
        ("plain.py", "", 0o600),
        ("bare", "exit\n", 0o700),
    ];
    for (name, text, mode) in files {
        let file = home.path().join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let check = |args: &[&str]| {
        let mut command = mcp_host(home.path(), &[&["check", "-c", "mcp.json"], args].concat());
        shown(&command.env("PATH", home.path()).output().unwrap(), home.path())
    };
    assert_snapshot!(check(&[]), @r#"
    exit 2
    --- stdout
    mcp.json: 7 of 9 servers cannot start

    SERVER     TRANSPORT  STATE                   TARGET
    good       stdio      ok                      good
    line       stdio      unusable                npx -y pkg --token=*** more
    home       stdio      unusable                ~/bin/x
    uvx        stdio      unusable                uvx x
    folder     stdio      unusable                ./folder
    plain      stdio      unusable                ./plain.py
    bare       stdio      unusable                ./bare
    elsewhere  stdio      unusable                good
    off        stdio      disabled in the config  nothing
    --- stderr
    error: mcp.json:4: server `line`: cannot start `npx -y pkg --token=***`: `command` must be the program alone, and this has the arguments in it
    help: write "command": "npx", "args": ["-y", "pkg", "--token=***", "more"]
    error: mcp.json:5: server `home`: cannot start `~/bin/x`: no such command: `~` is not expanded here
    help: write "command": "~/bin/x"
    error: mcp.json:6: server `uvx`: cannot start `uvx`: not found on PATH
    help: install uv, which has `uvx`, or give its full path
    error: mcp.json:7: server `folder`: cannot start `./folder`: it is a directory
    help: name the program in ~/folder
    error: mcp.json:8: server `plain`: cannot start `./plain.py`: it is not executable
    help: chmod +x ~/plain.py, or write "command": "python3", "args": ["~/plain.py"]
    error: mcp.json:9: server `bare`: cannot start `./bare`: it is a script without a `#!` line
    help: begin ~/bare with #!/usr/bin/env sh, or write "command": "sh", "args": ["~/bare"]
    error: mcp.json:10: server `elsewhere`: cannot start `good`: not found on the PATH of its `env`
    help: write "command": "~/good"
    "#);
    assert_snapshot!(check(&["uvx", "--json"]), @r#"
    exit 2
    --- stdout
    {"ok":false,"files":["mcp.json"],"problems":[],"notes":[],"servers":[{"name":"uvx","alias":"uvx","transport":"stdio","target":"uvx x","disabled":null,"unusable":"cannot start `uvx`: not found on PATH","help":"install uv, which has `uvx`, or give its full path"}]}
    --- stderr
    error: mcp.json:6: server `uvx`: cannot start `uvx`: not found on PATH
    help: install uv, which has `uvx`, or give its full path
    "#);
    // The message of a failing start is the same.
    assert_snapshot!(check(&["uvx", "--connect"]), @"
    exit 4
    --- stdout
    SERVER  STATE   REVISION  TOOLS  RESOURCES  TEMPLATES  PROMPTS  TIME
    uvx     failed  -         -      -          -          -        -
    --- stderr
    error: server `uvx` did not start: cannot start `uvx`: not found on PATH; install uv, which has `uvx`, or give its full path
    help: mcp-host check --connect uvx -v --config mcp.json
    ");
}

/// Each shows its line, and no value that may be secret.
#[test]
fn first_hour_r8_a_file_that_cannot_be_parsed_shows_its_line() {
    let check = |text: &str| run_with(text, &["check", "-c", "mcp.json"]);
    assert_snapshot!(check("{ \"mcpServers\": {\n    \"a\": { \"command\": \"npx\" \"args\": [] }\n} }"), @r#"
    exit 2
    --- stderr
    error: mcp.json:2:28: not valid JSON: Expected comma
      "a": { "command": "npx" "args": [] }
                             ^
    help: put a comma at the mark
    "#);
    assert_snapshot!(check("{ \"mcpServers\": {\n    “a”: { \"command\": \"npx\" }\n} }"), @r#"
    exit 2
    --- stderr
    error: mcp.json:2:5: not valid JSON: a curly quote, as word processors make them
      “a”: { "command": "npx" }
      ^
    help: write plain quotes (") in place of curly quotes
    "#);
    assert_snapshot!(check("{ \"a\": { \"command\": \"a\", \"env\": { \"PIN\": \"planted\" \"B\": \"1\" } } }"), @r#"
    exit 2
    --- stderr
    error: mcp.json:1:51: not valid JSON: Expected comma
      { "a": { "command": "a", "env": { "PIN": "***" "B": "***" } } }
                                                    ^
    help: put a comma at the mark
    "#);
    assert_snapshot!(check("{ \"a\": { \"command\": \"C:\\Users\" } }"), @r#"
    exit 2
    --- stderr
    error: mcp.json:1:24: not valid JSON: Invalid escape
      { "a": { "command": "C:\Users" } }
                             ^
    help: write a backslash twice: "C:\\Users"
    "#);
    assert_snapshot!(check("{ \"a\": { \"command\": \"a\""), @r#"
    exit 2
    --- stderr
    error: mcp.json:1:8: not valid JSON: Unterminated object
      { "a": { "command": "a"
             ^
    help: close it with }
    "#);
    assert_snapshot!(check("[mcpServers.files]\ncommand = \"npx\"\n"), @"
    exit 2
    --- stderr
    error: mcp.json: this is TOML, but the file name says JSON
    help: mv -n mcp.json mcp.toml
    ");
    assert_snapshot!(check("mcpServers:\n  files:\n    command: npx\n"), @"
    exit 2
    --- stderr
    error: mcp.json: this is YAML, but the file name says JSON
    help: mv -n mcp.json mcp.yaml
    ");
    assert_snapshot!(check("{ // said\n \"a\": { \"command\": \"a\", }, }"), @"
    exit 2
    --- stdout
    mcp.json: 1 of 1 server cannot start

    SERVER  TRANSPORT  STATE     TARGET
    a       stdio      unusable  a
    --- stderr
    error: mcp.json:2: server `a`: cannot start `a`: not found on PATH
    help: install it, or give its full path
    ");
}

#[test]
fn first_hour_r15_a_file_that_cannot_be_read_says_what_to_do() {
    assert_snapshot!(run(&["check", "-c", "nosuch.json"]), @"
    exit 2
    --- stderr
    error: nosuch.json: cannot be read: no such file or directory
    help: relative paths start in ~
    ");
    assert_snapshot!(run(&["check", "-c", "nosuch/mcp.json"]), @"
    exit 2
    --- stderr
    error: nosuch/mcp.json: cannot be read: no such file or directory
    help: there is no directory nosuch
    ");
    assert_snapshot!(run(&["check", "-c", "~/mcp.json"]), @"
    exit 2
    --- stderr
    error: ~/mcp.json: cannot be read: no such file or directory
    help: write out the home directory: no shell has expanded the ~
    ");
    assert_snapshot!(run(&["check", "-c", "."]), @"
    exit 2
    --- stderr
    error: .: cannot be read: is a directory
    help: name a file in it: ls -a .
    ");
    assert_snapshot!(run_with("{ \"a\": { \"command\": \"a\" } }", &["check", "-c", "mcp.json", "--project", "shop"]), @"
    exit 2
    --- stderr
    error: --project: no config has servers for the project ~/shop
    help: it chooses among the `projects` of Claude Code's ~/.claude.json: name that file with --config
    ");
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("a b.json"), [0xff, 0xfe]).unwrap();
    let said = shown(&mcp_host(home.path(), &["check", "-c", "a b.json"]).output().unwrap(), home.path());
    assert!(
        said.contains("error: a b.json: cannot be read: it is not UTF-8\nhelp: save the file as UTF-8\n"),
        "{said}"
    );
}

#[cfg(unix)]
#[test]
fn first_hour_r15_the_note_on_who_may_read_a_file_names_it() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("my config.json");
    std::fs::write(&file, r#"{ "a": { "command": "c", "env": { "API_KEY": "0123456789" } } }"#).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let said = shown(&mcp_host(home.path(), &["check", "-c", "my config.json"]).output().unwrap(), home.path());
    assert!(said.contains("\nhelp: chmod 600 'my config.json'\n"), "{said}");
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
    help: write it with a unit: "5s" for seconds, or "500ms", "2m", "1h"
    "#);
    assert_snapshot!(run_with(config, &["serve", "-c", "mcp.json"]), @r#"
    exit 2
    --- stderr
    error: mcp.json:3: server "a": neither `command` nor `url` is given
    help: give `command`, a program to start, or `url`, an endpoint to connect to
    error: mcp.json:4: server "b": callTimeout: 5 has no unit
    help: write it with a unit: "5s" for seconds, or "500ms", "2m", "1h"
    "#);
}
