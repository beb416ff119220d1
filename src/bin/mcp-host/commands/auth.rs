//! `mcp-host auth`: lists the logins, without secrets.

use mcp_host::admin::SignIn;
use serde::{Deserialize, Serialize};

use super::desk::{Desk, Errand};
use crate::args::{Auth, Common};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::table::{Cell, Column, Table};
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

pub(super) async fn run(args: &Auth, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let errand = Errand { command: "auth", server: None, listen: args.listen };
    let desk = Box::pin(Desk::find(&errand, common, output)).await?;
    let held = desk.ask::<Held>(&SignIn::Holdings {}).await;
    desk.close().await;
    let held = held?;
    if output.json {
        output.value(&held.servers)?;
        return Ok(Exit::Ok);
    }
    if held.servers.is_empty() {
        output.remark("no servers to sign in to");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&COLUMNS);
    held.servers.iter().for_each(|row| table.row(cells(row)));
    output.table(table)?;
    Ok(Exit::Ok)
}

fn cells(row: &Row) -> Vec<Cell> {
    let name = Cell::new(&row.name);
    let Some(held) = &row.holding else { return vec![name, "-".into()] };
    vec![
        name,
        text::headline(&held.issuer).into(),
        text::headline(&held.scopes.join(" ")).into(),
        text::duration(held.expires_in.saturating_mul(1000)).into(),
        if held.renewable { "yes" } else { "no" }.into(),
        place(&held.kept).into(),
    ]
}

/// Describes where the token of a login is kept.
pub(super) fn place(kept: &str) -> &'static str {
    match kept {
        "keyring" => "a file, its key in the keyring",
        "file" => "an encrypted file",
        "memory" => "memory, until the daemon ends",
        _ => "the program's own store",
    }
}

const COLUMNS: [Column; 6] = [
    Column::stays("SERVER"),
    Column::stays("SIGNED IN AT"),
    Column::cuts("SCOPES"),
    Column::stays("TOKEN FOR"),
    Column::stays("RENEWED BY ITSELF"),
    Column::wraps("KEPT IN"),
];
