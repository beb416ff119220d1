//! Servers that do not start.

use super::Mistake;
use super::scene::Scene;
use super::servers::config;

/// A config with one server `s`, and both commands a user tries.
fn tried(scene: &mut Scene, entry: &str) {
    scene.file("mcp.json", &config("s", entry));
    scene.types("mcp-host check --config mcp.json");
    scene.types("mcp-host tools --config mcp.json");
}

pub(super) const TABLE: &[Mistake] = &[
    Mistake {
        name: "not found",
        says: &["mcp.json:3", "`good-servr`", "not found on PATH", "help: install it, or give its full path"],
        never: &["mcp.json: ok", "os error"],
        act: |scene| tried(scene, r#"{ "command": "good-servr" }"#),
    },
    Mistake {
        name: "not executable",
        says: &["not executable", "help: chmod +x /home/ada/work/server.py"],
        never: &["mcp.json: ok", "os error"],
        act: |scene| {
            scene.write("server.py", "#!/usr/bin/env python3\n");
            tried(scene, r#"{ "command": "./server.py" }"#);
        },
    },
    Mistake {
        name: "no #!",
        says: &["without a `#!` line", "help: begin /home/ada/work/server.py with #!/usr/bin/env python3"],
        never: &["os error"],
        act: |scene| {
            scene.program("server.py", "import sys\nprint(sys.argv)\n");
            tried(scene, r#"{ "command": "./server.py" }"#);
        },
    },
    Mistake {
        name: "cwd missing",
        says: &["mcp.json:3", "`cwd` /home/ada/projects/notes", "help: mkdir -p /home/ada/projects/notes"],
        never: &["mcp.json: ok", "good-server cannot be found"],
        act: |scene| {
            scene.has_a_good_server();
            tried(scene, r#"{ "command": "good-server", "cwd": "~/projects/notes" }"#);
        },
    },
    Mistake {
        name: "one-string command",
        says: &["mcp.json:3", r#""command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]"#],
        never: &["mcp.json: ok"],
        act: |scene| tried(scene, r#"{ "command": "npx -y @modelcontextprotocol/server-everything" }"#),
    },
    Mistake {
        name: "~",
        says: &["`~` is not expanded", "help: write \"command\": \"/home/ada/bin/good-server\""],
        never: &["mcp.json: ok"],
        act: |scene| {
            scene.has_a_good_server();
            tried(scene, r#"{ "command": "~/bin/good-server" }"#);
        },
    },
    Mistake {
        name: "hang at start",
        says: &["Please enter your API key:", "startTimeout", "nobody can type", "`env`"],
        never: &["initializing"],
        act: |scene| {
            scene.program(
                "~/bin/asking-server",
                "#!/bin/sh\nprintf 'Please enter your API key: ' >&2\nexec sleep 600\n",
            );
            scene.file("mcp.json", &config("s", r#"{ "command": "asking-server", "startTimeout": "1s" }"#));
            scene.types("mcp-host tools --config mcp.json");
            scene.types("mcp-host check --connect --config mcp.json");
        },
    },
    Mistake {
        name: "ends at once",
        says: &["`s`", "exit code 3", "API_KEY is missing"],
        never: &[],
        act: |scene| {
            scene.program("~/bin/keyed-server", "#!/bin/sh\necho 'fatal: API_KEY is missing' >&2\nexit 3\n");
            scene.file("mcp.json", &config("s", r#"{ "command": "keyed-server" }"#));
            scene.types("mcp-host tools --config mcp.json");
            scene.types("mcp-host check --connect --config mcp.json");
        },
    },
    Mistake {
        name: "prints on stdout",
        says: &["Server is running!", "s__add", "stdout"],
        never: &["error"],
        act: |scene| {
            scene.program("~/bin/chatty-server", &super::servers::good("echo 'Server is running!'; echo 'Have fun'"));
            scene.file("mcp.json", &config("s", r#"{ "command": "chatty-server" }"#));
            scene.types("mcp-host tools --config mcp.json");
            scene.types("mcp-host check --connect --config mcp.json");
        },
    },
];

#[test]
fn starts() {
    super::make("starts", TABLE);
}
