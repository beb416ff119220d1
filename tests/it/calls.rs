//! One tool from a shell: shown in full, called with arguments of every kind, its result saved.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use insta::assert_snapshot;
use serde_json::{Value, json};

/// A shell server with one tool. It answers a call with its params, or with images.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\|"[^"]*"\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply "$TOOLS" ;;
    *'"resources/list"'*) reply '{"resources":[{"uri":"file:///logo","name":"logo"}]}' ;;
    *'"resources/templates/list"'*) reply '{"resourceTemplates":[{"uriTemplate":"file:///{path}","name":"any"},{"uriTemplate":"git:///{path}","name":"git"}]}' ;;
    *'"resources/read"'*) reply '{"contents":[{"uri":"file:///logo","mimeType":"image/png","blob":"QUJD"}]}' ;;
    *'"name":"hang"'*) ;;
    *'"name":"shots"'*) reply '{"content":[{"type":"text","text":"two"},{"type":"image","mimeType":"image/png","data":"QUJD"},{"type":"audio","mimeType":"audio/wav","data":"QUJDREU="}]}' ;;
    *'"tools/call"'*) sent=$(printf %s "$line" | sed 's/.*"arguments":\({.*}\),"_meta".*/\1/; s/.*"arguments":\({.*}\)}}$/\1/; s/["\\]/\\&/g'); reply "{\"content\":[{\"type\":\"text\",\"text\":\"$sent\"}]}" ;;
  esac
done"#;

fn tools() -> Value {
    json!({ "tools": [
        {
            "name": "search.all",
            "title": "Search files",
            "description": "Looks for files.\n\nGoes through every folder\tbelow `path`. \u{1b}[2J",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "path": { "type": "string", "minLength": 1, "description": "Where to begin." },
                    "depth": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How deep." },
                    "kind": { "enum": ["file", "folder"] },
                    "options": {
                        "type": "object",
                        "properties": { "case": { "type": "boolean", "default": false } },
                        "required": ["case"]
                    }
                },
                "required": ["path"],
                "additionalProperties": false
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false }
        },
        { "name": "shots", "description": "Takes two.", "inputSchema": { "type": "object" } },
        {
            "name": "drop",
            "inputSchema": { "type": "object", "properties": { "table": { "type": "string" } } },
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false }
        },
        { "name": "hang", "inputSchema": { "type": "object" } }
    ] })
}

struct World {
    home: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = json!({ "command": "sh", "args": ["-c", SERVER], "env": { "TOOLS": tools().to_string() } });
        let config = json!({ "mcpServers": { "My Files": server } });
        std::fs::write(home.path().join("mcp.json"), config.to_string()).unwrap();
        Self { home }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    /// Runs with the config, and with this stdin.
    fn fed(&self, args: &[&str], stdin: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
        let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
        command.env_clear().envs(places.map(|place| (place, self.path()))).current_dir(self.path());
        command.args(args).args(["--config", "mcp.json"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        self.shown(&child.wait_with_output().unwrap())
    }

    fn run(&self, args: &[&str]) -> String {
        self.fed(args, "")
    }

    fn shown(&self, output: &Output) -> String {
        let home = self.path().to_str().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(home, "~");
        let parts = [("stdout", text(&output.stdout)), ("stderr", text(&output.stderr))];
        let parts = parts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("--- {name}\n{text}"));
        format!("exit {}\n{}", output.status.code().unwrap(), parts.collect::<String>())
    }
}

#[test]
fn first_hour_r2_one_tool_is_shown_whole() {
    let world = World::new();
    assert_snapshot!(world.run(&["tools"]), @"
    exit 0
    --- stdout
    TOOL                           ARGUMENTS                          DESCRIPTION
    my-files__search_all_9342b197  path= [depth=] [kind=] [options=]  Looks for files.
    my-files__shots                                                   Takes two.
    my-files__drop                 [table=]
    my-files__hang
    ");
    assert_snapshot!(world.run(&["tools", "my-files.search.all"]), @r#"
    exit 0
    --- stdout
    my-files__search_all_9342b197
    Search files

    Looks for files.

    Goes through every folder       below `path`. [2J

    Its server says: read-only, stays within its own data.

    Arguments:
      depth         integer, 1 to 9, default 3
                      How deep.
      kind          "file" | "folder"
      options       object
      options.case  boolean, required, default false
      path          string, required, at least 1 character
                      Where to begin.

    Example:
      mcp-host call my-files__search_all_9342b197 path=PATH --config mcp.json
    "#);
    assert_snapshot!(world.run(&["tools", "My Files", "drop"]), @"
    exit 0
    --- stdout
    my-files__drop

    Its server says: changes things, destructive, not safe to repeat.

    Arguments:
      table  string

    Example:
      mcp-host call my-files__drop table=TABLE --config mcp.json
    ");
    assert_snapshot!(world.run(&["tools", "my-files/shots", "--json"]), @r#"
    exit 0
    --- stdout
    {"name":"my-files__shots","server":"my-files","definition":{"description":"Takes two.","inputSchema":{"type":"object"},"name":"my-files__shots"}}
    "#);
    assert_snapshot!(world.run(&["tools", "my-files__shot"]), @"
    exit 2
    --- stderr
    error: no server and no tool is called `my-files__shot`
    help: did you mean `my-files__shots`, `my-files__drop` or `my-files__hang`?
    ");
    assert_snapshot!(world.run(&["tools", "my-fils"]), @"
    exit 2
    --- stderr
    error: no server is called `my-fils`
    help: did you mean `my-files` or `My Files`?
    ");
    assert_snapshot!(world.run(&["tools", "something"]), @"
    exit 2
    --- stderr
    error: no server and no tool is called `something`
    help: mcp-host tools --config mcp.json lists all
    ");
}

#[test]
fn first_hour_r2_the_example_of_a_tool_works_in_a_shell() {
    let world = World::new();
    let shown = world.run(&["tools", "my-files search.all"]);
    let line = shown.lines().find(|line| line.contains("mcp-host call")).unwrap();
    let script = line.replace("mcp-host call", &format!("'{}' call", env!("CARGO_BIN_EXE_mcp-host")));
    let output = Command::new("sh").args(["-c", &script]).current_dir(world.path()).output().unwrap();
    assert_eq!(world.shown(&output), "exit 0\n--- stdout\n{\"path\":\"PATH\"}\n");
}

#[test]
fn first_hour_r2_arguments_are_compared_with_the_schema_before_the_call() {
    let world = World::new();
    let call = |words: &[&str]| world.run(&[&["call", "My Files", "search.all"], words].concat());
    assert_snapshot!(call(&["path=x", "depth=2"]), @r#"
    exit 0
    --- stdout
    {"path":"x","depth":2}
    --- stderr
    note: `My Files search.all` is `my-files__search_all_9342b197`
    "#);
    assert_snapshot!(call(&["paht=x"]), @"
    exit 2
    --- stderr
    note: `My Files search.all` is `my-files__search_all_9342b197`
    error: tool `my-files__search_all_9342b197` needs `path`; `paht` is not among its arguments
    help: did you mean `path`?
    help: --no-check sends the arguments as they are; what it takes is told by: mcp-host tools my-files__search_all_9342b197 --config mcp.json
    ");
    assert!(
        call(&["depth=2"])
            .ends_with("help: mcp-host call my-files__search_all_9342b197 depth=2 path=PATH --config mcp.json\n")
    );
    // The content of a file is not shown.
    std::fs::write(world.path().join("depth.txt"), "7").unwrap();
    assert!(
        call(&["depth=@depth.txt"]).ends_with("search_all_9342b197 depth=@depth.txt path=PATH --config mcp.json\n")
    );
    assert_snapshot!(call(&["path=x", "depth=10", "kind=fodler"]), @r#"
    exit 2
    --- stderr
    note: `My Files search.all` is `my-files__search_all_9342b197`
    error: `depth` must be at most 9
    error: `kind` must be one of "file", "folder"
    help: did you mean `folder`?
    help: --no-check sends the arguments as they are; what it takes is told by: mcp-host tools my-files__search_all_9342b197 --config mcp.json
    "#);
    assert_snapshot!(call(&["{\"path\":\"x\",\"options\":{}}"]), @"
    exit 2
    --- stderr
    note: `My Files search.all` is `my-files__search_all_9342b197`
    error: `options` needs `case`
    help: --no-check sends the arguments as they are; what it takes is told by: mcp-host tools my-files__search_all_9342b197 --config mcp.json
    ");
    assert_snapshot!(call(&["paht=x", "depth=10", "--no-check"]), @r#"
    exit 0
    --- stdout
    {"paht":"x","depth":10}
    --- stderr
    note: `My Files search.all` is `my-files__search_all_9342b197`
    "#);
    // A schema that does not mention other arguments allows them.
    assert_snapshot!(world.run(&["call", "my-files__drop", "tabel=x"]), @r#"
    exit 0
    --- stdout
    {"tabel":"x"}
    --- stderr
    warning: tool `my-files__drop` does not name an argument `tabel`
    help: did you mean `table`?
    "#);
}

#[test]
fn first_hour_r2_arguments_come_from_stdin_and_files() {
    let world = World::new();
    let call = |words: &[&str], stdin: &str| world.fed(&[&["call", "my-files__drop"], words].concat(), stdin);
    std::fs::write(world.path().join("a.json"), "{\"table\": \"from a file\"}\n").unwrap();
    std::fs::write(world.path().join("note.txt"), "@two words").unwrap();
    std::fs::write(world.path().join("bytes"), [0xff, 0xfe]).unwrap();
    let answer = |text: &str| format!("exit 0\n--- stdout\n{text}\n");
    assert_eq!(call(&["-"], "{\"table\":\"from stdin\"}"), answer("{\"table\":\"from stdin\"}"));
    assert_eq!(call(&["@a.json"], ""), answer("{\"table\": \"from a file\"}"));
    assert_eq!(call(&["table=@note.txt"], ""), answer("{\"table\":\"@two words\"}"));
    assert_eq!(call(&["table=@-"], "typed"), answer("{\"table\":\"typed\"}"));
    assert_eq!(call(&["table=@@note.txt"], ""), answer("{\"table\":\"@note.txt\"}"));
    assert_snapshot!(call(&["-"], "[1]"), @"
    exit 2
    --- stderr
    error: stdin is JSON, but not an object
    help: it must be one JSON object
    ");
    assert_snapshot!(call(&["-"], ""), @"
    exit 2
    --- stderr
    error: stdin is not valid JSON: the text ends early at byte 0
    help: it must be one JSON object
    ");
    assert_snapshot!(call(&["@nope.json"], ""), @"
    exit 2
    --- stderr
    error: `nope.json` cannot be read: no such file or directory
    help: mcp-host call TOOL @FILE takes all arguments from a file, as one JSON object
    ");
    assert_snapshot!(call(&["table=@scope/pkg"], ""), @"
    exit 2
    --- stderr
    error: `scope/pkg` cannot be read: no such file or directory
    help: table=@FILE reads a file; to pass a text that begins with @, write 'table=@@scope/pkg'
    ");
    assert_snapshot!(call(&["table=@bytes"], ""), @r#"
    exit 2
    --- stderr
    error: `bytes` is not UTF-8 text
    help: where a tool takes bytes as base64, give it that: data="$(base64 -w0 FILE)"
    "#);
    assert_snapshot!(call(&["table=x", "-"], ""), @"
    exit 2
    --- stderr
    error: `-` gives all arguments at once, so nothing may stand beside it
    help: mcp-host call TOOL -, mcp-host call TOOL @FILE, or for one argument: key=@FILE
    ");
}

#[test]
fn first_hour_r2_images_and_audio_are_saved_where_the_user_says() {
    let world = World::new();
    assert_snapshot!(world.run(&["call", "my-files.shots"]), @"
    exit 0
    --- stdout
    two
    [image/png, 3 bytes: --out FILE saves it]
    [audio/wav, 5 bytes: --out FILE saves it]
    --- stderr
    note: `my-files.shots` is `my-files__shots`
    ");
    assert_snapshot!(world.run(&["call", "my-files.shots", "--out", "shot.png"]), @"
    exit 0
    --- stdout
    two
    [image/png, 3 bytes: saved as shot.png]
    [audio/wav, 5 bytes: saved as shot-2.png]
    --- stderr
    note: `my-files.shots` is `my-files__shots`
    ");
    assert_snapshot!(world.run(&["call", "my-files.shots", "--out", "shot.png"]), @"
    exit 2
    --- stderr
    error: --out shot.png: the file exists, and is not overwritten
    help: name another file, or a folder: each file gets a name there
    ");
    assert_snapshot!(world.run(&["call", "my-files.shots", "--out", "."]), @"
    exit 0
    --- stdout
    two
    [image/png, 3 bytes: saved as ./my-files__shots-1.png]
    [audio/wav, 5 bytes: saved as ./my-files__shots-2.wav]
    --- stderr
    note: `my-files.shots` is `my-files__shots`
    ");
    assert_snapshot!(world.run(&["call", "my-files.shots", "--out", "shots/"]), @"
    exit 2
    --- stderr
    error: --out shots/: there is no such folder
    help: mkdir -p shots/
    ");
    assert_snapshot!(world.run(&["call", "my-files.drop", "--out", "text"]), @"
    exit 0
    --- stdout
    {}
    --- stderr
    note: `my-files.drop` is `my-files__drop`
    note: the answer holds nothing to save, only text
    ");
    assert_snapshot!(world.run(&["read", "my-files+file:///logo"]), @"
    exit 0
    --- stdout
    [my-files+file:///logo, image/png, 3 bytes: --out FILE saves it]
    ");
    assert_snapshot!(world.run(&["read", "my-files+file:///logo", "--out", "logo.png"]), @"
    exit 0
    --- stdout
    [my-files+file:///logo, image/png, 3 bytes: saved as logo.png]
    ");
    let read = |name: &str| std::fs::read_to_string(world.path().join(name)).unwrap();
    let names = ["shot.png", "shot-2.png", "my-files__shots-1.png", "my-files__shots-2.wav", "logo.png"];
    assert_eq!(names.map(read), ["ABC", "ABCDE", "ABC", "ABCDE", "ABC"]);
}

#[test]
fn first_hour_r2_a_call_may_be_given_less_time() {
    let world = World::new();
    assert_snapshot!(world.run(&["call", "my-files__hang", "--timeout", "50ms"]), @"
    exit 7
    --- stderr
    error: my-files__hang gave no answer within 50ms
    help: give it more time with a longer --timeout
    ");
    assert_snapshot!(world.run(&["call", "my-files__hang", "--timeout", "30"]), @"
    exit 2
    --- stderr
    error: invalid value '30' for '--timeout <TIME>': write it with a unit: 500ms, 30s, 5m, 1h
    help: mcp-host --help lists the commands
    ");
}
