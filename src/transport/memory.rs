//! A server that runs inside this process: messages cross by value; nothing is serialized or parsed.

use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use tokio::sync::mpsc;

use super::Error;
use crate::protocol::Message;

/// The method of a notification with which a server in this process asks to close the stream of its call for a while;
/// it never appears on a real wire.
pub(crate) const HANG_UP: &str = "mcp-host/hangUp";
/// The maximum number of queued messages per direction.
const QUEUE: usize = 1024;

/// The host's writing end.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    out: mpsc::Sender<Message>,
    refusal: Refusal,
    #[cfg(test)]
    mute: Arc<AtomicBool>,
}

/// The error that refuses every sent message, if set, as servers behind a URL do. Only simulated servers set it.
pub(crate) type Refusal = Arc<ArcSwapOption<Error>>;

/// A message from a server, with the id of the request on whose behalf it is sent, if known. No real wire carries that
/// id.
pub(crate) type MemoryMessage = (Option<u64>, Message);

/// The server's end of the link.
#[derive(Debug)]
pub(crate) struct Wire {
    /// Messages to the host.
    pub(crate) out: mpsc::Sender<MemoryMessage>,
    /// Messages from the host.
    pub(crate) input: mpsc::Receiver<Message>,
    /// Set to refuse the host's messages.
    #[cfg_attr(not(test), expect(dead_code, reason = "for simulated servers"))]
    pub(crate) refusal: Refusal,
    /// Hides the requests that messages belong to, as a pipe does.
    #[cfg(test)]
    pub(crate) mute: Arc<AtomicBool>,
}

impl Memory {
    /// Creates a link between the host (`Self` and the receiver) and a server (the [`Wire`]).
    pub(crate) fn pair() -> (Self, mpsc::Receiver<MemoryMessage>, Wire) {
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

    /// Whether messages carry the id of the request that they belong to.
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
