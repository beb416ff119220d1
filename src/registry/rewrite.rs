//! Exposes URIs in a server's messages: rewrites them into those that clients may use.
//!
//! Names and URIs in clients' messages are not handled here; the catalog resolves those.

use std::sync::LazyLock;

use serde_json::value::RawValue;

use crate::exposed::{UriMode, exposed_uri};
use crate::name::ServerName;
use crate::protocol::value::string;
use crate::protocol::{Edits, Names, Part, Raw, object, quoted};

/// Exposes the URIs in the body of a result, or of a server's sampling request: in `contents`, in content blocks
/// (links, embedded resources, tool results), in prompt messages, and in `_meta`. `structuredContent` stays unchanged.
/// A body that shows no sign of a URI is not parsed.
#[must_use]
pub(crate) fn expose_content(body: &Raw, alias: &ServerName, mode: UriMode) -> Raw {
    let may_hold = || body.has_names(Names::URI).unwrap_or_else(|| may_hold_uris(body.as_bytes()));
    if mode == UriMode::Passthrough || !may_hold() {
        return body.clone();
    }
    let mut rewrite = Rewrite { edits: Edits::new(body), alias };
    for (key, value) in Part::whole(body).map(|body| body.members()).unwrap_or_default() {
        match &*key {
            "contents" => value.items().unwrap_or_default().iter().for_each(|item| rewrite.resource(item)),
            "content" => rewrite.blocks(&value, NESTED),
            "messages" => {
                let contents = value.items().unwrap_or_default().into_iter().filter_map(|item| item.member("content"));
                contents.for_each(|content| rewrite.blocks(&content, NESTED));
            }
            "_meta" => rewrite.meta(&value),
            _ => {}
        }
    }
    rewrite.edits.apply()
}

/// Exposes the `uri` of a body that names one resource: the params of `notifications/resources/updated`, or the `data`
/// of an error.
#[must_use]
pub(crate) fn expose_target(body: &Raw, alias: &ServerName, mode: UriMode) -> Raw {
    let Some(uri) = body.text("uri").filter(|_| mode == UriMode::Prefix) else { return body.clone() };
    body.with_member("uri", Raw::from_value(&*exposed_uri(alias, &uri, mode)).as_bytes())
}

/// How deeply nested tool results are rewritten.
const NESTED: usize = 4;

/// Reports whether the body may have URIs: a member `"uri"` or `resourceUri`, or a needlessly escaped letter, which
/// could hide one.
fn may_hold_uris(bytes: &[u8]) -> bool {
    use memchr::memmem;
    // Both names end with this.
    static END: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new(br#"ri""#));
    let is_letter = |at: usize| bytes.get(at + 4).is_some_and(|digit| (b'4'..=b'7').contains(digit));
    END.find(bytes).is_some()
        || (memchr::memchr(b'\\', bytes).is_some() && memmem::find_iter(bytes, br"\u00").any(is_letter))
}

/// Returns the links to user interfaces in a `_meta`.
pub(super) fn links(meta: &RawValue) -> Vec<&RawValue> {
    let mut found = Vec::new();
    for (key, value) in object(meta).unwrap_or_default() {
        match &*key {
            "ui/resourceUri" => found.push(value),
            "ui" => {
                let members = object(value).unwrap_or_default().into_iter();
                found.extend(members.filter(|(key, _)| key == "resourceUri").map(|(_, value)| value));
            }
            _ => {}
        }
    }
    found
}

struct Rewrite<'a> {
    edits: Edits<'a>,
    alias: &'a ServerName,
}

impl<'a> Rewrite<'a> {
    fn blocks(&mut self, value: &Part<'a>, deep: usize) {
        match value.items() {
            Some(blocks) => blocks.iter().for_each(|block| self.block(block, deep)),
            None => self.block(value, deep),
        }
    }

    fn block(&mut self, block: &Part<'a>, deep: usize) {
        let members = block.members();
        let find = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        match find("type").and_then(Part::string).as_deref() {
            Some("resource_link") => self.resource(block),
            Some("resource") => {
                if let Some(resource) = find("resource") {
                    self.resource(resource);
                }
                self.meta_of(block);
            }
            Some("tool_result") if deep > 0 => {
                if let Some(content) = find("content") {
                    self.blocks(content, deep - 1);
                }
                self.meta_of(block);
            }
            _ if members.is_empty() => {}
            _ => self.meta_of(block),
        }
    }

    /// Rewrites an object that has a `uri` of its own.
    fn resource(&mut self, resource: &Part<'a>) {
        for (key, value) in resource.members() {
            match &*key {
                "uri" => value.value().into_iter().for_each(|value| self.uri(value)),
                "_meta" => self.meta(&value),
                _ => {}
            }
        }
    }

    fn meta_of(&mut self, block: &Part<'a>) {
        if let Some(meta) = block.member("_meta") {
            self.meta(&meta);
        }
    }

    fn meta(&mut self, meta: &Part<'a>) {
        meta.value().map(links).unwrap_or_default().into_iter().for_each(|link| self.uri(link));
    }

    fn uri(&mut self, value: &'a RawValue) {
        let Some(raw) = string(value) else { return };
        let exposed = exposed_uri(self.alias, &raw, UriMode::Prefix);
        if exposed != raw {
            self.edits.replace(value, quoted(&exposed));
        }
    }
}
