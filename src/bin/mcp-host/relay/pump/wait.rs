//! Waits for the next event of a relay's loop.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::super::ends::{Ends, Ready, Source, timespec};
use super::{HELD, Pump, WAITING};

impl<S: Source> Pump<'_, S> {
    pub(super) fn wait(&self, ends: &Ends) -> io::Result<Ready> {
        let mut fds = vec![PollFd::from_borrowed_fd(ends.signal.as_fd(), PollFlags::IN)];
        let hears = self.hears && self.input.len() < HELD && self.room();
        if hears {
            fds.push(PollFd::from_borrowed_fd(ends.input.as_fd(), PollFlags::IN));
        }
        let says = !self.out.is_empty();
        if says {
            fds.push(PollFd::from_borrowed_fd(ends.output.as_fd(), PollFlags::OUT));
        }
        let mut polled = Vec::new();
        for (at, peer) in self.peers.iter().enumerate().filter(|(_, peer)| !peer.gone) {
            let mut events = PollFlags::empty();
            if self.out.len() < WAITING && self.talks.is_none_or(|talks| talks == peer.number) {
                events |= PollFlags::IN;
            }
            if peer.waiting() > 0 {
                events |= PollFlags::OUT;
            }
            // The end of a daemon that is not read now is noticed later.
            if !events.is_empty() {
                polled.push(at);
                fds.push(PollFd::from_borrowed_fd(peer.fd(), events));
            }
        }
        match poll(&mut fds, self.timeout().map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = fds.iter().map(PollFd::revents);
        let broken = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut next = |wanted: bool, flags: PollFlags| {
            wanted && events.next().is_some_and(|events| events.intersects(flags | broken))
        };
        let mut ready = Ready {
            signal: next(true, PollFlags::IN),
            input: next(hears, PollFlags::IN),
            output: next(says, PollFlags::OUT),
            ..Ready::default()
        };
        if ready.signal {
            let _ = rustix::io::read(&ends.signal, &mut [0u8; 16]);
        }
        for (at, events) in polled.into_iter().zip(events) {
            if events.contains(PollFlags::OUT) {
                ready.writable.push(at);
            }
            if events.intersects(PollFlags::IN | broken) {
                ready.readable.push(at);
            }
        }
        Ok(ready)
    }

    fn timeout(&self) -> Option<Duration> {
        let looks = self.away.as_ref().filter(|_| self.hears || !self.pending.is_empty()).map(|away| away.next);
        let next = looks.into_iter().chain(self.end).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}
