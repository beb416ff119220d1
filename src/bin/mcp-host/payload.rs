//! Formats servers' answers for people: text as text, everything else as one line that describes it.

use std::borrow::Cow;

use mcp_host::protocol::{Raw, object};
use serde_json::value::RawValue;

use crate::text;

/// Binary content of an answer: an image, a sound, a blob.
#[derive(Clone, Debug)]
pub(crate) struct Media {
    pub(crate) mime: String,
    /// The content in base64.
    pub(crate) data: String,
}

/// The note after the description of binary content, which no terminal shows.
#[derive(Debug)]
pub(crate) enum Notes {
    None,
    /// How to save the content.
    Hint(&'static str),
    /// Where each content was saved, in order.
    Each(std::vec::IntoIter<String>),
}

impl Notes {
    fn next(&mut self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Hint(hint) => Some((*hint).to_owned()),
            Self::Each(notes) => notes.next(),
        }
    }
}

/// Returns the media in a tool's result.
pub(crate) fn media_of_tool(result: &Raw) -> Vec<Media> {
    list(result, "content").iter().filter_map(media).collect()
}

/// Returns the media in a resource.
pub(crate) fn media_of_resource(result: &Raw) -> Vec<Media> {
    list(result, "contents").iter().filter_map(blob).collect()
}

fn media(block: &Raw) -> Option<Media> {
    match block.text("type")?.as_str() {
        "image" | "audio" => {
            Some(Media { mime: block.text("mimeType").unwrap_or_default(), data: block.text("data")? })
        }
        "resource" => blob(&block.member("resource")?),
        _ => None,
    }
}

fn blob(contents: &Raw) -> Option<Media> {
    if contents.text("text").is_some() {
        return None;
    }
    Some(Media { mime: contents.text("mimeType").unwrap_or_default(), data: contents.text("blob")? })
}

/// Formats the result of a tool. Structured content is shown if there is no text.
pub(crate) fn tool_result(result: &Raw, mut notes: Notes) -> Vec<String> {
    let blocks = list(result, "content");
    let mut lines: Vec<String> = blocks.iter().map(|part| block(part, &mut notes)).collect();
    let has_text = blocks.iter().any(|block| block.text("type").as_deref() == Some("text"));
    if let Some(structured) = result.member("structuredContent").filter(|_| !has_text) {
        lines.push(pretty(&structured));
    }
    lines
}

/// Formats the contents of a resource.
pub(crate) fn resource(result: &Raw, mut notes: Notes) -> Vec<String> {
    list(result, "contents").iter().map(|part| contents(part, &mut notes)).collect()
}

/// Formats the messages of a prompt, each under its role.
pub(crate) fn prompt(result: &Raw) -> Vec<String> {
    let mut lines = Vec::new();
    for message in list(result, "messages") {
        let role = message.text("role").unwrap_or_default();
        let content = message.member("content").map(|part| block(&part, &mut Notes::None)).unwrap_or_default();
        lines.extend([format!("{}:", text::line(&role)), content]);
    }
    lines
}

/// Formats one content block.
fn block(block: &Raw, notes: &mut Notes) -> String {
    let kind = block.text("type").unwrap_or_default();
    match kind.as_str() {
        "text" => text::block(&block.text("text").unwrap_or_default()).into_owned(),
        "resource" => block.member("resource").map(|part| contents(&part, notes)).unwrap_or_default(),
        "resource_link" => {
            let name = block.text("title").or_else(|| block.text("name")).unwrap_or_default();
            summary(&["link", &block.text("uri").unwrap_or_default(), &name], None)
        }
        "image" | "audio" => {
            let mime = block.text("mimeType").filter(|mime| !mime.is_empty()).unwrap_or(kind);
            let data = block.text("data");
            summary(&[&mime, &size(data.as_deref().unwrap_or_default())], data.and_then(|_| notes.next()))
        }
        // This kind of block is newer than this program.
        _ => pretty(block),
    }
}

/// Formats one text or blob of a resource.
fn contents(contents: &Raw, notes: &mut Notes) -> String {
    if let Some(text) = contents.text("text") {
        return text::block(&text).into_owned();
    }
    let mime = contents.text("mimeType").unwrap_or_default();
    let blob = contents.text("blob");
    let size = size(blob.as_deref().unwrap_or_default());
    summary(&[&contents.text("uri").unwrap_or_default(), &mime, &size], blob.and_then(|_| notes.next()))
}

/// Formats `[image/png, 12.3 kB: --out FILE saves it]`.
fn summary(parts: &[&str], note: Option<String>) -> String {
    let parts: Vec<Cow<'_, str>> = parts.iter().filter(|part| !part.is_empty()).map(|part| text::line(part)).collect();
    let note = note.map(|note| format!(": {}", text::line(&note))).unwrap_or_default();
    format!("[{}{note}]", parts.join(", "))
}

/// Returns in words how many bytes a base64 text encodes.
fn size(base64: &str) -> String {
    let digits = base64.trim_end_matches('=').len();
    match digits * 3 / 4 {
        bytes @ 0..1_000 => format!("{bytes} bytes"),
        bytes @ 1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        bytes => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

fn list(result: &Raw, name: &str) -> Vec<Raw> {
    result.member(name).and_then(|list| list.read().ok()).unwrap_or_default()
}

/// Formats JSON with one member per line, keeping its order and its numbers.
fn pretty(value: &Raw) -> String {
    let mut out = String::new();
    match value.read::<&RawValue>() {
        Ok(value) => indent(value, 0, &mut out),
        Err(_) => out.push_str(value.as_str()),
    }
    out
}

fn indent(value: &RawValue, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth + 1);
    let end = format!("\n{}", "  ".repeat(depth));
    let members = object(value).filter(|members| !members.is_empty());
    let items: Option<Vec<&RawValue>> =
        serde_json::from_str(value.get()).ok().filter(|items: &Vec<_>| !items.is_empty());
    if depth >= DEEPEST {
        out.push_str(&text::json(value.get()));
    } else if let Some(members) = members {
        out.push('{');
        for (index, (name, value)) in members.into_iter().enumerate() {
            out.push_str(if index == 0 { "\n" } else { ",\n" });
            out.push_str(&pad);
            out.push_str(&text::json(&serde_json::Value::from(name).to_string()));
            out.push_str(": ");
            indent(value, depth + 1, out);
        }
        out.push_str(&end);
        out.push('}');
    } else if let Some(items) = items {
        out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            out.push_str(if index == 0 { "\n" } else { ",\n" });
            out.push_str(&pad);
            indent(item, depth + 1, out);
        }
        out.push_str(&end);
        out.push(']');
    } else {
        out.push_str(&text::json(value.get()));
    }
}

/// How many levels are indented. Deeper levels stay on one line, because each level parses its value again.
const DEEPEST: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn blocks_show_as_what_they_are() {
        let result = Raw::from_value(&json!({ "content": [
            { "type": "text", "text": "a\u{1b}[2J\nb" },
            { "type": "image", "mimeType": "image/png", "data": "QUJDRA==" },
            { "type": "resource_link", "uri": "file:///a", "name": "A\n" },
            { "type": "resource", "resource": { "uri": "x:y", "blob": "QUJD" } },
        ], "structuredContent": {} }));
        let shown = |notes| tool_result(&result, notes);
        let plain = ["a\\u{1b}[2J\nb", "[image/png, 4 bytes]", "[link, file:///a, A\\n]", "[x:y, 3 bytes]"];
        assert_eq!(shown(Notes::None), plain);
        assert_eq!(shown(Notes::Hint("--out FILE saves it"))[1], "[image/png, 4 bytes: --out FILE saves it]");
        let each = vec!["saved as a\n".to_owned(), "not saved".to_owned()];
        let each = shown(Notes::Each(each.into_iter()));
        assert_eq!(each[1..], ["[image/png, 4 bytes: saved as a\\n]", plain[2], "[x:y, 3 bytes: not saved]"]);
        let media: Vec<_> = media_of_tool(&result).into_iter().map(|media| (media.mime, media.data)).collect();
        assert_eq!(media, [("image/png".to_owned(), "QUJDRA==".to_owned()), (String::new(), "QUJD".to_owned())]);
    }

    #[test]
    fn structure_stands_in_for_text() {
        let structured = r#"{"structuredContent":{"z":1.50,"a":[1,{}],"e":[]}}"#;
        let result = Raw::parse(&structured.as_bytes().to_vec().into()).unwrap();
        assert_eq!(
            tool_result(&result, Notes::None),
            ["{\n  \"z\": 1.50,\n  \"a\": [\n    1,\n    {}\n  ],\n  \"e\": []\n}"]
        );
    }

    #[test]
    fn prompts_show_who_speaks() {
        let message = json!({ "role": "user", "content": { "type": "text", "text": "hi" } });
        assert_eq!(prompt(&Raw::from_value(&json!({ "messages": [message] }))), ["user:", "hi"]);
    }
}
