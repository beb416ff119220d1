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
    /// What becomes of verdicts.
    #[derive(Hash)]
    pub enum PolicyMode {
        /// They count.
        #[default]
        Enforce = "enforce",
        /// They are only written down, and everything is allowed.
        Report = "report",
    }
}

words! {
    /// What a rule says of a request. The strictest is the greatest.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Decision {
        /// It is sent.
        #[default]
        Allow = "allow",
        /// A person is asked first.
        Ask = "ask",
        /// It is refused.
        Deny = "deny",
    }
}

words! {
    /// Who must have said yes to a request that is asked about.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Proof {
        /// The client answers a form. It may do so without showing it to anybody.
        #[default]
        Client = "client",
        /// The person who runs the host.
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
        /// A server asks the client to generate a text.
        Sample = "sample",
        /// A server asks the person.
        Elicit = "elicit",
        /// A server asks for the roots.
        Roots = "roots",
    }
}

impl Action {
    /// Reports whether rules mean it only if they name it: a server does this, not a client.
    pub(crate) fn is_servers(self) -> bool {
        matches!(self, Self::Sample | Self::Elicit | Self::Roots)
    }
}

/// The rules, and what happens where none matches.
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
    /// Whether verdicts count.
    pub mode: PolicyMode,
    /// What happens to requests that no rule matches.
    pub default: Decision,
    /// Who must have said yes where a rule does not say.
    pub proof: Proof,
    /// The rules. The strictest that matches counts, whatever their order.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// Reports whether any rule holds for some callers alone.
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
    /// Its name, by which the audit and the answers to clients refer to it.
    pub name: String,
    /// What it says of what it matches.
    pub verdict: Decision,
    /// Whether what it always denies is not even listed.
    pub hide: bool,
    /// Whether its verdict is only written down.
    pub report: bool,
    /// How long a yes may count; `None` means for this request.
    pub remember: Option<Duration>,
    /// Who must have said yes; `None` means what the policy says.
    pub proof: Option<Proof>,
    /// What it matches. Everything that is named must match.
    pub matches: Matcher,
    /// What it does not match although `matches` does.
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

/// What a rule matches: each `None` matches everything.
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
    /// Tools.
    pub tools: Option<Vec<Selector>>,
    /// Globs over the exposed names of prompts.
    pub prompts: Option<Vec<String>>,
    /// Globs over the URIs of resources, exposed or the server's own.
    pub resources: Option<Vec<String>>,
    /// What is done; `None` means everything that a client does.
    pub actions: Option<Vec<Action>>,
    /// Who asks.
    pub principals: Option<Vec<Audience>>,
    /// The names of clients in `host.auth.clients`.
    pub clients: Option<Vec<String>>,
    /// The views that are used.
    pub views: Option<Vec<String>>,
    /// What else must hold.
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

/// The claims of tokens that rules read.
#[cfg(feature = "server")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimsRead {
    /// Those with these names.
    These(BTreeSet<String>),
    /// Any.
    All,
}

impl Policy {
    /// Reports whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.default == Decision::Allow
    }

    /// Returns which claims of tokens it reads; `None` if it reads neither claims nor scopes.
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

    /// Reports whether a rule goes by what is said of tools.
    pub(crate) fn reads_hints(&self) -> bool {
        let by_selector = |part: &Matcher| part.tools.iter().flatten().any(|tool| matches!(tool, Selector::Hint(_)));
        let by_condition = |part: &Matcher| part.when.as_ref().is_some_and(|when| when.as_str().contains("hints"));
        let mut parts = self.rules.iter().flat_map(|rule| std::iter::once(&rule.matches).chain(&rule.unless));
        parts.any(|part| by_selector(part) || by_condition(part))
    }

    /// Reports whether a rule names what servers ask.
    pub(crate) fn judges_servers(&self) -> bool {
        let named = |part: &Matcher| part.actions.iter().flatten().any(|action| action.is_servers());
        self.rules.iter().any(|rule| named(&rule.matches))
    }
}
