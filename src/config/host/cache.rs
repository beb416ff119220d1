//! `host.cache`: how much of servers' answers to calls and reads is cached, and for how long.

use std::time::Duration;

use super::super::keys::keys;

const MIB: usize = 1 << 20;

keys! {
    /// How much of servers' answers is cached. The setting `cache` of a tool says which of its answers are.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mcp_host::config::{AnswerCache, HostSettings};
    ///
    /// let mut cache = AnswerCache::default();
    /// cache.reads = Duration::from_secs(30);
    /// let settings = HostSettings::default().cache(cache);
    /// ```
    #[non_exhaustive]
    pub struct AnswerCache {
        /// The total size of all cached answers. If it is exceeded, the least recently used are removed.
        size: positive_size -> usize = 64 * MIB,
        /// The largest answer that is cached.
        entry: positive_size -> usize = MIB,
        /// How long the contents of resources are cached; 0 means never. A 2026-07-28 server states this for each
        /// result.
        reads: time -> Duration = Duration::ZERO,
    }
}
