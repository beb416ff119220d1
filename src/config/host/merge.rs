//! `host.merge`: groups of servers whose equal tools are listed once.

use std::collections::BTreeMap;

use super::HostSettings;
use crate::config::fields::Fields;
use crate::config::report::Report;
use crate::glob::is_match;
use crate::name::ServerName;
use crate::protocol::Theirs;

/// The keys of a group.
const KEYS: [&str; 2] = ["argument", "servers"];

/// Servers whose equal tools are listed once, with an argument that names the server.
///
/// ```
/// use mcp_host::config::{HostSettings, Merge};
///
/// // `k8s__get_pods` takes the alias of a server in `cluster`.
/// let settings = HostSettings::default().merge("k8s", Merge::new(["k8s-*"], "cluster"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Merge {
    /// Globs over the aliases of servers.
    pub servers: Vec<String>,
    /// The name of the argument that selects the server.
    pub argument: String,
}

impl Merge {
    /// Creates a group of the servers whose aliases match these globs.
    pub fn new<I: IntoIterator<Item: Into<String>>>(servers: I, argument: &str) -> Self {
        Self { servers: servers.into_iter().map(Into::into).collect(), argument: argument.to_owned() }
    }

    /// Reports whether a server with this alias belongs to the group.
    pub(crate) fn has(&self, alias: &str) -> bool {
        self.servers.iter().any(|glob| is_match(glob, alias))
    }
}

impl HostSettings {
    /// Adds a group of servers whose equal tools are listed once. The group's name is the prefix of these tools' names,
    /// in place of the alias of a server.
    #[must_use]
    pub fn merge(mut self, group: &str, merge: Merge) -> Self {
        self.merge.insert(group.to_owned(), merge);
        self
    }
}

/// Reads the groups.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    let Some(field) = fields.take(&["merge"], report) else { return };
    let mut groups = BTreeMap::new();
    for (group, field) in field.entries(report) {
        let is_alias = ServerName::from_config(group).is_ok_and(|alias| alias.as_str() == group);
        if !is_alias || ["host", "mcp-host"].contains(&group) {
            let message = format!("{} cannot be the name of a group", Theirs(group));
            report
                .problem(field.at, &field.path, message)
                .help("write it in lowercase letters, digits and single hyphens, such as \"k8s\"");
            continue;
        }
        let (at, path) = (field.at, field.path.clone());
        let Some(mut own) = field.fields(report) else { continue };
        let servers = own.take(&["servers"], report).map(|field| field.texts(report)).unwrap_or_default();
        let argument = own.take(&["argument"], report).and_then(|field| field.text(report).map(str::to_owned));
        own.finish(&KEYS, report);
        let lacks = match (servers.is_empty(), argument.as_deref().is_none_or(str::is_empty)) {
            (true, _) => "servers",
            (false, true) => "argument",
            (false, false) => {
                groups.insert(group.to_owned(), Merge { servers, argument: argument.unwrap_or_default() });
                continue;
            }
        };
        let help = "write it like { \"servers\": [\"k8s-*\"], \"argument\": \"cluster\" }";
        report.problem(at, &path, format!("`{lacks}` is missing")).help(help);
    }
    settings.merge = groups;
}

#[cfg(test)]
mod tests {
    use super::super::super::{Config, Error, Syntax, Vars, parse_str};
    use super::*;

    fn read(merge: &str) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {{ \"merge\": {merge} }} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::default())
    }

    #[test]
    fn groups_are_read() {
        let config = read(r#"{ "k8s": { "servers": ["k8s-*", "kube"], "argument": "cluster" } }"#);
        let groups = config.unwrap_or_else(|error| panic!("{error}")).host.merge;
        assert_eq!(groups["k8s"], Merge::new(["k8s-*", "kube"], "cluster"));
        assert!(groups["k8s"].has("k8s-a") && groups["k8s"].has("kube") && !groups["k8s"].has("kub"));
    }

    #[test]
    fn mistakes_in_groups_are_named() {
        let error = read(r#"{ "K_8s": {}, "host": {}, "a": {}, "b": { "servers": ["x"] } }"#);
        insta::assert_snapshot!(error.unwrap_err(), @"
        f.json:2: host.merge.K_8s: K_8s cannot be the name of a group
        f.json:2: host.merge.a: `servers` is missing
        f.json:2: host.merge.b: `argument` is missing
        f.json:2: host.merge.host: host cannot be the name of a group
        ");
    }
}
