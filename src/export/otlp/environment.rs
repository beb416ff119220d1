//! OTLP settings in environment variables, which win over the config. They are only read with `host.otel`, because a
//! shell may hold the variables of another program.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use crate::config::{Otel, Sample, Secret};

/// The default timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The default collector.
const USUAL: &str = "http://127.0.0.1:4318";

/// Where spans and metrics are sent.
#[derive(Debug)]
pub(super) struct Target {
    /// `None` if no spans are sent.
    pub(super) traces: Option<Signal>,
    pub(super) metrics: Option<Signal>,
    pub(super) service: String,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) sampler: Sampler,
    pub(super) arguments: bool,
}

/// Where one signal (spans or metrics) is sent, and how.
#[derive(Debug)]
pub(super) struct Signal {
    pub(super) url: Url,
    pub(super) headers: Vec<(String, Secret)>,
    /// How long one request may take.
    pub(super) timeout: Duration,
}

/// Which calls have spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampler {
    /// Whether the client's sampling decision counts, if the client sends a trace.
    pub(super) by_parent: bool,
    /// The share of other calls that have spans, from 0 to 1.
    pub(super) share: f64,
}

impl Sampler {
    /// Reports whether a call has spans. `parent` is the client's sampling decision, if any; `trace` is the trace id.
    pub(super) fn takes(self, parent: Option<bool>, trace: u128) -> bool {
        if let (true, Some(parent)) = (self.by_parent, parent) {
            return parent;
        }
        #[expect(clippy::cast_precision_loss, reason = "a share needs no exact number")]
        let place = (trace as u64 >> 1) as f64 / (u64::MAX >> 1) as f64;
        self.share >= 1.0 || place < self.share
    }
}

impl Target {
    /// Combines config and environment. Returns `None` if the environment turns everything off.
    ///
    /// # Errors
    /// Fails if a variable has an invalid value; the error names the variable.
    pub(super) fn of(otel: &Otel, var: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let var = |name: &str| var(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if var("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        for name in ["PROTOCOL", "TRACES_PROTOCOL", "METRICS_PROTOCOL"].map(|rest| format!("OTEL_EXPORTER_OTLP_{rest}"))
        {
            match var(&name).as_deref() {
                None | Some("http/protobuf") => {}
                Some(other) => return Err(format!("{name}: {other:?} is not spoken; use http/protobuf, port 4318")),
            }
        }
        let common = match var("OTEL_EXPORTER_OTLP_ENDPOINT") {
            Some(value) => url("OTEL_EXPORTER_OTLP_ENDPOINT", &value)?,
            None => match &otel.endpoint {
                Some(endpoint) => endpoint.clone(),
                None => url("host.otel.endpoint", USUAL)?,
            },
        };
        let mut common_headers = otel.headers.clone();
        join(&mut common_headers, "OTEL_EXPORTER_OTLP_HEADERS", var("OTEL_EXPORTER_OTLP_HEADERS"))?;
        let timeout = |name: &str| {
            let parse = |value: String| {
                let wrong = || format!("{name}: {value:?} is no number of milliseconds");
                value.parse().map(Duration::from_millis).map_err(|_| wrong())
            };
            var(name).map(parse).transpose()
        };
        let common_timeout = timeout("OTEL_EXPORTER_OTLP_TIMEOUT")?.unwrap_or(TIMEOUT);
        // A setting for one signal wins over the setting for both.
        let signal = |word: &str, path: &str| {
            let own = |rest: &str| format!("OTEL_EXPORTER_OTLP_{word}_{rest}");
            let url = match var(&own("ENDPOINT")) {
                Some(value) => url(&own("ENDPOINT"), &value)?,
                None => below(&common, path),
            };
            let mut headers = common_headers.clone();
            join(&mut headers, &own("HEADERS"), var(&own("HEADERS")))?;
            let timeout = timeout(&own("TIMEOUT"))?.unwrap_or(common_timeout);
            Ok::<_, String>(Signal { url, headers, timeout })
        };
        let mut resource = BTreeMap::new();
        for (name, value) in pairs("OTEL_RESOURCE_ATTRIBUTES", var("OTEL_RESOURCE_ATTRIBUTES"))? {
            resource.insert(name, value);
        }
        let named = resource.remove("service.name");
        Ok(Some(Self {
            traces: otel.traces.then(|| signal("TRACES", "v1/traces")).transpose()?,
            metrics: otel.metrics.then(|| signal("METRICS", "v1/metrics")).transpose()?,
            service: var("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| "mcp-host".to_owned()),
            resource,
            sampler: sampler(otel.sample, var("OTEL_TRACES_SAMPLER"), var("OTEL_TRACES_SAMPLER_ARG"))?,
            arguments: otel.arguments,
        }))
    }
}

fn url(name: &str, text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| format!("{name}: not a URL of a collector; write one such as {USUAL}"))
}

/// Returns the URL of a path below another one.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}

fn sampler(sample: Sample, word: Option<String>, share: Option<String>) -> Result<Sampler, String> {
    let Some(word) = word else {
        return Ok(match sample {
            Sample::Parent => Sampler { by_parent: true, share: 1.0 },
            Sample::Always => Sampler { by_parent: false, share: 1.0 },
            Sample::Never => Sampler { by_parent: false, share: 0.0 },
        });
    };
    let by_parent = word.starts_with("parentbased_");
    let share = match word.trim_start_matches("parentbased_") {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let share = share.map_or(Ok(1.0), |share| share.parse::<f64>());
            let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
            share.ok_or("OTEL_TRACES_SAMPLER_ARG: not a number from 0 to 1")?
        }
        _ => {
            let known = "always_on, always_off, traceidratio, or one of them after parentbased_";
            return Err(format!("OTEL_TRACES_SAMPLER: {word:?} is unknown; write {known}"));
        }
    };
    Ok(Sampler { by_parent, share })
}

/// Reads `a=b,c=d`, with percent-encoded values. The values are not shown in messages: they may be secrets.
fn pairs(name: &str, text: Option<String>) -> Result<Vec<(String, String)>, String> {
    let text = text.unwrap_or_default();
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{name}: not KEY=VALUE with commas between"))?;
        let value = percent_encoding::percent_decode_str(value.trim()).decode_utf8();
        let value = value.map_err(|_| format!("{name}: the value of {:?} is no text", key.trim()))?;
        Ok((key.trim().to_owned(), value.into_owned()))
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(pair).collect()
}

/// Adds headers; of two with the same name the new one wins.
fn join(headers: &mut Vec<(String, Secret)>, name: &str, text: Option<String>) -> Result<(), String> {
    for (key, value) in pairs(name, text)? {
        if http::HeaderName::try_from(&key).is_err() || http::HeaderValue::try_from(&value).is_err() {
            return Err(format!("{name}: {key:?} is no header"));
        }
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&key));
        headers.push((key, Secret::new(value)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(otel: &Otel, vars: &[(&str, &str)]) -> Result<Option<Target>, String> {
        Target::of(otel, |name| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_environment_wins_over_the_config() {
        let otel = Otel::default().endpoint("http://collector:4318/base/".parse().unwrap());
        let plain = target(&otel, &[]).unwrap().unwrap();
        let traces = plain.traces.unwrap();
        assert_eq!(traces.url.as_str(), "http://collector:4318/base/v1/traces");
        assert_eq!((plain.service.as_str(), traces.timeout), ("mcp-host", TIMEOUT));
        let vars = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://other"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/m"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, a=b"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "A=c"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "500"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=n,team=a%2Cb"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let set = target(&otel, &vars).unwrap().unwrap();
        let (traces, metrics) = (set.traces.unwrap(), set.metrics.unwrap());
        assert_eq!((traces.url.as_str(), metrics.url.as_str()), ("https://other/v1/traces", "http://127.0.0.1:9/m"));
        assert_eq!([traces.timeout, metrics.timeout], [250, 500].map(Duration::from_millis));
        let shown = |headers: &[(String, Secret)]| {
            headers.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect::<Vec<_>>()
        };
        assert_eq!(shown(&traces.headers), ["authorization=Bearer x", "A=c"]);
        assert_eq!(shown(&metrics.headers), ["authorization=Bearer x", "a=b"]);
        assert_eq!((set.service.as_str(), set.resource["team"].as_str()), ("n", "a,b"));
        assert_eq!(set.sampler, Sampler { by_parent: true, share: 0.25 });
        assert!(target(&otel, &[("OTEL_SDK_DISABLED", "True")]).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_is_named_without_its_value() {
        let wrong = |name: &str, value: &str| target(&Otel::default(), &[(name, value)]).unwrap_err();
        assert_eq!(
            wrong("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            "OTEL_EXPORTER_OTLP_PROTOCOL: \"grpc\" is not spoken; use http/protobuf, port 4318"
        );
        assert!(
            wrong("OTEL_EXPORTER_OTLP_ENDPOINT", "collector").starts_with("OTEL_EXPORTER_OTLP_ENDPOINT: not a URL")
        );
        assert!(!wrong("OTEL_EXPORTER_OTLP_HEADERS", "hunter2").contains("hunter2"));
        assert!(!wrong("OTEL_EXPORTER_OTLP_HEADERS", "a=x%0Ahunter2").contains("hunter2"));
        assert!(wrong("OTEL_TRACES_SAMPLER", "some").contains("unknown"));
        assert!(wrong("OTEL_EXPORTER_OTLP_TIMEOUT", "soon").contains("milliseconds"));
    }

    #[test]
    fn the_client_decides_unless_the_config_does() {
        let parent = sampler(Sample::Parent, None, None).unwrap();
        assert!(parent.takes(None, 1) && parent.takes(Some(true), 1) && !parent.takes(Some(false), 1));
        let always = sampler(Sample::Always, None, None).unwrap();
        assert!(always.takes(Some(false), u128::MAX));
        let never = sampler(Sample::Never, None, None).unwrap();
        assert!(!never.takes(Some(true), 0));
        let quarter = Sampler { by_parent: false, share: 0.25 };
        let taken = (0..1024_u128).filter(|part| quarter.takes(None, part << 54)).count();
        assert_eq!(taken, 256);
    }
}
