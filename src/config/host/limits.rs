//! `host.limits`: limits on sizes, counts and times.

use std::time::Duration;

use super::super::keys::keys;

const MIB: usize = 1 << 20;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

keys! {
    /// Limits for the whole host. Sizes are in bytes.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mcp_host::config::{HostSettings, Limits};
    ///
    /// let mut limits = Limits::default();
    /// limits.answer = Duration::from_secs(600);
    /// let settings = HostSettings::default().limits(limits);
    /// ```
    #[non_exhaustive]
    pub struct Limits {
        /// The size of one message: a line over stdio, an SSE event, or a JSON body.
        message: positive_size -> usize = 16 * MIB,
        /// The size of the body of one request to our endpoint.
        body: positive_size -> usize = 4 * MIB,
        /// The total size of all request bodies that are being received.
        bodies: positive_size -> usize = 64 * MIB,
        /// How deep the JSON of a message may be nested.
        depth: nesting -> usize = 128,
        /// The number of tools of one server.
        tools: positive_count -> usize = 1000,
        /// The total size of all definitions (tools, prompts, resources) of one server.
        definitions: positive_size -> usize = 8 * MIB,
        /// Pending requests to one server.
        pending_per_server: positive_count -> usize = 1024,
        /// Pending requests of one client.
        pending_per_client: positive_count -> usize = 1024,
        /// Pending requests of all clients.
        pending: positive_count -> usize = 16384,
        /// Bytes queued for one server.
        server_queue: positive_size -> usize = 4 * MIB,
        /// Bytes queued for one client.
        client_queue: positive_size -> usize = 4 * MIB,
        /// Bytes queued for all clients.
        client_queues: positive_size -> usize = 32 * MIB,
        /// Sessions of one authenticated client.
        sessions_per_principal: positive_count -> usize = 64,
        /// Sessions of all clients.
        sessions: positive_count -> usize = 1024,
        /// How long a client's session may be idle before it leaves memory. The client can resume it
        /// (`host.sessionLife`).
        session_idle: positive_time -> Duration = seconds(15 * 60),
        /// How long it may take to fetch all pages of one server's tool list and its other lists.
        list_time: positive_time -> Duration = seconds(30),
        /// The number of pages of one list that are fetched from a server.
        list_pages: positive_count -> usize = 100,
        /// How long clients may cache the tool list and other lists of a server that announces changes to them.
        legacy_list_ttl: time -> Duration = seconds(30),
        /// How long clients are still shown the last tool list and other lists of a server whose connection is lost.
        stale_max: positive_time -> Duration = seconds(10 * 60),
        /// How long a process may take to exit after its stdin is closed.
        stop_close: time -> Duration = seconds(2),
        /// How long a process may take to exit after it is told to terminate.
        stop_term: time -> Duration = seconds(3),
        /// How long the shutdown waits for calls to finish.
        drain: time -> Duration = seconds(10),
        /// Connections to one server.
        leases_per_server: positive_count -> usize = 64,
        /// Connections to all servers.
        leases: positive_count -> usize = 512,
        /// Calls of one principal that wait until a client without a session answers a question of the server.
        parked_per_principal: positive_count -> usize = 64,
        /// All calls that are held for clients without a session, whether they wait for the client or run.
        parked: positive_count -> usize = 1024,
        /// The number of clients, servers, and tools whose calls are counted for a rate.
        rate_keys: positive_count -> usize = 16384,
        /// The number of resources that one client may watch.
        subscriptions: positive_count -> usize = 1000,
        /// The length in bytes of a URI, of a cursor, and of the name in a completion request of a client.
        uri: positive_size -> usize = 8 * 1024,
        /// The number of headers of one request to our endpoint.
        headers: header_count -> usize = 100,
        /// The size of the request line and all headers of one request to our endpoint.
        header_bytes: positive_size -> usize = 64 * 1024,
        /// Connections from clients to our endpoint.
        connections: positive_count -> usize = 2048,
        /// How long a person may take to answer what a server asks through a client.
        answer: positive_time -> Duration = seconds(10 * 60),
        /// How long a server that answers must stay connected before its count of retries is reset.
        healthy: positive_time -> Duration = seconds(60),
        /// The size of the metadata document of an authorization server or of a protected resource.
        oauth_document: positive_size -> usize = 256 * 1024,
        /// The size of a response from a token endpoint.
        oauth_token: positive_size -> usize = 64 * 1024,
        /// The total size of all `WWW-Authenticate` headers of one response.
        oauth_challenge: positive_size -> usize = 8 * 1024,
        /// How long an authorization server may take to answer.
        oauth_request: positive_time -> Duration = seconds(10),
        /// How long a person may take to sign in.
        login: positive_time -> Duration = seconds(10 * 60),
        /// The number of merged catalogs that are kept for clients that come back. There is one for each view, and one for
        /// each client to which a server lists something of its own.
        catalogs: positive_count -> usize = 64,
        /// The number of views (`host.views`).
        views: positive_count -> usize = 64,
        /// The number of rules (`host.policy.rules`).
        rules: positive_count -> usize = 1000,
        /// The total size of the stored rests of shortened results, of all principals (`host.results`).
        results: positive_size -> usize = 256 * MIB,
        /// The total size of the lists that are saved for the next start (`STATE/offers`).
        offers: positive_size -> usize = 32 * MIB,
        /// The number of calls that are kept for `mcp-host calls`; their arguments never are.
        calls: positive_count -> usize = 1000,
        /// The size of the lines of one server that are remembered for `mcp-host logs`.
        lines: positive_size -> usize = 256 * 1024,
        /// The number of HTTP redirects that one request to a server follows; all must stay within the server's origin.
        redirects: count -> usize = 3,
    }
}
