//! Fair reading: a reader of one server that talks without end lets all others have their turn every [`TURN`] bytes.

/// Reading that much in one go takes well under a millisecond.
const TURN: usize = 32 * 1024;
/// A message costs more than its bytes.
const MESSAGE: usize = 512;

/// How much was read since the others had their turn.
#[derive(Debug, Default)]
pub(super) struct Turn(usize);

impl Turn {
    /// Counts bytes that were read.
    pub(super) fn bytes(&mut self, count: usize) {
        self.0 = self.0.saturating_add(count);
    }

    /// Counts a message, or what was none.
    pub(super) fn message(&mut self) {
        self.bytes(MESSAGE);
    }

    /// Lets others go first, if it is their turn.
    pub(super) async fn pass(&mut self) {
        if self.0 >= TURN {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}
