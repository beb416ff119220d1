//! The records of a host without a state directory. They have the same identities as those on disk, so a server that is
//! reached in another way has another record, which is compared with the one before. They end with the host.

use std::collections::HashMap;

use super::book::{Book, Judged, Listing, Wary};
use super::identity::identity;
use super::{Pin, What, now};
use crate::config::{Approval, Server};

/// The most records; the one that changed longest ago goes first.
const MOST: usize = 1000;

/// The records, by the two parts of an identity: a server's name, and how it is reached.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    books: HashMap<(String, String), Kept>,
    /// Counts changes.
    turn: u64,
}

#[derive(Debug, Default)]
struct Kept {
    book: Book,
    /// When it last changed.
    turn: u64,
}

impl Memory {
    /// Returns the record of a server, if there is one.
    pub(crate) fn book(&self, server: &Server) -> Option<&Book> {
        self.books.get(&identity(server)).map(|kept| &kept.book)
    }

    /// Takes what a server lists into its record. Returns what came of it, and the record.
    pub(crate) fn judge(
        &mut self,
        server: &Server,
        listing: &Listing,
        strictness: (Approval, Option<Wary<'_>>),
    ) -> (Judged, Book) {
        let own = identity(server);
        let before = if self.books.contains_key(&own) { None } else { self.former(&own.0) };
        self.turn += 1;
        let kept = self.books.entry(own).or_default();
        let judged = kept.book.judge(listing, strictness, now(), before.as_ref());
        if judged.is_changed {
            kept.turn = self.turn;
        }
        let book = kept.book.clone();
        if self.books.len() > MOST {
            let oldest = self.books.iter().min_by_key(|(_, kept)| kept.turn).map(|(own, _)| own.clone());
            oldest.and_then(|oldest| self.books.remove(&oldest));
        }
        (judged, book)
    }

    /// Approves these forms of a server's definitions, as far as it still lists them. Returns how many they are.
    pub(crate) fn approve(&mut self, server: &Server, forms: &[(What, String, Pin)]) -> usize {
        self.turn += 1;
        let Some(kept) = self.books.get_mut(&identity(server)) else { return 0 };
        kept.turn = self.turn;
        kept.book.approve(forms)
    }

    /// Returns the newest record under a server's name.
    fn former(&self, name: &str) -> Option<Book> {
        let others = self.books.iter().filter(|((other, _), _)| other == name);
        others.max_by_key(|(_, kept)| kept.turn).map(|(_, kept)| kept.book.clone())
    }

    /// Reports whether the first listing under a name was judged.
    #[cfg(test)]
    pub(crate) fn has_begun(&self, server: &Server) -> bool {
        self.book(server).is_some_and(Book::is_begun)
    }
}
