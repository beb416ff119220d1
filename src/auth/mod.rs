//! Signing in to servers: what a refusal says, where tokens come from, who may have them.
//!
//! In: the answer of a server that wants credentials. **Invariant:** nothing a server says is believed before it was checked,
//! and no token, code or secret is ever in a message. Start reading at `challenge.rs`.

mod challenge;

pub use challenge::{Challenge, MalformedChallenge, challenges};
