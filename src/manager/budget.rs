//! Checks whether a full list of tools is over its limits: on the number of tools, and on their cost in tokens.

use crate::config::CatalogSettings;
use crate::registry::Catalog;
use crate::registry::tokens::estimate;

/// Reports whether a full list is larger than `percent` percent of its limits.
pub(super) fn is_over(settings: &CatalogSettings, all: &Catalog, percent: usize) -> bool {
    let share = |most: usize| most.saturating_mul(percent) / 100;
    if all.tools().len() > share(settings.max_tools) {
        return true;
    }
    let (most, mut tokens) = (share(settings.budget), 0);
    all.tools().iter().any(|entry| {
        tokens += estimate(entry.source_text());
        tokens > most
    })
}
