//! What a config depends on besides its files: environment variables that it names, and the folder in which it is read.
//! A daemon uses this to decide whether a client would read the same config.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Config, HostSettings, Server, Transport};

/// What a config depends on besides its files.
///
/// ```
/// use mcp_host::config::{Config, Surroundings};
///
/// // A config that the program makes depends on nothing.
/// assert_eq!(Config::default().surroundings, Surroundings::default());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Names of environment variables, and globs over such names.
    names: BTreeSet<String>,
    /// The folder that selects one of a file's projects, if a file has projects.
    scope: Option<PathBuf>,
}

impl Surroundings {
    pub(super) fn new(
        mut names: BTreeSet<String>,
        scope: Option<PathBuf>,
        servers: &[Server],
        host: &HostSettings,
    ) -> Self {
        names.extend(host.inherit_env.iter().cloned());
        for server in servers {
            match &server.transport {
                Transport::Stdio(stdio) => names.extend(stdio.forward_env.iter().cloned()),
                Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => {
                    names.extend(remote.headers_helper.iter().flat_map(|helper| helper.inherit_env.iter().cloned()));
                }
            }
        }
        Self { names, scope }
    }
}

#[cfg_attr(not(all(unix, feature = "server")), expect(dead_code, reason = "only the status socket compares"))]
impl Config {
    /// Returns the names of the environment variables that the config refers to, and globs over such names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.surroundings.names.iter().map(String::as_str)
    }

    /// Returns the folder that selects one of a file's projects, if a file has projects.
    pub(crate) fn scope(&self) -> Option<&Path> {
        self.surroundings.scope.as_deref()
    }

    /// Returns the name of a server that would differ in another working directory: it has no `cwd`, and its command or
    /// an argument is a relative path that exists in one of `folders`.
    pub(crate) fn depends_on(&self, folders: &[&Path]) -> Option<&str> {
        let exists = |path: &str| folders.iter().any(|folder| folder.join(path).exists());
        let relative = |text: &str| !text.is_empty() && !text.starts_with('-') && Path::new(text).is_relative();
        let depends = |server: &&Server| match &server.transport {
            Transport::Stdio(stdio) if stdio.cwd.is_none() && server.disabled.is_none() => {
                let command = relative(&stdio.command)
                    && Path::new(&stdio.command).components().count() > 1
                    && exists(&stdio.command);
                // An option may hold a path after its `=`.
                let value = |argument: &str| argument.split_once('=').is_some_and(|(_, v)| relative(v) && exists(v));
                command || stdio.args.iter().any(|argument| (relative(argument) && exists(argument)) || value(argument))
            }
            _ => false,
        };
        self.servers.iter().find(depends).map(|server| server.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Syntax, Vars, parse_str};
    use super::*;

    fn config(text: &str) -> Config {
        parse_str(text, Syntax::Json, "mcp-host.json", &Vars::from_iter([("SET", "1")])).unwrap()
    }

    #[test]
    fn every_variable_that_is_named_is_known() {
        let text = r#"{"mcpServers":{
            "a":{"command":"a","args":["${SET}","${UNSET:-x}"],"inheritEnv":["AWS_*"]},
            "b":{"url":"http://127.0.0.1/mcp","headers":{"X":"${env:TOKEN}"}}},
            "host":{"inheritEnv":["KUBECONFIG"]}}"#;
        assert_eq!(config(text).names().collect::<Vec<_>>(), ["AWS_*", "KUBECONFIG", "SET", "TOKEN", "UNSET"]);
    }

    #[test]
    fn a_relative_path_that_exists_depends_on_the_folder() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("server.py"), "").unwrap();
        let other = tempfile::tempdir().unwrap();
        for (entry, depends) in [
            (r#""command":"python","args":["server.py"]"#, true),
            (r#""command":"python","args":["--file=server.py"]"#, true),
            (r#""command":"python","args":["."]"#, true),
            (r#""command":"./server.py""#, true),
            (r#""command":"server.py""#, false),
            (r#""command":"python","args":["other.py","-x"]"#, false),
            (r#""command":"python","args":["server.py"],"cwd":"/""#, false),
        ] {
            let config = config(&format!(r#"{{"mcpServers":{{"a":{{{entry}}}}}}}"#));
            assert_eq!(config.depends_on(&[other.path(), home.path()]).is_some(), depends, "{entry}");
        }
    }
}
