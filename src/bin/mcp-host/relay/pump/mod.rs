//! The loop of a relay: forwards bytes between its client and a daemon, on one thread that waits in `poll`.
//!
//! Whole messages are inspected before they are forwarded. A message longer than [`HELD`] is forwarded in pieces, so
//! that memory does not grow with it.

mod long;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use mcp_host::admin::Joined;
use rustix::event::{PollFd, PollFlags, poll};

use super::ends::{Away, End, Ends, Passing, Source, timespec};
use super::kept::{self, Again, Kept, Lost};
use super::peer::Peer;
use super::scan::{Envelope, Scan};

/// Messages up to this many bytes are inspected before they are forwarded.
const HELD: usize = 32 << 10;
/// The same limit for the answer to `initialize`, which is read in full.
const FIRST: usize = 1 << 20;
/// Bytes per read, which decide how much memory a long message takes.
const PIECE: usize = 16 << 10;
/// Once this many bytes are queued for one side, reading from the other pauses.
const WAITING: usize = 32 << 10;
/// How many bytes of messages to queue while there is no daemon.
const WITHOUT: usize = 1 << 20;
/// How long a client with a message waits for another daemon before it gets its own host.
const AWAY: Duration = Duration::from_secs(5);
/// How often to look for a daemon while the client waits.
const SOON: Duration = Duration::from_millis(100);
/// How often to look for a daemon while the client does not wait.
const LATER: Duration = Duration::from_secs(1);
/// How far above the previous daemon's question ids a daemon's begin. The previous one may still ask while it stops.
const APART: u64 = 1 << 20;
/// Timeout for the last answers once the client has closed its side.
const LAST: Duration = Duration::from_millis(2500);

pub(super) struct Pump<'a, S> {
    source: &'a mut S,
    kept: Kept,
    peers: Vec<Peer>,
    made: usize,
    away: Option<Away>,
    /// Messages for the next daemon.
    pending: VecDeque<Again>,
    input: Vec<u8>,
    passing: Option<Passing>,
    hears: bool,
    out: Vec<u8>,
    /// Our own messages for the client, which wait for the end of a daemon's long message.
    behind: Vec<u8>,
    /// The daemon whose long message is being forwarded.
    talks: Option<usize>,
    end: Option<Instant>,
    over: Option<End>,
}

impl<'a, S: Source> Pump<'a, S> {
    pub(super) fn new(source: &'a mut S, joined: Joined) -> io::Result<Self> {
        let first = Peer::new(0, joined.stream, Some(joined.boot));
        first.ready()?;
        Ok(Self {
            source,
            kept: Kept::default(),
            peers: vec![first],
            made: 1,
            away: None,
            pending: VecDeque::new(),
            input: Vec::new(),
            passing: None,
            hears: true,
            out: Vec::new(),
            behind: Vec::new(),
            talks: None,
            end: None,
            over: None,
        })
    }

    /// Forwards messages until the client has left.
    pub(super) fn run(mut self, ends: &Ends) -> io::Result<End> {
        let mut piece = vec![0; PIECE];
        loop {
            self.take_said();
            self.look_around();
            if let Some(end) = self.over(Instant::now()) {
                self.last_words(ends);
                return Ok(end);
            }
            let ready = self.wait(ends)?;
            if ready.signal {
                if self.end.is_some() {
                    return Ok(End::Done);
                }
                self.hears = false;
            }
            if ready.output && !self.write(ends.output.as_fd()) {
                return Ok(End::Done);
            }
            if ready.input {
                self.hear(ends.input.as_fd(), &mut piece)?;
            }
            for peer in ready.writable {
                self.peers[peer].write();
            }
            for peer in ready.readable {
                self.read_peer(peer, &mut piece);
            }
            self.hear_held();
            self.bury();
        }
    }

    /// Returns the index of the daemon that receives the client's messages.
    fn current(&self) -> Option<usize> {
        self.peers.iter().position(|peer| !peer.leaving && !peer.gone)
    }

    fn position(&self, number: usize) -> Option<usize> {
        self.peers.iter().position(|peer| peer.number == number)
    }

    fn over(&mut self, now: Instant) -> Option<End> {
        if self.over.is_some() {
            return self.over;
        }
        if self.hears {
            return None;
        }
        let end = *self.end.get_or_insert(now + LAST);
        if now >= end {
            self.give_up();
        }
        let said = self.pending.is_empty() && memchr::memchr(b'\n', &self.input).is_none();
        if said {
            self.peers.iter_mut().for_each(Peer::close);
        }
        let done = self.peers.is_empty() && said && self.out.is_empty();
        (done || now >= end).then_some(End::Done)
    }

    /// Reports whether more input of the client can be taken.
    fn room(&self) -> bool {
        if let Some(passing) = &self.passing {
            let to = passing.to.and_then(|number| self.position(number));
            return to.is_none_or(|peer| self.peers[peer].waiting() < WAITING);
        }
        match self.current() {
            Some(peer) => self.peers[peer].waiting() < WAITING,
            None => self.pending.iter().map(|again| again.line.len()).sum::<usize>() < WITHOUT,
        }
    }

    // -- the client --

    fn hear(&mut self, fd: BorrowedFd<'_>, piece: &mut [u8]) -> io::Result<()> {
        match rustix::io::read(fd, &mut *piece) {
            Ok(0) => self.hears = false,
            Ok(count) => self.input.extend_from_slice(&piece[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::IO | rustix::io::Errno::CONNRESET) => self.hears = false,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Forwards the client's input.
    fn take_said(&mut self) {
        let mut input = std::mem::take(&mut self.input);
        let mut done = 0;
        while done < input.len() && self.room() {
            let rest = &input[done..];
            let end = memchr::memchr(b'\n', rest).map(|at| at + 1);
            if self.passing.is_some() {
                let part = &rest[..end.unwrap_or(rest.len())];
                self.pass(part, end.is_some());
                done += part.len();
            } else if let Some(end) = end {
                self.say(&rest[..end], false);
                done += end;
            } else if rest.len() >= HELD && self.begin_passing(rest) {
                self.pass(rest, false);
                done += rest.len();
            } else {
                if rest.len() >= HELD {
                    self.needs_daemon();
                }
                break;
            }
        }
        input.drain(..done);
        if input.is_empty() {
            input.shrink_to(HELD);
        }
        self.input = input;
    }

    /// Forwards a whole message. `seen` says that a daemon may have seen it before.
    fn say(&mut self, line: &[u8], seen: bool) {
        let envelope = Scan::line(line);
        match self.addressee(&envelope, line) {
            To::Nobody => {}
            To::Next => {
                self.needs_daemon();
                self.pending.push_back(Again { line: line.to_vec(), seen });
            }
            To::Peer(peer) => {
                let at = self.peers[peer].next(envelope.is_blank);
                self.kept.said(&envelope, Some(line), at, seen);
                self.peers[peer].put(line);
            }
        }
    }

    fn addressee(&mut self, envelope: &Envelope, line: &[u8]) -> To {
        let next = self.current().map_or(To::Next, To::Peer);
        let [item] = envelope.items.as_slice() else { return next };
        if item.is_answer() {
            // Only the daemon that asked knows the id. Answers for a daemon that is gone are dropped.
            let id = item.id.as_deref().unwrap_or_default();
            let asker = self.peers.iter_mut().position(|peer| {
                let asked = peer.questions.iter().position(|question| question == id);
                asked.map(|asked| peer.questions.remove(asked)).is_some()
            });
            return asker.map_or(To::Nobody, To::Peer);
        }
        if item.method.as_deref() == Some("notifications/cancelled") {
            let id = kept::param(line, "requestId").map(|id| id.to_string());
            let at = id.and_then(|id| self.kept.peer_of(&id)).and_then(|number| self.position(number));
            return at.map_or(next, To::Peer);
        }
        next
    }

    /// Notes that the client waits from now on, if there is no daemon.
    fn needs_daemon(&mut self) {
        if let Some(away) = self.away.as_mut().filter(|away| away.waits.is_none()) {
            let now = Instant::now();
            (away.waits, away.next) = (Some(now), now);
        }
    }

    /// Sends our own messages to the client.
    fn tell_client(&mut self, lines: &[u8]) {
        let to = if self.talks.is_some() { &mut self.behind } else { &mut self.out };
        to.extend_from_slice(lines);
    }

    /// Ends a daemon's long message.
    fn quiet(&mut self) {
        self.talks = None;
        self.out.append(&mut self.behind);
    }

    fn write(&mut self, fd: BorrowedFd<'_>) -> bool {
        match rustix::io::write(fd, &self.out) {
            Ok(count) => {
                self.out.drain(..count);
                if self.out.is_empty() {
                    self.out.shrink_to(8 << 10);
                }
                true
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => true,
            // The client has closed its output.
            Err(_) => false,
        }
    }

    /// Writes what is queued before this process ends, if the client reads it.
    fn last_words(&mut self, ends: &Ends) {
        let until = Instant::now() + SOON;
        while !self.out.is_empty() && Instant::now() < until && self.write(ends.output.as_fd()) {
            let mut fds = [PollFd::from_borrowed_fd(ends.output.as_fd(), PollFlags::OUT)];
            let _ = poll(&mut fds, Some(&timespec(SOON)));
        }
    }

    // -- the daemons --

    fn read_peer(&mut self, at: usize, piece: &mut [u8]) {
        let peer = &mut self.peers[at];
        let read = peer.read(piece);
        peer.input.extend_from_slice(read);
        self.hear_peer(at);
    }

    /// Continues with daemons whose long messages had to wait for the end of another one.
    fn hear_held(&mut self) {
        while self.talks.is_none()
            && let Some(at) = self.peers.iter().position(|peer| peer.held)
        {
            self.hear_peer(at);
        }
    }

    /// Forwards the input of a daemon.
    fn hear_peer(&mut self, at: usize) {
        let first = self.kept.begins(self.peers[at].number);
        let peer = &mut self.peers[at];
        peer.held = false;
        let input = std::mem::take(&mut peer.input);
        let mut rest = input.as_slice();
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map(|end| end + 1);
            let peer = &mut self.peers[at];
            if let Some(scan) = &mut peer.passing {
                let part = &rest[..end.unwrap_or(rest.len())];
                scan.feed(part);
                self.out.extend_from_slice(part);
                rest = &rest[part.len()..];
                if end.is_some()
                    && let Some(scan) = peer.passing.take()
                {
                    self.quiet();
                    self.heard(at, &scan.finish(), None);
                }
            } else if let Some(end) = end {
                let (line, behind) = rest.split_at(end);
                rest = behind;
                if self.heard(at, &Scan::line(line), Some(line)) {
                    self.tell_client(line);
                }
            } else if rest.len() >= if first { FIRST } else { HELD } {
                if self.talks.is_some() {
                    peer.held = true;
                    break;
                }
                peer.passing = Some(Scan::new());
                self.talks = Some(peer.number);
            } else {
                break;
            }
        }
        let rest = rest.to_vec();
        self.peers[at].input = rest;
    }

    /// Records a daemon's message, and returns whether it is for the client. A long one is already forwarded.
    fn heard(&mut self, at: usize, envelope: &Envelope, line: Option<&[u8]>) -> bool {
        let number = self.peers[at].number;
        for item in &envelope.items {
            match (&item.id, item.method.as_deref()) {
                (Some(id), None) if kept::is_own(id) => return false,
                (Some(id), None) => {
                    if self.kept.answered(id, number).as_deref() == Some("initialize") {
                        line.into_iter().for_each(|line| self.kept.agree(line));
                    }
                }
                (Some(id), Some(_)) => {
                    self.kept.asked = self.kept.asked.max(id.parse().unwrap_or(0));
                    self.peers[at].questions.push(id.clone());
                }
                (None, Some(LEAVING)) => {
                    let taken = line.and_then(|line| kept::param(line, "taken")?.as_u64()).unwrap_or(u64::MAX);
                    self.leave(at, taken);
                    return false;
                }
                (None, Some("notifications/cancelled")) => {
                    let id = line.and_then(|line| kept::param(line, "requestId")).map(|id| id.to_string());
                    self.peers[at].questions.retain(|question| Some(question) != id.as_ref());
                }
                (None, _) => {}
            }
        }
        true
    }

    /// Handles the notice of a daemon that stops. It still answers the first `taken` messages.
    fn leave(&mut self, at: usize, taken: u64) {
        let peer = &mut self.peers[at];
        peer.leaving = true;
        let number = peer.number;
        if let Some(passing) = &mut self.passing
            && passing.to == Some(number)
            && passing.start.index > taken
            && !passing.scan.answers().is_some_and(|id| peer.has_asked(id))
        {
            // This daemon reads no more; the next one gets the whole message. The newline keeps what follows separate.
            passing.to = None;
            peer.put(b"\n");
        }
        if self.away.is_none() {
            self.away = Some(Away { next: Instant::now(), waits: None, boot: None });
        }
        let lost = self.kept.left(number, taken);
        let peer = &mut self.peers[at];
        if peer.is_closed() {
            // The client has closed its side, so the daemon ends the session with all requests in flight.
            peer.questions.clear();
            let _ = self.kept.lost(number, peer.written);
        }
        self.settle(lost);
    }

    /// Removes the daemons that are gone.
    fn bury(&mut self) {
        while let Some(at) = self.peers.iter().position(|peer| peer.gone && !peer.held) {
            let peer = self.peers.remove(at);
            if self.talks == Some(peer.number) {
                // Ends the incomplete message that the client has.
                self.out.push(b'\n');
                self.quiet();
                self.hear_held();
            }
            for question in &peer.questions {
                self.tell_client(&kept::withdrawal(question));
            }
            if let Some(passing) = self.passing.as_mut().filter(|passing| passing.to == Some(peer.number)) {
                passing.to = None;
            }
            let lost = self.kept.lost(peer.number, peer.written);
            if !peer.leaving {
                let closing = !self.hears && self.pending.is_empty() && !self.kept.is_busy() && lost.again.is_empty();
                if peer.boot.is_none() && !closing {
                    self.source.tell("error: the host in this process has ended");
                    self.over = Some(End::Failed);
                } else if !closing {
                    self.away = Some(Away { next: Instant::now(), waits: None, boot: peer.boot });
                }
            }
            self.settle(lost);
        }
    }

    /// Sends the next daemon what a daemon did not answer, or answers it here.
    fn settle(&mut self, lost: Lost) {
        self.tell_client(&lost.answers.concat());
        if !lost.again.is_empty()
            && let Some(away) = &mut self.away
        {
            away.waits.get_or_insert_with(Instant::now);
        }
        for again in lost.again.into_iter().rev() {
            self.pending.push_front(again);
        }
        self.say_pending();
    }

    fn say_pending(&mut self) {
        let Some(current) = self.current() else { return };
        // Nothing is sent in the middle of another message.
        if self.passing.as_ref().is_some_and(|passing| passing.to == Some(self.peers[current].number)) {
            return;
        }
        while let Some(again) = self.pending.pop_front() {
            self.say(&again.line, again.seen);
        }
    }

    /// Looks for another daemon if there is none.
    fn look_around(&mut self) {
        let now = Instant::now();
        let Some(away) = self.away.as_mut().filter(|away| away.next <= now) else { return };
        // A client that has left and waits for nothing needs no daemon.
        if !self.hears && self.pending.is_empty() {
            return;
        }
        let (boot, is_wanted) = (away.boot.take(), away.waits.is_some());
        if let Some(joined) = self.source.find(self.kept.asked + APART, is_wanted) {
            if boot.as_ref() == Some(&joined.boot) {
                self.source.tell(
                    "error: the running mcp-host has cut this client off: it read too little of what was queued for it",
                );
                self.over = Some(End::Failed);
                return;
            }
            // A daemon that disconnects at once does not count.
            if self.go_on(Peer::new(self.made, joined.stream, Some(joined.boot))) || self.over.is_some() {
                return;
            }
        }
        let away = self.away.get_or_insert(Away { next: now, waits: None, boot: None });
        away.boot = boot;
        if away.waits.is_some_and(|since| now.duration_since(since) >= AWAY) {
            return self.stand_alone();
        }
        away.next = now + if away.waits.is_some() { SOON } else { LATER };
    }

    /// No daemon came back: starts a host in this process if the client is still there.
    fn stand_alone(&mut self) {
        if !self.hears {
            return self.give_up();
        }
        match self.source.own(self.kept.asked + APART) {
            Ok(stream) => {
                self.source
                    .tell("note: no mcp-host is running any more; this process has a host of its own from now on");
                self.go_on(Peer::new(self.made, stream, None));
                return;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.source.tell(&format!("error: {error}"));
                self.over = Some(End::Gone);
            }
            Err(error) => {
                self.source.tell(&format!("error: cannot start a host of its own: {error}"));
                self.over = Some(End::Failed);
            }
        }
        self.give_up();
    }

    /// Answers the messages that wait for a daemon, since none will come.
    fn give_up(&mut self) {
        for again in std::mem::take(&mut self.pending) {
            let answers = kept::endings(&Scan::line(&again.line), again.seen);
            self.tell_client(&answers);
        }
    }

    /// Resumes the session at another daemon. Returns false if that did not work.
    fn go_on(&mut self, mut peer: Peer) -> bool {
        let is_own = peer.boot.is_none();
        match peer.take_up(&self.kept).and_then(|same| peer.ready().map(|()| same)) {
            Ok(true) => {}
            Ok(false) => {
                self.source.tell("error: the running mcp-host speaks another protocol revision than the one before");
                self.over = Some(End::Failed);
                return false;
            }
            // This daemon is gone, too.
            Err(_) if !is_own => return false,
            Err(error) => {
                self.source.tell(&format!("error: the host in this process does not answer: {error}"));
                self.over = Some(End::Failed);
                return false;
            }
        }
        self.made += 1;
        self.away = None;
        self.peers.push(peer);
        let changes = self.kept.changes();
        self.tell_client(&changes);
        self.say_pending();
        self.take_said();
        true
    }
}

/// The receiver of a message.
enum To {
    Peer(usize),
    /// The next daemon to appear.
    Next,
    Nobody,
}

const LEAVING: &str = "notifications/mcp-host/leaving";
