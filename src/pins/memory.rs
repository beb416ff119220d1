//! The records of a host without a state directory; they are lost when the host ends. They have the same identities as
//! those on disk, so a server that is reached in another way gets a new record, which is compared with its previous
//! one.

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
    /// The number of changes so far.
    turn: u64,
}

#[derive(Debug, Default)]
struct Kept {
    book: Book,
    /// The value of [`Memory::turn`] when this record last changed.
    turn: u64,
}

impl Memory {
    /// Returns the record of a server, if there is one.
    pub(crate) fn book(&self, server: &Server) -> Option<&Book> {
        self.books.get(&identity(server)).map(|kept| &kept.book)
    }

    /// Compares what a server lists with its record, and updates the record. Returns the result, and the record.
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

    /// Approves these forms of a server's definitions, if it still lists them. Returns how many were approved.
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

    /// Reports whether a first listing under this server's name was recorded.
    #[cfg(test)]
    pub(crate) fn has_begun(&self, server: &Server) -> bool {
        self.book(server).is_some_and(Book::is_begun)
    }
}
