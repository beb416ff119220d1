//! What a server says of a call while its client is away with questions: kept, and told once the client is back.
//!
//! Servers go on working meanwhile, above all when they ask for something beside the call, as for the roots. It is what may be
//! lost in the end, so it has room only where there is plenty (`hazards.md` H49): of too much the oldest goes.

use std::collections::VecDeque;

use crate::protocol::Raw;
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

/// What one call's client has missed, in order.
#[derive(Debug)]
pub(super) struct Missed {
    said: VecDeque<Said>,
    room: Spare,
}

impl Missed {
    /// Nothing so far, for the client of this account.
    pub(super) fn of(account: &Account) -> Self {
        Self { said: VecDeque::new(), room: account.spare() }
    }

    /// Keeps one more.
    pub(super) fn keep(&mut self, said: Said) {
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
    pub(super) fn take(&mut self) -> VecDeque<Said> {
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
