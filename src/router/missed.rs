//! Progress and log messages of a parked call. They go to the client's request that waits for (*attends*) the call.
//! While the client is away to answer questions, they are kept, and sent once it is back.
//!
//! Servers go on working meanwhile, above all if they ask for something that the work does not wait for, such as the
//! roots. These messages may be lost, so they are kept only while there is plenty of room (`docs/hazards.md` H49). If a
//! call has too many, its oldest go first.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::Mailbox;
use super::client::Client;
use super::heart::Wait;
use super::question::log;
use super::rising::Rising;
use crate::manager::Server;
use crate::protocol::{Profile, Raw};
use crate::queues::{Account, Spare};

/// The most messages and bytes kept for one call.
const MESSAGES: usize = 256;
const BYTES: usize = 1 << 20;

/// The params of a notification about a call.
#[derive(Debug)]
pub(super) enum CallNotice {
    Progress(Raw),
    Log(Raw),
}

/// A request that attends a call: its client, its leg, and the progress sent to it.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) client: Arc<Client>,
    pub(super) leg: Arc<Mailbox>,
    pub(super) progress: Rising,
}

/// The requests that get the messages of one parked call.
#[derive(Debug)]
pub(super) struct Audience {
    /// The requests that attend the call. If a client sent the request twice, everything goes to the later one, and to
    /// the earlier one once the later one is gone.
    live: Vec<Live>,
    missed: Missed,
}

/// The messages that the client of one call has missed, in order.
#[derive(Debug)]
struct Missed {
    said: VecDeque<CallNotice>,
    room: Spare,
}

impl Audience {
    /// Makes an empty audience. The messages that it keeps count for `account`.
    pub(super) fn of(account: &Account) -> Self {
        Self { live: Vec::new(), missed: Missed::of(account) }
    }

    /// Adds a request. It gets the messages that the client has missed, and those that come from now on.
    pub(super) fn enter(&mut self, server: &Server, mut live: Live) {
        self.missed.take().iter().for_each(|said| live.tell(server, said));
        self.live.push(live);
    }

    /// Removes a request.
    pub(super) fn leave(&mut self, leg: &Arc<Mailbox>) {
        self.live.retain(|live| !Arc::ptr_eq(&live.leg, leg));
    }

    /// Removes all requests: the client is sent away with questions.
    pub(super) fn send_away(&mut self) {
        self.live = Vec::new();
    }

    /// Reports whether no request attends.
    pub(super) fn is_away(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns the kinds of questions that the client of the latest request can be asked; `None` if no request attends.
    pub(super) fn profile(&self) -> Option<Profile> {
        self.live.last().map(|live| live.client.profile())
    }

    /// Sends a heartbeat to a request that attends the call, if one is due now. Returns when its next one is due;
    /// `None` if it gets none.
    pub(super) fn beat(&mut self, leg: &Arc<Mailbox>, server: &Server) -> Option<Instant> {
        let live = self.live.iter_mut().find(|live| Arc::ptr_eq(&live.leg, leg))?;
        if let Some(message) = live.progress.beat(&server.config.name, Wait::Server) {
            live.leg.put(message);
        }
        live.progress.start_heart(Instant::now())
    }

    /// Sends the message to the request that attends the call, or keeps it if there is none.
    pub(super) fn tell(&mut self, server: &Server, said: CallNotice) {
        match self.live.last_mut() {
            Some(live) => live.tell(server, &said),
            None => self.missed.keep(said),
        }
    }
}

impl Live {
    fn tell(&mut self, server: &Server, said: &CallNotice) {
        match said {
            CallNotice::Progress(params) => {
                if let Some(message) = self.progress.step(params) {
                    self.leg.put(message);
                }
            }
            CallNotice::Log(params) => log(&self.client, &self.leg, server, params),
        }
    }
}

impl Missed {
    /// Makes an empty queue whose bytes count in the queues of this account.
    fn of(account: &Account) -> Self {
        Self { said: VecDeque::new(), room: account.spare() }
    }

    /// Keeps one more message.
    fn keep(&mut self, said: CallNotice) {
        let size = said.weight();
        while self.said.len() >= MESSAGES || self.room.bytes() + size > BYTES {
            let Some(oldest) = self.said.pop_front() else { return };
            self.room.take(oldest.weight());
        }
        if self.room.try_add(size) {
            self.said.push_back(said);
        }
    }

    /// Removes and returns all messages: the client is back.
    fn take(&mut self) -> VecDeque<CallNotice> {
        self.room.take(self.room.bytes());
        std::mem::take(&mut self.said)
    }
}

impl CallNotice {
    fn weight(&self) -> usize {
        let (Self::Progress(params) | Self::Log(params)) = self;
        128 + params.as_bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::Queues;

    fn progress(size: usize) -> CallNotice {
        CallNotice::Progress(Raw::trusted("x".repeat(size - 128).into()))
    }

    fn sizes(missed: &mut Missed) -> Vec<usize> {
        missed.take().iter().map(CallNotice::weight).collect()
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
