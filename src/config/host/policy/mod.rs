//! `host.policy`: which calls and other requests are allowed, asked about, and denied. `read.rs` reads it.

mod read;

#[cfg(feature = "server")]
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) use self::read::fill;
use super::{Audience, HostSettings};
use crate::config::keys::words;
use crate::config::selector::Selector;
use crate::expression::Expression;

words! {
    /// Whether verdicts are enforced.
    #[derive(Hash)]
    pub enum PolicyMode {
        /// Verdicts are enforced.
        #[default]
        Enforce = "enforce",
        /// Verdicts are only reported, and everything is allowed.
        Report = "report",
    }
}

words! {
    /// What a rule decides about a request. A stricter decision compares as greater.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Decision {
        /// The request is sent.
        #[default]
        Allow = "allow",
        /// A person is asked first.
        Ask = "ask",
        /// The request is refused.
        Deny = "deny",
    }
}

words! {
    /// What counts as a person's yes to a request that a rule asks about.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Proof {
        /// The client answers a form. It may do so without showing the form to anyone.
        #[default]
        Client = "client",
        /// The person who runs the host says yes.
        Person = "person",
    }
}

words! {
    /// What a request does.
    #[derive(Hash)]
    pub enum Action {
        /// It calls a tool.
        #[default]
        Call = "call",
        /// It gets a prompt.
        Get = "get",
        /// It reads a resource.
        Read = "read",
        /// It subscribes to a resource.
        Subscribe = "subscribe",
        /// It completes an argument.
        Complete = "complete",
        /// A server asks the client to generate a text (sampling).
        Sample = "sample",
        /// A server asks the client's user (elicitation).
        Elicit = "elicit",
        /// A server asks for the client's roots.
        Roots = "roots",
    }
}

impl Action {
    /// Reports whether a server does this, not a client. Rules apply to such actions only if they name them.
    pub(crate) fn is_servers(self) -> bool {
        matches!(self, Self::Sample | Self::Elicit | Self::Roots)
    }
}

/// The rules, and what happens to requests that no rule matches.
///
/// ```
/// use mcp_host::config::{Config, Decision, HostSettings, Policy, Rule, Selector};
///
/// let mut rule = Rule::new("no-writes", Decision::Deny);
/// rule.matches.tools = Selector::parse("hint:not-read-only").map(|selector| vec![selector]);
/// let mut policy = Policy::default();
/// policy.rules.push(rule);
/// let config = Config::default().host(HostSettings::default().policy(policy));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Policy {
    /// Whether verdicts are enforced or only reported.
    pub mode: PolicyMode,
    /// What happens to requests that no rule matches.
    pub default: Decision,
    /// What counts as a yes for rules that do not say it themselves.
    pub proof: Proof,
    /// The rules. Of those that match, the strictest counts, whatever their order.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Reports whether any rule applies to some callers only.
    pub(crate) fn tells_callers_apart(&self) -> bool {
        let names_some = |matcher: &Matcher| matcher.principals.is_some() || matcher.clients.is_some();
        self.rules.iter().flat_map(|rule| [Some(&rule.matches), rule.unless.as_ref()]).flatten().any(names_some)
    }
}

/// One rule.
///
/// ```
/// use mcp_host::config::{Decision, Rule};
///
/// let rule = Rule::new("no-prod", Decision::Deny);
/// assert!(rule.hide && rule.matches.tools.is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Rule {
    /// Its name, which appears in the audit and in answers to clients.
    pub name: String,
    /// What it decides about the requests that it matches.
    pub verdict: Decision,
    /// Whether tools, prompts, and resources that it always denies are left out of lists.
    pub hide: bool,
    /// Whether its verdict is only reported.
    pub report: bool,
    /// How long a person's yes counts; `None` means for this request only.
    pub remember: Option<Duration>,
    /// What counts as a yes; `None` means [`Policy::proof`].
    pub proof: Option<Proof>,
    /// What it matches. Each part that is given must match.
    pub matches: Matcher,
    /// Exceptions: what it does not match although `matches` does.
    pub unless: Option<Matcher>,
}

impl Rule {
    /// Returns a rule that matches every request.
    #[must_use]
    pub fn new(name: &str, verdict: Decision) -> Self {
        let (report, remember, proof) = (false, None, None);
        let (matches, unless) = (Matcher::default(), None);
        Self { name: name.to_owned(), verdict, hide: true, report, remember, proof, matches, unless }
    }
}

/// What a rule matches. A part that is `None` matches everything.
///
/// ```
/// use mcp_host::config::{Matcher, Selector};
///
/// let mut matcher = Matcher::default();
/// matcher.tools = Some(vec![Selector::Server("db".to_owned())]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Matcher {
    /// Selectors of tools.
    pub tools: Option<Vec<Selector>>,
    /// Globs over the exposed names of prompts.
    pub prompts: Option<Vec<String>>,
    /// Globs over the URIs of resources, exposed or the server's own.
    pub resources: Option<Vec<String>>,
    /// Actions; `None` means everything that a client does.
    pub actions: Option<Vec<Action>>,
    /// Callers.
    pub principals: Option<Vec<Audience>>,
    /// The names of clients in `host.auth.clients`.
    pub clients: Option<Vec<String>>,
    /// The views of the callers.
    pub views: Option<Vec<String>>,
    /// A condition on the request.
    pub when: Option<Expression>,
}

impl HostSettings {
    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

/// The claims of tokens that conditions and principals of rules read.
#[cfg(feature = "server")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimsRead {
    /// The claims with these names.
    These(BTreeSet<String>),
    /// All claims, or claims whose names are not known in advance.
    All,
}

impl Policy {
    /// Reports whether the policy has no effect.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.default == Decision::Allow
    }

    /// Returns which claims of tokens the policy reads; `None` if it reads neither claims nor scopes.
    #[cfg(feature = "server")]
    pub(crate) fn claims_read(&self) -> Option<ClaimsRead> {
        let parts = || self.rules.iter().flat_map(|rule| std::iter::once(&rule.matches).chain(&rule.unless));
        if parts().any(|part| part.when.as_ref().is_some_and(|when| when.as_str().contains("claims"))) {
            return Some(ClaimsRead::All);
        }
        let principals = || parts().filter_map(|part| part.principals.as_ref()).flatten();
        let reads = |one: &Audience| matches!(one, Audience::Claim(..) | Audience::Scope(_) | Audience::Subject(..));
        let names = principals().filter_map(|one| match one {
            Audience::Claim(name, _) => Some(name.clone()),
            _ => None,
        });
        principals().any(reads).then(|| ClaimsRead::These(names.collect()))
    }

    /// Reports whether a rule depends on the hints of tools.
    pub(crate) fn reads_hints(&self) -> bool {
        let by_selector = |part: &Matcher| part.tools.iter().flatten().any(|tool| matches!(tool, Selector::Hint(_)));
        let by_condition = |part: &Matcher| part.when.as_ref().is_some_and(|when| when.as_str().contains("hints"));
        let mut parts = self.rules.iter().flat_map(|rule| std::iter::once(&rule.matches).chain(&rule.unless));
        parts.any(|part| by_selector(part) || by_condition(part))
    }

    /// Reports whether a rule applies to requests of servers.
    pub(crate) fn judges_servers(&self) -> bool {
        let named = |part: &Matcher| part.actions.iter().flatten().any(|action| action.is_servers());
        self.rules.iter().any(|rule| named(&rule.matches))
    }
}
