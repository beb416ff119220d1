//! Reads the text of an expression, and resolves every name in it.
//!
//! **Invariant:** nothing that a text says makes the stack overflow: it is parsed on a thread with a large one, and
//! what comes out is at most [`DEEPEST`] levels deep.

use std::collections::BTreeSet;
use std::thread;

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};
use cel::parser::PrattParser;

use super::tree::{Binary, Fold, Folding, Function, Node, Variable};
use super::{Reads, VARIABLES};

/// How deep brackets may be nested.
const BRACKETS: usize = 24;
/// How many comprehensions may be inside one another.
const FOLDS: usize = 2;
/// How deep the tree may be.
const DEEPEST: usize = 96;
/// The stack of the thread that parses, in bytes. Its unused part costs nothing.
const STACK: usize = 32 * 1024 * 1024;

const MACROS: &str = "has, all, exists, exists_one, map, filter";

/// Each function, whether it can be called on a value and by itself, and how many values it takes in all.
const FUNCTIONS: [(Function, bool, bool, usize); 9] = [
    (Function::Size, true, true, 1),
    (Function::StartsWith, true, false, 2),
    (Function::EndsWith, true, false, 2),
    (Function::Contains, true, false, 2),
    (Function::LowerAscii, true, false, 1),
    (Function::UpperAscii, true, false, 1),
    (Function::String, false, true, 1),
    (Function::Int, false, true, 1),
    (Function::Double, false, true, 1),
];

/// The meaning of a text: its tree, which arguments it reads, and all names of members in it.
type Meaning = (Node, Reads, BTreeSet<String>);

/// Reads an expression.
pub(super) fn compile(text: &str) -> Result<Meaning, String> {
    check_brackets(text)?;
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("expression".to_owned()).stack_size(STACK);
        let parsing = thread.spawn_scoped(scope, || parse(text)).map_err(|error| format!("no thread: {error}"))?;
        // The parser is a foreign crate. If it panics, the text counts as invalid.
        parsing.join().unwrap_or_else(|_| Err("it cannot be read".to_owned()))
    })
}

fn parse(text: &str) -> Result<Meaning, String> {
    let parser = PrattParser::new().error_recovery_limit(4);
    let parsed = parser.parse(text).map_err(|errors| {
        let Some(error) = errors.errors.first() else { return "it is no expression".to_owned() };
        let message = error.msg.trim_start_matches("Syntax error: ").replace("mismatched input", "unexpected");
        let message = message.replace("'<EOF>'", "end").replace("<EOF>", "the end");
        match error.pos {
            (1, column) => format!("column {column}: {message}"),
            (line, column) if line > 0 => format!("line {line}, column {column}: {message}"),
            _ => message,
        }
    })?;
    let mut compiler = Compiler { items: Vec::new(), reads: Reads::Nothing, names: BTreeSet::new(), depth: 0 };
    let node = compiler.node(&parsed)?;
    Ok((node, compiler.reads, compiler.names))
}

/// Refuses brackets that are nested too deep. Brackets in string literals and comments do not count.
fn check_brackets(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' | b'\'' => {
                let triple = [byte; 3];
                let end: &[u8] = if bytes[at..].starts_with(&triple) { &triple } else { &triple[..1] };
                let is_raw = at > 0 && matches!(bytes[at - 1], b'r' | b'R');
                at += end.len();
                while at < bytes.len() && !bytes[at..].starts_with(end) {
                    at += if bytes[at] == b'\\' && !is_raw { 2 } else { 1 };
                }
                at += end.len() - 1;
            }
            b'/' if bytes[at..].starts_with(b"//") => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
            }
            _ => {}
        }
        if depth > BRACKETS {
            return Err(format!("brackets are nested more than {BRACKETS} deep"));
        }
        at += 1;
    }
    Ok(())
}

struct Compiler {
    /// The variables of the enclosing comprehensions, the innermost last.
    items: Vec<String>,
    reads: Reads,
    names: BTreeSet<String>,
    depth: usize,
}

impl Compiler {
    fn node(&mut self, expr: &IdedExpr) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("it is nested more than {DEEPEST} levels deep"));
        }
        let node = match &expr.expr {
            Expr::Literal(literal) => literal_of(literal)?,
            Expr::Ident(name) => self.name(name)?,
            Expr::Select(select) => self.select(select)?,
            Expr::List(list) => Node::List(list.elements.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?),
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(fold) => Node::Fold(Box::new(self.fold(fold)?)),
            Expr::Map(_) | Expr::Struct(_) => return Err("objects (`{}`) cannot be written here".to_owned()),
            Expr::Unspecified => return Err("it is no expression".to_owned()),
        };
        self.depth -= 1;
        Ok(node)
    }

    fn boxed(&mut self, expr: &IdedExpr) -> Result<Box<Node>, String> {
        Ok(Box::new(self.node(expr)?))
    }

    fn name(&mut self, name: &str) -> Result<Node, String> {
        if let Some(out) = self.items.iter().rev().position(|item| item == name) {
            return Ok(Node::Item(out));
        }
        Ok(Node::Variable(match name {
            "principal" => Variable::Principal,
            "claims" => Variable::Claims,
            "client" => Variable::Client,
            "view" => Variable::View,
            "server" => Variable::Server,
            "tool" => Variable::Tool,
            "name" => Variable::Name,
            "tags" => Variable::Tags,
            "hints" => Variable::Hints,
            "args" => {
                self.reads = Reads::All;
                Variable::Args
            }
            _ => return Err(format!("unknown name `{name}`; the names are {}", VARIABLES.join(", "))),
        }))
    }

    /// Reports whether this expression is the variable `args`. No comprehension has a variable with that name.
    fn is_args(expr: &IdedExpr) -> bool {
        matches!(&expr.expr, Expr::Ident(name) if name == "args")
    }

    /// Records that the expression reads this argument.
    fn argument(&mut self, name: &str) -> String {
        self.names.insert(name.to_owned());
        match &mut self.reads {
            Reads::All => {}
            Reads::Members(names) => {
                names.insert(name.to_owned());
            }
            Reads::Nothing => self.reads = Reads::Members(BTreeSet::from([name.to_owned()])),
        }
        name.to_owned()
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Node, String> {
        if Self::is_args(&select.operand) {
            let name = self.argument(&select.field);
            return Ok(if select.test { Node::HasArgument(name) } else { Node::Argument(name) });
        }
        let of = self.boxed(&select.operand)?;
        self.names.insert(select.field.clone());
        let name = select.field.clone();
        Ok(if select.test { Node::Has(of, name) } else { Node::Select(of, name) })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Node, String> {
        let CallExpr { func_name, target, args } = call;
        if target.is_none()
            && let Some(node) = self.operator(func_name, args)?
        {
            return Ok(node);
        }
        let found = FUNCTIONS.iter().find(|(function, ..)| function.name() == func_name);
        let Some((function, on_value, by_itself, takes)) = found.copied() else {
            let known: Vec<&str> = FUNCTIONS.iter().map(|(function, ..)| function.name()).collect();
            let message = match func_name.as_str() {
                "has" | "all" | "exists" | "exists_one" | "map" | "filter" => {
                    format!("`{func_name}` cannot be used this way")
                }
                "matches" => "there are no regular expressions, and no function `matches`".to_owned(),
                _ => format!("unknown function `{func_name}`"),
            };
            return Err(format!("{message}; the functions are {}, and {MACROS}", known.join(", ")));
        };
        if target.is_some() && !on_value || target.is_none() && !by_itself {
            let example = if by_itself { format!("{func_name}(x)") } else { format!("x.{func_name}(…)") };
            return Err(format!("`{func_name}` is written {example}"));
        }
        let values: Vec<&IdedExpr> = target.iter().map(|target| &**target).chain(args).collect();
        if values.len() != takes {
            let (takes, given) = (takes - usize::from(target.is_some()), args.len());
            return Err(format!("`{func_name}` takes {takes} values, not {given}"));
        }
        Ok(Node::Call(function, values.into_iter().map(|value| self.node(value)).collect::<Result<_, _>>()?))
    }

    fn operator(&mut self, name: &str, args: &[IdedExpr]) -> Result<Option<Node>, String> {
        let binary = match name {
            operators::EQUALS => Binary::Equal,
            operators::NOT_EQUALS => Binary::Unequal,
            operators::LESS => Binary::Less,
            operators::LESS_EQUALS => Binary::LessOrEqual,
            operators::GREATER => Binary::Greater,
            operators::GREATER_EQUALS => Binary::GreaterOrEqual,
            operators::IN => Binary::In,
            operators::INDEX => Binary::Index,
            operators::ADD => Binary::Add,
            operators::SUBSTRACT => Binary::Subtract,
            operators::MULTIPLY => Binary::Multiply,
            operators::DIVIDE => Binary::Divide,
            operators::MODULO => Binary::Remainder,
            _ => return self.logic(name, args),
        };
        let [one, other] = args else { return Ok(None) };
        // A member whose name is a string literal, as in `args["x"]` or `"x" in args`, is read, too.
        if let (Binary::Index, _, Some(name)) | (Binary::In, Some(name), _) = (binary, text_of(one), text_of(other)) {
            let of = if binary == Binary::In { other } else { one };
            if Self::is_args(of) {
                let name = self.argument(name);
                return Ok(Some(if binary == Binary::In { Node::HasArgument(name) } else { Node::Argument(name) }));
            }
            self.names.insert(name.to_owned());
        }
        Ok(Some(Node::Binary(binary, Box::new([self.node(one)?, self.node(other)?]))))
    }

    fn logic(&mut self, name: &str, args: &[IdedExpr]) -> Result<Option<Node>, String> {
        Ok(Some(match (name, args) {
            (operators::LOGICAL_AND, [one, other]) => Node::And(self.boxed(one)?, self.boxed(other)?),
            (operators::LOGICAL_OR, [one, other]) => Node::Or(self.boxed(one)?, self.boxed(other)?),
            (operators::LOGICAL_NOT, [one]) => Node::Not(self.boxed(one)?),
            (operators::NEGATE, [one]) => Node::Negate(self.boxed(one)?),
            (operators::CONDITIONAL, [condition, then, otherwise]) => {
                Node::If(Box::new([self.node(condition)?, self.node(then)?, self.node(otherwise)?]))
            }
            _ => return Ok(None),
        }))
    }

    fn fold(&mut self, fold: &ComprehensionExpr) -> Result<Fold, String> {
        let unknown = || format!("a macro that is not known; the known ones are {MACROS}");
        let (kind, filter, body) = parts(fold).ok_or_else(unknown)?;
        let range = self.node(&fold.iter_range)?;
        let item = &fold.iter_var;
        if VARIABLES.contains(&item.as_str()) {
            return Err(format!("`{item}` means something already; use another name for the items"));
        }
        if self.items.len() == FOLDS {
            return Err(format!("more than {FOLDS} macros like `all` inside one another"));
        }
        self.items.push(item.clone());
        let filter = filter.map(|filter| self.node(filter)).transpose()?;
        let body = self.node(body)?;
        self.items.pop();
        Ok(Fold { kind, range, filter, body })
    }
}

/// Recognizes the macro from which the parser has made this comprehension. Returns its kind, its filter, and the
/// expression that is evaluated for each item.
fn parts(fold: &ComprehensionExpr) -> Option<(Folding, Option<&IdedExpr>, &IdedExpr)> {
    if fold.iter_var2.is_some() {
        return None;
    }
    let Expr::Call(step) = &fold.loop_step.expr else { return None };
    Some(match (step.func_name.as_str(), &*step.args, &fold.accu_init.expr) {
        (operators::LOGICAL_AND, [_, body], _) => (Folding::All, None, body),
        (operators::LOGICAL_OR, [_, body], _) => (Folding::Exists, None, body),
        (operators::CONDITIONAL, [body, ..], Expr::Literal(_)) => (Folding::ExistsOne, None, body),
        (operators::CONDITIONAL, [filter, then, _], Expr::List(_)) => {
            let Expr::Call(then) = &then.expr else { return None };
            (Folding::Map, Some(filter), item_of(then.args.get(1)?)?)
        }
        (operators::ADD, [_, made], Expr::List(_)) => (Folding::Map, None, item_of(made)?),
        _ => return None,
    })
}

/// Returns the only item of a list.
fn item_of(list: &IdedExpr) -> Option<&IdedExpr> {
    match &list.expr {
        Expr::List(list) => list.elements.first(),
        _ => None,
    }
}

fn text_of(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

fn literal_of(literal: &LiteralValue) -> Result<Node, String> {
    Ok(match literal {
        LiteralValue::Boolean(flag) => Node::Bool(*flag.inner()),
        LiteralValue::Int(number) => Node::Int(*number.inner()),
        LiteralValue::UInt(number) => Node::Uint(*number.inner()),
        LiteralValue::Double(number) => Node::Double(*number.inner()),
        LiteralValue::String(text) => Node::Text(text.inner().to_owned()),
        LiteralValue::Null => Node::Null,
        LiteralValue::Bytes(_) => return Err("bytes (`b'…'`) cannot be written here".to_owned()),
    })
}
