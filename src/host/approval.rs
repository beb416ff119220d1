//! What waits for the user's approval, for programs that embed the host.

use super::Host;
use crate::error::{Error, ErrorKind};
use crate::pins::{Stated, Suspicion, Waiting};

impl Host {
    /// Returns the definitions that differ from what was approved, and those of new servers under
    /// [`Approval::Ask`](crate::config::Approval::Ask), server by server.
    ///
    /// A server is identified by its name and by how it is reached: its command, arguments and names of variables, or
    /// its URL. Approvals are kept in the [state directory](crate::HostBuilder::state_directory). Without one, the host
    /// forgets them when it ends, and every server is new at the next start.
    ///
    /// ```no_run
    /// # async fn approve(host: &mcp_host::Host) -> Result<(), mcp_host::Error> {
    /// let waiting = host.waiting_for_approval().await?;
    /// for one in &waiting {
    ///     println!("{} {} of {}: {:?}", one.what, one.name, one.server, one.changes);
    /// }
    /// // A person has said yes to exactly these.
    /// host.approve(&waiting).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the record of a server cannot be read.
    pub async fn waiting_for_approval(&self) -> Result<Vec<Waiting>, Error> {
        self.0.manager.unapproved().await.map_err(|error| Error::from_source(ErrorKind::Internal, error))
    }

    /// Finds what is suspicious in the definitions that the servers list now: hidden characters, orders to a model, paths
    /// of credentials, names of other servers' tools. A finding is a reason for a person to read, and no proof; that
    /// nothing is found does not mean that a server is safe.
    pub async fn suspicions(&self) -> Vec<Suspicion> {
        self.0.manager.suspicions().await
    }

    /// Returns the definitions that the servers list now, each with its pin (the hash by which it is approved): a lock
    /// is made of these. Definitions that are withheld from clients are included.
    pub async fn definitions(&self) -> Vec<Stated> {
        self.0.manager.stated().await
    }

    /// Approves exactly these definitions, except those that their servers no longer list. Returns how many were
    /// approved.
    ///
    /// # Errors
    /// If the record of a server cannot be read or written. Its definitions are not approved then.
    pub async fn approve(&self, shown: &[Waiting]) -> Result<usize, Error> {
        self.0.manager.approve(shown).await.map_err(|error| Error::from_source(ErrorKind::Internal, error))
    }
}
