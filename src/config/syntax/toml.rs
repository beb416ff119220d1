//! TOML. Its parser states the place of each value.

use toml::de::{DeTable, DeValue};

use super::{DEPTH, Lines, Member, Node, Value, too_deep};
use crate::config::report::{Place, Report};

pub(super) fn parse(text: &str, file: usize, report: &mut Report) -> Option<Node> {
    let lines = Lines::new(text, file);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let at = Place { file, line: 1, column: 1 };
        return Some(Node::new(at, object(table.into_inner(), 0, &lines, report)?));
    }
    for error in errors {
        let at = error.span().map_or(Place { file, ..Place::default() }, |span| lines.place(span.start));
        report.problem(at, "", format!("not valid TOML: {}", error.message()));
    }
    None
}

fn object(table: DeTable<'_>, depth: usize, lines: &Lines<'_>, report: &mut Report) -> Option<Value> {
    let mut members: Vec<_> = table.into_iter().collect();
    // The table is sorted by key, but servers keep the order of the file.
    members.sort_by_key(|(key, _)| key.span().start);
    let member = |(key, value): (toml::Spanned<_>, toml::Spanned<DeValue<'_>>)| {
        let at = lines.place(key.span().start);
        let key: std::borrow::Cow<'_, str> = key.into_inner();
        let start = lines.place(value.span().start);
        let node = convert(value.into_inner(), start, depth + 1, lines, report)?;
        Some(Member { key: key.into_owned(), at, node })
    };
    members.into_iter().map(member).collect::<Option<_>>().map(Value::Object)
}

fn convert(value: DeValue<'_>, at: Place, depth: usize, lines: &Lines<'_>, report: &mut Report) -> Option<Node> {
    if depth > DEPTH {
        return too_deep(at, report);
    }
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Number(number.to_string()),
            Err(_) => Value::Number(number.as_str().to_owned()),
        },
        DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(list) => {
            let node = |node: toml::Spanned<DeValue<'_>>| {
                let at = lines.place(node.span().start);
                convert(node.into_inner(), at, depth + 1, lines, report)
            };
            Value::List(list.into_iter().map(node).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => object(table, depth, lines, report)?,
    };
    Some(Node::new(at, value))
}
