//! Values while an expression is evaluated. They borrow from the request and from the expression wherever they can.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::Value as Json;

use super::arguments::Arguments;
use super::steps::{Fault, Fuel};

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    List(List<'a>),
    Map(Map<'a>),
}

/// A text.
#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Lent(&'a str),
    Own(Rc<str>),
}

/// A list.
#[derive(Debug, Clone)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Texts(&'a [String]),
    Own(Rc<Vec<Value<'a>>>),
}

/// An object.
#[derive(Debug, Clone)]
pub(super) enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>),
    Arguments(&'a Arguments),
    Own(Rc<Vec<(&'static str, Value<'a>)>>),
}

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Lent(text) => text,
            Self::Own(text) => text,
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Texts(items) => items.len(),
            Self::Own(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(Value::of),
            Self::Texts(items) => items.get(index).map(|text| Value::text(text)),
            Self::Own(items) => items.get(index).cloned(),
        }
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> Result<usize, Fault<'a>> {
        Ok(match self {
            Self::Json(members) => members.len(),
            Self::Arguments(arguments) => arguments.members().ok_or(Fault::Unreadable)?.len(),
            Self::Own(members) => members.len(),
        })
    }

    /// Returns how many steps it takes to find a member.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Arguments(arguments) => arguments.members().map_or(0, <[_]>::len) / 8,
            Self::Json(_) | Self::Own(_) => 1,
        }
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Value<'a>>, Fault<'a>> {
        Ok(match self {
            Self::Json(members) => members.get(key).map(Value::of),
            Self::Arguments(arguments) => arguments.get(key).map_err(|_| Fault::Unreadable)?.map(Value::of),
            Self::Own(members) => members.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone()),
        })
    }

    /// Returns the names of all members.
    pub(super) fn keys(&self) -> Result<Vec<Value<'a>>, Fault<'a>> {
        Ok(match self {
            Self::Json(members) => members.keys().map(|key| Value::text(key)).collect(),
            Self::Arguments(arguments) => {
                let members = arguments.members().ok_or(Fault::Unreadable)?;
                members.iter().map(|member| Value::text(&member.name)).collect()
            }
            Self::Own(members) => members.iter().map(|(name, _)| Value::text(name)).collect(),
        })
    }
}

impl<'a> Value<'a> {
    /// Returns a value of JSON.
    pub(super) fn of(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Bool(*flag),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Int(number),
                (None, Some(number)) => Self::Uint(number),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(members) => Self::Map(Map::Json(members)),
        }
    }

    pub(super) fn text(text: &'a str) -> Self {
        Self::Text(Text::Lent(text))
    }

    pub(super) fn own_text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Own(text.into()))
    }

    pub(super) fn list(items: Vec<Self>) -> Self {
        Self::List(List::Own(Rc::new(items)))
    }

    pub(super) fn map(members: Vec<(&'static str, Self)>) -> Self {
        Self::Map(Map::Own(Rc::new(members)))
    }

    /// Reports whether two values are equal. Numbers are compared by value, whatever their kind; values of different
    /// kinds are unequal.
    pub(super) fn equals(&self, other: &Self, fuel: &mut Fuel) -> Result<bool, Fault<'a>> {
        fuel.burn(1)?;
        match (self, other) {
            (Self::Null, Self::Null) => Ok(true),
            (Self::Bool(one), Self::Bool(other)) => Ok(one == other),
            (Self::Text(one), Self::Text(other)) => {
                let (one, other) = (one.as_str(), other.as_str());
                fuel.read(if one.len() == other.len() { one.len() } else { 0 })?;
                Ok(one == other)
            }
            (Self::List(one), Self::List(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for index in 0..one.len() {
                    let (Some(one), Some(other)) = (one.get(index), other.get(index)) else { return Ok(false) };
                    if !one.equals(&other, fuel)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Self::Map(one), Self::Map(other)) => {
                if one.len()? != other.len()? {
                    return Ok(false);
                }
                fuel.burn(one.len()?.saturating_mul(1 + one.cost() + other.cost()))?;
                for key in one.keys()? {
                    let Self::Text(key) = &key else { return Ok(false) };
                    let (Some(one), Some(other)) = (one.get(key.as_str())?, other.get(key.as_str())?) else {
                        return Ok(false);
                    };
                    if !one.equals(&other, fuel)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(numbers(self, other) == Some(Some(Ordering::Equal))),
        }
    }

    /// Returns which of two values is less; `None` if one of them is no number (NaN).
    pub(super) fn order(&self, other: &Self, fuel: &mut Fuel) -> Result<Option<Ordering>, Fault<'a>> {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => {
                let (one, other) = (one.as_str(), other.as_str());
                fuel.read(one.len().min(other.len()))?;
                Ok(Some(one.cmp(other)))
            }
            (Self::Bool(one), Self::Bool(other)) => Ok(Some(one.cmp(other))),
            _ => numbers(self, other).ok_or(Fault::Kind("a comparison")),
        }
    }
}

/// Compares two numbers by value; `None` if either is not a number, and `Some(None)` if either is NaN.
fn numbers(one: &Value<'_>, other: &Value<'_>) -> Option<Option<Ordering>> {
    Some(match (one, other) {
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
        (Value::Double(one), other) => with_whole(*one, whole(other)?),
        (one, Value::Double(other)) => with_whole(*other, whole(one)?).map(Ordering::reverse),
        (one, other) => Some(whole(one)?.cmp(&whole(other)?)),
    })
}

fn whole(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some((*number).into()),
        Value::Uint(number) => Some((*number).into()),
        _ => None,
    }
}

/// Compares a double with a whole number, exactly.
fn with_whole(one: f64, other: i128) -> Option<Ordering> {
    if one.is_nan() {
        return None;
    }
    // The conversion saturates only at the ends of the range, which no number that is compared here reaches.
    let floor = one.floor();
    let order = (floor as i128).cmp(&other);
    Some(if order == Ordering::Equal && one > floor { Ordering::Greater } else { order })
}
