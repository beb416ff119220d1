//! The ids of sessions. An id holds what the host needs to make the session anew: what `initialize` agreed, the view, and
//! when the session began. It is sealed for the principal, so nobody else can use it, and nobody can read or alter it
//! (`docs/hazards.md` H60).
//!
//! The body of an id is: the form (1 byte), the run of the daemon that made it (8), when it began in seconds since 1970
//! (5), random bytes (16), the view after its length (2), and the handshake. An id that would be too long for a header, or
//! that nothing could open later, is 32 random bytes in hex instead: such a session lives in memory alone. In a cluster the
//! run stands before them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::boot::Boot;
use crate::hex;
use crate::router::{Chosen, Client, Handshake, Identity};
use crate::seal::{Purpose, Seal};
use crate::sessions::{Kept, Opened, Serial};

/// Makes the ids of sessions, and opens them.
#[derive(Debug)]
pub(super) struct Handles {
    kept: Arc<Kept>,
    /// This run of the daemon.
    run: Boot,
    /// Whether ids that nothing opens say which run made them: other hosts get requests that are for this one.
    says_run: bool,
}

/// An id that was made, and what to remember of it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// What a session remembers of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The id opens: the session can be taken up again.
    Sealed {
        /// Tells it from all others.
        serial: Serial,
        /// When it began, in seconds since 1970.
        began: u64,
    },
    /// The id is random bytes: the session ends when it leaves memory.
    Bound,
}

/// What an id holds.
#[derive(Debug)]
pub(super) struct Handle {
    /// The run that made it.
    #[cfg_attr(
        not(feature = "cluster"),
        allow(dead_code, reason = "one that serves alone takes up the sessions of all runs")
    )]
    pub(super) home: Boot,
    pub(super) serial: Serial,
    /// When it began, in seconds since 1970.
    pub(super) began: u64,
    pub(super) handshake: Handshake,
}

/// The longest id, in bytes. What is longer may not fit into the headers that proxies and servers accept.
pub(super) const LONGEST: usize = 900;
/// The form of the body. Another form gets another number.
const FORM: u8 = 1;
const RUN: usize = Boot::LENGTH;
/// The digits of an id that nothing opens.
const DIGITS: usize = 64;
const TIME: usize = 5;
const RANDOM: usize = 16;
/// Stands for the view `all`, in place of the length of a name.
const ALL: u16 = u16::MAX;

impl Handles {
    /// Makes ids of this run with what `kept` has. In a cluster, `says_run`.
    pub(super) fn new(kept: Arc<Kept>, run: Boot, says_run: bool) -> Self {
        Self { kept, run, says_run }
    }

    /// Returns the run that made an id that nothing opens.
    #[cfg(feature = "cluster")]
    pub(super) fn run_of_bound(text: &[u8]) -> Option<Boot> {
        Boot::before(text, DIGITS).map(|(run, _)| run)
    }

    /// Gets ready to make ids that can be taken up again for `life`: reads the key before the first one.
    pub(super) async fn ready(&self, life: Duration) {
        if !life.is_zero() && self.kept.opened().is_none() {
            Box::pin(self.kept.load(oldest(life))).await;
        }
    }

    /// Makes the id of a new session of this client, once [`ready`](Self::ready).
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(super) fn make(&self, client: &Client, life: Duration) -> Result<Made, getrandom::Error> {
        match self.kept.opened().and_then(|opened| opened.seal.as_ref()).filter(|_| !life.is_zero()) {
            Some(seal) => self.seal(seal, client),
            None => self.bound(),
        }
    }

    /// Makes an id that nothing opens.
    fn bound(&self) -> Result<Made, getrandom::Error> {
        let mut bytes = [0; DIGITS / 2];
        getrandom::fill(&mut bytes)?;
        let mut text = if self.says_run { self.run.to_string() } else { String::new() };
        text.push_str(&hex::encode(&bytes));
        Ok(Made { text, origin: Origin::Bound })
    }

    fn seal(&self, seal: &Seal, client: &Client) -> Result<Made, getrandom::Error> {
        let mut random = [0; RANDOM];
        getrandom::fill(&mut random)?;
        let began = now();
        let mut body = Vec::with_capacity(128);
        body.push(FORM);
        body.extend_from_slice(&self.run.0);
        body.extend_from_slice(&began.to_be_bytes()[8 - TIME..]);
        body.extend_from_slice(&random);
        if !write_view(client.chosen(), &mut body) || !client.write_handshake(&mut body) {
            return self.bound();
        }
        let text = seal.seal_bytes(Purpose::Session, client.principal().as_str(), &body)?;
        if text.len() > LONGEST {
            return self.bound();
        }
        Ok(Made { text, origin: Origin::Sealed { serial: serial_of(&random), began } })
    }

    /// Opens the id that a request of this client brought. Returns `None` if it is no id that can be taken up again by this
    /// principal in this view, because it is something else, too old, or the session has ended.
    pub(super) async fn open(&self, text: &[u8], identity: &Identity, life: Duration) -> Option<Handle> {
        if life.is_zero() || text.len() > LONGEST {
            return None;
        }
        let oldest = oldest(life);
        let seal = self.kept.load(oldest).await.seal.as_ref()?;
        let text = std::str::from_utf8(text).ok()?;
        let body = seal.open_bytes(Purpose::Session, identity.principal.as_str(), text).ok()?;
        let handle = read(&body, &identity.view.name)?;
        (handle.began >= oldest && !self.has_ended(handle.serial)).then_some(handle)
    }

    /// Reports whether a session ended for good.
    pub(super) fn has_ended(&self, serial: Serial) -> bool {
        self.kept.has_ended(serial)
    }

    /// Marks a session as ended for good.
    pub(super) fn end(&self, origin: Origin, life: Duration) {
        if let Origin::Sealed { serial, began } = origin {
            self.kept.end(serial, began, oldest(life));
        }
    }

    /// Returns why ids end with this process; `None` if they do not, or if there was no session yet.
    pub(super) fn why_short(&self) -> Option<&str> {
        self.kept.opened().and_then(|Opened { why_short, .. }| why_short.as_deref())
    }
}

/// Reads the body of an id that is used in this view.
pub(super) fn read(body: &[u8], view: &Chosen) -> Option<Handle> {
    let (form, rest) = body.split_first()?;
    let (run, rest) = rest.split_first_chunk::<RUN>()?;
    let (time, rest) = rest.split_first_chunk::<TIME>()?;
    let (random, mut rest) = rest.split_first_chunk::<RANDOM>()?;
    if *form != FORM || !is_view(view, &mut rest)? {
        return None;
    }
    let began = time.iter().fold(0, |began, byte| began << 8 | u64::from(*byte));
    Some(Handle { home: Boot(*run), serial: serial_of(random), began, handshake: Handshake::read(rest)? })
}

fn serial_of(random: &[u8; RANDOM]) -> Serial {
    let (first, _) = random.split_at(8);
    first.iter().fold(0, |serial, byte| serial << 8 | Serial::from(*byte))
}

/// Writes the name of a view. Returns false if it does not fit.
fn write_view(view: &Chosen, body: &mut Vec<u8>) -> bool {
    let name = match view {
        Chosen::All => {
            body.extend_from_slice(&ALL.to_be_bytes());
            return true;
        }
        Chosen::Named(name) => name,
        // Clients at this door always have a view of a name.
        Chosen::Default => return false,
    };
    let Some(length) = u16::try_from(name.len()).ok().filter(|length| *length != ALL) else { return false };
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(name.as_bytes());
    true
}

/// Takes the name of a view off the front, and reports whether it is that of `view`.
fn is_view(view: &Chosen, rest: &mut &[u8]) -> Option<bool> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    let length = u16::from_be_bytes(*length);
    if length == ALL {
        *rest = after;
        return Some(*view == Chosen::All);
    }
    let (name, after) = after.split_at_checked(usize::from(length))?;
    *rest = after;
    Some(matches!(view, Chosen::Named(own) if own.as_bytes() == name))
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns when the oldest session began that can still be taken up again.
fn oldest(life: Duration) -> u64 {
    now().saturating_sub(life.as_secs())
}

impl Handle {
    /// Returns for how long the session has lasted.
    pub(super) fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.began))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_view_is_read_as_it_was_written() {
        let long = "v".repeat(usize::from(ALL));
        let views = [Chosen::All, Chosen::named(""), Chosen::named("a"), Chosen::named("ab"), Chosen::named("all")];
        for one in &views {
            for other in &views {
                let mut body = Vec::new();
                assert!(write_view(one, &mut body));
                body.push(7);
                let mut rest = &body[..];
                assert_eq!((is_view(other, &mut rest), rest), (Some(one == other), &[7][..]), "{one:?} {other:?}");
            }
        }
        assert!(!write_view(&Chosen::named(&long), &mut Vec::new()) && !write_view(&Chosen::Default, &mut Vec::new()));
    }

    proptest! {
        #[test]
        fn no_body_breaks_it(body in proptest::collection::vec(any::<u8>(), 0..100), named in any::<bool>()) {
            let view = if named { Chosen::named("a") } else { Chosen::All };
            prop_assert!(read(&body, &view).is_none_or(|_| body.first() == Some(&FORM)));
        }
    }
}
