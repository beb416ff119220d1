//! `host.cluster`: several hosts that serve as one, behind a balancer that knows nothing of sessions.

use std::net::SocketAddr;

use super::HostSettings;
use super::secrets::SecretKey;
use crate::config::fields::{Field, Fields};
use crate::config::report::Report;
use crate::config::syntax::{Origin, Value};
use crate::config::tools::refuse_rest;
use crate::seal::MasterKey;

/// Several hosts (replicas) that serve as one. All have the same keys, and reach each other at their peer channels.
///
/// ```
/// use mcp_host::config::{Cluster, HostSettings, PeerSource, SecretKey};
///
/// let key = SecretKey::parse(&"ab".repeat(SecretKey::LENGTH)).expect("a key");
/// let peers = PeerSource::Addresses(vec!["10.0.0.5:8809".to_owned(), "10.0.0.6:8809".to_owned()]);
/// let cluster = Cluster::new(vec![key], peers, ([10, 0, 0, 5], 8809).into());
/// let settings = HostSettings::default().cluster(cluster);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cluster {
    /// The keys. The first one seals, and all of them open. Who has one of them belongs to the cluster.
    pub keys: Vec<SecretKey>,
    /// Where the other replicas are.
    pub peers: PeerSource,
    /// The address of the peer channel. It is never the one that clients use.
    pub listen: SocketAddr,
    /// The address by which the others reach this replica; `None` if it finds that out itself.
    pub address: Option<String>,
    /// Keeps clusters apart that have the same keys.
    pub namespace: String,
}

/// Where the replicas of a cluster are. This replica itself may be among them.
///
/// ```
/// use mcp_host::config::PeerSource;
///
/// assert_eq!(PeerSource::Dns("peers:8809".to_owned()).names(), ["peers:8809"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerSource {
    /// Each address of this name is one, at this port: `NAME:PORT`.
    Dns(String),
    /// These, each as `HOST:PORT`.
    Addresses(Vec<String>),
}

impl PeerSource {
    /// Returns the names to look up, each with its port.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Dns(name) => std::slice::from_ref(name),
            Self::Addresses(names) => names,
        }
    }
}

impl Cluster {
    /// Makes the settings of a replica whose peer channel is at `listen`.
    #[must_use]
    pub fn new(keys: Vec<SecretKey>, peers: PeerSource, listen: SocketAddr) -> Self {
        Self { keys, peers, listen, address: None, namespace: NAMESPACE.to_owned() }
    }

    /// Sets the namespace, which keeps clusters apart that have the same keys.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }
}

impl HostSettings {
    /// Makes the host one of several that serve as one. A build without the cargo feature `cluster` serves alone.
    #[must_use]
    pub fn cluster(self, cluster: Cluster) -> Self {
        Self { cluster: Some(cluster), ..self }
    }
}

impl HostSettings {
    /// Returns the keys that seal what clients keep, if other hosts have them, too; none if the host serves alone.
    pub(crate) fn shared_keys(&self) -> Vec<MasterKey> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &self.cluster {
            let label = format!("seal {}", cluster.namespace);
            return cluster.keys.iter().map(|key| crate::seal::shared_key(key.expose(), &label)).collect();
        }
        Vec::new()
    }
}

const KEYS: [&str; 5] = ["address", "keys", "listen", "namespace", "peers"];
const NAMESPACE: &str = "default";
/// What stands before a name whose addresses are the replicas.
const DNS: &str = "dns:";
const MAKE: &str = "make one with: openssl rand -base64 32";
const PEERS: &str = "write \"dns:NAME:PORT\", or a list of addresses such as [\"10.0.0.5:8809\", \"10.0.0.6:8809\"]";

/// Reads `cluster`, after the address for clients.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    let Some(field) = fields.take(&["cluster"], report) else { return };
    if !cfg!(feature = "cluster") {
        let problem = report.problem(field.at, &field.path, "this build serves alone");
        problem.help("build mcp-host with the cargo feature `cluster`, or remove the key");
        return;
    }
    settings.cluster = read(&field, settings.listen, report);
}

fn read(field: &Field<'_>, clients: SocketAddr, report: &mut Report) -> Option<Cluster> {
    let before = report.problems();
    let mut fields = field.fields(report)?;
    let keys = fields.take(&["keys"], report);
    let peers = fields.take(&["peers"], report);
    let listen = fields.take(&["listen"], report);
    let address = fields.take(&["address"], report).and_then(|field| address(&field, report));
    let namespace = fields.take(&["namespace"], report).and_then(|field| namespace(&field, report));
    refuse_rest(fields, &KEYS, report);
    let lacks = |key: &str, help: &str, report: &mut Report| {
        report.problem(field.at, &field.path, format!("`{key}` is missing")).help(help);
    };
    match &keys {
        None => lacks(
            "keys",
            "peers prove by them that they belong together; make one with: openssl rand -base64 32",
            report,
        ),
        Some(_) if peers.is_none() => lacks("peers", PEERS, report),
        Some(_) => {}
    }
    if listen.is_none() {
        lacks(
            "listen",
            "write the address at which the other replicas reach this one, such as \"10.0.0.5:8809\"",
            report,
        );
    }
    let keys = keys.map(|field| self::keys(&field, report)).unwrap_or_default();
    let peers = peers.and_then(|field| self::peers(&field, report));
    let listen = listen.and_then(|field| self::listen(&field, clients, report));
    if report.problems() != before {
        return None;
    }
    let namespace = namespace.unwrap_or_else(|| NAMESPACE.to_owned());
    Some(Cluster { keys, peers: peers?, listen: listen?, address, namespace })
}

fn keys(field: &Field<'_>, report: &mut Report) -> Vec<SecretKey> {
    let items = field.items(report);
    if items.is_empty() && matches!(field.node.value, Value::List(_)) {
        report.problem(field.at, &field.path, "there is no key").help(MAKE);
    }
    let mut keys: Vec<SecretKey> = Vec::new();
    for item in items {
        let Some(text) = item.text(report) else { continue };
        match SecretKey::parse(text) {
            _ if item.node.origin == Origin::Missing => {}
            None => {
                let message = "this is not a key: expected 32 bytes in base64 or hexadecimal";
                report.problem(item.at, &item.path, message).help(MAKE);
            }
            Some(key) if keys.iter().any(|known| known.expose() == key.expose()) => {
                report.problem(item.at, &item.path, "this key is given twice").help("remove one of the two");
            }
            Some(key) => keys.push(key),
        }
    }
    keys
}

fn peers(field: &Field<'_>, report: &mut Report) -> Option<PeerSource> {
    if let Value::List(items) = &field.node.value {
        if items.is_empty() {
            report.problem(field.at, &field.path, "there is no peer").help(PEERS);
            return None;
        }
        let mut names = Vec::new();
        for item in field.items(report) {
            let Some(text) = item.text(report) else { continue };
            if is_place(text) {
                names.push(text.to_owned());
            } else if item.node.origin != Origin::Missing {
                let message = format!("{} is not an address with a port", item.quote(text));
                report.problem(item.at, &item.path, message).help(PEERS);
            }
        }
        return Some(PeerSource::Addresses(names));
    }
    let text = field.text(report)?;
    if let Some(name) = text.strip_prefix(DNS).filter(|name| is_place(name)) {
        return Some(PeerSource::Dns(name.to_owned()));
    }
    if field.node.origin != Origin::Missing {
        let message = format!("{} does not say where the peers are", field.quote(text));
        report.problem(field.at, &field.path, message).help(PEERS);
    }
    None
}

fn listen(field: &Field<'_>, clients: SocketAddr, report: &mut Report) -> Option<SocketAddr> {
    let listen = super::listen(field, report)?;
    if listen.port() == 0 {
        let problem = report.problem(field.at, &field.path, "the other replicas cannot know a port that is drawn");
        problem.help("write a port, such as 8809");
        return None;
    }
    let one = |address: SocketAddr| address.ip().is_unspecified();
    if listen.port() == clients.port() && (listen.ip() == clients.ip() || one(listen) || one(clients)) {
        let problem = report.problem(field.at, &field.path, "this is where clients connect (host.listen)");
        problem.help("use another port, such as 8809: only replicas may reach it");
        return None;
    }
    Some(listen)
}

fn address(field: &Field<'_>, report: &mut Report) -> Option<String> {
    let text = field.text(report)?;
    if text == "auto" || field.node.origin == Origin::Missing {
        return None;
    }
    if !is_place(text) {
        let message = format!("{} is not an address with a port", field.quote(text));
        report.problem(field.at, &field.path, message).help("write \"auto\", or an address such as \"10.0.0.5:8809\"");
        return None;
    }
    Some(text.to_owned())
}

fn namespace(field: &Field<'_>, report: &mut Report) -> Option<String> {
    let text = field.text(report)?;
    if !super::access::is_name(text) && field.node.origin != Origin::Missing {
        let message = format!("{} is not a namespace", field.quote(text));
        report.problem(field.at, &field.path, message).help("use up to 64 letters, digits, `.`, `-` and `_`");
        return None;
    }
    Some(text.to_owned())
}

/// Reports whether a text is a host, by name or address, with a port.
fn is_place(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    };
    port.parse::<u16>().is_ok_and(|port| port != 0) && (is_name(host) || text.parse::<SocketAddr>().is_ok())
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;
    use crate::config::{Config, Error, Syntax, Vars, parse_str};

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const OTHER: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

    fn read(cluster: &str, vars: &[(&str, &str)]) -> Result<Config, Error> {
        let text = format!("{{ \"mcpServers\": {{}},\n\"host\": {{ \"cluster\": {cluster} }} }}");
        parse_str(&text, Syntax::Json, "f.json", &Vars::from_iter(vars.iter().copied()))
    }

    fn wrong(cluster: &str) -> String {
        read(cluster, &[("SHORT", "hunter2")]).expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_cluster_is_read_with_its_defaults() {
        let text = format!(
            r#"{{ "keys": ["${{K}}", "{OTHER}"], "peers": "dns:mcp-host-peers:8809", "listen": "10.0.0.5:8809" }}"#
        );
        let config = read(&text, &[("K", KEY)]).unwrap_or_else(|error| panic!("{error}"));
        let keys = vec![SecretKey::parse(KEY).unwrap(), SecretKey::parse(OTHER).unwrap()];
        let cluster =
            Cluster::new(keys, PeerSource::Dns("mcp-host-peers:8809".to_owned()), ([10, 0, 0, 5], 8809).into());
        assert_eq!(config.host.cluster.as_ref(), Some(&cluster));
        let text = format!(
            r#"{{ "keys": ["{KEY}"], "peers": ["a.example:1", "[::1]:2"], "listen": "[::1]:2", "address": "b:3", "namespace": "test" }}"#
        );
        let read = read(&text, &[]).unwrap_or_else(|error| panic!("{error}")).host.cluster.unwrap();
        assert_eq!(read.peers.names(), ["a.example:1", "[::1]:2"]);
        assert_eq!((read.address.as_deref(), &*read.namespace), (Some("b:3"), "test"));
        assert!(!format!("{cluster:?} {read:?}").contains("0102"));
        assert!(config.scrubber().without_known(&format!("{KEY} {OTHER}")).is_ascii());
        assert_eq!(config.scrubber().without_known(&format!("{KEY} {OTHER}")), "*** ***");
    }

    #[test]
    fn mistakes_in_a_cluster_are_named() {
        insta::assert_snapshot!(wrong("{}"), @"
        f.json:2: host.cluster: `keys` is missing
        f.json:2: host.cluster: `listen` is missing
        ");
        insta::assert_snapshot!(wrong(r#"{ "peers": ["a:1"], "listen": "127.0.0.1:1" }"#), @"f.json:2: host.cluster: `keys` is missing");
        insta::assert_snapshot!(wrong(r#"{ "keys": [], "peers": [], "listen": "127.0.0.1:0" }"#), @"
        f.json:2: host.cluster.keys: there is no key
        f.json:2: host.cluster.peers: there is no peer
        f.json:2: host.cluster.listen: the other replicas cannot know a port that is drawn
        ");
        let all = format!(
            r#"{{ "keys": ["${{SHORT}}", "abcd", "{KEY}", "{KEY}"], "peers": ["a", "dns:a:1", "a:0", "a:1"], "listen": "0.0.0.0:8808",
                 "address": "here", "namespace": "a b", "store": "redis://x", "beat": "1s" }}"#
        );
        let told = wrong(&all);
        assert!(!told.contains("hunter2") && !told.contains("abcd"), "{told}");
        insta::assert_snapshot!(told, @r#"
        f.json:2: host.cluster.keys[0]: this is not a key: expected 32 bytes in base64 or hexadecimal
        f.json:2: host.cluster.keys[1]: this is not a key: expected 32 bytes in base64 or hexadecimal
        f.json:2: host.cluster.keys[3]: this key is given twice
        f.json:2: host.cluster.peers[0]: "a" is not an address with a port
        f.json:2: host.cluster.peers[1]: "dns:a:1" is not an address with a port
        f.json:2: host.cluster.peers[2]: "a:0" is not an address with a port
        f.json:2: host.cluster.listen: this is where clients connect (host.listen)
        f.json:3: host.cluster.address: "here" is not an address with a port
        f.json:3: host.cluster.namespace: "a b" is not a namespace
        f.json:3: host.cluster.beat: unknown key
        f.json:3: host.cluster.store: unknown key
        "#);
        insta::assert_snapshot!(wrong(&format!(r#"{{ "keys": ["{KEY}"], "peers": "a:1", "listen": "127.0.0.1:1" }}"#)), @r#"f.json:2: host.cluster.peers: "a:1" does not say where the peers are"#);
    }
}
