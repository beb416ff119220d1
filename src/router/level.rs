//! The severity levels of log messages.

/// The severity of a log message: an index into [`LEVELS`].
pub(super) type Level = u8;

/// The levels of `logging/setLevel`, least severe first.
pub(super) const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The level for a client that set none: `info`.
pub(super) const DEFAULT_LEVEL: Level = 1;
