//! Mistakes in config files. `check` finds almost all of them, without starting anything.

use super::Mistake;

pub(super) const TABLE: &[Mistake] = &[
    Mistake {
        name: "unknown path",
        says: &["/home/ada/.cursor/mpc.json", "no such file", "help: "],
        never: &["no config found"],
        act: |scene| {
            scene.types("mcp-host serve --config ~/.cursor/mpc.json");
        },
    },
    Mistake {
        name: "missing variable",
        says: &["mcp.json:3", "\"github\"", "GITHUB_TOKEN is not set", "export GITHUB_TOKEN="],
        never: &["mcp.json: ok"],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "github": { "command": "good-server", "env": { "TOKEN": "${GITHUB_TOKEN}" } }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "smart quotes",
        says: &["mcp.json:2:3", "“mcpServers”", "a curly quote", "write plain quotes"],
        never: &[],
        act: |scene| {
            scene.file("mcp.json", "{\n  “mcpServers”: { “files”: { “command”: “good-server” } }\n}\n");
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "trailing comma",
        says: &["[exit 0]"],
        never: &["error"],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                "{\n  \"mcpServers\": {\n    \"files\": { \"command\": \"good-server\", \"args\": [], },\n  },\n}\n",
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "duplicate key",
        says: &["mcp.json:4", "\"files\"", "mcp.json:3", "help: "],
        never: &[],
        act: |scene| {
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "files": { "command": "good-server", "args": ["/a"] },
    "files": { "command": "good-server", "args": ["/b"] }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "alias clash",
        says: &["mcp.json:4", "\"my-files\"", "\"My Files\"", "mcp.json:3", "rename one of them"],
        never: &[],
        act: |scene| {
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "My Files": { "command": "good-server" },
    "my-files": { "command": "good-server" }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "unknown key",
        says: &["mcp.json:3", "comand", "did you mean `command`?", "mcp.json:4", "agrs", "did you mean `args`?"],
        never: &["mcp.json: ok"],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "files": { "comand": "good-server" },
    "notes": { "command": "good-server", "agrs": ["/a"] }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "args as text",
        says: &["mcp.json:3", "args", r#"["-y", "@modelcontextprotocol/server-filesystem", "/a"]"#],
        never: &[],
        act: |scene| {
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "files": { "command": "npx", "args": "-y @modelcontextprotocol/server-filesystem /a" }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "bare duration",
        says: &["mcp.json:3", "callTimeout", "has no unit", "\"30s\""],
        never: &[],
        act: |scene| {
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "files": { "command": "good-server", "callTimeout": 30 }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "seconds for milliseconds",
        says: &["mcp.json:3", "timeout", "30 ms", "30000"],
        never: &[],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "files": { "command": "good-server", "timeout": 30 }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "htps",
        says: &["mcp.json:3", "\"htps\"", "https://example.com/mcp"],
        never: &[],
        act: |scene| {
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "docs": { "url": "htps://example.com/mcp" }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "TOML in .json",
        says: &["this is TOML", "mcp.toml"],
        never: &[],
        act: |scene| {
            scene.file("mcp.json", "[mcp_servers.files]\ncommand = \"good-server\"\nargs = [\"/a\"]\n");
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "YAML in .json",
        says: &["this is YAML", "mcp.yaml"],
        never: &[],
        act: |scene| {
            scene.file("mcp.json", "mcpServers:\n  files:\n    command: good-server\n");
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "a tab in YAML",
        says: &["mcp.yaml:2", "tab", "spaces"],
        never: &[],
        act: |scene| {
            scene.file("mcp.yaml", "extensions:\n\tfiles:\n\t\ttype: stdio\n\t\tcmd: good-server\n");
            scene.types("mcp-host check --config mcp.yaml");
        },
    },
    Mistake {
        name: "an empty file",
        says: &["mcp.json", "empty", "\"mcpServers\"", "help: "],
        never: &["mcp.json: ok"],
        act: |scene| {
            scene.file("mcp.json", "");
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "no servers",
        says: &["mcp.json", "no servers"],
        never: &[],
        act: |scene| {
            scene.file("mcp.json", "{ \"mcpServers\": {} }\n");
            scene.types("mcp-host check --config mcp.json");
        },
    },
    Mistake {
        name: "relative ${workspaceFolder}",
        says: &["good-server /home/ada/work/src"],
        never: &["good-server /src", "cannot be read"],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(".env", "KEY=1\n");
            scene.file(
                ".cursor/mcp.json",
                r#"{
  "mcpServers": {
    "files": {
      "command": "good-server",
      "args": ["${workspaceFolder}/src"],
      "envFile": "${workspaceFolder}/.env"
    }
  }
}
"#,
            );
            scene.types("mcp-host check --config .cursor/mcp.json");
        },
    },
    Mistake {
        name: "LAN http",
        says: &["`home`", "mcp.json:3", "\"insecureHttp\": true", "s__add"],
        never: &[],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "home": { "url": "http://homeassistant.local:8123/mcp_server/sse" },
    "s": { "command": "good-server" }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
            scene.types("mcp-host tools --config mcp.json");
        },
    },
    Mistake {
        name: "itself",
        says: &["`host`", "mcp.json:4", "this host itself", "s__add"],
        never: &["host__", "s__s__"],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "s": { "command": "good-server" },
    "host": { "command": "mcp-host", "args": ["stdio", "--config", "mcp.json"] }
  }
}
"#,
            );
            scene.types("mcp-host check --config mcp.json");
            scene.types("mcp-host tools --config mcp.json");
        },
    },
    Mistake {
        name: "not approved",
        says: &["not approved", "help: mcp-host approve", "s__add"],
        never: &["--connect"],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp-host.json",
                r#"{
  "mcpServers": {
    "s": { "command": "good-server" }
  }
}
"#,
            );
            scene.types("mcp-host tools");
            scene.types("mcp-host approve --yes");
            scene.types("mcp-host tools");
        },
    },
    Mistake {
        name: "a file that all may read",
        says: &["chmod 600 mcp.json"],
        never: &[],
        act: |scene| {
            scene.has_a_good_server();
            scene.file(
                "mcp.json",
                r#"{
  "mcpServers": {
    "s": { "command": "good-server", "env": { "API_KEY": "an-example-of-a-key" } }
  }
}
"#,
            );
            scene.types("chmod 644 mcp.json; mcp-host check --config mcp.json");
        },
    },
];

#[test]
fn files() {
    super::make("files", TABLE);
}
