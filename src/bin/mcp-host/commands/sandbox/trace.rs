//! Parses what strace recorded, line by line: a failed call of the server, what it was about, and why it failed. No
//! I/O.
//!
//! **Invariant:** an unknown line is skipped. File names may contain any text that the server chose.

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) what: What,
    /// The name of the system call.
    pub(super) call: String,
    /// The name of the error, such as `EACCES`.
    pub(super) error: String,
}

/// What a call was about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Read(String),
    Write(String),
    /// A Unix socket.
    Socket(String),
    /// An address and a port.
    Host(String),
    /// The call itself.
    Call(String),
}

impl What {
    /// Returns the word for its kind.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Socket(_) => "socket",
            Self::Host(_) => "host",
            Self::Call(_) => "call",
        }
    }

    pub(super) fn text(&self) -> &str {
        let (Self::Read(text) | Self::Write(text) | Self::Socket(text) | Self::Host(text) | Self::Call(text)) = self;
        text
    }
}

/// Calls that read or look up a path.
const READS: [&str; 20] = [
    "access",
    "chdir",
    "execve",
    "execveat",
    "faccessat",
    "faccessat2",
    "getxattr",
    "inotify_add_watch",
    "lgetxattr",
    "lstat",
    "name_to_handle_at",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "readlink",
    "readlinkat",
    "stat",
    "statfs",
    "statx",
];
/// Calls that change a path.
const WRITES: [&str; 24] = [
    "chmod",
    "chown",
    "creat",
    "fchmodat",
    "fchownat",
    "lchown",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "removexattr",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "setxattr",
    "symlink",
    "symlinkat",
    "truncate",
    "unlink",
    "unlinkat",
    "utimensat",
];
/// Flags with which an open call also writes.
const WRITING: [&str; 4] = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];

/// Parses a line: `PID CALL(ARGUMENTS) = -1 ERROR (WORDS)`.
pub(super) fn read(line: &str) -> Option<Failed> {
    let line = line.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start();
    let (call, rest) = line.split_once('(')?;
    if call.is_empty() || !call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    // The last match counts, because a path may contain the same text.
    let (arguments, result) = rest.rsplit_once(" = -1 ")?;
    let error = result.split(' ').next().unwrap_or_default();
    let is_error =
        error.starts_with('E') && error.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let what = what(call, arguments);
    is_error.then(|| Failed { what, call: call.to_owned(), error: error.to_owned() })
}

fn what(call: &str, arguments: &str) -> What {
    let whole = || What::Call(call.to_owned());
    if arguments.contains("sa_family=AF_UNIX") {
        return after(arguments, "sun_path=").map_or_else(whole, What::Socket);
    }
    if arguments.contains("sa_family=AF_INET") {
        let address = after(arguments, "inet_addr(").or_else(|| after(arguments, "inet_pton(AF_INET6, "));
        let port = arguments.split_once("htons(").and_then(|(_, rest)| rest.split_once(')')).map(|(port, _)| port);
        return match (address, port) {
            (Some(address), Some(port)) if address.contains(':') => What::Host(format!("[{address}]:{port}")),
            (Some(address), Some(port)) => What::Host(format!("{address}:{port}")),
            _ => whole(),
        };
    }
    let is_writing = WRITES.contains(&call) || WRITING.iter().any(|flag| arguments.contains(flag));
    if !READS.contains(&call) && !WRITES.contains(&call) {
        return whole();
    }
    match path(arguments) {
        Some(path) if is_writing => What::Write(path),
        Some(path) => What::Read(path),
        None => whole(),
    }
}

/// Returns the first path of a call as an absolute path, if that is known.
fn path(arguments: &str) -> Option<String> {
    let (before, rest) = arguments.split_once('"')?;
    let (path, _) = quoted(rest)?;
    if path.starts_with('/') {
        return Some(path);
    }
    // The path is preceded by its folder, as in `3</folder>` or `AT_FDCWD</folder>`.
    let folder = before.rsplit_once('<')?.1.split_once('>')?.0;
    (folder.starts_with('/') && !path.is_empty()).then(|| format!("{}/{path}", folder.trim_end_matches('/')))
}

/// Returns the quoted text after a word; an `@` before it marks an abstract socket name.
pub(super) fn after(arguments: &str, word: &str) -> Option<String> {
    let rest = arguments.split_once(word)?.1;
    match rest.strip_prefix("@\"") {
        Some(rest) => quoted(rest).map(|(name, _)| format!("@{name}")),
        None => quoted(rest.strip_prefix('"')?).map(|(name, _)| name),
    }
}

/// Returns the number between a word and the next closing parenthesis.
pub(super) fn number(arguments: &str, word: &str) -> Option<u16> {
    arguments.split_once(word)?.1.split_once(')')?.0.parse().ok()
}

/// Parses a text with C escapes up to its closing quote. Returns the text, and the rest of the line.
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes().enumerate().map(|(at, byte)| (byte, at)).peekable();
    loop {
        let (byte, at) = rest.next()?;
        match byte {
            // A quote is one byte in UTF-8, so the text can be split after it.
            b'"' => return Some((String::from_utf8_lossy(&bytes).into_owned(), &text[at + 1..])),
            b'\\' => match rest.next()?.0 {
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'r' => bytes.push(b'\r'),
                b'v' => bytes.push(11),
                b'f' => bytes.push(12),
                digit @ b'0'..=b'7' => {
                    let mut number = u32::from(digit - b'0');
                    for _ in 0..2 {
                        if let Some((digit, _)) = rest.next_if(|(byte, _)| matches!(byte, b'0'..=b'7')) {
                            number = number * 8 + u32::from(digit - b'0');
                        }
                    }
                    bytes.push(u8::try_from(number).ok()?);
                }
                other => bytes.push(other),
            },
            byte => bytes.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_call_is_told_by_what_it_is_about() {
        for (line, expected) in [
            (
                r#"71 openat(AT_FDCWD</srv>, "/home/ada/.ssh/id", O_RDONLY|O_CLOEXEC) = -1 EACCES (Permission denied)"#,
                Some(("read", "/home/ada/.ssh/id", "EACCES")),
            ),
            (
                r#"71 openat(AT_FDCWD</srv>, "notes \303\251\"x", O_WRONLY|O_CREAT, 0666) = -1 EACCES (Permission denied)"#,
                Some(("write", "/srv/notes é\"x", "EACCES")),
            ),
            (r#"71 mkdir("/srv/a", 0777) = -1 EPERM (Operation not permitted)"#, Some(("write", "/srv/a", "EPERM"))),
            (
                r#"71 statx(5</srv>, "a", 0, 0, 0x7ff) = -1 ENOENT (No such file or directory)"#,
                Some(("read", "/srv/a", "ENOENT")),
            ),
            (
                r#"71 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/run/docker.sock"}, 110) = -1 EACCES (Permission denied)"#,
                Some(("socket", "/run/docker.sock", "EACCES")),
            ),
            (
                r#"71 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path=@"agent"}, 9) = -1 EPERM (Operation not permitted)"#,
                Some(("socket", "@agent", "EPERM")),
            ),
            (
                r#"71 connect(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("1.2.3.4")}, 16) = -1 ECONNREFUSED (Connection refused)"#,
                Some(("host", "1.2.3.4:443", "ECONNREFUSED")),
            ),
            (
                r#"71 connect(3<TCPv6:[1]>, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = -1 EPERM (Operation not permitted)"#,
                Some(("host", "[::1]:443", "EPERM")),
            ),
            (
                "71 socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0) = -1 EPERM (Operation not permitted)",
                Some(("call", "socket", "EPERM")),
            ),
            ("71 ptrace(PTRACE_ATTACH, 9) = -1 EPERM (Operation not permitted)", Some(("call", "ptrace", "EPERM"))),
            (r#"71 openat(AT_FDCWD</srv>, "/etc/hosts", O_RDONLY) = 3</etc/hosts>"#, None),
            ("71 +++ exited with 0 +++", None),
            ("71 --- SIGCHLD {si_signo=SIGCHLD} ---", None),
            (r#"71 openat(AT_FDCWD, "unfinished"#, None),
            ("", None),
        ] {
            let read = read(line);
            let read = read.as_ref().map(|failed| (failed.what.word(), failed.what.text(), failed.error.as_str()));
            assert_eq!(read, expected, "{line}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_line_panics(line in "[ -~é]{0,80}", path in "[ -~é\\\\\"]{0,40}") {
            let _ = read(&line);
            let _ = read(&format!("1 openat(AT_FDCWD</a>, \"{path}\", O_RDONLY) = -1 EACCES (Permission denied)"));
        }
    }
}
