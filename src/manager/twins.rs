//! Merged tools, each of which stands for tools of several servers (`host.merge`); found once for each catalog.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use super::{Manager, lock};
use crate::config::Merge;
use crate::registry::{Catalog, Twins};

/// The merged tools of the most recent catalogs.
#[derive(Debug, Default)]
pub(super) struct Found(Mutex<VecDeque<Made>>);

#[derive(Debug)]
struct Made {
    of: Weak<Catalog>,
    groups: BTreeMap<String, Merge>,
    twins: Arc<Twins>,
    /// The catalog with the merged tools in place of those that they stand for.
    catalog: Arc<Catalog>,
}

/// For how many catalogs the merged tools are cached.
const MADE: usize = 8;

impl Manager {
    /// Reports whether the config merges any tools.
    pub(crate) fn merges(&self) -> bool {
        !self.settings().merge.is_empty()
    }

    /// Returns the merged tools of a catalog.
    pub(crate) fn twins(&self, of: &Arc<Catalog>) -> Arc<Twins> {
        self.made(of).0
    }

    /// Returns the catalog with the merged tools in place of those that they stand for.
    pub(crate) fn twinned(&self, of: &Arc<Catalog>) -> Arc<Catalog> {
        if self.merges() { self.made(of).1 } else { of.clone() }
    }

    fn made(&self, of: &Arc<Catalog>) -> (Arc<Twins>, Arc<Catalog>) {
        let settings = self.settings();
        let found = &self.listed_state().found;
        let is_it = |made: &&Made| std::ptr::eq(made.of.as_ptr(), Arc::as_ptr(of)) && made.groups == settings.merge;
        let mut made = lock(&found.0);
        made.retain(|made| made.of.strong_count() > 0);
        if let Some(made) = made.iter().find(is_it) {
            return (made.twins.clone(), made.catalog.clone());
        }
        let twins = Arc::new(Twins::of(of, &settings.merge, &Arc::new(settings.naming.clone())));
        let catalog = if twins.is_empty() { of.clone() } else { Arc::new(of.with_twins(&twins)) };
        let over = (made.len() + 1).saturating_sub(MADE);
        made.drain(..over);
        let groups = settings.merge.clone();
        made.push_back(Made { of: Arc::downgrade(of), groups, twins: twins.clone(), catalog: catalog.clone() });
        (twins, catalog)
    }
}
