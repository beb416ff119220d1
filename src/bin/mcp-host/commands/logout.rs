//! `mcp-host logout SERVER`: the daemon tells whoever gave the token, and forgets it.

use mcp_host::admin::SignIn;
use serde::Deserialize;

use super::login::ask;
use crate::args::Logout;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

#[derive(Deserialize)]
struct Done {
    forgotten: bool,
}

pub(super) async fn run(args: &Logout, output: &Output) -> Result<Exit, Failure> {
    let done: Done = ask(args.listen, &SignIn::Forget { server: args.server.clone() }).await?;
    let name = text::line(&args.server);
    output.talk(&if done.forgotten {
        format!("signed out of `{name}`")
    } else {
        format!("there was no login of `{name}`")
    });
    Ok(Exit::Ok)
}
