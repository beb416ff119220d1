//! The settings of the host itself, which come from three sources: the key `host` in config files, `MCP_HOST_*`
//! environment variables, and command-line flags.

mod access;
mod approval;
mod audit;
mod cache;
mod catalog;
mod cluster;
mod code;
mod console;
mod join;
mod layers;
mod limits;
mod merge;
mod metrics;
mod oauth;
mod otel;
mod policy;
mod registry;
mod results;
mod secrets;
mod threads;
mod views;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub use self::access::{BearerClient, HostAuth, HostTls};
pub use self::approval::Approval;
pub use self::audit::Audit;
pub use self::cache::AnswerCache;
pub use self::catalog::{CatalogMode, CatalogSettings, Compact};
pub use self::cluster::{Cluster, PeerSource};
pub use self::code::{Code, ScriptTools};
pub use self::console::Console;
pub use self::join::Join;
use self::layers::Layers;
pub use self::limits::Limits;
pub use self::merge::Merge;
pub use self::metrics::Metrics;
pub use self::oauth::HostOAuth;
pub use self::otel::{Otel, Sample};
#[cfg(feature = "server")]
pub(crate) use self::policy::ClaimsRead;
pub use self::policy::{Action, Decision, Matcher, Policy, PolicyMode, Proof, Rule};
pub use self::registry::Registry;
pub(crate) use self::results::ResultLimits;
pub use self::results::Results;
pub use self::secrets::{SecretKey, Secrets, StoreKind};
pub(crate) use self::views::ALL as ALL_VIEW;
pub use self::views::{Audience, ReadOnly, View};
use super::fields::{Field, Fields};
use super::inherit;
use super::rate::{self, Rates};
use super::report::Report;
use super::sandbox::{self, Sandbox};
use super::secret::Secret;
use super::syntax::Node;
use super::validate::Validate;
use super::vars::Vars;
use crate::exposed::{Naming, UriMode};

/// The keys under `host`.
const KEYS: [&str; 38] = [
    "allowedHosts",
    "allowedOrigins",
    "approval",
    "approvalStrict",
    "audit",
    "auth",
    "cache",
    "catalog",
    "cluster",
    "console",
    "heartbeat",
    "idleExit",
    "inheritEnv",
    "insecureHttp",
    "join",
    "limits",
    "listen",
    "lock",
    "merge",
    "metrics",
    "naming",
    "otel",
    "paramHeaders",
    "policy",
    "rates",
    "registry",
    "results",
    "sandbox",
    "secrets",
    "sessionLife",
    "sse",
    "startupWait",
    "tasks",
    "threads",
    "tls",
    "validate",
    "view",
    "views",
];

/// The settings of the host.
///
/// ```
/// use mcp_host::config::{Config, HostSettings};
///
/// let host = HostSettings::default().without_tasks().inherit_env(["HTTPS_PROXY"]);
/// let config = Config::default().host(host);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostSettings {
    /// The address on which the endpoint listens. An address other than loopback requires `auth`, and `tls` or
    /// `insecure_http`.
    pub listen: SocketAddr,
    /// How long a client's first list request waits for servers that are still starting.
    pub startup_wait: Duration,
    /// How long a call may be silent before the client gets progress of the host itself, if it wants progress. 0 means
    /// never.
    pub heartbeat: Duration,
    /// How clients of the endpoint authenticate.
    pub auth: HostAuth,
    /// The files for TLS at the endpoint; `None` means plain HTTP.
    pub tls: Option<HostTls>,
    /// Whether other machines may reach the endpoint without TLS.
    pub insecure_http: bool,
    /// Values of the header `Host` that are accepted in addition to our own loopback addresses.
    pub allowed_hosts: Vec<String>,
    /// Values of the header `Origin` that are accepted in addition to our own on loopback.
    pub allowed_origins: Vec<String>,
    /// Whether to serve the older HTTP+SSE transport in addition to Streamable HTTP.
    pub sse: bool,
    /// How long after it began a session over HTTP can be taken up again by its id, after a restart or when the host let it
    /// go while it was idle. 0 means never: it ends with the process.
    pub session_life: Duration,
    /// The other hosts that serve as one with this one; `None` if it serves alone.
    pub cluster: Option<Cluster>,
    /// How the names that clients see are formed.
    pub naming: Naming,
    /// Whether clients see which tool arguments servers want as HTTP headers too. If so, clients without a session must
    /// send these headers. For a server with `prefix: never`, both are always the case.
    pub param_headers: bool,
    /// Whether clients may run tools as tasks.
    pub tasks: bool,
    /// Variables that the programs of all servers inherit from our environment if they are set: names and globs.
    pub inherit_env: Vec<String>,
    /// What the processes of servers may do whose entries do not say it; `None` means that only those of a project's
    /// config are confined, as far as this machine can.
    pub sandbox: Option<Sandbox>,
    /// What happens when a server lists a definition that the user has not approved.
    pub approval: Approval,
    /// Whether definitions that are nearly certainly an attack or a mistake are withheld until a person approves them,
    /// unless `approval` is `off`.
    pub approval_strict: bool,
    /// The file that says what a team has approved; `None` means `mcp-host.lock` beside the config, if there is one.
    pub lock: Option<PathBuf>,
    /// Where to log each call; `None` means nowhere.
    pub audit: Option<Audit>,
    /// What is served at `/metrics`.
    pub metrics: Metrics,
    /// Where traces and metrics are sent to; `None` if nothing is sent.
    pub otel: Option<Otel>,
    /// To whom the page at `/` is served.
    pub console: Console,
    /// Whether other processes of this user use a running daemon with the same config; `None` means the default,
    /// `auto`.
    pub join: Option<Join>,
    /// How long a daemon that was started by `join` stays after its last client has left.
    pub idle_exit: Duration,
    /// How many threads serve connections of clients, from 1 to 32; `None` means the default: one on one or two cores,
    /// else one for each core, and 8 at most.
    pub threads: Option<usize>,
    /// Where to store the OAuth tokens for servers.
    pub secrets: Secrets,
    /// What is checked against the schemas of tools.
    pub validate: Validate,
    /// Where servers are looked up to be installed.
    pub registry: Registry,
    /// How often tools may be called.
    pub rates: Rates,
    /// How much is kept of the answers that calls may be given again.
    pub cache: AnswerCache,
    /// How much of a tool's result a client gets at once.
    pub results: Results,
    /// How the tools are listed that clients may see.
    pub catalog: CatalogSettings,
    /// Groups of servers whose equal tools are listed once, by name.
    pub merge: BTreeMap<String, Merge>,
    /// The views, by name. The view `all` exists even if it is not among them.
    pub views: BTreeMap<String, View>,
    /// The view of clients that choose none.
    pub default_view: String,
    /// What is allowed, asked about, and denied.
    pub policy: Policy,
    /// Limits on sizes, counts and times.
    pub limits: Limits,
    /// Values of variables that views set arguments to. They must not be shown.
    pub(crate) hidden: Vec<Secret>,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8808)),
            startup_wait: Duration::from_secs(3),
            heartbeat: Duration::from_secs(15),
            auth: HostAuth::None,
            tls: None,
            insecure_http: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            sse: true,
            session_life: Duration::from_secs(24 * 60 * 60),
            cluster: None,
            naming: Naming::default(),
            param_headers: false,
            tasks: true,
            inherit_env: Vec::new(),
            sandbox: None,
            approval: Approval::default(),
            approval_strict: false,
            lock: None,
            audit: None,
            metrics: Metrics::default(),
            otel: None,
            console: Console::default(),
            join: None,
            idle_exit: Duration::from_secs(600),
            threads: None,
            secrets: Secrets::default(),
            validate: Validate::default(),
            registry: Registry::default(),
            rates: Rates::default(),
            cache: AnswerCache::default(),
            results: Results::default(),
            catalog: CatalogSettings::default(),
            merge: BTreeMap::new(),
            views: BTreeMap::new(),
            default_view: ALL_VIEW.to_owned(),
            policy: Policy::default(),
            limits: Limits::default(),
            hidden: Vec::new(),
        }
    }
}

impl HostSettings {
    /// Returns the new settings as a running host can apply them: settings that only apply at startup keep their old
    /// value. Also returns the config keys of the settings that would have changed but need a restart.
    pub(crate) fn with(&self, new: Self) -> (Self, Vec<&'static str>) {
        let mut pending = Vec::new();
        let mut new = new;
        macro_rules! keep {
            ($($key:literal: $($field:ident).+,)+) => {
                $(if new.$($field).+ != self.$($field).+ {
                    pending.push($key);
                    new.$($field).+ = self.$($field).+.clone();
                })+
            };
        }
        keep! {
            "host.listen": listen,
            "host.sse": sse,
            "host.cluster": cluster,
            "host.naming": naming,
            "host.secrets": secrets,
            "host.threads": threads,
            "host.limits.sessions": limits.sessions,
            "host.limits.sessionIdle": limits.session_idle,
            "host.limits.clientQueues": limits.client_queues,
            "host.limits.connections": limits.connections,
            "host.limits.oauthDocument": limits.oauth_document,
            "host.limits.oauthToken": limits.oauth_token,
            "host.limits.oauthChallenge": limits.oauth_challenge,
            "host.limits.oauthRequest": limits.oauth_request,
            "host.limits.login": limits.login,
        }
        // Other certificate files are used at once. But clients use another address if there is TLS than if there is
        // none.
        if new.tls.is_some() != self.tls.is_some() {
            pending.push("host.tls");
            new.tls.clone_from(&self.tls);
        }
        (new, pending)
    }
}

/// Reads the host settings. A later file wins over an earlier one, a variable over any file, and a flag over both.
pub(super) fn read(files: Vec<Node>, vars: &Vars, flags: &[(String, String)], report: &mut Report) -> HostSettings {
    let mut layers = Layers::default();
    for file in files {
        layers.add_file(file);
    }
    layers.add_environment(vars, report);
    layers.add_flags(flags, report);
    let mut settings = HostSettings::default();
    match layers.merge(report) {
        Some(node) => fill(&mut settings, &node, vars, report),
        None => settings.secrets = secrets::read(None, vars, report),
    }
    settings
}

fn fill(settings: &mut HostSettings, node: &Node, vars: &Vars, report: &mut Report) {
    let Some(mut fields) = Fields::open(node, "host", report) else { return };
    if let Some(wait) = fields.take(&["startupWait"], report).and_then(|field| field.time(report)) {
        settings.startup_wait = wait;
    }
    if let Some(heartbeat) = fields.take(&["heartbeat"], report).and_then(|field| heartbeat(&field, report)) {
        settings.heartbeat = heartbeat;
    }
    reach(settings, &mut fields, report);
    cluster::fill(settings, &mut fields, report);
    if let Some(field) = fields.take(&["allowedOrigins"], report) {
        settings.allowed_origins = origins(&field, report);
    }
    if let Some(sse) = fields.take(&["sse"], report).and_then(|field| field.flag(report)) {
        settings.sse = sse;
    }
    if let Some(life) = fields.take(&["sessionLife"], report).and_then(|field| field.time(report)) {
        settings.session_life = life;
    }
    if let Some(fields) = fields.take(&["naming"], report).and_then(|field| field.fields(report)) {
        naming(&mut settings.naming, fields, report);
    }
    if let Some(shown) = fields.take(&["paramHeaders"], report).and_then(|field| field.flag(report)) {
        settings.param_headers = shown;
    }
    if let Some(tasks) = fields.take(&["tasks"], report).and_then(|field| field.flag(report)) {
        settings.tasks = tasks;
    }
    if let Some(field) = fields.take(&[inherit::KEY], report) {
        settings.inherit_env = inherit::read(&field, report);
    }
    if let Some(field) = fields.take(&[sandbox::KEY], report) {
        settings.sandbox = sandbox::read(&field, report);
    }
    if let Some(approval) = fields.take(&["approval"], report).and_then(|field| field.word(report)) {
        settings.approval = approval;
    }
    if let Some(strict) = fields.take(&["approvalStrict"], report).and_then(|field| field.flag(report)) {
        settings.approval_strict = strict;
    }
    if let Some(field) = fields.take(&["lock"], report) {
        settings.lock = approval::lock(&field, report);
    }
    if let Some(field) = fields.take(&["audit"], report) {
        settings.audit = audit::read(&field, report);
    }
    if let Some(field) = fields.take(&["metrics"], report) {
        settings.metrics = metrics::read(&field, &settings.auth, report).unwrap_or_default();
    }
    if let Some(field) = fields.take(&["otel"], report) {
        settings.otel = otel::read(&field, report);
    }
    console::fill(settings, &mut fields, report);
    join::fill(settings, &mut fields, report);
    threads::fill(settings, &mut fields, report);
    settings.secrets = secrets::read(fields.take(&["secrets"], report).as_ref(), vars, report);
    if let Some(validate) = fields.take(&["validate"], report).and_then(|field| field.validation(report)) {
        settings.validate = validate;
    }
    if let Some(field) = fields.take(&["rates"], report) {
        settings.rates = rate::rates(&field, report);
    }
    if let Some(field) = fields.take(&["registry"], report) {
        settings.registry = registry::read(&field, report).unwrap_or_default();
    }
    if let Some(field) = fields.take(&["cache"], report) {
        settings.cache.read(&field, report);
    }
    if let Some(field) = fields.take(&["results"], report) {
        settings.results.read(&field, report);
    }
    if let Some(field) = fields.take(&["limits"], report) {
        settings.limits.read(&field, report);
    }
    catalog::fill(settings, &mut fields, report);
    merge::fill(settings, &mut fields, report);
    views::fill(settings, &mut fields, report);
    views::check_clients(settings, node, report);
    policy::fill(settings, &mut fields, report);
    lacking(&mut fields, report);
    fields.finish(&KEYS, report);
}

/// Reads `heartbeat`. One that is shorter than a second would only be noise.
fn heartbeat(field: &Field<'_>, report: &mut Report) -> Option<Duration> {
    let time = field.time(report)?;
    if !time.is_zero() && time < Duration::from_secs(1) {
        report.problem(field.at, &field.path, "shorter than 1 s").help("write \"15s\", or \"0s\" for no heartbeats");
        return None;
    }
    Some(time)
}

/// Reads where the endpoint listens, who may call it, and by which host names.
fn reach(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    let listen = fields.take(&["listen"], report).and_then(|field| Some((listen(&field, report)?, field)));
    if let Some((listen, _)) = &listen {
        settings.listen = *listen;
    }
    let before = report.problems();
    if let Some(auth) = fields.take(&["auth"], report).and_then(|field| access::auth(&field, report)) {
        settings.auth = auth;
    }
    settings.tls = fields.take(&["tls"], report).and_then(|field| access::tls(&field, report));
    if let Some(insecure) = fields.take(&["insecureHttp"], report).and_then(|field| field.flag(report)) {
        settings.insecure_http = insecure;
    }
    if let Some(field) = fields.take(&["allowedHosts"], report) {
        settings.allowed_hosts = field.texts(report);
    }
    // If one of these settings is wrong, that is to be fixed first.
    if let Some((listen, field)) = &listen
        && report.problems() == before
    {
        if let Some((message, help)) = settings.lacks_for(*listen) {
            report.problem(field.at, &field.path, message).help(help);
        } else if !listen.ip().is_loopback() && settings.allowed_hosts.is_empty() {
            let note =
                report.note(field.at, &field.path, "clients on other machines are refused: no host name is allowed");
            note.help("add the names by which they reach this host to `host.allowedHosts`");
        }
    }
}

fn listen(field: &Field<'_>, report: &mut Report) -> Option<SocketAddr> {
    let text = field.text(report)?;
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let Ok(address) = numeric.as_deref().unwrap_or(text).parse::<SocketAddr>() else {
        let problem =
            report.problem(field.at, &field.path, format!("{} is not an address with a port", field.quote(text)));
        problem.help("write it like \"127.0.0.1:8808\"");
        return None;
    };
    Some(address)
}

/// Reads origins. They are compared as text, so an origin with a path would never match.
fn origins(field: &Field<'_>, report: &mut Report) -> Vec<String> {
    for item in field.items(report) {
        let Some(text) = item.node.text() else { continue };
        if !Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text) {
            let problem = report.problem(item.at, &item.path, format!("{} is not an origin", item.quote(text)));
            problem.help("write scheme, host and port alone: \"https://app.example.com\"");
        }
    }
    field.texts(report)
}

fn naming(naming: &mut Naming, mut fields: Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take(&["separator"], report)
        && let Some(text) = field.text(report)
    {
        if (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            naming.separator = text.to_owned();
        } else {
            report.problem(field.at, &field.path, "expected 1 to 4 characters, each a letter, a digit, _ or -");
        }
    }
    if let Some(field) = fields.take(&["maxLength"], report) {
        match field.count(report) {
            Some(length @ 40..=128) => naming.max_length = length,
            Some(length) => {
                report.problem(field.at, &field.path, format!("{length} is not between 40 and 128"));
            }
            None => {}
        }
    }
    if let Some(field) = fields.take(&["resources"], report) {
        let choices = [("prefix", UriMode::Prefix), ("passthrough", UriMode::Passthrough)];
        naming.resources = field.choice(&choices, report).unwrap_or_default();
    }
    fields.finish(&["separator", "maxLength", "resources"], report);
}

/// Refuses settings that this build does not support. If they were ignored, something would stay open that the user
/// believes closed.
fn lacking(fields: &mut Fields<'_>, report: &mut Report) {
    fields.refuse(&["sanitizeResults"], report);
}
