//! The load client: callers that each wait for their response before the next request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use crate::call::{self, Call, Work};
use crate::http::{Connection, Session};

/// How many ids one caller may use. The rest of the eight digits keeps the ids of callers in one session apart.
const IDS: u64 = 5_000_000;

/// One caller with its own connection, in a session it may share.
#[derive(Debug)]
struct Caller {
    connection: Connection,
    session: Arc<Session>,
    call: Arc<Call>,
    next: u64,
    message: Vec<u8>,
}

/// Callers that work side by side.
#[derive(Debug)]
pub(crate) struct Callers(Vec<Caller>);

impl Callers {
    /// Opens `count` connections in `sessions` sessions of the endpoint at `address`.
    pub(crate) async fn open(address: SocketAddr, work: Work, count: usize, sessions: usize) -> Result<Self> {
        let mut callers = Vec::with_capacity(count);
        let mut opened: Vec<Arc<Session>> = Vec::with_capacity(sessions);
        let mut tools = Vec::new();
        for at in 0..count {
            let mut connection = Connection::open(address).await?;
            if opened.len() < sessions {
                opened.push(Arc::new(Session::open(&mut connection).await?));
            }
            let session = Arc::clone(&opened[at % sessions]);
            if tools.is_empty() {
                tools = find(&list(&mut connection, &session).await?, work)?;
            }
            let call = Arc::new(Call::new(work, &tools[at % tools.len()]));
            callers.push(Caller { connection, session, call, next: IDS * at as u64 + 1, message: Vec::new() });
        }
        Ok(Self(callers))
    }

    /// Makes `calls` calls in total, and returns the duration of each.
    pub(crate) async fn round(&mut self, calls: usize) -> Result<Vec<Duration>> {
        let each = calls / self.0.len();
        let mut running = JoinSet::new();
        for mut caller in self.0.drain(..) {
            running.spawn(async move {
                let mut took = Vec::with_capacity(each);
                for _ in 0..each {
                    took.push(caller.call().await?);
                }
                Ok::<_, anyhow::Error>((caller, took))
            });
        }
        let mut took = Vec::with_capacity(calls);
        while let Some(joined) = running.join_next().await {
            let (caller, times) = joined??;
            self.0.push(caller);
            took.extend(times);
        }
        Ok(took)
    }

    /// Makes one call: each caller does in its turn.
    pub(crate) async fn one(&mut self, turn: usize) -> Result<Duration> {
        let callers = self.0.len();
        self.0[turn % callers].call().await
    }

    /// Calls repeatedly until `stop` is set, and returns the number of calls.
    pub(crate) async fn until(mut self, stop: Arc<AtomicBool>) -> Result<usize> {
        let mut running = JoinSet::new();
        for mut caller in self.0.drain(..) {
            let stop = Arc::clone(&stop);
            running.spawn(async move {
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    caller.call().await?;
                    calls += 1;
                }
                Ok::<_, anyhow::Error>(calls)
            });
        }
        let mut calls = 0;
        while let Some(joined) = running.join_next().await {
            calls += joined??;
        }
        Ok(calls)
    }
}

impl Caller {
    async fn call(&mut self) -> Result<Duration> {
        let id = self.next;
        self.next += 1;
        self.message.clear();
        self.call.write(id, &mut self.message);
        let started = Instant::now();
        let answer = self.connection.post(&self.session, &self.message).await?;
        let mut cursor = call::next_cursor(answer)?;
        let took = started.elapsed();
        if cursor.is_none() {
            self.call.check(id, answer)?;
            return Ok(took);
        }
        // A tool list in pages is complete with its last page.
        while let Some(at) = cursor {
            self.next += 1;
            let page = call::list(self.next, Some(&at));
            cursor = call::next_cursor(self.connection.post(&self.session, page.as_bytes()).await?)?;
        }
        Ok(started.elapsed())
    }
}

/// Returns the names of all tools, over every page.
pub(crate) async fn list(connection: &mut Connection, session: &Session) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut cursor: Option<String> = None;
    for id in 1.. {
        let request = call::list(id, cursor.as_deref());
        let page = connection.post(session, request.as_bytes()).await.context("tools/list")?;
        names.extend(call::names(page)?.into_iter().map(String::from));
        cursor = call::next_cursor(page)?;
        if cursor.is_none() {
            break;
        }
        ensure!(id < 1000, "a list without end");
    }
    Ok(names)
}

/// Runs `times` clients, one after another, that each connect, initialize, list, and close. Returns the duration of
/// each.
pub(crate) async fn churn(address: SocketAddr, times: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let started = Instant::now();
        let mut connection = Connection::open(address).await?;
        let session = Session::open(&mut connection).await?;
        let answer = connection.post(&session, call::list(1, None).as_bytes()).await?;
        ensure!(call::answer_id(answer)? == 1, "not the response to the list");
        connection.delete(&session).await?;
        drop(connection);
        took.push(started.elapsed());
    }
    Ok(took)
}

/// Returns the listed names of the tools that do `work`, the last one first: they end with the tool's own name, since
/// hosts put the server's name first. Callers take turns with them.
fn find(names: &[String], work: Work) -> Result<Vec<String>> {
    if let Work::List(tools) = work {
        ensure!(names.len() == tools, "{} tools, expected {tools}", names.len());
    }
    let tool = work.tool();
    let found: Vec<String> = names.iter().rev().filter(|name| name.ends_with(tool)).cloned().collect();
    ensure!(!found.is_empty(), "no tool {tool} in {names:?}");
    Ok(found)
}
