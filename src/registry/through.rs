//! Tracks the mcp-host processes (hosts) that a definition came through, so that no host lists what it offered itself.
//!
//! Two hosts that are each other's servers would list each other's lists without end. So a host that lists the
//! definitions of another host writes that host's id into them, and leaves out those that already contain its own id. A
//! server that forges such ids only hides its own definitions.

use crate::protocol::{Raw, meta};

/// Reads and writes the path of hosts (their ids, nearest first) in one server's definitions.
#[derive(Clone, Debug)]
pub(super) struct Through {
    own: Box<str>,
    peer: Option<Box<str>>,
}

/// What to do with a definition.
#[derive(Debug, PartialEq)]
pub(super) enum Passed {
    /// List it unchanged.
    Unchanged,
    /// List it in this form.
    Marked(Raw),
    /// Leave it out: it came from this host.
    Circle,
}

/// The most hosts in one path. A longer one is never set up on purpose.
const LONGEST: usize = 8;

impl Through {
    pub(super) fn new(own: &str, peer: Option<&str>) -> Self {
        Self { own: own.into(), peer: peer.map(Into::into) }
    }

    /// Decides what to do with one definition.
    pub(super) fn pass(&self, definition: &Raw) -> Passed {
        // Few definitions come through a host; the others are not parsed.
        if self.peer.is_none() && memchr::memmem::find(definition.as_bytes(), meta::HOST_PATH.as_bytes()).is_none() {
            return Passed::Unchanged;
        }
        let own = definition.member("_meta");
        let path = own.as_ref().and_then(|own| own.member(meta::HOST_PATH));
        let mut path: Vec<String> = path.and_then(|path| path.read().ok()).unwrap_or_default();
        if path.iter().any(|host| **host == *self.own) || path.len() >= LONGEST {
            return Passed::Circle;
        }
        let Some(peer) = &self.peer else { return Passed::Unchanged };
        path.insert(0, peer.to_string());
        let path = Raw::from_value(&path);
        let own = own.filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
        let own = own.with_member(meta::HOST_PATH, path.as_bytes());
        Passed::Marked(definition.with_member("_meta", own.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&text.to_owned().into()).unwrap()
    }

    fn pass(peer: Option<&str>, text: &str) -> Passed {
        Through::new("a", peer).pass(&raw(text))
    }

    #[test]
    fn a_definition_of_a_plain_server_stays_as_it_is() {
        assert_eq!(pass(None, r#"{"name":"x","_meta":{"k":1}}"#), Passed::Unchanged);
        assert_eq!(pass(None, r#"{"name":"x","_meta":{"mcp-host/path":["b"]}}"#), Passed::Unchanged);
    }

    #[test]
    fn the_way_through_hosts_is_written_down() {
        let marked = |text: &str| match pass(Some("b"), text) {
            Passed::Marked(raw) => raw.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(marked(r#"{"name":"x"}"#), r#"{"name":"x","_meta":{"mcp-host/path":["b"]}}"#);
        assert_eq!(
            marked(r#"{"_meta":{"k":1,"mcp-host/path":["c"]},"name":"x"}"#),
            r#"{"_meta":{"k":1,"mcp-host/path":["b","c"]},"name":"x"}"#
        );
        assert_eq!(marked(r#"{"_meta":{},"name":"x"}"#), r#"{"_meta":{"mcp-host/path":["b"]},"name":"x"}"#);
        assert_eq!(marked(r#"{"_meta":7,"name":"x"}"#), r#"{"_meta":{"mcp-host/path":["b"]},"name":"x"}"#);
    }

    #[test]
    fn what_came_from_this_host_is_left_out_whoever_tells_it() {
        for peer in [None, Some("b")] {
            assert_eq!(pass(peer, r#"{"name":"x","_meta":{"mcp-host/path":["c","a"]}}"#), Passed::Circle);
        }
        let long: Vec<String> = (0..LONGEST).map(|number| number.to_string()).collect();
        let long = format!(r#"{{"name":"x","_meta":{{"mcp-host/path":{}}}}}"#, Raw::from_value(&long));
        assert_eq!(pass(Some("b"), &long), Passed::Circle);
    }

    #[test]
    fn what_is_no_list_of_ids_is_none() {
        assert_eq!(pass(None, r#"{"name":"x","_meta":{"mcp-host/path":"a"}}"#), Passed::Unchanged);
        assert_eq!(pass(None, r#"{"name":"mcp-host/path"}"#), Passed::Unchanged);
    }
}
