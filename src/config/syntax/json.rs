//! JSON with comments and trailing commas.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, ParseStringErrorKind, parse_to_ast};

use super::{DEPTH, Lines, Member, Node, Value, excerpt, too_deep};
use crate::config::report::{Place, Report};

/// Accepts what clients write. All of JSON5 would be too much: it would also accept a forgotten comma.
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
            let start = error.range().start;
            let rest = text.get(start..).unwrap_or_default();
            let (message, help) = if rest.starts_with(excerpt::is_curly) {
                (
                    "a curly quote, as word processors make them".to_owned(),
                    Some("write plain quotes (\") in place of curly quotes"),
                )
            } else {
                (error.kind().to_string(), help(error.kind()))
            };
            let problem = report.problem(lines.place(start), "", format!("not valid JSON: {message}"));
            problem.help = help.map(str::to_owned);
            None
        }
    }
}

/// Suggests a fix, if it is obvious.
fn help(kind: &ParseErrorKind) -> Option<&'static str> {
    Some(match kind {
        ParseErrorKind::ExpectedComma => "put a comma at the mark",
        ParseErrorKind::ExpectedColonAfterObjectKey => "put a colon between the key and its value",
        ParseErrorKind::ExpectedObjectValue => "give the key a value",
        ParseErrorKind::ExpectedStringObjectProperty | ParseErrorKind::UnexpectedWord => "put it in double quotes",
        ParseErrorKind::SingleQuotedStringsNotAllowed => "use double quotes",
        ParseErrorKind::String(ParseStringErrorKind::UnterminatedStringLiteral) => {
            "close the string with \" on its line"
        }
        ParseErrorKind::String(_) => "write a backslash twice: \"C:\\\\Users\"",
        ParseErrorKind::UnterminatedObject => "close it with }",
        ParseErrorKind::UnterminatedArray => "close it with ]",
        ParseErrorKind::UnterminatedCommentBlock => "close the comment with */",
        ParseErrorKind::MultipleRootJsonValues => "keep one object in the file; remove everything after its last }",
        ParseErrorKind::UnexpectedComma => "remove one comma",
        ParseErrorKind::UnexpectedCloseBrace | ParseErrorKind::UnexpectedCloseBracket => {
            "it closes nothing: remove it, or add the opening bracket"
        }
        _ => return None,
    })
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
