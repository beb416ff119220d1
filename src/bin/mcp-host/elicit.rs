//! Elicitation during a one-shot call: servers' questions go to stderr, the user's answers come from stdin.
//!
//! Supports only form elicitation with primitive fields. Without a terminal, the answer is "decline". A question of the
//! host itself may have several lines: text that it quotes from others is already escaped. A server's question is shown
//! on one line.

use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Profile, Raw};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::sync::Mutex;

use crate::output::Output;
use crate::text;

/// The person at the terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    output: Output,
    /// Locked while a form is filled in: one form at a time, however many servers ask.
    answers: Mutex<Lines<BufReader<Stdin>>>,
}

impl Terminal {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, answers: Mutex::new(BufReader::new(tokio::io::stdin()).lines()) }
    }
}

impl ClientHandler for Terminal {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
        let message = question.message();
        let asker = match question.server() {
            _ if question.is_of_host() => "mcp-host".to_owned(),
            Some(server) => format!("server `{server}`"),
            None => "the server".to_owned(),
        };
        // For clients that cannot show who asks, the host's own questions say it in their text.
        let message = if question.is_of_host() { message.strip_prefix(OWN).unwrap_or(&message) } else { &message };
        if !self.output.interactive() {
            let asked = text::cut(&text::line(message), WIDTH);
            self.output.remark(&format!("note: {asker} asked \"{asked}\" and was declined: there is no terminal"));
            self.output.remark("help: run the command in a terminal to answer");
            return ElicitAnswer::Decline;
        }
        let output = &self.output;
        let mut answers = self.answers.lock().await;
        // A moving bar would draw over the question.
        let _still = output.still();
        let lines = if question.is_of_host() { message.lines().collect() } else { vec![message] };
        for (at, line) in lines.into_iter().enumerate() {
            output.talk(&if at == 0 { format!("{asker} asks: {line}") } else { line.to_owned() });
        }
        output.talk("(an empty answer takes the default or skips the field; Ctrl-D cancels)");
        let whose = if question.is_of_host() { Whose::Host } else { Whose::Server };
        match fill(output, &mut answers, &fields(question.params(), whose)).await {
            Some(content) => ElicitAnswer::accept(Value::Object(content)),
            None => {
                // The cursor is still on the line of the question.
                output.talk("");
                ElicitAnswer::Cancel
            }
        }
    }
}

/// The beginning of the host's own questions.
const OWN: &str = "mcp-host asks: ";
/// How many characters of a question fit into a line.
const WIDTH: usize = 60;

/// One field of a form.
#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    title: String,
    kind: Kind,
    required: bool,
    default: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text,
    Number,
    Integer,
    Flag,
    One(Vec<Choice>),
    Many(Vec<String>),
}

/// A value to choose.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    value: String,
    /// A word that also chooses it, as does its first letter: `yes` or `no`.
    word: Option<&'static str>,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Host,
    Server,
}

/// Returns the fields of a form in the order of its schema.
fn fields(params: &Raw, whose: Whose) -> Vec<Field> {
    let Some(schema) = params.member("requestedSchema") else { return Vec::new() };
    let required: Vec<String> = schema.member("required").and_then(|list| list.read().ok()).unwrap_or_default();
    let properties = schema.member("properties").unwrap_or_else(Raw::empty_object);
    let members = properties.read::<&RawValue>().ok().and_then(mcp_host::protocol::object).unwrap_or_default();
    let field = |(name, value): (std::borrow::Cow<'_, str>, &RawValue)| {
        let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
        let title = value["title"].as_str().or(value["description"].as_str()).unwrap_or(&name).to_owned();
        let default = value.get("default").filter(|default| !default.is_null()).cloned();
        let required = required.iter().any(|other| *other == name);
        Field { kind: kind(&value, whose), name: name.into_owned(), title, required, default }
    };
    members.into_iter().map(field).collect()
}

fn kind(schema: &Value, whose: Whose) -> Kind {
    match schema["type"].as_str() {
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Flag,
        Some("array") => Kind::Many(choices(&schema["items"])),
        _ if choices(schema).is_empty() => Kind::Text,
        _ => Kind::One(choices(schema).into_iter().map(|value| Choice::of(value, whose)).collect()),
    }
}

impl Choice {
    /// The host's value `once` is also chosen by "yes".
    fn of(value: String, whose: Whose) -> Self {
        let word = match value.to_ascii_lowercase().as_str() {
            "yes" => Some("yes"),
            "no" => Some("no"),
            "once" if whose == Whose::Host => Some("yes"),
            _ => None,
        };
        Self { value, word }
    }

    /// Reports whether the answer is the choice's word, or the first letter of that word.
    fn has_word(&self, answer: &str) -> bool {
        self.word.is_some_and(|word| [word, &word[..1]].iter().any(|known| known.eq_ignore_ascii_case(answer)))
    }

    /// Returns what the user can type for this choice.
    fn typed(&self) -> String {
        self.word.map_or_else(|| self.value.clone(), |word| format!("{} = {}", &word[..1], self.value))
    }
}

/// Returns what the user can type for these choices.
fn typed(choices: &[Choice]) -> String {
    choices.iter().map(Choice::typed).collect::<Vec<_>>().join(" / ")
}

/// Returns the values to choose from, in either notation: `enum`, or titled `oneOf` and `anyOf`.
fn choices(schema: &Value) -> Vec<String> {
    let list = |key: &str| schema[key].as_array().into_iter().flatten();
    let titled = list("oneOf").chain(list("anyOf")).filter_map(|choice| choice["const"].as_str());
    list("enum").filter_map(Value::as_str).chain(titled).map(str::to_owned).collect()
}

/// Asks for field after field. Returns `None` if the input ends.
async fn fill(output: &Output, answers: &mut Lines<BufReader<Stdin>>, fields: &[Field]) -> Option<Map<String, Value>> {
    let mut content = Map::new();
    for field in fields {
        loop {
            output.ask(&question(field));
            let answer = answers.next_line().await.ok().flatten()?;
            match read(field, answer.trim()) {
                Ok(Some(value)) => {
                    content.insert(field.name.clone(), value);
                    break;
                }
                Ok(None) => break,
                Err(wanted) => output.talk(&format!("please give {wanted}")),
            }
        }
    }
    Some(content)
}

fn question(field: &Field) -> String {
    let kind = match &field.kind {
        Kind::Text => String::new(),
        Kind::Number | Kind::Integer => " (number)".to_owned(),
        Kind::Flag => " (y/n)".to_owned(),
        Kind::One(choices) => format!(" ({})", typed(choices)),
        Kind::Many(choices) => format!(" (any of {}; commas between)", choices.join(", ")),
    };
    let default = match &field.default {
        Some(Value::String(text)) => format!(" [{text}]"),
        Some(value) => format!(" [{value}]"),
        None if field.required => String::new(),
        None => " [skip]".to_owned(),
    };
    format!("{}{kind}{default}:", field.title)
}

/// Converts an answer to a value of the field's type; `Ok(None)` skips the field. An error says what is accepted.
fn read(field: &Field, answer: &str) -> Result<Option<Value>, String> {
    if answer.is_empty() {
        return match &field.default {
            Some(default) => Ok(Some(default.clone())),
            None if field.required => Err("an answer, this one is required".to_owned()),
            None => Ok(None),
        };
    }
    let known =
        |choices: &[String], answer: &str| match choices.iter().find(|choice| choice.eq_ignore_ascii_case(answer)) {
            Some(choice) => Ok(Value::from(choice.as_str())),
            None => Err(format!("one of {}", choices.join(", "))),
        };
    let value = match &field.kind {
        Kind::Text => Value::from(answer),
        Kind::Integer => answer.parse::<i64>().map(Value::from).map_err(|_| "a whole number".to_owned())?,
        Kind::Number => answer.parse::<f64>().map(Value::from).map_err(|_| "a number".to_owned())?,
        Kind::Flag => match answer.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Value::Bool(true),
            "n" | "no" | "false" => Value::Bool(false),
            _ => return Err("y or n".to_owned()),
        },
        Kind::One(choices) => {
            let by_value = choices.iter().find(|choice| choice.value.eq_ignore_ascii_case(answer));
            match by_value.or_else(|| choices.iter().find(|choice| choice.has_word(answer))) {
                Some(choice) => Value::from(choice.value.as_str()),
                None => return Err(format!("one of {}", typed(choices))),
            }
        }
        Kind::Many(choices) => answer.split(',').map(|part| known(choices, part.trim())).collect::<Result<_, _>>()?,
    };
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_form_is_asked_field_by_field() {
        let params = Raw::from_value(&json!({ "requestedSchema": {
            "type": "object",
            "properties": {
                "age": { "type": "integer", "title": "Age" },
                "size": { "type": "string", "enum": ["s", "m"], "default": "m" },
                "tags": { "type": "array", "items": { "anyOf": [{ "const": "a", "title": "A" }, { "const": "b" }] } },
            },
            "required": ["age"],
        }}));
        let fields = fields(&params, Whose::Server);
        let questions: Vec<_> = fields.iter().map(question).collect();
        assert_eq!(questions, ["Age (number):", "size (s / m) [m]:", "tags (any of a, b; commas between) [skip]:"]);
        assert_eq!(read(&fields[0], "7"), Ok(Some(json!(7))));
        assert!(read(&fields[0], "").is_err());
        assert!(read(&fields[0], "seven").is_err());
        assert_eq!(read(&fields[1], ""), Ok(Some(json!("m"))));
        assert_eq!(read(&fields[1], "S"), Ok(Some(json!("s"))));
        assert_eq!(read(&fields[2], "b, a"), Ok(Some(json!(["b", "a"]))));
        assert_eq!(read(&fields[2], ""), Ok(None));
    }

    #[test]
    fn y_and_n_answer_what_is_yes_or_no() {
        let one = |choices: Value, whose: Whose| {
            let params = Raw::from_value(&json!({ "requestedSchema": {
                "properties": { "answer": { "title": "May it?", "enum": choices } }, "required": ["answer"],
            }}));
            fields(&params, whose).remove(0)
        };
        let host = one(json!(["once", "for 5 minutes", "no"]), Whose::Host);
        assert_eq!(question(&host), "May it? (y = once / for 5 minutes / n = no):");
        let said = |field: &Field, answer: &str| read(field, answer).map(Option::unwrap);
        for (typed, value) in [("y", "once"), ("YES", "once"), ("once", "once"), ("n", "no"), ("No", "no")] {
            assert_eq!(said(&host, typed), Ok(json!(value)), "{typed}");
        }
        assert_eq!(said(&host, "maybe"), Err("one of y = once / for 5 minutes / n = no".to_owned()));
        // In a server's question, words of the host have no known meaning. The server's own values come first.
        let server = one(json!(["once", "no"]), Whose::Server);
        assert_eq!((said(&server, "n"), said(&server, "y").is_err()), (Ok(json!("no")), true));
        let odd = one(json!(["no", "n", "Yes"]), Whose::Server);
        assert_eq!((said(&odd, "n"), said(&odd, "y")), (Ok(json!("n")), Ok(json!("Yes"))));
    }
}
