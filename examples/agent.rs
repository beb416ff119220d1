//! The MCP manager of an agent: `cargo run --example agent -- mcp.json echo__ask '{}'` (Ctrl-C cancels the call)
use std::io::Write as _;
use std::time::Duration;

use mcp_host::{ClientHandler, ElicitAnswer, Elicitation, Event, Events, Host, Profile, Raw};

/// The person in front of the agent.
struct Person;

impl ClientHandler for Person {
    fn profile(&self) -> Profile {
        Profile::ELICITATION_FORM
    }

    async fn elicit(&self, question: Elicitation) -> ElicitAnswer {
        say(&format!("{} asks: {}", question.server().unwrap_or("a server"), question.message()));
        ElicitAnswer::accept(serde_json::json!({ "name": "Ada" }))
    }
}

fn say(line: &str) {
    // The reader may be gone.
    let _ = writeln!(std::io::stdout(), "{line}");
}

async fn tell(mut events: Events) {
    while let Some(event) = events.next().await {
        match event {
            Event::State(change) => say(&format!("{} is {}", change.server, change.to)),
            Event::Lists(lists) => say(&format!("{lists:?}")),
            Event::Stderr(line) => say(&format!("{}: {}", line.server, line.text)),
            _ => {}
        }
    }
}

async fn call(host: &Host, tool: &str, arguments: Raw) -> Result<(), mcp_host::Error> {
    host.catalog_ready().await.tools().iter().for_each(|tool| say(tool.name()));
    let call = host.call_tool(tool, arguments).timeout(Duration::from_secs(60));
    let call = call.on_progress(|step| say(&format!("{} of {:?}", step.progress, step.total)));
    tokio::select! {
        result = call => say(&result?.text()),
        _ = tokio::signal::ctrl_c() => say("cancelled"),
    }
    say(&format!("{:?}", host.reload_files().await?));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    mcp_host::guard();
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: agent CONFIG TOOL [JSON]")?;
    let tool = args.next().ok_or("usage: agent CONFIG TOOL [JSON]")?;
    let arguments = Raw::parse(&args.next().unwrap_or_else(|| "{}".to_owned()).into())?;
    let host = Host::builder().config_file(file).follow().client_handler(Person).start().await?;
    let done = tokio::select! { done = call(&host, &tool, arguments) => done, () = tell(host.events()) => Ok(()) };
    host.shutdown().await;
    Ok(done?)
}
