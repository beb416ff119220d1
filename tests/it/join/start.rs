//! `join: "start"`: the first client starts the daemon of its config, which ends after the last.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{Client, Place, until};

/// Returns the daemon that was started there, as `status` reports it.
fn daemon(place: &Place) -> Option<Value> {
    let status = place.command(&["status", "--json"]).output().unwrap();
    serde_json::from_slice(&status.stdout).ok()
}

/// A home whose daemon ends this long after its last client.
fn place(idle: &str) -> Place {
    Place::with(&json!({ "join": "start", "idleExit": idle }))
}

fn end(place: &Place) {
    let daemon = daemon(place).unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(daemon["pid"].as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until(|| place.sockets().is_empty() && rustix::process::test_kill_process(pid).is_err());
}

#[test]
fn twenty_that_start_at_once_have_one_daemon_that_ends_after_the_last() {
    let place = place("300ms");
    let mut clients: Vec<Client> = (0..20).map(|_| place.stdio()).collect();
    clients = clients.into_iter().map(Client::begun).collect();
    for client in &mut clients {
        assert!(client.tools() > 0);
    }
    assert_eq!(place.sockets().len(), 1);
    assert_eq!(place.starts(), 1);
    let status = daemon(&place).unwrap();
    assert_eq!((&status["listen"], status["clients"].as_array().unwrap().len()), (&Value::Null, 20), "it has no port");
    // It belongs to no session of any terminal, runs at home, and has its own log.
    let process = format!("/proc/{}", status["pid"]);
    if let Ok(stat) = std::fs::read_to_string(format!("{process}/stat")) {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!(fields[3], status["pid"].to_string(), "the leader of its session");
        assert_eq!(std::fs::read_link(format!("{process}/cwd")).unwrap(), place.home.path().canonicalize().unwrap());
    }
    let log = place.sockets()[0].with_extension("log");
    assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // The others do not notice that one leaves.
    let first = clients.remove(0);
    let (code, text) = first.leave();
    assert_eq!((code, text.as_str()), (0, "note: joined the mcp-host of this config\n"));
    for mut client in clients {
        let id = client.call("echo__countdown", &json!({ "from": 1 }));
        assert!(client.answer(id)["result"].is_object());
        client.leave();
    }
    until(|| place.sockets().is_empty());
    assert_eq!(place.starts(), 1);
}

#[test]
fn one_shots_start_it_too_and_it_is_kept_for_the_next() {
    let place = place("10m");
    for args in [["tools", "--json"], ["tools", "echo"]] {
        let output = place.command(&args).args(["--config", "mcp.json"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(place.starts(), 1);
    end(&place);
}

#[test]
fn little_of_the_starter_reaches_it() {
    let place = place("10m");
    let mut command = place.command(&["stdio", "--config", "mcp.json"]);
    let path = std::env::var("PATH").unwrap();
    let path = format!("node_modules/.bin:{}/node_modules/.bin:{path}", place.home.path().display());
    command.env("OTHER", "of the starter").env("SECRET", "named").env("MCP_HOST_TASKS", "true").env("PATH", path);
    let mut client = Client::start(command).begun();
    assert!(client.tools() > 0);
    let status = daemon(&place).unwrap();
    if let Ok(environment) = std::fs::read(format!("/proc/{}/environ", status["pid"])) {
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let has = |text: &str| environment.split('\0').any(|variable| variable.starts_with(text));
        assert!(has("SECRET=named") && has("MCP_HOST_TASKS=true") && has("HOME="), "{environment}");
        assert!(!has("OTHER=") && !has("_MCP_HOST_") && !environment.contains("node_modules"), "{environment}");
    }
    // A client with another value of a variable in the config is refused, and gets its own daemon.
    let mut other = place.command(&["stdio", "--config", "mcp.json"]);
    other.env("SECRET", "another");
    let mut other = Client::start(other).begun();
    assert!(other.tools() > 0);
    assert!(other.leave().1.contains("the variable SECRET has another value there"));
    client.leave();
    end(&place);
}

#[test]
fn it_is_one_whatever_variables_its_clients_have() {
    let place = place("10m");
    let with = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["stdio", "--config", "mcp.json"]);
        command.envs(variables.iter().map(|(name, folder)| (name, place.file(folder))));
        Client::start(command)
    };
    let clients = [with(&[("XDG_RUNTIME_DIR", "run")]), with(&[("XDG_STATE_HOME", "state")]), with(&[]), with(&[])];
    let mut clients = clients.map(Client::begun);
    clients.iter_mut().for_each(|client| assert!(client.tools() > 0));
    assert_eq!((place.starts(), place.sockets().len()), (1, 1));
    // So is `status`, asked by any of them.
    let mut command = place.command(&["status", "--json"]);
    let status = command.env("XDG_STATE_HOME", place.file("state")).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["clients"].as_array().unwrap().len(), 4);
    clients.into_iter().for_each(|client| assert_eq!(client.leave().0, 0));
    end(&place);
}

#[test]
fn it_is_not_started_beside_one_that_is_busy() {
    let place = place("10m");
    let _busy = super::who::socket(&place);
    let mut client = place.stdio().begun();
    assert!(client.tools() > 0);
    let (code, text) = client.leave();
    assert!(code == 0 && text.contains("the mcp-host on port 8808 did not answer"), "{text}");
    let names = std::fs::read_dir(place.file(".local/state/mcp-host")).unwrap();
    let names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with("config-")), "{names:?}");
}

#[test]
fn it_has_a_cap_on_its_clients() {
    let place = Place::with(&json!({ "join": "start", "idleExit": "10m", "limits": { "connections": 2 } }));
    let mut clients = [place.stdio().begun(), place.stdio().begun()];
    clients.iter_mut().for_each(|client| assert!(client.tools() > 0));
    let mut more = place.stdio().begun();
    assert!(more.tools() > 0);
    let (_, text) = more.leave();
    assert!(text.contains("2 connections are in use (host.limits.connections)"), "{text}");
    clients.into_iter().for_each(|client| assert!(client.leave().1.starts_with("note: joined")));
    end(&place);
}

#[test]
fn a_daemon_that_is_killed_is_started_again_once() {
    let place = place("10m");
    let mut clients: Vec<Client> = (0..5).map(|_| place.stdio()).collect();
    clients = clients.into_iter().map(Client::begun).collect();
    let id = clients[0].call("echo__countdown", &json!({ "from": 60 }));
    until(|| daemon(&place).is_some_and(|status| status["servers"][0]["callsRunning"] == 1));
    let status = daemon(&place).unwrap();
    let killed = rustix::process::Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    let answer = clients[0].answer(id);
    assert_eq!(answer["result"]["_meta"]["mcp-host/error"]["kind"], "outcome_unknown", "{answer}");
    for client in &mut clients {
        assert!(client.tools() > 0);
    }
    let again = daemon(&place).unwrap();
    assert_ne!(again["pid"], status["pid"]);
    assert_eq!(again["clients"].as_array().unwrap().len(), 5);
    // The client that started it lets others start the next one.
    let turn = std::fs::File::open(place.sockets()[0].with_extension("start")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "as another process would")]
    let taken = rustix::fs::flock(&turn, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    taken.unwrap();
    drop(turn);
    for client in clients {
        let (code, text) = client.leave();
        assert_eq!(code, 0, "{text}");
        assert!(!text.contains("a host of its own"), "{text}");
    }
    end(&place);
}

#[test]
fn a_config_that_no_daemon_can_serve_has_a_host_of_its_own() {
    // The server resolves to another one where a daemon would run.
    let place = place("10m");
    let folder = place.file("project");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("server.sh"), format!("exec {} __demo-server", super::PROGRAM)).unwrap();
    place.write(&json!({
        "mcpServers": { "echo": { "command": "sh", "args": ["server.sh"] } },
        "host": { "join": "start" },
    }));
    let mut command = place.command(&["stdio", "--config", "../mcp.json"]);
    command.current_dir(&folder);
    let mut client = Client::start(command).begun();
    assert!(client.tools() > 0);
    let (code, text) = client.leave();
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
    assert!(text.contains("has a relative path") && text.contains("a host of its own"), "{text}");
    assert!(place.sockets().is_empty());
    // A project's config starts none, whatever it says.
    std::fs::copy(place.file("mcp.json"), folder.join("mcp-host.json")).unwrap();
    let mut command = place.command(&["stdio"]);
    command.current_dir(&folder).env("MCP_HOST_JOIN", "start");
    let mut client = Client::start(command).begun();
    assert_eq!(client.tools(), 0, "it is not approved");
    client.leave();
    assert!(place.sockets().is_empty());
}
