//! Requests about what waits for approval: `approvals`, which shows it, and a person's approval of exactly what was shown.

use serde::{Deserialize, Serialize};

use super::Refused;
use crate::downstream::approvals::{Approval, Approvals, NotApproved};
use crate::router::Router;

/// The request with an approval.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approve {
    approve: Approval,
}

/// The reply to it.
#[derive(Debug, Serialize)]
pub(super) struct Approved {
    /// How many definitions or certificates.
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

/// Returns what waits.
pub(super) async fn waiting(router: &Router) -> Result<Approvals, Refused> {
    Approvals::of(router).await.map_err(Refused::because)
}
