//! The handshake and the lists of a server, requested over an open connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{Connection, Link};
use super::handshake::{self, Cache, Peer};
use super::terms::Terms;
use crate::adapt::task;
use crate::lineage::HostId;
use crate::lock::lock;
use crate::protocol::{Method, Outcome, Profile, ProtocolVersion, Raw, Theirs};
use crate::registry::{Caps, Kind, Offer, OfferBuilder, PageError, ParamHeaders};
use crate::transport::{Error, excerpt};

/// The result of one listing.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) offer: Arc<Offer>,
    /// The login that was used; another login may see other lists.
    pub(crate) login: Option<String>,
    /// Whether it was read before any client called, so that no call can have influenced it.
    pub(crate) untouched: bool,
}

/// Performs the `initialize` handshake. Afterwards the connection knows its peer, that is, the server's description of
/// itself.
pub(super) async fn shake(connection: &Arc<Connection>, profile: Profile, client_info: &Raw) -> Result<(), Error> {
    let mut version = ProtocolVersion::LATEST_HANDSHAKE;
    let peer = loop {
        let params = handshake::params(version, profile, client_info);
        match ask(connection, &Method::Initialize, Some(&params)).await? {
            Ok(result) => break handshake::read(&result).map_err(Error::Malformed)?,
            Err(error) => match handshake::mutual_version(&error).filter(|mutual| *mutual != version) {
                Some(mutual) => version = mutual,
                None => {
                    return Err(Error::Malformed(format!(
                        "it refused `initialize`: {} ({})",
                        Theirs(&error.message),
                        error.code
                    )));
                }
            },
        }
    };
    connection.shake_done(peer)?;
    // Some servers offer more once they have seen this notification, so it must arrive before the lists are requested.
    connection.say_first(Method::Initialized).await
}

/// Reads all pages of all lists that the server offers, all lists concurrently. A list that fails is taken from `last`.
pub(super) async fn list(
    connection: &Arc<Connection>,
    peer: &Peer,
    caps: Caps,
    limit: Duration,
    last: Option<&Offer>,
) -> Result<Offer, Error> {
    let offers = peer.offers;
    let builder = Mutex::new(builder(connection, caps));
    let one = |kind: Kind, wanted: bool| pages(connection, &builder, kind, wanted);
    let all = async {
        futures_util::try_join!(
            one(Kind::Tools, offers.tools),
            one(Kind::Prompts, offers.prompts),
            one(Kind::Resources, offers.resources),
            one(Kind::ResourceTemplates, offers.resources),
        )
    };
    match tokio::time::timeout(limit, all).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(error),
        Err(_) => {
            return Err(Error::Malformed(format!(
                "reading its lists took longer than {limit:?} (host.limits.listTime)"
            )));
        }
    }
    let mut builder = builder.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = last {
        // The last good list is better than none.
        for kind in Kind::ALL {
            if builder.has_failed(kind) {
                builder.keep(kind, last);
            }
        }
    }
    Ok(builder.finish())
}

/// Reads the current tool list only.
pub(super) async fn tools(connection: &Arc<Connection>, caps: Caps) -> Result<Offer, Error> {
    let builder = Mutex::new(builder(connection, caps));
    pages(connection, &builder, Kind::Tools, true).await?;
    Ok(builder.into_inner().unwrap_or_else(PoisonError::into_inner).finish())
}

fn builder(connection: &Connection, caps: Caps) -> OfferBuilder {
    let builder = OfferBuilder::new(caps, rule(connection));
    let Some(own) = connection.lineage().id() else { return builder };
    let peer = connection.peer().and_then(|peer| peer.host.as_ref());
    builder.below(own.as_str(), peer.map(HostId::as_str))
}

/// Tool arguments are mirrored in headers only for modern servers over HTTP.
fn rule(connection: &Connection) -> ParamHeaders {
    let mirrors = connection.is_modern() && matches!(connection.link(), Link::Http(_));
    if mirrors { ParamHeaders::Mirror } else { ParamHeaders::Ignore }
}

/// Reads one list. A server that answers with an error offers nothing of that kind, and its status says so.
async fn pages(
    connection: &Arc<Connection>,
    builder: &Mutex<OfferBuilder>,
    kind: Kind,
    wanted: bool,
) -> Result<(), Error> {
    if !wanted {
        return Ok(());
    }
    let method = match kind {
        Kind::Tools => Method::ToolsList,
        Kind::Prompts => Method::PromptsList,
        Kind::Resources => Method::ResourcesList,
        Kind::ResourceTemplates => Method::ResourceTemplatesList,
    };
    let extensions =
        connection.peer().filter(|peer| peer.version.is_modern()).and_then(|peer| peer.extensions.as_ref());
    let has_tasks = kind == Kind::Tools && extensions.is_some_and(|all| all.member(task::EXTENSION).is_some());
    let (mut params, mut cache) = (None, None::<Cache>);
    let asked_at = Instant::now();
    loop {
        let outcome = ask(connection, &method, params.as_ref()).await?;
        if let Ok(page) = &outcome {
            let page = Cache::of(page);
            cache = Some(cache.map_or(page, |before| before.and(page)));
        }
        match outcome {
            Ok(page) if connection.is_modern() && !is_complete(&page) => {
                lock(builder).fail(kind, &format!("the resultType of its {method} result is not `complete`"));
                return Ok(());
            }
            Ok(page) => match read(builder, kind, &page, has_tasks).await {
                Ok(None) => {
                    connection.keep_cache(kind, cache.unwrap_or_default(), asked_at);
                    return Ok(());
                }
                Ok(Some(cursor)) => {
                    params = Some(Raw::empty_object().with_member("cursor", Raw::from_value(&cursor).as_bytes()))
                }
                // The builder has recorded the reason.
                Err(_) => return Ok(()),
            },
            Err(error) => {
                // Servers that declare resources rarely implement templates.
                if kind != Kind::ResourceTemplates || error.code != crate::protocol::code::METHOD_NOT_FOUND {
                    let message = excerpt(error.message.as_bytes(), 200);
                    lock(builder).fail(kind, &format!("{method} answered {}: {message}", error.code));
                }
                return Ok(());
            }
        }
    }
}

/// Reads a page in slices and yields between them: a page may hold more definitions than one server may list, and
/// during a slice all other work waits.
async fn read(
    builder: &Mutex<OfferBuilder>,
    kind: Kind,
    page: &Raw,
    has_tasks: bool,
) -> Result<Option<String>, PageError> {
    let mut reading = lock(builder).open(kind, page)?;
    if has_tasks {
        reading.mark_tasks();
    }
    loop {
        let has_more = lock(builder).read_on(&mut reading)?;
        if !has_more {
            return Ok(reading.next());
        }
        tokio::task::yield_now().await;
    }
}

/// Whether a result claims to be complete, or does not say (`docs/hazards.md` H44).
fn is_complete(result: &Raw) -> bool {
    result.member("resultType").is_none_or(|kind| kind.string().as_deref() == Some("complete"))
}

/// Sends a request of the host itself and waits for its outcome.
pub(super) async fn ask(connection: &Arc<Connection>, method: &Method, params: Option<&Raw>) -> Result<Outcome, Error> {
    connection.open(connection.next_id(), method, params, &Terms::host()).outcome().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn h40_others_have_their_turn_while_a_page_is_read() {
        let tools: Vec<String> =
            (0..5000).map(|number| format!(r#"{{"name":"t{number}","x":"{}"}}"#, "y".repeat(500))).collect();
        let page = Raw::trusted(format!(r#"{{"tools":[{}]}}"#, tools.join(",")).into());
        let builder = Mutex::new(OfferBuilder::new(Caps::default(), ParamHeaders::Ignore));
        let mut turns = 0;
        let others = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        };
        let next = tokio::select! {
            biased;
            next = read(&builder, Kind::Tools, &page, true) => next,
            () = others => None.ok_or(PageError::NoList(Kind::Tools)),
        };
        assert_eq!(next, Ok(None));
        // Five megabytes, 32 KiB at a time.
        assert!(turns >= 100, "{turns}");
        let offer = builder.into_inner().unwrap().finish();
        assert_eq!(offer.count(Kind::Tools), 1000);
    }
}
