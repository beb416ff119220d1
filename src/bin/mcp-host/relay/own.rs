//! A host in this process, for a client whose daemon is gone and does not come back. The relay reaches it through one
//! more socket. A client that has left gets no host: the relay answers its requests as not sent, or with an unknown
//! outcome.

use std::io;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use mcp_host::config::Start;

use super::words::Words;
use crate::args::Common;
use crate::output::Output;
use crate::report::Failure;
use crate::servers::Plan;

/// How long the host's servers have to exit after the client has left.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Starts the host. Returns the client's end of the socket, and the host's thread. The ids of the host's questions
/// begin above `asked`.
pub(super) fn start(words: &Words, asked: u64, output: &Output) -> io::Result<(UnixStream, JoinHandle<()>)> {
    let (config, project, view) = (words.config.clone(), words.project.clone(), words.view.clone());
    let common = Common { config, project, view, ..Common::default() };
    let plan = Plan::load(&common, false, None).map_err(|failure| {
        failure.tell(output);
        io::Error::other("its config cannot be used")
    })?;
    let output = output.clone();
    let (here, there) = UnixStream::pair()?;
    let runtime = crate::runtime()?;
    let thread = std::thread::Builder::new().name("host".to_owned()).spawn(move || {
        runtime.block_on(serve(plan, there, asked, &output));
        runtime.shutdown_timeout(Duration::from_millis(500));
    })?;
    Ok((here, thread))
}

async fn serve(mut plan: Plan, door: UnixStream, asked: u64, output: &Output) {
    for server in &mut plan.config.servers {
        // The client may not need all servers.
        server.start = Start::Lazy;
    }
    let follow = plan.again();
    let started = async { Ok::<_, Failure>(plan.builder()?.unattended().start().await?) };
    let host = match Box::pin(started).await {
        Ok(host) => host,
        // The relay sees that the socket is closed.
        Err(failure) => {
            failure.tell(output);
            return;
        }
    };
    host.follow_config(follow);
    if let Err(error) = host.serve_stream(door, asked).await {
        Failure::from(error).tell(output);
    }
    host.shutdown_within(PATIENCE).await;
}
