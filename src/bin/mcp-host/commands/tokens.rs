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
    let said = admin::tokens(args.listen.map(|listen| listen.port()), args.view.as_deref()).await;
    let ledger = said.map_err(|error| failed(&asked, &error))?.map_err(|refused| {
        let failure = Failure::new(Exit::Usage, refused.error);
        if refused.usage { failure } else { failure.help("it may be an older one: stop it, and start this one") }
    })?;
    if output.json {
        output.value(&ledger)?;
        return Ok(Exit::Ok);
    }
    let columns = ["SERVER", "TOOLS", "TOKENS", "OUTPUT SCHEMAS"].map(Column::stays);
    let mut table = Table::new(&columns);
    for server in &ledger.servers {
        let numbers = [server.tools, server.definitions, server.output_schemas].map(|number| number.to_string());
        let [tools, definitions, schemas] = numbers;
        table.row([text::line(&server.server).into_owned(), tools, definitions, schemas]);
    }
    let mut lines = if ledger.servers.is_empty() { Vec::new() } else { output.drawn(table) };
    lines.push(summary(&ledger));
    output.lines(lines)?;
    Ok(Exit::Ok)
}

/// Says what one list costs.
fn summary(ledger: &Ledger) -> String {
    let tools = text::count(ledger.tools, "tool");
    let listed = format!("about {} tokens in each list", ledger.tokens);
    let over = ledger.tokens > ledger.budget;
    let over = if over { format!(", over the budget of {}", ledger.budget) } else { String::new() };
    let mode = match ledger.listed {
        all if all == ledger.tools => String::new(),
        some => format!(", {some} of them listed ({})", text::line(&ledger.mode)),
    };
    format!("view {}: {tools}{mode}; {listed}{over}", text::line(&ledger.view))
}
