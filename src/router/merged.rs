//! Resolves calls of merged tools, each of which stands for tools of several servers (`host.merge`).
//!
//! A call of a merged tool becomes a call of the server that an argument names, before anything else looks at it. So it
//! is handled like a call of that tool by name. The result says in `mcp-host/tool` what was called.

use super::client::Client;
use super::route::Routed;
use super::search;
use super::through::{By, Through};
use crate::manager::{Lists, Manager};
use crate::protocol::{Method, Raw, Theirs, object};
use crate::registry::Twin;

/// Replaces a call of a tool of mcp-host that calls another tool by the call of that other tool. Returns every other
/// request unchanged.
pub(super) fn unwrap(manager: &Manager, client: &Client, routed: Routed) -> Routed {
    // A client that was given the search tools may keep using them, even if the config has changed.
    if routed.request.method != Method::ToolsCall || !(manager.has_own_tools() || client.who.lists != Lists::Full) {
        return routed;
    }
    let routed = search::unwrap(manager, client, routed);
    if !manager.merges() {
        return routed;
    }
    let Some(params) = &routed.request.params else { return routed };
    let Some(name) = params.text("name") else { return routed };
    let twins = manager.twins(&client.view(manager).callable);
    let Some(twin) = twins.get(&name) else { return routed };
    // A duplicate member is refused where every call is read.
    let Ok([_, arguments]) = params.distinct(["name", "arguments"]) else { return routed };
    let (reads, by) = match &routed.through {
        Some(through) => (through.reads, through.by),
        None => (false, By::Group),
    };
    let (params, tool, refused) = match inner(&name, twin, arguments) {
        Ok((tool, arguments)) => {
            let params = params.with_member("name", Raw::from_value(tool).as_bytes());
            (params.with_member("arguments", arguments.as_bytes()), tool.to_owned(), None)
        }
        Err(text) => (params.clone(), name.clone(), Some(search::failed(&text))),
    };
    let mut routed = routed;
    (routed.request.params, routed.route) = (Some(params), None);
    routed.through = Some(Box::new(Through { tool, reads, refused, by }));
    routed
}

/// Returns the tool that the arguments select, and the arguments for it.
fn inner<'a>(name: &str, twin: &'a Twin, arguments: Option<Raw>) -> Result<(&'a str, Raw), String> {
    let (arguments, argument) = (arguments.unwrap_or_else(Raw::empty_object), twin.argument.as_str());
    let all = || twin.members.iter().map(|(alias, _)| alias.as_str()).collect::<Vec<_>>().join(", ");
    let given = arguments.text(argument);
    let given = given.ok_or_else(|| format!("{}: `{argument}` is missing; it is one of {}", Theirs(name), all()))?;
    let member = twin.members.iter().find(|(alias, _)| *alias == given);
    let (_, tool) = member.ok_or_else(|| {
        format!("{}: `{argument}` is {}, which is not one of {}", Theirs(name), Theirs(&given), all())
    })?;
    let members = object(arguments.as_value()).unwrap_or_default();
    if members.iter().filter(|(key, _)| key == argument).count() > 1 {
        return Err(format!("{}: the arguments hold `{argument}` twice", Theirs(name)));
    }
    Ok((tool, arguments.without_member(argument)))
}
