//! Commands of other programs, and our equivalents.
//!
//! People type commands that they know from other programs. A guess by spelling would mislead them (`start` is near
//! `status`), so each of these commands has its own line. Our own commands are never looked up here.

/// Returns our equivalent of another program's command, if we know the command.
pub(crate) fn meant(command: &str) -> Option<&'static str> {
    let command = command.to_ascii_lowercase();
    TABLE.iter().find(|(names, _)| names.contains(&command.as_str())).map(|(_, line)| *line)
}

type Row = (&'static [&'static str], &'static str);

const TABLE: &[Row] = &[
    (
        &["add-json", "add-mcp", "new", "create", "register"],
        "`mcp-host add NAME -- COMMAND` or `mcp-host add NAME URL` adds a server to the config, `mcp-host install NAME` one of the registry; a running `serve` takes it by itself",
    ),
    (
        &["rm", "del", "delete", "uninstall", "unregister"],
        "`mcp-host remove NAME` takes a server out of the config, `mcp-host disable NAME` only turns it off; a running `serve` follows by itself",
    ),
    (
        &["ls", "servers", "server", "mcp"],
        "`mcp-host list` lists the servers of the config, `mcp-host status` those of a running `serve`, `mcp-host tools` their tools",
    ),
    (&["mv", "move"], "mcp-host rename NAME NEW"),
    (
        &["revert", "rollback", "restore"],
        "`mcp-host undo` takes back the last edit of a config, `mcp-host undo --list` lists the edits",
    ),
    (
        &["ps", "top", "health", "info", "stats", "processes", "monitor"],
        "`mcp-host status` shows the servers of a running `serve`",
    ),
    (
        &["log", "tail", "journal", "events"],
        "`mcp-host logs` shows the last lines of each server, `mcp-host calls` the last calls; `mcp-host serve -v` logs more to stderr",
    ),
    (
        &["start", "run", "up", "daemon", "launch", "listen", "proxy", "gateway", "host", "http", "sse", "open"],
        "`mcp-host serve` starts all servers at one HTTP endpoint, `mcp-host stdio` over stdin and stdout",
    ),
    (
        &["stop", "down", "kill", "quit", "exit", "shutdown", "end"],
        "Ctrl-C where `mcp-host serve` runs; `mcp-host status --json` tells its process",
    ),
    (
        &["reload", "refresh", "reconnect"],
        "a running `mcp-host serve` follows changes of the config by itself; `mcp-host restart SERVER` starts a server anew",
    ),
    (
        &["inspect", "inspector", "describe", "view"],
        "`mcp-host get SERVER` shows a server of the config, `mcp-host tools SERVER` its tools, `mcp-host status` how it is",
    ),
    (
        &["connect", "test", "ping", "try"],
        "`mcp-host check --connect` starts each server once and reports what it offers",
    ),
    (
        &["diagnose", "debug", "troubleshoot", "repair", "fix"],
        "`mcp-host doctor` looks for what is wrong, and says what to do",
    ),
    (
        &["systemd", "launchd", "autostart", "boot"],
        "`mcp-host service install` runs `mcp-host serve` as a service of your account",
    ),
    (
        &["completion", "complete", "autocomplete"],
        "`mcp-host completions SHELL` prints the script that completes commands in a shell",
    ),
    (
        &["validate", "lint", "verify", "dry-run"],
        "`mcp-host check` checks the config; with `--connect` it checks the servers, too",
    ),
    (
        &["config", "configure", "settings", "edit", "init", "setup", "sync"],
        "`mcp-host migrate --all` takes over the servers of your MCP clients; the config is a file of yours, or any client's: `mcp-host check --config FILE`",
    ),
    (&["version", "v"], "mcp-host --version"),
    (&["exec", "execute", "invoke", "use", "tool", "call-tool"], "mcp-host call TOOL KEY=VALUE"),
    (
        &["list-tools", "tools-list", "functions", "find", "browse"],
        "`mcp-host tools` lists the tools of all servers, `mcp-host search WORDS` finds servers in the registry",
    ),
    (&["resource", "cat", "fetch", "templates"], "`mcp-host resources` lists them, `mcp-host read URI` reads one"),
    (&["get-prompt", "ask"], "`mcp-host prompts` lists them, `mcp-host prompt NAME` gets one"),
    (&["signin", "sign-in", "authorize", "authenticate", "oauth"], "mcp-host login SERVER"),
    (&["signout", "sign-out", "revoke"], "mcp-host logout SERVER"),
    (&["whoami", "tokens", "credentials", "secrets", "logins", "accounts"], "`mcp-host auth` lists the logins"),
    (
        &["trust", "allow", "accept", "permit"],
        "`mcp-host approve` shows what a project's config would start, and asks you to allow it",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    fn commands() -> BTreeSet<String> {
        Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn only_commands_that_exist_are_named() {
        for (names, line) in TABLE {
            let named: Vec<&str> = line.split("mcp-host ").skip(1).collect();
            for rest in &named {
                let word: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
                assert!(word.starts_with('-') || commands().contains(&word), "{names:?}: mcp-host {word}");
            }
            assert!(!named.is_empty() || line.contains("config file"), "{names:?} leads nowhere");
        }
    }

    #[test]
    fn every_word_stands_in_one_row() {
        let words: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
        assert!(meant("LOG").is_some_and(|line| line.contains("mcp-host logs")));
        assert_eq!(meant("frobnicate"), None);
    }
}
