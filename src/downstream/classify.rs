//! Which era a message is of. This build speaks the revisions with a handshake; what claims a newer one is refused with
//! a sentence that names them. Pure.

use crate::protocol::{ErrorObject, Message, ProtocolVersion, Raw};

/// The member of `_meta` by which a request names its revision since 2026-07-28.
const CLAIM: &str = "io.modelcontextprotocol/protocolVersion";

/// Refuses a message that claims a revision without handshake.
pub(super) fn check_claim(message: &Message) -> Result<(), ErrorObject> {
    let params = match message {
        Message::Request(request) => request.params.as_ref(),
        Message::Notification(notice) => notice.params.as_ref(),
        Message::Response(_) => None,
    };
    let Some(params) = params else { return Ok(()) };
    // A look for the text first: nearly no message has it, and a large one is not parsed again to learn that.
    if memchr::memmem::find(params.as_bytes(), CLAIM.as_bytes()).is_none() {
        return Ok(());
    }
    let Some(claim) = params.member("_meta").and_then(|meta| meta.member(CLAIM)) else { return Ok(()) };
    match claim.read::<String>() {
        Ok(version) if ProtocolVersion::parse_handshake(&version).is_some() => Ok(()),
        Ok(version) => Err(ErrorObject::invalid_params(unsupported(&version))),
        Err(_) => Err(ErrorObject::invalid_params(format!("`{CLAIM}` is no string; {}", supported()))),
    }
}

/// The sentence about a version that this build does not speak.
pub(super) fn unsupported(version: &str) -> String {
    let version: String = version.chars().take(64).collect();
    format!("protocol version {:?} is not supported; {}", version, supported())
}

/// The supported versions, as the last part of a sentence.
fn supported() -> String {
    let names: Vec<&str> = ProtocolVersion::HANDSHAKE.iter().map(|version| version.as_str()).collect();
    format!("this build speaks {}, after `initialize`", names.join(", "))
}

/// The answer to a request that has no session yet.
pub(super) fn not_initialized(method: &str) -> ErrorObject {
    let code = crate::protocol::code::INVALID_REQUEST;
    ErrorObject::new(code, format!("`{method}` before `initialize`: only `ping` may come first"))
}

/// What `ping` is answered where no router is needed for it.
pub(super) fn pong() -> Raw {
    Raw::empty_object()
}
