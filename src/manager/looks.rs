//! Merged catalogs for internal use: for the status, and to route calls to unlisted names.
//!
//! A client can cause any number of these, some without an access token, so each is built once per generation: until a
//! server's state or lists change. **Invariant:** building one assigns no name to a server.

use std::collections::HashMap;
use std::sync::Arc;

use super::sight::Scope;
use super::view::Key;
use super::{Inner, lock};
use crate::registry::{Catalog, Contribution};

/// The catalogs of one generation.
#[derive(Debug, Default)]
pub(super) struct Looks {
    generation: u64,
    /// How many names without a prefix had an owner.
    owned: usize,
    catalogs: HashMap<Key, Arc<Catalog>>,
    /// How many catalogs were built in total.
    #[cfg(test)]
    made: usize,
}

/// How many catalogs are kept; at the limit, all of them are dropped.
const MOST: usize = 64;

impl Inner {
    /// Returns the merged catalog of these offers: those of all servers in the scope.
    pub(super) fn look(&self, scope: &Scope, contributions: &[Contribution]) -> Arc<Catalog> {
        let key = Key::of(scope, contributions);
        // The catalog of a client with the same view will do: its names are assigned already.
        if let Some(catalog) = lock(&self.catalogs).get(&key) {
            return catalog.clone();
        }
        let generation = *self.world.generation.borrow();
        let mut looks = lock(&self.looks);
        let owners = lock(&self.owners);
        if (looks.generation, looks.owned) != (generation, owners.count()) || looks.catalogs.len() >= MOST {
            (looks.generation, looks.owned) = (generation, owners.count());
            looks.catalogs.clear();
        }
        if let Some(catalog) = looks.catalogs.get(&key) {
            return catalog.clone();
        }
        let mut scratch = owners.clone();
        drop(owners);
        let catalog = Arc::new(Catalog::build(contributions, &self.naming, &mut scratch));
        looks.catalogs.insert(key, catalog.clone());
        #[cfg(test)]
        {
            looks.made += 1;
        }
        catalog
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::config::{Config, Server, Stdio, Transport};
    use crate::in_process::{InProcess, Running};
    use crate::manager::{Manager, News, Principal, Who};
    use crate::protocol::{Era, Profile, Raw};
    use crate::upstream::{Owner, Starter};

    impl Manager {
        /// Returns how many catalogs were built.
        pub(crate) fn looks(&self) -> usize {
            lock(&self.0.looks).made
        }
    }

    fn manager() -> (Manager, News) {
        let definition = Raw::from_value(&json!({ "name": "t", "inputSchema": { "type": "object" } }));
        let server = InProcess::new("one", "1").tool(definition, |_| async { Ok(Raw::empty_object()) }.boxed());
        let server = Running::new(server);
        let mut config = Config::default();
        config.servers.push(Server::new("one", Transport::Stdio(Stdio::default())).unwrap());
        let start: Starter = Arc::new(move |wire, tasks| server.start(wire, tasks));
        let memory = HashMap::from([("one".to_owned(), start)]);
        Manager::start(config, &memory, Raw::empty_object(), None, Default::default())
    }

    fn anybody() -> Who {
        let (principal, profile, era) = (Principal::local(), Profile::EMPTY, Era::Legacy);
        Who { owner: Owner(1), principal, profile, era, roots: None, is_one: false }
    }

    #[tokio::test(start_paused = true)]
    async fn two_looks_at_one_generation_are_one_catalog() {
        let (manager, _news) = manager();
        let who = anybody();
        let mut generation = manager.generation();
        let before = manager.once_callable(&who);
        assert_eq!(before.tools().len(), 0);
        while manager.hint().tools().is_empty() {
            generation.changed().await.unwrap();
        }
        let (first, made) = (manager.hint(), manager.looks());
        assert!(Arc::ptr_eq(&first, &manager.hint()) && Arc::ptr_eq(&first, &manager.once_callable(&who)));
        assert_eq!(manager.status()[0].tools, 1);
        assert_eq!(manager.looks(), made, "none of them made another one");
        assert!(!Arc::ptr_eq(&first, &before), "a new generation gets a new catalog");
        manager.shutdown().await;
    }

    #[cfg(feature = "server")]
    #[tokio::test(start_paused = true)]
    async fn states_are_told_without_a_catalog() {
        let (manager, _news) = manager();
        let states: Vec<_> = manager.states().into_iter().map(|server| (server.name, server.required)).collect();
        assert_eq!((states, manager.looks()), (vec![("one".to_owned(), false)], 0));
        manager.shutdown().await;
    }
}
