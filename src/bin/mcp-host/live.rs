//! Shows progress on stderr: a line for each server that is starting, a bar for a call.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use mcp_host::{Host, Progress, ServerStatus, StateName};
use tokio::time::Instant;

use crate::output::Output;
use crate::text;

/// Waits for `work`, with a line for each server that is starting.
pub(crate) async fn until<F: Future>(output: &Output, host: &Host, work: F) -> F::Output {
    let mut work = pin!(work);
    if !output.live() {
        return work.await;
    }
    let mut lines = Lines::new(output.clone());
    // Servers that are ready at once need no line.
    let mut tick = tokio::time::interval_at(Instant::now() + 3 * TICK, TICK);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = tick.tick() => lines.show(&host.status()),
        }
    }
}

/// A line for each server that is starting, removed on drop.
#[derive(Debug)]
pub(crate) struct Lines {
    output: Output,
    bars: BTreeMap<String, ProgressBar>,
}

impl Lines {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, bars: BTreeMap::new() }
    }

    /// Updates the lines.
    pub(crate) fn show(&mut self, servers: &[ServerStatus]) {
        if !self.output.live() {
            return;
        }
        for server in servers {
            if !is_starting(server.state) {
                if let Some(bar) = self.bars.remove(&server.alias) {
                    bar.finish_and_clear();
                }
                continue;
            }
            let bar = self.bars.entry(server.alias.clone()).or_insert_with(|| {
                let bar =
                    ProgressBar::new_spinner().with_style(style("{spinner} {wide_msg}")).with_message(starting(server));
                let bar = self.output.bar(bar);
                bar.enable_steady_tick(TICK);
                bar
            });
            bar.set_message(starting(server));
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        for bar in self.bars.values() {
            bar.finish_and_clear();
        }
    }
}

/// Reports whether a server is still getting ready.
pub(crate) fn is_starting(state: StateName) -> bool {
    matches!(state, StateName::Disconnected | StateName::Connecting | StateName::Initializing | StateName::Reconnecting)
}

fn starting(server: &ServerStatus) -> String {
    let mut message = format!("{}  {}", text::line(&server.name), server.state);
    // A short wait needs no clock.
    if server.since_ms >= 1_000 {
        message = format!("{message}  {}", text::duration(server.since_ms));
    }
    let reason = server.waiting_for.as_ref().or(server.last_error.as_ref());
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{message}: {}", text::headline(reason)),
        None => message,
    }
}

/// The bar of one call: hidden until there is progress or the call takes long, removed when the last handle drops.
#[derive(Clone, Debug)]
pub(crate) struct Bar(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    output: Output,
    since: Instant,
    bar: Mutex<Option<ProgressBar>>,
}

impl Bar {
    pub(crate) fn new(output: Output) -> Self {
        Self(Arc::new(Inner { output, since: Instant::now(), bar: Mutex::default() }))
    }

    /// Shows that the call is still running, and for how long.
    pub(crate) fn wait(&self) {
        if self.0.output.live() {
            let mut slot = self.0.bar.lock().unwrap_or_else(PoisonError::into_inner);
            slot.get_or_insert_with(|| self.0.bar());
        }
    }

    pub(crate) fn show(&self, progress: &Progress) {
        if !self.0.output.live() {
            return;
        }
        let mut slot = self.0.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = slot.get_or_insert_with(|| self.0.bar());
        let message = progress.message.as_deref().map(text::headline).unwrap_or_default();
        match progress.total.filter(|total| *total > 0.0) {
            Some(total) => {
                bar.set_style(style("[{bar:32}] {elapsed}  {wide_msg}").progress_chars("=> "));
                bar.set_length(STEPS);
                bar.set_position(steps(progress.progress / total));
                bar.set_message(format!("{}/{total}  {message}", progress.progress));
            }
            None => {
                bar.set_style(style("{spinner} {elapsed}  {wide_msg}"));
                bar.set_message(format!("{}  {message}", progress.progress));
            }
        }
    }
}

impl Inner {
    fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} waiting for the answer  {elapsed}"));
        let bar = self.output.bar(bar.with_elapsed(self.since.elapsed()));
        bar.enable_steady_tick(TICK);
        bar
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get_mut().unwrap_or_else(PoisonError::into_inner) {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Converts a fraction to steps of the bar. Servers may report any number.
fn steps(share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, and a cast of NaN is 0")]
    let steps = (share.clamp(0.0, 1.0) * STEPS as f64) as u64;
    steps
}

const TICK: Duration = Duration::from_millis(100);
const STEPS: u64 = 1_000;
