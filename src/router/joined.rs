//! Joins equal requests in flight: one request goes to the server, and all of them get its answer (`cache` of a tool,
//! `host.cache.reads`).
//!
//! In: keys of requests, and what the server sends for the one shared request. Out: a [`Seat`] for each request that
//! waits, and a [`Lead`] for the task that makes the shared request (`shared.rs`). **Invariants:** each waiting request
//! gets the outcome exactly once. A request that leaves changes nothing for the others; when the last one leaves, the
//! shared request ends. No request joins once the server has asked something.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::answered::Answered;
use crate::lock::lock;
use crate::manager::AnswerKey;
use crate::protocol::{Outcome, ProtocolVersion, Raw};

/// The shared requests that others may join.
#[derive(Debug, Default)]
pub(super) struct Joined(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    count: u64,
    by_key: HashMap<AnswerKey, u64>,
    groups: HashMap<u64, Group>,
}

/// All requests that wait for the answer to one shared request.
#[derive(Debug)]
struct Group {
    key: AnswerKey,
    chairs: Vec<Chair>,
    /// Cancelled when the last request has left.
    left: CancellationToken,
}

#[derive(Debug)]
struct Chair {
    id: u64,
    /// Whether it belongs to the request that started the group.
    leads: bool,
    progress: mpsc::Sender<Raw>,
    end: oneshot::Sender<Ended>,
}

/// The outcome for one waiting request.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    /// This answer.
    With(Answered),
    /// This answer of a server of that revision, in the server's form.
    Said(ProtocolVersion, Outcome),
    /// No shared answer: the request has to be sent on its own.
    Alone,
}

/// The place of one waiting request in its group. Dropping it leaves the group.
#[derive(Debug)]
pub(super) struct Seat {
    joined: Arc<Joined>,
    group: u64,
    id: u64,
    /// Progress of the server.
    pub(super) progress: mpsc::Receiver<Raw>,
    pub(super) end: oneshot::Receiver<Ended>,
}

/// The right to make the shared request.
#[derive(Debug)]
pub(super) struct Lead {
    joined: Arc<Joined>,
    group: u64,
    left: CancellationToken,
    /// Whether the server has asked something.
    pub(super) is_asked: bool,
}

/// How many progress notifications may wait for a slow request. More are dropped.
const PROGRESS: usize = 32;

impl Joined {
    /// Gives a seat to a request with this key. If `joins` is true and there is a group with this key, the seat is in
    /// that group. Otherwise the caller must make the shared request, with the returned lead.
    pub(super) fn sit(self: &Arc<Self>, key: &AnswerKey, joins: bool) -> (Seat, Option<Lead>) {
        let ((progress, heard), (end, ended)) = (mpsc::channel(PROGRESS), oneshot::channel());
        let mut table = lock(&self.0);
        table.count += 1;
        let id = table.count;
        let known = table.by_key.get(key).copied().filter(|_| joins);
        let (group, lead) = match known {
            Some(group) => (group, None),
            None => {
                if joins {
                    table.by_key.insert(key.clone(), id);
                }
                let left = CancellationToken::new();
                let made = Group { key: key.clone(), chairs: Vec::new(), left: left.clone() };
                table.groups.insert(id, made);
                (id, Some(Lead { joined: self.clone(), group: id, left, is_asked: false }))
            }
        };
        if let Some(found) = table.groups.get_mut(&group) {
            found.chairs.push(Chair { id, leads: lead.is_some(), progress, end });
        }
        drop(table);
        (Seat { joined: self.clone(), group, id, progress: heard, end: ended }, lead)
    }

    /// Returns the number of shared requests in flight.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).groups.len()
    }
}

impl Table {
    /// Closes a group to further requests.
    fn close(&mut self, id: u64) {
        let Some(group) = self.groups.get(&id) else { return };
        if self.by_key.get(&group.key) == Some(&id) {
            self.by_key.remove(&group.key);
        }
    }

    /// Removes a group and returns it, so that all its requests can be told the outcome.
    fn remove(&mut self, id: u64) -> Option<Group> {
        self.close(id);
        self.groups.remove(&id)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = lock(&self.joined.0);
        let Some(group) = table.groups.get_mut(&self.group) else { return };
        group.chairs.retain(|chair| chair.id != self.id);
        if group.chairs.is_empty()
            && let Some(group) = table.remove(self.group)
        {
            group.left.cancel();
        }
    }
}

impl Lead {
    /// Waits until the last request has left.
    pub(super) async fn left(&self) {
        self.left.cancelled().await;
    }

    /// Passes progress of the server on to all waiting requests.
    pub(super) fn tell(&self, progress: &Raw) {
        if let Some(group) = lock(&self.joined.0).groups.get(&self.group) {
            for chair in &group.chairs {
                // A slow request misses some.
                let _ = chair.progress.try_send(progress.clone());
            }
        }
    }

    /// Reports whether the request that started the group still waits.
    pub(super) fn has_first(&self) -> bool {
        let table = lock(&self.joined.0);
        table.groups.get(&self.group).is_some_and(|group| group.chairs.iter().any(|chair| chair.leads))
    }

    /// Notes that the server has asked something. The question is for the first request only; all others have to be
    /// sent on their own.
    pub(super) fn asks(&mut self) {
        self.is_asked = true;
        let mut table = lock(&self.joined.0);
        table.close(self.group);
        let Some(group) = table.groups.get_mut(&self.group) else { return };
        let (first, others): (Vec<Chair>, _) = std::mem::take(&mut group.chairs).into_iter().partition(|one| one.leads);
        group.chairs = first;
        drop(table);
        // A request that has just left need not be told.
        others.into_iter().for_each(|chair| drop(chair.end.send(Ended::Alone)));
    }

    /// Tells all requests the outcome: `first` is for the first one, `others` for the rest.
    pub(super) fn end(self, first: Answered, others: &Ended) {
        let group = lock(&self.joined.0).remove(self.group);
        let mut first = Some(first);
        for chair in group.into_iter().flat_map(|group| group.chairs) {
            let end = if chair.leads { first.take().map(Ended::With) } else { Some(others.clone()) };
            let _ = end.map(|end| chair.end.send(end));
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // If no outcome was sent, the waiting requests notice here that none will come.
        drop(lock(&self.joined.0).remove(self.group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::Principal;

    fn key(asked: u8) -> AnswerKey {
        let principal = Some(Principal::local());
        AnswerKey { server: 1, lease: 1, principal, target: "t".into(), is_read: false, asked: [asked; 32] }
    }

    fn ends(seat: &mut Seat) -> Option<String> {
        seat.end.try_recv().ok().map(|ended| match ended {
            Ended::With(answered) => format!("with {}", answered.unwrap()),
            Ended::Said(_, outcome) => format!("said {}", outcome.unwrap()),
            Ended::Alone => "alone".to_owned(),
        })
    }

    fn said(text: &'static str) -> Ended {
        Ended::Said(ProtocolVersion::LATEST_HANDSHAKE, Ok(Raw::trusted(text.into())))
    }

    fn answer(text: &'static str) -> Answered {
        Ok(Raw::trusted(text.into()))
    }

    #[test]
    fn equal_requests_are_one_and_each_hears_its_end_once() {
        let joined = Arc::<Joined>::default();
        let (mut one, lead) = joined.sit(&key(1), true);
        let (mut two, none) = joined.sit(&key(1), true);
        let (_other, other) = joined.sit(&key(2), true);
        let (_anew, anew) = joined.sit(&key(1), false);
        assert!(none.is_none() && other.is_some() && anew.is_some());
        let lead = lead.unwrap();
        lead.tell(&Raw::trusted("1".into()));
        assert_eq!([&mut one, &mut two].map(|seat| seat.progress.try_recv().unwrap().to_string()), ["1", "1"]);
        lead.end(answer("1"), &said("2"));
        assert_eq!([ends(&mut one), ends(&mut two)], [Some("with 1".to_owned()), Some("said 2".to_owned())]);
        assert!(joined.sit(&key(1), true).1.is_some(), "it is over");
    }

    #[test]
    fn the_last_one_to_leave_ends_the_request() {
        let joined = Arc::<Joined>::default();
        let (first, lead) = joined.sit(&key(1), true);
        let lead = lead.unwrap();
        let others: Vec<Seat> = (0..9).map(|_| joined.sit(&key(1), true).0).collect();
        drop(first);
        assert!(!lead.has_first() && !lead.left.is_cancelled());
        drop(others);
        assert!(lead.left.is_cancelled());
        let (_seat, anew) = joined.sit(&key(1), true);
        drop(lead);
        assert!(anew.is_some_and(|anew| anew.has_first()), "the end of one is not that of the next");
    }

    #[test]
    fn a_question_is_for_the_first_one_alone() {
        let joined = Arc::<Joined>::default();
        let (mut first, lead) = joined.sit(&key(1), true);
        let (mut second, _) = joined.sit(&key(1), true);
        let mut lead = lead.unwrap();
        lead.asks();
        assert_eq!((ends(&mut first), ends(&mut second)), (None, Some("alone".to_owned())));
        assert!(joined.sit(&key(1), true).1.is_some(), "nobody joins it any more");
        lead.end(answer("1"), &Ended::Alone);
        assert_eq!(ends(&mut first).as_deref(), Some("with 1"));
    }

    #[test]
    fn a_request_that_vanishes_leaves_nobody_waiting() {
        let joined = Arc::<Joined>::default();
        let (mut seat, lead) = joined.sit(&key(1), true);
        drop(lead);
        assert!(matches!(seat.end.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert_eq!(joined.len(), 0);
    }
}
