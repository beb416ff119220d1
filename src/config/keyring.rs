//! Secrets that the user has put into a keyring for configs, by name: `${keyring:NAME}`.
//!
//! Who asks the keyring comes from above ([`Keyring`]), as the environment does; here is what one load asks of it. **Invariant:**
//! a load waits for the keyring once, however many values it wants, and nothing is asked for a server that is not to be
//! started.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dialect::{self, Dialect};
use super::secret::Secret;
use super::syntax::{Node, Value};

/// One load waits that long, in all (`docs/hazards.md` H77).
const PATIENCE: Duration = Duration::from_secs(10);
/// Under this name the entries for configs stand in the keyring. Our own have another one: no config can name the key that
/// tokens are encrypted with.
pub(crate) const SERVICE: &str = "mcp-host-config";

type Ask = dyn Fn(&str, Duration) -> Result<Option<Secret>, Unread> + Send + Sync;

/// What reads secrets that a config names. `Default` is none.
///
/// ```
/// use mcp_host::config::{Keyring, LoadRequest, Secret};
///
/// let mut request = LoadRequest::default().file("mcp.json");
/// request.keyring = Keyring::new(|name, _patience| Ok((name == "github").then(|| Secret::new("hunter2"))));
/// ```
#[derive(Clone, Default)]
pub struct Keyring(Option<Arc<Ask>>);

impl Keyring {
    /// One that is asked by this function: for the secret of a name, within a time. It may block.
    pub fn new(ask: impl Fn(&str, Duration) -> Result<Option<Secret>, Unread> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Asks for one; nothing where there is no keyring.
    pub(crate) fn ask(&self, name: &str, limit: Duration) -> Option<Result<Option<Secret>, Unread>> {
        self.0.as_ref().map(|ask| ask(name, limit))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Keyring" } else { "no keyring" })
    }
}

/// Why a secret could not be read, in words for people and without a value.
///
/// ```
/// use mcp_host::config::{Keyring, Unread};
///
/// let keyring = Keyring::new(|_, _| Err(Unread::All("the vault is sealed".to_owned())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// It concerns this one.
    This(String),
    /// It concerns all: this load asks for nothing more.
    All(String),
}

/// What one load asks.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    keyring: &'a Keyring,
    known: RefCell<BTreeMap<String, Result<Secret, String>>>,
    /// When the time is over.
    end: RefCell<Option<Instant>>,
    /// Why nothing more is asked.
    over: RefCell<Option<String>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(keyring: &'a Keyring) -> Self {
        Self { keyring, known: RefCell::default(), end: RefCell::default(), over: RefCell::default() }
    }

    /// The value of an entry, or why there is none.
    pub(super) fn value(&self, name: &str) -> Result<Secret, String> {
        if let Some(known) = self.known.borrow().get(name) {
            return known.clone();
        }
        let value = self.ask(name);
        self.known.borrow_mut().insert(name.to_owned(), value.clone());
        value
    }

    fn ask(&self, name: &str) -> Result<Secret, String> {
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(format!("{name:?} is no name of an entry in a keyring"));
        }
        let failed = |reason: &str| format!("{name:?} of the keyring cannot be read: {reason}");
        if let Some(reason) = &*self.over.borrow() {
            return Err(failed(reason));
        }
        let left = match *self.end.borrow() {
            Some(end) => Duration::from_secs(end.saturating_duration_since(Instant::now()).as_secs()),
            None => PATIENCE,
        };
        self.end.borrow_mut().get_or_insert_with(|| Instant::now() + PATIENCE);
        let answer = match left.is_zero() {
            true => Some(Err(Unread::All(format!("the keyring did not answer within {PATIENCE:?}")))),
            false => self.keyring.ask(name, left),
        };
        let Some(answer) = answer else {
            let instead = "use ${env:NAME} or ${file:PATH}";
            return Err(format!("this build has no keyring to take {name:?} from; {instead}"));
        };
        match answer {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(format!("the keyring has no entry {name:?} for us; put it there: {}", put(name))),
            Err(Unread::This(reason)) => Err(failed(&reason)),
            Err(Unread::All(reason)) => {
                let told = failed(&reason);
                *self.over.borrow_mut() = Some(reason);
                Err(told)
            }
        }
    }
}

/// The command that puts an entry into the keyring of this system.
fn put(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/');
    let name = if name.chars().all(plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) };
    if cfg!(target_os = "macos") {
        format!("security add-generic-password -s {SERVICE} -a {name} -w")
    } else {
        format!("secret-tool store --label={SERVICE} service {SERVICE} username {name}")
    }
}

/// The references to a keyring in a tree, as they are found when it is read: where each stands, and the name in it.
pub(super) fn named(node: &Node, (path, dialect): (&str, Dialect), found: &mut Vec<(String, String)>) {
    match &node.value {
        Value::Text(text) => {
            let mut rest = text.as_str();
            while let Some((_, _, body, after)) = dialect::next(rest, dialect) {
                found.extend(body.strip_prefix("keyring:").map(|name| (path.to_owned(), name.to_owned())));
                rest = after;
            }
        }
        Value::List(items) => items.iter().for_each(|item| named(item, (path, dialect), found)),
        Value::Object(members) => {
            for member in members {
                let path = if path.is_empty() { member.key.clone() } else { format!("{path}.{}", member.key) };
                named(&member.node, (&path, dialect), found);
            }
        }
        Value::Null | Value::Flag(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn h77_a_load_waits_for_a_keyring_once() {
        let asked: Arc<Mutex<Vec<(String, Duration)>>> = Arc::default();
        let seen = asked.clone();
        let keyring = Keyring::new(move |name, limit| {
            seen.lock().unwrap().push((name.to_owned(), limit));
            match name {
                "good" => Ok(Some(Secret::new("value"))),
                "none" => Ok(None),
                "odd" => Err(Unread::This("it is odd".to_owned())),
                _ => Err(Unread::All("it is locked".to_owned())),
            }
        });
        let load = Asked::new(&keyring);
        for _ in 0..2 {
            assert_eq!(load.value("good").unwrap().expose(), "value");
            let missing = load.value("none").unwrap_err();
            assert!(missing.starts_with("the keyring has no entry \"none\" for us; put it there: "), "{missing}");
            assert_eq!(load.value("odd").unwrap_err(), "\"odd\" of the keyring cannot be read: it is odd");
        }
        assert!(load.value("").is_err() && load.value("a\nb").is_err());
        let names = |asked: &Mutex<Vec<(String, Duration)>>| {
            asked.lock().unwrap().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&asked), ["good", "none", "odd"]);
        for name in ["slow", "other", "slow"] {
            let reason = load.value(name).unwrap_err();
            assert_eq!(reason, format!("{name:?} of the keyring cannot be read: it is locked"));
        }
        assert_eq!(names(&asked), ["good", "none", "odd", "slow"]);
        let limits: Vec<Duration> = asked.lock().unwrap().iter().map(|(_, limit)| *limit).collect();
        assert!(limits[0] == PATIENCE && limits.iter().all(|limit| *limit <= PATIENCE), "{limits:?}");
        // When the time is over, nobody is asked.
        let load = Asked::new(&keyring);
        *load.end.borrow_mut() = Some(Instant::now());
        assert!(load.value("good").unwrap_err().ends_with("the keyring did not answer within 10s"));
        assert_eq!(names(&asked).len(), 4);
    }

    #[test]
    fn what_is_to_be_typed_is_one_command() {
        assert!(put("api").ends_with(" api") || cfg!(target_os = "macos"), "{}", put("api"));
        assert!(put("a b'c; d").contains(r"'a b'\''c; d'"), "{}", put("a b'c; d"));
    }
}
