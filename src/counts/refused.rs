//! Counts the network hosts that the sandbox of a server refused, by name. For a server that is only watched (`sandbox
//! learn`), counts every host that the server requested.
//!
//! **Invariant:** the number of names has a cap, because servers choose the names. A server without refusals costs one
//! empty `OnceLock`.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use crate::lock::lock;

/// How many names are counted separately. All others are counted as one.
const NAMES: usize = 32;
/// The name under which the others are counted.
const OTHERS: &str = "others";

/// Refused hosts with their ports, and how often each was requested.
#[derive(Debug, Default)]
pub(crate) struct Refused(OnceLock<Mutex<BTreeMap<String, u64>>>);

impl Refused {
    /// Counts a refusal. Returns whether it is the first one for its name.
    pub(crate) fn count(&self, name: &str) -> bool {
        let mut names = lock(self.0.get_or_init(Mutex::default));
        let name = if names.contains_key(name) || names.len() < NAMES { name } else { OTHERS };
        let count = names.entry(name.to_owned()).or_default();
        *count += 1;
        *count == 1
    }

    /// Returns all names with their counts.
    pub(crate) fn read(&self) -> BTreeMap<String, u64> {
        self.0.get().map(|names| lock(names).clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h108_refused_hosts_are_counted_by_name_and_have_a_cap() {
        let refused = Refused::default();
        assert!(refused.read().is_empty());
        assert!(refused.count("a:443") && !refused.count("a:443"));
        let new = (0..100).filter(|number| refused.count(&format!("b{number}:443"))).count();
        assert_eq!((new, refused.read().len()), (NAMES, NAMES + 1));
        assert_eq!(refused.read()["a:443"], 2);
        assert_eq!(refused.read()[OTHERS], 100 - (NAMES as u64 - 1));
    }
}
