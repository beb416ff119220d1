//! Which verdict counts.
