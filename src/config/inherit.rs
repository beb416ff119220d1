//! Which of the host's environment variables a program inherits in addition to the few that all programs get: names and
//! globs, for one server or for all.
//!
//! **Invariant:** variables with the host's own secrets are never inherited, whatever the config asks for
//! (`docs/hazards.md` H16, H97).

use super::fields::Field;
use super::report::Report;
use super::vars::Vars;
use super::{Secret, Server, Transport};
use crate::glob;
use crate::redact;

/// The config key, both in a server entry and under `host`.
pub(super) const KEY: &str = "inheritEnv";

/// Reports whether a program that inherits these names and globs gets the variable `name`.
pub(crate) fn passes(inherited: &[String], name: &str) -> bool {
    !is_own(name) && inherited.iter().any(|wanted| glob::is_match(wanted, name))
}

/// Reports whether a variable belongs to the host itself: its settings, its keys, or the folder of its credentials.
fn is_own(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("MCP_HOST_") || name.starts_with("_MCP_HOST_") || name == "CREDENTIALS_DIRECTORY"
}

/// Reads a list of names and globs. Codex also writes a name as an object with the key `name`.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Vec<String> {
    let mut names = Vec::new();
    for item in field.items(report) {
        let Some(name) = item.node.get("name").and_then(|name| name.text()).or_else(|| item.text(report)) else {
            continue;
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            report
                .problem(item.at, &item.path, "is not the name of a variable")
                .help("write it like \"KUBECONFIG\" or \"AWS_*\"");
        } else if is_own(name) {
            report.note(item.at, &item.path, format!("{} is mcp-host's own and is never passed on", item.quote(name)));
        } else {
            names.push(name.to_owned());
        }
    }
    names
}

/// Returns the values of those inherited variables whose names mark them as secret.
pub(super) fn secrets(inherited: &[String], vars: &Vars) -> Vec<Secret> {
    let named = vars.with_prefix("").filter(|(name, _)| redact::names_a_secret(name) && passes(inherited, name));
    named.map(|(_, value)| Secret::new(value)).collect()
}

impl Server {
    /// Adds the variables that all programs inherit (`host.inheritEnv`) to those that this server's program inherits.
    pub(crate) fn inherit(&mut self, names: &[String]) {
        let inherited = match &mut self.transport {
            Transport::Stdio(stdio) => Some(&mut stdio.forward_env),
            Transport::Http(remote) | Transport::Sse(remote) | Transport::Auto(remote) => {
                remote.headers_helper.as_mut().map(|helper| &mut helper.inherit_env)
            }
        };
        let Some(inherited) = inherited.filter(|_| !names.is_empty()) else { return };
        let more: Vec<String> = names.iter().filter(|name| !inherited.contains(name)).cloned().collect();
        inherited.extend(more);
        self.secrets.extend(secrets(names, &Vars::from_process()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Syntax, parse_str};
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn h16_the_hosts_own_secrets_never_pass() {
        let own = ["MCP_HOST_SECRET_KEY", "mcp_host_secret_key", "_MCP_HOST_GUARD", "CREDENTIALS_DIRECTORY"];
        for wanted in ["*", "MCP_*", "MCP_HOST_SECRET_KEY", "?CP_HOST_SECRET_KEY", "C*", "m*"] {
            for name in own {
                assert!(!passes(&names(&[wanted]), name), "{wanted} {name}");
            }
        }
        assert!(passes(&names(&["*"]), "PATH") && passes(&names(&["AWS_*"]), "AWS_PROFILE"));
        assert!(!passes(&names(&["AWS_*", "KUBECONFIG"]), "KUBECONFIG_2"));
    }

    #[test]
    fn a_server_inherits_what_its_entry_and_the_host_say() {
        let text = r#"{ "host": { "inheritEnv": ["KUBECONFIG", "AWS_*"] }, "mcpServers": {
            "a": { "command": "x", "inheritEnv": ["DISPLAY", "MCP_HOST_SECRET_KEY", "P_*"] },
            "b": { "url": "https://example.com/mcp", "headersHelper": ["vault"], "inheritEnv": ["VAULT_*"] },
            "c": { "url": "https://example.com/mcp", "inheritEnv": ["VAULT_*"] } } }"#;
        let vars = Vars::from_iter([("P_TOKEN", "correct-horse"), ("P_MODE", "plain-word")]);
        let config = parse_str(text, Syntax::Json, "mcp-host.json", &vars).unwrap();
        assert_eq!(config.host.inherit_env, ["KUBECONFIG", "AWS_*"]);
        let Transport::Stdio(stdio) = &config.servers[0].transport else { panic!("a program") };
        assert_eq!(stdio.forward_env, ["DISPLAY", "P_*"]);
        assert_eq!(config.scrubber().without_known("correct-horse plain-word"), "*** plain-word");
        let Transport::Auto(remote) = &config.servers[1].transport else { panic!("a URL") };
        assert_eq!(remote.headers_helper.as_ref().unwrap().inherit_env, ["VAULT_*"]);
        let notes: Vec<String> = config.notes.iter().map(ToString::to_string).collect();
        assert_eq!(
            notes.iter().filter(|note| note.contains("is mcp-host's own and is never passed on")).count(),
            1,
            "{notes:?}"
        );
        assert_eq!(
            notes.iter().filter(|note| note.contains("there is no program here that could inherit")).count(),
            1,
            "{notes:?}"
        );
        let mut server = config.servers[0].clone();
        server.inherit(&config.host.inherit_env);
        server.inherit(&config.host.inherit_env);
        let Transport::Stdio(stdio) = &server.transport else { panic!("a program") };
        assert_eq!(stdio.forward_env, ["DISPLAY", "P_*", "KUBECONFIG", "AWS_*"]);
    }

    #[test]
    fn a_name_that_cannot_be_one_is_refused() {
        let text = r#"{ "mcpServers": { "a": { "command": "x", "inheritEnv": ["A=b"] } } }"#;
        let error = parse_str(text, Syntax::Json, "mcp.json", &Vars::default()).unwrap_err();
        assert!(error.problems()[0].to_string().contains("is not the name of a variable"), "{error}");
    }
}
