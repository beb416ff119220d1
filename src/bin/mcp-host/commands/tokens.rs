//! `mcp-host tokens`: shows what the tools of a running daemon cost, in tokens.

use mcp_host::admin::{self, Ledger};

use super::asked::{DaemonQuery, failed};
use crate::args::{Common, Tokens};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::table::{Column, Table};
use crate::text;

pub(super) async fn run(args: &Tokens, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let again = common.again(false);
    let asked = DaemonQuery { command: "mcp-host tokens", listen: args.listen, again: &again };
    let (port, view) = (args.listen.map(|listen| listen.port()), args.view.as_deref());
    let counter = if args.exact { Some(exact::counter()?) } else { None };
    let said = match counter {
        None => admin::tokens(port, view).await,
        Some(count) => admin::ledger_texts(port, view).await.map(|said| said.map(|texts| texts.counted(count))),
    };
    let ledger = said.map_err(|error| failed(&asked, &error))?.map_err(|refused| {
        let failure = Failure::new(Exit::Usage, refused.error);
        if refused.usage { failure } else { failure.help("it may be an older one: stop it, and start this one") }
    })?;
    if output.json {
        output.value(&ledger)?;
        return Ok(Exit::Ok);
    }
    let columns = ["SERVER", "TOOLS", "TOKENS", "OUTPUT SCHEMAS", "RESULTS"].map(Column::stays);
    let mut table = Table::new(&columns);
    for server in &ledger.servers {
        let numbers = [server.tools, server.definitions, server.output_schemas, server.results];
        let [tools, definitions, schemas, results] = numbers.map(|number| number.to_string());
        table.row([text::line(&server.server).into_owned(), tools, definitions, schemas, results]);
    }
    let mut lines = if ledger.servers.is_empty() { Vec::new() } else { output.drawn(table) };
    lines.push(summary(&ledger, args.exact));
    output.lines(lines)?;
    Ok(Exit::Ok)
}

/// Describes what one list costs.
fn summary(ledger: &Ledger, is_exact: bool) -> String {
    let tools = text::count(ledger.tools, "tool");
    let about = if is_exact { "" } else { "about " };
    let listed = format!("{about}{} tokens in each list", ledger.tokens);
    let over = ledger.tokens > ledger.budget;
    let over = if over { format!(", over the budget of {}", ledger.budget) } else { String::new() };
    let mode = match ledger.listed {
        all if all == ledger.tools => String::new(),
        some => format!(", {some} of them listed ({})", text::line(&ledger.mode)),
    };
    let results = match ledger.results {
        0 => String::new(),
        tokens => format!("; about {tokens} in results since the start"),
    };
    format!("view {}: {tools}{mode}; {listed}{over}{results}", text::line(&ledger.view))
}

/// The tokenizer of OpenAI's newer models.
#[cfg(feature = "exact-tokens")]
mod exact {
    use super::{Exit, Failure};

    /// Returns a function that counts the tokens of a text.
    pub(super) fn counter() -> Result<impl Fn(&str) -> usize, Failure> {
        let tokenizer = tiktoken_rs::o200k_base()
            .map_err(|error| Failure::new(Exit::Failed, format!("--exact: the vocabulary cannot be read: {error}")))?;
        Ok(move |text: &str| tokenizer.encode_ordinary(text).len())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn tokens_are_those_of_o200k() {
            let count = counter().unwrap_or_else(|failure| panic!("{failure:?}"));
            let read = |file: &str| {
                let file = format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"));
                std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
            };
            // The recorded counts of another tokenizer for the lists of real servers.
            let (counted, recorded) = (read("retrieval/tokens.tsv"), read("fixtures/definitions/recorded.jsonl"));
            let mut lists = 0;
            for list in recorded.lines().take(10) {
                let list: serde_json::Value = serde_json::from_str(list).unwrap();
                let ours: usize = list["tools"].as_array().unwrap().iter().map(|tool| count(&tool.to_string())).sum();
                let line = format!("{}\t{ours}", list["package"].as_str().unwrap());
                assert!(counted.lines().any(|counted| counted == line), "{line}");
                lists += 1;
            }
            assert_eq!(lists, 10);
        }
    }
}

/// The replacement for builds without a tokenizer.
#[cfg(not(feature = "exact-tokens"))]
mod exact {
    use super::{Exit, Failure};

    /// Fails with advice on how to get a tokenizer.
    pub(super) fn counter() -> Result<fn(&str) -> usize, Failure> {
        let failure = Failure::new(Exit::Usage, "--exact: this build of mcp-host has no tokenizer");
        Err(failure.help("build it with one: cargo install --locked --path . --features exact-tokens"))
    }
}
