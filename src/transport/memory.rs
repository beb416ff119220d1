//! A server in this process: messages cross by value, nothing is written or parsed.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use tokio::sync::mpsc;

use super::Error;
use crate::protocol::Message;

/// What a server in this process says to have the stream of its call closed for a while; no real wire carries it.
pub(crate) const HANG_UP: &str = "mcp-host/hangUp";
/// Messages that may wait in each direction.
const QUEUE: usize = 1024;

/// The host's writing end.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    out: mpsc::Sender<Message>,
    refusal: Refusal,
    #[cfg(test)]
    mute: Arc<AtomicBool>,
}

/// What is sent is refused with this, where there is something: as servers behind a URL do. Only simulated ones ever set it.
pub(crate) type Refusal = Arc<ArcSwapOption<Error>>;

/// A message of a server, and the request during which it is said, where it is: no real wire tells that.
pub(crate) type Said = (Option<u64>, Message);

/// One side's two ends.
#[derive(Debug)]
pub(crate) struct Wire {
    /// To the other side.
    pub(crate) out: mpsc::Sender<Said>,
    /// From the other side.
    pub(crate) input: mpsc::Receiver<Message>,
    /// How the other side is refused.
    #[cfg_attr(not(test), expect(dead_code, reason = "for simulated servers"))]
    pub(crate) refusal: Refusal,
    /// As of a pipe, it is not known during which call something is said.
    #[cfg(test)]
    pub(crate) mute: Arc<AtomicBool>,
}

impl Memory {
    /// A wire between the host (this, and the receiver) and a server (the [`Wire`]).
    pub(crate) fn pair() -> (Self, mpsc::Receiver<Said>, Wire) {
        let (to_server, input) = mpsc::channel(QUEUE);
        let (out, from_server) = mpsc::channel(QUEUE);
        let refusal = Refusal::default();
        #[cfg(test)]
        let mute = Arc::<AtomicBool>::default();
        let wire = Wire {
            out,
            input,
            refusal: refusal.clone(),
            #[cfg(test)]
            mute: mute.clone(),
        };
        let memory = Self {
            out: to_server,
            refusal,
            #[cfg(test)]
            mute,
        };
        (memory, from_server, wire)
    }

    /// Whether it tells during which call something is said.
    pub(crate) fn tells_whose(&self) -> bool {
        #[cfg(test)]
        return !self.mute.load(std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(test))]
        true
    }

    pub(crate) fn send(&self, message: Message) -> Result<(), Error> {
        if let Some(error) = &*self.refusal.load() {
            return Err(Error::clone(error));
        }
        self.out.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Overloaded(QUEUE),
            mpsc::error::TrySendError::Closed(_) => Error::Unwritten,
        })
    }
}
