//! `service install`, `uninstall` and `status`, with a `systemctl` that writes down what it is told.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::json;

use super::{own, works};
use crate::reload::program::mcp_host;

/// A `systemctl` that notes its words, and answers like one whose service runs.
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$*\" >> \"$HOME/said\"\ncase \"$*\" in *is-enabled*) echo enabled;; \
                         *is-active*) cat \"$HOME/state\" 2>/dev/null || echo active;; esac\n";

struct Machine(tempfile::TempDir);

impl Machine {
    fn new(servers: &serde_json::Value) -> Self {
        let home = tempfile::tempdir().unwrap();
        let bin = home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("systemctl"), SYSTEMCTL).unwrap();
        std::fs::set_permissions(bin.join("systemctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
        own(home.path(), &json!({ "host": { "listen": "127.0.0.1:18988" }, "mcpServers": servers }));
        Self(home)
    }

    fn home(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command, and returns its exit code and all that it said.
    fn run(&self, args: &[&str], vars: &[(&str, &str)]) -> String {
        let mut command = mcp_host(self.home(), args);
        command.env("PATH", format!("{}/bin:/usr/bin:/bin", self.home().display())).envs(vars.iter().copied());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = format!("exit {}\n{}{}", output.status.code().unwrap(), text(&output.stdout), text(&output.stderr));
        self.plain(&said)
    }

    fn plain(&self, text: &str) -> String {
        text.replace(self.home().to_str().unwrap(), "~").replace(env!("CARGO_BIN_EXE_mcp-host"), "/PROGRAM")
    }

    fn file(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.home().join("systemd/user").join(name)).ok()?;
        Some(self.plain(&text))
    }

    /// Returns what systemctl was told since the last time.
    fn said(&self) -> String {
        let said = std::fs::read_to_string(self.home().join("said")).unwrap_or_default();
        let _ = std::fs::remove_file(self.home().join("said"));
        said
    }
}

#[test]
fn a_dry_run_shows_everything_and_does_nothing() {
    let machine = Machine::new(&json!({ "files": works() }));
    assert_snapshot!(machine.run(&["service", "install", "--dry-run"], &[]), @"
    exit 0
    ~/systemd/user/mcp-host.service
      # Written by `mcp-host service install`, and removed by `mcp-host service uninstall`.
      [Unit]
      Description=mcp-host, one endpoint for MCP servers

      [Service]
      Type=notify
      ExecStart=/PROGRAM serve --config ~/mcp-host/config.json
      ExecReload=/bin/kill -HUP $MAINPID
      Restart=on-failure
      KillMode=mixed
      TimeoutStopSec=20
      WatchdogSec=30
      UMask=0077
      Environment=PATH=~/bin:/usr/bin:/bin
      Environment=XDG_CONFIG_HOME=~
      Environment=XDG_STATE_HOME=~

      [Install]
      WantedBy=default.target

    systemctl --user daemon-reload
    systemctl --user enable mcp-host.service
    systemctl --user restart mcp-host.service
    ");
    assert_eq!((machine.file("mcp-host.service"), machine.said()), (None, String::new()));
}

#[test]
fn the_service_comes_and_goes() {
    let machine = Machine::new(&json!({ "files": works() }));
    assert_snapshot!(machine.run(&["service", "status"], &[]), @"
    exit 4
    error: no service is installed
    help: mcp-host service install
    ");
    assert_snapshot!(machine.run(&["service", "install"], &[]), @"
    exit 0
    mcp-host is installed, and started: http://127.0.0.1:18988/mcp
    mcp-host service status shows it; mcp-host service uninstall removes it
    it runs while you are logged in; loginctl enable-linger keeps it running
    ");
    assert_snapshot!(machine.said(), @"
    --user daemon-reload
    --user enable mcp-host.service
    --user restart mcp-host.service
    ");
    assert!(
        machine
            .file("mcp-host.service")
            .unwrap()
            .contains("ExecStart=/PROGRAM serve --config ~/mcp-host/config.json\n")
    );
    assert_snapshot!(machine.run(&["service", "status"], &[]), @"
    exit 0
    active, enabled
    ~/systemd/user/mcp-host.service
    ");
    machine.said();
    std::fs::write(machine.home().join("state"), "failed\n").unwrap();
    assert_snapshot!(machine.run(&["service", "status"], &[]), @"
    exit 4
    failed, enabled
    ~/systemd/user/mcp-host.service
    error: the service does not run: it is failed
    help: journalctl --user -u mcp-host -n 50 shows what it said
    ");
    machine.said();
    assert_snapshot!(machine.run(&["service", "install", "--socket"], &[]), @"
    exit 0
    mcp-host is installed; the first connection starts it: http://127.0.0.1:18988/mcp
    mcp-host service status shows it; mcp-host service uninstall removes it
    it runs while you are logged in; loginctl enable-linger keeps it running
    ");
    assert_snapshot!(machine.said(), @"
    --user disable --now mcp-host.service
    --user daemon-reload
    --user enable mcp-host.socket
    --user restart mcp-host.socket
    ");
    assert_snapshot!(machine.file("mcp-host.socket").unwrap(), @"
    # Written by `mcp-host service install`, and removed by `mcp-host service uninstall`.
    [Unit]
    Description=The address of mcp-host

    [Socket]
    ListenStream=127.0.0.1:18988

    [Install]
    WantedBy=sockets.target
    ");
    assert_snapshot!(machine.run(&["service", "uninstall"], &[]), @"
    exit 0
    the service is removed
    ");
    assert_snapshot!(machine.said(), @"
    --user disable --now mcp-host.socket mcp-host.service
    --user daemon-reload
    ");
    assert_eq!((machine.file("mcp-host.service"), machine.file("mcp-host.socket")), (None, None));
    assert_snapshot!(machine.run(&["service", "uninstall"], &[]), @"
    exit 0
    no service is installed
    ");
}

#[test]
fn variables_that_the_service_lacks_are_named_and_a_file_gives_them() {
    let mut files = works();
    files["env"] = json!({ "TOKEN": "${PLANTED_TOKEN}" });
    let machine = Machine::new(&json!({ "files": files }));
    let set = [("PLANTED_TOKEN", "planted-secret")];
    let said = machine.run(&["service", "install"], &set);
    assert_snapshot!(said, @r#"
    exit 0
    mcp-host is installed, and started: http://127.0.0.1:18988/mcp
    warning: in the service: ~/mcp-host/config.json:12: server "files": env.TOKEN: the variable PLANTED_TOKEN is not set
    help: put them into a file that only you may read, and give it: mcp-host service install --env-file FILE
    mcp-host service status shows it; mcp-host service uninstall removes it
    it runs while you are logged in; loginctl enable-linger keeps it running
    "#);
    assert!(!machine.file("mcp-host.service").unwrap().contains("planted"));
    let given = machine.home().join("env");
    std::fs::write(&given, "PLANTED_TOKEN=planted-secret\n").unwrap();
    std::fs::set_permissions(&given, std::fs::Permissions::from_mode(0o644)).unwrap();
    let install = ["service", "install", "--env-file", "env"];
    assert_snapshot!(machine.run(&install, &set), @"
    exit 2
    error: --env-file env: others may read it
    help: chmod 600 env
    ");
    std::fs::set_permissions(&given, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = machine.run(&install, &set);
    assert!(said.starts_with("exit 0\n") && !said.contains("warning"), "{said}");
    let unit = machine.file("mcp-host.service").unwrap();
    assert!(unit.contains("EnvironmentFile=~/env\n") && !unit.contains("planted"), "{unit}");
    std::fs::write(&given, "A=1\nno variable\n").unwrap();
    assert_snapshot!(machine.run(&install, &set), @"
    exit 2
    error: --env-file env:2: no variable
    help: write one NAME=VALUE a line
    ");
}

#[test]
fn a_folder_that_a_version_manager_moves_is_named() {
    let machine = Machine::new(&json!({ "files": { "command": "planted-npx", "args": ["x"] } }));
    let folder = machine.home().join(".nvm/versions/node/v22.1.0/bin");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("planted-npx"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(folder.join("planted-npx"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}/bin:/usr/bin:/bin", folder.display(), machine.home().display());
    let said = machine.run(&["service", "install", "--dry-run"], &[("PATH", &path)]);
    assert!(said.contains("warning: `planted-npx` is in ~/.nvm/versions/node/v22.1.0/bin, which nvm moves"), "{said}");
}

#[test]
fn clients_get_the_address_of_the_service() {
    let machine = Machine::new(&json!({ "files": works() }));
    std::fs::create_dir(machine.home().join(".cursor")).unwrap();
    let entry = || machine.run(&["export", "cursor"], &[]);
    assert!(entry().contains("stdio") && !entry().contains("http://"), "{}", entry());
    assert!(machine.run(&["service", "install"], &[]).starts_with("exit 0"));
    assert!(entry().contains("\"url\": \"http://127.0.0.1:18988/mcp\""), "{}", entry());
    assert!(machine.run(&["service", "uninstall"], &[]).starts_with("exit 0"));
    assert!(!entry().contains("http://"), "{}", entry());
}

#[test]
fn the_config_of_a_project_is_no_service() {
    let machine = Machine::new(&json!({ "files": works() }));
    std::fs::write(machine.home().join("mcp-host.json"), "{}").unwrap();
    let said = machine.run(&["service", "install", "--dry-run"], &[]);
    assert!(said.contains("--config ~/mcp-host/config.json"), "{said}");
    let said = machine.run(&["service", "install", "--dry-run", "--project", "."], &[]);
    assert!(said.starts_with("exit 2\nerror: a service serves your own config"), "{said}");
}
