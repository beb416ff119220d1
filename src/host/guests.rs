//! Clients at the status socket: processes of this user that would otherwise read the same config themselves.

use tokio_util::sync::CancellationToken;

use super::Host;
use crate::config::{HostAuth, Join};
use crate::downstream::admin::{self, Arrival, Grounds, Guests, No, Refusal};
use crate::downstream::stdio::{self, Guest};
use crate::router::{Chosen, Identity, Principal, Viewed};

impl Host {
    /// Decides whether to admit a client that has connected. If it is admitted, serves it until it leaves or until
    /// `stop`.
    pub(super) async fn receive(&self, arrival: Arrival, boot: &str, guests: &Guests, stop: &CancellationToken) {
        // The client is counted while it is still judged, so that clients that connect at the same time count, too.
        let _seat = guests.seat();
        let admitted = match admin::receive(arrival, boot, self.grounds(guests, stop)).await {
            Ok(Some(admitted)) => admitted,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "a client at the status socket broke off"),
        };
        let principal = self.guest_principal();
        let view = admitted.view.as_deref();
        let chosen = view.map_or(Chosen::Default, Chosen::named);
        let view = Viewed { name: chosen, is_private: false };
        let guest = Guest::new(Identity { view: view.clone(), ..principal.clone().into() }, admitted.asked);
        let end = stop.child_token();
        let (input, output) = admitted.arrival.pipes();
        let served = stdio::serve_guest(self.0.router.clone(), self.0.eras, guest, input, output, end.clone());
        let mut served = std::pin::pin!(served);
        let served = tokio::select! {
            biased;
            served = &mut served => served,
            // The config shuts the client out: its connection ends, it reconnects, and is judged again.
            () = self.shuts_out(&principal, &view.name) => {
                end.cancel();
                served.await
            }
        };
        if let Err(error) = served {
            tracing::warn!("a client at the status socket: {error}");
        }
    }

    /// Returns a function that provides the config and directory with which to compare a client, or why no client is
    /// admitted.
    fn grounds(
        &self,
        guests: &Guests,
        stop: &CancellationToken,
    ) -> Result<impl FnOnce() -> Grounds + Send + use<>, No> {
        if stop.is_cancelled() {
            return Err((Refusal::Stopping, "it is stopping".to_owned()));
        }
        let limit = self.0.router.limits().connections;
        // If there is an HTTP door, it counts its own connections and these.
        if guests.count().max(self.0.router.meter().gauges().connections) > limit {
            return Err((Refusal::Full, format!("{limit} connections are in use (host.limits.connections)")));
        }
        let config = self.0.configured.current();
        Ok(move || Grounds { config, cwd: std::env::current_dir().unwrap_or_default() })
    }

    /// Returns the principal (identity) of clients at the socket. If clients over HTTP authenticate, it differs from
    /// all of theirs.
    fn guest_principal(&self) -> Principal {
        match self.0.manager.settings().auth {
            HostAuth::None => Principal::local(),
            _ => Principal::user(),
        }
    }

    /// Waits until the config no longer admits a client with that principal and view. The config may already have
    /// changed while the decision about the client was made.
    async fn shuts_out(&self, principal: &Principal, view: &Chosen) {
        let mut config = self.config_status();
        loop {
            config.mark_unchanged();
            let settings = self.0.manager.settings();
            let is_closed = settings.auth != HostAuth::None && settings.join.is_none();
            let lacks_view = matches!(view, Chosen::Named(name) if !settings.has_view(name));
            if lacks_view || settings.join == Some(Join::Never) || is_closed || self.guest_principal() != *principal {
                return;
            }
            if config.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
