//! Requests about what waits for approval: `approvals` lists it, and another request approves exactly what was listed.

use serde::{Deserialize, Serialize};

use super::Refused;
use crate::downstream::approvals::{Approval, Approvals, NotApproved};
use crate::router::Router;

/// The request that approves something.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approve {
    approve: Approval,
}

/// The reply to an [`Approve`].
#[derive(Debug, Serialize)]
pub(super) struct Approved {
    /// How many definitions or certificates were approved.
    approved: usize,
}

impl Approve {
    /// Approves what was shown.
    pub(super) async fn give(&self, router: &Router) -> Result<Approved, Refused> {
        let approved = self.approve.give(router).await.map_err(|why| match why {
            NotApproved::Unknown(why) => Refused::unknown(why),
            NotApproved::Changed(why) => Refused::because(format!("{why}: ask for `approvals` again")),
            NotApproved::Failed(why) => Refused::because(why),
        })?;
        Ok(Approved { approved })
    }
}

/// Returns what waits for approval.
pub(super) async fn waiting(router: &Router) -> Result<Approvals, Refused> {
    Approvals::of(router).await.map_err(Refused::because)
}
