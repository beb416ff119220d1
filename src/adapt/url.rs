//! Elicitation by URL: ids that are unique per server only, and the error that wants URLs visited first (2025-11-25).

use std::fmt::Write as _;

use crate::protocol::raw::{array, text};
use crate::protocol::{Address, Edits, ErrorObject, Raw, Theirs, code};

const ID: &str = "elicitationId";

/// The id of an elicitation as clients have it: `<alias>:<id>`.
pub(crate) fn scoped_id(id: &str, alias: &str) -> String {
    format!("{alias}:{id}")
}

/// Params with an `elicitationId` (of a question, or of `notifications/elicitation/complete`), the id as clients have it.
pub(crate) fn scoped(params: &Raw, alias: &str) -> Raw {
    match params.text(ID) {
        Some(id) => params.with_member(ID, Raw::from_value(&scoped_id(&id, alias)).as_bytes()),
        None => params.clone(),
    }
}

/// Params of a question by URL with an id that we made: a client of 2025-11-25 wants one, a newer server gives none.
pub(crate) fn numbered(params: &Raw, id: &str) -> Raw {
    params.with_member(ID, Raw::from_value(id).as_bytes())
}

/// Whether this asks to visit a URL.
pub(crate) fn is_url(params: Option<&Raw>) -> bool {
    params.and_then(|params| params.text("mode")).as_deref() == Some("url")
}

/// What `-32042` wants visited: each is the params of an `elicitation/create` in mode `url`, without an id. `None` for any
/// other error, and for one that names nothing.
pub(crate) fn required(error: &ErrorObject) -> Option<Vec<Raw>> {
    let data = error.data.as_ref().filter(|_| error.code == code::URL_ELICITATION_REQUIRED)?;
    let wanted = data.value_of("elicitations").and_then(array)?;
    let with_url = wanted.into_iter().filter(|params| text(params, "url").is_some());
    let params: Vec<Raw> = with_url
        .map(|params| Raw::part(data.bytes(), params).without_member(ID).with_member("mode", br#""url""#))
        .collect();
    (!params.is_empty()).then_some(params)
}

/// Pages that are told in a sentence; who can be asked is asked for all of them.
const TOLD: usize = 8;

/// Where these lead, a line each.
pub(crate) fn addresses(pages: &[Raw]) -> String {
    let mut text = String::new();
    for page in pages.iter().take(TOLD) {
        // A string takes everything.
        let _ = write!(text, "\n{}", Address(&page.text("url").unwrap_or_default()));
    }
    text
}

/// The same with what each is for.
pub(crate) fn purposes(pages: &[Raw]) -> String {
    let mut text = String::new();
    for page in pages.iter().take(TOLD) {
        let [message, url] =
            page.members(["message", "url"]).map(|part| part.and_then(|part| part.string().map(String::from)));
        let (message, url) = (message.unwrap_or_default(), url.unwrap_or_default());
        // A string takes everything.
        let _ = write!(text, "\n{}: {}", Theirs(&message), Address(&url));
    }
    text
}

/// `-32042` with its ids as clients have them.
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
