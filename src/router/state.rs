//! `requestState`: what a client without a session sends back together with its answers to the host's questions
//! (2026-07-28, multi round-trip requests). It is sealed, bound to the principal and to the request, and expires.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::boot::Boot;
use crate::config::HostSettings;
use crate::manager::Principal;
use crate::protocol::{ErrorObject, Method, Raw};
use crate::seal::{Purpose, Seal};

/// The content that is sealed in a `requestState`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Envelope {
    state: State,
    digest: String,
    /// When the state expires, in seconds since 1970.
    expires: u64,
    /// The host whose memory has what the state means; `None` if any host of a cluster can go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    home: Option<String>,
}

/// What the client's next request continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// A parked call: its number, and how often its client was sent away with questions.
    Parked { call: u64, round: u32 },
    /// The questions of a server without sessions. `state` is the server's own `requestState`, if it gave one. `permit`
    /// is the number of the question to a person that the request was allowed by, if a rule wanted one.
    Relay {
        server: String,
        state: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        permit: Option<u64>,
    },
    /// A server wanted web pages visited before it did anything. The call is sent anew; `keys` are those of the
    /// questions.
    Afresh { keys: Vec<String> },
    /// The client was asked for its roots before anything was sent.
    Roots,
    /// The client was asked whether the request may be sent, because this rule wants that.
    Permission { ask: u64, rule: String },
    /// The client was shown the page where a person decides whether the request may be sent, because this rule wants that.
    Person { ask: u64, rule: String },
    /// The client was invited to sign in to the server. `why` is the text of the failure if it declines.
    #[cfg(feature = "server")]
    SignIn { invitation: u64, why: String },
}

impl State {
    /// Reports whether the state means something in the memory of the host that made it.
    fn is_bound(&self) -> bool {
        match self {
            Self::Parked { .. } | Self::Permission { .. } | Self::Person { .. } => true,
            #[cfg(feature = "server")]
            Self::SignIn { .. } => true,
            Self::Relay { permit, .. } => permit.is_some(),
            Self::Afresh { .. } | Self::Roots => false,
        }
    }
}

/// How much longer than asked for a state is valid, since the clocks of two processes may differ.
const SLACK: Duration = Duration::from_secs(60);

/// Returns a digest of a request's method, target, and arguments. It stays the same if the client sends them again in
/// another JSON spelling. Only arguments with numbers that no double holds, or that nest very deep, must come back byte
/// for byte.
pub(super) fn digest(method: &Method, params: &Raw) -> String {
    let [name, uri, arguments] = params.members(["name", "uri", "arguments"]);
    let mut text = method.as_str().to_owned();
    for part in [name, uri, arguments] {
        text.push('\0');
        let value = part.map(|part| part.read::<Value>().unwrap_or_else(|_| part.as_str().into()));
        // Absent arguments and an empty object are the same.
        if let Some(value) = value.filter(|value| !value.is_null() && *value != Value::Object(serde_json::Map::new())) {
            canonical(&value, &mut text);
        }
    }
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a value with sorted members and one spelling for equal numbers (RFC 8785 in spirit: `1.0` becomes `1`).
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in members {
                *out += &Value::from(key.as_str()).to_string();
                out.push(':');
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => match number.as_f64().filter(|double| double.fract() == 0.0 && double.abs() < 9e15) {
            // Adding 0 turns minus zero into zero.
            Some(whole) => *out += &format!("{:.0}", whole + 0.0),
            None => *out += &number.to_string(),
        },
        other => *out += &other.to_string(),
    }
}

/// Seals the states and task ids that clients keep for the host.
#[derive(Debug)]
pub(super) struct Sealer {
    seal: Option<Seal>,
    /// This life of the process.
    pub(super) boot: Boot,
    /// Whether other hosts open what this one seals.
    is_shared: bool,
}

impl Sealer {
    /// Creates one with a key of this process.
    #[cfg(test)]
    pub(super) fn new() -> Self {
        Self::of(&HostSettings::default())
    }

    /// Creates one with the keys of the cluster, or with one of this process if the host serves alone.
    pub(super) fn of(settings: &HostSettings) -> Self {
        let shared = settings.shared_keys();
        let seal = if shared.is_empty() { Seal::new() } else { Ok(Seal::of(&shared)) };
        let seal = seal.inspect_err(|error| tracing::error!("nothing can be sealed: {error}")).ok();
        Self { seal, boot: Boot::fresh(), is_shared: !shared.is_empty() }
    }

    /// Returns what a handle says of its host; `None` if it need not, because no other host opens it.
    pub(super) fn home(&self) -> Option<Boot> {
        self.is_shared.then_some(self.boot)
    }

    /// Reports whether what a handle means is in the memory of this host.
    pub(super) fn is_home(&self, home: Option<&str>) -> bool {
        home.is_none_or(|home| Boot::parse(home.as_bytes()) == Some(self.boot))
    }

    /// Returns the seal.
    ///
    /// # Errors
    /// When the system had no randomness for a key.
    pub(super) fn seal(&self) -> Result<&Seal, ErrorObject> {
        self.seal.as_ref().ok_or_else(|| ErrorObject::internal("the system had no randomness for a key"))
    }

    /// Returns the host whose memory has what a state means; `None` if it is of no host, or does not open.
    #[cfg(feature = "cluster")]
    pub(super) fn home_of(&self, principal: &Principal, text: &str) -> Option<Boot> {
        let opened = self.seal().ok()?.open::<Envelope>(Purpose::RequestState, principal.as_str(), text).ok()?;
        Boot::parse(opened.home?.as_bytes())
    }

    /// Seals a state for the next request.
    pub(super) fn seal_state(
        &self,
        principal: &Principal,
        state: State,
        digest: &str,
        life: Duration,
    ) -> Result<String, ErrorObject> {
        let is_bound = state.is_bound();
        self.seal_at(principal, state, digest, (life, is_bound))
    }

    /// Seals a state for the next request. With `is_bound`, it means something at this host alone.
    pub(super) fn seal_at(
        &self,
        principal: &Principal,
        state: State,
        digest: &str,
        (life, is_bound): (Duration, bool),
    ) -> Result<String, ErrorObject> {
        let home = self.home().filter(|_| is_bound).map(|boot| boot.to_string());
        let expires = expires_at(SystemTime::now(), life);
        let envelope = Envelope { state, digest: digest.to_owned(), expires, home };
        let sealed = self.seal()?.seal(Purpose::RequestState, principal.as_str(), &envelope);
        sealed.map_err(|error| ErrorObject::internal(format!("no `requestState` can be made: {error}")))
    }

    /// Reports whether a request of this principal brings a state that the host made for it.
    pub(super) fn continues(&self, principal: &Principal, method: &Method, params: &Raw) -> bool {
        let Some(sealed) = params.text("requestState") else { return false };
        self.open_state(principal, &sealed, &digest(method, params)).is_ok()
    }

    /// Opens the state that a request brings back.
    ///
    /// # Errors
    /// `-32602`: the host did not make the state for this principal and request, or it has expired.
    pub(super) fn open_state(&self, principal: &Principal, text: &str, digest: &str) -> Result<State, ErrorObject> {
        let opened = self.seal()?.open::<Envelope>(Purpose::RequestState, principal.as_str(), text);
        opened
            .ok()
            .filter(|envelope| envelope.digest == digest && is_good(envelope.expires, SystemTime::now()))
            .filter(|envelope| self.is_home(envelope.home.as_deref()))
            .map(|envelope| envelope.state)
            .ok_or_else(expired)
    }
}

/// Returns the error for a `requestState` that is invalid or has expired.
pub(super) fn expired() -> ErrorObject {
    ErrorObject::invalid_params(
        "`requestState` has expired, was altered, or is of another request; send the request anew without it \
         (whether a tool that was running has done its work is unknown)",
    )
}

/// Returns when a state that is made now expires, in seconds since 1970.
pub(super) fn expires_at(now: SystemTime, life: Duration) -> u64 {
    seconds(now + life + SLACK)
}

/// Reports whether a state has not expired.
pub(super) fn is_good(expires: u64, now: SystemTime) -> bool {
    expires >= seconds(now)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(params: &str) -> String {
        digest(&Method::ToolsCall, &Raw::parse(&params.to_owned().into()).unwrap())
    }

    #[test]
    fn a_request_that_is_written_down_again_is_the_same() {
        let first = of(r#"{"name":"t","arguments":{"a":1.0,"b":{"x":"é","y":[1e2]}},"_meta":{"progressToken":1}}"#);
        assert_eq!(first, of(r#"{"arguments":{"b":{"y":[100],"x":"\u00e9"},"a":1},"requestState":"s","name":"t"}"#));
        assert_eq!(of(r#"{"name":"t","arguments":{}}"#), of(r#"{"name":"t"}"#));
        for other in [
            r#"{"name":"u","arguments":{"a":1.0,"b":{"x":"é","y":[1e2]}}}"#,
            r#"{"name":"t","arguments":{"a":2,"b":{"x":"é","y":[1e2]}}}"#,
            r#"{"name":"t","arguments":{"a":"1","b":{"x":"é","y":[1e2]}}}"#,
            r#"{"name":"t","arguments":{"a":1,"b":{"x":"é","y":[[1e2]]}}}"#,
        ] {
            assert_ne!(first, of(other), "{other}");
        }
        // What cannot be read is no other thing that cannot be read, and not nothing.
        let huge = of(r#"{"name":"t","arguments":{"a":1e400}}"#);
        assert_ne!(huge, of(r#"{"name":"t","arguments":{"a":2e400}}"#));
        assert_ne!(huge, of(r#"{"name":"t","arguments":{}}"#));
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn h110_what_is_in_the_memory_of_one_replica_opens_there_alone() {
        use crate::config::{Cluster, PeerSource, SecretKey};

        let key = SecretKey::parse(&"ab".repeat(SecretKey::LENGTH)).unwrap();
        let cluster = Cluster::new(vec![key], PeerSource::Addresses(Vec::new()), ([127, 0, 0, 1], 1).into());
        let settings = HostSettings::default().cluster(cluster);
        let (here, there, alone) = (Sealer::of(&settings), Sealer::of(&settings), Sealer::new());
        let (principal, life) = (Principal::local(), Duration::from_secs(100));
        let relay = |permit| State::Relay { server: "s".to_owned(), state: None, permit };
        let bound = [
            State::Parked { call: 1, round: 1 },
            relay(Some(1)),
            State::Permission { ask: 1, rule: "r".to_owned() },
            State::Person { ask: 1, rule: "r".to_owned() },
            State::SignIn { invitation: 1, why: "w".to_owned() },
        ];
        for state in bound {
            let text = here.seal_state(&principal, state.clone(), "d", life).unwrap();
            assert_eq!(here.open_state(&principal, &text, "d"), Ok(state));
            // Another one would find something else under the number.
            assert_eq!(there.open_state(&principal, &text, "d").unwrap_err(), expired());
            for sealer in [&here, &there] {
                assert_eq!(sealer.home_of(&principal, &text), Some(here.boot));
                assert_eq!(sealer.home_of(&Principal::named("bob"), &text), None);
            }
        }
        for state in [relay(None), State::Roots, State::Afresh { keys: vec!["k".to_owned()] }] {
            let text = here.seal_state(&principal, state.clone(), "d", life).unwrap();
            assert_eq!(there.open_state(&principal, &text, "d"), Ok(state));
            assert_eq!(there.home_of(&principal, &text), None);
            assert!(alone.open_state(&principal, &text, "d").is_err());
        }
    }

    #[test]
    fn h46_a_state_is_good_as_long_as_it_says_and_for_its_request() {
        let (sealer, principal) = (Sealer::new(), Principal::local());
        let now = seconds(SystemTime::now());
        let state = || State::Relay { server: "s".to_owned(), state: None, permit: None };
        let open = |expires, digest: &str| {
            let envelope = Envelope { state: state(), digest: "d".to_owned(), expires, home: None };
            let text = sealer.seal().unwrap().seal(Purpose::RequestState, principal.as_str(), &envelope).unwrap();
            sealer.open_state(&principal, &text, digest)
        };
        assert_eq!(open(now + 60, "d"), Ok(state()));
        for (expires, digest) in [(now - 1, "d"), (0, "d"), (now + 60, "e")] {
            assert_eq!(open(expires, digest).unwrap_err(), expired(), "{expires} {digest}");
        }
        let life = Duration::from_secs(100);
        let sealed = sealer.seal_state(&principal, state(), "d", life).unwrap();
        let opened: Envelope = sealer.seal().unwrap().open(Purpose::RequestState, principal.as_str(), &sealed).unwrap();
        let end = now + (life + SLACK).as_secs();
        assert!((end..end + 60).contains(&opened.expires), "{opened:?}");
        assert_eq!(sealer.open_state(&Principal::named("bob"), &sealed, "d").unwrap_err(), expired());
    }
}
