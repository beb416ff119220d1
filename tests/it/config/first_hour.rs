//! What people's own files hold in their first hour.

use super::*;

const CLAUDE: &str = r#"{
  "mcpServers": { "everywhere": { "command": "user" }, "db": { "command": "user-db" } },
  "projects": {
    "~/shop": {
      "mcpServers": { "db": { "command": "./db", "env": { "A": "1" } }, "jira": { "url": "https://jira.example.com/mcp" } },
      "enabledMcpjsonServers": ["shared"], "disabledMcpjsonServers": ["old"]
    },
    "~/site": { "mcpServers": { "cms": { "command": "cms" } } },
    "~/plain": { "allowedTools": [], "mcpServers": {} },
    "~": { "mcpServers": { "at-home": { "command": "home" } } }
  }
}"#;

#[test]
fn first_hour_h8_claude_codes_servers_of_the_project_one_stands_in() {
    let stand = |folder: &'static str| {
        text_as(".claude.json", CLAUDE, move |root, request| request.working_directory = Some(root.join(folder)))
    };
    insta::assert_snapshot!(stand("shop/src"), @"
    everywhere (line 2): stdio user []
    db (line 5): stdio ./db [] A=1 in ~/shop
    jira (line 5): auto https://jira.example.com/mcp
    ");
    insta::assert_snapshot!(stand("elsewhere"), @"
    everywhere (line 2): stdio user []
    db (line 2): stdio user-db []
    ~/.claude.json:4: projects: servers of other projects are not read: ~/shop (db, jira); ~/site (cms); ~ (at-home)
      run this in that directory, or add: --project ~/shop
    ");
    assert_eq!(stand("plain"), "everywhere (line 2): stdio user []\ndb (line 2): stdio user-db []\n");
    assert!(stand("").contains("at-home"));
}

#[test]
fn first_hour_h8_a_project_is_named() {
    let name = |folder: &'static str| {
        text_as(".claude.json", CLAUDE, move |root, request| {
            request.working_directory = Some(root.join("shop"));
            request.project_directory = Some(root.join(folder));
        })
    };
    insta::assert_snapshot!(name("site"), @"
    everywhere (line 2): stdio user []
    db (line 2): stdio user-db []
    cms (line 8): stdio cms [] in ~/site
    ");
    insta::assert_snapshot!(name("nowhere"), @"
    --project: no config has servers for the project ~/nowhere
      those there are: ~/shop (db, jira); ~/site (cms); ~ (at-home)
    ");
    let none = text_as("mcp.json", r#"{ "a": { "command": "a" } }"#, |root, request| {
        request.project_directory = Some(root.to_owned());
    });
    insta::assert_snapshot!(none, @"
    --project: no config has servers for the project ~
      it chooses among the `projects` of Claude Code's ~/.claude.json: name that file with --config
    ");
}

/// The file's word about the project's own `.mcp.json` disables servers, and approves nothing.
#[test]
fn first_hour_h8_claude_codes_word_on_the_file_of_the_project() {
    let shared = r#"{ "mcpServers": { "shared": { "command": "s" }, "old": { "command": "${UNSET}" } } }"#;
    let with = |read: bool| {
        text_as(".claude.json", CLAUDE, move |root, request| {
            request.working_directory = Some(root.join("shop"));
            let file = root.join("shop/.mcp.json");
            std::fs::create_dir_all(root.join("shop")).expect("a folder");
            std::fs::write(&file, shared).expect("a file");
            if read {
                request.files.push(file);
            }
        })
    };
    insta::assert_snapshot!(with(true), @"
    everywhere (line 2): stdio user []
    db (line 5): stdio ./db [] A=1 in ~/shop
    jira (line 5): auto https://jira.example.com/mcp
    shared (line 1): stdio s []
    old (line 1): stdio ${UNSET} []
      disabled: named in disabledMcpjsonServers of ~/.claude.json
    ");
    insta::assert_snapshot!(with(false), @"
    everywhere (line 2): stdio user []
    db (line 5): stdio ./db [] A=1 in ~/shop
    jira (line 5): auto https://jira.example.com/mcp
    ~/.claude.json:4: enabledMcpjsonServers: these stand in ~/shop/.mcp.json, which is not read: shared
      add --config ~/shop/.mcp.json
    ");
    // A project cannot speak for the user.
    let own = r#"{ "mcpServers": { "a": { "command": "a" } },
        "projects": { "~": { "mcpServers": { "b": { "command": "b" } }, "enabledMcpjsonServers": ["a", "b"] } } }"#;
    let found = text_as("mcp-host.json", own, |root, request| {
        request.files.clear();
        request.working_directory = Some(root.to_owned());
    });
    assert_eq!(found.matches("disabled: not approved").count(), 2, "{found}");
}

#[test]
fn first_hour_r9_crush_has_seconds_and_a_shells_variables() {
    let text = r#"{ "$schema": "https://charm.land/crush.json", "mcp": {
      "files": { "type": "stdio", "command": "npx", "args": ["$ROOT/src", "${ROOT}"], "timeout": 120, "disabled_tools": ["rm"] },
      "keyed": { "type": "http", "url": "https://example.com/mcp", "headers": { "X-Key": "$(pass show $(echo key))-x" } } } }"#;
    insta::assert_snapshot!(text_as("crush.json", text, |_, request| request.vars = Vars::from_iter([("ROOT", "/r")])), @r#"
    files (line 2): stdio npx ["/r/src", "/r"]
      start timeout 120s
      exclude ["rm"]
    keyed (line 3): http https://example.com/mcp X-Key: $(pass show $(echo key))-x
      unusable: headers.X-Key: $(…) would run a command, which a config may not do; use $NAME, and set that variable before the host starts
    "#);
}

#[test]
fn first_hour_r9_inputs_have_defaults() {
    let text = r#"{ "inputs": [
        { "type": "pickString", "id": "region", "description": "Region", "options": ["eu", { "label": "US", "value": "us" }], "default": "eu" },
        { "type": "promptString", "id": "port", "default": 8080 },
        { "type": "pickString", "id": "plan", "description": "Plan", "options": ["free", { "label": "Paid", "value": "paid" }] }
      ], "servers": {
        "a": { "command": "a", "args": ["--region=${input:region}", "${input:port}"] },
        "b": { "command": "b", "args": ["${input:plan}"] } } }"#;
    insta::assert_snapshot!(text_as(".vscode/mcp.json", text, |_, _| {}), @r#"
    a (line 6): stdio a ["--region=eu", "8080"]
    b (line 7): stdio b ["${input:plan}"]
      unusable: args[0]: the input "plan" (Plan) has no value; set MCP_HOST_INPUT_PLAN to one of free, paid
    "#);
}

#[test]
fn first_hour_r9_zed_and_jetbrains() {
    let zed = r#"{ "context_server_timeout": 300, "context_servers": {
        "a": { "command": "a" }, "b": { "command": "b", "timeout": 90 } } }"#;
    insta::assert_snapshot!(text_as("settings.json", zed, |_, _| {}), @"
    a (line 2): stdio a []
      call timeout 300s
    b (line 2): stdio b []
      call timeout 90s
    ");
    let jetbrains = r#"{ "mcpServers": { "a": { "command": "a", "workingDirectory": "/srv/a" } } }"#;
    insta::assert_snapshot!(text_as("mcp.json", jetbrains, |_, _| {}), @"a (line 1): stdio a [] in /srv/a");
}

#[test]
fn first_hour_r9_a_registrys_file_is_known() {
    let npm = r#"{ "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.ada/files", "description": "Files", "version": "1.2.0",
        "packages": [{ "registryType": "npm", "identifier": "@ada/files", "version": "1.2.0", "transport": { "type": "stdio" },
          "packageArguments": [{ "type": "positional", "valueHint": "directory", "isRequired": true },
            { "type": "named", "name": "--mode", "value": "ro" }, { "type": "named", "name": "--optional" }],
          "environmentVariables": [{ "name": "API_KEY", "isRequired": true, "isSecret": true }, { "name": "DEBUG" }] }] }"#;
    insta::assert_snapshot!(text_as("server.json", npm, |_, _| {}), @r#"
    ~/server.json:1: this is the server.json of a registry: it tells how a server is published, not how to start it
      write this into a config instead: {"mcpServers": {"files": {"command": "npx", "args": ["-y","@ada/files@1.2.0","<directory>","--mode","ro"], "env": {"API_KEY":"${API_KEY}"}}}}
    "#);
    let package = |kind: &str, identifier: &str| {
        text_as(
            "server.json",
            &format!(
                r#"{{ "name": "io.example/s", "packages": [{{ "registry_type": "{kind}",
            "identifier": "{identifier}", "version": "2.0", "environment_variables": [{{ "name": "K", "is_required": true }}] }}] }}"#
            ),
            |_, _| {},
        )
    };
    insta::assert_snapshot!(package("pypi", "ada-files") + &package("oci", "ghcr.io/ada/files") + &package("mcpb", "x"), @r#"
    ~/server.json:1: this is the server.json of a registry: it tells how a server is published, not how to start it
      write this into a config instead: {"mcpServers": {"s": {"command": "uvx", "args": ["ada-files==2.0"], "env": {"K":"${K}"}}}}
    ~/server.json:1: this is the server.json of a registry: it tells how a server is published, not how to start it
      write this into a config instead: {"mcpServers": {"s": {"command": "docker", "args": ["run","-i","--rm","-e","K","ghcr.io/ada/files:2.0"], "env": {"K":"${K}"}}}}
    ~/server.json:1: this is the server.json of a registry: it tells how a server is published, not how to start it
      look at the server's own page for the command that starts it, or its URL
    "#);
    let remote = r#"{ "name": "com.example/docs", "remotes": [{ "type": "streamable-http", "url": "https://docs.example.com/mcp",
        "headers": [{ "name": "X-Key", "isRequired": true }] }] }"#;
    insta::assert_snapshot!(text_as("server.json", remote, |_, _| {}), @r#"
    ~/server.json:1: this is the server.json of a registry: it tells how a server is published, not how to start it
      write this into a config instead: {"mcpServers": {"docs": {"type": "http", "url": "https://docs.example.com/mcp", "headers": {"X-Key":"<X-Key>"}}}}
    "#);
}
