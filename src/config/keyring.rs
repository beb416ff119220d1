//! Secrets that the user has put into a keyring, and to which configs refer by name: `${keyring:NAME}`.
//!
//! The function that asks the keyring is passed in ([`Keyring`]), like the environment. This file holds the lookups
//! while a config is loaded once. **Invariant:** a load waits for the keyring once, however many values it wants, and
//! never asks the keyring for a server that is not going to be started.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dialect::{self, Dialect};
use super::secret::Secret;
use super::syntax::{Node, Value};

/// How long one load of a config waits for the keyring in total (`docs/hazards.md` H77).
const PATIENCE: Duration = Duration::from_secs(10);
/// The service name of the keyring entries that configs may refer to. Our own entries have another service name, so no
/// config can read the key that encrypts tokens.
pub(crate) const SERVICE: &str = "mcp-host-config";

type Ask = dyn Fn(&str, Duration) -> Result<Option<Secret>, Unread> + Send + Sync;

/// A keyring whose secrets configs refer to by name. The `Default` stands for a build without a keyring.
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
    /// Creates a keyring from a function that looks up a secret by name within a time limit, and returns `None` if
    /// there is no secret with this name. The function may block.
    pub fn new(ask: impl Fn(&str, Duration) -> Result<Option<Secret>, Unread> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Looks up one secret. The outer `None` means that there is no keyring, the inner one that it has no such secret.
    pub(crate) fn ask(&self, name: &str, limit: Duration) -> Option<Result<Option<Secret>, Unread>> {
        self.0.as_ref().map(|ask| ask(name, limit))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Keyring" } else { "no keyring" })
    }
}

/// Why a secret could not be read. The message must contain no secret.
///
/// ```
/// use mcp_host::config::{Keyring, Unread};
///
/// let keyring = Keyring::new(|_, _| Err(Unread::All("the vault is sealed".to_owned())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// This entry cannot be read.
    This(String),
    /// No entry can be read, so this load of the config stops asking.
    All(String),
}

/// The lookups while a config is loaded once.
#[derive(Debug)]
pub(super) struct Lookups<'a> {
    keyring: &'a Keyring,
    known: RefCell<BTreeMap<String, Result<Secret, String>>>,
    /// When the load stops waiting.
    end: RefCell<Option<Instant>>,
    /// Why the load stopped asking.
    over: RefCell<Option<String>>,
}

impl<'a> Lookups<'a> {
    pub(super) fn new(keyring: &'a Keyring) -> Self {
        Self { keyring, known: RefCell::default(), end: RefCell::default(), over: RefCell::default() }
    }

    /// Returns the value of an entry, or why there is none.
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
            return Err(format!("{name:?} is not a valid name for a keyring entry"));
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

/// Returns the shell command with which the user stores an entry in this system's keyring.
fn put(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '/');
    let name = if name.chars().all(plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', r"'\''")) };
    if cfg!(target_os = "macos") {
        format!("security add-generic-password -s {SERVICE} -a {name} -w")
    } else {
        format!("secret-tool store --label={SERVICE} service {SERVICE} username {name}")
    }
}

/// Finds the references to keyring entries in a tree, by the same rules as when its variables are substituted. Adds the
/// path of each reference, and the name of its keyring entry.
pub(super) fn named(node: &Node, path: &str, dialect: Dialect, found: &mut Vec<(String, String)>) {
    match &node.value {
        Value::Text(text) => {
            let mut rest = text.as_str();
            while let Some((_, _, body, after)) = dialect::next(rest, dialect) {
                found.extend(body.strip_prefix("keyring:").map(|name| (path.to_owned(), name.to_owned())));
                rest = after;
            }
        }
        Value::List(items) => items.iter().for_each(|item| named(item, path, dialect, found)),
        Value::Object(members) => {
            for member in members {
                let path = if path.is_empty() { member.key.clone() } else { format!("{path}.{}", member.key) };
                named(&member.node, &path, dialect, found);
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
        let load = Lookups::new(&keyring);
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
        // When the time is over, the keyring is not asked.
        let load = Lookups::new(&keyring);
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
