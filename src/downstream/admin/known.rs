//! The state of the servers that a feed was last told, and how it differs from the current state.
//!
//! **Invariant:** a hash of each member is kept, not the member: with 50 servers, a feed holds some ten kilobytes.
//! Hashes have a random key, so that no server can choose two texts with the same hash.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};

/// Members that are ages: they differ each time, which does not count as a change.
const AGES: [&str; 2] = ["sinceMs", "lastErrorMs"];

/// The state of each server that the feed was last told, by name.
#[derive(Debug, Default)]
pub(super) struct Known {
    hashes: RandomState,
    /// All keys so far. There are some fifty.
    keys: Vec<Box<str>>,
    servers: BTreeMap<String, Server>,
}

/// The members of one server: the indexes of their keys, and hashes of their values.
#[derive(Debug)]
pub(super) struct Server(Box<[(u16, u64)]>);

/// What has changed about a server.
#[derive(Debug)]
pub(super) struct Change {
    /// The members that differ, and its name.
    pub(super) members: Box<RawValue>,
    now: Server,
}

impl Known {
    /// Returns how a server differs from the known state; `None` if nothing has changed. `members` is a JSON object.
    pub(super) fn change(&mut self, name: &str, members: &RawValue) -> Option<Change> {
        let parsed = Members::of(members);
        let now = self.server(&parsed);
        let Some(Server(before)) = self.servers.get(name) else {
            return Some(Change { members: members.to_owned(), now });
        };
        let is_new = |hashed: &(u16, u64)| !before.contains(hashed);
        let new =
            parsed.0.iter().zip(&now.0).filter(|(_, hashed)| is_new(hashed)).map(|((key, value), _)| (*key, *value));
        let gone = before.iter().filter(|(key, _)| !now.0.iter().any(|(of, _)| of == key));
        let gone = gone.filter_map(|(key, _)| self.keys.get(usize::from(*key))).map(|key| (&**key, RawValue::NULL));
        let differing: Vec<(&str, &RawValue)> = new.chain(gone).collect();
        if differing.iter().all(|(key, _)| AGES.contains(key)) {
            return None;
        }
        Some(Change { members: object(name, &differing), now })
    }

    /// Notes that the feed was told of a change.
    pub(super) fn told(&mut self, name: String, change: Change) {
        self.servers.insert(name, change.now);
    }

    /// Forgets all servers but these. Returns the names of those that are forgotten.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
        let gone: Vec<String> = self.servers.keys().filter(|name| !is_kept(name)).cloned().collect();
        gone.iter().for_each(|name| drop(self.servers.remove(name)));
        gone
    }

    /// Notes that the feed was told of all servers, each with its members.
    pub(super) fn begin<'a>(&mut self, servers: impl Iterator<Item = (&'a str, &'a RawValue)>) {
        self.servers.clear();
        for (name, members) in servers {
            let server = self.server(&Members::of(members));
            self.servers.insert(name.to_owned(), server);
        }
    }

    fn server(&mut self, Members(members): &Members<'_>) -> Server {
        let Self { hashes, keys, .. } = self;
        let mut place = |key: &str| {
            let known = keys.iter().position(|known| **known == *key);
            let place = known.unwrap_or_else(|| {
                keys.push(key.into());
                keys.len() - 1
            });
            u16::try_from(place).unwrap_or(u16::MAX)
        };
        Server(members.iter().map(|(key, value)| (place(key), hashes.hash_one(value.get()))).collect())
    }
}

/// Writes an object with the name of a server and these members.
fn object(name: &str, members: &[(&str, &RawValue)]) -> Box<RawValue> {
    let mut object = BTreeMap::from([("name", to_raw_value(name).unwrap_or_default())]);
    object.extend(members.iter().filter(|(key, _)| *key != "name").map(|(key, value)| (*key, (*value).to_owned())));
    // Every key is a string.
    to_raw_value(&object).unwrap_or_default()
}

/// The members of an object, in their order. Their keys are names of fields, which have no escapes.
#[derive(Default)]
struct Members<'a>(Vec<(&'a str, &'a RawValue)>);

impl<'a> Members<'a> {
    fn of(object: &'a RawValue) -> Self {
        serde_json::from_str(object.get()).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reads)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        to_raw_value(value).unwrap()
    }

    /// Tells a feed of a server, and returns what it gets.
    fn tell(known: &mut Known, server: &Value) -> Option<Value> {
        let name = server["name"].as_str().unwrap();
        let change = known.change(name, &raw(server))?;
        let told = serde_json::from_str(change.members.get()).unwrap();
        known.told(name.to_owned(), change);
        Some(told)
    }

    #[test]
    fn a_feed_is_told_what_differs_and_no_ages() {
        let mut known = Known::default();
        let first = json!({ "name": "a", "state": "idle", "sinceMs": 1, "calls": 0, "lastError": "x" });
        assert_eq!(tell(&mut known, &first), Some(first.clone()));
        assert_eq!(tell(&mut known, &first), None);
        let older = json!({ "name": "a", "state": "idle", "sinceMs": 2, "calls": 0, "lastError": "x" });
        assert_eq!(tell(&mut known, &older), None);
        let other = json!({ "name": "a", "state": "connected", "sinceMs": 0, "calls": 0, "pids": [7] });
        let expected = json!({ "name": "a", "state": "connected", "sinceMs": 0, "lastError": null, "pids": [7] });
        assert_eq!(tell(&mut known, &other), Some(expected));
        assert_eq!(tell(&mut known, &other), None);
        assert_eq!(tell(&mut known, &json!({ "name": "b" })), Some(json!({ "name": "b" })));
        assert_eq!(known.keep(|name| name == "b"), ["a"]);
        assert_eq!(tell(&mut known, &other), Some(other), "it is a new one");
    }

    #[test]
    fn a_change_that_nobody_was_told_of_is_told_the_next_time() {
        let mut known = Known::default();
        let (before, after) = (json!({ "name": "a", "calls": 1 }), json!({ "name": "a", "calls": 2 }));
        known.begin([("a", &*raw(&before))].into_iter());
        assert!(known.change("a", &raw(&after)).is_some());
        assert_eq!(tell(&mut known, &after), Some(after.clone()));
        assert_eq!(tell(&mut known, &after), None);
    }

    proptest! {
        /// All changes together give the current state of a server, except for its ages.
        #[test]
        fn changes_together_are_the_server(steps in prop::collection::vec(prop::collection::btree_map("[a-d]|sinceMs", 0..3_u8, 0..5), 1..20)) {
            let (mut known, mut seen) = (Known::default(), Map::new());
            for step in steps {
                let mut server = json!({ "name": "a" });
                step.iter().for_each(|(key, value)| server[key] = (*value).into());
                let Value::Object(told) = tell(&mut known, &server).unwrap_or_else(|| json!({})) else { panic!() };
                for (key, value) in told {
                    if value.is_null() { seen.remove(&key) } else { seen.insert(key, value) };
                }
                let without = |of: &Map<String, Value>| of.iter().filter(|(key, _)| *key != "sinceMs").map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>();
                prop_assert_eq!(without(&seen), without(server.as_object().unwrap()));
            }
        }
    }
}
