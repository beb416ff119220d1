//! `host.otel`: where to send traces and metrics.

use url::Url;

use super::super::fields::Field;
use super::super::report::Report;
use super::super::secret::Secret;

/// Where to send traces and metrics, with OTLP over HTTP.
///
/// ```
/// use mcp_host::config::Otel;
///
/// let otel = Otel::default().endpoint("http://127.0.0.1:4318".parse()?);
/// assert!(otel.traces && otel.metrics && !otel.arguments);
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Otel {
    /// The collector. `/v1/traces` and `/v1/metrics` are added to its path.
    pub endpoint: Option<Url>,
    /// Headers of each request to it.
    pub headers: Vec<(String, Secret)>,
    /// Whether spans are sent.
    pub traces: bool,
    /// Whether metrics are sent.
    pub metrics: bool,
    /// Which calls have spans.
    pub sample: Sample,
    /// Whether spans contain arguments and results, with secrets masked.
    pub arguments: bool,
}

/// Which calls have spans.
///
/// ```
/// assert_eq!(mcp_host::config::Sample::default(), mcp_host::config::Sample::Parent);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sample {
    /// Calls whose client records its trace, and calls that belong to no trace.
    #[default]
    Parent,
    /// All calls.
    Always,
    /// No calls.
    Never,
}

impl Default for Otel {
    fn default() -> Self {
        let (headers, sample) = Default::default();
        Self { endpoint: None, headers, traces: true, metrics: true, sample, arguments: false }
    }
}

impl Otel {
    /// Sets the collector.
    #[must_use]
    pub fn endpoint(self, endpoint: Url) -> Self {
        Self { endpoint: Some(endpoint), ..self }
    }
}

const KEYS: [&str; 6] = ["arguments", "endpoint", "headers", "metrics", "sample", "traces"];
const SAMPLES: [(&str, Sample); 3] = [("parent", Sample::Parent), ("always", Sample::Always), ("never", Sample::Never)];

/// Reads `host.otel`. A build that cannot send anything refuses the key.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Option<Otel> {
    let mut fields = field.fields(report)?;
    let mut otel = Otel::default();
    if let Some(endpoint) = fields.take(&["endpoint"], report) {
        let url = endpoint.text(report).map(Url::parse);
        match url {
            Some(Ok(url)) if matches!(url.scheme(), "http" | "https") && url.has_host() => match url.port() {
                Some(4317) => {
                    let problem = report.problem(endpoint.at, &endpoint.path, "port 4317 is that of gRPC");
                    problem.help("use http/protobuf, port 4318");
                }
                _ => otel.endpoint = Some(url),
            },
            Some(_) => {
                let problem = report.problem(endpoint.at, &endpoint.path, "not a URL of a collector");
                problem.help("write one such as \"http://127.0.0.1:4318\"");
            }
            None => {}
        }
    }
    if let Some(headers) = fields.take(&["headers"], report) {
        for (name, value) in headers.entries(report) {
            let Some(text) = value.text(report) else { continue };
            let is_header = http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(text).is_ok();
            if is_header {
                otel.headers.push((name.to_owned(), Secret::new(text)));
            } else {
                report.problem(value.at, &value.path, "not a header");
            }
        }
    }
    for (key, flag) in
        [("traces", &mut otel.traces), ("metrics", &mut otel.metrics), ("arguments", &mut otel.arguments)]
    {
        if let Some(wanted) = fields.take(&[key], report).and_then(|field| field.flag(report)) {
            *flag = wanted;
        }
    }
    if let Some(sample) = fields.take(&["sample"], report).and_then(|field| field.choice(&SAMPLES, report)) {
        otel.sample = sample;
    }
    fields.finish(&KEYS, report);
    if !cfg!(feature = "otel") {
        let problem = report.problem(field.at, &field.path, "this build sends no traces and no metrics");
        problem.help("build mcp-host with the cargo feature `otel`, or let Prometheus read /metrics");
        return None;
    }
    Some(otel)
}
