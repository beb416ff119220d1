//! Decides whether a confined server may reach a host, and at which addresses.
//!
//! The entry of a server lists hosts and ports. Names are resolved here, so the judged address is the one that is
//! connected to. A name may lead to addresses of the public internet only; an address of this machine or of a private
//! network has to be listed itself. Only a registry named in this machine's own settings may be in a private network:
//! companies have such registries, and no entry and no server chose them. So a name whose owner points it at
//! `127.0.0.1` or at a cloud's metadata service reaches neither.

use std::net::{IpAddr, SocketAddr};

use url::Host;

use crate::config::SandboxHost;
use crate::dial::{Lookup, is_public};

/// Why a host must not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The entry does not list it.
    #[error("it is not listed")]
    Unlisted,
    /// Its name is listed, but leads to a private address.
    #[error("its name leads to an address of this machine or of a private network")]
    Internal,
    /// Its name is listed, but cannot be resolved.
    #[error("its name leads to no address")]
    Unknown,
}

/// The hosts that one server may reach.
pub(in crate::sandbox) struct Rules {
    /// The listed hosts; `None` means all.
    hosts: Option<Vec<SandboxHost>>,
    lookup: Lookup,
}

impl Rules {
    /// Returns the rules of a list.
    pub(in crate::sandbox) fn listed(hosts: Vec<SandboxHost>, lookup: Lookup) -> Self {
        Self { hosts: Some(hosts), lookup }
    }

    /// Returns the rules of a watched server, which may reach everything that the user may.
    pub(in crate::sandbox) fn all(lookup: Lookup) -> Self {
        Self { hosts: None, lookup }
    }

    /// Reports whether everything is admitted.
    pub(super) fn admit_all(&self) -> bool {
        self.hosts.is_none()
    }

    /// Returns the addresses of a host. Fails if the host must not be reached.
    pub(super) async fn judge(&self, host: &Host<String>, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        let is_named = |listed: &SandboxHost| listed.admits_host(host, port);
        let hosts = self.hosts.as_deref().unwrap_or_default();
        if !self.admit_all() && !hosts.iter().any(is_named) {
            return Err(Refusal::Unlisted);
        }
        let names_this_machine = hosts.iter().any(|listed| is_named(listed) && listed.is_loopback());
        let may_be_near = hosts.iter().any(|listed| is_named(listed) && listed.is_near());
        let found: Vec<IpAddr> = match host {
            Host::Ipv4(address) => vec![(*address).into()],
            Host::Ipv6(address) => vec![(*address).into()],
            Host::Domain(name) => {
                let found = (self.lookup)(name.clone()).await.map_err(|_| Refusal::Unknown)?;
                found.into_iter().map(|address| address.ip()).collect()
            }
        };
        if found.is_empty() {
            return Err(Refusal::Unknown);
        }
        let may = |address: &IpAddr| {
            is_public(*address)
                || names_this_machine && address.is_loopback()
                || may_be_near && is_near(*address)
                || hosts.iter().any(|listed| listed.is_address(*address, port))
        };
        // One private address among others is enough to refuse: the next connection might use it.
        if !self.admit_all() && !found.iter().all(may) {
            return Err(Refusal::Internal);
        }
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// Reports whether a machine near this one can have the address. Cloud metadata services have link-local addresses.
fn is_near(address: IpAddr) -> bool {
    let is_of_link = match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let address = address.to_canonical();
    !(is_of_link || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::parse_host;

    /// Resolves every name to these addresses.
    fn leads_to(addresses: &'static [&'static str]) -> Lookup {
        Arc::new(move |_| {
            let found =
                addresses.iter().map(|address| SocketAddr::new(address.parse().expect("an address"), 0)).collect();
            Box::pin(async move { Ok(found) })
        })
    }

    async fn judged(
        listed: &[&str],
        addresses: &'static [&'static str],
        host: &str,
        port: u16,
    ) -> Result<usize, Refusal> {
        let hosts = listed.iter().map(|host| host.parse().expect("a host")).collect();
        let rules = Rules::listed(hosts, leads_to(addresses));
        rules.judge(&parse_host(host).expect("a host"), port).await.map(|found| found.len())
    }

    #[tokio::test]
    async fn h108_a_listed_name_leads_to_public_addresses_only() {
        let list = ["api.example.com", "10.0.0.7:5432", "localhost:9", "db.example.com:5432"];
        for (host, port, addresses, expected) in [
            ("api.example.com", 443, &["1.1.1.1", "2606:4700::1111"][..], Ok(2)),
            ("api.example.com", 22, &["1.1.1.1"], Err(Refusal::Unlisted)),
            ("evil.example", 443, &["1.1.1.1"], Err(Refusal::Unlisted)),
            ("api.example.com", 443, &["127.0.0.1"], Err(Refusal::Internal)),
            ("api.example.com", 443, &["1.1.1.1", "10.0.0.1"], Err(Refusal::Internal)),
            ("api.example.com", 443, &["169.254.169.254"], Err(Refusal::Internal)),
            ("api.example.com", 443, &["::ffff:127.0.0.1"], Err(Refusal::Internal)),
            ("api.example.com", 443, &[], Err(Refusal::Unknown)),
            // A listed address may be private, and a listed name may lead to a listed address.
            ("10.0.0.7", 5432, &[], Ok(1)),
            ("db.example.com", 5432, &["10.0.0.7"], Ok(1)),
            ("db.example.com", 5432, &["10.0.0.8"], Err(Refusal::Internal)),
            ("localhost", 9, &["127.0.0.1", "::1"], Ok(2)),
            ("localhost", 9, &["10.0.0.1"], Err(Refusal::Internal)),
            ("localhost", 8808, &["127.0.0.1"], Err(Refusal::Unlisted)),
            ("127.0.0.1", 9, &[], Err(Refusal::Unlisted)),
            ("169.254.169.254", 80, &[], Err(Refusal::Unlisted)),
            ("2852039166", 80, &[], Err(Refusal::Unlisted)),
        ] {
            assert_eq!(judged(&list, addresses, host, port).await, expected, "{host}:{port} at {addresses:?}");
        }
    }
    #[tokio::test]
    async fn h108_the_registry_of_this_machine_may_be_in_its_network() {
        for (addresses, expected) in [
            (&["10.0.0.7"][..], Ok(1)),
            (&["fd00::1", "1.1.1.1"], Ok(2)),
            (&["127.0.0.1"], Err(Refusal::Internal)),
            (&["::ffff:127.0.0.1"], Err(Refusal::Internal)),
            (&["169.254.169.254"], Err(Refusal::Internal)),
            (&["10.0.0.7", "fe80::1"], Err(Refusal::Internal)),
            (&["0.0.0.0"], Err(Refusal::Internal)),
        ] {
            let registry = "registry.example".parse::<SandboxHost>().expect("a host").near();
            let rules = Rules::listed(vec![registry], leads_to(addresses));
            let host = |name: &str| parse_host(name).expect("a host");
            assert_eq!(
                rules.judge(&host("registry.example"), 443).await.map(|found| found.len()),
                expected,
                "{addresses:?}"
            );
            assert_eq!(rules.judge(&host("other.example"), 443).await, Err(Refusal::Unlisted));
        }
    }
}
