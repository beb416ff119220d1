//! Policy: which requests are allowed, asked about, and denied, by the rules of `host.policy`.
//!
//! In: the rules, and who asks (`Caller`); then what is asked for (`Subject`), which is settled once for each entry of
//! a catalog (`Rules::settle`); then one request (`Facts`). Out: a [`Verdict`]. Most rules are decided before any
//! request: a call is judged only by rules that have a `when` and can match its tool.
//!
//! **Invariant:** the strictest verdict of all rules that match counts, whatever their order, and a rule whose `when` fails
//! matches if it denies or asks. Snapshots: no I/O, no clock; the same input gives the same verdict.

mod caller;
mod facts;
mod in_force;
mod judge;
mod rules;
#[cfg(test)]
#[cfg(feature = "policy")]
mod tests;
mod trial;
mod verdict;

use std::fmt;

pub(crate) use self::caller::Caller;
pub use self::facts::CallFacts;
pub(crate) use self::facts::{Facts, Kind, Subject};
pub(crate) use self::in_force::{Held, InForce};
#[cfg(feature = "server")]
pub(crate) use self::judge::DEFAULT;
#[cfg(all(test, feature = "policy"))]
pub(crate) use self::rules::Rules;
pub use self::trial::Trial;
pub use self::verdict::Verdict;
pub use crate::config::{Action, Decision, Proof};

/// A further rule, which the embedding program decides: [`HostBuilder::policy`](crate::HostBuilder).
///
/// It judges each request that the rules of the config do not deny, on the thread that serves the request, so it must
/// not block. Of its verdict and theirs, the stricter one counts.
///
/// ```
/// use mcp_host::policy::{CallFacts, Policy, Verdict};
///
/// /// Nothing is deleted on Fridays.
/// struct Fridays(fn() -> bool);
///
/// impl Policy for Fridays {
///     fn judge(&self, call: &CallFacts<'_>) -> Verdict {
///         if call.name().starts_with("delete") && (self.0)() { Verdict::deny("fridays") } else { Verdict::allow() }
///     }
/// }
/// ```
pub trait Policy: Send + Sync + 'static {
    /// Judges one request.
    fn judge(&self, call: &CallFacts<'_>) -> Verdict;
}

impl fmt::Debug for dyn Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Policy")
    }
}
