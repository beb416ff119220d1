//! The levels of log lines.

/// The severity of a log line: an index into [`LEVELS`].
pub(super) type Level = u8;

/// The levels of `logging/setLevel`, least severe first.
pub(super) const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// The level of a client that set none.
pub(super) const DEFAULT_LEVEL: Level = 1;
