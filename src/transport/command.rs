//! Checks whether a server's command can be started at all, and if not, says what to write into the config. This reads
//! files and runs nothing.
//!
//! `mcp-host check` uses it before anything starts, and `process.rs` after a start has failed, so both report the same.
//! **Invariant:** a command that would start is never rejected. A command that this module cannot judge is left to the
//! start.

use std::fmt;

use crate::config::Stdio;
use crate::redact;
use crate::trees;

/// Why a command cannot be started, and how to fix it. `Display` gives both.
///
/// ```
/// use mcp_host::Unstartable;
/// use mcp_host::config::Stdio;
///
/// if let Some(wrong) = Unstartable::of(&Stdio::new("files-server")) {
///     println!("{}: {}", wrong.reason, wrong.help);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unstartable {
    /// The command with its secrets masked: it may be a whole command line.
    pub command: String,
    /// What is wrong.
    pub reason: String,
    /// What to write, install, or do.
    pub help: String,
}

impl fmt::Display for Unstartable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command: _, reason, help } = self;
        write!(f, "{reason}; {help}")
    }
}

impl Unstartable {
    /// Looks for the command where a server's start would look for it. Returns `None` if no problem is found.
    #[must_use]
    pub fn of(stdio: &Stdio) -> Option<Self> {
        if stdio.is_contained() {
            // The program is in the image, and so is its folder.
            return None;
        }
        if trees::is_locked(stdio) {
            // The server is started from its locked tree, and not by this command.
            return match trees::look(stdio) {
                Ok(ready) => Self::of(&ready),
                Err(error) => Some(Self {
                    command: shown(&stdio.command),
                    reason: error.to_string(),
                    help: error.help(stdio).to_owned(),
                }),
            };
        }
        if let Some(cwd) = stdio.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Some(Self {
                command: shown(&stdio.command),
                reason: format!("its `cwd` {} is not a directory", cwd.display()),
                help: format!("mkdir -p {}, or correct `cwd`", cwd.display()),
            });
        }
        // Other systems search by other rules, so their own error is reported.
        #[cfg(not(unix))]
        return None;
        #[cfg(unix)]
        unix::judge(stdio)
    }
}

/// Returns a command with the secrets in its arguments masked.
fn shown(command: &str) -> String {
    if !command.contains(char::is_whitespace) {
        return redact::arguments(&[command.to_owned()]).concat();
    }
    let Some(words) = shlex::split(command) else {
        // Without proper quoting the second word has no clear start.
        let first = command.split_whitespace().next().unwrap_or_default();
        return redact::arguments(&[first.to_owned()]).concat();
    };
    let masked = redact::arguments(&words);
    // `shlex` drops everything after a `#`, so it was not masked.
    if masked == words && !command.contains('#') {
        return command.to_owned();
    }
    let quoted = |word: &String| match word.contains(char::is_whitespace) {
        true => shlex::try_quote(word).map_or_else(|_| word.clone(), std::borrow::Cow::into_owned),
        false => word.clone(),
    };
    masked.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::fs::File;
    use std::io::Read as _;
    use std::path::{Path, PathBuf};

    use super::{Unstartable, shown};
    use crate::config::Stdio;
    use crate::redact;

    /// How many bytes of a file the system reads to find its interpreter.
    const HEAD: u64 = 256;
    /// The search path of the C library if PATH is not set.
    const NO_PATH: &str = "/bin:/usr/bin";

    pub(super) fn judge(stdio: &Stdio) -> Option<Unstartable> {
        let search = Search::of(stdio);
        let wrong = |(reason, help)| Unstartable { command: shown(&stdio.command), reason, help };
        match search.find(&stdio.command) {
            Some(file) => search.file(stdio, &file).map(wrong),
            None => Some(wrong(search.missing(stdio))),
        }
    }

    /// Where a start looks for programs.
    struct Search {
        path: OsString,
        /// The base of relative paths; empty means our own working directory.
        base: PathBuf,
        /// Whether PATH comes from `env` in the server's config entry.
        own: bool,
    }

    impl Search {
        fn of(stdio: &Stdio) -> Self {
            let own = stdio.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.expose().into());
            let is_own = own.is_some();
            // Each server gets our PATH (`environment.rs`), but its own entry wins.
            let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_else(|| NO_PATH.into());
            Self { path, base: stdio.cwd.clone().unwrap_or_default(), own: is_own }
        }

        /// Returns the file that would be run. A file that is not executable is returned only if there is no other.
        fn find(&self, command: &str) -> Option<PathBuf> {
            if command.contains('/') {
                let file = self.base.join(command);
                return file.exists().then_some(file);
            }
            let mut second = None;
            for folder in std::env::split_paths(&self.path) {
                let file = self.base.join(folder).join(command);
                if runs(&file) {
                    return Some(file);
                }
                if file.is_file() {
                    second.get_or_insert(file);
                }
            }
            second
        }

        /// Returns what is wrong with an existing file, and how to fix it; `None` if no problem is found.
        fn file(&self, stdio: &Stdio, file: &Path) -> Option<(String, String)> {
            let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
            let name = whole.display();
            if file.is_dir() {
                return Some(("it is a directory".to_owned(), format!("name the program in {name}")));
            }
            if !file.is_file() {
                return Some(("it is not a program".to_owned(), "name a file that can be run".to_owned()));
            }
            let by = interpreter(file);
            let line = |by: &str| entry(by, std::iter::once(name.to_string()).chain(stdio.args.iter().cloned()));
            if !runs(file) {
                let or = by.map(|by| format!(", or write {}", line(by))).unwrap_or_default();
                return Some(("it is not executable".to_owned(), format!("chmod +x {}{or}", quoted(&whole))));
            }
            let mut head = Vec::new();
            File::open(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
            let Some(first) = head.strip_prefix(b"#!") else {
                // The C library passes such a file to a shell if it was found on the PATH.
                if !stdio.command.contains('/') || cfg!(target_vendor = "apple") || !is_text(&head) {
                    return None;
                }
                let reason = if head.is_empty() { "the file is empty" } else { "it is a script without a `#!` line" };
                let begin = format!("begin {name} with #!/usr/bin/env {}", by.unwrap_or("sh"));
                return Some((reason.to_owned(), format!("{begin}, or write {}", line(by.unwrap_or("sh")))));
            };
            let first = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
            if first.ends_with(b"\r") {
                let reason = "its `#!` line ends with a carriage return, as Windows writes lines";
                return Some((reason.to_owned(), format!("save {name} with Unix line ends (LF)")));
            }
            let first = std::str::from_utf8(first).ok()?;
            let mut words = first.split([' ', '\t']).filter(|word| !word.is_empty());
            let program = words.next()?;
            if !self.base.join(program).exists() {
                let reason = format!("its `#!` line names {program}, which does not exist");
                return Some((reason, format!("correct the first line of {name}, or install what it names")));
            }
            let looked_up = words
                .next()
                .filter(|word| program.ends_with("/env") && !word.starts_with('-') && !word.contains(['=', '/']))?;
            if self.find(looked_up).is_none() {
                let reason = format!("its `#!` line wants `{looked_up}`, which is no command on {}", self.which_path());
                return Some((reason, self.get(looked_up)));
            }
            None
        }

        /// Returns what is wrong with a command that names no file, and how to fix it.
        fn missing(&self, stdio: &Stdio) -> (String, String) {
            let command = stdio.command.as_str();
            let mut words = self.words(command);
            let is_line = words.len() > 1;
            let at_home = words[0].strip_prefix("~/").and_then(|rest| Some(home()?.join(rest).display().to_string()));
            let tilde = at_home.is_some();
            words[0] = at_home.unwrap_or_else(|| words[0].clone());
            if is_line || tilde {
                let reason = match is_line {
                    true => "`command` must be the program alone, and this has the arguments in it",
                    false => "no such command: `~` is not expanded here",
                };
                let program = words.remove(0);
                let help = format!("write {}", entry(&program, words.into_iter().chain(stdio.args.iter().cloned())));
                return (reason.to_owned(), help);
            }
            if command.starts_with('/') {
                return ("no such file".to_owned(), "correct the path, or install it".to_owned());
            }
            if command.contains('/') {
                let from = if self.base.as_os_str().is_empty() { "the working directory" } else { "`cwd`" };
                let looked = std::path::absolute(self.base.join(command)).unwrap_or_else(|_| self.base.join(command));
                let help = format!("it is looked for in {from}, as {}: give its full path", looked.display());
                return ("no such file".to_owned(), help);
            }
            let reason = if self.own { "not found on the PATH of its `env`" } else { "not found on PATH" };
            let here = std::path::absolute(self.base.join(command)).ok().filter(|file| file.is_file());
            let help = match here {
                Some(file) => format!("write {}", entry(&file.display().to_string(), stdio.args.iter().cloned())),
                None => self.get(command),
            };
            (reason.to_owned(), help)
        }

        /// Returns the words of the command if it is a whole command line; else the command alone.
        fn words(&self, command: &str) -> Vec<String> {
            let alone = vec![command.to_owned()];
            if !command.contains(char::is_whitespace) {
                return alone;
            }
            let Some(words) = shlex::split(command).filter(|words| words.len() > 1) else { return alone };
            // A path may well contain a space, the name of a command hardly.
            let program = words[0].strip_prefix("~/").and_then(|rest| Some(home()?.join(rest)));
            let is_program = program.unwrap_or_else(|| self.base.join(&words[0])).is_file();
            if words[0].contains('/') && !is_program { alone } else { words }
        }

        /// Returns how to get a missing command.
        fn get(&self, command: &str) -> String {
            let other = match command {
                "python" => Some("python3"),
                "python3" => Some("python"),
                "pip" => Some("pip3"),
                "node" => Some("nodejs"),
                _ => None,
            };
            if let Some(other) = other.filter(|other| self.find(other).is_some()) {
                return format!("there is `{other}`: write that");
            }
            match product(command) {
                Some(product) => format!("install {product}, which has `{command}`, or give its full path"),
                None => "install it, or give its full path".to_owned(),
            }
        }

        fn which_path(&self) -> &'static str {
            if self.own { "the PATH of its `env`" } else { "the PATH" }
        }
    }

    /// Returns what to install for a command, if it is one that servers are usually started with.
    fn product(command: &str) -> Option<&'static str> {
        Some(match command {
            "npx" | "npm" | "node" => "Node.js",
            "uvx" | "uv" => "uv",
            "docker" => "Docker",
            "podman" => "Podman",
            "bunx" | "bun" => "Bun",
            "deno" => "Deno",
            "pipx" => "pipx",
            "pnpm" | "pnpx" => "pnpm",
            "yarn" => "Yarn",
            "python" | "python3" | "pip" | "pip3" => "Python",
            "go" => "Go",
            "cargo" => "Rust",
            "java" => "a Java runtime",
            "dotnet" => ".NET",
            "gh" => "the GitHub CLI",
            "ruby" | "gem" | "bundle" => "Ruby",
            "php" | "composer" => "PHP",
            _ => return None,
        })
    }

    /// Returns the usual interpreter of a file, by its extension.
    fn interpreter(file: &Path) -> Option<&'static str> {
        Some(match file.extension()?.to_str()? {
            "py" => "python3",
            "js" | "mjs" | "cjs" => "node",
            "sh" => "sh",
            "rb" => "ruby",
            "php" => "php",
            _ => return None,
        })
    }

    /// Formats two members of a config entry: `"command": "npx", "args": ["-y", "pkg"]`.
    fn entry(command: &str, args: impl Iterator<Item = String>) -> String {
        let json = |text: &str| serde_json::Value::from(text).to_string();
        let args: Vec<String> = args.collect();
        let args: Vec<String> = redact::arguments(&args).iter().map(|arg| json(arg)).collect();
        match args.as_slice() {
            [] => format!("\"command\": {}", json(command)),
            args => format!("\"command\": {}, \"args\": [{}]", json(command), args.join(", ")),
        }
    }

    fn quoted(file: &Path) -> String {
        let text = file.display().to_string();
        shlex::try_quote(&text).map_or_else(|_| text.clone(), std::borrow::Cow::into_owned)
    }

    fn home() -> Option<PathBuf> {
        std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
    }

    fn runs(file: &Path) -> bool {
        file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    }

    /// Whether a person could have written a file with this beginning: no binary format starts like this.
    fn is_text(head: &[u8]) -> bool {
        let end = match std::str::from_utf8(head) {
            Ok(_) => head.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return false,
        };
        head[..end].iter().all(|byte| *byte >= b' ' || b"\t\n\r\x0c".contains(byte))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::config::Secret;

    /// Writes a file into a folder, with its mode.
    fn file(folder: &Path, name: &str, text: &str, mode: u32) {
        std::fs::write(folder.join(name), text).expect("a folder of its own");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.join(name), mode).expect("a file of its own");
    }

    /// Returns the verdict on a command whose PATH and `cwd` are that folder, with the folder's name replaced.
    fn said(folder: &Path, command: &str, args: &[&str]) -> String {
        let env = vec![("PATH".to_owned(), Secret::new(folder.display().to_string()))];
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let stdio = Stdio { command: command.to_owned(), args, env, cwd: Some(folder.into()), ..Stdio::default() };
        let here = folder.display().to_string();
        Unstartable::of(&stdio).map_or_else(|| "fine".to_owned(), |found| found.to_string().replace(&here, "HERE"))
    }

    #[test]
    fn every_way_to_be_no_program_is_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let here = home.path();
        std::fs::create_dir(here.join("folder")).unwrap();
        file(here, "good", "#!/bin/sh\n", 0o755);
        file(here, "plain.py", "#!/usr/bin/env python3\n", 0o644);
        file(here, "bare.js", "console.log(1)\n", 0o755);
        file(here, "lost", "#!/nowhere/perl -w\n", 0o755);
        file(here, "dos", "#!/bin/sh\r\n", 0o755);
        file(here, "asks", "#!/usr/bin/env nothing-of-that-name\n", 0o755);
        file(here, "binary", "\u{7f}ELF\0\0", 0o755);
        let cases: &[(&str, &[&str], &str)] = &[
            ("good", &[], "fine"),
            ("./good", &[], "fine"),
            // The C library passes it to a shell, because it is found on the PATH.
            ("bare.js", &[], "fine"),
            ("binary", &[], "fine"),
            ("./binary", &[], "fine"),
            (
                "npx",
                &["-y", "x"],
                "not found on the PATH of its `env`; install Node.js, which has `npx`, or give its full path",
            ),
            ("frob", &[], "not found on the PATH of its `env`; install it, or give its full path"),
            (
                "npx -y 'my pkg' --api-key hunter2",
                &["more"],
                "`command` must be the program alone, and this has the arguments in it; \
                 write \"command\": \"npx\", \"args\": [\"-y\", \"my pkg\", \"--api-key\", \"***\", \"more\"]",
            ),
            (
                "./good --flag",
                &[],
                "`command` must be the program alone, and this has the arguments in it; \
                 write \"command\": \"./good\", \"args\": [\"--flag\"]",
            ),
            (
                "./no such --flag",
                &[],
                "no such file; it is looked for in `cwd`, as HERE/no such --flag: give its full path",
            ),
            ("./nope", &[], "no such file; it is looked for in `cwd`, as HERE/nope: give its full path"),
            ("/nope/x", &[], "no such file; correct the path, or install it"),
            ("good/x", &[], "no such file; it is looked for in `cwd`, as HERE/good/x: give its full path"),
            ("./folder", &[], "it is a directory; name the program in HERE/folder"),
            ("folder", &[], "not found on the PATH of its `env`; install it, or give its full path"),
            (
                "plain.py",
                &["-x"],
                "it is not executable; chmod +x HERE/plain.py, or write \"command\": \"python3\", \"args\": [\"HERE/plain.py\", \"-x\"]",
            ),
            (
                "./bare.js",
                &[],
                "it is a script without a `#!` line; begin HERE/bare.js with #!/usr/bin/env node, \
                 or write \"command\": \"node\", \"args\": [\"HERE/bare.js\"]",
            ),
            (
                "lost",
                &[],
                "its `#!` line names /nowhere/perl, which does not exist; \
                 correct the first line of HERE/lost, or install what it names",
            ),
            (
                "dos",
                &[],
                "its `#!` line ends with a carriage return, as Windows writes lines; save HERE/dos with Unix line ends (LF)",
            ),
            (
                "asks",
                &[],
                "its `#!` line wants `nothing-of-that-name`, which is no command on the PATH of its `env`; \
                 install it, or give its full path",
            ),
        ];
        for (command, args, expected) in cases {
            assert_eq!(said(here, command, args), *expected, "{command}");
        }
    }

    #[test]
    fn a_secret_in_a_command_line_is_masked_whole() {
        for (command, expected) in [
            (r#"npx x --header "X-Api-Key: hunter2""#, "npx x --header X-Api-Key:***"),
            ("npx 'a b' --password 'my horse'", "npx 'a b' --password ***"),
            ("npx x --password #hunter2", "npx x --password"),
            ("npx x --token -hunter2 y", "npx x --token *** y"),
            // Its quoting is broken, so its words cannot be separated.
            (r#"npx x --header "X-Api-Key: hunter2"#, "npx"),
            ("/opt/my server/run", "/opt/my server/run"),
            ("it's", "it's"),
        ] {
            assert_eq!(shown(command), expected, "{command}");
        }
    }

    #[test]
    fn a_command_at_home_is_written_out() {
        let Some(home) = std::env::var_os("HOME").map(std::path::PathBuf::from) else { return };
        let folder = tempfile::tempdir().unwrap();
        let wanted = format!(
            "no such command: `~` is not expanded here; write \"command\": \"{}\", \"args\": [\"a\"]",
            home.join("no/such").display()
        );
        assert_eq!(said(folder.path(), "~/no/such", &["a"]), wanted);
    }

    #[test]
    fn what_is_judged_good_starts_and_what_is_judged_bad_does_not() {
        let home = tempfile::tempdir().unwrap();
        let here = home.path();
        file(here, "good", "#!/bin/sh\n", 0o755);
        file(here, "bare", "exit 0\n", 0o755);
        file(here, "plain", "#!/bin/sh\n", 0o644);
        file(here, "lost", "#!/nowhere/sh\n", 0o755);
        std::fs::create_dir(here.join("folder")).unwrap();
        for command in
            ["good", "./good", "bare", "./bare", "plain", "./plain", "./lost", "lost", "./folder", "nope", "good x"]
        {
            let mut start = std::process::Command::new(command);
            start.env_clear().env("PATH", here).current_dir(here).stdin(std::process::Stdio::null());
            let started = start.output().is_ok();
            // A command that is judged good may still fail on some systems; never the reverse.
            assert_eq!(said(here, command, &[]) == "fine", started, "{command}");
        }
    }
}
