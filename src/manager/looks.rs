//! Merged catalogs for internal use: for the status, and to route calls to unlisted names.
//!
//! Clients can cause any number of these merges, some without an access token, so each catalog is merged once and
//! cached until lists change. Merging many lists takes long, so only callers that need the same catalog wait for it.
//! **Invariant:** such a merge assigns no name to a server.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::sight::Scope;
use super::view::Key;
use super::{Inner, Manager, Server, lock};
use crate::registry::{Catalog, Kind, Lens, Part};

/// The catalogs of one generation.
#[derive(Debug, Default)]
pub(super) struct Looks {
    generation: u64,
    /// How many names without a prefix were assigned to servers when these catalogs were merged.
    owned: usize,
    catalogs: HashMap<Key, Place>,
    /// What views show, each with the catalog that it was made from.
    seen: HashMap<Key, (Arc<Catalog>, Place)>,
    /// How many catalogs were merged in total.
    #[cfg(test)]
    made: usize,
}

/// The slot of a catalog: the first caller that finds it empty merges the catalog, without locking the table.
type Place = Arc<OnceLock<Arc<Catalog>>>;

/// How many catalogs are kept; at the limit, all of them are dropped.
const MOST: usize = 64;

impl Inner {
    /// Returns the merged catalog of these parts: those of all servers in the scope.
    pub(super) fn look(&self, scope: &Scope, parts: &[Arc<Part>]) -> Arc<Catalog> {
        if let Some(lens) = &scope.lens {
            return self.look_through(scope, lens, parts);
        }
        let key = Key::of(scope, parts);
        // The catalog of a client with the same view will do: its names are assigned already.
        let (generation, most) = (*self.world.generation.borrow(), self.limits.load().catalogs);
        if let Some(catalog) = lock(&self.catalogs).get(&key, generation, most) {
            return catalog;
        }
        let mut looks = lock(&self.looks);
        let owners = lock(&self.owners);
        if (looks.generation, looks.owned) != (generation, owners.count()) || looks.catalogs.len() >= MOST {
            // A change of state alone leaves the lists as they are.
            let same = looks.catalogs.remove(&key).filter(|_| looks.owned == owners.count());
            (looks.generation, looks.owned) = (generation, owners.count());
            looks.catalogs.clear();
            looks.seen.clear();
            looks.catalogs.extend(same.map(|same| (key.clone(), same)));
        }
        let (place, mut scratch) = (looks.catalogs.entry(key).or_default().clone(), owners.clone());
        drop((owners, looks));
        let merge = || {
            #[cfg(test)]
            {
                lock(&self.looks).made += 1;
            }
            Arc::new(Catalog::merge(parts, &self.naming, &mut scratch))
        };
        place.get_or_init(merge).clone()
    }

    /// Returns what a view shows of the merged catalog of these parts.
    fn look_through(&self, scope: &Scope, lens: &Arc<Lens>, parts: &[Arc<Part>]) -> Arc<Catalog> {
        let whole = self.look(&scope.whole(), parts);
        let key = Key::of(scope, parts);
        let mut looks = lock(&self.looks);
        let known = looks.seen.get(&key).filter(|(of, _)| Arc::ptr_eq(of, &whole));
        let place = match known {
            Some((_, place)) => place.clone(),
            None => {
                if looks.seen.len() >= MOST {
                    looks.seen.clear();
                }
                let place = Place::default();
                looks.seen.insert(key, (whole.clone(), place.clone()));
                place
            }
        };
        drop(looks);
        place.get_or_init(|| Arc::new(whole.through(lens))).clone()
    }
}

impl Manager {
    /// Returns the server that lists this name, even if clients are not shown its definition. `None` if the view would
    /// not show the name, or if no server withholds definitions.
    pub(super) fn withholder<'a>(
        &self,
        (kind, name): (Kind, &str),
        scope: &Scope,
        servers: &'a [Arc<Server>],
    ) -> Option<&'a Arc<Server>> {
        if !servers.iter().any(|server| server.is_strict()) {
            return None;
        }
        let all = self.0.look(scope, &self.parts(&Scope::default(), Self::offer_of_any));
        let server = all.entry(kind, name)?.server().clone();
        servers.iter().find(|own| own.config.alias == server)
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
    use crate::registry::Kind;
    use crate::upstream::{Owner, Starter};

    impl Manager {
        /// Returns how many catalogs were merged for internal use.
        pub(crate) fn looks(&self) -> usize {
            lock(&self.0.looks).made
        }

        /// Returns how many catalogs were merged for clients.
        fn views(&self) -> usize {
            lock(&self.0.catalogs).made()
        }
    }

    fn manager() -> (Manager, News) {
        manager_of(&["one"])
    }

    /// Starts a manager of servers with one tool each.
    fn manager_of(names: &[&str]) -> (Manager, News) {
        let (mut config, mut memory) = (Config::default(), HashMap::new());
        for name in names {
            let definition = Raw::from_value(&json!({ "name": "t", "inputSchema": { "type": "object" } }));
            let server = InProcess::new(name, "1").tool(definition, |_| async { Ok(Raw::empty_object()) }.boxed());
            let server = Running::new(server);
            config.servers.push(Server::new(name, Transport::Stdio(Stdio::default())).unwrap());
            let start: Starter = Arc::new(move |wire, tasks| server.start(wire, tasks));
            memory.insert((*name).to_owned(), start);
        }
        Manager::start(config, &memory, Raw::empty_object(), None, Default::default())
    }

    fn anybody() -> Who {
        let (principal, profile, era) = (Principal::local(), Profile::EMPTY, Era::Legacy);
        Who {
            owner: Owner(1),
            principal,
            profile,
            era,
            roots: None,
            is_one: false,
            view: Default::default(),
            claims: Default::default(),
            lists: Default::default(),
        }
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

    const MANY: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

    #[tokio::test(start_paused = true)]
    async fn servers_that_come_together_are_merged_once() {
        let (manager, _news) = manager_of(&MANY);
        let who = anybody();
        manager.prepare(&who).await;
        assert_eq!((manager.views(), manager.looks()), (0, 0), "nobody has asked for a catalog");
        assert!(*manager.generation().borrow() >= MANY.len() as u64);
        let view = manager.view(&who);
        assert_eq!((view.shown.tools().len(), manager.views()), (MANY.len(), 1));
        let tools: usize = manager.status().iter().map(|server| server.tools).sum();
        assert!(manager.once_callable(&who).entry(Kind::Tools, "l__t").is_some());
        assert_eq!((tools, manager.views(), manager.looks()), (MANY.len(), 1, 0));
        // A change of state is no change of a list.
        manager.touch();
        assert!(Arc::ptr_eq(&manager.view(&who).shown, &view.shown));
        assert_eq!((manager.status().len(), manager.views(), manager.looks()), (MANY.len(), 1, 0));
        manager.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_comes_later_leaves_what_the_others_show() {
        let (manager, _news) = manager_of(&MANY);
        let who = anybody();
        let mut generation = manager.generation();
        let mut before = manager.view(&who).shown;
        while before.tools().len() < MANY.len() {
            generation.changed().await.unwrap();
            let now = manager.view(&who).shown;
            for tool in before.tools() {
                let same = now.entry(Kind::Tools, tool.name());
                assert!(same.is_some_and(|same| same.is_one_with(tool)), "{} was made again", tool.name());
            }
            assert_eq!(manager.status().iter().map(|server| server.tools).sum::<usize>(), now.tools().len());
            before = now;
        }
        assert!(manager.views() <= MANY.len() + 1, "one for each list that differs: {}", manager.views());
        assert_eq!(manager.looks(), 0, "the status takes what clients see");
        manager.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_client_sees_any_more_is_dropped() {
        let (manager, _news) = manager_of(&MANY);
        let who = anybody();
        let mut generation = manager.generation();
        let mut old = Vec::new();
        while manager.view(&who).shown.tools().len() < MANY.len() {
            old.push(Arc::downgrade(&manager.view(&who).shown));
            generation.changed().await.unwrap();
        }
        assert!(old.len() > 1 && old.iter().all(|old| old.upgrade().is_none()));
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
