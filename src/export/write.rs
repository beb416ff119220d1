//! Writes the metrics of one scrape, family by family, up to a number of bytes.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::families::{FAMILIES, Family};
use super::process::Process;
use super::scrape::Scrape;
use super::series::{Facts, Series};

/// The prefix of all metrics of a host.
const PREFIX: &str = "mcp_host";
/// Room for the text at the end.
const END: usize = 1024;

/// One family, as a member of the registry.
struct Member {
    family: &'static Family,
    facts: Arc<Facts>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family.name)
    }
}

impl Collector for Member {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Family { name, help, kind, series, .. } = self.family;
        let metric = encoder.encode_descriptor(name, help, None, *kind)?;
        let mut out = Series::new(metric, *kind);
        series(&self.facts, &mut out)
    }
}

/// Writes the metrics, up to `most` bytes: families of single tools are left out first, then those at the end.
pub(super) fn write(scrape: Scrape, most: usize) -> String {
    let facts = Arc::new(Facts { scrape, process: Process::now() });
    let mut text = String::new();
    let mut cut = false;
    // Writing to a string never fails.
    for family in
        FAMILIES.iter().filter(|family| !family.of_tools).chain(FAMILIES.iter().filter(|family| family.of_tools))
    {
        let mut part = String::new();
        let whole = encode_registry(&mut part, &registry(family, &facts)).is_ok();
        if whole && text.len() + part.len() + END <= most {
            text += &part;
        } else {
            cut = true;
        }
    }
    let mut end = Registry::with_prefix(PREFIX);
    let is_cut = ConstGauge::new(i64::from(cut));
    end.register("metrics_cut", "1 if the text would be larger than 8 MiB, so that series are left out", is_cut);
    let _ = encode_registry(&mut text, &end).and_then(|()| encode_eof(&mut text));
    text
}

/// Returns a registry with one family. Metrics of the process have the names that all programs use.
fn registry(family: &'static Family, facts: &Arc<Facts>) -> Registry {
    let mut registry =
        if family.name.starts_with("process_") { Registry::default() } else { Registry::with_prefix(PREFIX) };
    registry.register_collector(Box::new(Member { family, facts: facts.clone() }));
    registry
}
