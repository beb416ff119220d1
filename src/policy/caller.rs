//! Describes the caller, and decides which rules apply to it.

use serde_json::{Map, Value};

use crate::config::{Audience, Matcher};
use crate::expression::{Arguments, Budget, Values};

/// The caller of requests. It stays the same as long as a client uses one token and one view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// The principal as the audit writes it: `local` for a caller that does not prove who it is.
    pub(crate) principal: &'a str,
    /// Its name in `host.auth.clients`.
    pub(crate) client: Option<&'a str>,
    /// The issuer and the subject of its token.
    pub(crate) subject: Option<(&'a str, &'a str)>,
    /// The claims of its token.
    pub(crate) claims: Option<&'a Map<String, Value>>,
    /// The scopes of its token.
    pub(crate) scopes: &'a [String],
    /// The view that it uses.
    pub(crate) view: &'a str,
}

impl Caller<'_> {
    /// Reports whether a rule applies to this caller, as far as the rule names principals, clients, and views.
    pub(super) fn is_meant(&self, matcher: &Matcher) -> bool {
        let Matcher { principals, clients, views, .. } = matcher;
        principals.as_ref().is_none_or(|all| all.iter().any(|one| self.is(one)))
            && clients.as_ref().is_none_or(|all| all.iter().any(|name| self.client == Some(name)))
            && views.as_ref().is_none_or(|all| all.iter().any(|name| self.view == name))
    }

    /// Reports whether the condition of a rule is false for all requests of this caller.
    pub(super) fn is_ruled_out(&self, matcher: &Matcher) -> bool {
        let Some(when) = matcher.when.as_ref().filter(|when| when.is_of_caller()) else { return false };
        let arguments = Arguments::new(None);
        let values = Values {
            principal: self.principal,
            claims: self.claims,
            client: ("", None),
            view: self.view,
            server: "",
            tool: "",
            name: "",
            tags: &[],
            hints: [None; 4],
            args: &arguments,
        };
        // A condition that fails counts as the stricter of true and false, for each request.
        when.evaluate(&values, &mut Budget::default()) == Ok(false)
    }

    fn is(&self, one: &Audience) -> bool {
        match one {
            Audience::Local => self.principal == "local" && self.client.is_none() && self.subject.is_none(),
            Audience::Client(name) => self.client == Some(name),
            Audience::Subject(issuer, subject) => self.subject == Some((issuer, subject)),
            Audience::Claim(name, value) => match self.claims.and_then(|claims| claims.get(name)) {
                Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(value)),
                claimed => claimed.and_then(Value::as_str) == Some(value),
            },
            Audience::Scope(scope) => self.scopes.contains(scope),
        }
    }
}
