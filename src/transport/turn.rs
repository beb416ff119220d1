//! Fair reading: a task that reads from a server that never stops talking yields to all other tasks every [`TURN`]
//! bytes.

/// The bytes that are read in one turn, which takes well under a millisecond.
const TURN: usize = 32 * 1024;
/// The cost of a message in addition to its own length, in bytes.
const MESSAGE: usize = 512;

/// The bytes read since the last yield.
#[derive(Debug, Default)]
pub(super) struct Turn(usize);

impl Turn {
    /// Counts bytes that were read.
    pub(super) fn bytes(&mut self, count: usize) {
        self.0 = self.0.saturating_add(count);
    }

    /// Counts a message or another line.
    pub(super) fn message(&mut self) {
        self.bytes(MESSAGE);
    }

    /// Yields to other tasks when the turn is used up.
    pub(super) async fn pass(&mut self) {
        if self.0 >= TURN {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}
