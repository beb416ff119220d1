//! The environment of the service, and what the config needs but does not find there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mcp_host::Unstartable;
use mcp_host::config::{Config, LoadRequest, Secret, Transport, Vars, load};

use super::unit::{self, Written};
use crate::report::{Exit, Failure};
use crate::text;

/// The variables of a service.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Surroundings {
    /// Those in its unit.
    written: Vec<(String, String)>,
    /// Those in its file of variables.
    given: Vec<(String, String)>,
}

/// Something that the service lacks, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct Lack {
    pub(in crate::commands) what: String,
    pub(in crate::commands) help: String,
}

/// Variables with paths. If a service has other values, it uses another state directory than commands in the shell.
const PLACES: [&str; 4] = ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"];
/// Variables that a service manager sets itself.
const MANAGERS: [&str; 7] = ["HOME", "USER", "LOGNAME", "SHELL", "LANG", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

impl Surroundings {
    /// Returns what a service needs from the shell that installs it: the PATH, and variables with paths.
    pub(super) fn of_shell(given: Vec<(String, String)>) -> Self {
        let variable = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
        let is_plain = |(_, value): &(String, String)| !value.is_empty() && !value.contains(char::is_control);
        let written = std::iter::once("PATH").chain(PLACES).filter_map(variable).filter(is_plain).collect();
        Self { written, given }
    }

    /// Returns the variables in a service's file, and reads its file of variables.
    pub(super) fn of_written(written: Written) -> Self {
        let given = written.env_file.and_then(|file| fs::read_to_string(file).ok()).map(|text| pairs(&text).0);
        Self { written: written.vars, given: given.unwrap_or_default() }
    }

    pub(super) fn written(&self) -> &[(String, String)] {
        &self.written
    }

    fn path(&self) -> Option<&str> {
        let last = self.written.iter().chain(&self.given).rfind(|(name, _)| name == "PATH");
        last.map(|(_, path)| path.as_str())
    }

    /// Returns the environment of the service.
    fn vars(&self) -> Vars {
        let theirs = MANAGERS.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        theirs.chain(self.written.iter().cloned()).chain(self.given.iter().cloned()).collect()
    }

    /// Returns what the config finds in this shell but will not find in the service. Starts nothing.
    pub(in crate::commands) fn lacks(&self, request: &LoadRequest, config: &Config) -> Vec<Lack> {
        let mut lacks = self.variables(request, config);
        lacks.extend(self.commands(config));
        lacks
    }

    /// Returns the servers whose entries work in this shell, but not with the variables of the service.
    pub(in crate::commands) fn variables(&self, request: &LoadRequest, config: &Config) -> Vec<Lack> {
        let help =
            || "put them into a file that only you may read, and give it: mcp-host service install --env-file FILE";
        let there = load(&LoadRequest { vars: self.vars(), ..request.clone() });
        let there = match there {
            Ok(there) => there,
            Err(error) => {
                let lack = |problem: &mcp_host::config::Problem| Lack {
                    what: format!("the service cannot read the config: {problem}"),
                    help: help().to_owned(),
                };
                return error.problems().iter().map(lack).collect();
            }
        };
        let fine = |name: &str| config.servers.iter().any(|server| server.name == name && server.unusable.is_none());
        let broken = there.servers.iter().filter(|server| fine(&server.name) && server.disabled.is_none());
        let problems = broken.filter_map(|server| server.unusable.as_ref()).flat_map(|unusable| unusable.problems());
        let lack = |problem: &mcp_host::config::Problem| Lack {
            what: format!("in the service: {problem}"),
            help: help().to_owned(),
        };
        problems.map(lack).collect()
    }

    /// Returns the commands that are not on the PATH of the service, and those that an update will move.
    pub(in crate::commands) fn commands(&self, config: &Config) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let mut moving = BTreeSet::new();
        for server in config.servers.iter().filter(|server| server.disabled.is_none() && server.unusable.is_none()) {
            let Transport::Stdio(stdio) = &server.transport else { continue };
            let mut stdio = stdio.clone();
            let is_set = stdio.env.iter().any(|(name, _)| name == "PATH");
            if let Some(path) = self.path().filter(|_| !is_set) {
                stdio.env.push(("PATH".to_owned(), Secret::new(path.to_owned())));
            }
            if let Some(wrong) = Unstartable::of(&stdio) {
                let name = text::line(&server.name);
                let what = format!("in the service, `{name}` cannot start `{}`: {}", wrong.command, wrong.reason);
                lacks.push(Lack { what, help: wrong.help });
                continue;
            }
            let folder = self.path().and_then(|path| found(&stdio.command, path));
            let found = folder.and_then(|folder| Some((unit::moving(&folder)?, folder)));
            if let Some((manager, folder)) = found
                && moving.insert((folder.clone(), stdio.command.clone()))
            {
                let what =
                    format!("`{}` is in {}, which {manager} moves at an update", stdio.command, folder.display());
                lacks.push(Lack { what, help: "run mcp-host service install again after an update".to_owned() });
            }
        }
        lacks
    }
}

/// Returns the folder of a search path that contains a command.
fn found(command: &str, path: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Path::new(command).parent().map(Path::to_owned);
    }
    std::env::split_paths(path).find(|folder| folder.join(command).is_file())
}

/// Reads the file of variables that the user names. Fails if other users can read it, because it holds secrets.
pub(super) fn env_file(file: &Path) -> Result<(PathBuf, Vec<(String, String)>), Failure> {
    let (name, quoted) = (file.display(), text::quoted(&file.display().to_string()));
    let usage = |error: String, help: String| Failure::new(Exit::Usage, error).help(help);
    let text = fs::read_to_string(file).map_err(|error| {
        usage(format!("--env-file {name}: {error}"), format!("ls -l {quoted} shows who may read it"))
    })?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(file).map(|metadata| metadata.permissions().mode() & 0o077).unwrap_or_default();
        if mode != 0 {
            return Err(usage(format!("--env-file {name}: others may read it"), format!("chmod 600 {quoted}")));
        }
    }
    let (pairs, wrong) = pairs(&text);
    if let Some(Wrong { line, why, help }) = wrong {
        return Err(usage(format!("--env-file {name}:{line}: {why}"), help.to_owned()));
    }
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    Ok((file, pairs))
}

/// A line in a file of variables that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    line: usize,
    why: &'static str,
    help: &'static str,
}

/// Parses `NAME=VALUE` lines, up to the first one that is not accepted. systemd and the shell of launchd's agent read
/// the same file, so only lines that mean the same to all readers are accepted.
pub(super) fn pairs(text: &str) -> (Vec<(String, String)>, Option<Wrong>) {
    let (mut pairs, mut wrong) = (Vec::new(), None);
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let (why, help) = match line.split_once('=').filter(|(name, _)| is_name(name)) {
            None => ("no variable", "write one NAME=VALUE a line"),
            Some((name, text)) => match value(text.trim_ascii()) {
                Some(value) => {
                    pairs.push((name.to_owned(), value.to_owned()));
                    continue;
                }
                None => (
                    "a quote or a backslash stands in a value without single quotes around it",
                    "write NAME='VALUE'; a value with a single quote belongs into the keyring: mcp-host add --secret",
                ),
            },
        };
        wrong = wrong.or(Some(Wrong { line: number, why, help }));
    }
    (pairs, wrong)
}

/// Parses a value; `None` if it does not mean the same to every reader.
fn value(text: &str) -> Option<&str> {
    for sign in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(sign).and_then(|rest| rest.strip_suffix(sign)) {
            let is_plain = !inner.contains(sign) && (sign == '\'' || !inner.contains('\\'));
            return is_plain.then_some(inner);
        }
    }
    (!text.contains(['\'', '"', '\\'])).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_variables_is_read_line_by_line() {
        let (read, wrong) = pairs("# tokens\nA=1\n\nB=\"x y\"\nC='z'\nD=a=b\n");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("A", "1"), pair("B", "x y"), pair("C", "z"), pair("D", "a=b")]);
        assert_eq!(wrong, None);
        assert_eq!(pairs("A=1\nexport B=2\n=3\n").1.map(|wrong| wrong.line), Some(2));
        for line in ["A=it's", "A='it's'", "A=a\\b", "A=\"a\\b\"", "A=\"a\"b\"", "A=\"a\" b", "A='", "A=a\"b"] {
            assert!(pairs(line).1.is_some_and(|wrong| wrong.why.contains("single quotes")), "{line}");
        }
        assert_eq!(pairs("A='a\\b \"c\"'").0, [pair("A", "a\\b \"c\"")]);
    }
}
