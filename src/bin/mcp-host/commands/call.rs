//! `mcp-host call TOOL [JSON | KEY=VALUE...]`: one call of one tool.

use mcp_host::protocol::Raw;
use mcp_host::registry::Kind;
use serde_json::Value;

use crate::args::{CallArgs, Common};
use crate::arguments::completed;
use crate::output::Output;
use crate::parameters::{self, Misfit};
use crate::payload::{self, Notes};
use crate::report::{Exit, Failure};
use crate::save::{self, Target};
use crate::servers::Selection;
use crate::session::{Lookup, Session};
use crate::text::quoted;
use crate::{given, joined, named, schema};

pub(crate) async fn run(args: &CallArgs, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let target = args.out.as_deref().map(Target::of).transpose()?;
    let (typed, line) = meant(args, common).await;
    // Mistakes that are visible without knowing the tool are reported before anything is started.
    let words = given::read(line, output).await?;
    parameters::for_tool(&words, None, Misfit::Refuse)?;
    let mut plan = joined::plan(common, args.demo.demo).await?;
    plan.keep(Selection::Named(&typed))?;
    let session = Box::pin(Session::call(plan, common.again(args.demo.demo), args.timeout, output)).await?;
    let outcome = call(args, &typed, line, &words, &session, output).await;
    session.close().await;
    let (name, result) = outcome?;
    let is_error = result.member("isError").is_some_and(|flag| flag.as_str() == "true");
    let mut notes = Notes::Hint("--out FILE saves it");
    let mut unsaved = None;
    if let Some(target) = target {
        let saved = save::all(payload::media_of_tool(&result), &name, target).await;
        saved.tell(output);
        notes = Notes::Each(saved.notes.into_iter());
        unsaved = saved.failure;
    }
    output.answer(&result, |result| payload::tool_result(result, notes))?;
    match unsaved {
        Some(failure) => Err(failure),
        None => Ok(if is_error { Exit::ToolError } else { Exit::Ok }),
    }
}

/// Returns the tool and its arguments. The user may type server and tool as two words.
async fn meant<'a>(args: &'a CallArgs, common: &Common) -> (String, &'a [String]) {
    if let Some((first, rest)) = args.arguments.split_first()
        && !first.contains('=')
        && !first.starts_with(['{', '[', '-', '@', '"', ' '])
        && joined::plan(common, args.demo.demo).await.is_ok_and(|plan| plan.has(&args.tool))
    {
        return (format!("{} {first}", args.tool), rest);
    }
    (args.tool.clone(), &args.arguments)
}

/// Calls a tool of servers that are there already. Returns whether its answer is an error.
#[cfg(target_os = "linux")]
pub(super) async fn of_session(args: &CallArgs, session: &Session<'_>, output: &Output) -> Result<bool, Failure> {
    let words = given::read(&args.arguments, output).await?;
    parameters::for_tool(&words, None, Misfit::Refuse)?;
    let (_, result) = call(args, &args.tool, &args.arguments, &words, session, output).await?;
    Ok(result.member("isError").is_some_and(|flag| flag.as_str() == "true"))
}

/// Calls the tool. Returns its exposed name and its answer. `line` has the arguments as typed; in `words`, the texts of
/// files replace their names.
async fn call(
    args: &CallArgs,
    typed: &str,
    line: &[String],
    words: &[String],
    session: &Session<'_>,
    output: &Output,
) -> Result<(String, Raw), Failure> {
    let catalog = session.host.catalog();
    let tools = session.entries(Kind::Tools, &catalog);
    let tool = named::entry(session, Kind::Tools, &tools, typed);
    let name = tool.map_or(typed, |tool| tool.name());
    if name != typed {
        output.remark(&format!("note: `{typed}` is `{name}`"));
    }
    let input: Option<Value> = tool.and_then(|tool| tool.definition().member("inputSchema")?.read().ok());
    let misfit = if args.no_check { Misfit::Send } else { Misfit::Refuse };
    let arguments = parameters::for_tool(words, input.as_ref(), misfit)?;
    if let Some(input) = input.filter(|_| !args.no_check) {
        let verdict = schema::check(name, &input, &arguments);
        if !verdict.wrong.is_empty() {
            let help = format!(
                "--no-check sends the arguments as they are; what it takes is told by: mcp-host tools {}{}",
                quoted(name),
                session.again()
            );
            // If arguments are missing and nothing else is wrong, the completed call is the best help.
            let is_short = verdict.wrong.iter().all(|(what, help)| help.is_none() && what.contains("` needs `"));
            let schema = tool.and_then(|tool| tool.definition().member("inputSchema")).filter(|_| is_short);
            let whole = schema.and_then(|schema| completed(name, &schema, line, &arguments, session.again()));
            return Err(Failure::each(Exit::Usage, verdict.wrong).help(whole.unwrap_or(help)));
        }
        Failure::each(Exit::Usage, verdict.doubtful).warn(output);
    }
    let mut call = session.host.call_tool(name, arguments);
    if let Some(limit) = args.timeout {
        call = call.timeout(limit);
    }
    let known = tools.iter().map(|tool| tool.name()).collect();
    let answer = session.answer(call, &Lookup { what: "tool", name: typed, known }).await;
    match answer {
        Ok(result) => Ok((name.to_owned(), result)),
        Err(failure) if failure.exit == Exit::TimedOut && args.timeout.is_some() => {
            Err(failure.help("give it more time with a longer --timeout"))
        }
        Err(failure) => Err(failure),
    }
}
