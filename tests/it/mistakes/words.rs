//! Mistakes on the command line.

use std::time::Instant;

use rustix::process::Signal;

use super::Mistake;
use super::scene::Scene;
use super::servers::config;

/// The good server as `s`, in `mcp.json`.
fn has_s(scene: &Scene) {
    scene.has_a_good_server();
    scene.write("mcp.json", &config("s", r#"{ "command": "good-server" }"#));
}

pub(super) const TABLE: &[Mistake] = &[
    Mistake {
        name: "server misspelt",
        says: &["no server is called `clok`", "did you mean `clock`?"],
        never: &[],
        act: |scene| {
            scene.types("mcp-host tools --demo clok");
        },
    },
    Mistake {
        name: "tool misspelt",
        says: &["no tool is called `echo__ecko`", "did you mean `echo__echo`"],
        never: &[],
        act: |scene| {
            scene.types("mcp-host call --demo echo__ecko text=hello");
        },
    },
    Mistake {
        name: "resource misspelt",
        says: &["clock://noon", "did you mean `clock+clock://now`?"],
        never: &[],
        act: |scene| {
            scene.types("mcp-host read --demo clock+clock://noon");
        },
    },
    Mistake {
        name: "prompt misspelt",
        says: &["no prompt is called `clock__plann`", "did you mean `clock__plan`?"],
        never: &[],
        act: |scene| {
            scene.types("mcp-host prompt --demo clock__plann topic=x");
        },
    },
    Mistake {
        name: "command misspelt",
        says: &["`tolls`", "mcp-host tools"],
        never: &["subcommand"],
        act: |scene| {
            scene.types("mcp-host tolls");
        },
    },
    Mistake {
        name: "flag misspelt",
        says: &["--confg", "--config"],
        never: &["-- --confg"],
        act: |scene| {
            scene.types("mcp-host tools --confg mcp.json");
        },
    },
    Mistake {
        name: "wrong types of arguments",
        says: &["`a`", "must be a number", "`two`", "a=1.5", "mcp-host tools s__add"],
        never: &[],
        act: |scene| {
            has_s(scene);
            scene.types("mcp-host call s__add a=two b=3 --config mcp.json");
            scene.types("mcp-host call s__add '{\"a\": \"two\", \"b\": 3}' --config mcp.json");
        },
    },
    Mistake {
        name: "missing argument",
        says: &["s__add", "needs `b`", "help: mcp-host call s__add a=1 b=1 --config mcp.json"],
        never: &["done"],
        act: |scene| {
            has_s(scene);
            scene.types("mcp-host call s__add a=1 --config mcp.json");
        },
    },
    Mistake {
        name: "argument misspelt",
        says: &["warning", "`nota`", "did you mean `note`?"],
        never: &[],
        act: |scene| {
            has_s(scene);
            scene.types("mcp-host call s__add a=1 b=2 nota=x --config mcp.json");
        },
    },
    Mistake {
        name: "s.big",
        says: &["s__add"],
        never: &[],
        act: |scene| {
            has_s(scene);
            scene.types("mcp-host call s.add a=1 b=2 --config mcp.json");
            scene.types("mcp-host call s/add a=1 b=2 --config mcp.json");
            scene.types("mcp-host call s add a=1 b=2 --config mcp.json");
            scene.types("mcp-host call add a=1 b=2 --config mcp.json");
        },
    },
    Mistake {
        name: "huge result",
        says: &["\"s\"", "16 MiB", "\"limits\": { \"message\": \"64MiB\" }"],
        never: &["xxxx"],
        act: |scene| {
            has_s(scene);
            scene.types("mcp-host call s__big kib=17000 --config mcp.json");
        },
    },
    Mistake {
        name: "question without a terminal",
        says: &["`echo` asked", "no terminal", "help: "],
        never: &[],
        act: |scene| {
            scene.types("mcp-host call --demo echo__ask");
        },
    },
    Mistake {
        name: "file as positional",
        says: &["mcp-host serve --config mcp.json", "mcp-host check --config mcp.json"],
        never: &["subcommand"],
        act: |scene| {
            has_s(scene);
            scene.types("mcp-host mcp.json");
            scene.types("mcp-host serve mcp.json");
            scene.types("mcp-host check mcp.json");
        },
    },
    Mistake {
        name: "--port",
        says: &["mcp-host serve --listen 127.0.0.1:9000"],
        never: &["-- --port"],
        act: |scene| {
            scene.types("mcp-host serve --port 9000");
            scene.types("mcp-host serve -p 9000");
        },
    },
    Mistake {
        name: "--host",
        says: &["--listen 0.0.0.0:8808"],
        never: &["-- --host"],
        act: |scene| {
            scene.types("mcp-host serve --host 0.0.0.0");
        },
    },
    Mistake {
        name: "logs",
        says: &["`log`", "mcp-host serve -v", "mcp-host logs"],
        never: &["logout", "login", "subcommand"],
        act: |scene| {
            scene.types("mcp-host log");
        },
    },
    Mistake {
        name: "commands of others",
        says: &["mcp-host check", "mcp-host status", "mcp-host serve", "mcp-host tools"],
        never: &["subcommand", "logout"],
        act: |scene| {
            for command in [
                "ls",
                "add github",
                "add github npx -y server",
                "rm github",
                "restart",
                "ps",
                "start",
                "stop",
                "run",
                "init",
            ] {
                scene.types(&format!("mcp-host {command}"));
            }
        },
    },
    Mistake {
        name: "no config anywhere",
        says: &["mcp-host serve --demo", "Cursor has 1 server: mcp-host serve --config ~/.cursor/mcp.json"],
        never: &[],
        act: |scene| {
            scene.write("~/.cursor/mcp.json", "{ \"mcpServers\": { \"s\": { \"command\": \"good-server\" } } }\n");
            scene.types("mcp-host serve");
        },
    },
    Mistake {
        name: "Ctrl-C",
        says: &["[exit 130]", "stopped", "[exit 0]"],
        never: &["error"],
        act: |scene| {
            let script =
                super::servers::good("").replace("reply '{\"content\"", "touch called; exec sleep 600 ;;\n*) : '{");
            scene.program("~/bin/slow-server", &script);
            scene.write("mcp.json", &config("s", r#"{ "command": "slow-server" }"#));
            let program = scene.begins("mcp-host call s__add a=1 b=2 --config mcp.json");
            let (called, begun) = (scene.path("called"), Instant::now());
            while !called.exists() {
                assert!(begun.elapsed() < super::scene::PATIENCE, "it is not called");
                std::thread::yield_now();
            }
            scene.remark("Ctrl-C");
            program.signal(Signal::INT);
            scene.ends(program);
            let mut program = scene.begins("mcp-host serve --config mcp.json --listen 127.0.0.1:0");
            scene.listens(&mut program);
            program.hears("1 server: ");
            scene.remark("Ctrl-C");
            program.signal(Signal::INT);
            scene.ends(program);
        },
    },
];

#[test]
fn words() {
    super::make("words", TABLE);
}
