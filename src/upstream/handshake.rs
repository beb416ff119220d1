//! `initialize` and `server/discover`: what we say about ourselves, and what the server says about itself; pure.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lineage::HostId;
use crate::protocol::{ErrorObject, Profile, ProtocolVersion, Raw, Theirs, member, meta, object, string};
use crate::transport::excerpt;

/// A server's description of itself in its handshake.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) version: ProtocolVersion,
    /// `serverInfo`: shown to users; no decision depends on it.
    pub(crate) info: Raw,
    pub(crate) instructions: Option<String>,
    pub(crate) offers: Offers,
    /// `capabilities.extensions`, unchanged.
    pub(crate) extensions: Option<Raw>,
    /// The host id, if the server is a host like this one.
    pub(crate) host: Option<HostId>,
    /// How long the description may be cached, and whether for all clients; a legacy server says neither.
    pub(crate) cache: Cache,
}

/// The caching hints of a result (2026-07-28). Missing hints mean the strictest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cache {
    pub(crate) ttl: std::time::Duration,
    /// Whether the result may be shown to other clients than the one that asked.
    pub(crate) public: bool,
}

impl Cache {
    /// Combines two hints into one that satisfies both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), public: self.public && other.public }
    }

    /// Reads the caching hints in a result.
    pub(crate) fn of(result: &Raw) -> Self {
        let [ttl, scope] = result.members(["ttlMs", "cacheScope"]);
        Self {
            ttl: ttl.and_then(|ttl| ttl.read().ok()).map(std::time::Duration::from_millis).unwrap_or_default(),
            public: scope.is_some_and(|scope| scope.as_bytes() == br#""public""#),
        }
    }
}

/// The features that a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) subscribe: bool,
    pub(crate) completions: bool,
    pub(crate) logging: bool,
    /// Whether tools may run as tasks (2025-11-25: `tasks.requests.tools.call`).
    pub(crate) tasks: bool,
    /// Whether the server lists its tasks (`tasks.list`).
    pub(crate) tasks_list: bool,
    /// Whether the server reports changes of its tools.
    pub(crate) tools_changed: bool,
    /// Whether the server reports changes of its prompts.
    pub(crate) prompts_changed: bool,
    /// Whether the server reports changes of its resources.
    pub(crate) resources_changed: bool,
}

const INSTRUCTIONS: usize = 16 * 1024;

/// Returns the params of our `initialize`.
pub(super) fn params(version: ProtocolVersion, profile: Profile, client_info: &Raw) -> Raw {
    let mut capabilities = profile.to_capabilities();
    if let Some(extensions) = profile.extensions() {
        capabilities.pop();
        let comma = if capabilities.len() > 1 { "," } else { "" };
        capabilities += &format!(r#"{comma}"extensions":{extensions}}}"#);
    }
    let text = format!(r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{client_info}}}"#);
    Raw::trusted(text.into())
}

/// Returns the newest of the revisions that a server names in its error to `initialize` and that we also speak.
pub(super) fn mutual_version(error: &ErrorObject) -> Option<ProtocolVersion> {
    let supported = error.data.as_ref()?.member("supported")?;
    let supported: Vec<String> = supported.read().ok()?;
    supported.iter().filter_map(|version| ProtocolVersion::parse_handshake(version)).max()
}

/// Reads the result of `initialize`.
///
/// # Errors
/// A sentence for people, when the result has another shape or names a revision that we do not speak.
pub(super) fn read(result: &Raw) -> Result<Peer, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult<'a> {
        protocol_version: String,
        #[serde(borrow, default)]
        capabilities: Option<&'a RawValue>,
        #[serde(borrow, default)]
        server_info: Option<&'a RawValue>,
        #[serde(borrow, default)]
        instructions: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let result: InitializeResult<'_> = result.read().map_err(|error| {
        // The error may quote whatever was in the wrong place.
        format!("its answer to `initialize` is not an InitializeResult: {}", Theirs(&error.to_string()))
    })?;
    let version = ProtocolVersion::parse_handshake(&result.protocol_version).ok_or_else(|| {
        let known: Vec<&str> = ProtocolVersion::HANDSHAKE.iter().map(|version| version.as_str()).collect();
        let theirs = excerpt(result.protocol_version.as_bytes(), 20);
        format!("it speaks revision {theirs} only; this build speaks {}", known.join(", "))
    })?;
    let mut offers = result.capabilities.map(offers).unwrap_or_default();
    // The first revision has completions without a capability for them.
    offers.completions |= version == ProtocolVersion::V2024_11_05;
    Ok(Peer {
        version,
        info: result.server_info.map_or_else(Raw::empty_object, Raw::from_value),
        instructions: instructions(result.instructions),
        offers,
        extensions: result.capabilities.and_then(extensions),
        host: result.meta.and_then(host),
        cache: Cache::default(),
    })
}

/// Why the result of `server/discover` yields no peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoPeer {
    /// The result is not a DiscoverResult; some servers answer any request with some result.
    NoResult,
    /// The server names these revisions, and we speak none of them without a handshake.
    NoneOfOurs(Vec<String>),
}

/// Reads the result of `server/discover`.
pub(super) fn discovered(result: &Raw) -> Result<Peer, NoPeer> {
    let kind = result.text("resultType");
    let versions = result.member("supportedVersions").and_then(|versions| versions.read::<Vec<String>>().ok());
    let versions = versions.filter(|_| kind.is_none_or(|kind| kind == "complete")).ok_or(NoPeer::NoResult)?;
    let Some(version) = newest_modern(&versions) else { return Err(NoPeer::NoneOfOurs(versions)) };
    let capabilities = result.value_of("capabilities");
    // Drafts of the revision had `serverInfo` beside the capabilities instead of in `_meta`.
    let own = result.value_of("_meta");
    let info = own.and_then(|own| member(own, meta::SERVER_INFO));
    Ok(Peer {
        version,
        info: info.or_else(|| result.value_of("serverInfo")).map_or_else(Raw::empty_object, Raw::from_value),
        instructions: instructions(result.value_of("instructions")),
        offers: capabilities.map(offers).unwrap_or_default(),
        extensions: capabilities.and_then(extensions),
        host: own.and_then(host),
        cache: Cache::of(result),
    })
}

/// Returns the newest of these revisions that we speak without a handshake.
pub(super) fn newest_modern(versions: &[String]) -> Option<ProtocolVersion> {
    versions.iter().filter_map(|text| ProtocolVersion::parse(text)).filter(|version| version.is_modern()).max()
}

/// Returns the server's usage instructions, truncated to [`INSTRUCTIONS`] bytes.
pub(crate) fn instructions(raw: Option<&RawValue>) -> Option<String> {
    let mut text = serde_json::from_str::<String>(raw?.get()).ok().filter(|text| !text.trim().is_empty())?;
    cut(&mut text, INSTRUCTIONS);
    Some(text)
}

fn cut(text: &mut String, limit: usize) {
    let mut at = limit.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.truncate(at);
}

/// Reads the id of a host from the `_meta` in its answer.
fn host(own: &RawValue) -> Option<HostId> {
    HostId::parse(&string(member(own, meta::HOST_ID)?)?)
}

/// Returns the extensions that a server declares in its `capabilities`.
pub(super) fn extensions(capabilities: &RawValue) -> Option<Raw> {
    let extensions = member(capabilities, "extensions").filter(|value| value.get().starts_with('{'))?;
    Some(Raw::from_value(extensions))
}

/// Reads the server's capabilities; one that is not an object counts as absent.
fn offers(capabilities: &RawValue) -> Offers {
    let mut offers = Offers::default();
    for (name, value) in object(capabilities).unwrap_or_default() {
        if !value.get().starts_with('{') {
            continue;
        }
        let says = |name| member(value, name).is_some_and(|value| value.get() == "true");
        match &*name {
            "tools" => (offers.tools, offers.tools_changed) = (true, says("listChanged")),
            "prompts" => (offers.prompts, offers.prompts_changed) = (true, says("listChanged")),
            "resources" => {
                (offers.resources, offers.resources_changed) = (true, says("listChanged"));
                offers.subscribe = says("subscribe");
            }
            "completions" => offers.completions = true,
            "logging" => offers.logging = true,
            "tasks" => {
                let tools = member(value, "requests").and_then(|requests| member(requests, "tools"));
                offers.tasks = tools.and_then(|tools| member(tools, "call")).is_some();
                offers.tasks_list = member(value, "list").is_some();
            }
            _ => {}
        }
    }
    offers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h43_instructions_have_a_cap() {
        let said = |instructions: &str| {
            let result = serde_json::json!({ "protocolVersion": "2025-11-25", "instructions": instructions });
            read(&Raw::from_value(&result)).unwrap().instructions.unwrap_or_default()
        };
        for (length, kept) in [(16_383, 16_383), (16_384, 16_384), (16_385, 16_384), (5 << 20, 16_384)] {
            assert_eq!(said(&"x".repeat(length)).len(), kept);
        }
        // No character is cut in two.
        let text = said(&format!("x{}", "é".repeat(10_000)));
        assert!(text.len() == 16_383 && text.ends_with('é'));
        assert_eq!(said("  "), "");
    }

    #[test]
    fn h105_what_is_no_result_is_told_in_few_characters() {
        let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
        for result in
            [serde_json::json!(long), serde_json::json!({ "protocolVersion": { "x": 1 }, "instructions": long })]
        {
            let why = read(&Raw::from_value(&result)).unwrap_err();
            assert!(why.len() < 1024 && !why.contains(['\n', '\u{202e}']), "{} bytes: {why:.300}", why.len());
        }
    }
}
