//! `mcp-host prompt NAME [KEY=VALUE...]`: one prompt, filled in.

use mcp_host::protocol::Raw;
use mcp_host::registry::Kind;

use crate::args::{Common, Prompt};
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Selection;
use crate::session::{Lookup, Session};
use crate::text::quoted;
use crate::{named, parameters, payload};

pub(crate) async fn run(args: &Prompt, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let arguments = parameters::for_prompt(&args.arguments)?;
    let session = Box::pin(Session::open(common, args.demo.demo, Selection::Named(&args.name), output)).await?;
    let outcome = fill(args, arguments, &session).await;
    session.close().await;
    output.answer(&outcome?, payload::prompt)?;
    Ok(Exit::Ok)
}

async fn fill(args: &Prompt, arguments: Raw, session: &Session<'_>) -> Result<Raw, Failure> {
    let catalog = session.host.catalog();
    let prompts = session.entries(Kind::Prompts, &catalog);
    let known = prompts.iter().map(|prompt| prompt.name()).collect();
    let prompt = named::entry(session, Kind::Prompts, &prompts, &args.name);
    let name = prompt.map_or(args.name.as_str(), |prompt| prompt.name());
    if let Some(prompt) = prompt {
        check(name, prompt.definition(), &arguments, session.again())?;
    }
    let call = session.host.get_prompt(name, arguments);
    session.answer(call, &Lookup { what: "prompt", name: &args.name, known }).await
}

/// Checks the arguments against the prompt's declaration, because servers report such errors badly.
fn check(prompt: &str, definition: &Raw, arguments: &Raw, again: &str) -> Result<(), Failure> {
    let declared: Vec<Raw> = definition.member("arguments").and_then(|list| list.read().ok()).unwrap_or_default();
    let names: Vec<String> = declared.iter().filter_map(|argument| argument.text("name")).collect();
    let given: serde_json::Map<String, serde_json::Value> = arguments.read().unwrap_or_default();
    if let Some(extra) = given.keys().find(|key| !names.contains(key)) {
        let all = || (!names.is_empty()).then(|| format!("it takes: {}", names.join(", ")));
        let help = question(&nearest(extra, names.iter().map(String::as_str))).or_else(all);
        return Err(Failure::new(Exit::Usage, format!("prompt `{prompt}` takes no `{extra}`")).maybe_help(help));
    }
    let required = |argument: &&Raw| argument.member("required").is_some_and(|flag| flag.as_str() == "true");
    let missing = declared.iter().filter(required).filter_map(|argument| argument.text("name"));
    let missing: Vec<String> = missing.filter(|name| !given.contains_key(name)).collect();
    match missing.as_slice() {
        [] => Ok(()),
        names => {
            let words: String = names.iter().map(|name| format!(" {}=VALUE", quoted(name))).collect();
            Err(Failure::new(Exit::Usage, format!("prompt `{prompt}` needs {}", names.join(", ")))
                .help(format!("mcp-host prompt {}{words}{again}", quoted(prompt))))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_compared_with_what_is_declared() {
        let definition =
            Raw::from_value(&json!({ "arguments": [{ "name": "topic", "required": true }, { "name": "tone" }] }));
        let exit =
            |arguments| check("plan", &definition, &Raw::from_value(&arguments), "").map_err(|failure| failure.exit);
        assert_eq!(exit(json!({ "topic": "x" })), Ok(()));
        assert_eq!(exit(json!({ "tone": "x" })), Err(Exit::Usage));
        assert_eq!(exit(json!({ "topic": "x", "tope": "y" })), Err(Exit::Usage));
    }
}
