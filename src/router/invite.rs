//! Invitations to sign in: a call was refused before any work because mcp-host has no access token for the server, and
//! the client can be asked to open a web page (`docs/bridging.md` 14). The client gets an elicitation in URL mode in
//! the form of its era; `auth/invitation.rs` serves the page.
//!
//! **Invariant:** only the local user is asked, over a pipe or the loopback endpoint. The browser must come back to
//! this machine, and a client that authenticates with a token must not decide whose account all clients use. The
//! embedding program signs in its own way. Any other client gets the error that names `mcp-host login`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Mailbox;
use super::answer::Failure;
use super::asking;
use super::beating::beating;
use super::client::Client;
use super::forward::{Course, Forward};
use super::heart::Wait;
use super::put::{AskGuard, own_number};
use super::reach::Connector;
use super::relay::input_required;
use super::state::{Sealer, State};
use super::toward::Toward;
use crate::adapt;
use crate::answered::{Answered, NoResult};
use crate::auth::{Invitation, Stands};
use crate::protocol::{Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Theirs};
use crate::upstream::Ask;

/// The outcome of asking a client to sign in.
pub(super) enum Invited {
    /// Nobody signs in; the client gets the refusal as its answer.
    Nobody,
    /// The client gets this answer, which asks it to sign in, and has to send its request again.
    Asked(Outcome),
    /// mcp-host has an access token now; the call is sent again.
    SignedIn,
}

/// How long one request of a client without a session waits for the sign-in. Many clients give up after a minute.
const PATIENCE: Duration = Duration::from_secs(45);
const KEY: &str = "signIn";

/// Invites clients to sign in.
#[derive(Debug)]
pub(super) struct Invitations {
    pub(super) connector: Arc<Connector>,
    pub(super) sealer: Arc<Sealer>,
}

impl Invitations {
    /// Asks the client of a refused call to sign in, if it can be asked. A client with a session is waited for; one
    /// without gets a result that asks.
    pub(super) async fn invite(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        toward: &mut Toward<'_>,
        course: &mut Course,
        failure: &Failure,
    ) -> Invited {
        let Some(why) = failure.wants_sign_in() else { return Invited::Nobody };
        if !forward.method.may_ask() || !is_at_hand(client) || !std::mem::take(&mut course.invites) {
            return Invited::Nobody;
        }
        let Some(tokens) = forward.server.tokens() else { return Invited::Nobody };
        let Some(invitation) = tokens.invite().await else { return Invited::Nobody };
        let is_new = invitation.is_new_to(client.owner().0);
        if client.revision().is_modern() {
            // Clients without a session and with equal capabilities count as one client. If the page was shown to it
            // before, the request first waits for the sign-in; then it asks, too, since another of these clients may be
            // behind it. So each of them is asked in the end, until one declines.
            if !is_new {
                let login = pin!(self.wait(client, forward, &invitation));
                if let Some(end) = beating(toward, forward, Wait::Person, login).await {
                    return end;
                }
            }
            return Invited::Asked(ask_to_sign_in(&self.sealer, client, forward, &invitation, why));
        }
        let Toward::Leg(leg) = &*toward else { return Invited::Nobody };
        let leg = leg.mailbox().clone();
        let asked = Instant::now();
        let stands = if is_new {
            signed_in(client, forward, (&leg, toward), &invitation).await
        } else {
            // Another call of this client has asked already. This one waits with it until the client declines, or the
            // login ends.
            toward.tick();
            let login = pin!(invitation.wait(client.owner().0, forward.limits.login));
            beating(toward, forward, Wait::Person, login).await
        };
        // The time that a person takes does not count toward the deadline.
        course.end += asked.elapsed();
        if stands != Stands::SignedIn {
            return Invited::Nobody;
        }
        self.token_is_known(client, forward).await;
        Invited::SignedIn
    }

    /// Takes the answer to an invitation that a client without a session brings with its request. Returns the answer to
    /// the request, or `None` if the call is to be sent again.
    pub(super) async fn answered(
        &self,
        client: &Arc<Client>,
        forward: &Forward,
        invitation: u64,
        why: String,
    ) -> Option<Answered> {
        let refused = Failure::not_signed_in(why.clone());
        let refused = || Some(Err(refused.of(&forward.server)));
        let answer = forward.params.member("inputResponses").and_then(|answers| answers.member(KEY));
        let accepted = answer.and_then(|answer| answer.text("action")).as_deref() == Some("accept");
        // If the invitation is gone, the call is sent again, which shows whether there is an access token.
        let invitation = forward.server.tokens().and_then(|tokens| tokens.invitation(invitation));
        if let Some(invitation) = &invitation {
            invitation.answered(client.owner().0, accepted);
        }
        if !accepted {
            return refused();
        }
        let invitation = invitation?;
        match self.wait(client, forward, &invitation).await {
            Some(Invited::SignedIn) => None,
            Some(_) => refused(),
            None if !is_at_hand(client) => refused(),
            None => Some(ask_to_sign_in(&self.sealer, client, forward, &invitation, &why).map_err(NoResult::from)),
        }
    }

    /// Waits for the login as long as one request may. Returns `None` if the login is still open then.
    async fn wait(&self, client: &Arc<Client>, forward: &Forward, invitation: &Invitation) -> Option<Invited> {
        match invitation.wait(client.owner().0, PATIENCE.min(forward.limits.answer)).await {
            Stands::SignedIn => {
                self.token_is_known(client, forward).await;
                Some(Invited::SignedIn)
            }
            Stands::Over => Some(Invited::Nobody),
            Stands::Open => None,
        }
    }

    /// Waits until the call's lease (connection) knows of the new access token.
    async fn token_is_known(&self, client: &Arc<Client>, forward: &Forward) {
        if let Ok(upstream) = self.connector.lease(client, &forward.server, forward.roots.as_ref()) {
            upstream.knows_of_token().await;
        }
    }
}

/// Reports whether the client is run by the local user at this machine and can ask that user to open a page.
fn is_at_hand(client: &Client) -> bool {
    let revision = client.revision();
    client.principal().is_local()
        && !client.is_embedding()
        && client.profile().has(Profile::ELICITATION_URL)
        && (revision.is_modern() || revision == ProtocolVersion::V2025_11_25)
}

/// Returns the `input_required` result that asks a client without a session to sign in.
fn ask_to_sign_in(sealer: &Sealer, client: &Client, forward: &Forward, invitation: &Invitation, why: &str) -> Outcome {
    let state = State::SignIn { invitation: invitation.number, why: why.to_owned() };
    let sealed = sealer.seal_state(client.bound(), state, forward.digest(), forward.limits.answer)?;
    invitation.shown();
    let page = page(forward, invitation);
    Ok(input_required(std::iter::once((KEY, &Method::Elicit, Some(&page))), &sealed))
}

/// Asks a client with a session to sign in, and waits until the login has succeeded or ended.
async fn signed_in(
    client: &Arc<Client>,
    forward: &Forward,
    (leg, toward): (&Arc<Mailbox>, &mut Toward<'_>),
    invitation: &Invitation,
) -> Stands {
    let call = own_number();
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        return Stands::Over;
    }
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let page = adapt::url::numbered(&page(forward, invitation), &id);
    let (ask, answer) = Ask::gathered(KEY, client.revision(), Method::Elicit, Some(page));
    let limits = &forward.limits;
    {
        let shown = Shown::to(client.owner().0, invitation);
        let _asks = AskGuard::new(client, call);
        client.ask_as_host(ask, call, leg);
        let answered = pin!(async {
            tokio::select! {
                // The login ended elsewhere: the question to this client is taken back.
                stands = invitation.wait(client.owner().0, limits.login) => Err(stands),
                answer = timeout(limits.answer, answer) => {
                    Ok(matches!(answer, Ok(Ok(Ok(answer))) if answer.text("action").as_deref() == Some("accept")))
                }
            }
        });
        let accepted = match beating(toward, forward, Wait::Person, answered).await {
            Ok(accepted) => accepted,
            Err(stands) => return stands,
        };
        shown.answered(accepted);
        if !accepted {
            return Stands::Over;
        }
    }
    toward.tick();
    let login = pin!(invitation.wait(client.owner().0, limits.login));
    let stands = beating(toward, forward, Wait::Person, login).await;
    let params = Some(Raw::from_value(&serde_json::json!({ "elicitationId": id })));
    leg.put(Message::Notification(Notification { method: Method::ElicitationComplete, params }));
    stands
}

/// An invitation that is shown to a client with a session. If this is dropped without an answer, the client counts as
/// having declined.
struct Shown<'a>(u64, Option<&'a Invitation>);

impl<'a> Shown<'a> {
    fn to(client: u64, invitation: &'a Invitation) -> Self {
        invitation.shown();
        Self(client, Some(invitation))
    }

    fn answered(mut self, accepted: bool) {
        if let Some(invitation) = self.1.take() {
            invitation.answered(self.0, accepted);
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some(invitation) = self.1 {
            invitation.answered(self.0, false);
        }
    }
}

/// Returns the params of the elicitation. They say that mcp-host asks, not the server.
fn page(forward: &Forward, invitation: &Invitation) -> Raw {
    let message = format!(
        "The server {:?} wants you to sign in. The link is one of mcp-host on this machine, and leads to {}.",
        forward.server.config.alias.as_str(),
        Theirs(&invitation.host)
    );
    asking::own(serde_json::json!({ "mode": "url", "message": message, "url": invitation.url }))
}
