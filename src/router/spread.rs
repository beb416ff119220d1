//! Runs the calls of a server that has a `pool` on several leases: the client's own, or one beside it.
//!
//! In: a call, and the lease that its client has at the server. Out: a lease with the fewest calls, and a place there. A
//! call that was given a lease which is still starting goes elsewhere once another call has left its lease.
//!
//! **Invariant:** a client's tasks, and its answers to questions in a result, stay on the lease where they began, its
//! own one. Subscriptions never come here.

use std::sync::Arc;

use super::answer::Failure;
use super::client::Client;
use super::forward::Forward;
use super::parked::Parked;
use super::plan::Plan;
use super::reach::{Connector, Hold, Reached, in_time};
use super::running::Attempt;
use crate::adapt::task;
use crate::manager::{Berth, Pool};
use crate::protocol::Method;
use crate::upstream::{Connection, Upstream};

/// How often a call looks for its client's lease again if that has just ended.
const TRIES: usize = 3;

type Found = (Arc<Upstream>, Arc<Connection>, Option<Berth>);

impl Connector {
    /// Does for a server with a pool what [`Connector::connect_call`] does for others. Its calls need no lane, because
    /// such a server asks nothing.
    pub(super) async fn connect_pooled(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        pool: &Pool,
        parked: Option<&Arc<Parked>>,
    ) -> Result<Reached, Attempt> {
        let (upstream, connection, berth) = self.spread(client, forward, pool).await.map_err(Attempt::Failed)?;
        if let Some(parked) = parked {
            self.parked.runs_on(parked, &upstream);
        }
        Ok(Reached { upstream, connection, lane: None, hold: berth.map(Hold::Pooled) })
    }

    /// Finds the lease with the fewest calls, and waits for its connection.
    async fn spread(&self, client: &Arc<Client>, forward: &Forward, pool: &Pool) -> Result<Found, Failure> {
        let (server, roots, mut tries) = (&forward.server, forward.roots.as_ref(), 0);
        loop {
            let freed = pool.freed();
            let mut first = in_time(|| self.lease(client, server, roots)).await?;
            let mut connection = first.connection().filter(|connection| connection.lost().is_none());
            let may_go = may_spread(client, forward, connection.as_deref());
            // While the first lease is down, the other leases of the pool go on.
            if connection.is_some() || !may_go || !server.has_extra(&first) {
                let reached = self.connect(client, server, roots).await?;
                (first, connection) = (reached.0, Some(reached.1));
            }
            if let Some(connection) = connection.as_ref().filter(|own| !may_spread(client, forward, Some(own))) {
                let berth = self.manager.berth_on(server, &first, &client.who);
                return Ok((first, connection.clone(), berth));
            }
            let Some((upstream, berth)) = self.manager.berth(server, &first, &client.who) else {
                tries += 1;
                match connection {
                    Some(connection) if tries >= TRIES => return Ok((first, connection, None)),
                    _ => client.drop_lease(server.id),
                }
                continue;
            };
            if upstream.id == first.id {
                if let Some(connection) = connection {
                    return Ok((first, connection, Some(berth)));
                }
                let (first, connection) = self.connect(client, server, roots).await?;
                return Ok((first, connection, Some(berth)));
            }
            self.clients.apply_level(server, &upstream);
            let connection = tokio::select! {
                biased;
                connection = started(&upstream) => connection,
                () = freed => None,
            };
            // A lease that did not start gets no more calls.
            if let Some(connection) = connection.filter(|own| own.is_modern() == first.was_modern()) {
                return Ok((upstream, connection, Some(berth)));
            }
        }
    }
}

/// Reports whether a call may run on any lease of the pool: it is no task and cannot become one, and answers nothing that
/// a result has asked.
fn may_spread(client: &Client, forward: &Forward, connection: Option<&Connection>) -> bool {
    // Without a connection it is not known what the server can do.
    let runs_tasks = || {
        connection.and_then(Connection::peer).is_none_or(|peer| {
            peer.extensions.as_ref().is_some_and(|extensions| extensions.member(task::EXTENSION).is_some())
        })
    };
    let is_call =
        matches!(forward.method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead | Method::Complete);
    let is_task = forward.task != Plan::default() || (client.declares(task::EXTENSION) && runs_tasks());
    is_call && !is_task && !forward.answers
}

/// Waits until a lease has started, or has failed to.
async fn started(upstream: &Upstream) -> Option<Arc<Connection>> {
    let mut status = upstream.watch();
    let over = status.wait_for(|status| !status.state.is_starting()).await.is_ok();
    upstream.connection().filter(|connection| over && connection.lost().is_none())
}
