//! Configs that a program builds in code: servers and host settings, one setting at a time.
//!
//! **Invariant:** a config built here equals the one read from a file with the same settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{
    AnswerCache, Approval, Audit, Auth, Config, Console, Era, Helper, HostAuth, HostSettings, HostTls, Join, Limits,
    Manifest, Metrics, Prefix, Rates, Registry, Remote, Restart, Roots, Sandbox, Secret, Secrets, Server, Sharing,
    Start, Stdio, Tls, ToolSettings, Transport, Validate,
};
use crate::exposed::Naming;

impl Config {
    /// Adds a server.
    ///
    /// ```
    /// use mcp_host::config::{Config, HostSettings, Server, Stdio};
    ///
    /// let clock = Server::new("clock", Stdio::new("mcp-clock"))?;
    /// let config = Config::default().server(clock).host(HostSettings::default().without_tasks());
    /// assert_eq!(config.servers[0].name, "clock");
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    #[must_use]
    pub fn server(mut self, server: Server) -> Self {
        self.servers.push(server);
        self
    }

    /// Sets the host settings.
    #[must_use]
    pub fn host(self, host: HostSettings) -> Self {
        Self { host, ..self }
    }
}

/// Each method sets one setting, like the key of the same name in a config file.
impl Server {
    /// Sets whether clients share a connection to the server.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// Starts the server when it is first needed, not when the host starts.
    #[must_use]
    pub fn lazy(self) -> Self {
        Self { start: Start::Lazy, ..self }
    }

    /// Closes each connection that has been idle for this long; the next call opens another.
    #[must_use]
    pub fn idle_stop(self, idle_stop: Duration) -> Self {
        Self { idle_stop, ..self }
    }

    /// Does not save the server's tool list and its other lists for the next start of the host.
    #[must_use]
    pub fn without_manifest(self) -> Self {
        Self { manifest: Manifest::Off, ..self }
    }

    /// Makes the host count as not ready without this server.
    #[must_use]
    pub fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// Speaks this era of the protocol with the server.
    #[must_use]
    pub fn era(self, era: Era) -> Self {
        Self { era, ..self }
    }

    /// Limits how long a start may take, including the handshake.
    #[must_use]
    pub fn start_timeout(self, start_timeout: Duration) -> Self {
        Self { start_timeout, ..self }
    }

    /// Limits how long a call may go without progress; each progress notification restarts the timeout. Raises the
    /// limit for a whole call (`max_call_time`) to at least this.
    #[must_use]
    pub fn call_timeout(self, call_timeout: Duration) -> Self {
        Self { call_timeout, max_call_time: self.max_call_time.max(call_timeout), ..self }
    }

    /// Limits how long a call may take overall.
    #[must_use]
    pub fn max_call_time(self, max_call_time: Duration) -> Self {
        Self { max_call_time, ..self }
    }

    /// Limits how many calls run at once, and how long further calls wait for their turn.
    #[must_use]
    pub fn max_concurrent(self, max_concurrent: usize, queue_timeout: Duration) -> Self {
        Self { max_concurrent, queue_timeout, ..self }
    }

    /// Lets clients that share a connection have up to this many, 1 to 16, while all of them are busy. This has no effect
    /// with [`Sharing::Session`], nor once the server asks its clients something.
    ///
    /// ```
    /// use mcp_host::config::{Server, Stdio};
    ///
    /// let server = Server::new("pdf", Stdio::new("pdf-server"))?.pool(4);
    /// assert_eq!(server.pool, 4);
    /// # Ok::<_, mcp_host::name::Error>(())
    /// ```
    #[must_use]
    pub fn pool(self, pool: usize) -> Self {
        Self { pool: pool.clamp(1, 16), ..self }
    }

    /// Lets calls of these tools (by the server's own names) be repeated after a lost connection.
    #[must_use]
    pub fn repeatable(self, tools: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { repeatable: texts(tools), ..self }
    }

    /// Leaves parts of its definitions that change all the time out of their pins: JSON pointers such as
    /// `/_meta/updatedAt`. A pointer to the name or the input schema has no effect.
    #[must_use]
    pub fn pin_ignore(self, pointers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { pin_ignore: texts(pointers), ..self }
    }

    /// Trusts the server's own annotations about which of its tools may be retried.
    #[must_use]
    pub fn trust_annotations(self) -> Self {
        Self { trust_annotations: true, ..self }
    }

    /// Sets what happens when the connection is lost.
    #[must_use]
    pub fn restart(self, restart: Restart) -> Self {
        Self { restart, ..self }
    }

    /// Withholds tools that match none of these globs.
    #[must_use]
    pub fn include_tools(self, globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { include_tools: texts(globs), ..self }
    }

    /// Withholds tools that match one of these globs.
    #[must_use]
    pub fn exclude_tools(self, globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { exclude_tools: texts(globs), ..self }
    }

    /// Exposes the tool that the server calls `theirs` under the name `ours`.
    #[must_use]
    pub fn rename(mut self, theirs: &str, ours: &str) -> Self {
        self.rename.insert(theirs.to_owned(), ours.to_owned());
        self
    }

    /// Sets what is checked against the schemas of its tools, in place of what the host checks.
    #[must_use]
    pub fn validate(self, validate: Validate) -> Self {
        Self { validate: Some(validate), ..self }
    }

    /// Gives all its tools these tags, with which selectors of views name them. They are never sent to clients.
    #[must_use]
    pub fn tags(self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { tags: texts(tags), ..self }
    }

    /// Sets the settings of the tools whose names, as the server has them, match a glob.
    #[must_use]
    pub fn tool(self, glob: &str, settings: ToolSettings) -> Self {
        Self { tools: self.tools.with(glob, settings), ..self }
    }

    /// Sets the roots that the server gets when it asks for them.
    #[must_use]
    pub fn roots(self, roots: Roots) -> Self {
        Self { roots, ..self }
    }

    /// Sets whether the names of its tools, prompts and resources are prefixed with its alias.
    #[must_use]
    pub fn prefix(self, prefix: Prefix) -> Self {
        Self { prefix, ..self }
    }

    /// Describes what the server is for.
    #[must_use]
    pub fn description(self, description: &str) -> Self {
        Self { description: Some(description.to_owned()), ..self }
    }
}

/// A process to start, one setting at a time.
///
/// ```
/// use mcp_host::config::{Server, Sharing, Stdio};
///
/// let program = Stdio::new("npx").args(["-y", "some-mcp-server"]).env("API_KEY", "s3cret");
/// let server = Server::new("notes", program)?.sharing(Sharing::Session).lazy();
/// # Ok::<_, mcp_host::name::Error>(())
/// ```
impl Stdio {
    /// Returns a process that runs this program without arguments.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), ..Self::default() }
    }

    /// Adds arguments; no shell reads them.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), Secret::new(value)));
        self
    }

    /// Passes variables on from this program's environment: names and globs.
    #[must_use]
    pub fn forward_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.forward_env.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs the program in this folder.
    #[must_use]
    pub fn cwd(self, folder: impl Into<PathBuf>) -> Self {
        Self { cwd: Some(folder.into()), ..self }
    }

    /// Sets what the program may read, write, and connect to.
    #[must_use]
    pub fn sandbox(self, sandbox: Sandbox) -> Self {
        Self { sandbox: Some(sandbox), ..self }
    }
}

/// A server behind a URL, one setting at a time.
///
/// ```
/// use mcp_host::config::{Remote, Server, Transport};
///
/// let remote = Remote::new("https://example.com/mcp".parse()?).header("X-Team", "blue");
/// let server = Server::new("example", Transport::Http(remote))?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
impl Remote {
    /// Adds a header to every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), Secret::new(value)));
        self
    }

    /// Runs, for each connection, a program that prints headers.
    #[must_use]
    pub fn headers_helper(self, helper: Helper) -> Self {
        Self { headers_helper: Some(helper), ..self }
    }

    /// Allows plain HTTP to another machine.
    #[must_use]
    pub fn insecure_http(self) -> Self {
        Self { insecure_http: true, ..self }
    }

    /// Sets which certificates to accept from the server, and which to present.
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// Sets how requests authenticate, besides the headers.
    #[must_use]
    pub fn auth(self, auth: Auth) -> Self {
        Self { auth, ..self }
    }
}

impl From<Stdio> for Transport {
    fn from(stdio: Stdio) -> Self {
        Self::Stdio(stdio)
    }
}

/// Streamable HTTP, or HTTP with SSE if the server does not support it.
impl From<Remote> for Transport {
    fn from(remote: Remote) -> Self {
        Self::Auto(remote)
    }
}

/// Each method sets one setting, like the key of the same name in a config file.
///
/// ```
/// use std::time::Duration;
///
/// use mcp_host::config::HostSettings;
///
/// let settings = HostSettings::default().listen(([127, 0, 0, 1], 9000).into()).startup_wait(Duration::from_secs(10));
/// assert_eq!(settings.listen.port(), 9000);
/// ```
impl HostSettings {
    /// Listens on this address. An address other than loopback requires `auth`, and `tls` or `insecure_http`.
    #[must_use]
    pub fn listen(self, listen: SocketAddr) -> Self {
        Self { listen, ..self }
    }

    /// Sets how long a client's first list request waits for servers that are still starting.
    #[must_use]
    pub fn startup_wait(self, startup_wait: Duration) -> Self {
        Self { startup_wait, ..self }
    }

    /// Sets how long a call may be silent before the host itself sends progress to a client that wants progress; 0
    /// means never.
    #[must_use]
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        Self { heartbeat, ..self }
    }

    /// Sets for how long, after a session over HTTP began, a client can resume it by its id; 0 means never.
    #[must_use]
    pub fn session_life(self, session_life: Duration) -> Self {
        Self { session_life, ..self }
    }

    /// Sets what is checked against the schemas of tools. A build without the cargo feature `validate` checks no calls.
    #[must_use]
    pub fn validate(self, validate: Validate) -> Self {
        Self { validate, ..self }
    }

    /// Sets how often tools may be called.
    #[must_use]
    pub fn rates(self, rates: Rates) -> Self {
        Self { rates, ..self }
    }

    /// Sets how much of the answers to calls is cached.
    #[must_use]
    pub fn cache(self, cache: AnswerCache) -> Self {
        Self { cache, ..self }
    }

    /// Sets how clients of the endpoint authenticate.
    #[must_use]
    pub fn auth(self, auth: HostAuth) -> Self {
        Self { auth, ..self }
    }

    /// Serves the endpoint over TLS.
    #[must_use]
    pub fn tls(self, tls: HostTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Lets other machines reach the endpoint without TLS.
    #[must_use]
    pub fn insecure_http(self) -> Self {
        Self { insecure_http: true, ..self }
    }

    /// Also accepts this value of the header `Host`.
    #[must_use]
    pub fn allow_host(mut self, host: &str) -> Self {
        self.allowed_hosts.push(host.to_owned());
        self
    }

    /// Also accepts this value of the header `Origin`.
    #[must_use]
    pub fn allow_origin(mut self, origin: &str) -> Self {
        self.allowed_origins.push(origin.to_owned());
        self
    }

    /// Does not serve the older HTTP+SSE transport.
    #[must_use]
    pub fn without_sse(self) -> Self {
        Self { sse: false, ..self }
    }

    /// Sets how the names that clients see are formed.
    #[must_use]
    pub fn naming(self, naming: Naming) -> Self {
        Self { naming, ..self }
    }

    /// Shows clients which tool arguments servers want as HTTP headers too.
    #[must_use]
    pub fn param_headers(self) -> Self {
        Self { param_headers: true, ..self }
    }

    /// Does not let clients run tools as tasks.
    #[must_use]
    pub fn without_tasks(self) -> Self {
        Self { tasks: false, ..self }
    }

    /// Passes environment variables on to the programs of all servers: names and globs.
    #[must_use]
    pub fn inherit_env(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.inherit_env.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the sandbox of servers whose entries do not have one.
    #[must_use]
    pub fn sandbox(self, sandbox: Sandbox) -> Self {
        Self { sandbox: Some(sandbox), ..self }
    }

    /// Sets what happens when a server lists a definition that was not approved.
    #[must_use]
    pub fn approval(self, approval: Approval) -> Self {
        Self { approval, ..self }
    }

    /// Withholds definitions with hard findings until a person has approved them.
    #[must_use]
    pub fn approval_strict(self) -> Self {
        Self { approval_strict: true, ..self }
    }

    /// Logs each call to a file.
    #[must_use]
    pub fn audit(self, audit: Audit) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// Sets what is served at `/metrics`.
    #[must_use]
    pub fn metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Sets the registry in which servers are looked up.
    #[must_use]
    pub fn registry(self, registry: Registry) -> Self {
        Self { registry, ..self }
    }

    /// Sets who may open the page at `/`.
    #[must_use]
    pub fn console(self, console: Console) -> Self {
        Self { console, ..self }
    }

    /// Sets whether other processes of this user use a running daemon with the same config.
    #[must_use]
    pub fn join(self, join: Join) -> Self {
        Self { join: Some(join), ..self }
    }

    /// Sets how long a daemon that `join` started keeps running after its last client has left.
    #[must_use]
    pub fn idle_exit(self, idle_exit: Duration) -> Self {
        Self { idle_exit, ..self }
    }

    /// Sets how many threads serve connections of clients, from 1 to 32.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: Some(threads.clamp(1, crate::threads::MOST)), ..self }
    }

    /// Sets where to store the OAuth tokens for servers.
    #[must_use]
    pub fn secrets(self, secrets: Secrets) -> Self {
        Self { secrets, ..self }
    }

    /// Sets the limits on sizes, counts and times.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}

fn texts(texts: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    texts.into_iter().map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Syntax, Vars, parse_str};

    fn parsed(config: &Value) -> Config {
        parse_str(&config.to_string(), Syntax::Json, "mcp.json", &Vars::default()).expect("a good config")
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_server_that_is_made_is_the_one_that_a_file_says() {
        let entry = json!({
            "command": "npx", "args": ["-y", "notes"], "env": { "MODE": "x" }, "cwd": "/srv", "inheritEnv": ["LANG"],
            "sandbox": { "read": ["/a"], "network": "none" },
            "sharing": "profile", "pool": 3, "start": "lazy", "idleStop": "5s", "manifest": "off", "required": true,
            "era": "modern", "startTimeout": "7s", "callTimeout": "2h", "maxConcurrent": 3, "queueTimeout": "9s",
            "repeatable": ["read"], "trustAnnotations": true,
            "restart": { "maxRetries": 1, "minDelay": "1s", "maxDelay": "2s" },
            "includeTools": ["a*"], "excludeTools": ["ab"], "rename": { "ac": "c" }, "roots": "none", "prefix": "auto",
            "description": "notes", "pinIgnore": ["/_meta/at"], "tags": ["code"], "tools": { "a*": { "title": "A" } },
        });
        let program = Stdio::new("npx").args(["-y", "notes"]).env("MODE", "x").cwd("/srv").forward_env(["LANG"]);
        let program = program.sandbox(Sandbox::on().read("/a").without_network());
        let restart = Restart { max_retries: 1, min_delay: seconds(1), max_delay: seconds(2) };
        let made = Server::new("notes", program).expect("a name");
        let made = made.sharing(Sharing::Profile).pool(3).lazy().idle_stop(seconds(5)).without_manifest().required();
        let made = made.era(Era::Modern).start_timeout(seconds(7)).call_timeout(seconds(7200));
        let made = made.max_concurrent(3, seconds(9)).repeatable(["read"]).trust_annotations().restart(restart);
        let made = made.include_tools(["a*"]).exclude_tools(["ab"]).rename("ac", "c").roots(Roots::None);
        let settings = ToolSettings { title: Some("A".to_owned()), ..ToolSettings::default() };
        let made = made
            .prefix(Prefix::Auto)
            .description("notes")
            .pin_ignore(["/_meta/at"])
            .tags(["code"])
            .tool("a*", settings);
        let read = parsed(&json!({ "mcpServers": { "notes": entry } })).servers.remove(0);
        assert!(read.same_as(&made), "{read:#?}\n{made:#?}");
    }

    #[test]
    fn a_remote_server_that_is_made_is_the_one_that_a_file_says() {
        let remote = |url: &str| Remote::new(url.parse().expect("a URL")).header("X-Team", "blue");
        let tls = Tls { trust_on_first_use: true, ..Tls::default() };
        let (plain, trusted) = ("http://example.com/mcp", "https://example.com/mcp");
        for (more, made) in [
            (json!({ "url": plain, "insecureHttp": true }), remote(plain).insecure_http()),
            (json!({ "url": trusted, "tls": { "trustOnFirstUse": true } }), remote(trusted).tls(tls)),
        ] {
            let mut entry = json!({ "type": "http", "headers": { "X-Team": "blue" } });
            entry.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            let read = parsed(&json!({ "mcpServers": { "it": entry } })).servers.remove(0);
            let made = Server::new("it", Transport::Http(made)).expect("a name");
            assert!(read.same_as(&made), "{read:#?}\n{made:#?}");
        }
    }

    #[test]
    fn settings_that_are_made_are_those_that_a_file_says() {
        let host = json!({
            "listen": "127.0.0.1:9000", "startupWait": "1s", "heartbeat": "5s", "sessionLife": "6s", "insecureHttp": true,
            "allowedHosts": ["a"], "rates": { "principal": "3/minute", "view": "3/minute" }, "validate": "full",
            "allowedOrigins": ["https://b"], "sse": false, "paramHeaders": true, "tasks": false,
            "inheritEnv": ["LANG"], "sandbox": "default", "join": "never", "idleExit": "4s", "threads": 2, "naming": { "separator": "__", "maxLength": 64 },
            "limits": { "sessions": 3 },
        });
        let limits = Limits { sessions: 3, ..Limits::default() };
        let naming = Naming { max_length: 64, ..Naming::default() };
        let made = HostSettings::default().listen(([127, 0, 0, 1], 9000).into()).startup_wait(seconds(1));
        let made = made
            .heartbeat(seconds(5))
            .session_life(seconds(6))
            .insecure_http()
            .allow_host("a")
            .allow_origin("https://b")
            .without_sse()
            .param_headers();
        let made =
            made.without_tasks().inherit_env(["LANG"]).sandbox(Sandbox::on()).join(Join::Never).idle_exit(seconds(4));
        let rate = crate::config::Rate::new(3, crate::config::Per::Minute);
        let made =
            made.validate(Validate::Full).rates(Rates { principal: Some(rate), view: Some(rate), ..Rates::default() });
        let made = made.naming(naming).limits(limits).threads(2);
        assert_eq!(parsed(&json!({ "mcpServers": {}, "host": host })).host, made);
    }

    #[test]
    fn a_whole_call_lasts_at_least_as_long_as_its_silence() {
        let server = Server::new("a", Stdio::new("a")).expect("a name").call_timeout(seconds(9000));
        assert_eq!(server.max_call_time, seconds(9000));
    }
}
