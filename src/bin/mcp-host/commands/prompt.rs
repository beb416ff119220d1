//! `mcp-host prompt NAME [KEY=VALUE...]`: one prompt, filled in.

use mcp_host::Host;
use mcp_host::protocol::Raw;

use super::{answer, call_failed, only_server_failed};
use crate::args::{Common, Prompt};
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Wanted};
use crate::{parameters, payload, text};

pub(crate) async fn run(args: &Prompt, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let arguments = parameters::for_prompt(&args.arguments)?;
    let host = servers::start(common, args.demo.demo, Wanted::Named(&args.name), output).await?;
    let outcome = fill(args, arguments, &host, output).await;
    host.shutdown().await;
    let result = outcome?;
    if output.json {
        output.line(&text::json(result.as_str()))?;
    } else {
        output.lines(payload::prompt(&result))?;
    }
    Ok(Exit::Ok)
}

async fn fill(args: &Prompt, arguments: Raw, host: &Host, output: &Output) -> Result<Raw, Failure> {
    if let Some(failure) = only_server_failed(host) {
        return Err(failure);
    }
    let catalog = host.catalog();
    let names: Vec<&str> = catalog.prompts().iter().map(|prompt| prompt.name()).collect();
    if let Some(prompt) = catalog.prompts().iter().find(|prompt| prompt.name() == args.name) {
        check(prompt.definition(), &arguments)?;
    }
    let result = answer(host.get_prompt(&args.name, arguments), output).await;
    result.map_err(|error| call_failed(error, "prompt", &args.name, &names, host, output))
}

/// Compares what is given with what the prompt declares, since servers tell such errors badly.
fn check(definition: &Raw, arguments: &Raw) -> Result<(), Failure> {
    let declared: Vec<Raw> = definition.member("arguments").and_then(|list| list.read().ok()).unwrap_or_default();
    let names: Vec<String> = declared.iter().filter_map(|argument| argument.text("name")).collect();
    let given: serde_json::Map<String, serde_json::Value> = arguments.read().unwrap_or_default();
    if let Some(extra) = given.keys().find(|key| !names.contains(key)) {
        let all = || (!names.is_empty()).then(|| format!("it takes: {}", names.join(", ")));
        let help = question(&nearest(extra, names.iter().map(String::as_str))).or_else(all);
        return Err(Failure::new(Exit::Usage, format!("the prompt takes no `{extra}`")).maybe_help(help));
    }
    let required = |argument: &&Raw| argument.member("required").is_some_and(|flag| flag.as_str() == "true");
    let missing = declared.iter().filter(required).filter_map(|argument| argument.text("name"));
    let missing: Vec<String> = missing.filter(|name| !given.contains_key(name)).collect();
    match missing.as_slice() {
        [] => Ok(()),
        names => Err(Failure::new(Exit::Usage, format!("the prompt needs {}", names.join(", ")))
            .help(names.iter().map(|name| format!("{name}=VALUE")).collect::<Vec<_>>().join(" "))),
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
        let exit = |arguments| check(&definition, &Raw::from_value(&arguments)).map_err(|failure| failure.exit);
        assert_eq!(exit(json!({ "topic": "x" })), Ok(()));
        assert_eq!(exit(json!({ "tone": "x" })), Err(Exit::Usage));
        assert_eq!(exit(json!({ "topic": "x", "tope": "y" })), Err(Exit::Usage));
    }
}
