//! Questions from servers, translated for the client's revision, and the answers translated back.

use super::form::{self, Choice};
use super::{Sound, sampling, url};
use crate::protocol::{Edits, ErrorObject, Method, Outcome, ProtocolVersion, Raw, meta};

/// A question that the client can be asked.
#[derive(Clone, Debug)]
pub(crate) struct AdaptedQuestion {
    pub(crate) params: Option<Raw>,
    /// Translates the answer back.
    pub(crate) fold: Fold,
}

/// The client cannot be asked the question. Holds the answer for the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal(pub(crate) Outcome);

/// Translates a client's answer back to the server's revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Multiple-choice fields that were asked as switches.
    choices: Vec<Choice>,
    /// Set if the answer may hold only one content block; says whether that may be audio.
    one_block: Option<Sound>,
    /// Whether the client answers in the form of 2026-07-28 and the server expects that of an older revision.
    newer: bool,
}

impl Fold {
    /// Returns the client's answer for the server.
    pub(crate) fn answer(&self, outcome: Outcome) -> Outcome {
        let mut answer = outcome?;
        if self.newer {
            answer = answer.without_member("resultType");
        }
        if !self.choices.is_empty() {
            answer = form::gathered(answer, &self.choices);
        }
        match self.one_block {
            Some(sound) => sampling::one_block(answer, sound),
            None => Ok(answer),
        }
    }
}

/// Translates a question from a server of revision `from` for a client of revision `to`; `alias` is the server's. If a
/// newer server asks a client of 2025-11-25 to visit a URL, the client needs an id as well ([`url::numbered`]).
///
/// # Errors
/// With the answer for the server, if the client cannot be asked the question.
pub(crate) fn question(
    method: &Method,
    params: Option<Raw>,
    from: ProtocolVersion,
    to: ProtocolVersion,
    alias: &str,
) -> Result<AdaptedQuestion, Refusal> {
    let mut fold = Fold { newer: to.is_modern() && !from.is_modern(), ..Fold::default() };
    let Some(params) = params else { return Ok(AdaptedQuestion { params, fold }) };
    let mut params = cleaned(&params, to);
    match method {
        Method::Elicit if url::is_url(Some(&params)) => params = url::scoped(&params, alias),
        Method::Elicit if from > to && to < ProtocolVersion::V2025_11_25 => {
            let cancel = || Refusal(Ok(Raw::from_value(&serde_json::json!({ "action": "cancel" }))));
            let (lowered, choices) = form::lowered(&params).map_err(|form::Unfit| cancel())?;
            params = lowered;
            fold.choices = choices;
        }
        Method::CreateMessage => {
            if from > to && to < ProtocolVersion::V2025_11_25 {
                let refused = |reason: &str| Refusal(Err(ErrorObject::invalid_params(reason)));
                params = sampling::lowered(&params, Sound::of(to)).map_err(refused)?;
            }
            if to > from && from < ProtocolVersion::V2025_11_25 {
                fold.one_block = Some(Sound::of(from));
            }
        }
        _ => {}
    }
    Ok(AdaptedQuestion { params: Some(params), fold })
}

/// Removes members that concern only the hop between the server and us, or that the client's era does not define.
fn cleaned(params: &Raw, to: ProtocolVersion) -> Raw {
    let mut edits = Edits::new(params);
    if to.is_modern() {
        for name in ["elicitationId", "task"] {
            edits.remove(params.as_value(), name);
        }
    }
    if let Some(own) = params.value_of("_meta") {
        fn is_the_hops(key: &str) -> bool {
            // What the user's own daemon asks in its own words stays marked; a server cannot send that key (`ours.rs`).
            let is_ours = key.starts_with(meta::OURS) && key != meta::HOST_ASKS;
            key == "progressToken" || key.starts_with(meta::PREFIX) || is_ours
        }
        // A legacy client may be another mcp-host, which can ask its own clients under the JSON key that the server
        // wishes for.
        fn goes_to_legacy(key: &str) -> bool {
            is_the_hops(key) && key != meta::RELATED_TASK && key != meta::INPUT_KEY
        }
        let goes = if to.is_modern() { is_the_hops } else { goes_to_legacy };
        edits.remove_like(own, goes);
    }
    edits.apply()
}
