//! How much, how many, how long at most: `host.limits`.

use std::time::Duration;

use super::super::keys::keys;

const MIB: usize = 1 << 20;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

keys! {
    /// Limits that hold for the whole host. Sizes are in bytes.
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
        /// One message: a line of stdio, an SSE event, a JSON body.
        message: positive_size -> usize = 16 * MIB,
        /// The body of one request to our endpoint.
        body: positive_size -> usize = 4 * MIB,
        /// The bodies in all that are being received.
        bodies: positive_size -> usize = 64 * MIB,
        /// How deep a message may nest.
        depth: nesting -> usize = 128,
        /// Tools of one server.
        tools: positive_count -> usize = 1000,
        /// The definitions of one server in all.
        definitions: positive_size -> usize = 8 * MIB,
        /// Requests that wait for one server.
        pending_per_server: positive_count -> usize = 1024,
        /// Requests of one client that wait.
        pending_per_client: positive_count -> usize = 1024,
        /// Requests in all that are being served.
        pending: positive_count -> usize = 16384,
        /// What waits to be written to one server.
        server_queue: positive_size -> usize = 4 * MIB,
        /// What waits to be written to one client.
        client_queue: positive_size -> usize = 4 * MIB,
        /// What waits to be written to all clients.
        client_queues: positive_size -> usize = 32 * MIB,
        /// Sessions of one client that proves who it is.
        sessions_per_principal: positive_count -> usize = 64,
        /// Sessions in all.
        sessions: positive_count -> usize = 1024,
        /// How long a session may be idle.
        session_idle: positive_time -> Duration = seconds(15 * 60),
        /// How long all pages of one server's lists may take.
        list_time: positive_time -> Duration = seconds(30),
        /// Pages of one list.
        list_pages: positive_count -> usize = 100,
        /// How long clients may keep lists of servers that tell of changes.
        legacy_list_ttl: time -> Duration = seconds(30),
        /// How long what a lost server listed last is shown.
        stale_max: positive_time -> Duration = seconds(10 * 60),
        /// How long a process may take to end once its stdin is closed.
        stop_close: time -> Duration = seconds(2),
        /// How long it may take to end once it is told to.
        stop_term: time -> Duration = seconds(3),
        /// How long calls may take to end at a shutdown.
        drain: time -> Duration = seconds(10),
        /// Connections to one server.
        leases_per_server: positive_count -> usize = 64,
        /// Connections to all servers.
        leases: positive_count -> usize = 512,
        /// Calls of one principal that wait for answers of clients without a session.
        parked_per_principal: positive_count -> usize = 64,
        /// Calls in all that are held for clients without a session.
        parked: positive_count -> usize = 1024,
        /// Resources that one client watches.
        subscriptions: positive_count -> usize = 1000,
        /// A URI in a request of a client; a cursor, or a name to complete for, may have as much.
        uri: positive_size -> usize = 8 * 1024,
        /// Headers of one request to our endpoint.
        headers: header_count -> usize = 100,
        /// Bytes of its head: the first line and all headers.
        header_bytes: positive_size -> usize = 64 * 1024,
        /// Connections of clients.
        connections: positive_count -> usize = 2048,
        /// How long a person may take to answer.
        answer: positive_time -> Duration = seconds(10 * 60),
        /// How long a server must live before its retries start anew.
        healthy: positive_time -> Duration = seconds(60),
        /// What an authorization server says of itself, or of a server.
        oauth_document: positive_size -> usize = 256 * 1024,
        /// An answer of a token endpoint.
        oauth_token: positive_size -> usize = 64 * 1024,
        /// All challenges of one refusal.
        oauth_challenge: positive_size -> usize = 8 * 1024,
        /// How long an authorization server may take to answer.
        oauth_request: positive_time -> Duration = seconds(10),
        /// How long a person may take to sign in.
        login: positive_time -> Duration = seconds(10 * 60),
        /// Steps from one URL to another of the same origin that one request to a server may take.
        redirects: count -> usize = 3,
    }
}
