//! Decides which view a request uses: the first of those that its path, its header, its token, and `host.view` name.
//!
//! In: the access rules and what a request carries. Out: its [`Identity`], or a refusal. **Invariant:** a view that the
//! config lacks and one that the principal may not use look the same.

use http::{HeaderMap, HeaderName, StatusCode};

use super::answer::Refusal;
use super::body;
use super::rules::{Change, Now};
use crate::config::{ALL_VIEW, Audience, BearerClient, HostAuth, HostSettings};
use crate::downstream::authentication::Proven;
use crate::router::{Chosen, Claims, Identity, Principal, Viewed};

/// The header that names a view.
const VIEW: HeaderName = HeaderName::from_static("mcp-host-view");

/// Finds the view of a request. `path` is what its path names, if it names one.
pub(super) fn choose(now: &Now, path: Option<&str>, headers: &HeaderMap, proven: &Proven) -> Result<Identity, Refusal> {
    let header = in_header(headers)?;
    if let (Some(path), Some(header)) = (path, header)
        && path != header
    {
        let reason = format!("the path names the view {path:?}, and `Mcp-Host-View` {header:?}");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, reason));
    }
    let claims = claims(now, proven);
    judge(now.settings(), now.has_views(), (path.or(header), header.is_some()), proven, claims)
}

/// Returns the identity of a person at the page, or at the daemon's socket: the principal `console`, in the view of
/// clients that choose none.
pub(super) fn of_page(settings: &HostSettings) -> Result<Identity, Refusal> {
    let proven = Proven::lasting(Principal::console());
    judge(settings, Now::judge_views(settings), (None, false), &proven, Claims::default())
}

/// Decides which view a principal gets. `asked` is the view that the request names, and whether a header names it.
fn judge(
    settings: &HostSettings,
    has_views: bool,
    (asked, by_header): (Option<&str>, bool),
    proven: &Proven,
    claims: Claims,
) -> Result<Identity, Refusal> {
    let principal = proven.principal.clone();
    if !has_views {
        // Nearly every config ends here.
        let identity = || Identity { claims, ..principal.into() };
        return if asked.is_none_or(|name| name == ALL_VIEW) { Ok(identity()) } else { Err(unknown()) };
    }
    let own = bound_to(settings, &principal);
    let name = asked.or_else(|| own.first().map(String::as_str)).unwrap_or(&settings.default_view);
    let audience = settings.views.get(name).and_then(|view| view.audience.as_deref());
    let may_use = settings.has_view(name)
        && (own.is_empty() || own.iter().any(|own| own == name))
        && audience.is_none_or(|audience| audience.iter().any(|one| is_meant(one, proven)));
    if !may_use {
        return Err(unknown());
    }
    let is_private = by_header || !own.is_empty() || audience.is_some();
    Ok(Identity { principal, view: Viewed { name: Chosen::named(name), is_private }, claims })
}

/// Refuses a request whose header names another view than that of its session. Such a request has no other way to
/// choose.
pub(super) fn check(headers: &HeaderMap, chosen: &Chosen) -> Result<(), Refusal> {
    match in_header(headers)? {
        Some(name) if Chosen::named(name) != *chosen => Err(unknown()),
        _ => Ok(()),
    }
}

/// Returns what the token of a request claims, as far as rules read it.
pub(super) fn claims(now: &Now, proven: &Proven) -> Claims {
    now.claims_read().map(|read| proven.claims(read)).unwrap_or_default()
}

/// Returns the view that the header names.
fn in_header(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(value) = body::single(headers, &VIEW)? else { return Ok(None) };
    let text = value.to_str().map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "`Mcp-Host-View` is not a name"))?;
    Ok(Some(text))
}

/// Returns the views that the token of this principal is bound to; none if it may use any.
fn bound_to<'a>(settings: &'a HostSettings, principal: &Principal) -> &'a [String] {
    let (HostAuth::Bearer(clients), Some(name)) = (&settings.auth, principal.client_name()) else { return &[] };
    let is_it = |client: &&BearerClient| client.name == name;
    clients.iter().find(is_it).map(|client| client.views.as_slice()).unwrap_or_default()
}

fn is_meant(one: &Audience, proven: &Proven) -> bool {
    match one {
        Audience::Client(name) => proven.principal.client_name() == Some(name),
        Audience::Subject(issuer, subject) => proven.claim("iss", issuer) && proven.claim("sub", subject),
        Audience::Claim(name, value) => proven.claim(name, value),
        Audience::Scope(scope) => proven.has_scope(scope),
        Audience::Local => proven.principal.is_local(),
    }
}

fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such view")
}

impl Change {
    /// Reports whether a principal may still use a view after the change. What a token claims is not kept, so a session
    /// whose view is for other people now ends; its client may open another.
    pub(super) fn keeps_view(&self, principal: &Principal, view: &Chosen) -> bool {
        let (before, after) = (self.before.settings(), self.after.settings());
        let name = match view {
            Chosen::All => ALL_VIEW,
            Chosen::Named(name) => name,
            Chosen::Default => return true,
        };
        let audience = |settings: &HostSettings| settings.views.get(name).and_then(|view| view.audience.clone());
        let own = bound_to(after, principal);
        after.has_view(name)
            && (own.is_empty() || own.iter().any(|own| own == name))
            && (audience(after).is_none() || audience(after) == audience(before))
    }
}

impl Now {
    /// Reports whether settings give clients anything but the view `all`.
    pub(super) fn judge_views(settings: &HostSettings) -> bool {
        let binds = match &settings.auth {
            HostAuth::Bearer(clients) => clients.iter().any(|client| !client.views.is_empty()),
            _ => false,
        };
        binds || !settings.views.is_empty() || settings.default_view != ALL_VIEW
    }
}
