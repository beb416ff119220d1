//! What a server says of a parked call, and to whom: to the request that attends it; and while its client is away with
//! questions it is kept, and told once the client is back.
//!
//! Servers go on working meanwhile, above all when they ask for something beside the call, as for the roots. It is what may be
//! lost in the end, so it has room only where there is plenty (`docs/hazards.md` H49): of too much the oldest goes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Mailbox;
use super::client::Client;
use super::question::log;
use super::rising::Rising;
use crate::manager::Server;
use crate::protocol::{Profile, Raw};
use crate::queues::{Account, Spare};

/// So much is kept of one call.
const MESSAGES: usize = 256;
const BYTES: usize = 1 << 20;

/// The params of a notification about a call.
#[derive(Debug)]
pub(super) enum Said {
    Progress(Raw),
    Log(Raw),
}

/// A request that attends a call: where its messages go, under which token, and what it may be asked.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) client: Arc<Client>,
    pub(super) leg: Arc<Mailbox>,
    pub(super) progress: Rising,
}

/// Who hears of one call.
#[derive(Debug)]
pub(super) struct Audience {
    /// The requests that attend it. A client that asks twice hears all of it on the stream that it opened last, and on the
    /// one before when that is gone.
    live: Vec<Live>,
    missed: Missed,
}

/// What one call's client has missed, in order.
#[derive(Debug)]
struct Missed {
    said: VecDeque<Said>,
    room: Spare,
}

impl Audience {
    /// Nobody so far; what is kept counts for that account.
    pub(super) fn of(account: &Account) -> Self {
        Self { live: Vec::new(), missed: Missed::of(account) }
    }

    /// A request comes. It hears of the call from now on, and what its client has missed.
    pub(super) fn enter(&mut self, server: &Server, mut live: Live) {
        self.missed.take().iter().for_each(|said| live.tell(server, said));
        self.live.push(live);
    }

    /// A request goes.
    pub(super) fn leave(&mut self, leg: &Arc<Mailbox>) {
        self.live.retain(|live| !Arc::ptr_eq(&live.leg, leg));
    }

    /// The client is sent away with questions, whichever of its requests hears that first.
    pub(super) fn send_away(&mut self) {
        self.live = Vec::new();
    }

    /// Whether nobody attends.
    pub(super) fn is_away(&self) -> bool {
        self.live.is_empty()
    }

    /// What may be asked now.
    pub(super) fn profile(&self) -> Option<Profile> {
        self.live.last().map(|live| live.client.profile())
    }

    /// The server says something of the call.
    pub(super) fn tell(&mut self, server: &Server, said: Said) {
        match self.live.last_mut() {
            Some(live) => live.tell(server, &said),
            None => self.missed.keep(said),
        }
    }
}

impl Live {
    fn tell(&mut self, server: &Server, said: &Said) {
        match said {
            Said::Progress(params) => {
                if let Some(message) = self.progress.step(params) {
                    self.leg.put(message);
                }
            }
            Said::Log(params) => log(&self.client, &self.leg, server, params),
        }
    }
}

impl Missed {
    /// Nothing so far, for the client of this account.
    fn of(account: &Account) -> Self {
        Self { said: VecDeque::new(), room: account.spare() }
    }

    /// Keeps one more.
    fn keep(&mut self, said: Said) {
        let size = said.weight();
        while self.said.len() >= MESSAGES || self.room.bytes() + size > BYTES {
            let Some(oldest) = self.said.pop_front() else { return };
            self.room.take(oldest.weight());
        }
        if self.room.try_add(size) {
            self.said.push_back(said);
        }
    }

    /// All of it: the client is back.
    fn take(&mut self) -> VecDeque<Said> {
        self.room.take(self.room.bytes());
        std::mem::take(&mut self.said)
    }
}

impl Said {
    fn weight(&self) -> usize {
        let (Self::Progress(params) | Self::Log(params)) = self;
        128 + params.as_bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::Queues;

    fn progress(size: usize) -> Said {
        Said::Progress(Raw::trusted("x".repeat(size - 128).into()))
    }

    fn sizes(missed: &mut Missed) -> Vec<usize> {
        missed.take().iter().map(Said::weight).collect()
    }

    #[tokio::test]
    async fn h49_of_too_much_the_oldest_goes() {
        let queues = Queues::new(16 << 20);
        let mut missed = Missed::of(&queues.account());
        (0..MESSAGES + 2).for_each(|count| missed.keep(progress(200 + count)));
        assert_eq!(queues.waiting(), missed.room.bytes(), "it counts");
        let kept = sizes(&mut missed);
        assert_eq!((kept.len(), kept[0], queues.waiting()), (MESSAGES, 202, 0));

        missed.keep(progress(500));
        missed.keep(progress(BYTES - 500));
        missed.keep(progress(200));
        assert_eq!(sizes(&mut missed), [BYTES - 500, 200]);
        missed.keep(progress(BYTES + 1));
        assert_eq!(sizes(&mut missed).len(), 0, "one that is larger than all of it may be");
    }

    #[tokio::test]
    async fn h49_it_has_room_only_where_there_is_plenty() {
        let queues = Queues::new(1000);
        let mut missed = Missed::of(&queues.account());
        (0..4).for_each(|_| missed.keep(progress(200)));
        assert_eq!(sizes(&mut missed), [200, 200]);
    }
}
