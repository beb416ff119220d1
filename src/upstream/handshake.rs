//! `initialize`: what we say of ourselves, and what the server says of itself.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protocol::{ErrorObject, Profile, ProtocolVersion, Raw, member, object};

/// What a server said in its handshake.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) version: ProtocolVersion,
    /// `serverInfo`; it is shown and decides nothing.
    pub(crate) info: Raw,
    pub(crate) instructions: Option<String>,
    pub(crate) offers: Offers,
    /// `capabilities.extensions`, as it came.
    pub(crate) extensions: Option<Raw>,
}

/// The families that a server offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    pub(crate) subscribe: bool,
    pub(crate) completions: bool,
    pub(crate) logging: bool,
    /// Tools that run as tasks (2025-11-25: `tasks.requests.tools.call`).
    pub(crate) tasks: bool,
    /// `tasks.list`
    pub(crate) tasks_list: bool,
}

const INSTRUCTIONS: usize = 16 * 1024;

/// The params of our `initialize`.
pub(super) fn params(version: ProtocolVersion, profile: Profile, client_info: &Raw) -> Raw {
    let text = format!(
        r#"{{"protocolVersion":"{version}","capabilities":{},"clientInfo":{client_info}}}"#,
        profile.to_capabilities()
    );
    Raw::trusted(text.into())
}

/// The newest version that a server names in an error to `initialize`, if we speak it too.
pub(super) fn mutual_version(error: &ErrorObject) -> Option<ProtocolVersion> {
    let supported = error.data.as_ref()?.member("supported")?;
    let supported: Vec<String> = supported.read().ok()?;
    supported.iter().filter_map(|version| ProtocolVersion::parse_handshake(version)).max()
}

/// Reads the result of `initialize`.
///
/// # Errors
/// A sentence: the result has another shape, or names a revision that we do not speak.
pub(super) fn read(result: &Raw) -> Result<Peer, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        protocol_version: String,
        #[serde(borrow, default)]
        capabilities: Option<&'a RawValue>,
        #[serde(borrow, default)]
        server_info: Option<&'a RawValue>,
        #[serde(borrow, default)]
        instructions: Option<&'a RawValue>,
    }
    let wire: Wire<'_> =
        result.read().map_err(|error| format!("its answer to `initialize` is no InitializeResult: {error}"))?;
    let version = ProtocolVersion::parse_handshake(&wire.protocol_version).ok_or_else(|| {
        let known: Vec<&str> = ProtocolVersion::HANDSHAKE.iter().map(|version| version.as_str()).collect();
        format!("it speaks revision {:?} only; this build speaks {}", wire.protocol_version, known.join(", "))
    })?;
    let mut instructions = wire.instructions.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    if let Some(text) = &mut instructions {
        cut(text, INSTRUCTIONS);
    }
    let mut offers = wire.capabilities.map(offers).unwrap_or_default();
    // The first revision has completion without a capability for it.
    offers.completions |= version == ProtocolVersion::V2024_11_05;
    Ok(Peer {
        version,
        info: wire.server_info.map_or_else(Raw::empty_object, Raw::from_value),
        instructions: instructions.filter(|text| !text.trim().is_empty()),
        offers,
        extensions: wire.capabilities.and_then(extensions),
    })
}

fn cut(text: &mut String, limit: usize) {
    let mut at = limit.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    text.truncate(at);
}

/// The extensions that a server declares in its `capabilities`.
pub(super) fn extensions(capabilities: &RawValue) -> Option<Raw> {
    let extensions = member(capabilities, "extensions").filter(|value| value.get().starts_with('{'))?;
    Some(Raw::from_value(extensions))
}

/// A capability of unknown shape reads as absent.
fn offers(capabilities: &RawValue) -> Offers {
    let mut offers = Offers::default();
    for (name, value) in object(capabilities).unwrap_or_default() {
        if !value.get().starts_with('{') {
            continue;
        }
        match &*name {
            "tools" => offers.tools = true,
            "prompts" => offers.prompts = true,
            "resources" => {
                offers.resources = true;
                offers.subscribe = member(value, "subscribe").is_some_and(|subscribe| subscribe.get() == "true");
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
