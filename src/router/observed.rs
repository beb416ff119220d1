//! What is told of requests to those who listen (`observe.rs`): who sends one, and which server it goes to.

use std::sync::Arc;

use super::client::Client;
use super::{Mailbox, Router};
use crate::answered::{Answered, Failed};
use crate::manager::Server;
use crate::observe::{Begun, Listener, Observed};
use crate::protocol::{Method, Outcome, Request, meta};

impl Router {
    /// From now on these hear of each request. Only the first ones count.
    pub(crate) fn report_to(&self, listeners: Vec<Arc<dyn Listener>>) {
        self.0.observer.tell(listeners);
    }

    /// The listeners keep what they heard.
    pub(crate) async fn finish_reports(&self) {
        self.0.observer.finish().await;
    }

    /// Notes that a request begins; dropping the answer notes that it was cancelled.
    ///
    /// # Errors
    /// When the request must not be served, because it could not be written down.
    pub(super) fn observed(&self, client: &Client, request: &Request, leg: &Mailbox) -> Result<Observed<'_>, Failed> {
        self.0.observer.begin(&request.method, || {
            let params = request.params.as_ref();
            // Without a session each request says by itself who sends it.
            let named = params.filter(|_| client.revision().is_modern());
            let named = named.and_then(|params| params.member("_meta")?.member(meta::CLIENT_INFO)?.text("name"));
            Begun {
                principal: client.principal().as_str(),
                client: named.map(Into::into).or_else(|| client.named().0.map(Into::into)),
                method: &request.method,
                params,
                subject: leg.observed(),
            }
        })
    }

    /// The answer to a request that is served beside all others, observed as they are, and as it is to be written.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub(super) async fn beside(
        self,
        client: Arc<Client>,
        request: Request,
        leg: Arc<Mailbox>,
        answer: impl Future<Output = Answered> + Send,
    ) -> Option<Outcome> {
        let method: &Method = &request.method;
        let answered = match self.observed(&client, &request, &leg) {
            Ok(observed) => {
                let answered = answer.await;
                observed.finish(Some(&answered));
                answered
            }
            Err(refused) => Err(refused.into()),
        };
        Some(self.finished(&client, method, answered))
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
