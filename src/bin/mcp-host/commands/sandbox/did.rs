//! Parses what strace recorded of a server without a sandbox, line by line: the paths that it opened and changed, what
//! it connected to, and calls that a sandbox refuses. No I/O.
//!
//! **Invariant:** an unknown line is skipped. File names are text that came from the server.

use mcp_host::Touched;
use mcp_host::config::WATCHED;

use super::trace::{after, number, quoted};

/// Something that a server did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Path(Touched),
    /// It connected to this Unix socket.
    Socket(String),
    /// It connected to this address by TCP, not through the proxy.
    Address {
        name: String,
        is_loopback: bool,
        port: u16,
    },
    /// One of its own sockets has this port.
    Has(u16),
    /// It made this call, with the detail for which a sandbox refuses the call.
    Call(String),
}

/// Flags with which an open call also writes.
const WRITING: [&str; 4] = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];
/// Families of sockets that no sandbox allows.
const FAMILIES: [&str; 2] = ["AF_NETLINK", "AF_PACKET"];

/// Parses a line: `PID CALL(ARGUMENTS) = RESULT`. `refused` are the names of the calls that a sandbox refuses.
pub(super) fn read(line: &str, refused: &[&str]) -> Vec<Did> {
    let line = line.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start();
    let Some((call, rest)) = line.split_once('(') else { return Vec::new() };
    let (names, end) = names(rest);
    let Some((arguments, result)) = end.split_once(") = ").or_else(|| spaced(end)) else { return Vec::new() };
    let is_done = result.starts_with(|letter: char| letter.is_ascii_digit());
    match call {
        "connect" => connected(rest, is_done || result.starts_with("-1 EINPROGRESS")).into_iter().collect(),
        _ if !is_done => Vec::new(),
        "bind" | "getsockname" => number(rest, "htons(").map(Did::Has).into_iter().collect(),
        "socket" | "socketpair" => socket(call, rest).into_iter().collect(),
        "clone" | "clone3" => namespaces(call, arguments).into_iter().collect(),
        _ if refused.contains(&call) => vec![Did::Call(call.to_owned())],
        _ => touched(call, &names, arguments, result).into_iter().map(Did::Path).collect(),
    }
}

/// Splits at the blanks that strace inserts before the result.
fn spaced(end: &str) -> Option<(&str, &str)> {
    let (arguments, result) = end.split_once(')')?;
    result.trim_start().strip_prefix("= ").map(|result| (arguments, result))
}

/// Returns the first two quoted texts as absolute paths, where these are known, and the text after them.
fn names(arguments: &str) -> (Vec<Option<String>>, &str) {
    let (mut names, mut rest) = (Vec::new(), arguments);
    while names.len() < 2 {
        let Some((before, from)) = rest.split_once('"') else { break };
        // A quote after the end of the call, or in a list of words, is not part of a path.
        if before.contains(") = ") || before.contains(['[', '{']) {
            break;
        }
        let Some((text, behind)) = quoted(from) else { break };
        let folder = before.rsplit_once('<').and_then(|(_, folder)| folder.split_once('>')).map(|(folder, _)| folder);
        names.push(match folder {
            _ if text.starts_with('/') => Some(text),
            Some(folder) if folder.starts_with('/') => Some(format!("{}/{text}", folder.trim_end_matches('/'))),
            _ => None,
        });
        rest = behind;
    }
    (names, rest)
}

fn touched(call: &str, names: &[Option<String>], flags: &str, result: &str) -> Vec<Touched> {
    let name = |at: usize| names.get(at).cloned().flatten();
    let each = |how: fn(std::path::PathBuf) -> Touched, at: &[usize]| {
        at.iter().filter_map(|at| name(*at)).map(|path| how(path.into())).collect::<Vec<_>>()
    };
    match call {
        "open" | "openat" | "openat2" | "creat" => {
            let is_writing = call == "creat" || WRITING.iter().any(|flag| flags.contains(flag));
            let how = if is_writing { Touched::Write } else { Touched::Read };
            // The result is a file descriptor followed by its path.
            let opened = || {
                result
                    .split_once('<')
                    .and_then(|(_, path)| path.split_once(['<', '>']))
                    .map(|(path, _)| path.to_owned())
            };
            let path = name(0).or_else(opened).filter(|path| path.starts_with('/') && !flags.contains("O_PATH"));
            path.into_iter().map(|path| how(path.into())).collect()
        }
        "chdir" | "execve" | "execveat" => each(Touched::Read, &[0]),
        "chmod" | "chown" | "fchmodat" | "fchownat" | "lchown" | "truncate" | "utimensat" => each(Touched::Write, &[0]),
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "rmdir" | "unlink" | "unlinkat" => each(Touched::Name, &[0]),
        "rename" | "renameat" | "renameat2" => each(Touched::Name, &[0, 1]),
        "symlink" | "symlinkat" => each(Touched::Name, &[1]),
        "link" | "linkat" => [each(Touched::Read, &[0]), each(Touched::Name, &[1])].concat(),
        _ => Vec::new(),
    }
}

fn connected(arguments: &str, is_connected: bool) -> Option<Did> {
    if !is_connected {
        return None;
    }
    if arguments.contains("sa_family=AF_UNIX") {
        return after(arguments, "sun_path=").map(Did::Socket);
    }
    // A datagram is a DNS query, which the proxy makes for a confined server.
    let is_tcp = arguments.split_once(',').is_some_and(|(socket, _)| socket.contains("<TCP"));
    let address = after(arguments, "inet_addr(").or_else(|| after(arguments, "inet_pton(AF_INET6, "))?;
    let port = number(arguments, "htons(")?;
    let found: std::net::IpAddr = address.parse().ok()?;
    if !is_tcp || found == std::net::IpAddr::from(WATCHED) {
        return None;
    }
    let name = std::net::SocketAddr::new(found, port).to_string();
    Some(Did::Address { name, is_loopback: found.to_canonical().is_loopback(), port })
}

/// Returns the call if it creates a socket of a kind that no sandbox allows.
fn socket(call: &str, arguments: &str) -> Option<Did> {
    let of = |word: &str| Some(Did::Call(format!("{call}({word})")));
    if let Some(family) = FAMILIES.iter().find(|family| arguments.starts_with(**family)) {
        return of(family);
    }
    if call == "socketpair" {
        return arguments.contains("SOCK_DGRAM").then(|| of("SOCK_DGRAM")).flatten();
    }
    arguments.contains("SOCK_RAW").then(|| of("SOCK_RAW")).flatten()
}

fn namespaces(call: &str, arguments: &str) -> Option<Did> {
    let at = arguments.find("CLONE_NEW")?;
    let flag: String =
        arguments[at..].chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect();
    Some(Did::Call(format!("{call}({flag})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_call_is_told_by_what_it_did() {
        let path = |did: &Did| match did {
            Did::Path(Touched::Read(path)) => format!("read {}", path.display()),
            Did::Path(Touched::Write(path)) => format!("write {}", path.display()),
            Did::Path(Touched::Name(path)) => format!("name {}", path.display()),
            other => format!("{other:?}"),
        };
        for (line, expected) in [
            (
                r#"7 openat(AT_FDCWD</srv>, "/home/ada/.gitconfig", O_RDONLY|O_CLOEXEC) = 3</home/ada/.gitconfig>"#,
                "read /home/ada/.gitconfig",
            ),
            (
                r#"7 openat(AT_FDCWD</srv>, "a \"b\") = 1", O_WRONLY|O_CREAT, 0666) = 3</srv/a>"#,
                "write /srv/a \"b\") = 1",
            ),
            (r#"7 open("a", O_RDONLY)             = 3</srv/a>"#, "read /srv/a"),
            (r#"7 openat(AT_FDCWD</srv>, "/x", O_RDONLY|O_PATH) = 3</x>"#, ""),
            (r#"7 openat(AT_FDCWD</srv>, "/x", O_RDONLY) = -1 ENOENT (No such file or directory)"#, ""),
            (r#"7 execve("/usr/bin/git", ["git", "log"], 0x7ffd /* 12 vars */) = 0"#, "read /usr/bin/git"),
            (r#"7 chdir("/srv/notes") = 0"#, "read /srv/notes"),
            (r#"7 rename("/a", "/b") = 0"#, "name /a, name /b"),
            (r#"7 renameat2(AT_FDCWD</c>, "a", 5</d>, "b", RENAME_NOREPLACE) = 0"#, "name /c/a, name /d/b"),
            (r#"7 symlink("target", "/a/link") = 0"#, "name /a/link"),
            (r#"7 unlinkat(3</d>, "x", 0) = 0"#, "name /d/x"),
            (
                r#"7 connect(3<UNIX-STREAM:[1]>, {sa_family=AF_UNIX, sun_path="/run/docker.sock"}, 110) = 0"#,
                r#"Socket("/run/docker.sock")"#,
            ),
            (
                r#"7 connect(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("1.2.3.4")}, 16) = -1 EINPROGRESS (Operation now in progress)"#,
                r#"Address { name: "1.2.3.4:443", is_loopback: false, port: 443 }"#,
            ),
            (
                r#"7 connect(3<TCPv6:[1]>, {sa_family=AF_INET6, sin6_port=htons(9), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = 0"#,
                r#"Address { name: "[::1]:9", is_loopback: true, port: 9 }"#,
            ),
            (
                r#"7 connect(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(4), sin_addr=inet_addr("127.109.99.112")}, 16) = 0"#,
                "",
            ),
            (
                r#"7 connect(3<UDP:[1]>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("1.1.1.1")}, 16) = 0"#,
                "",
            ),
            (
                r#"7 bind(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(9222), sin_addr=inet_addr("127.0.0.1")}, 16) = 0"#,
                "Has(9222)",
            ),
            (
                "7 socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_ROUTE) = 5<NETLINK:[ROUTE:7]>",
                r#"Call("socket(AF_NETLINK)")"#,
            ),
            ("7 socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 5<TCP:[1]>", ""),
            ("7 clone(child_stack=NULL, flags=CLONE_NEWUSER|SIGCHLD) = 8", r#"Call("clone(CLONE_NEWUSER)")"#),
            ("7 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD) = 8", ""),
            ("7 keyctl(KEYCTL_GET_KEYRING_ID, 1) = 5", r#"Call("keyctl")"#),
            ("7 +++ exited with 0 +++", ""),
            ("", ""),
        ] {
            let did: Vec<String> = read(line, &["keyctl", "unshare"]).iter().map(path).collect();
            assert_eq!(did.join(", "), expected, "{line}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_line_panics(line in "[ -~é]{0,80}", path in "[ -~é\\\\\"]{0,40}") {
            let _ = read(&line, &["keyctl"]);
            let _ = read(&format!("1 openat(AT_FDCWD</a>, \"{path}\", O_RDONLY) = 3</a>"), &[]);
            let _ = read(&format!("1 connect({path}<TCP, inet_addr(\"{path}\", htons({path})) = 0"), &[]);
        }
    }
}
