//! The files of the service as text: writes and parses them; pure.

use std::path::{Path, PathBuf};

/// The command of the service, and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) program: String,
    /// The config files.
    pub(super) configs: Vec<String>,
    /// The variables of the service, including PATH.
    pub(super) vars: Vec<(String, String)>,
    pub(super) env_file: Option<String>,
    /// The address on which systemd listens for the service, if its socket starts the service.
    pub(super) listen: Option<String>,
    /// The file to which launchd writes the program's output.
    pub(super) log: String,
}

/// The name of the service.
pub(super) const NAME: &str = "mcp-host";
/// The name of the launchd agent.
pub(super) const LABEL: &str = "mcp-host.serve";

/// Reads a file of variables in any POSIX shell, and starts a program with them. The shell expands nothing in the file:
/// it parses lines like `surroundings.rs` and systemd. `$0` is the file.
const LOADER: &str = r#"while IFS= read -r l || [ -n "$l" ]; do l=${l#"${l%%[![:space:]]*}"}; l=${l%"${l##*[![:space:]]}"}; case $l in ''|'#'*|';'*) continue;; esac; n=${l%%=*}; v=${l#*=}; v=${v#"${v%%[![:space:]]*}"}; case $v in \"*\"|\'*\') v=${v#?}; v=${v%?};; esac; export "$n=$v"; done <"$0" || exit 1; exec "$@""#;

const HEAD: &str = "# Written by `mcp-host service install`, and removed by `mcp-host service uninstall`.\n";

impl Plan {
    /// Returns the files for systemd, by their names in the folder of the user's units.
    pub(super) fn systemd(&self) -> Vec<(PathBuf, String)> {
        let mut files = vec![(PathBuf::from(format!("{NAME}.service")), self.service())];
        files.extend(self.listen.as_ref().map(|listen| (PathBuf::from(format!("{NAME}.socket")), socket(listen))));
        files
    }

    fn service(&self) -> String {
        let words = self.words().map(|word| command_word(&word)).collect::<Vec<_>>().join(" ");
        let mut text = format!("{HEAD}[Unit]\nDescription=mcp-host, one endpoint for MCP servers\n");
        if self.listen.is_some() {
            text += &format!("Requires={NAME}.socket\nAfter={NAME}.socket\n");
        }
        text += "\n[Service]\nType=notify\n";
        text += &format!("ExecStart={words}\nExecReload=/bin/kill -HUP $MAINPID\n");
        text += "Restart=on-failure\nKillMode=mixed\nTimeoutStopSec=20\nWatchdogSec=30\nUMask=0077\n";
        for (name, value) in &self.vars {
            text += &format!("Environment={}\n", quoted(&format!("{name}={value}")));
        }
        if let Some(file) = &self.env_file {
            text += &format!("EnvironmentFile={}\n", file.replace('%', "%%"));
        }
        // With a socket, the first connection starts the service.
        if self.listen.is_none() {
            text += "\n[Install]\nWantedBy=default.target\n";
        }
        text
    }

    fn words(&self) -> impl Iterator<Item = String> {
        let files = self.configs.iter().flat_map(|file| ["--config".to_owned(), file.clone()]);
        [self.program.clone(), "serve".to_owned()].into_iter().chain(files)
    }

    /// Returns the file for launchd.
    pub(super) fn launchd(&self) -> String {
        let words: Vec<String> = match &self.env_file {
            // launchd cannot read a file of variables.
            Some(file) => {
                let shell = ["/bin/sh", "-c", LOADER, file].map(str::to_owned);
                shell.into_iter().chain(self.words()).collect()
            }
            None => self.words().collect(),
        };
        let string = |text: &str| format!("<string>{}</string>", xml(text));
        let words: String = words.iter().map(|word| format!("    {}\n", string(word))).collect();
        let vars: String =
            self.vars.iter().map(|(name, value)| format!("    <key>{}</key>{}\n", xml(name), string(value))).collect();
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n<dict>\n  <key>Label</key>{}\n  <key>ProgramArguments</key>\n  <array>\n{words}  \
             </array>\n  <key>EnvironmentVariables</key>\n  <dict>\n{vars}  </dict>\n  <key>RunAtLoad</key><true/>\n  \
             <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n  \
             <key>ExitTimeOut</key><integer>20</integer>\n  <key>Umask</key><integer>63</integer>\n  \
             <key>StandardErrorPath</key>{}\n</dict>\n</plist>\n",
            string(LABEL),
            string(&self.log),
        )
    }
}

/// The parsed content of a service's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) program: Option<String>,
    pub(super) vars: Vec<(String, String)>,
    pub(super) env_file: Option<String>,
}

/// Parses a unit that [`Plan::systemd`] has written.
pub(super) fn of_systemd(text: &str) -> Written {
    let value = |key: &str| text.lines().filter_map(|line| line.strip_prefix(key)).map(str::to_owned).collect();
    let [programs, vars, files]: [Vec<String>; 3] = ["ExecStart=", "Environment=", "EnvironmentFile="].map(value);
    let first = |line: &str| match line.strip_prefix('"') {
        Some(rest) => rest.split_once('"').map(|(program, _)| program.to_owned()),
        None => line.split(' ').next().map(str::to_owned),
    };
    let pair = |word: &String| {
        let word = unquoted(word);
        word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    Written {
        program: programs.first().and_then(|line| first(line)).map(|it| it.replace("$$", "$").replace("%%", "%")),
        vars: vars.iter().filter_map(pair).collect(),
        env_file: files.first().map(|file| file.replace("%%", "%")),
    }
}

/// Parses an agent that [`Plan::launchd`] has written.
pub(super) fn of_launchd(text: &str) -> Written {
    let inside = |key: &str, end: &str| {
        let (_, rest) = text.split_once(&format!("<key>{key}</key>")).unwrap_or_default();
        rest.split_once(end).unwrap_or_default().0
    };
    let string = |line: &str| line.trim().strip_prefix("<string>")?.strip_suffix("</string>").map(unxml);
    let words: Vec<String> = inside("ProgramArguments", "</array>").lines().filter_map(string).collect();
    let pair = |line: &str| {
        let (name, value) = line.trim().strip_prefix("<key>")?.split_once("</key>")?;
        Some((unxml(name), string(value)?))
    };
    let vars = inside("EnvironmentVariables", "</dict>").lines().filter_map(pair).collect();
    match &words[..] {
        [shell, _, _, file, program, ..] if shell == "/bin/sh" => {
            Written { program: Some(program.clone()), vars, env_file: Some(file.clone()) }
        }
        _ => Written { program: words.first().cloned(), vars, env_file: None },
    }
}

fn socket(listen: &str) -> String {
    format!(
        "{HEAD}[Unit]\nDescription=The address of mcp-host\n\n[Socket]\nListenStream={listen}\n\n[Install]\n\
         WantedBy=sockets.target\n"
    )
}

/// Formats a word of `ExecStart=`, in which variables are expanded.
fn command_word(word: &str) -> String {
    quoted(&word.replace('$', "$$"))
}

/// Formats a word for systemd, where `%` starts a specifier.
fn quoted(word: &str) -> String {
    let escaped = word.replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\"");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-.:=,+@".contains(c);
    if !escaped.is_empty() && escaped.chars().all(is_plain) { escaped } else { format!("\"{escaped}\"") }
}

/// Parses a word that [`quoted`] has written.
fn unquoted(word: &str) -> String {
    let word = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word);
    word.replace("\\\"", "\"").replace("\\\\", "\\").replace("%%", "%")
}

fn unxml(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Reports whether a file of the service names this config.
pub(super) fn serves(text: &str, config: &str) -> bool {
    let (word, string) = (command_word(config), format!("<string>{}</string>", xml(config)));
    let in_unit = |line: &str| {
        let rest = line.strip_prefix("ExecStart=").and_then(|line| line.split_once(" --config ")).map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.split(" --config ").any(|named| named == word))
    };
    text.lines().any(|line| in_unit(line) || line.trim() == string)
}

/// Returns the folder of a version manager that contains a command: an update moves the command.
pub(super) fn moving(folder: &Path) -> Option<&'static str> {
    let text = folder.to_string_lossy();
    MANAGERS.iter().find(|(part, _)| text.contains(part)).map(|(_, name)| *name)
}

const MANAGERS: [(&str, &str); 10] = [
    ("/.nvm/", "nvm"),
    ("/fnm_multishells/", "fnm"),
    ("/fnm/node-versions/", "fnm"),
    ("/.volta/tools/", "Volta"),
    ("/.asdf/installs/", "asdf"),
    ("/mise/installs/", "mise"),
    ("/.pyenv/versions/", "pyenv"),
    ("/.rbenv/versions/", "rbenv"),
    ("/.sdkman/candidates/", "SDKMAN"),
    ("/n/versions/node/", "n"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            program: "/opt/my tools/mcp-host".to_owned(),
            configs: vec!["/home/ada/50%$a\"b.json".to_owned()],
            vars: vec![("PATH".to_owned(), "/usr/bin:/home/ada/my bin".to_owned())],
            env_file: Some("/home/ada/env".to_owned()),
            listen: None,
            log: "/Users/ada/Library/Logs/mcp-host.log".to_owned(),
        }
    }

    #[test]
    fn the_unit_of_systemd() {
        let [(name, text)] = &plan().systemd()[..] else { panic!("one file") };
        assert_eq!(name.to_str(), Some("mcp-host.service"));
        assert_eq!(
            text,
            r#"# Written by `mcp-host service install`, and removed by `mcp-host service uninstall`.
[Unit]
Description=mcp-host, one endpoint for MCP servers

[Service]
Type=notify
ExecStart="/opt/my tools/mcp-host" serve --config "/home/ada/50%%$$a\"b.json"
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
KillMode=mixed
TimeoutStopSec=20
WatchdogSec=30
UMask=0077
Environment="PATH=/usr/bin:/home/ada/my bin"
EnvironmentFile=/home/ada/env

[Install]
WantedBy=default.target
"#
        );
    }

    #[test]
    fn the_socket_starts_the_service() {
        let [(_, service), (name, socket)] =
            &Plan { listen: Some("127.0.0.1:8808".to_owned()), ..plan() }.systemd()[..]
        else {
            panic!("two files")
        };
        assert!(service.contains("Requires=mcp-host.socket\n") && !service.contains("[Install]"));
        assert_eq!(name.to_str(), Some("mcp-host.socket"));
        assert!(socket.contains("ListenStream=127.0.0.1:8808\n") && socket.contains("WantedBy=sockets.target\n"));
    }

    #[test]
    fn the_agent_of_launchd() {
        // launchd cannot check it here; this is the whole file as it was written by hand.
        assert_eq!(plan().launchd(), include_str!("../../../../../tests/fixtures/service/mcp-host.plist"));
        let plain = Plan { env_file: None, ..plan() }.launchd();
        assert!(!plain.contains("/bin/sh") && plain.contains("<string>serve</string>"));
    }

    #[test]
    fn what_was_written_is_read_again() {
        let vars =
            vec![("PATH".to_owned(), "/a b:/50%\"c\\d&<e>".to_owned()), ("XDG_DATA_HOME".to_owned(), "/x".to_owned())];
        for env_file in [None, Some("/home/ada/50% env".to_owned())] {
            let plan = Plan { vars: vars.clone(), env_file, ..plan() };
            let written =
                Written { program: Some(plan.program.clone()), vars: vars.clone(), env_file: plan.env_file.clone() };
            assert_eq!(of_systemd(&plan.systemd()[0].1), written);
            assert_eq!(of_launchd(&plan.launchd()), written);
        }
        assert_eq!((of_systemd(""), of_launchd("")), (Written::default(), Written::default()));
    }

    #[test]
    fn a_file_tells_which_config_is_served() {
        let two = Plan { configs: vec!["/a/b.json".to_owned(), "/c d.toml".to_owned()], ..plan() };
        for text in [two.systemd()[0].1.clone(), two.launchd()] {
            assert!(serves(&text, "/a/b.json") && serves(&text, "/c d.toml"));
            assert!(!serves(&text, "/a/b") && !serves(&text, "b.json") && !serves(&text, "/c d.toml2"));
        }
    }

    #[test]
    fn folders_of_version_managers_are_known() {
        let of = |folder: &str| moving(Path::new(folder));
        assert_eq!(of("/home/ada/.nvm/versions/node/v22.1.0/bin"), Some("nvm"));
        assert_eq!(of("/home/ada/.local/share/mise/installs/node/22/bin"), Some("mise"));
        assert_eq!((of("/usr/bin"), of("/home/ada/.volta/bin")), (None, None));
    }

    /// Starts a program with the loader in a shell. Returns the values of these variables.
    #[cfg(unix)]
    fn loaded(shell: &[&str], text: &str, names: &[String]) -> Option<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("the env's \"file\" $HOME");
        std::fs::write(&file, text).unwrap();
        let show = "for n in \"$@\"; do eval \"printf '%s\\\\0' \\\"\\${$n}\\\"\"; done";
        let mut command = std::process::Command::new(shell[0]);
        command.args(&shell[1..]).args(["-c", LOADER]).arg(&file).args(["/bin/sh", "-c", show, "show"]).args(names);
        let output = command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/home/ada").output().ok()?;
        assert!(output.status.success() && output.stderr.is_empty(), "{shell:?}: {text:?}: {output:?}");
        let values = String::from_utf8(output.stdout).unwrap();
        Some(values.split_terminator('\0').map(str::to_owned).collect())
    }

    #[test]
    #[cfg(unix)]
    fn any_posix_shell_reads_a_file_of_variables_as_we_do() {
        let text = "# tokens of $USER\n; more\n\nA=plain\nC=a b  c\nD=$HOME $(id) `id` ${A}\nE='a\\b \"c\" $d'\nF=\"x 'y' $z\"\nG=\nH=''\n\
                    \tI=a=b#c;d *?[x]~&|<>!\t\nJ=\u{e9}\u{1F600}\r\nK=  led\nL=\"\"\nM=last";
        let (pairs, wrong) = super::super::surroundings::pairs(text);
        assert_eq!(wrong, None);
        let (names, values): (Vec<String>, Vec<String>) = pairs.into_iter().unzip();
        assert_eq!(names.len(), 12);
        assert_eq!(values[3], "a\\b \"c\" $d");
        assert_eq!(loaded(&["/bin/sh"], text, &names).as_ref(), Some(&values));
        // macOS has bash in POSIX mode there, or zsh's.
        for shell in [&["bash", "--posix"][..], &["dash"], &["zsh", "--emulate", "sh"], &["busybox", "sh"], &["mksh"]] {
            let got = loaded(shell, text, &names);
            assert!(got.is_none_or(|got| got == values), "{shell:?}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn without_its_file_the_service_does_not_start() {
        let mut command = std::process::Command::new("/bin/sh");
        let output = command.args(["-c", LOADER, "/no/such/file", "echo", "started"]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

        #[test]
        #[cfg(unix)]
        fn what_is_taken_means_the_same_to_a_shell(values in proptest::collection::vec("[ -~\t\u{e9}]{0,12}", 1..20)) {
            let lines = values.iter().enumerate().map(|(number, value)| format!("V{number}={value}\n"));
            let taken: String = lines.filter(|line| super::super::surroundings::pairs(line).1.is_none()).collect();
            let (names, values): (Vec<String>, Vec<String>) = super::super::surroundings::pairs(&taken).0.into_iter().unzip();
            proptest::prop_assert_eq!(loaded(&["/bin/sh"], &taken, &names), Some(values));
        }
    }
}
