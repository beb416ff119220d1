//! Elicitation by URL: ids, which are unique only per server, and the error that requires visiting URLs first
//! (2025-11-25).

use std::fmt::Write as _;

use crate::protocol::value::{array, text};
use crate::protocol::{Address, Edits, ErrorObject, Raw, Theirs, code, ours};

const ID: &str = "elicitationId";

/// Returns the id of an elicitation as clients see it: `<alias>:<id>`.
pub(crate) fn scoped_id(id: &str, alias: &str) -> String {
    format!("{alias}:{id}")
}

/// Prefixes the `elicitationId` with the alias, in the params of a question or of `notifications/elicitation/complete`.
pub(crate) fn scoped(params: &Raw, alias: &str) -> Raw {
    match params.text(ID) {
        Some(id) => params.with_member(ID, Raw::from_value(&scoped_id(&id, alias)).as_bytes()),
        None => params.clone(),
    }
}

/// Adds an id of ours to a URL question: a client of 2025-11-25 requires one, and a newer server sends none.
pub(crate) fn numbered(params: &Raw, id: &str) -> Raw {
    params.with_member(ID, Raw::from_value(id).as_bytes())
}

/// Reports whether the question asks to visit a URL.
pub(crate) fn is_url(params: Option<&Raw>) -> bool {
    params.and_then(|params| params.text("mode")).as_deref() == Some("url")
}

/// Returns the elicitations that `-32042` requires: each is the params of an `elicitation/create` in mode `url`,
/// without an id. `None` for any other error, and for one that names no URL.
pub(crate) fn required(error: &ErrorObject) -> Option<Vec<Raw>> {
    let data = error.data.as_ref().filter(|_| error.code == code::URL_ELICITATION_REQUIRED)?;
    let wanted = data.value_of("elicitations").and_then(array)?;
    let with_url = wanted.into_iter().filter(|params| text(params, "url").is_some());
    let params: Vec<Raw> = with_url
        .map(|params| ours::head(Raw::part(data.bytes(), params), &[]))
        .map(|params| params.without_member(ID).with_member("mode", br#""url""#))
        .collect();
    (!params.is_empty()).then_some(params)
}

/// The most URLs named in a sentence; a client that can be asked is asked to visit all of them.
const TOLD: usize = 8;

/// Lists the URLs, one per line.
pub(crate) fn addresses(pages: &[Raw]) -> String {
    let mut text = String::new();
    for page in pages.iter().take(TOLD) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", Address(&page.text("url").unwrap_or_default()));
    }
    text
}

/// Lists the URLs with their purposes, one per line.
pub(crate) fn purposes(pages: &[Raw]) -> String {
    let mut text = String::new();
    for page in pages.iter().take(TOLD) {
        let [message, url] =
            page.members(["message", "url"]).map(|part| part.and_then(|part| part.string().map(String::from)));
        let (message, url) = (message.unwrap_or_default(), url.unwrap_or_default());
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}: {}", Theirs(&message), Address(&url));
    }
    text
}

/// Prefixes the ids in a `-32042` error with the alias.
pub(crate) fn scoped_error(error: ErrorObject, alias: &str) -> ErrorObject {
    let Some(data) = &error.data else { return error };
    let mut edits = Edits::new(data);
    for params in data.value_of("elicitations").and_then(array).unwrap_or_default() {
        if let Some(id) = text(params, ID) {
            edits.set(params, ID, Raw::from_value(&scoped_id(&id, alias)).as_bytes());
        }
    }
    let data = edits.apply();
    error.with_data(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_page_has_no_mark_of_the_host() {
        let data = r#"{"elicitations":[{"url":"https://a.example","message":"m","elicitationId":"e","_meta":{"mcp-host/asks":true,"k":1}}]}"#;
        let error = ErrorObject::new(code::URL_ELICITATION_REQUIRED, "visit").with_data(Raw::trusted(data.into()));
        let pages: Vec<String> = required(&error).unwrap().iter().map(|page| page.as_str().to_owned()).collect();
        assert_eq!(pages, [r#"{"url":"https://a.example","message":"m","_meta":{"k":1},"mode":"url"}"#]);
    }
}
