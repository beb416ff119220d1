//! The level `strict`: the ways out that `default` leaves open are shut, too, and nothing is left of a server that ended.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::{Command, Stdio};

use serde_json::json;

use super::support::{Home, can_have_namespaces, wait};
use super::ways::{CALLS, OF_ROOT, WAYS};
use crate::watched::{below, is_alive};

/// What a server tries besides: `PEER` is a process beside it, `TCP` and `UDP` are ports of this machine, `HOST` is the
/// host's program, `LOOSE` a plan for its launcher that keeps nothing.
const MORE: [(&str, &str); 11] = [
    ("a connection to this machine", "socket.create_connection(('127.0.0.1', TCP), 5).close()"),
    (
        "a datagram to this machine",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('127.0.0.1', UDP)); s.send(b'x'); r = s.recv(9)",
    ),
    ("another process's command line", "r = open('/proc/PEER/cmdline').read()"),
    ("the list of processes", "assert 'PEER' in os.listdir('/proc'), 'refused'"),
    ("whether a key exists", "os.stat(real + '/.ssh/id')"),
    ("the rights on a key", "os.chmod(real + '/.ssh/id', 0o600)"),
    ("the times of a key", "os.utime(real + '/.ssh/id')"),
    (
        "another account",
        "child = os.fork()\nif child == 0:\n try: os.setuid(12345); os._exit(0)\n except OSError: os._exit(1)\nassert os.waitpid(child, 0)[1] == 0, 'refused'",
    ),
    (
        "the launcher again, with a looser plan",
        "r = subprocess.run(['HOST', '__confine', 'LOOSE', '--', '/bin/cat', real + '/.ssh/id'], check=True, capture_output=True).stdout",
    ),
    (
        "another server's cache",
        "name = real + '/.local/state/mcp-host/sandbox/other-00000000/cache/x'; open(name, 'w').close(); os.remove(name)",
    ),
    ("the host's own folders", "r = os.listdir(real + '/.local/state/mcp-host/sandbox')"),
];

/// Of these, what only root may do without a sandbox.
const MORE_OF_ROOT: [&str; 1] = ["another account"];

const LOOSE: &str = r#"{"bubble":null,"is_inside":false,"seen":{},"is_watched":false,"door":null,"keeps_files":false,"keeps_calls":false,"read":[],"write":[],"links":[],"network":true,"unix":true,"files":null,"memory":null,"processes":null,"set":[],"own":[],"cwd":null}"#;

/// How a refusal begins: what is not there cannot be asked for.
const REFUSALS: [&str; 8] = [
    "PermissionError: ",
    "FileNotFoundError: ",
    "ProcessLookupError: ",
    "AssertionError: refused",
    "CalledProcessError: ",
    "ConnectionRefusedError: ",
    // Another device, and one that is only to read.
    "OSError: [Errno 18]",
    "OSError: [Errno 30]",
];

#[test]
fn h108_each_way_out_works_without_a_sandbox_and_is_shut_by_strict() {
    if !can_have_namespaces("h108: ways out of strict") {
        return;
    }
    let home = Home::new();
    for (file, text) in [("other-file", "text"), ("doomed", "text")] {
        std::fs::write(home.at(file), text).unwrap();
    }
    std::fs::create_dir_all(home.at(".local/state/mcp-host/sandbox/other-00000000/cache")).unwrap();
    let _path = UnixListener::bind(home.at("socket")).unwrap();
    let _datagrams = UnixDatagram::bind(home.at("datagrams")).unwrap();
    let name = format!("mcp-host-strict-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    std::thread::spawn(
        move || while udp.recv_from(&mut [0; 9]).and_then(|(_, from)| udp.send_to(b"y", from)).is_ok() {},
    );
    let mut peer = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    // Listed, so that the launcher can be started again inside.
    let strict = json!({ "level": "strict", "network": ["a.example"], "read": [env!("CARGO_BIN_EXE_mcp-host")] });
    let none = json!({ "level": "strict", "read": [env!("CARGO_BIN_EXE_mcp-host")] });
    let servers = json!({ "off": home.entry(&json!("off")), "box": home.entry(&strict), "alone": home.entry(&none) });
    let mut program = home.start(&servers);
    let is_root = rustix::process::geteuid().is_root();
    let may = |way: &str| is_root || !OF_ROOT.contains(&way) && !MORE_OF_ROOT.contains(&way);
    let mut wrong = Vec::new();
    for (way, code) in WAYS.into_iter().chain(MORE).filter(|(way, _)| may(way)) {
        let code = code.replace("PEER", &peer.id().to_string()).replace("ABSTRACT", &name);
        let code = code.replace("TCP", &tcp_port.to_string()).replace("UDP", &udp_port.to_string());
        let code = code.replace("HOST", env!("CARGO_BIN_EXE_mcp-host")).replace("LOOSE", LOOSE);
        let off = program.run("off", &code);
        for server in ["box", "alone"] {
            let boxed = program.run(server, &code);
            let refused = boxed.as_ref().is_err_and(|error| REFUSALS.iter().any(|refusal| error.starts_with(refusal)));
            if off.is_err() || !refused {
                wrong.push(format!("{way}: {off:?} without, {boxed:?} with {server}"));
            }
        }
    }
    let column = usize::from(!cfg!(target_arch = "x86_64"));
    for (name, numbers, [first, second, third]) in CALLS.into_iter().filter(|(name, ..)| may(name)) {
        let code = format!("r = call({}, {first}, {second}, {third})", numbers[column]);
        let boxed = program.run("box", &code).unwrap();
        if boxed != "EPERM" {
            wrong.push(format!("{name}: {boxed}"));
        }
    }
    if program.run("box", "r = call(435, 0, 0)") != Ok("ENOSYS".into()) {
        wrong.push("clone3".to_owned());
    }
    peer.kill().unwrap();
    peer.wait().unwrap();
    drop(tcp);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn h108_a_strict_server_still_does_its_work() {
    if !can_have_namespaces("h108: work in strict") {
        return;
    }
    let home = Home::new();
    std::fs::create_dir(home.at("given")).unwrap();
    std::fs::write(home.at("given/text"), "given").unwrap();
    let sandbox = json!({ "level": "strict", "write": [home.at("desk")], "read": [home.at("note")] });
    let mut entry = home.entry(&sandbox);
    entry["args"] = json!([home.at("tools/server.py"), home.at("given")]);
    entry["cwd"] = json!(home.at("tools"));
    let mut program = home.start(&json!({ "box": entry }));
    let mut says = |code: &str| program.run("box", code).unwrap_or_else(|error| panic!("{code}: {error}"));
    assert_eq!(says("open(real + '/desk/a', 'w').write('text'); r = open(real + '/desk/a').read()"), "text");
    assert_eq!(says("r = open(os.path.expanduser('~/note')).read()"), "a note");
    assert_eq!(says("r = open(real + '/given/text').read()"), "given", "a folder in `args` is there to read");
    assert_eq!(says("try: open(real + '/given/new', 'w'); r = 'written'\nexcept OSError: r = 'refused'"), "refused");
    assert_eq!(says("r = os.getcwd() == os.environ['HOME']"), "True", "its `cwd` is not listed");
    assert_eq!(says("f = tempfile.NamedTemporaryFile(dir=tmp); f.write(b'x'); r = tmp.endswith('/tmp')"), "True");
    assert_eq!(
        says("open(os.path.expanduser('~/own'), 'w').write('x'); r = 'own' in os.listdir(os.path.expanduser('~'))"),
        "True"
    );
    assert_eq!(says("r = subprocess.run(['sh', '-c', 'echo $((1 + 1))'], capture_output=True).stdout"), "b'2\\n'");
    assert_eq!(says("import threading\nt = threading.Thread(target=lambda: None); t.start(); t.join()"), "done");
    assert_eq!(
        says("r = len([name for name in os.listdir('/proc') if name.isdigit()]) < 9"),
        "True",
        "its own processes"
    );
    assert_eq!(says("r = sorted(os.listdir('/proc/self/fd'))"), "['0', '1', '2', '3']", "its pipes, and the folder");
    assert_eq!(says("r = open('/proc/self/status').read().split('CapBnd:')[1].split()[0]"), "0000000000000000");
    assert_eq!(says("r = '_MCP_HOST_GUARD' in os.environ and 'HTTP_PROXY' not in os.environ"), "True");
}

#[test]
fn h108_nothing_of_a_strict_server_outlives_it() {
    if !can_have_namespaces("h108: ends of strict servers") {
        return;
    }
    let home = Home::new();
    let sandbox = json!({ "level": "strict", "network": ["a.example"] });
    let mut program = home.start(&json!({ "box": home.entry(&sandbox), "off": home.entry(&json!("off")) }));
    let code = "subprocess.Popen(['sleep', '600'], start_new_session=True, env={}, stdin=subprocess.DEVNULL, \
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)";
    program.run("box", code).unwrap();
    let is_of_it = |pid: &u32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        ["bwrap\n", "sleep\n"].contains(&comm.as_str())
    };
    let found = |root: u32| below(root).into_iter().filter(is_of_it).collect::<Vec<u32>>();
    let of_it = found(program.child.id());
    // Two of bubblewrap, and the one that left its group and has no mark.
    assert_eq!(of_it.len(), 3, "{of_it:?}");
    // A reload ends it.
    home.write(&json!({ "off": home.entry(&json!("off")) }));
    wait(|| (!of_it.iter().any(|pid| is_alive(*pid))).then_some(()));
    let doors = || {
        std::fs::read_dir(home.at(".local/state/mcp-host/sandbox"))
            .unwrap()
            .flatten()
            .flat_map(|own| {
                std::fs::read_dir(own.path())
                    .unwrap()
                    .flatten()
                    .filter(|file| file.file_name().to_string_lossy().starts_with("door-"))
            })
            .count()
    };
    wait(|| (doors() == 0).then_some(()));
    // So does the end of a host that was killed.
    home.write(&json!({ "box": home.entry(&sandbox) }));
    wait(|| program.run("box", code).ok());
    let of_it = found(program.child.id());
    assert!(of_it.len() >= 3, "{of_it:?}");
    program.child.kill().unwrap();
    wait(|| (!of_it.iter().any(|pid| is_alive(*pid))).then_some(()));
}

#[test]
fn h108_a_machine_without_bubblewrap_fails_the_server_by_its_package() {
    let home = Home::new();
    // Everything of PATH but bubblewrap.
    let path = std::env::var("PATH").unwrap();
    let tools = home.at("path");
    std::fs::create_dir(&tools).unwrap();
    for folder in std::env::split_paths(&path) {
        for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if file.file_name() != "bwrap" {
                let _ = std::os::unix::fs::symlink(file.path(), tools.join(file.file_name()));
            }
        }
    }
    let lack = "there is no bubblewrap (the program `bwrap`, in the package `bubblewrap`), so there are no namespaces";
    let said = |sandbox: serde_json::Value, arguments: &[&str]| {
        home.write(&json!({ "box": home.entry(&sandbox) }));
        let output = home.command(arguments).env("PATH", &tools).output().unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), said)
    };
    for sandbox in [json!("strict"), json!({ "network": ["a.example"] })] {
        let (code, told) = said(sandbox.clone(), &["check"]);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains(&format!("server `box`: cannot have its sandbox: {lack}\n")), "{told}");
        let (code, told) = said(sandbox, &["call", "box__run", "code=r=1"]);
        assert!(code != Some(0) && told.contains(&format!(": {lack}")), "{told}");
    }
    // `weak` takes what there is: the files are kept all the same.
    let weak = json!({ "level": "strict", "weak": true });
    let (code, told) = said(weak.clone(), &["check", "--connect"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains(&format!("box: sandbox: strict, but {lack}")), "{told}");
    let (_, told) = said(weak, &["call", "box__run", "code=open(real + '/note')"]);
    assert!(told.contains("PermissionError: "), "{told}");
}
