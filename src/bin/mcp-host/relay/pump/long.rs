//! Forwards a client's message that is too long to be held whole, part by part.

use super::super::ends::{Passing, Source};
use super::super::kept::LONGEST;
use super::super::scan::Scan;
use super::Pump;

impl<S: Source> Pump<'_, S> {
    /// Begins to forward a long message after its first bytes. Returns false if there is no daemon for it.
    pub(super) fn begin_passing(&mut self, head: &[u8]) -> bool {
        let mut scan = Scan::new();
        scan.feed(head);
        // An answer goes to the daemon that asked, which may be stopping.
        let asker = scan.answers().and_then(|id| self.peers.iter().position(|peer| peer.has_asked(id)));
        let Some(peer) = asker.or_else(|| self.current()) else { return false };
        let start = self.peers[peer].next(false);
        self.passing = Some(Passing { to: Some(start.peer), scan: Scan::new(), start, line: Some(Vec::new()) });
        true
    }

    /// Forwards the next part of a long message.
    pub(super) fn pass(&mut self, part: &[u8], is_end: bool) {
        let Some(passing) = &mut self.passing else { return };
        passing.scan.feed(part);
        match &mut passing.line {
            Some(line) if line.len() + part.len() <= LONGEST => {
                // Not twice the room at each step: a relay is small.
                line.reserve_exact(part.len());
                line.extend_from_slice(part);
            }
            line => *line = None,
        }
        let to = passing.to;
        let peer = to.and_then(|number| self.position(number));
        if let Some(peer) = peer {
            self.peers[peer].put(part);
        }
        if !is_end {
            return;
        }
        let Some(Passing { scan, start, line, .. }) = self.passing.take() else { return };
        let envelope = scan.finish();
        self.kept.said(&envelope, line.as_deref(), start, false);
        if let [item] = envelope.items.as_slice()
            && item.is_answer()
            && let Some(peer) = peer
        {
            self.peers[peer].questions.retain(|question| Some(question) != item.id.as_ref());
        }
        if peer.is_none() {
            // The daemon went away in the middle of the message. What it took earlier is still in flight there.
            let lost = self.kept.left(start.peer, start.index - 1);
            self.settle(lost);
        }
        self.say_pending();
    }
}
