//! One-shot commands beside a daemon use its servers.

use serde_json::Value;

use super::{Daemon, Place};

fn run(place: &Place, args: &[&str]) -> (i32, String, String) {
    let output = place.command(args).args(["--config", "mcp.json"]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Returns each tool and its server.
fn names(listed: &str) -> Vec<(Value, Value)> {
    let tools: Vec<Value> = serde_json::from_str(listed).unwrap();
    tools.into_iter().map(|mut tool| (tool["name"].take(), tool["server"].take())).collect()
}

/// Returns a daemon whose server is connected, and how often that was started so far.
fn connected(place: &Place) -> (Daemon, usize) {
    let daemon = place.serve();
    super::until(|| {
        let status = place.command(&["status", "--json"]).output().unwrap();
        serde_json::from_slice::<Value>(&status.stdout).is_ok_and(|status| status["servers"][0]["state"] == "connected")
    });
    (daemon, place.starts())
}

#[test]
fn lists_start_no_server_once_more() {
    let place = Place::new();
    let alone = run(&place, &["tools", "--json"]);
    assert!(place.starts() > 0);
    let (daemon, starts) = connected(&place);
    for args in [["tools", "--json"], ["tools", "echo"], ["tools", "echo.ask"]] {
        let (code, out, err) = run(&place, &args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains("ask"), "{out}");
        assert_eq!(place.starts(), starts, "{args:?}");
    }
    assert_eq!(names(&run(&place, &["tools", "--json"]).1), names(&alone.1));
    drop(daemon);
}

#[test]
fn calls_start_no_server_once_more() {
    let place = Place::new();
    let (daemon, starts) = connected(&place);
    let (code, out, err) = run(&place, &["call", "echo__countdown", "from=1"]);
    assert_eq!(code, 0, "{out}{err}");
    // By the server's own name for it.
    let (code, out, err) = run(&place, &["call", "echo.echo", "text=hello"]);
    assert_eq!((code, out.as_str()), (0, "hello\n"), "{err}");
    // The daemon's errors about missing tools and arguments are shown as usual.
    let (code, _, err) = run(&place, &["call", "echo__contdown"]);
    assert_eq!(code, 2);
    assert!(err.starts_with("error: no tool is called `echo__contdown`\n"), "{err}");
    assert_eq!(run(&place, &["call", "echo__countdown", "from=x"]).0, 2);
    assert_eq!(place.starts(), starts);
    drop(daemon);
}

/// A daemon elsewhere whose clock has a resource and a prompt, and its address.
fn clock() -> (Place, Daemon, String) {
    let place = Place::new();
    let mut command = place.command(&["serve", "--demo", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    (place, Daemon(child), url)
}

#[test]
fn every_one_shot_is_a_client_of_the_daemon() {
    let (elsewhere, behind, url) = clock();
    let place = Place::new();
    let text = std::fs::read_to_string(place.file("mcp.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["mcpServers"]["Demo"] = serde_json::json!({ "type": "http", "url": url });
    config["mcpServers"]["away"] = serde_json::json!({ "command": place.file("no such program") });
    place.write(&config);
    // What each prints without a daemon and with one, apart from what no daemon has a word for.
    let commands: [&[&str]; 10] = [
        &["tools", "--json"],
        &["tools", "Demo"],
        &["resources"],
        &["resources", "Demo", "--json"],
        &["prompts", "--json"],
        &["prompts", "echo"],
        &["prompt", "Demo.clock__plan", "topic=tea"],
        &["prompt", "demo__clock__plan"],
        &["read", "demo+clock+clock://now"],
        &["read", "demo+clock+clock://then"],
    ];
    let alone: Vec<_> = commands.iter().map(|args| run(&place, args)).collect();
    let daemon = place.serve();
    super::until(|| {
        let status = place.command(&["status", "--json"]).output().unwrap();
        serde_json::from_slice::<Value>(&status.stdout).is_ok_and(|status| {
            let servers = status["servers"].as_array().unwrap().iter();
            let states: Vec<&str> = servers.filter_map(|server| server["state"].as_str()).collect();
            states == ["connected", "failed", "connected"]
        })
    });
    let starts = place.starts();
    for (args, alone) in commands.iter().zip(alone) {
        let (code, out, err) = run(&place, args);
        assert_eq!(code, alone.0, "{args:?}: {err} / {}", alone.2);
        // Others print the time.
        match args[0] {
            "read" | "prompt" => assert_eq!(out.is_empty(), alone.1.is_empty(), "{args:?}: {out}"),
            // The daemon marks each tool as one that can run as a task.
            _ if args.contains(&"--json") => assert_eq!(names(&out), names(&alone.1), "{args:?}"),
            _ => assert_eq!(out, alone.1, "{args:?}"),
        }
    }
    assert_eq!(place.starts(), starts, "nothing is started once more");
    // A server that failed there is reported like one that fails here.
    let (code, _, err) = run(&place, &["tools", "away"]);
    assert!(code == 4 && err.contains("server `away` did not start"), "{err}");
    let (code, out, err) = run(&place, &["check", "--connect"]);
    assert_eq!(code, 4, "{out}{err}");
    assert!(
        err.contains("note: this is the state of the mcp-host on port ") && out.contains("connected"),
        "{out}{err}"
    );
    assert_eq!(place.starts(), starts, "it tells the daemon's state");
    drop((daemon, behind, elsewhere));
}

#[test]
fn without_a_config_the_one_daemon_is_meant() {
    let place = Place::new();
    let (daemon, starts) = connected(&place);
    let run = |args: &[&str]| {
        let output = place.command(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    for args in [&["tools", "--json"][..], &["tools", "echo"], &["tools", "echo.ask"]] {
        let (code, out, err) = run(args);
        assert!(code == 0 && out.contains("ask"), "{args:?}: {out}{err}");
    }
    for args in [&["call", "echo__echo", "text=hello"][..], &["call", "echo", "echo", "text=hello"]] {
        assert_eq!(run(args), (0, "hello\n".to_owned(), run(args).2), "{args:?}");
    }
    let (code, _, err) = run(&["tools", "ecko"]);
    assert!(code == 2 && err.contains("`ecko`") && err.contains("`echo`"), "{err}");
    assert_eq!(place.starts(), starts);
    // Two daemons are ambiguous, and without any there is nothing.
    let second = place.serve();
    assert!(run(&["tools"]).2.starts_with("error: no config"), "{}", run(&["tools"]).2);
    drop((daemon, second));
    assert!(run(&["tools"]).2.starts_with("error: no config"), "{}", run(&["tools"]).2);
}

#[test]
fn a_question_during_a_call_reaches_the_one_shot() {
    let place = Place::new();
    let (daemon, _) = connected(&place);
    let (code, out, err) = run(&place, &["call", "echo__ask"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("note: server `echo` asked") && err.contains("was declined"), "{err}");
    drop(daemon);
}
