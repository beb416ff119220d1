//! Command lines for macOS, word by word; and the shell in them, which runs here as well.

use std::process::Command;

use super::*;

struct Account(tempfile::TempDir);

impl Account {
    fn new() -> Self {
        let account = Self(tempfile::tempdir().expect("a folder"));
        for folder in ["me/ada", "me/state"] {
            std::fs::create_dir_all(account.at(folder)).expect("a folder");
        }
        std::fs::write(account.at("me/.gitconfig"), "a name").expect("a file");
        account
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.0.path().canonicalize().expect("it is there").join(path)
    }

    fn confined(&self, stdio: Stdio, sandbox: &Sandbox) -> (Stdio, Option<Arc<Door>>) {
        let own = Own::make(&self.at("me/state"), "a-0").expect("folders");
        let places = Places::of(&self.at("me/state"), Some(self.at("me")), None);
        confined(stdio, sandbox, &places, &own).expect("a command")
    }
}

#[test]
fn h108_the_command_for_macos_has_a_profile_and_paths_beside_it() {
    let account = Account::new();
    let mut sandbox = Sandbox::strict().read("~/.gitconfig").write("~/ada");
    sandbox.files = Some(64);
    let stdio = Stdio::new("/bin/cat").args(["-"]).env("TOKEN", "correct-horse");
    let (stdio, door) = account.confined(stdio, &sandbox);
    assert!(door.is_none() && stdio.sandbox.is_none());
    assert_eq!(stdio.command, PROGRAM);
    let words = stdio.args.join("\n").replace(&account.at("").display().to_string(), "AT:/");
    assert!(words.starts_with("-p\n(version 1)\n") && !words.contains("correct-horse"), "{words}");
    let parameter = |path: &str| words.lines().find(|line| line.ends_with(&format!("=AT:/{path}"))).map(str::to_owned);
    assert!(parameter("me/.gitconfig").is_some_and(|line| line.starts_with("READ_")), "{words}");
    for path in ["me/ada", "me/state/sandbox/a-0/home", "me/state/sandbox/a-0/tmp", "me/state/sandbox/a-0/cache"] {
        assert!(parameter(path).is_some_and(|line| line.starts_with("WRITE_")), "{path}: {words}");
    }
    assert_eq!(parameter("me"), None, "{words}");
    let behind = words.rsplit_once("\nsh\n").expect("the words of the shell").1;
    let links = "--\nAT:/me/state/sandbox/a-0/home/.gitconfig\nAT:/me/.gitconfig\n\
                 AT:/me/state/sandbox/a-0/home/ada\nAT:/me/ada\n--\n/bin/cat\n-";
    assert!(behind.starts_with("64\n") && behind.ends_with(links), "{behind}");
    assert!(!words.contains("network-outbound"), "strict has no network: {words}");
    let value = |name: &str| {
        let found = stdio.env.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.expose().replace(&account.at("").display().to_string(), "AT:/"))
    };
    assert_eq!(value("HOME").as_deref(), Some("AT:/me/state/sandbox/a-0/home"));
    assert_eq!(value("TOKEN").as_deref(), Some("correct-horse"));
}

#[test]
fn h108_hosts_on_macos_are_reached_by_one_port_alone() {
    let account = Account::new();
    let sandbox = Sandbox::on().hosts(["a.example".parse().expect("a host")]);
    let stdio = Stdio::new("/bin/cat").env("https_proxy", "http://elsewhere");
    let (stdio, door) = account.confined(stdio, &sandbox);
    assert!(door.is_some());
    let variable = |name: &str| {
        let mut found = stdio.env.iter().filter(|(own, _)| own == name);
        let value = found.next().map(|(_, value)| value.expose().to_owned()).expect("it is set");
        assert!(found.next().is_none(), "{name} is set twice");
        value
    };
    let url = variable("https_proxy");
    let port = url.rsplit_once(':').expect("a port").1;
    assert!(stdio.args[1].ends_with(&format!("(allow network-outbound (remote ip \"localhost:{port}\"))\n")));
    assert_eq!((variable("HTTPS_PROXY"), variable("NO_PROXY")), (url, String::new()));
}

#[test]
fn h108_what_macos_cannot_limit_is_a_lack() {
    let mut sandbox = Sandbox::on();
    (sandbox.memory, sandbox.cpu) = (Some(1), Some(1));
    let lacks = lacks(&sandbox, true);
    for key in ["memory", "cpu"] {
        let lack = format!("macOS has nothing that limits `{key}`; remove it");
        assert!(lacks.contains(&lack), "{lacks:?}");
    }
    assert_eq!(super::lacks(&Sandbox::on().container("a"), true), [CONTAINER]);
}

#[test]
fn h108_the_shell_of_macos_takes_variables_away_makes_links_and_becomes_the_server() {
    let account = Account::new();
    let (from, to) = (account.at("me/state/new/.gitconfig"), account.at("me/.gitconfig"));
    let code = "echo \"$$ [$A] [$B] $(ulimit -n) $(ulimit -c) $1\"; cat \"$2\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SHELL, "sh", "64", "A", "--"]).args([&from, &to]);
    command.args(["--", "/bin/sh", "-c", code, "sh", "a  word"]).arg(&from).env("A", "1").env("B", "2");
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("a shell");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8(output.stdout).expect("UTF-8"), format!("{pid} [] [2] 64 0 a  word\na name"));
}
