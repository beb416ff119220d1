//! What servers ask clients, as the client's revision has it, and the answers turned back.

use super::form::{self, Choice};
use super::{Sound, sampling, url};
use crate::protocol::{Edits, ErrorObject, Method, Outcome, ProtocolVersion, Raw, meta};

/// A question that a client can take.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) params: Option<Raw>,
    /// What turns the answer back.
    pub(crate) fold: Fold,
}

/// The client cannot take the question: what the server gets for an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal(pub(crate) Outcome);

/// Turns a client's answer into what the server's revision knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fold {
    /// Fields that were asked for as several.
    choices: Vec<Choice>,
    /// The answer may hold one block of content only; of sound, if the revision knows it.
    one_block: Option<Sound>,
    /// The answer says what only newer results say.
    newer: bool,
}

impl Fold {
    /// The client's answer as the server has to see it.
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

/// A question of a server of revision `from` for a client of revision `to`; `alias` is the server's. A client of 2025-11-25
/// that is asked to visit a URL by a newer server wants an id as well ([`url::numbered`]).
///
/// # Errors
/// What the server gets, if the client cannot be asked that.
pub(crate) fn question(
    method: &Method,
    params: Option<Raw>,
    from: ProtocolVersion,
    to: ProtocolVersion,
    alias: &str,
) -> Result<Asked, Refusal> {
    let mut fold = Fold { newer: to.is_modern() && !from.is_modern(), ..Fold::default() };
    let Some(params) = params else { return Ok(Asked { params, fold }) };
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
    Ok(Asked { params: Some(params), fold })
}

/// Without what belongs to the server's own hop, and what the client's era has no place for.
fn cleaned(params: &Raw, to: ProtocolVersion) -> Raw {
    let mut edits = Edits::new(params);
    if to.is_modern() {
        for name in ["elicitationId", "task"] {
            edits.remove(params.as_value(), name);
        }
    }
    if let Some(own) = params.value_of("_meta") {
        fn is_the_hops(key: &str) -> bool {
            key == "progressToken" || key.starts_with(meta::PREFIX) || key.starts_with(meta::OURS)
        }
        // A legacy client may be another host, whose clients can be asked under the key that the server wishes for.
        fn goes_to_legacy(key: &str) -> bool {
            is_the_hops(key) && key != meta::RELATED_TASK && key != meta::INPUT_KEY
        }
        let goes = if to.is_modern() { is_the_hops } else { goes_to_legacy };
        edits.remove_like(own, goes);
    }
    edits.apply()
}
