//! Conditions of policy rules (`when`): a part of CEL, checked when the config is read, evaluated for each request.
//!
//! In: a text, then for each request what is known of it ([`Values`]). Out: true, false, or an error; an error counts
//! as the stricter of the two. The parser is the one of the crate `cel`. `compile.rs` turns its output into a small
//! tree of our own, because only an interpreter of our own (`evaluate.rs`) can count every step.
//!
//! **Invariant:** no text and no argument makes this panic, and one evaluation takes a bounded number of steps. Error
//! messages name what the expression says, never a value that a client sent.

mod arguments;
#[cfg(feature = "policy")]
mod compile;
mod evaluate;
mod steps;
#[cfg(all(test, feature = "policy"))]
mod tests;
mod tree;
mod value;

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(crate) use self::arguments::Arguments;
pub(crate) use self::steps::Budget;
use self::tree::Node;

/// The names that an expression may use.
#[cfg(feature = "policy")]
pub(crate) const VARIABLES: [&str; 10] =
    ["principal", "claims", "client", "view", "server", "tool", "name", "tags", "hints", "args"];

/// The longest text of an expression, in bytes.
#[cfg(feature = "policy")]
const LONGEST: usize = 4 * 1024;

/// A condition over a request, in CEL.
///
/// It may use `principal`, `claims`, `client.name`, `client.version`, `view`, `server`, `tool`, `name`, `tags`, `hints`,
/// and `args`.
///
/// ```
/// use mcp_host::config::Expression;
///
/// # if cfg!(feature = "policy") {
/// let when = Expression::parse("has(args.database) && args.database.startsWith('prod')").unwrap();
/// assert_eq!(when.as_str(), "has(args.database) && args.database.startsWith('prod')");
/// assert!(Expression::parse("argz.database == 'prod'").is_err());
/// # }
/// ```
#[derive(Clone)]
pub struct Expression(Arc<Compiled>);

struct Compiled {
    text: Box<str>,
    node: Node,
    reads: Reads,
    /// The names of the members that the expression looks up, at any depth.
    names: BTreeSet<String>,
    /// Whether the result is the same for all requests of a caller.
    of_caller: bool,
}

/// Which arguments of a call an expression looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only what is parsed has parts"))]
pub(crate) enum Reads {
    /// None.
    Nothing,
    /// Those with these names.
    Members(BTreeSet<String>),
    /// All arguments, or some whose names are not known in advance.
    All,
}

impl Reads {
    /// Reports whether the expression looks at any arguments.
    pub(crate) fn any(&self) -> bool {
        *self != Self::Nothing
    }
}

/// What is known of a request.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    /// The caller's principal, as the audit writes it.
    pub(crate) principal: &'a str,
    /// The claims of the caller's token.
    pub(crate) claims: Option<&'a serde_json::Map<String, serde_json::Value>>,
    /// The name and the version that the client states for itself.
    pub(crate) client: (&'a str, Option<&'a str>),
    pub(crate) view: &'a str,
    pub(crate) server: &'a str,
    /// The tool's exposed name, or the exposed URI.
    pub(crate) tool: &'a str,
    /// The server's own name for the tool, or its own URI.
    pub(crate) name: &'a str,
    pub(crate) tags: &'a [String],
    /// The tool's hints: `readOnlyHint`, `destructiveHint`, `idempotentHint`, `openWorldHint`.
    pub(crate) hints: [Option<bool>; 4],
    pub(crate) args: &'a Arguments,
}

/// The names of the hints, in the order of [`Values::hints`].
const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

impl Expression {
    /// Reads and checks an expression.
    ///
    /// # Errors
    /// Fails if the text is no expression, uses something that these expressions do not have, or is too long or too
    /// deep. The error says what is wrong, and where. A build without the feature `policy` has no expressions.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[cfg(feature = "policy")]
        {
            if text.len() > LONGEST {
                return Err(format!("it has {} bytes; {LONGEST} at most", text.len()));
            }
            let (node, reads, names) = compile::compile(text)?;
            let of_caller = !node.has(&|variable| !variable.is_of_caller());
            Ok(Self(Arc::new(Compiled { text: text.into(), node, reads, names, of_caller })))
        }
        #[cfg(not(feature = "policy"))]
        {
            let _ = text;
            Err("rules with `when` need a build with the cargo feature `policy`".to_owned())
        }
    }

    /// Returns the text as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns which arguments the expression looks at.
    pub(crate) fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// Returns the names of all members that the expression looks up, at any depth.
    pub(crate) fn names(&self) -> &BTreeSet<String> {
        &self.0.names
    }

    /// Reports whether the result is the same for all requests of a caller: only `principal`, `claims`, and `view` are
    /// read.
    pub(crate) fn is_of_caller(&self) -> bool {
        self.0.of_caller
    }

    /// Evaluates the expression. Its steps are taken from the budget of the request.
    ///
    /// # Errors
    /// Fails if a member is missing or has the wrong kind, if the result is neither true nor false, or if the
    /// evaluation would take too many steps.
    pub(crate) fn evaluate(&self, values: &Values<'_>, budget: &mut Budget) -> Result<bool, String> {
        evaluate::evaluate(&self.0.node, values, budget)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.as_str()).finish()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Expression {}

impl Hash for Expression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
