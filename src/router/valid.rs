//! Checks a call against the schemas of its tool, as the client sees them (`validate`): its arguments before it is sent,
//! and its structured result if the config says `full`. The arguments of a prompt are checked against its list of them.
//!
//! The checked value is the one that is sent (`docs/hazards.md` H37): a key that occurs twice, or that equals a known
//! argument except in case, is refused, since JSON parsers differ in which one they use. Nothing is coerced. A schema
//! that cannot be compiled lets every call pass, and `status` says so.
//!
//! **Invariant:** nothing is compiled, and no large value is read, on the runtime's thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::answer::{self, Failure, MOST};
use super::client::Client;
use super::forward::Forward;
use super::own::{Said, said};
use crate::answered::{FieldError, NoResult};
use crate::config::Validate;
use crate::doubled::{self, folded};
use crate::keep;
use crate::manager::{Manager, Server};
use crate::protocol::value::object;
use crate::protocol::{ErrorObject, Method, Raw};
use crate::registry::{Entry, SchemaOf};

/// A value of more bytes is read on a thread that may block.
const LARGE: usize = 16 * 1024;

/// Returns which parts of a call are checked.
fn wanted(manager: &Manager, client: &Client, forward: &Forward) -> Validate {
    let of_tool = said(manager, client, forward, |rules, name| rules.said(name, |tool| tool.validate));
    of_tool.map(Said::value).or(forward.server.config.validate).unwrap_or_else(|| manager.settings().validate)
}

/// Checks the arguments of a call. Returns the answer to it if they are wrong.
pub(super) async fn check_arguments(manager: &Manager, client: &Client, forward: &Forward) -> Result<(), NoResult> {
    let is_tool = forward.method == Method::ToolsCall;
    if !is_tool && forward.method != Method::PromptsGet {
        return Ok(());
    }
    let Some(entry) = forward.listed.entry() else { return Ok(()) };
    if wanted(manager, client, forward) == Validate::Definitions {
        return Ok(());
    }
    let arguments = forward.params.member("arguments").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    if !is_tool {
        let errors = wrong_of_prompt(entry, &arguments);
        return if errors.is_empty() { Ok(()) } else { Err(refused_prompt(&forward.target, &errors)) };
    }
    let errors = checked(&forward.server, entry, SchemaOf::Input, arguments).await;
    if errors.is_empty() {
        return Ok(());
    }
    let text = answer::said(&errors);
    Err(Failure::invalid_arguments(entry.name(), errors, &text).of(&forward.server))
}

/// Checks the structured result of a call. Returns the answer to it if that is wrong.
pub(super) async fn check_result(
    manager: &Manager,
    client: &Client,
    forward: &Forward,
    result: &Raw,
) -> Result<(), NoResult> {
    let server = &forward.server;
    let Some(entry) = forward.listed.entry().filter(|_| forward.method == Method::ToolsCall) else { return Ok(()) };
    let [content, is_error, structured] = result.members(["content", "isError", "structuredContent"]);
    // A task, and a question, have no content yet.
    let is_over = content.is_some() && is_error.is_none_or(|flag| flag.as_bytes() != b"true");
    if !is_over
        || wanted(manager, client, forward) != Validate::Full
        || entry.definition().member("outputSchema").is_none()
    {
        return Ok(());
    }
    let Some(structured) = structured else {
        let text = "a tool with an output schema, and no `structuredContent`";
        return Err(Failure::malformed(text).of(server));
    };
    let errors = checked(server, entry, SchemaOf::Output, structured).await;
    let Some(FieldError { field, error }) = errors.first() else { return Ok(()) };
    let text = format!("`structuredContent{field}` does not fit the output schema: {error}");
    Err(Failure::malformed(&text).of(server))
}

/// Checks a value against a schema of a tool, and compiles the schema first if necessary. Returns what is wrong.
async fn checked(server: &Arc<Server>, entry: &Entry, which: SchemaOf, value: Raw) -> Vec<FieldError> {
    let check = move |entry: &Entry, server: &Server, value: &Raw| {
        let names = if which == SchemaOf::Input { entry.argument_names() } else { BTreeSet::new() };
        let mut errors = Vec::new();
        doubled::find(value.as_value(), &names, MOST, &mut errors);
        if !errors.is_empty() {
            return errors;
        }
        match entry.schema(which) {
            Some(Ok(schema)) => {
                server.can_check(entry.raw_name(), which);
                schema.wrong(value, MOST).into_iter().map(|(field, error)| FieldError { field, error }).collect()
            }
            Some(Err(why)) => {
                server.cannot_check(entry.raw_name(), which, why.to_string());
                errors
            }
            None => errors,
        }
    };
    if entry.is_compiled(which) && value.as_bytes().len() <= LARGE {
        return check(entry, server, &value);
    }
    let (entry, server) = (entry.clone(), server.clone());
    keep::done(move || check(&entry, &server, &value)).await
}

/// Checks the arguments of a prompt against its list of them. A prompt without a list takes none.
fn wrong_of_prompt(entry: &Entry, arguments: &Raw) -> Vec<FieldError> {
    let listed: Vec<Raw> = entry.definition().member("arguments").and_then(|list| list.read().ok()).unwrap_or_default();
    let known: BTreeSet<String> = listed.iter().filter_map(|argument| argument.text("name")).collect();
    let mut errors = Vec::new();
    doubled::find(arguments.as_value(), &known, MOST, &mut errors);
    let given = object(arguments.as_value()).unwrap_or_default();
    let is_given = |name: &str| given.iter().any(|(key, _)| &**key == name);
    for argument in &listed {
        let is_required = argument.member("required").is_some_and(|flag| flag.as_bytes() == b"true");
        if let Some(name) = argument.text("name").filter(|name| is_required && !is_given(name)) {
            errors.push(FieldError { field: String::new(), error: format!("{name:?} is missing") });
        }
    }
    for (key, _) in &given {
        if !known.contains(&**key) && !known.iter().any(|name| folded(name).eq(folded(key))) {
            errors.push(FieldError { field: format!("/{key}"), error: "the prompt has no such argument".to_owned() });
        }
    }
    errors.truncate(MOST);
    errors
}

fn refused_prompt(name: &str, errors: &[FieldError]) -> NoResult {
    let text = format!("prompt `{}`: the arguments are wrong: {}", crate::protocol::Theirs(name), answer::said(errors));
    let data = Raw::from_value(&serde_json::json!({ "errors": errors }));
    ErrorObject::invalid_params(text).with_data(data).into()
}
