//! Writes what `initialize` agreed with a client as bytes. A session's id holds these bytes, so that mcp-host can
//! restore the client after a restart, or after it dropped the session. A request that the client made before gets its
//! answer here, too.
//!
//! The bytes are: the version of the format (1), the revision, the profile, how tools are listed, and three texts, each
//! after its length: the client's name, its version, and its extensions. **Invariant:** only bytes that
//! [`Handshake::write`] made are read; anything else is refused as a whole.

use super::Router;
use super::answer::Failure;
use super::client::{Abilities, Client};
use super::presence::Named;
use crate::manager::Lists;
use crate::protocol::{Method, Outcome, Profile, ProtocolVersion, Raw};

/// What `initialize` agreed with a client.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(super) abilities: Abilities,
    pub(super) named: Named,
    /// How its tools are listed.
    pub(super) lists: Lists,
}

/// The version of the format. Each change of the format gets a new number.
const FORM: u8 = 1;
/// The numbers of the revisions.
const REVISIONS: [(u8, ProtocolVersion); 4] = [
    (1, ProtocolVersion::V2024_11_05),
    (2, ProtocolVersion::V2025_03_26),
    (3, ProtocolVersion::V2025_06_18),
    (4, ProtocolVersion::V2025_11_25),
];
/// The numbers of the ways to list tools.
const LISTS: [(u8, Lists); 2] = [(0, Lists::Full), (1, Lists::Search)];

impl Handshake {
    /// Returns the answer to a request that a client made before it was restored, and that was never answered.
    pub(crate) fn lost(router: &Router, client: &Client, method: &Method) -> Outcome {
        router.0.finish.written(client, method, Err(Failure::of_before().of_host()))
    }

    /// Reads a handshake from all of `bytes`; `None` if they are anything else.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (&[form, revision, profile, lists], mut rest) = bytes.split_first_chunk::<4>()?;
        let [name, version, extensions] = [text(&mut rest)?, text(&mut rest)?, text(&mut rest)?];
        if form != FORM || !rest.is_empty() {
            return None;
        }
        let revision = REVISIONS.iter().find(|(number, _)| *number == revision)?.1;
        let lists = LISTS.iter().find(|(number, _)| *number == lists)?.1;
        let extensions = match extensions {
            "" => None,
            text => Some(Raw::parse(&text.to_owned().into()).ok().filter(Raw::is_object)?),
        };
        let abilities = Abilities { revision, profile: Profile::from_bits(profile), extensions };
        Some(Self { abilities, named: Named::new(name, Some(version)), lists })
    }
}

impl Client {
    /// Writes what the client's `initialize` agreed, for [`Handshake::read`]. Returns false if that cannot be kept as
    /// bytes.
    pub(crate) fn write_handshake(&self, bytes: &mut Vec<u8>) -> bool {
        let head = (self.revision(), self.profile(), self.who.lists);
        write(head, &self.named, self.extensions(), bytes)
    }
}

/// Returns false if it cannot be kept as bytes: there is no session, or a text is far longer than any id.
fn write(
    (revision, profile, lists): (ProtocolVersion, Profile, Lists),
    named: &Named,
    extensions: Option<&Raw>,
    bytes: &mut Vec<u8>,
) -> bool {
    let revision = REVISIONS.iter().find(|(_, known)| *known == revision);
    let lists = LISTS.iter().find(|(_, known)| *known == lists);
    let (Some((revision, _)), Some((lists, _))) = (revision, lists) else { return false };
    bytes.extend_from_slice(&[FORM, *revision, profile.to_bits(), *lists]);
    let [name, version] = named.texts();
    [name, version, extensions.map_or("", Raw::as_str)].into_iter().all(|text| {
        let Ok(length) = u16::try_from(text.len()) else { return false };
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        true
    })
}

/// Removes the first text from `rest` and returns it.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    let (text, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(head: (ProtocolVersion, Profile, Lists), named: &Named, extensions: Option<&Raw>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        write(head, named, extensions, &mut bytes).then_some(bytes)
    }

    /// What was written before must be read after an update.
    #[test]
    fn the_form_stays_as_it_is() {
        let named = Named::new("cli", Some("1.2"));
        let head = (ProtocolVersion::V2025_11_25, Profile::ROOTS.with(Profile::ELICITATION_FORM), Lists::Search);
        let extensions = Raw::trusted("{}".to_owned().into());
        let written = bytes(head, &named, Some(&extensions)).unwrap();
        assert_eq!(written, b"\x01\x04\x11\x01\0\x03cli\0\x031.2\0\x02{}");
        assert!(bytes((ProtocolVersion::V2026_07_28, Profile::EMPTY, Lists::Full), &named, None).is_none());
        assert!(bytes((ProtocolVersion::V2025_11_25, Profile::EMPTY, Lists::ByView), &named, None).is_none());
        let long = Raw::trusted(format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 16)).into());
        assert!(bytes((ProtocolVersion::V2025_11_25, Profile::EMPTY, Lists::Full), &named, Some(&long)).is_none());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            revision in 0usize..4,
            bits in any::<u8>(),
            searches in any::<bool>(),
            name in "\\PC{0,20}",
            version in "\\PC{0,20}",
            extensions in proptest::option::of("[a-z]{1,8}"),
        ) {
            let head = (REVISIONS[revision].1, Profile::from_bits(bits), if searches { Lists::Search } else { Lists::Full });
            let extensions = extensions.map(|key| Raw::trusted(format!("{{\"{key}\":{{}}}}").into()));
            let written = bytes(head, &Named::new(&name, Some(&version)), extensions.as_ref()).unwrap();
            let read = Handshake::read(&written).unwrap();
            prop_assert_eq!((read.abilities.revision, read.abilities.profile, read.lists), head);
            prop_assert_eq!(read.named.texts(), [&*name, &*version]);
            prop_assert_eq!(read.abilities.extensions.as_ref().map(Raw::as_str), extensions.as_ref().map(Raw::as_str));
            // Nothing shorter, longer, or of another form is read.
            for end in 0..written.len() {
                prop_assert!(Handshake::read(&written[..end]).is_none());
            }
            prop_assert!(Handshake::read(&[&written[..], b"x"].concat()).is_none());
            prop_assert!(Handshake::read(&[&[FORM + 1], &written[1..]].concat()).is_none());
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Handshake::read(&bytes);
        }
    }
}
