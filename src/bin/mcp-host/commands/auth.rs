//! `mcp-host auth`: which logins the daemon holds, without what is secret.

use mcp_host::admin::SignIn;
use serde::{Deserialize, Serialize};

use super::login::ask;
use crate::args::Status;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

#[derive(Deserialize, Serialize)]
struct Held {
    servers: Vec<Row>,
}

#[derive(Deserialize, Serialize)]
struct Row {
    name: String,
    holding: Option<Holding>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Holding {
    issuer: String,
    resource: String,
    client_id: String,
    scopes: Vec<String>,
    expires_in: u64,
    renewable: bool,
    kept: String,
}

pub(super) async fn run(args: &Status, output: &Output) -> Result<Exit, Failure> {
    let held: Held = ask(args.listen, &SignIn::Holdings {}).await?;
    if output.json {
        output.value(&held.servers)?;
        return Ok(Exit::Ok);
    }
    let rows: Vec<Vec<String>> = held.servers.iter().map(cells).collect();
    if rows.is_empty() {
        output.remark("no server that one signs in to");
        return Ok(Exit::Ok);
    }
    output.lines(text::table(
        &["SERVER", "SIGNED IN AT", "SCOPES", "TOKEN FOR", "RENEWED BY ITSELF", "KEPT IN"],
        &rows,
    ))?;
    Ok(Exit::Ok)
}

fn cells(row: &Row) -> Vec<String> {
    let name = text::line(&row.name).into_owned();
    let Some(held) = &row.holding else {
        return [name, "-".to_owned()].into_iter().chain(std::iter::repeat_n(String::new(), 4)).collect();
    };
    vec![
        name,
        text::headline(&held.issuer, WIDTH),
        text::headline(&held.scopes.join(" "), WIDTH),
        text::duration(held.expires_in.saturating_mul(1000)),
        if held.renewable { "yes" } else { "no" }.to_owned(),
        place(&held.kept).to_owned(),
    ]
}

/// Where a token is, for people.
pub(super) fn place(kept: &str) -> &'static str {
    match kept {
        "keyring" => "a file, its key in the keyring",
        "file" => "an encrypted file",
        "memory" => "memory, until the daemon ends",
        _ => "the program's own store",
    }
}

const WIDTH: usize = 60;
