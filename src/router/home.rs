//! Which replica of a cluster has what a request goes on with: a parked call, a question to a person, a task, or a result that
//! was cut. Requests that go on with nothing are served wherever they land.
//!
//! **Invariant:** what a handle says of its replica counts only if the handle opens for the principal of the request.

use super::Router;
use crate::boot::Boot;
#[cfg(feature = "cluster")]
use crate::manager::Identity;
#[cfg(feature = "cluster")]
use crate::oversized::{SCHEME, home_of as home_of_result};
#[cfg(feature = "cluster")]
use crate::protocol::{Method, Raw, Request};
#[cfg(feature = "cluster")]
use crate::registry::search::READ_RESULT;

/// Returns this life of the process.
pub(crate) fn boot(router: &Router) -> Boot {
    router.0.tasks.sealer.boot
}

/// Returns the replica that a request of this client goes to; `None` if any replica serves it.
#[cfg(feature = "cluster")]
pub(crate) fn home_of(router: &Router, identity: &Identity, request: &Request) -> Option<Boot> {
    let params = request.params.as_ref()?;
    let bound = identity.principal.within(&identity.view.name);
    if let Some(state) = params.text("requestState") {
        return router.0.tasks.sealer.home_of(&bound, &state);
    }
    match &request.method {
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
            router.0.tasks.home_of(&bound, &params.text("taskId")?)
        }
        Method::ResourcesRead => {
            let uri = params.text("uri")?;
            let rest = uri.strip_prefix(SCHEME)?;
            home_of_result(rest.split('?').next().unwrap_or_default())
        }
        Method::ToolsCall if params.text("name").as_deref() == Some(READ_RESULT) => {
            let id = params.member("arguments").as_ref().and_then(|arguments: &Raw| arguments.text("id"))?;
            home_of_result(id.strip_prefix(SCHEME).unwrap_or(&id))
        }
        _ => None,
    }
}
