//! Limits how many scripts run at once. More scripts than `scripts` wait, first come first served; if too many wait,
//! further ones are refused.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::lock::lock;

/// For each script that may run, how many may wait.
const WAITING: usize = 4;

/// The scripts that run, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct Line(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// Counts as a script that runs, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Option<Arc<Mutex<State>>>);

impl Line {
    /// Waits for a place among `most` scripts that run.
    ///
    /// # Errors
    /// With the reason, if too many wait, or this one has waited too long.
    ///
    /// # Cancel safety
    /// Dropping the future passes the place to the next script.
    pub(super) async fn enter(&self, most: usize, patience: Duration) -> Result<Place, String> {
        let turn = {
            let mut state = lock(&self.0);
            state.waiting.retain(|waiting| !waiting.is_closed());
            if state.running < most && state.waiting.is_empty() {
                state.running += 1;
                return Ok(Place(Some(self.0.clone())));
            }
            let waiting = most.saturating_mul(WAITING);
            if state.waiting.len() >= waiting {
                return Err(format!(
                    "{} scripts run and {waiting} wait (host.catalog.code.scripts); try again later, or call the tools",
                    state.running
                ));
            }
            let (turn, comes) = oneshot::channel();
            state.waiting.push_back(turn);
            comes
        };
        match timeout(patience, turn).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(format!(
                "none of the {most} running scripts ended within {patience:?} (host.catalog.code.scripts); try again later"
            )),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(line) = self.0.take() else { return };
        let mut state = lock(&line);
        // The place passes to the next script that still waits, and stays taken until then.
        let mut place = Self(Some(line.clone()));
        while let Some(next) = state.waiting.pop_front() {
            match next.send(place) {
                Ok(()) => return,
                Err(back) => place = back,
            }
        }
        state.running -= 1;
        place.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn so_many_run_so_many_wait_and_one_more_is_refused() {
        let line = Line::default();
        let first = line.enter(1, SOON).await.unwrap();
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let line = Line(line.0.clone());
                tokio::spawn(async move { line.enter(1, SOON).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let refused = line.enter(1, SOON).await.unwrap_err();
        assert!(refused.starts_with("1 scripts run and 4 wait (host.catalog.code.scripts)"), "{refused}");
        drop(first);
        for waited in waiting {
            assert_eq!(waited.await.unwrap(), Ok(()));
        }
        assert_eq!(lock(&line.0).running, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_keeps_no_place() {
        let line = Line::default();
        let first = line.enter(1, SOON).await.unwrap();
        assert!(line.enter(1, SOON).await.unwrap_err().contains("within 10s"));
        drop(first);
        assert_eq!(lock(&line.0).running, 0);
        let _again = line.enter(1, SOON).await.unwrap();
    }
}
