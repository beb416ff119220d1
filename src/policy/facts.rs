//! Describes a request: its subject, which is an entry of a catalog, and what else is known of it.

use crate::config::{Action, Hints, Matcher};
use crate::glob::is_match;
use crate::protocol::Raw;
use crate::select;

use super::caller::Caller;

/// What kind of thing a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tool,
    Prompt,
    Resource,
    /// Nothing that a server lists: the server asks the client something while no call of the client runs.
    Nothing,
}

/// The tool, prompt, or resource that a request is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) kind: Kind,
    /// The name, or URI, that clients know.
    pub(crate) exposed: &'a str,
    /// The server's own name, or URI.
    pub(crate) raw: &'a str,
    /// The alias of the server.
    pub(crate) server: &'a str,
    /// The tags of the tool, and of its server.
    pub(crate) tags: &'a [String],
    /// The tool's hints, as far as they count.
    pub(crate) hints: &'a Hints,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) action: Action,
    pub(crate) caller: Caller<'a>,
    /// The name and the version that the client states for itself.
    pub(crate) client: (&'a str, Option<&'a str>),
    /// The arguments as the server will get them, with the server's own names.
    pub(crate) arguments: Option<&'a Raw>,
}

/// No hints.
static UNSAID: Hints =
    Hints { read_only_hint: None, destructive_hint: None, idempotent_hint: None, open_world_hint: None };

impl<'a> Subject<'a> {
    /// A tool, by the names that clients and its server know, with its tags and with what counts of its hints.
    pub(crate) fn tool(
        (exposed, raw): (&'a str, &'a str),
        server: &'a str,
        (tags, hints): (&'a [String], &'a Hints),
    ) -> Self {
        Self { kind: Kind::Tool, exposed, raw, server, tags, hints }
    }

    /// A prompt, by the names that clients and its server know.
    pub(crate) fn prompt(exposed: &'a str, raw: &'a str, server: &'a str) -> Self {
        Self { kind: Kind::Prompt, exposed, raw, server, tags: &[], hints: &UNSAID }
    }

    /// A resource, by the URIs that clients and its server know.
    pub(crate) fn resource(exposed: &'a str, raw: &'a str, server: &'a str) -> Self {
        Self { kind: Kind::Resource, ..Self::prompt(exposed, raw, server) }
    }

    /// No listed tool, prompt, or resource: for requests that come from a server.
    pub(crate) fn of_server(server: &'a str) -> Self {
        Self { kind: Kind::Nothing, ..Self::prompt("", "", server) }
    }

    /// Reports whether a rule's tools, prompts, and resources include this subject, and its actions include the action.
    /// A rule that names no tools, prompts, and resources includes all of them.
    pub(super) fn is_named(&self, action: Action, matcher: &Matcher) -> bool {
        let Matcher { tools, prompts, resources, actions, .. } = matcher;
        let acts = actions.as_ref().map_or(!action.is_servers(), |actions| actions.contains(&action));
        let any = |globs: &Option<Vec<String>>, fits: &dyn Fn(&String) -> bool| -> bool {
            globs.as_ref().is_some_and(|globs| globs.iter().any(fits))
        };
        let names_none = tools.is_none() && prompts.is_none() && resources.is_none();
        acts && (names_none
            || match self.kind {
                Kind::Tool => tools.as_ref().is_some_and(|tools| select::matches(tools, &self.as_tool())),
                Kind::Prompt => any(prompts, &|glob| is_match(glob, self.exposed)),
                Kind::Resource => any(resources, &|glob| is_match(glob, self.exposed) || is_match(glob, self.raw)),
                Kind::Nothing => tools.as_ref().is_some_and(|tools| select::names_server(tools, self.server)),
            })
    }

    fn as_tool(&self) -> select::Facts<'_> {
        select::Facts { exposed: self.exposed, server: self.server, tags: self.tags, hints: self.hints }
    }
}

/// What is known of one request, for [`Policy::judge`](super::Policy::judge).
///
/// ```
/// use mcp_host::policy::{Action, CallFacts, Verdict};
///
/// fn judge(call: &CallFacts<'_>) -> Verdict {
///     let writes = call.action() == Action::Call && call.hints().read_only_hint != Some(true);
///     if writes && call.server() == "db" { Verdict::ask("db-writes") } else { Verdict::allow() }
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CallFacts<'a>(Facts<'a>);

impl<'a> CallFacts<'a> {
    /// Shows one request.
    #[cfg_attr(not(test), allow(dead_code, reason = "the router asks policies of programs"))]
    pub(crate) fn new(facts: Facts<'a>) -> Self {
        Self(facts)
    }

    /// Returns what the request does.
    #[must_use]
    pub fn action(&self) -> Action {
        self.0.action
    }

    /// Returns the alias of the server.
    #[must_use]
    pub fn server(&self) -> &'a str {
        self.0.subject.server
    }

    /// Returns the name that clients know of the tool or prompt, or the URI of the resource.
    #[must_use]
    pub fn tool(&self) -> &'a str {
        self.0.subject.exposed
    }

    /// Returns the server's own name of the tool or prompt, or the server's URI of the resource.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.0.subject.raw
    }

    /// Returns the tags of the tool and of its server.
    #[must_use]
    pub fn tags(&self) -> &'a [String] {
        self.0.subject.tags
    }

    /// Returns the tool's hints.
    #[must_use]
    pub fn hints(&self) -> &'a Hints {
        self.0.subject.hints
    }

    /// Returns the principal as the audit writes it: `local` for a client that does not prove who it is.
    #[must_use]
    pub fn principal(&self) -> &'a str {
        self.0.caller.principal
    }

    /// Returns the claims of the client's token; `None` if it has no such token.
    #[must_use]
    pub fn claims(&self) -> Option<&'a serde_json::Map<String, serde_json::Value>> {
        self.0.caller.claims
    }

    /// Returns the view that the client uses.
    #[must_use]
    pub fn view(&self) -> &'a str {
        self.0.caller.view
    }

    /// Returns the name that the client states for itself. Nothing proves it.
    #[must_use]
    pub fn client_name(&self) -> &'a str {
        self.0.client.0
    }

    /// Returns the version that the client claims to have.
    #[must_use]
    pub fn client_version(&self) -> Option<&'a str> {
        self.0.client.1
    }

    /// Returns the arguments as the server will get them, with the server's own names.
    #[must_use]
    pub fn arguments(&self) -> Option<&'a Raw> {
        self.0.arguments
    }
}
