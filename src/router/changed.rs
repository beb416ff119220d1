//! Checks whether a tool or prompt has changed since the client saw it in a list. A list may be older than its server's
//! start (`manager/kept`), or come from another lease. If the tool or prompt is gone, or no longer takes the arguments,
//! nothing is sent and the client is told to list again.

use std::sync::Arc;

use super::answer::Failure;
use super::client::Client;
use super::forward::Forward;
use crate::manager::Manager;
use crate::protocol::Method;
use crate::registry::{Kind, Offer, misfit};
use crate::upstream::Upstream;

/// Returns the offer of the server (its tools and prompts) that the client was shown, or `None` if the client has a
/// live lease, whose list it saw.
pub(super) fn shown_before(manager: &Manager, client: &Client, forward: &Forward) -> Option<Arc<Offer>> {
    let server = &forward.server;
    let is_live = |upstream: &Arc<Upstream>| upstream.connection().is_some();
    if kind(&forward.method).is_none() || client.lease(server.id, server.stamp()).as_ref().is_some_and(is_live) {
        return None;
    }
    manager.shown_before(server, &client.who_now())
}

/// Returns why the request must not be sent on that lease, or `None` if it may be. The reason is a change of the tool
/// or prompt since the client was shown it.
pub(super) fn changed(forward: &Forward, upstream: &Upstream) -> Option<Failure> {
    let kind = kind(&forward.method)?;
    let word = if kind == Kind::Tools { "tool" } else { "prompt" };
    if forward.server.is_strict() && is_withheld(forward, upstream, kind) {
        return Some(Failure::needs_approval(word, &forward.target, &forward.server.config.name));
    }
    let shown = forward.shown.as_ref()?;
    let now = upstream.offer().filter(|now| now.hash() != shown.hash() && !now.failed(kind))?;
    let before = shown.definition(kind, &forward.target)?;
    let Some(definition) = now.definition(kind, &forward.target) else {
        return Some(Failure::gone(word, &forward.target));
    };
    if kind != Kind::Tools || definition == before {
        return None;
    }
    let arguments = forward.params.member("arguments");
    let why = misfit(definition, arguments.as_ref())?;
    // Arguments that did not fit the old definition either are the client's own mistake, which the server reports
    // itself.
    misfit(before, arguments.as_ref()).is_none().then(|| Failure::takes_others(&forward.target, &why))
}

/// Reports whether the server lists the tool or prompt in a form that is not approved.
fn is_withheld(forward: &Forward, upstream: &Upstream, kind: Kind) -> bool {
    let has = |offer: &Offer| offer.definition(kind, &forward.target).is_some();
    let Some(now) = upstream.offer().filter(|now| has(now)) else { return false };
    forward.server.passing(now).is_none_or(|passing| !has(&passing))
}

/// Returns the kind of list that shows what the request names: tools or prompts; `None` for other requests.
fn kind(method: &Method) -> Option<Kind> {
    match method {
        Method::ToolsCall => Some(Kind::Tools),
        Method::PromptsGet => Some(Kind::Prompts),
        _ => None,
    }
}
