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
        /// The size of one message: a line of stdio, an SSE event, a JSON body.
        message: positive_size -> usize = 16 * MIB,
        /// The body of one request to our endpoint.
        body: positive_size -> usize = 4 * MIB,
        /// All request bodies that are being received, together.
        bodies: positive_size -> usize = 64 * MIB,
        /// How deep a message may nest.
        depth: nesting -> usize = 128,
        /// Tools of one server.
        tools: positive_count -> usize = 1000,
        /// All definitions of one server together.
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
        /// How long a session may be idle.
        session_idle: positive_time -> Duration = seconds(15 * 60),
        /// How long it may take to fetch all pages of one server's lists.
        list_time: positive_time -> Duration = seconds(30),
        /// Pages of one list.
        list_pages: positive_count -> usize = 100,
        /// How long clients may cache lists of servers that announce changes.
        legacy_list_ttl: time -> Duration = seconds(30),
        /// How long the last lists of a lost server are shown.
        stale_max: positive_time -> Duration = seconds(10 * 60),
        /// How long a process may take to exit after its stdin is closed.
        stop_close: time -> Duration = seconds(2),
        /// How long a process may take to exit after it is told to.
        stop_term: time -> Duration = seconds(3),
        /// How long calls may take to finish at shutdown.
        drain: time -> Duration = seconds(10),
        /// Connections to one server.
        leases_per_server: positive_count -> usize = 64,
        /// Connections to all servers.
        leases: positive_count -> usize = 512,
        /// Calls of one principal that wait for answers of clients without a session.
        parked_per_principal: positive_count -> usize = 64,
        /// All calls that are held for clients without a session.
        parked: positive_count -> usize = 1024,
        /// Resources that one client watches.
        subscriptions: positive_count -> usize = 1000,
        /// The length of a URI in a client's request, and also of a cursor or of a name to complete for.
        uri: positive_size -> usize = 8 * 1024,
        /// Headers of one request to our endpoint.
        headers: header_count -> usize = 100,
        /// Bytes of the request line and all headers of one request.
        header_bytes: positive_size -> usize = 64 * 1024,
        /// Connections of clients.
        connections: positive_count -> usize = 2048,
        /// How long a person may take to answer.
        answer: positive_time -> Duration = seconds(10 * 60),
        /// How long a server must stay up before its count of retries is reset.
        healthy: positive_time -> Duration = seconds(60),
        /// The metadata of an authorization server or of a protected resource.
        oauth_document: positive_size -> usize = 256 * 1024,
        /// A response of a token endpoint.
        oauth_token: positive_size -> usize = 64 * 1024,
        /// All challenges of one response together.
        oauth_challenge: positive_size -> usize = 8 * 1024,
        /// How long an authorization server may take to answer.
        oauth_request: positive_time -> Duration = seconds(10),
        /// How long a person may take to sign in.
        login: positive_time -> Duration = seconds(10 * 60),
        /// Redirects that one request to a server may follow, all within its origin.
        redirects: count -> usize = 3,
    }
}
