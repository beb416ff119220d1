//! The result of a call as the server gave it, with accessors for its most useful parts.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;

use crate::protocol::Raw;

/// The result of a [`Call`](super::Call). It derefs to its [`Raw`] JSON.
///
/// ```
/// # fn show(result: &mcp_host::CallResult) {
/// if result.is_error() {
///     eprintln!("the tool failed: {}", result.text());
/// } else if let Some(structured) = result.structured() {
///     println!("{structured}");
/// } else {
///     println!("{}", result.text());
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct CallResult(Raw);

impl CallResult {
    pub(super) fn new(result: Raw) -> Self {
        Self(result)
    }

    /// Reports whether the tool says that it failed. The result's text then tells the model why.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.0.member("isError").is_some_and(|flag| flag.as_bytes() == b"true")
    }

    /// Returns all text, joined by newlines: from the blocks of a tool result, the contents of a resource, or the
    /// messages of a prompt.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<String> = self.content().iter().filter_map(|block| block.text("text")).collect();
        texts.join("\n")
    }

    /// Returns the structured content, which a tool with an output schema adds to its result.
    #[must_use]
    pub fn structured(&self) -> Option<Raw> {
        self.0.member("structuredContent")
    }

    /// Returns the content blocks (text, images, audio, links, and embedded resources) as the server wrote them.
    #[must_use]
    pub fn content(&self) -> Vec<Raw> {
        let [content, contents, messages] = self.0.members(["content", "contents", "messages"]);
        let list = |list: Raw| list.read::<Vec<Raw>>().unwrap_or_default();
        match (content.or(contents), messages) {
            (Some(blocks), _) => list(blocks),
            (None, Some(messages)) => {
                list(messages).iter().filter_map(|message| message.member("content")).flat_map(blocks).collect()
            }
            (None, None) => Vec::new(),
        }
    }

    /// Returns the suggested values, if this is the result of a [`Completion`](super::Completion).
    #[must_use]
    pub fn completions(&self) -> Vec<String> {
        let values = self.0.member("completion").and_then(|completion| completion.member("values"));
        values.and_then(|values| values.read().ok()).unwrap_or_default()
    }

    /// Returns the result's JSON.
    #[must_use]
    pub fn into_raw(self) -> Raw {
        self.0
    }
}

/// Returns the blocks of a prompt message, whose content may be one block or an array of blocks.
fn blocks(content: Raw) -> Vec<Raw> {
    if content.is_object() { vec![content] } else { content.read().unwrap_or_default() }
}

impl Deref for CallResult {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        &self.0
    }
}

impl fmt::Display for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<CallResult> for Raw {
    fn from(result: CallResult) -> Self {
        result.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn result(value: Value) -> CallResult {
        CallResult::new(value.into())
    }

    #[test]
    fn the_text_of_each_kind_of_result_is_found() {
        let image = json!({ "type": "image", "data": "QQ==", "mimeType": "image/png" });
        let text = |text: &str| json!({ "type": "text", "text": text });
        let tool = result(json!({ "content": [text("a"), image, text("b")], "isError": false }));
        assert_eq!((tool.text().as_str(), tool.content().len(), tool.is_error()), ("a\nb", 3, false));
        let resource = result(json!({ "contents": [{ "uri": "x:y", "text": "c" }, { "uri": "x:z", "blob": "QQ==" }] }));
        assert_eq!((resource.text().as_str(), resource.content().len()), ("c", 2));
        let messages = json!([{ "role": "user", "content": text("d") }, { "role": "user", "content": [text("e")] }]);
        assert_eq!(result(json!({ "messages": messages })).text(), "d\ne");
        for odd in [json!({}), json!({ "content": 1 }), json!({ "messages": [1] })] {
            assert_eq!(result(odd).text(), "");
        }
    }

    #[test]
    fn failure_structure_and_completions_are_read() {
        let failed = result(json!({ "content": [], "isError": true, "structuredContent": { "a": 1 } }));
        assert!(failed.is_error());
        assert_eq!(failed.structured().map(|raw| raw.to_string()).as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(failed.completions(), Vec::<String>::new());
        let completion = json!({ "completion": { "values": ["x", "y"], "hasMore": false } });
        assert_eq!(result(completion).completions(), ["x", "y"]);
    }
}
