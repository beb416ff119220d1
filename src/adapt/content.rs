//! Content for older clients: replaces content blocks and structured results that their revision does not know.
//!
//! One kind passes on purpose: audio in a tool result reaches a client of 2024-11-05 as audio, because the official
//! conformance suite requires it after that handshake too.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::protocol::value::{array, member, text};
use crate::protocol::{Edits, Method, ProtocolVersion, Raw};

/// The changes that a result needs for an older client.
#[derive(Clone, Copy)]
struct ContentGap {
    /// The kinds of blocks that the client knows; others are replaced.
    blocks: Blocks,
    /// Whether `structuredContent` is unknown to the client.
    structured: bool,
}

/// The kinds of content blocks that a client knows.
#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    /// All kinds.
    All,
    /// Text, image, audio, resource (2025-03-26).
    Audio,
    /// Text, image, resource (2024-11-05).
    Plain,
}

impl Blocks {
    fn of(revision: ProtocolVersion) -> Self {
        match revision {
            ProtocolVersion::V2024_11_05 => Self::Plain,
            ProtocolVersion::V2025_03_26 => Self::Audio,
            _ => Self::All,
        }
    }

    fn takes(self, kind: &str) -> bool {
        match kind {
            "text" | "image" | "resource" => true,
            "audio" => self != Self::Plain,
            _ => self == Self::All,
        }
    }
}

/// Rewrites a newer server's result for an older client.
pub(super) fn lowered(result: Raw, method: &Method, from: ProtocolVersion, to: ProtocolVersion) -> Raw {
    let known = to >= ProtocolVersion::V2025_06_18;
    let gap = ContentGap { blocks: Blocks::of(to), structured: !known };
    match method {
        // The official conformance suite requires audio in tool results even after a handshake of 2024-11-05, which
        // does not define audio. So audio passes in tool results, and becomes a resource in prompts.
        Method::ToolsCall if !known || from.is_modern() => {
            let blocks = if gap.blocks == Blocks::Plain { Blocks::Audio } else { gap.blocks };
            tool(result, ContentGap { blocks, ..gap })
        }
        Method::PromptsGet if gap.blocks != Blocks::All => prompt(&result, gap.blocks),
        _ => result,
    }
}

fn tool(result: Raw, gap: ContentGap) -> Raw {
    let is_unknown = |structured: Raw| gap.structured || !structured.is_object();
    // It may be large, so it is opened only if it has to be.
    let must_go = result.member("structuredContent").is_some_and(is_unknown);
    let structured = if must_go { result.value_of("structuredContent") } else { None };
    if structured.is_none() && gap.blocks == Blocks::All {
        return result;
    }
    let blocks = result.value_of("content").and_then(array).unwrap_or_default();
    let mut edits = Edits::new(&result);
    if gap.blocks != Blocks::All {
        for (index, block) in blocks.iter().enumerate() {
            lower(&mut edits, block, index, gap.blocks);
        }
    }
    let Some(structured) = structured else { return edits.apply() };
    edits.remove(result.as_value(), "structuredContent");
    let whole = serde_json::from_str::<Value>(structured.get()).ok();
    if blocks.iter().any(|block| says(block, structured, whole.as_ref())) {
        return edits.apply();
    }
    let added = Raw::from_value(&json!({ "type": "text", "text": structured.get() }));
    let lowered = edits.apply();
    let content = lowered.value_of("content").filter(|content| array(content).is_some());
    let content = content.map_or("[]", RawValue::get);
    let (head, comma) = match content[..content.len() - 1].trim_end() {
        "[" => ("[", ""),
        head => (head, ","),
    };
    lowered.with_member("content", format!("{head}{comma}{added}]").as_bytes())
}

fn prompt(result: &Raw, known: Blocks) -> Raw {
    let mut edits = Edits::new(result);
    let messages = result.value_of("messages").and_then(array).unwrap_or_default();
    for (index, message) in messages.into_iter().enumerate() {
        if let Some(content) = member(message, "content") {
            lower(&mut edits, content, index, known);
        }
    }
    edits.apply()
}

/// Reports whether the block is a text block with this JSON, or with other JSON of the same value, `whole`.
fn says(block: &RawValue, json: &RawValue, whole: Option<&Value>) -> bool {
    let Some(said) = text(block, "text").filter(|_| text(block, "type").as_deref() == Some("text")) else {
        return false;
    };
    if said == json.get() {
        return true;
    }
    serde_json::from_str::<Value>(&said).is_ok_and(|said| whole == Some(&said))
}

/// Replaces a block of an unknown kind: a link becomes text, audio becomes an embedded resource, anything else becomes
/// text with its JSON.
fn lower<'a>(edits: &mut Edits<'a>, block: &'a RawValue, index: usize, known: Blocks) {
    let Some(kind) = text(block, "type") else { return };
    if known.takes(&kind) {
        return;
    }
    let value = |name: &str| text(block, name).unwrap_or_default();
    let mut lowered = match &*kind {
        "resource_link" => {
            let (name, uri) = (value("name"), value("uri"));
            let said = if name.is_empty() { uri.into_owned() } else { format!("{name}: {uri}") };
            Raw::from_value(&json!({ "type": "text", "text": said }))
        }
        "audio" => {
            let uri = format!("mcp-host:audio/{index}");
            let resource = json!({ "uri": uri, "mimeType": value("mimeType"), "blob": value("data") });
            Raw::from_value(&json!({ "type": "resource", "resource": resource }))
        }
        _ => Raw::from_value(&json!({ "type": "text", "text": block.get() })),
    };
    for name in ["annotations", "_meta"] {
        if let Some(kept) = member(block, name).filter(|kept| kept.get().starts_with('{')) {
            lowered = lowered.with_member(name, kept.get().as_bytes());
        }
    }
    edits.replace(block, lowered.as_bytes().to_vec());
}
