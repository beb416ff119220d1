//! The levels of log lines.

/// How much a log line matters, from `debug` to `emergency`.
pub(super) type Level = u8;

/// The levels of `logging/setLevel`, least first.
pub(super) const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// A client that set no level gets this and above.
pub(super) const DEFAULT_LEVEL: Level = 1;
