//! A client of 2026-07-28 asks about a task at a server of 2025-11-25.

use std::sync::Arc;

use super::registry::{Place, Task};
use super::{About, At};
use super::{exposed, unknown};
use crate::adapt;
use crate::adapt::task::{self, Status};
use crate::answered::{Answered, NoResult};
use crate::protocol::{ErrorObject, Method, Raw, code};
use crate::router::Router;
use crate::router::client::Client;

impl Router {
    pub(super) async fn held_task(&self, about: About<'_>, method: &Method, params: &Raw) -> Answered {
        let About { client, task, at, leg } = about;
        let sent = task::renamed(&Raw::empty_object(), &task.id);
        match method {
            Method::TasksUpdate => {
                let missing = || ErrorObject::invalid_params("tasks/update: `inputResponses` is missing");
                let responses = params.member("inputResponses").ok_or_else(missing)?;
                let Place::Session { hold, .. } = &task.place else { return Err(unknown().into()) };
                hold.answer(&responses)?;
                Ok(Raw::empty_object())
            }
            Method::TasksCancel => match at.ask(client, method, &sent, leg).await {
                Ok(_) => Ok(Raw::empty_object()),
                // A task that is over is refused so by 2025-11-25; since then it is acknowledged all the same.
                Err(NoResult::Error(error)) if error.code == code::INVALID_PARAMS => {
                    let told = at.ask(client, &Method::TasksGet, &sent, leg).await?;
                    if Status::of(&told).is_terminal() { Ok(Raw::empty_object()) } else { Err(error.into()) }
                }
                Err(none) => Err(none),
            },
            _ => {
                let told = at.ask(client, &Method::TasksGet, &sent, leg).await?;
                self.in_detail(client, task, at, &told).await
            }
        }
    }

    /// A task as the client of 2026-07-28 wants it: with what it asks, or how it ended.
    async fn in_detail(&self, client: &Arc<Client>, task: &Task, at: &At, told: &Raw) -> Answered {
        let flat = task::modern(told, &task.handle);
        match Status::of(told) {
            Status::Cancelled => Ok(flat),
            Status::Completed | Status::Failed => {
                let outcome = match self.held_outcome(client, task, at).await {
                    Ok(result) => Ok(exposed(&result, &at.server)),
                    Err(NoResult::Error(error)) => {
                        let name = &at.server.config.name;
                        adapt::error(error, &Method::ToolsCall, at.version, client.revision(), name)
                    }
                    Err(NoResult::Failed(failed)) => Err(failed.error()),
                };
                Ok(task::ended(&flat, &outcome))
            }
            status @ (Status::Working | Status::InputRequired) => {
                let questions = match (&task.place, status) {
                    (_, Status::InputRequired) => self.held_questions(client, task, at).await,
                    // It may ask before it says that it does.
                    (Place::Session { hold, .. }, _) => hold.questions(),
                    _ => None,
                };
                Ok(match questions {
                    Some(questions) => task::with_status(&flat, Status::InputRequired)
                        .with_member("inputRequests", questions.as_bytes()),
                    // Nothing that this client could answer.
                    None => task::with_status(&flat, Status::Working),
                })
            }
        }
    }
}
