//! `sandbox.container`: podman is started with what the entry lists. The podman here is a script of this test, which notes its
//! words and runs the server itself. `tests/sandbox/run --container` has a real one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::support::{Home, Program, wait};
use crate::watched::is_alive;

/// An engine: one image, which has to be fetched; its containers are processes.
const ENGINE: &str = r#"#!/usr/bin/env python3
import json, os, signal, subprocess, sys
folder = os.path.dirname(os.path.abspath(__file__))
def note(name, text):
    with open(f"{folder}/{name}", "a") as file: file.write(text + "\n")
words = sys.argv[1:]
note("said", json.dumps(words))
if words[:1] == ["info"]:
    print(json.dumps({"host": {"cgroupControllers": ["memory", "pids"], "security": {"rootless": True}}}))
elif words[:2] == ["image", "inspect"]:
    if not os.path.exists(f"{folder}/fetched"):
        sys.exit("Error: no such image")
    tag = open(f"{folder}/fetched").read()
    print(json.dumps([{"Id": "0123", "RepoDigests": [f"docker.io/library/python@sha256:{tag}"]}]))
elif words[0] == "pull":
    print("fetching", file=sys.stderr)
    open(f"{folder}/fetched", "w").write("aa")
elif words[0] == "run":
    name = next(word for word in words if word.startswith("--name=")).partition("=")[2]
    at = next(place for place, word in enumerate(words) if word.startswith("--entrypoint="))
    command = [words[at].partition("=")[2], *words[at + 2:]]
    # What a container is: not of the client's group, and without the client's mark.
    names = [word.partition("=")[2] for word in words if word.startswith("--env=")]
    env = dict(name.split("=", 1) if "=" in name else (name, os.environ[name]) for name in names)
    env.pop("_MCP_HOST_GUARD")
    child = subprocess.Popen(command, env={**env, "PATH": os.environ["PATH"]}, start_new_session=True)
    note(name, str(child.pid))
    sys.exit(child.wait())
elif words[0] == "kill":
    os.kill(int(open(f"{folder}/{words[1]}").read()), signal.SIGKILL)
    os.remove(f"{folder}/{words[1]}")
"#;

/// A home with an engine.
struct Stage {
    home: Home,
}

impl Stage {
    fn new() -> Self {
        let home = Home::new();
        std::fs::create_dir(home.at("engine")).unwrap();
        let file = home.at("engine/podman");
        std::fs::write(&file, ENGINE).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { home }
    }

    fn path(&self) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap();
        let own = std::iter::once(self.home.at("engine"));
        std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap()
    }

    fn start(&self, servers: &Value) -> Program {
        self.home.write(servers);
        let mut command = self.home.command(&["stdio"]);
        command.env("PATH", self.path()).env("DOCKER_HOST", "unix:///x").env("SSH_AUTH_SOCK", self.home.at("agent"));
        Program::start(command)
    }

    fn run(&self, servers: &Value, arguments: &[&str]) -> (Option<i32>, String) {
        self.home.write(servers);
        let output = self.home.command(arguments).env("PATH", self.path()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), said)
    }

    /// Returns what the engine was asked to do, word by word.
    fn said(&self) -> Vec<Vec<String>> {
        let said = std::fs::read_to_string(self.home.at("engine/said")).unwrap_or_default();
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.said().iter().map(|words| words[..words.len().min(2)].join(" ")).collect()
    }

    fn entry(&self, more: &Value) -> Value {
        let mut sandbox = json!({ "container": "python:3", "level": "strict", "read": ["~/tools", "~/note"] });
        sandbox.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut entry = self.home.entry(&sandbox);
        entry["env"]["TOKEN"] = json!("correct-horse");
        entry
    }
}

#[test]
fn h108_a_server_runs_in_a_container_of_the_image_that_was_there_first() {
    let stage = Stage::new();
    let servers = json!({ "box": stage.entry(&json!({ "memory": "64MiB", "processes": 64 })) });
    let mut program = stage.start(&servers);
    assert_eq!(program.run("box", "r = os.environ['TOKEN']").as_deref(), Ok("correct-horse"));
    assert_eq!(program.run("box", "r = os.environ['HOME'] == real").as_deref(), Ok("False"));
    assert_eq!(
        program.run("box", "r = 'DOCKER_HOST' in os.environ or 'SSH_AUTH_SOCK' in os.environ").as_deref(),
        Ok("False")
    );
    assert_eq!(
        stage.kinds()[..5],
        ["info --format=json", "image inspect", "pull python:3", "image inspect", "run --rm"]
    );
    let words = stage.said().swap_remove(4);
    let text = words.join(" ");
    assert!(!text.contains("correct-horse"), "{text}");
    for word in [
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--network=none",
        "--memory=67108864",
        "--pids-limit=64",
        "--env=TOKEN",
        "--entrypoint=python3",
        "docker.io/library/python@sha256:aa",
    ] {
        assert!(words.iter().any(|own| own == word), "{word}: {text}");
    }
    let tools = stage.home.at("tools");
    let mounted = format!("--mount=type=bind,source={0},target={0},readonly", tools.display());
    assert!(words.contains(&mounted), "{mounted}: {text}");
    let mounts = words.iter().filter(|word| word.starts_with("--mount="));
    let is_known = |word: &&String| ["/tools,", "/note,", "/state/"].iter().any(|part| word.contains(part));
    assert!(mounts.clone().all(|word| is_known(&word)), "{text}");
    let label = words.iter().find_map(|word| word.strip_prefix("--label=mcp-host=")).unwrap();
    assert!(label.contains('.'), "the mark of this host: {label}");
    drop(program);
    // The name means another image by now.
    std::fs::write(stage.home.at("engine/fetched"), "bb").unwrap();
    let (code, said) = stage.run(&servers, &["call", "box__run", "code=r=1"]);
    assert_eq!((code, said.as_str()), (Some(0), "1\n"));
    let words = stage.said().into_iter().rfind(|words| words[0] == "run").unwrap();
    assert!(words.contains(&"docker.io/library/python@sha256:aa".to_owned()), "{words:?}");
}

#[test]
fn h108_nothing_is_left_of_a_container() {
    let stage = Stage::new();
    let servers = json!({ "box": stage.entry(&json!({})) });
    // It goes on when its input has ended, so nothing but its engine ends it.
    let deaf = "import threading, time\nthreading.Thread(target=time.sleep, args=[600]).start()\nr = os.getpid()";
    let mut program = stage.start(&servers);
    let server: u32 = program.run("box", deaf).unwrap().parse().unwrap();
    assert!(is_alive(server));
    // A reload ends it.
    stage.home.write(&json!({ "off": stage.home.entry(&json!("off")) }));
    wait(|| (!is_alive(server)).then_some(()));
    stage.home.write(&servers);
    let server: u32 = wait(|| program.run("box", deaf).ok()).parse().unwrap();
    assert!(is_alive(server));
    // So does the end of a host that was killed.
    program.child.kill().unwrap();
    wait(|| (!is_alive(server)).then_some(()));
    let ended = || {
        let said = stage.said();
        let run = said.iter().rfind(|words| words[0] == "run").unwrap().clone();
        let name = run.iter().find_map(|word| word.strip_prefix("--name=")).unwrap().to_owned();
        let is_of_it =
            |words: &&Vec<String>| words.last() == Some(&name) && ["kill", "rm"].contains(&words[0].as_str());
        said.iter().filter(is_of_it).count()
    };
    wait(|| (ended() == 4).then_some(()));
}

#[test]
fn h108_what_an_engine_cannot_give_fails_the_server_by_name() {
    let stage = Stage::new();
    let call = |more: &Value| stage.run(&json!({ "box": stage.entry(more) }), &["call", "box__run", "code=r=1"]);
    let (code, said) = call(&json!({ "cpu": 0.5 }));
    assert_ne!(code, Some(0), "{said}");
    let lack = "the server was not started, since it cannot be confined: podman cannot limit `cpu` on this machine";
    assert!(said.contains(lack), "{said}");
    assert_eq!(stage.kinds(), ["info --format=json"], "nothing was started");
    let mut entry = stage.entry(&json!({}));
    entry["env"]["DOCKER_HOST"] = json!("tcp://elsewhere");
    let (code, said) = stage.run(&json!({ "box": entry }), &["call", "box__run", "code=r=1"]);
    assert_ne!(code, Some(0), "{said}");
    assert!(
        said.contains("sandbox.container: `env` sets DOCKER_HOST, which podman and docker read themselves"),
        "{said}"
    );
    let (code, said) = stage.run(&json!({ "box": stage.entry(&json!({})) }), &["sandbox", "explain", "box"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.starts_with("error: server `box` runs in a container, and what happens there cannot be watched\n"),
        "{said}"
    );
}

#[test]
fn h108_a_machine_without_an_engine_fails_the_server_by_its_package() {
    let home = Home::new();
    // Everything of PATH but engines.
    let path = std::env::var("PATH").unwrap();
    let tools: PathBuf = home.at("path");
    std::fs::create_dir(&tools).unwrap();
    for folder in std::env::split_paths(&path) {
        for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if !["docker", "podman"].iter().any(|name| file.file_name() == *name) {
                let _ = std::os::unix::fs::symlink(file.path(), tools.join(file.file_name()));
            }
        }
    }
    let lack = "there is neither podman nor docker (the programs `podman` and `docker`, in the packages `podman` and `docker.io`); install one, or remove `container`";
    home.write(&json!({ "box": home.entry(&json!({ "container": "python:3" })), "other": home.entry(&json!("off")) }));
    let said = |arguments: &[&str]| {
        let output = home.command(arguments).env("PATH", &tools).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), said)
    };
    let (code, told) = said(&["check"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains(&format!("server `box`: cannot have its sandbox: {lack}\n")), "{told}");
    let (code, told) = said(&["call", "box__run", "code=r=1"]);
    assert!(
        code != Some(0) && told.contains("this machine cannot start its container: there is neither podman nor docker"),
        "{told}"
    );
    let (code, told) = said(&["call", "other__run", "code=r=1"]);
    assert_eq!((code, told.as_str()), (Some(0), "1\n"), "another server is not affected");
}
