//! `mcp-host sandbox learn`: what a server does without a sandbox becomes what its entry has to list.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::explain::has_strace;
use super::hosts::{fetch, page};
use super::support::{Home, can_have_namespaces};

/// Runs `sandbox learn box` with these words behind it.
fn learn(home: &Home, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    command.args(["sandbox", "learn", "box", "--config"]).arg(home.at("mcp.json")).args(words);
    command
        .current_dir(home.at(""))
        .env_clear()
        .env("HOME", home.at(""))
        .env("PATH", std::env::var_os("PATH").unwrap());
    command.output().unwrap()
}

fn both(output: Output) -> String {
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

#[test]
fn h108_what_a_server_does_is_learned_and_a_key_is_not() {
    if !has_strace() || !can_have_namespaces("h108: sandbox learn") {
        return;
    }
    let (home, port) = (Home::new(), page());
    for name in ["a", "b", "c"] {
        std::fs::create_dir_all(home.at("album")).unwrap();
        std::fs::write(home.at("album").join(name), name).unwrap();
    }
    home.write(&json!({ "box": home.entry(&json!("off")) }));
    let key = "open(real + '/.ssh/id').read()";
    let work = format!(
        "open(real + '/note').read(); [open(real + '/album/' + name).read() for name in 'abc']\n\
         open(real + '/desk/new', 'w').write('x'); os.rename(real + '/desk/new', real + '/desk/old')\n{}",
        fetch(port)
    );
    let call = format!("code={key}\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n{work}");
    let output = learn(&home, &["--yes", "--json", "--", "call", "box__run", &call]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_str(&said).unwrap();
    let sandbox = &told["sandbox"];
    assert_eq!(sandbox["level"], "strict");
    assert_eq!(sandbox["network"], json!([format!("127.0.0.1:{port}")]));
    assert_eq!(sandbox["write"], json!(["~/desk"]));
    let reads: Vec<&str> = sandbox["read"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(reads.contains(&"~/note") && reads.contains(&"~/album"), "{reads:?}");
    assert!(reads.iter().all(|path| !path.contains(".ssh") && *path != "~"), "{reads:?}");
    let row = |kind: &str, what: &str| {
        let rows = told["refused"].as_array().unwrap();
        let row = rows.iter().find(|row| row["kind"] == kind && row["what"] == what);
        row.map(|row| [&row["default"], &row["strict"], &row["listed"]].map(|flag| flag.as_bool().unwrap()))
    };
    assert_eq!(row("read", "~/.ssh/id"), Some([true, true, false]), "{told}");
    assert_eq!(row("read", "~/note"), Some([true, true, true]));
    assert_eq!(row("host", &format!("127.0.0.1:{port}")), Some([false, true, true]));
    assert_eq!(row("call", "socket(AF_NETLINK)"), Some([true, true, false]));
    // Nothing was written.
    let config: Value = serde_json::from_slice(&std::fs::read(home.at("mcp.json")).unwrap()).unwrap();
    assert_eq!(config["mcpServers"]["box"]["sandbox"], "off");
    let left = std::fs::read_dir(home.at(".local/state/mcp-host")).unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("trace-")).collect();
    assert!(left.is_empty(), "{left:?}");
    // With what was learned, the same work is done, and the key stays.
    std::fs::remove_file(home.at("desk/old")).unwrap();
    let mut program = home.start(&json!({ "box": home.entry(sandbox) }));
    assert_eq!(program.run("box", &work).as_deref(), Ok("b'a page'"));
    assert!(program.run("box", &format!("r = {key}")).is_err_and(|error| error.starts_with("FileNotFoundError: ")));
}

#[test]
fn h108_a_server_is_not_watched_without_a_yes() {
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!("default")) }));
    let output = learn(&home, &[]);
    let code = output.status.code();
    let said = both(output);
    assert_eq!(code, Some(6), "{said}");
    let expected = "error: server `box` was not started: there is no terminal to ask on\n\
                    help: mcp-host sandbox learn box --yes starts it without a sandbox\n";
    assert_eq!(said, expected);
    let said = both(learn(&home, &["--yes", "--", "read", "x"]));
    assert!(said.starts_with("error: only `call` may follow `--`, not `read`\nhelp: "), "{said}");
    home.write(&json!({ "box": { "url": "http://127.0.0.1:9/mcp" } }));
    let said = both(learn(&home, &["--yes"]));
    assert!(said.starts_with("error: server `box` has a URL, so there is no process to watch\n"), "{said}");
}

#[test]
fn h108_what_was_learned_is_shown_as_a_table() {
    if !has_strace() {
        return;
    }
    let home = Home::new();
    home.write(&json!({ "box": home.entry(&json!("off")) }));
    let code = "code=open(real + '/note').read(); open(real + '/.ssh/id').read()";
    let output = learn(&home, &["--yes", "--", "call", "box__run", code]);
    let said = both(output);
    let rows: Vec<String> = said
        .lines()
        .filter(|line| line.contains("~/note") || line.contains("~/.ssh"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert!(rows.contains(&"read ~/note refuses refuses yes".to_owned()), "{said}");
    assert!(rows.contains(&"read ~/.ssh/id refuses refuses no".to_owned()), "{said}");
    assert!(rows.iter().any(|row| row.starts_with("\"sandbox\": {") && !row.contains(".ssh")), "{said}");
    assert!(
        said.contains("nothing was written: read each line, and put into the entry of box what it is to have"),
        "{said}"
    );
}
