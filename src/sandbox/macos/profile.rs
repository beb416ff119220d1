//! The profile of one server for `sandbox-exec`, as text: what all may do (`base.sb`), and what its entry grants.
//!
//! Paths are parameters beside the text, so no letter in a path can mean anything in the profile. Pure.

use std::path::PathBuf;

/// What every server may do.
const BASE: &str = include_str!("base.sb");
/// What a server with a network needs of the system.
const NETWORK: &str = include_str!("network.sb");
/// Names and addresses of hosts, by the resolver of the system.
const RESOLVER: &str = "/private/var/run/mDNSResponder";

/// What a server may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Open,
    None,
    /// The proxy at this port of this machine.
    Proxy(u16),
}

/// A profile, and its parameters as `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) text: String,
    pub(super) parameters: Vec<String>,
}

impl Profile {
    /// Returns the profile of a server. The paths have no links.
    pub(super) fn of<'a>(
        read: impl IntoIterator<Item = &'a PathBuf>,
        write: impl IntoIterator<Item = &'a PathBuf>,
        network: Network,
        unix: bool,
    ) -> Self {
        let mut profile = Self { text: BASE.to_owned(), parameters: Vec::new() };
        profile.line("; What the entry grants.");
        for (at, path) in read.into_iter().enumerate() {
            profile.grant("file-read*", &format!("READ_{at}"), path);
        }
        for (at, path) in write.into_iter().enumerate() {
            profile.grant("file-read* file-write*", &format!("WRITE_{at}"), path);
        }
        match network {
            Network::None => {}
            Network::Open => {
                profile.text.push_str(NETWORK);
                profile.line("(allow network-outbound (remote ip))");
                profile.line("(allow network-inbound network-bind (local ip))");
                profile.line(&format!("(allow network-outbound (literal \"{RESOLVER}\"))"));
            }
            Network::Proxy(port) => {
                profile.text.push_str(NETWORK);
                profile.line(&format!("(allow network-outbound (remote ip \"localhost:{port}\"))"));
            }
        }
        if unix {
            profile.line("(allow network-outbound (remote unix-socket))");
            profile.line("(allow network-bind (local unix-socket))");
        }
        profile
    }

    fn grant(&mut self, what: &str, name: &str, path: &std::path::Path) {
        self.line(&format!("(allow {what} (subpath (param \"{name}\")))"));
        self.parameters.push(format!("{name}={}", path.display()));
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what stands behind the part that all profiles have.
    fn own(profile: &Profile) -> &str {
        profile.text.strip_prefix(BASE).expect("the base")
    }

    #[test]
    fn h108_a_profile_for_macos_grants_paths_by_parameters() {
        let read = ["/srv/a \"b\"(c)", "/Users/ada/.gitconfig"].map(PathBuf::from);
        let write = ["/Users/ada/src"].map(PathBuf::from);
        let profile = Profile::of(&read, &write, Network::None, false);
        insta::assert_snapshot!(own(&profile), @r#"
        ; What the entry grants.
        (allow file-read* (subpath (param "READ_0")))
        (allow file-read* (subpath (param "READ_1")))
        (allow file-read* file-write* (subpath (param "WRITE_0")))
        "#);
        let parameters = ["READ_0=/srv/a \"b\"(c)", "READ_1=/Users/ada/.gitconfig", "WRITE_0=/Users/ada/src"];
        assert_eq!(profile.parameters, parameters);
    }

    #[test]
    fn h108_a_profile_for_macos_has_the_network_that_is_granted() {
        let none: [PathBuf; 0] = [];
        let of = |network, unix| own(&Profile::of(&none, &none, network, unix)).replace(NETWORK, "; NETWORK\n");
        insta::assert_snapshot!(of(Network::Open, false), @r#"
        ; What the entry grants.
        ; NETWORK
        (allow network-outbound (remote ip))
        (allow network-inbound network-bind (local ip))
        (allow network-outbound (literal "/private/var/run/mDNSResponder"))
        "#);
        insta::assert_snapshot!(of(Network::Proxy(4242), true), @r#"
        ; What the entry grants.
        ; NETWORK
        (allow network-outbound (remote ip "localhost:4242"))
        (allow network-outbound (remote unix-socket))
        (allow network-bind (local unix-socket))
        "#);
    }

    #[test]
    fn h108_every_profile_for_macos_refuses_what_it_does_not_name() {
        assert!(BASE.starts_with("(version 1)\n") && BASE.contains("\n(deny default)\n"));
        for text in [BASE, NETWORK] {
            let code: String = text.lines().filter(|line| !line.starts_with(';')).collect();
            assert_eq!(code.matches('(').count(), code.matches(')').count());
            assert!(
                !code.contains("(allow default)") && !code.contains("/Users") && !code.contains("network*"),
                "{code}"
            );
        }
    }
}
