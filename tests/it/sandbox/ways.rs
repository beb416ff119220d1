//! Ways out of the sandbox. Each is shown to work without one, and to be refused with one.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::{Command, Stdio};

use serde_json::json;

use super::support::Home;

/// What a server tries; `PEER` is a process beside it, `ABSTRACT` the name of a socket without a path.
pub(super) const WAYS: [(&str, &str); 40] = [
    ("a key", "r = open(real + '/.ssh/id').read()"),
    ("a file in HOME", "r = open(real + '/note').read()"),
    ("a key by ..", "r = open('/usr/..' + real + '/.ssh/id').read()"),
    (
        "a key by a link",
        "os.symlink(real + '/.ssh/id', tmp + '/l1')\ntry: r = open(tmp + '/l1').read()\nfinally: os.remove(tmp + '/l1')",
    ),
    (
        "a key by a link to its folder",
        "os.symlink(real, tmp + '/l2')\ntry: r = open(tmp + '/l2/.ssh/id').read()\nfinally: os.remove(tmp + '/l2')",
    ),
    (
        "a key by a hard link",
        "os.link(real + '/.ssh/id', tmp + '/l3')\nr = open(tmp + '/l3').read()\nos.remove(tmp + '/l3')",
    ),
    (
        "a key by a move",
        "os.rename(real + '/.ssh/id', tmp + '/l4')\nr = open(tmp + '/l4').read()\nos.rename(tmp + '/l4', real + '/.ssh/id')",
    ),
    (
        "a key by its folder's move",
        "os.rename(real + '/.ssh', tmp + '/l5')\nr = open(tmp + '/l5/id').read()\nos.rename(tmp + '/l5', real + '/.ssh')",
    ),
    ("a key by a child", "r = subprocess.run(['cat', real + '/.ssh/id'], check=True, capture_output=True).stdout"),
    (
        "a key by a child in its own session",
        "r = subprocess.run(['cat', real + '/.ssh/id'], check=True, capture_output=True, start_new_session=True).stdout",
    ),
    ("a key by /proc of the host", "r = open(f'/proc/{os.getppid()}/root{real}/.ssh/id').read()"),
    ("a key by the host's working directory", "r = open(f'/proc/{os.getppid()}/cwd/.ssh/id').read()"),
    ("the names in HOME", "r = os.listdir(real)"),
    ("a write into HOME", "open(real + '/planted', 'w').write('x'); os.remove(real + '/planted')"),
    ("a line for a shell's start", "open(real + '/.profile', 'a').write('x')"),
    ("a folder in HOME", "os.mkdir(real + '/planted'); os.rmdir(real + '/planted')"),
    ("a link in HOME", "os.symlink('/', real + '/planted'); os.remove(real + '/planted')"),
    ("a shorter file", "os.truncate(real + '/other-file', 0)"),
    ("the end of a file", "os.remove(real + '/doomed'); open(real + '/doomed', 'w').close()"),
    ("a write into its own program", "open(real + '/tools/server.py', 'a').write('')"),
    ("a file in shared memory", "name = f'/dev/shm/{os.getpid()}'\nopen(name, 'w').close(); os.remove(name)"),
    ("the host's config", "r = open(real + '/mcp.json').read()"),
    ("the host's state", "r = os.listdir(real + '/.local/state/mcp-host')"),
    ("another server's HOME", "r = os.listdir(real + '/.local/state/mcp-host/sandbox/other-00000000')"),
    ("a signal to the host", "os.kill(os.getppid(), 0)"),
    ("a signal to another process", "os.kill(PEER, 0)"),
    ("a signal by a descriptor", "signal.pidfd_send_signal(os.pidfd_open(PEER), 0)"),
    ("the host's environment", "r = open(f'/proc/{os.getppid()}/environ').read()"),
    ("another process's environment", "r = open('/proc/PEER/environ').read()"),
    ("the host's memory", "open(f'/proc/{os.getppid()}/mem', 'rb').close()"),
    ("the host's files", "r = os.readlink(f'/proc/{os.getppid()}/fd/0')"),
    (
        "another process's calls",
        "child = os.fork()\nif child == 0: os._exit(libc.ptrace(0x4206, PEER, 0, 0) & 1)\nassert os.waitpid(child, 0)[1] == 0, 'refused'",
    ),
    ("a socket with a path", "socket.socket(socket.AF_UNIX).connect(real + '/socket')"),
    ("a socket without a path", "socket.socket(socket.AF_UNIX).connect('\\0ABSTRACT')"),
    (
        "a datagram by one end of a pair",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', real + '/datagrams')",
    ),
    ("a limit on another process", "resource.prlimit(PEER, resource.RLIMIT_CORE, (0, 0))"),
    ("a datagram to a socket", "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"),
    ("the kernel's tables of the network", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
    ("packets on the wire", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"),
    ("raw packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
];

/// System calls that do nothing with these arguments, but answer `EPERM` in the sandbox: number on x86-64 and elsewhere,
/// and arguments.
pub(super) const CALLS: [(&str, [i64; 2], [i64; 3]); 12] = [
    ("ptrace", [101, 117], [0x4206, -1, 0]),
    ("process_vm_readv", [310, 270], [-1, 0, 0]),
    ("keyctl", [250, 219], [99_999, 0, 0]),
    ("unshare", [272, 97], [0, 0, 0]),
    ("setns", [308, 268], [-1, 0, 0]),
    ("io_uring_setup", [425, 425], [0, 0, 0]),
    ("userfaultfd", [323, 282], [-1, 0, 0]),
    ("pidfd_getfd", [438, 438], [-1, 0, 0]),
    ("perf_event_open", [298, 241], [0, 0, -1]),
    ("mount_setattr", [442, 442], [-1, 0, -1]),
    ("kcmp", [312, 272], [-1, -1, 0]),
    ("ioctl TIOCSTI", [16, 29], [0, 0x5412, 0]),
];

/// Of these, what only root may do without a sandbox.
pub(super) const OF_ROOT: [&str; 6] = [
    "the host's memory",
    "another process's calls",
    "packets on the wire",
    "raw packets",
    "perf_event_open",
    "mount_setattr",
];

#[test]
fn h108_each_way_out_works_without_a_sandbox_and_is_refused_with_one() {
    let home = Home::new();
    std::fs::write(home.at("other-file"), "text").unwrap();
    std::fs::write(home.at("doomed"), "text").unwrap();
    std::fs::create_dir_all(home.at(".local/state/mcp-host/sandbox/other-00000000")).unwrap();
    let _path = UnixListener::bind(home.at("socket")).unwrap();
    let _datagrams = UnixDatagram::bind(home.at("datagrams")).unwrap();
    let name = format!("mcp-host-test-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut peer = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let mut program = home.start(&json!({ "off": home.entry(&json!("off")), "box": home.entry(&json!("default")) }));
    let may = |way: &str| rustix::process::geteuid().is_root() || !OF_ROOT.contains(&way);
    let mut wrong = Vec::new();
    for (way, code) in WAYS.into_iter().filter(|(way, _)| may(way)) {
        let code = code.replace("PEER", &peer.id().to_string()).replace("ABSTRACT", &name);
        let (off, boxed) = (program.run("off", &code), program.run("box", &code));
        let refused = boxed.as_ref().is_err_and(|error| {
            ["PermissionError: ", "AssertionError: refused", "CalledProcessError: ", "OSError: [Errno 18]"]
                .iter()
                .any(|refusal| error.starts_with(refusal))
        });
        if off.is_err() || !refused {
            wrong.push(format!("{way}: {off:?} without, {boxed:?} with"));
        }
    }
    let column = usize::from(!cfg!(target_arch = "x86_64"));
    for (name, numbers, [first, second, third]) in CALLS.into_iter().filter(|(name, ..)| may(name)) {
        let code = format!("r = call({}, {first}, {second}, {third})", numbers[column]);
        let (off, boxed) = (program.run("off", &code).unwrap(), program.run("box", &code).unwrap());
        if off == "EPERM" || boxed != "EPERM" {
            wrong.push(format!("{name}: {off} without, {boxed} with"));
        }
    }
    let clone3 = "r = call(435, 0, 0)";
    if (program.run("off", clone3), program.run("box", clone3)) != (Ok("EINVAL".into()), Ok("ENOSYS".into())) {
        wrong.push("clone3".to_owned());
    }
    peer.kill().unwrap();
    peer.wait().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn h108_a_confined_server_still_does_its_work() {
    let home = Home::new();
    let sandbox = json!({ "write": [home.at("desk")], "read": [home.at("note")] });
    let mut program = home.start(&json!({ "box": home.entry(&sandbox) }));
    let mut says = |code: &str| program.run("box", code).unwrap_or_else(|error| panic!("{code}: {error}"));
    assert_eq!(says("open(real + '/desk/a', 'w').write('text'); r = open(real + '/desk/a').read()"), "text");
    // What is listed of the user's HOME is in its own, too.
    assert_eq!(says("r = open(os.path.expanduser('~/note')).read()"), "a note");
    assert_eq!(says("open(os.path.expanduser('~/desk/b'), 'w').write('b'); r = open(real + '/desk/b').read()"), "b");
    assert_eq!(says("r = os.environ['HOME'].startswith(real + '/.local/state/mcp-host/sandbox/box-')"), "True");
    assert_eq!(says("f = tempfile.NamedTemporaryFile(dir=tmp); f.write(b'x'); r = tmp.endswith('/tmp')"), "True");
    assert_eq!(
        says("r = subprocess.run(['sh', '-c', 'echo $((1 + 1)); exit 3'], capture_output=True).stdout"),
        "b'2\\n'"
    );
    assert_eq!(says("import threading\nt = threading.Thread(target=lambda: None); t.start(); t.join()"), "done");
    assert_eq!(says("a, b = socket.socketpair(); a.send(b'x'); r = b.recv(1)"), "b'x'");
    assert_eq!(
        says("s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())"),
        "done"
    );
    assert_eq!(
        says("r = sorted(name for name in os.environ if name.startswith(('XDG_R', 'SSH_', 'DBUS_', 'DOCKER_')))"),
        "[]"
    );
    assert_eq!(says("r = len(os.listdir('/proc/self/fd'))"), "4", "its three pipes, and the folder itself");
    assert_eq!(says("r = resource.getrlimit(resource.RLIMIT_CORE)"), "(0, 0)");
    assert_eq!(says("r = libc.prctl(39, 0, 0, 0, 0)"), "1", "no program gives it other rights");
}

#[test]
fn h108_what_the_entry_says_besides_counts() {
    let home = Home::new();
    let limits = json!({ "files": 64, "memory": "512MiB", "network": "none", "home": "user", "unix": true });
    let mut program = home.start(&json!({ "box": home.entry(&limits) }));
    let _socket = UnixListener::bind(home.at("socket")).unwrap();
    let mut says = |code: &str| program.run("box", code);
    assert_eq!(says("r = resource.getrlimit(resource.RLIMIT_NOFILE)").as_deref(), Ok("(64, 64)"));
    assert_eq!(says("r = len(bytes(1 << 30))"), Err("MemoryError: ".to_owned()));
    assert_eq!(says("r = os.environ['HOME'] == real").as_deref(), Ok("True"));
    assert!(says("open(real + '/note')").is_err_and(|error| error.starts_with("PermissionError: ")));
    assert!(says("socket.socket(socket.AF_INET)").is_err_and(|error| error.starts_with("PermissionError: ")));
    assert!(says("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)").is_err());
    assert_eq!(says("socket.socket(socket.AF_UNIX).connect(real + '/socket')").as_deref(), Ok("done"));
}

#[test]
fn h108_what_leads_to_home_or_keys_is_not_granted_by_the_way() {
    let home = Home::new();
    let mut entry = home.entry(&json!("default"));
    entry["args"] = json!([home.at("tools/server.py"), home.at(""), home.at(".ssh"), "/", home.at("desk")]);
    entry["cwd"] = json!(home.at(""));
    let mut program = home.start(&json!({ "box": entry }));
    let mut says = |code: &str| program.run("box", code);
    assert_eq!(says("open(real + '/desk/a', 'w').close()").as_deref(), Ok("done"), "a folder in `args`");
    for code in ["open(real + '/note')", "open(real + '/.ssh/id')", "os.listdir('/')", "open('planted', 'w')"] {
        assert!(says(code).is_err_and(|error| error.starts_with("PermissionError: ")), "{code}");
    }
}
