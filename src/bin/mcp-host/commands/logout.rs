//! `mcp-host logout SERVER`: revokes the login's token at its issuer, and forgets it.

use mcp_host::admin::SignIn;
use serde::Deserialize;

use super::desk::{Desk, Errand};
use crate::args::{Common, Logout};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

#[derive(Deserialize)]
struct Done {
    forgotten: bool,
}

pub(super) async fn run(args: &Logout, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let errand = Errand { command: "logout", server: Some(&args.server), listen: args.listen };
    let desk = Box::pin(Desk::find(&errand, common, output)).await?;
    let done = desk.ask::<Done>(&SignIn::Forget { server: args.server.clone() }).await;
    desk.close().await;
    let done = done?;
    let name = text::line(&args.server);
    output.talk(&if done.forgotten {
        format!("signed out of `{name}`")
    } else {
        format!("there was no login of `{name}`")
    });
    Ok(Exit::Ok)
}
