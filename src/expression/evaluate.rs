//! Evaluates an expression for one request, and counts every step.
//!
//! **Invariant:** what a step costs grows with what it reads or writes, so the number of steps bounds the time.

use std::cmp::Ordering;

use super::steps::{Budget, Fault, Fuel, ITEMS};
use super::tree::{Binary, Fold, Folding, Function, Node, Variable};
use super::value::{List, Map, Value};
use super::{HINTS, Values};

/// The longest text that an expression may create, in bytes.
const TEXT: usize = 256 * 1024;

/// Evaluates a whole expression.
pub(super) fn evaluate(node: &Node, values: &Values<'_>, budget: &mut Budget) -> Result<bool, String> {
    let mut machine = Machine { values, fuel: budget.draw(), items: Vec::new() };
    let found = machine.value(node);
    budget.give_back(&machine.fuel);
    match found {
        Ok(Value::Bool(result)) => Ok(result),
        Ok(_) => Err(Fault::NoResult.to_string()),
        Err(fault) => Err(fault.to_string()),
    }
}

struct Machine<'a> {
    values: &'a Values<'a>,
    fuel: Fuel,
    /// The current items of the enclosing comprehensions, the innermost last.
    items: Vec<Value<'a>>,
}

type Found<'a> = Result<Value<'a>, Fault<'a>>;

impl<'a> Machine<'a> {
    fn value(&mut self, node: &'a Node) -> Found<'a> {
        self.fuel.burn(1)?;
        Ok(match node {
            Node::Null => Value::Null,
            Node::Bool(flag) => Value::Bool(*flag),
            Node::Int(number) => Value::Int(*number),
            Node::Uint(number) => Value::Uint(*number),
            Node::Double(number) => Value::Double(*number),
            Node::Text(text) => Value::text(text),
            Node::List(nodes) => Value::list(nodes.iter().map(|node| self.value(node)).collect::<Result<Vec<_>, _>>()?),
            Node::Variable(variable) => self.variable(*variable),
            Node::Argument(name) => self.argument(name)?.ok_or(Fault::Missing(name))?,
            Node::HasArgument(name) => Value::Bool(self.argument(name)?.is_some()),
            Node::Item(out) => {
                let item = self.items.len().checked_sub(out + 1).and_then(|index| self.items.get(index));
                item.cloned().ok_or(Fault::NoResult)?
            }
            Node::Select(of, name) => self.member(of, name)?.ok_or(Fault::Missing(name))?,
            Node::Has(of, name) => Value::Bool(self.member(of, name)?.is_some()),
            Node::Not(node) => Value::Bool(!self.flag(node, "`!`")?),
            Node::Negate(node) => match self.value(node)? {
                Value::Int(number) => Value::Int(number.checked_neg().ok_or(Fault::Overflow)?),
                Value::Double(number) => Value::Double(-number),
                _ => return Err(Fault::Kind("`-`")),
            },
            Node::And(one, other) => Value::Bool(self.either(one, other, false, "`&&`")?),
            Node::Or(one, other) => Value::Bool(self.either(one, other, true, "`||`")?),
            Node::If(nodes) => {
                let [condition, then, otherwise] = &**nodes;
                let then = if self.flag(condition, "`?:`")? { then } else { otherwise };
                self.value(then)?
            }
            Node::Binary(operator, nodes) => {
                let [one, other] = &**nodes;
                let (one, other) = (self.value(one)?, self.value(other)?);
                self.binary(*operator, &one, &other)?
            }
            Node::Call(function, nodes) => {
                let mut arguments = Vec::with_capacity(nodes.len());
                for node in nodes {
                    arguments.push(self.value(node)?);
                }
                self.call(*function, &arguments)?
            }
            Node::Fold(fold) => self.fold(fold)?,
        })
    }

    fn variable(&self, variable: Variable) -> Value<'a> {
        let values = self.values;
        match variable {
            Variable::Principal => Value::text(values.principal),
            Variable::Claims => values.claims.map_or(Value::map(Vec::new()), |claims| Value::Map(Map::Json(claims))),
            Variable::Client => {
                let (name, version) = values.client;
                let version = version.map(|version| ("version", Value::text(version)));
                Value::map([("name", Value::text(name))].into_iter().chain(version).collect())
            }
            Variable::View => Value::text(values.view),
            Variable::Server => Value::text(values.server),
            Variable::Tool => Value::text(values.tool),
            Variable::Name => Value::text(values.name),
            Variable::Tags => Value::List(List::Texts(values.tags)),
            Variable::Hints => {
                let hint = |flag: Option<bool>| flag.map_or(Value::Null, Value::Bool);
                Value::map(HINTS.into_iter().zip(values.hints.map(hint)).collect())
            }
            Variable::Args => Value::Map(Map::Arguments(values.args)),
        }
    }

    /// Returns an argument of the call, and parses it if that was not done before.
    fn argument(&mut self, name: &str) -> Result<Option<Value<'a>>, Fault<'a>> {
        self.fuel.burn(Map::Arguments(self.values.args).cost())?;
        Ok(self.values.args.get(name).map_err(|_| Fault::Unreadable)?.map(Value::of))
    }

    fn member(&mut self, of: &'a Node, name: &str) -> Result<Option<Value<'a>>, Fault<'a>> {
        match self.value(of)? {
            Value::Map(map) => self.look_up(&map, name),
            _ => Err(Fault::Kind("`.`")),
        }
    }

    fn look_up(&mut self, map: &Map<'a>, key: &str) -> Result<Option<Value<'a>>, Fault<'a>> {
        self.fuel.burn(map.cost())?;
        map.get(key)
    }

    fn flag(&mut self, node: &'a Node, what: &'static str) -> Result<bool, Fault<'a>> {
        match self.value(node)? {
            Value::Bool(flag) => Ok(flag),
            _ => Err(Fault::Kind(what)),
        }
    }

    /// Evaluates `&&` (`decisive` is false) or `||` (`decisive` is true). A side with the value `decisive` gives the
    /// result, even if the other side fails.
    fn either(
        &mut self,
        one: &'a Node,
        other: &'a Node,
        decisive: bool,
        what: &'static str,
    ) -> Result<bool, Fault<'a>> {
        let one = self.flag(one, what);
        match one {
            Ok(flag) if flag == decisive => return Ok(decisive),
            Err(fault) if fault.is_final() => return Err(fault),
            _ => {}
        }
        match self.flag(other, what) {
            Ok(flag) if flag == decisive => Ok(decisive),
            Err(fault) if fault.is_final() => Err(fault),
            other => one.and(other),
        }
    }

    fn binary(&mut self, operator: Binary, one: &Value<'a>, other: &Value<'a>) -> Found<'a> {
        let mut order = |fits: fn(Ordering) -> bool| -> Found<'a> {
            Ok(Value::Bool(one.order(other, &mut self.fuel)?.is_some_and(fits)))
        };
        Ok(match operator {
            Binary::Equal => Value::Bool(one.equals(other, &mut self.fuel)?),
            Binary::Unequal => Value::Bool(!one.equals(other, &mut self.fuel)?),
            Binary::Less => return order(Ordering::is_lt),
            Binary::LessOrEqual => return order(Ordering::is_le),
            Binary::Greater => return order(Ordering::is_gt),
            Binary::GreaterOrEqual => return order(Ordering::is_ge),
            Binary::In => Value::Bool(self.is_in(one, other)?),
            Binary::Index => match (one, other) {
                (Value::Map(map), Value::Text(key)) => self.look_up(map, key.as_str())?.ok_or(Fault::NoKey)?,
                _ => index(one, other)?,
            },
            Binary::Add => return self.add(one, other),
            Binary::Subtract => whole_or(operator, one, other, i64::checked_sub, u64::checked_sub, |a, b| a - b)?,
            Binary::Multiply => whole_or(operator, one, other, i64::checked_mul, u64::checked_mul, |a, b| a * b)?,
            Binary::Divide => whole_or(operator, one, other, i64::checked_div, u64::checked_div, |a, b| a / b)?,
            Binary::Remainder => match (one, other) {
                (Value::Double(_), _) => return Err(Fault::Kind("`%`")),
                _ => whole_or(operator, one, other, i64::checked_rem, u64::checked_rem, |a, b| a % b)?,
            },
        })
    }

    fn is_in(&mut self, one: &Value<'a>, of: &Value<'a>) -> Result<bool, Fault<'a>> {
        match (of, one) {
            (Value::List(list), _) => {
                for index in 0..list.len() {
                    if let Some(item) = list.get(index)
                        && item.equals(one, &mut self.fuel)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Value::Map(map), Value::Text(key)) => Ok(self.look_up(map, key.as_str())?.is_some()),
            // CEL objects may have keys of these kinds, but JSON objects do not.
            (Value::Map(_), Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_)) => Ok(false),
            _ => Err(Fault::Kind("`in`")),
        }
    }

    fn add(&mut self, one: &Value<'a>, other: &Value<'a>) -> Found<'a> {
        match (one, other) {
            (Value::Text(one), Value::Text(other)) => {
                let (one, other) = (one.as_str(), other.as_str());
                self.fuel.read(one.len() + other.len())?;
                if one.len() + other.len() > TEXT {
                    return Err(Fault::TooLong);
                }
                Ok(Value::own_text([one, other].concat()))
            }
            (Value::List(one), Value::List(other)) => {
                self.fuel.burn(one.len() + other.len())?;
                let items = |list: &List<'a>| (0..list.len()).filter_map(|at| list.get(at)).collect::<Vec<_>>();
                Ok(Value::list([items(one), items(other)].concat()))
            }
            _ => whole_or(Binary::Add, one, other, i64::checked_add, u64::checked_add, |a, b| a + b),
        }
    }

    fn call(&mut self, function: Function, arguments: &[Value<'a>]) -> Found<'a> {
        use Function as F;
        Ok(match (function, arguments) {
            (F::Size, [Value::Text(text)]) => {
                self.fuel.read(text.as_str().len())?;
                Value::Int(text.as_str().chars().count() as i64)
            }
            (F::Size, [Value::List(list)]) => Value::Int(list.len() as i64),
            (F::Size, [Value::Map(map)]) => Value::Int(map.len()? as i64),
            (F::StartsWith | F::EndsWith | F::Contains, [Value::Text(text), Value::Text(part)]) => {
                let (text, part) = (text.as_str(), part.as_str());
                self.fuel.read(if function == F::Contains { text.len() + part.len() } else { part.len() })?;
                Value::Bool(match function {
                    F::StartsWith => text.starts_with(part),
                    F::EndsWith => text.ends_with(part),
                    _ => text.contains(part),
                })
            }
            (F::LowerAscii | F::UpperAscii, [Value::Text(text)]) => {
                self.fuel.read(2 * text.as_str().len())?;
                let lower = function == F::LowerAscii;
                let text = text.as_str();
                Value::own_text(if lower { text.to_ascii_lowercase() } else { text.to_ascii_uppercase() })
            }
            (F::String, [Value::Text(text)]) => Value::Text(text.clone()),
            (F::String, [Value::Bool(flag)]) => Value::own_text(flag.to_string()),
            (F::String, [Value::Int(number)]) => Value::own_text(number.to_string()),
            (F::String, [Value::Uint(number)]) => Value::own_text(number.to_string()),
            (F::String, [Value::Double(number)]) => Value::own_text(number.to_string()),
            (F::Int, [Value::Int(number)]) => Value::Int(*number),
            (F::Int, [Value::Uint(number)]) => Value::Int(i64::try_from(*number).map_err(|_| Fault::Overflow)?),
            (F::Int, [Value::Double(number)]) => {
                // Both ends are doubles, and the conversion between them loses only the fraction.
                let fits = *number > -9_223_372_036_854_775_808.0 && *number < 9_223_372_036_854_775_808.0;
                Value::Int(if fits { *number as i64 } else { return Err(Fault::Overflow) })
            }
            (F::Int, [Value::Text(text)]) => {
                self.fuel.read(text.as_str().len())?;
                Value::Int(text.as_str().parse().map_err(|_| Fault::NoNumber)?)
            }
            (F::Double, [Value::Double(number)]) => Value::Double(*number),
            (F::Double, [Value::Int(number)]) => Value::Double(*number as f64),
            (F::Double, [Value::Uint(number)]) => Value::Double(*number as f64),
            (F::Double, [Value::Text(text)]) => {
                self.fuel.read(16 * text.as_str().len())?;
                Value::Double(text.as_str().parse().map_err(|_| Fault::NoNumber)?)
            }
            _ => return Err(Fault::Call(function.name())),
        })
    }

    fn fold(&mut self, fold: &'a Fold) -> Found<'a> {
        let items: Vec<Value<'a>> = match self.value(&fold.range)? {
            Value::List(list) if list.len() > ITEMS => return Err(Fault::TooMany),
            Value::Map(map) if map.len()? > ITEMS => return Err(Fault::TooMany),
            Value::List(list) => (0..list.len()).filter_map(|index| list.get(index)).collect(),
            Value::Map(map) => map.keys()?,
            _ => return Err(Fault::Kind("a macro")),
        };
        self.fuel.burn(items.len())?;
        let mut folded = Folded { kind: fold.kind, made: Vec::new(), found: 0, fault: None };
        for item in items {
            self.items.push(item);
            let goes_on = self.step(fold, &mut folded);
            self.items.pop();
            if let Some(decided) = goes_on? {
                return Ok(Value::Bool(decided));
            }
        }
        Ok(match (fold.kind, folded.fault) {
            (_, Some(fault)) => return Err(fault),
            (Folding::All, None) => Value::Bool(true),
            (Folding::Exists, None) => Value::Bool(false),
            (Folding::ExistsOne, None) => Value::Bool(folded.found == 1),
            (Folding::Map, None) => Value::list(folded.made),
        })
    }

    /// Evaluates the body for one item. Returns the result of the comprehension if this item decides it.
    fn step(&mut self, fold: &'a Fold, folded: &mut Folded<'a>) -> Result<Option<bool>, Fault<'a>> {
        if let Some(filter) = &fold.filter
            && !self.flag(filter, "`filter` or `map`")?
        {
            return Ok(None);
        }
        let decisive = match folded.kind {
            Folding::Map => {
                let made = self.value(&fold.body)?;
                folded.made.push(made);
                return Ok(None);
            }
            Folding::ExistsOne => {
                folded.found += usize::from(self.flag(&fold.body, "`exists_one`")?);
                return Ok(None);
            }
            Folding::All => false,
            Folding::Exists => true,
        };
        match self.flag(&fold.body, "`all` or `exists`") {
            Ok(flag) if flag == decisive => return Ok(Some(decisive)),
            Ok(_) => {}
            Err(fault) if fault.is_final() => return Err(fault),
            // Another item may still decide.
            Err(fault) => folded.fault = folded.fault.or(Some(fault)),
        }
        Ok(None)
    }
}

/// What a comprehension has found so far.
struct Folded<'a> {
    kind: Folding,
    made: Vec<Value<'a>>,
    found: usize,
    fault: Option<Fault<'a>>,
}

fn index<'a>(of: &Value<'a>, at: &Value<'a>) -> Found<'a> {
    match (of, at) {
        (Value::List(list), Value::Int(at)) => {
            usize::try_from(*at).ok().and_then(|at| list.get(at)).ok_or(Fault::OutOfRange)
        }
        (Value::List(list), Value::Uint(at)) => {
            usize::try_from(*at).ok().and_then(|at| list.get(at)).ok_or(Fault::OutOfRange)
        }
        _ => Err(Fault::Kind("`[]`")),
    }
}

/// Computes with two numbers of one kind.
fn whole_or<'a>(
    operator: Binary,
    one: &Value<'a>,
    other: &Value<'a>,
    int: fn(i64, i64) -> Option<i64>,
    uint: fn(u64, u64) -> Option<u64>,
    double: fn(f64, f64) -> f64,
) -> Found<'a> {
    let divides = matches!(operator, Binary::Divide | Binary::Remainder);
    match (one, other) {
        (_, Value::Int(0) | Value::Uint(0)) if divides => Err(Fault::Zero),
        (Value::Int(one), Value::Int(other)) => Ok(Value::Int(int(*one, *other).ok_or(Fault::Overflow)?)),
        (Value::Uint(one), Value::Uint(other)) => Ok(Value::Uint(uint(*one, *other).ok_or(Fault::Overflow)?)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(double(*one, *other))),
        _ => Err(Fault::Kind("this operator")),
    }
}

impl Function {
    /// Returns the function's name in expressions.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::StartsWith => "startsWith",
            Self::EndsWith => "endsWith",
            Self::Contains => "contains",
            Self::LowerAscii => "lowerAscii",
            Self::UpperAscii => "upperAscii",
            Self::String => "string",
            Self::Int => "int",
            Self::Double => "double",
        }
    }
}
