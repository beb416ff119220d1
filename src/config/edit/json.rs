//! Edits of JSON. Its parser states where each value is.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, parse_to_ast};

use super::flow::{self, Item, Span, Text};
use super::op::{Op, Path, Step};
use super::render::Language;
use super::splice::{Splice, Style};

/// Returns the replacements for a change.
pub(super) fn splices(text: &str, path: &[Step], op: &Op) -> Option<Vec<Splice>> {
    let style = Style::of(text);
    Text { text, language: Language::Json, style: &style }.splices(&root(text)?, path, op)
}

/// Returns the text of an item.
pub(super) fn source(text: &str, path: &Path) -> Option<String> {
    let place = flow::place(&root(text)?, path)?;
    text.get(place).map(str::to_owned)
}

fn root(text: &str) -> Option<Span> {
    // The reader of configs has refused invalid texts already, so this parser may be lenient.
    let parsed = parse_to_ast(text, &CollectOptions::default(), &Default::default()).ok()?;
    Some(span(parsed.value?))
}

fn span(value: ast::Value<'_>) -> Span {
    let range = value.range();
    let at = range.start..range.end;
    let items = match value {
        ast::Value::Object(object) => Some(object.properties.into_iter().map(member).collect()),
        ast::Value::Array(list) => {
            let item = |value: ast::Value<'_>| {
                let value = span(value);
                Item { at: value.at.clone(), key: None, value }
            };
            Some(list.elements.into_iter().map(item).collect())
        }
        _ => None,
    };
    Span { at, items }
}

fn member(property: ast::ObjectProp<'_>) -> Item {
    let (whole, name) = (property.range, property.name.range());
    let key = property.name.into_string();
    Item { at: whole.start..whole.end, key: Some((key, name.start..name.end)), value: span(property.value) }
}
