//! Puts answers into the form of the client's protocol revision, with the names and URIs that the client knows.

use super::answer::Failure;
use super::client::Client;
use super::forward::Forward;
use crate::adapt;
use crate::answered::{Answered, Failed, NoResult};
use crate::manager::Server;
use crate::protocol::{self, Method, Outcome, ProtocolVersion, Raw};
use crate::registry::expose_content;
use crate::upstream::Cache;

/// Puts answers into the form that clients get.
#[derive(Debug)]
pub(super) struct Finish {
    /// mcp-host's own `serverInfo`.
    info: Raw,
}

impl Finish {
    pub(super) fn new(info: Raw) -> Self {
        Self { info }
    }

    pub(super) fn info(&self) -> &Raw {
        &self.info
    }

    /// Adds the members that every result has since 2026-07-28, if the client speaks that revision. Results of mcp-host
    /// itself get them, too.
    pub(super) fn whole(&self, client: &Client, method: &Method, result: Raw) -> Raw {
        let revision = client.revision();
        if !revision.is_modern() {
            return result;
        }
        adapt::result(result, method, revision, revision, &self.info)
    }

    /// Turns a typed answer into the JSON-RPC outcome that the client gets for a request of that method.
    pub(super) fn written(&self, client: &Client, method: &Method, answered: Answered) -> Outcome {
        match answered {
            Ok(result) => Ok(result),
            Err(NoResult::Error(error)) => Err(error),
            Err(NoResult::Failed(failed)) => failed.outcome(method).map(|result| self.whole(client, method, result)),
        }
    }

    /// Translates a server's answer to a call into the client's revision, with the names and URIs that the client
    /// knows.
    pub(super) fn adapted(
        &self,
        client: &Client,
        forward: &Forward,
        from: ProtocolVersion,
        outcome: Outcome,
    ) -> Answered {
        let server = &forward.server;
        if server.config.daemon
            && let Some(failed) = Failed::told(&outcome)
        {
            return Err(failed.into());
        }
        let outcome = outcome.map(|result| expose_content(&result, &server.config.alias, server.uris));
        self.across(client, server, from, &forward.method, outcome)
    }

    /// Translates the answer of a server that speaks revision `from` into the client's revision.
    pub(super) fn across(
        &self,
        client: &Client,
        server: &Server,
        from: ProtocolVersion,
        method: &Method,
        outcome: Outcome,
    ) -> Answered {
        if outcome.as_ref().is_ok_and(|result| !result.is_object()) {
            return Err(Failure::malformed("a result that is no object").of(server));
        }
        let gap = adapt::Gap { from, to: client.revision(), server: &server.config.name, info: &self.info };
        Ok(adapt::outcome(outcome, method, &gap)?)
    }

    /// Completes a result of mcp-host itself with the members that every result has since 2026-07-28, and with caching
    /// hints.
    pub(super) fn completed(&self, result: &Raw, hints: Option<Cache>) -> Raw {
        self.completed_with("", result, hints)
    }

    /// Does the same as [`Finish::completed`]. `more` is JSON text with further members of `_meta`, each with a comma
    /// in front.
    pub(super) fn completed_with(&self, more: &str, result: &Raw, hints: Option<Cache>) -> Raw {
        let (name, info) = (protocol::meta::SERVER_INFO, &self.info);
        let mut head = format!(r#"{{"resultType":"complete","_meta":{{"{name}":{info}{more}}}"#);
        if let Some(Cache { ttl, public }) = hints {
            let scope = if public { "public" } else { "private" };
            head += &format!(r#","ttlMs":{},"cacheScope":"{scope}""#, ttl.as_millis());
        }
        let body = &result.as_bytes()[1..];
        let comma: &[u8] = if body == b"}" { b"" } else { b"," };
        Raw::trusted([head.as_bytes(), comma, body].concat().into())
    }
}
