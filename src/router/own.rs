//! Looks up what the config sets for the called tool: for each setting, the client's view first, then the server.
//! Rates, checks, and cached answers use this, and so do the tool's own limits: `maxArguments`, `callTimeout`,
//! `maxCallTime`, `maxConcurrent`.

use std::time::Duration;

use super::answer::Failure;
use super::client::Client;
use super::forward::{Forward, Own};
use crate::answered::{FieldError, NoResult};
use crate::config::ToolRules;
use crate::manager::Manager;
use crate::protocol::Method;
use crate::registry::Entry;

/// A setting of a tool, and which part of the config sets it.
pub(super) enum Said<T> {
    /// The client's view, under the name that clients see.
    View(T),
    /// The server's entry, under the server's own name.
    Server(T),
}

impl<T> Said<T> {
    pub(super) fn value(self) -> T {
        let (Self::View(value) | Self::Server(value)) = self;
        value
    }
}

/// Returns what `setting` finds in the settings of the called tool; `None` if they do not set it.
pub(super) fn said<T>(
    manager: &Manager,
    client: &Client,
    forward: &Forward,
    setting: impl Fn(&ToolRules, &str) -> Option<T>,
) -> Option<Said<T>> {
    if forward.method != Method::ToolsCall {
        return None;
    }
    let settings = manager.settings();
    let view = settings.tools_in(client.chosen().name(&settings));
    let of_view = view.and_then(|tools| setting(tools, forward.listed.entry()?.name()));
    match of_view {
        Some(value) => Some(Said::View(value)),
        None => setting(&forward.server.config.tools, &forward.target).map(Said::Server),
    }
}

/// Returns the limits of the called tool; `None` if it has none. Refuses the call if its arguments are too large.
pub(super) fn limits(manager: &Manager, client: &Client, forward: &Forward) -> Result<Option<Box<Own>>, NoResult> {
    let of = |setting: fn(&ToolRules, &str) -> Option<usize>| said(manager, client, forward, setting).map(Said::value);
    let time =
        |setting: fn(&ToolRules, &str) -> Option<Duration>| said(manager, client, forward, setting).map(Said::value);
    if let Some(most) = of(|rules, name| rules.said(name, |tool| tool.max_arguments)) {
        let bytes = forward.params.member("arguments").map_or(0, |arguments| arguments.as_bytes().len());
        if bytes > most {
            let error = format!("they have {bytes} bytes, and at most {most} are allowed (`maxArguments`)");
            let errors = vec![FieldError { field: String::new(), error: error.clone() }];
            let name = forward.listed.entry().map_or(&*forward.target, Entry::name);
            return Err(Failure::invalid_arguments(name, errors, &error).of(&forward.server));
        }
    }
    let most = of(|rules, name| rules.said(name, |tool| tool.max_concurrent)).filter(|most| *most > 0);
    let own = Own {
        call_timeout: time(|rules, name| rules.said(name, |tool| tool.call_timeout)),
        max_call_time: time(|rules, name| rules.said(name, |tool| tool.max_call_time)),
        slots: most.map(|most| forward.server.tool_slots.of(&forward.target, most)),
    };
    let has_any = own.call_timeout.or(own.max_call_time).is_some() || own.slots.is_some();
    Ok(has_any.then(|| Box::new(own)))
}

/// Returns the name by which clients know the tool of a call.
pub(super) fn exposed(forward: &Forward) -> String {
    match forward.listed.entry() {
        Some(entry) => entry.name().to_owned(),
        None => forward.named.string().map(String::from).unwrap_or_default(),
    }
}
