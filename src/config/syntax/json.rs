//! JSON with comments and trailing commas.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{DEPTH, Lines, Member, Node, Value, too_deep};
use crate::config::report::{Place, Report};

/// What clients write: JSON5 would also take a forgotten comma for a good one.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub(super) fn parse(text: &str, file: usize, report: &mut Report) -> Option<Node> {
    let lines = Lines::new(text, file);
    match parse_to_ast(text, &CollectOptions::default(), &OPTIONS) {
        Ok(parsed) => match parsed.value {
            Some(value) => convert(value, 0, &lines, report),
            None => Some(Node::new(Place { file, ..Place::default() }, Value::Null)),
        },
        Err(error) => {
            report.problem(lines.place(error.range().start), "", format!("not valid JSON: {}", error.kind()));
            None
        }
    }
}

fn convert(value: ast::Value<'_>, depth: usize, lines: &Lines<'_>, report: &mut Report) -> Option<Node> {
    let at = lines.place(value.range().start);
    if depth > DEPTH {
        return too_deep(at, report);
    }
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(flag) => Value::Flag(flag.value),
        ast::Value::NumberLit(number) => Value::Number(number.value.to_owned()),
        ast::Value::StringLit(text) => Value::Text(text.value.into_owned()),
        ast::Value::Array(list) => Value::List(
            list.elements.into_iter().map(|node| convert(node, depth + 1, lines, report)).collect::<Option<_>>()?,
        ),
        ast::Value::Object(object) => {
            let member = |property: ast::ObjectProp<'_>| {
                let at = lines.place(property.range.start);
                let node = convert(property.value, depth + 1, lines, report)?;
                Some(Member { key: property.name.into_string(), at, node })
            };
            Value::Object(object.properties.into_iter().map(member).collect::<Option<_>>()?)
        }
    };
    Some(Node::new(at, value))
}
