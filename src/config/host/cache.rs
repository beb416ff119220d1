//! `host.cache`: how much is kept of the answers that calls may be given again, and for how long reads are.

use std::time::Duration;

use super::super::keys::keys;

const MIB: usize = 1 << 20;

keys! {
    /// How much is kept of the answers of servers. `cache` of a tool says which answers of tools are.
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
        /// The size of all answers together. Beyond that, the least recently used go first.
        size: positive_size -> usize = 64 * MIB,
        /// The size of one answer. A larger one is not kept.
        entry: positive_size -> usize = MIB,
        /// How long the contents of resources are kept; 0 means never. A server of 2026-07-28 says for each how long.
        reads: time -> Duration = Duration::ZERO,
    }
}
