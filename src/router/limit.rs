//! Admits a tool call if all of its rates allow it: `rate` of the tool, and `principal`, `server`, and `view` of
//! `host.rates`. A call that is over a rate waits if that rate says so; otherwise it is refused and told when to call
//! again.
//!
//! A retry that brings the client's answers to a modern server is a new request there, so it counts again.

use std::pin::pin;
use std::time::Duration;

use super::answer::Failure;
use super::beating::beating;
use super::client::Client;
use super::forward::Forward;
use super::heart::Wait;
use super::own::{Said, exposed, said};
use super::toward::Toward;
use crate::answered::NoResult;
use crate::config::{Per, Rate, Words as _};
use crate::manager::{Held, Manager, Over, RateKey, Ticket};
use crate::protocol::{Method, Theirs};

/// Counts a call for its rates, and waits if it must. Returns `None` if there are no rates for it.
///
/// # Cancel safety
/// Dropping the future gives the count back.
pub(super) async fn admit(
    manager: &Manager,
    client: &Client,
    forward: &Forward,
    toward: &mut Toward<'_>,
) -> Result<Option<Ticket>, NoResult> {
    if !manager.rates().is_on() || forward.method != Method::ToolsCall {
        return Ok(None);
    }
    let held = rates_of(manager, client, forward);
    if held.is_empty() {
        return Ok(None);
    }
    let (patience, cap) = (forward.server.config.queue_timeout, forward.limits.rate_keys);
    let (ticket, wait) = manager.rates().take(held, patience, cap).map_err(|over| refusal(&over, forward))?;
    if !wait.is_zero() {
        let turn = pin!(tokio::time::sleep(wait));
        beating(toward, forward, Wait::Turn, turn).await;
    }
    Ok(Some(ticket))
}

/// Returns the rates that hold for a call, each with what it counts.
fn rates_of(manager: &Manager, client: &Client, forward: &Forward) -> Vec<Held> {
    let Forward { server, target, .. } = forward;
    let (principal, label) = (Some(client.principal().clone()), Some(server.label.clone()));
    let settings = manager.settings();
    let rates = settings.rates;
    let of_tool = said(manager, client, forward, |rules, name| rules.said(name, |tool| tool.rate)).map(|said| {
        let (server, tool, view) = match &said {
            Said::Server(_) => (label.clone(), target.clone(), None),
            Said::View(_) => (None, exposed(forward).into(), Some(client.who.view.name.name(&settings).into())),
        };
        let key = RateKey { principal: principal.clone(), server, tool: Some(tool), view };
        Held { key, rate: said.value() }
    });
    let of_principal = rates.principal.map(|rate| Held { key: RateKey { principal, ..RateKey::default() }, rate });
    let of_server = rates.server.map(|rate| Held { key: RateKey { server: label, ..RateKey::default() }, rate });
    let of_view = rates.view.map(|rate| {
        let view = Some(client.who.view.name.name(&settings).into());
        Held { key: RateKey { view, ..RateKey::default() }, rate }
    });
    of_tool.into_iter().chain(of_principal).chain(of_server).chain(of_view).collect()
}

/// Returns the answer to a call that is over a rate: which rate, and when to call again.
fn refusal(over: &Over, forward: &Forward) -> NoResult {
    let Over { held: Held { key, rate }, after } = over;
    let (often, again) = (often(rate), in_words(*after));
    match (&key.server, &key.tool) {
        (Some(_), Some(tool)) => {
            let text = format!(
                "did not get the call: one client may make {often} of {} (`rate` in its `tools`); call again in {again}",
                Theirs(tool)
            );
            Failure::rate_limited(text, *after).of(&forward.server)
        }
        (Some(_), None) => {
            let text = format!(
                "did not get the call: it takes {often} from all clients together (host.rates.server); call again in {again}"
            );
            Failure::rate_limited(text, *after).of(&forward.server)
        }
        (None, Some(tool)) => {
            let text = format!(
                "did not get the call: one client may make {often} of {} (`rate` in the view's `tools`); call again in {again}",
                Theirs(tool)
            );
            Failure::rate_limited(text, *after).of(&forward.server)
        }
        (None, _) if let Some(view) = &key.view => {
            let text = format!(
                "view \"{view}\" takes {often} from all its clients together (host.rates.view); call again in {again}"
            );
            Failure::rate_limited(text, *after).of_host()
        }
        (None, _) => {
            let text = format!("one client may make {often} (host.rates.principal); call again in {again}");
            Failure::rate_limited(text, *after).of_host()
        }
    }
}

/// Returns a rate in words, such as `10 calls a minute`.
fn often(rate: &Rate) -> String {
    let article = if rate.per == Per::Hour { "an" } else { "a" };
    let calls = if rate.limit == 1 { "call" } else { "calls" };
    format!("{} {calls} {article} {}", rate.limit, rate.per.word())
}

/// Returns a time in words, rounded up.
pub(super) fn in_words(after: Duration) -> String {
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_said_in_words_and_never_too_short() {
        let said = [1, 1000, 1001, 119_000, 119_001, 7_200_001].map(|millis| in_words(Duration::from_millis(millis)));
        assert_eq!(said, ["1 s", "1 s", "2 s", "119 s", "2 min", "3 h"]);
        assert_eq!(
            [often(&Rate::new(1, Per::Hour)), often(&Rate::new(2, Per::Day))],
            ["1 call an hour", "2 calls a day"]
        );
    }
}
