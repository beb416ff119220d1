//! What the audit is told of requests, where there is one.

use std::sync::Arc;

use super::client::Client;
use super::{Mailbox, Router};
use crate::answered::Failed;
use crate::audit::{self, Audit, Caller, Record};
use crate::manager::Server;
use crate::protocol::{Request, meta};

impl Router {
    /// From now on each call is written down. Only the first audit counts.
    pub(crate) fn write_down(&self, audit: Audit) {
        let _ = self.0.audit.set(audit);
    }

    /// The last lines are written.
    pub(crate) async fn finish_audit(&self) {
        if let Some(audit) = self.0.audit.get() {
            audit.finish().await;
        }
    }

    /// The place for a request in the audit; `None` where none is kept.
    ///
    /// # Errors
    /// When the request must not be served, because it could not be written down.
    pub(super) fn audited(&self, client: &Client, request: &Request, leg: &Mailbox) -> Result<Option<Record>, Failed> {
        let Some(audit) = self.0.audit.get().filter(|_| audit::covers(&request.method)) else { return Ok(None) };
        let params = request.params.as_ref();
        // Without a session each request says by itself who sends it.
        let named = params.filter(|_| client.revision().is_modern());
        let named = named.and_then(|params| params.member("_meta")?.member(meta::CLIENT_INFO)?.text("name"));
        let caller =
            Caller { principal: client.principal().as_str(), client: named.as_deref().or_else(|| client.named().0) };
        audit.begin(&caller, &request.method, params, leg.audited()).map(Some)
    }
}

impl Mailbox {
    /// The request that it belongs to is one for that server.
    pub(super) fn concerns(&self, server: &Server, target: &Arc<str>) {
        if let Some(subject) = self.subject() {
            subject.is(&server.label, target, &server.scrubber);
        }
    }
}
