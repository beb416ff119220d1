//! A compiled expression: every name is resolved, and every function has the number of arguments that it takes.

/// A part of an expression.
#[derive(Debug)]
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only what is parsed has parts"))]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    List(Vec<Self>),
    Variable(Variable),
    /// A member of the arguments.
    Argument(String),
    /// Whether the arguments have a member.
    HasArgument(String),
    /// A variable of a comprehension, by how many levels out that comprehension is; 0 is the innermost.
    Item(usize),
    Select(Box<Self>, String),
    Has(Box<Self>, String),
    Not(Box<Self>),
    Negate(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    If(Box<[Self; 3]>),
    Binary(Binary, Box<[Self; 2]>),
    Call(Function, Vec<Self>),
    Fold(Box<Fold>),
}

#[cfg(feature = "policy")]
impl Node {
    /// Reports whether `of_kind` is true for any variable in this tree.
    pub(super) fn has(&self, of_kind: &impl Fn(Variable) -> bool) -> bool {
        match self {
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::Item(_) => false,
            Self::Variable(variable) => of_kind(*variable),
            Self::Argument(_) | Self::HasArgument(_) => of_kind(Variable::Args),
            Self::Select(one, _) | Self::Has(one, _) | Self::Not(one) | Self::Negate(one) => one.has(of_kind),
            Self::And(one, other) | Self::Or(one, other) => one.has(of_kind) || other.has(of_kind),
            Self::If(all) => all.iter().any(|one| one.has(of_kind)),
            Self::Binary(_, both) => both.iter().any(|one| one.has(of_kind)),
            Self::List(all) | Self::Call(_, all) => all.iter().any(|one| one.has(of_kind)),
            Self::Fold(fold) => {
                let parts = [Some(&fold.range), fold.filter.as_ref(), Some(&fold.body)];
                parts.into_iter().flatten().any(|one| one.has(of_kind))
            }
        }
    }
}

impl Variable {
    /// Reports whether the variable is the same for all requests of a caller.
    #[cfg(feature = "policy")]
    pub(super) fn is_of_caller(self) -> bool {
        matches!(self, Self::Principal | Self::Claims | Self::View)
    }
}

/// A variable of the request. The variables of comprehensions are [`Node::Item`].
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only what is parsed has parts"))]
pub(super) enum Variable {
    Principal,
    Claims,
    Client,
    View,
    Server,
    Tool,
    Name,
    Tags,
    Hints,
    Args,
}

/// An operator with two operands, both of which are always evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only what is parsed has parts"))]
pub(super) enum Binary {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Index,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A function. If it is called on a value, that value is its first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only what is parsed has parts"))]
pub(super) enum Function {
    Size,
    StartsWith,
    EndsWith,
    Contains,
    LowerAscii,
    UpperAscii,
    String,
    Int,
    Double,
}

/// A comprehension: `all`, `exists`, `exists_one`, `map` or `filter`.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) kind: Folding,
    pub(super) range: Node,
    /// The condition that selects the items that count; `None` means all.
    pub(super) filter: Option<Node>,
    /// The expression that is evaluated for each item.
    pub(super) body: Node,
}

/// How a comprehension combines its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "policy"), allow(dead_code, reason = "only what is parsed has parts"))]
pub(super) enum Folding {
    All,
    Exists,
    ExistsOne,
    Map,
}
