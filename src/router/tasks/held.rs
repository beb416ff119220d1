//! A client of 2026-07-28 asks about a task at a server of 2025-11-25.

use std::sync::Arc;

use super::registry::{Task, TaskPlace};
use super::{About, At, Tasks, exposed, unknown};
use crate::adapt;
use crate::adapt::task::{self, Status};
use crate::answered::{Answered, NoResult};
use crate::protocol::{ErrorObject, Method, Raw, code};
use crate::router::client::Client;

impl Tasks {
    pub(super) async fn held_task(&self, about: About<'_>, method: &Method, params: &Raw) -> Answered {
        let About { client, task, at, leg } = about;
        let sent = task::renamed(&Raw::empty_object(), &task.id);
        match method {
            Method::TasksUpdate => {
                let missing = || ErrorObject::invalid_params("tasks/update: `inputResponses` is missing");
                let responses = params.member("inputResponses").ok_or_else(missing)?;
                let TaskPlace::Session { hold, .. } = &task.place else { return Err(unknown().into()) };
                hold.answer(&responses)?;
                Ok(Raw::empty_object())
            }
            Method::TasksCancel => match at.ask(client, method, &sent, leg).await {
                Ok(_) => Ok(Raw::empty_object()),
                // 2025-11-25 refuses to cancel a finished task with this error. Later revisions acknowledge that.
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

    /// Returns a task as a client of 2026-07-28 expects it: with its questions, or its outcome.
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
                    // It may ask before its status says so.
                    (TaskPlace::Session { hold, .. }, _) => hold.questions(),
                    _ => None,
                };
                Ok(match questions {
                    Some(questions) => task::with_status(&flat, Status::InputRequired)
                        .with_member("inputRequests", questions.as_bytes()),
                    // It asks nothing that this client could answer.
                    None => task::with_status(&flat, Status::Working),
                })
            }
        }
    }
}
