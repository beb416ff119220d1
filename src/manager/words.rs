//! Explains to users what a server asks, and why it has so many connections.

use super::lease::Key;
use super::leases::Entry;
use super::{Asked, Server, lock};
use crate::config::Sharing;

impl Server {
    /// Says who shares its connections, and for whom each of them is.
    pub(super) fn sharing_in_words(&self) -> Vec<String> {
        let asks = self.asks();
        let mut words: Vec<String> = self.rule_in_words(asks).into_iter().collect();
        if self.shows_ui() && self.config.sharing != Sharing::Host {
            words.push("lists tools for MCP Apps: clients without MCP Apps have other connections".to_owned());
        }
        words.extend(self.pool_size().map(pool));
        let table = lock(&self.leases);
        words.extend(table.entries.iter().map(|entry| self.connection_in_words(entry, asks)));
        words
    }

    fn rule_in_words(&self, asks: Asked) -> Vec<String> {
        let rule = match self.config.sharing {
            Sharing::Host => "sharing: host: all clients share one connection, and are asked nothing",
            Sharing::Session => "sharing: session: each client has its own connection from its first call on",
            Sharing::Profile => "sharing: profile: clients with the same capabilities share a connection",
            Sharing::Auto if asks.is_empty() => "has asked clients nothing so far: they share one connection",
            Sharing::Auto => return vec![format!("{}; all others share one", auto(asks))],
        };
        let asked = format!("asks clients for {}", asks.words().join(", "));
        let is_news = !asks.is_empty() && self.config.sharing != Sharing::Host;
        std::iter::once(rule.to_owned()).chain(is_news.then_some(asked)).collect()
    }

    fn connection_in_words(&self, entry: &Entry, asks: Asked) -> String {
        let process = entry.upstream.connection().and_then(|connection| connection.pid());
        let what = process.map_or_else(|| "a connection".to_owned(), |pid| format!("process {pid}"));
        let more = if entry.pooled.extra.is_some() { "one more, while all are busy, " } else { "" };
        let of = if entry.principal.is_local() { String::new() } else { format!(" of {:?}", entry.principal.as_str()) };
        let on_it = match entry.user_count() {
            0 => "nobody is on it now".to_owned(),
            1 => "1 client is on it now".to_owned(),
            count => format!("{count} clients are on it now"),
        };
        let old =
            if entry.outdated { "; not given to other clients: its declared capabilities are outdated" } else { "" };
        let era = if self.is_for_sessions(&entry.upstream) { ", with a session" } else { "" };
        format!("{what}: {more}for {}{of}{era}; {on_it}{old}", self.whom_in_words(entry, asks))
    }

    fn whom_in_words(&self, entry: &Entry, asks: Asked) -> String {
        let is_shared = entry.upstream.bound_to().is_none();
        match &entry.key {
            _ if entry.upstream.is_modern() && self.speaks_both() => "clients without a session".to_owned(),
            _ if entry.upstream.is_modern() || self.config.sharing == Sharing::Host => "all clients".to_owned(),
            _ if !is_shared => "one client".to_owned(),
            Key { roots: Some(told), .. } => match told.count() {
                0 => "clients that told no roots".to_owned(),
                1 => "clients that told the same root".to_owned(),
                count => format!("clients that told the same {count} roots"),
            },
            Key { exact: Some(_), .. } => "clients with the same capabilities".to_owned(),
            Key { apps: false, .. } if self.shows_ui() => "clients without MCP Apps".to_owned(),
            _ if self.config.sharing == Sharing::Session => "lists, and clients that have not called yet".to_owned(),
            _ if self.config.sharing == Sharing::Profile => "lists".to_owned(),
            _ if asks.is_empty() => "lists, and all clients".to_owned(),
            _ => "lists, and clients that cannot answer what it asks".to_owned(),
        }
    }
}

/// Says how many connections the same clients may have.
fn pool(most: usize) -> String {
    match most {
        1 => "pool: 1 connection for the same clients, because it asks them something".to_owned(),
        _ => format!("pool: up to {most} connections for the same clients, while all are busy"),
    }
}

/// Says who has separate connections if a server asks these kinds of questions.
fn auto(asks: Asked) -> String {
    let kinds = asks.words().join(", ");
    let more = asks.without(Asked::ROOTS).words().join(" or ");
    match (asks.has(Asked::ROOTS), more.is_empty()) {
        (_, true) => format!("asks clients for {kinds}: those that told the same roots share a connection"),
        (false, false) => format!("asks clients for {kinds}: each that can answer has its own connection"),
        (true, false) => format!(
            "asks clients for {kinds}: each that can answer {more} has its own connection, those that told the same roots share one"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_asks_is_told_with_who_shares() {
        let all = Asked::ROOTS.with(Asked::SAMPLING).with(Asked::ELICITATION);
        insta::assert_snapshot!([Asked::ROOTS, all.without(Asked::ROOTS), all].map(auto).join("\n"), @"
        asks clients for roots: those that told the same roots share a connection
        asks clients for sampling, elicitation: each that can answer has its own connection
        asks clients for roots, sampling, elicitation: each that can answer sampling or elicitation has its own connection, those that told the same roots share one
        ");
    }
}
