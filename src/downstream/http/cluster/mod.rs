//! Where a request is served, if several replicas serve as one (`docs/cluster.md`).
//!
//! **The rule**: a handle that names a replica goes there, everything else is served where it lands. In: a request that is
//! authenticated. Out: the request itself, if it is served here, or the answer of the replica that it was handed to. A request
//! that was handed over is served where it arrives, so there is one step at most.
//!
//! If the replica of a session is gone, the others agree on one that takes the session up from its id (`docs/hazards.md` H110).
//! Whatever else was in the memory of that replica is gone. `forward.rs` hands a request over, and `relayed.rs` beside this folder serves those
//! of other replicas.
//!
//! **Invariant:** what travels is what the live request has proven, and an id opens for its principal alone (`docs/hazards.md`
//! H60). Start reading at [`Cluster::session`].

mod forward;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use http_body::Body as _;
use tokio::net::TcpListener;

use self::forward::{Forwarded, Parcel};
use super::answer::{self, Refusal, Response};
use super::body::{self, Request};
use super::halved::Arriving;
use super::handle::Handles;
use super::wires::HttpWire;
use super::{Asker, Door, SESSION, sse};
use crate::boot::Boot;
use crate::downstream::authentication::Proven;
use crate::peers::{Peers, Seen};
use crate::protocol::{self, Message};
use crate::router::{ClusterNotes, Handshake, Identity, PeerNotes};

/// Names the replica that a request is for. It refuses what is for another.
pub(super) const BOOT: HeaderName = HeaderName::from_static("mcp-host-boot");
/// What the request has proven.
pub(super) const PROOF: HeaderName = HeaderName::from_static("mcp-host-proof");
/// Set if an earlier replica may have begun the call: it is not made again, and its client is told so.
pub(super) const LOST: HeaderName = HeaderName::from_static("mcp-host-lost");

/// The peer channel before it serves.
#[derive(Clone)]
pub(crate) struct Channel {
    pub(crate) peers: Arc<Peers>,
    pub(crate) listener: Arc<TcpListener>,
}

/// The replicas, as a door sees them.
pub(super) struct Cluster {
    pub(super) peers: Arc<Peers>,
}

/// What becomes of a request.
pub(super) enum Step {
    /// It is served here.
    Here(Request),
    /// Another replica has answered, or nobody could.
    Done(Result<Response, Refusal>),
}

/// A replica that has what a request is about.
struct Home {
    boot: Boot,
    /// What decides which replica takes it up if that one is gone; `None` if it cannot be taken up.
    inherited: Option<Vec<u8>>,
}

/// The largest body that is read before it is handed over, so that it can be handed over twice.
const WHOLE: u64 = 256 * 1024;
/// How often a request is handed over, if the replica that it is for turns out to be gone.
const ATTEMPTS: usize = 3;

impl Cluster {
    /// Returns what people see of the cluster.
    pub(super) fn notes(&self) -> ClusterNotes {
        let mut notes = ClusterNotes::default();
        (notes.mode, notes.replica) = ("sealed".to_owned(), self.peers.boot().to_string());
        notes.peers = self.peers.seen().into_iter().map(noted).collect();
        notes
    }

    /// Decides about a request at `/mcp`, which may name a session.
    pub(super) async fn session(&self, door: &Arc<Door>, wire: &HttpWire, asker: &Asker, request: Request) -> Step {
        let home = self.home_of_session(door, &asker.identity, request.headers()).await;
        self.step(door, wire, (&asker.proven, Some(&asker.identity)), home, request).await
    }

    /// Decides about a message for a session over HTTP+SSE, which lives where its stream is.
    pub(super) async fn message(&self, door: &Arc<Door>, wire: &HttpWire, proven: &Proven, request: Request) -> Step {
        let home = sse::home_of(request.uri().query()).map(|boot| Home { boot, inherited: None });
        self.step(door, wire, (proven, None), home, request).await
    }

    /// Hands a request without a session over, if what it goes on with is at another replica that answers.
    pub(super) async fn stateless(
        &self,
        door: &Door,
        wire: &HttpWire,
        asker: &Asker,
        (uri, headers): (&Uri, &HeaderMap),
        (body, request): (&Bytes, &protocol::Request),
    ) -> Option<Result<Response, Refusal>> {
        let home = crate::router::home::home_of(&door.router, &asker.identity, request)?;
        if home == self.peers.boot() {
            return None;
        }
        // Without that replica, this one says that what it had has expired.
        let link = self.peers.find(home).await?;
        let parcel = Parcel::new((&Method::POST, uri, headers), &asker.proven)?;
        match forward::forward(&link, &parcel, forward::whole(body.clone()), false).await {
            Forwarded::Answered(response) => Some(Ok(forward::answer(response, wire, None))),
            Forwarded::NotThere => {
                link.note_leaving();
                None
            }
            // This replica says that what the other one had has expired, and that a call may have done its work.
            Forwarded::Unsent | Forwarded::Lost => None,
        }
    }

    /// Finds the replica of the session that a request names; `None` if this one serves it, or refuses it.
    async fn home_of_session(&self, door: &Door, identity: &Identity, headers: &HeaderMap) -> Option<Home> {
        let id = body::single(headers, &SESSION).ok()??.as_bytes();
        if door.sessions.has(door.sessions.digest(id)) {
            return None;
        }
        let home = match Handles::run_of_bound(id) {
            Some(boot) => Home { boot, inherited: None },
            None => {
                let handle = door.handles.open(id, identity, door.session_life()).await?;
                Home { boot: handle.home, inherited: Some(handle.serial.to_be_bytes().to_vec()) }
            }
        };
        (home.boot != self.peers.boot()).then_some(home)
    }

    async fn step(
        &self,
        door: &Arc<Door>,
        wire: &HttpWire,
        (proven, identity): (&Proven, Option<&Identity>),
        home: Option<Home>,
        request: Request,
    ) -> Step {
        let Some(home) = home else { return Step::Here(request) };
        // One that stops still has the sessions that are at work, and says of the others that they are not there.
        let mut link = self.peers.find(home.boot).await;
        if link.is_none() {
            link = home.inherited.as_ref().and_then(|of| self.peers.heir(of));
        }
        let Some(mut link) = link else { return Step::Here(request) };
        let (head, arriving) = request.into_parts();
        let Some(parcel) = Parcel::new((&head.method, &head.uri, &head.headers), proven) else {
            return Step::Done(Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "the request cannot be handed to its replica",
            )));
        };
        let is_large = arriving.size_hint().exact().is_some_and(|length| length > WHOLE);
        if is_large && head.method == Method::POST {
            let sent = forward::forward(&link, &parcel, forward::streamed(arriving), false).await;
            return Step::Done(match sent {
                Forwarded::Answered(response) => Ok(forward::answer(response, wire, None)),
                Forwarded::Lost => {
                    // The client cannot be told under the id of its request, which nobody here has read.
                    wire.end_token().cancel();
                    Err(gone())
                }
                Forwarded::NotThere | Forwarded::Unsent => Err(gone()),
            });
        }
        let limits = door.router.limits();
        let bytes = match body::read(arriving, limits.body, &proven.principal, &door.bodies).await {
            Ok(bytes) => bytes,
            Err(refused) => return Step::Done(Err(refused)),
        };
        // The stream of a client that reads on ends once this replica stops; the client opens it again elsewhere.
        let until = (head.method == Method::GET).then(|| door.stopping.clone());
        let mut is_lost = false;
        for _ in 0..ATTEMPTS {
            match forward::forward(&link, &parcel, forward::whole(bytes.clone()), is_lost).await {
                Forwarded::Answered(response) => return Step::Done(Ok(forward::answer(response, wire, until))),
                Forwarded::NotThere => link.note_leaving(),
                Forwarded::Unsent => {}
                Forwarded::Lost => is_lost = is_lost || begins_work(&head.method, &bytes),
            }
            let next = match &home.inherited {
                // It is looked for once more: the channel may have broken, and not the replica.
                Some(of) if link.boot() == home.boot && !link.leaves() => match self.peers.find(home.boot).await {
                    Some(again) => Some(again),
                    None => self.peers.heir(of),
                },
                Some(of) => self.peers.heir(of),
                None => self.peers.find(home.boot).await,
            };
            match next {
                Some(next) => link = next,
                None => break,
            }
        }
        match (identity, is_lost) {
            (Some(identity), true) => Step::Done(lost(door, identity, &head.headers, &bytes).await),
            _ => Step::Here(http::Request::from_parts(head, Arriving::of_whole(bytes, wire.clone()))),
        }
    }
}

fn noted(seen: Seen) -> PeerNotes {
    let mut notes = PeerNotes::default();
    (notes.address, notes.why, notes.differs, notes.leaves) = (seen.address, seen.why, seen.differs, seen.leaves);
    notes.replica = seen.boot.map(|boot| boot.to_string());
    notes
}

/// Reports whether a request may have done work that is not to be done twice: whatever is no read.
fn begins_work(method: &Method, bytes: &Bytes) -> bool {
    *method == Method::POST
        && match Message::parse(bytes) {
            Ok(Message::Request(request)) => is_work(&request.method),
            // A batch, perhaps.
            Err(_) => true,
            Ok(Message::Notification(_) | Message::Response(_)) => false,
        }
}

fn is_work(method: &protocol::Method) -> bool {
    use protocol::Method as M;
    matches!(method, M::ToolsCall | M::TasksUpdate | M::Other(_))
}

/// Tells the client of a call that its replica ended while it ran (`docs/hazards.md` H57).
pub(super) async fn lost(
    door: &Door,
    identity: &Identity,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> Result<Response, Refusal> {
    let Ok(Message::Request(request)) = Message::parse(bytes) else { return Err(gone()) };
    let in_use = door.session(identity, headers).await?;
    let outcome = Handshake::lost(&door.router, &in_use.session().client, &request.method);
    Ok(answer::json(protocol::Response { id: Some(request.id), outcome }.frame().pieces().into()))
}

fn gone() -> Refusal {
    Refusal::busy("the replica that has this session has just gone: send it again")
}
