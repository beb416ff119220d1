//! The events of a host, as one stream.

use tokio::sync::broadcast::{self, error::RecvError};

use super::conversation::ListsChange;
use super::decisions::{LimitedNews, News, VerdictNews};
use crate::manager::{DefinitionNews, StateChange};
use crate::transport::{LogMessage, Spoken, StderrLine};

/// An event in a host: a change, or a message from a server.
///
/// ```
/// # async fn follow(host: &mcp_host::Host) {
/// use mcp_host::Event;
///
/// let mut events = host.events();
/// while let Some(event) = events.next().await {
///     match event {
///         Event::State(change) => println!("{} is {}", change.server, change.to),
///         Event::Lists(lists) if lists.tools => println!("the tools have changed"),
///         Event::Definition(news) => println!("{} of {} has changed", news.name, news.server),
///         Event::Verdict(news) if !news.enforced => println!("{:?} would say {:?}", news.rule, news.decision),
///         Event::Limited(news) => println!("{} gets too many calls", news.server),
///         Event::Log(message) => println!("{}: {}", message.server, message.data),
///         Event::Stderr(line) => println!("{}: {}", line.server, line.text),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The state of a server has changed.
    State(StateChange),
    /// Tool, prompt or resource lists have changed since [`Host::catalog`](super::Host::catalog) first returned them,
    /// or since the last such event.
    Lists(ListsChange),
    /// A server lists a definition that was not approved.
    Definition(DefinitionNews),
    /// A request has ended about which rules decided something.
    Verdict(VerdictNews),
    /// A call was refused because it exceeded a rate. A call that only had to wait for its rate causes no event.
    Limited(LimitedNews),
    /// A server sent a log message.
    Log(LogMessage),
    /// The process of a server wrote a line to standard error.
    Stderr(StderrLine),
}

/// A stream of events. A reader that falls far behind misses some. A flood of log messages or standard error lines
/// never makes it miss a change of a server's state.
///
/// ```no_run
/// # async fn follow(host: &mcp_host::Host) {
/// let mut events = host.events();
/// while let Some(event) = events.next().await {
///     println!("{event:?}");
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    states: broadcast::Receiver<StateChange>,
    lists: broadcast::Receiver<ListsChange>,
    /// `None` if definitions are not compared with what was approved.
    definitions: Option<broadcast::Receiver<DefinitionNews>>,
    /// `None` if only changes are wanted.
    decided: Option<broadcast::Receiver<News>>,
    /// `None` if only changes are wanted.
    spoken: Option<broadcast::Receiver<Spoken>>,
}

impl Events {
    pub(super) fn new(
        states: broadcast::Receiver<StateChange>,
        lists: broadcast::Receiver<ListsChange>,
        definitions: Option<broadcast::Receiver<DefinitionNews>>,
        (decided, spoken): (Option<broadcast::Receiver<News>>, Option<broadcast::Receiver<Spoken>>),
    ) -> Self {
        Self { states, lists, definitions, decided, spoken }
    }

    /// Waits for the next event; returns `None` once the host is gone.
    ///
    /// # Cancel safety
    /// Dropping the wait loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let received = tokio::select! {
                biased;
                change = self.states.recv() => change.map(Event::State),
                lists = self.lists.recv() => lists.map(Event::Lists),
                news = heard(&mut self.definitions) => news.map(Event::Definition),
                decided = heard(&mut self.decided) => decided.map(Event::from),
                spoken = heard(&mut self.spoken) => spoken.map(Event::from),
            };
            match received {
                Ok(event) => return Some(event),
                Err(RecvError::Lagged(missed)) => tracing::debug!("{missed} events missed"),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

async fn heard<T: Clone>(from: &mut Option<broadcast::Receiver<T>>) -> Result<T, RecvError> {
    match from {
        Some(from) => from.recv().await,
        None => std::future::pending().await,
    }
}

impl From<News> for Event {
    fn from(news: News) -> Self {
        match news {
            News::Verdict(news) => Self::Verdict(news),
            News::Limited(news) => Self::Limited(news),
        }
    }
}

impl From<Spoken> for Event {
    fn from(spoken: Spoken) -> Self {
        match spoken {
            Spoken::Log(message) => Self::Log(message),
            Spoken::Stderr(line) => Self::Stderr(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Announcer, Listeners};

    #[tokio::test]
    async fn a_flood_of_lines_hides_no_change_of_lists() {
        let (states, lists, spoken) = (broadcast::Sender::new(4), broadcast::Sender::new(4), Listeners::default());
        let mut events = Events::new(states.subscribe(), lists.subscribe(), None, (None, Some(spoken.subscribe())));
        let announcer = Announcer::new("a", spoken, std::sync::Arc::default());
        lists.send(ListsChange { tools: true, ..ListsChange::default() }).unwrap();
        (0..2000).for_each(|line| announcer.stderr(&line.to_string()));
        assert!(matches!(events.next().await, Some(Event::Lists(lists)) if lists.tools && !lists.prompts));
        for kept in 976..2000 {
            let Some(Event::Stderr(line)) = events.next().await else { panic!("no line") };
            assert_eq!(line.text, kept.to_string());
        }
        drop(states);
        assert!(events.next().await.is_none());
    }
}
