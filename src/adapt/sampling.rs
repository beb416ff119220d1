//! Sampling with revisions before 2025-11-25, which have one content block per message and no tools.

use serde_json::value::RawValue;

use super::{Sound, grown};
use crate::protocol::value::{array, member, text};
use crate::protocol::{Edits, ErrorObject, Outcome, Raw};

/// Rewrites a sampling request so that each message has one content block.
///
/// # Errors
/// With the reason, if an older client cannot be asked this.
pub(super) fn lowered(params: &Raw, sound: Sound) -> Result<Raw, &'static str> {
    let root = params.as_value();
    let mut edits = Edits::new(params);
    if let Some(tools) = member(root, "tools") {
        if !array(tools).is_some_and(|tools| tools.is_empty()) {
            return Err("the client did not declare sampling with tools");
        }
        edits.remove(root, "tools");
    }
    edits.remove(root, "toolChoice");
    let Some(messages) = member(root, "messages") else { return Ok(edits.apply()) };
    let mut split = String::from("[");
    let mut is_split = false;
    let room = grown(params.as_bytes().len());
    for message in array(messages).unwrap_or_default() {
        match member(message, "content").map(|content| (content, array(content))) {
            Some((content, Some(blocks))) => {
                is_split = true;
                // The members around the content are repeated for each block.
                let whole = message.get();
                let start = content.get().as_ptr() as usize - whole.as_ptr() as usize;
                let (before, after) = (&whole[..start], &whole[start + content.get().len()..]);
                for block in blocks {
                    fits(block, sound)?;
                    push(&mut split, &[before, block.get(), after]);
                    if split.len() > room {
                        return Err("too many messages once each block becomes a message of its own");
                    }
                }
            }
            Some((block, None)) => {
                fits(block, sound)?;
                push(&mut split, &[message.get()]);
            }
            None => push(&mut split, &[message.get()]),
        }
    }
    if is_split {
        split.push(']');
        edits.replace(messages, split.into_bytes());
    }
    Ok(edits.apply())
}

/// Appends an item, given in parts, to the text of a JSON array that is being written.
fn push(array: &mut String, parts: &[&str]) {
    if array.len() > 1 {
        array.push(',');
    }
    array.extend(parts.iter().copied());
}

fn fits(block: &RawValue, sound: Sound) -> Result<(), &'static str> {
    match text(block, "type").as_deref() {
        Some("tool_use" | "tool_result") => Err("the client did not declare sampling with tools"),
        Some("audio") if sound == Sound::Unknown => Err("the client's revision does not know audio"),
        Some("text" | "image" | "audio") | None => Ok(()),
        Some(_) => Err("the client's revision does not know this kind of content"),
    }
}

/// Reduces a client's answer to one block, for a server that knows no lists of blocks. If any block has text, the texts
/// are joined; otherwise the first block stays.
pub(super) fn one_block(answer: Raw, sound: Sound) -> Outcome {
    let Some(content) = answer.value_of("content") else { return Ok(answer) };
    let blocks = array(content);
    let all = blocks.clone().unwrap_or_else(|| vec![content]);
    if sound == Sound::Unknown && all.iter().any(|block| text(block, "type").as_deref() == Some("audio")) {
        return Err(ErrorObject::internal("the client answered with audio, which the server's revision does not know"));
    }
    let Some(blocks) = blocks else { return Ok(answer) };
    let one = match &*blocks {
        [] => r#"{"type":"text","text":""}"#.to_owned(),
        [only] => only.get().to_owned(),
        [first, ..] => {
            let texts: Vec<_> = blocks.iter().filter_map(|block| text(block, "text")).collect();
            if texts.is_empty() {
                first.get().to_owned()
            } else {
                Raw::from_value(&serde_json::json!({ "type": "text", "text": texts.join("\n") })).to_string()
            }
        }
    };
    Ok(answer.with_member("content", one.as_bytes()))
}
