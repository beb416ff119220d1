//! Counts calls against rates (`host.rates`, and `rate` of a tool).
//!
//! In: the rates that hold for a call, and the time. Out: whether the call may go now or later, or which rate it
//! exceeds. Calls are counted by principal, by server, by view, or by tool and principal, and never by session. The
//! count of a key is one point in time (GCRA): when its calls so far will be paid for. A key whose time has passed owes
//! nothing and is not stored.
//!
//! **Invariants:** a call counts for all of its rates or for none. A call that was not sent counts for none
//! ([`Ticket`]). Counts of daily rates are on disk a moment later, and no thread of the runtime waits for that.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::lease::Principal;
use super::wants::tool_rules;
use super::{Manager, Server};
use crate::config::{HostSettings, OnLimit, Per, Rate, Rates};
use crate::keep::{Behind, Keep};
use crate::lock::lock;

/// Identifies the calls that are counted together: those of a principal, at a server, of a tool, or in a view. With a
/// server, `tool` is the server's own name for the tool. Without one, a view rates the tool, and `tool` is the name
/// that clients see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RateKey {
    pub(crate) principal: Option<Principal>,
    pub(crate) server: Option<Arc<str>>,
    pub(crate) tool: Option<Arc<str>>,
    pub(crate) view: Option<Arc<str>>,
}

/// A rate that holds for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) key: RateKey,
    pub(crate) rate: Rate,
}

/// A call that exceeds a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) held: Held,
    /// How long until it may be made.
    pub(crate) after: Duration,
}

/// The counts of all keys.
#[derive(Debug, Default)]
pub(crate) struct RateTable {
    /// For each key, when its calls will be paid for.
    paid: Mutex<HashMap<RateKey, Instant>>,
    /// Whether the config has any rate.
    is_on: AtomicBool,
    file: Option<Arc<Behind<Days>>>,
}

/// The counts of daily rates as stored on disk: when the calls will be paid for, in microseconds since 1970, by
/// principal, server, tool, and view.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Days {
    #[serde(default)]
    paid: BTreeMap<String, u64>,
}

/// A call that has been counted. If it is dropped before the call is sent, the call no longer counts.
#[derive(Debug)]
pub(crate) struct Ticket {
    table: Arc<RateTable>,
    held: Vec<Held>,
    /// Whether the call was sent.
    is_used: bool,
}

const VERSION: u32 = 1;
/// The most keys on disk. Beyond that, the idlest are dropped.
const MOST: usize = 65_536;

impl RateTable {
    /// Creates a table with the counts of daily rates in the state directory; an empty one without a directory.
    pub(super) fn load(directory: Option<&Path>) -> Self {
        let keep = directory.map(|directory| Keep::new(directory.join("rates.json"), VERSION));
        let days: Days = keep
            .as_ref()
            .map(Keep::read)
            .transpose()
            .unwrap_or_else(|error| {
                tracing::warn!("{error}");
                None
            })
            .unwrap_or_default();
        let (now, today) = (Instant::now(), micros(SystemTime::now()));
        let counted = days.paid.iter().filter_map(|(text, paid)| {
            let ahead = paid.checked_sub(today).filter(|ahead| *ahead > 0)?;
            // A file written by a wrong clock must not block a key for longer than a day.
            Some((RateKey::parse(text)?, now + Duration::from_micros(ahead).min(Per::Day.time())))
        });
        Self { paid: Mutex::new(counted.collect()), file: keep.map(Behind::new), ..Self::default() }
    }

    /// Notes whether the config has any rate.
    pub(super) fn follow(&self, settings: &HostSettings, servers: &[Arc<Server>]) {
        let of_host = settings.rates != Rates::default();
        let is_on = of_host || tool_rules(settings, servers).any(|rules| rules.any(|tool| tool.rate.is_some()));
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Reports whether the config has any rate.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts a call for all of these rates, or for none if it exceeds one of them. If its rates let calls wait, a call
    /// may come up to `patience` too early. Returns its ticket, and how long it must wait. `cap` is the maximum number
    /// of keys.
    pub(crate) fn take(
        self: &Arc<Self>,
        held: Vec<Held>,
        patience: Duration,
        cap: usize,
    ) -> Result<(Ticket, Duration), Over> {
        let now = Instant::now();
        let mut paid = lock(&self.paid);
        let mut wait = Duration::ZERO;
        let mut over: Option<Over> = None;
        for held in &held {
            let after = early(paid.get(&held.key).copied(), &held.rate, now);
            let may_wait = held.rate.on_limit == OnLimit::Wait && after <= patience;
            if after.is_zero() || may_wait {
                wait = wait.max(after);
            } else if over.as_ref().is_none_or(|over| over.after < after) {
                over = Some(Over { held: held.clone(), after });
            }
        }
        if let Some(over) = over {
            return Err(over);
        }
        for Held { key, rate } in &held {
            if paid.len() >= cap && !paid.contains_key(key) {
                make_room(&mut paid, now, cap);
            }
            let moment = paid.entry(key.clone()).or_insert(now);
            *moment = (*moment).max(now) + rate.step();
        }
        drop(paid);
        self.keep(&held, true);
        Ok((Ticket { table: self.clone(), held, is_used: false }, wait))
    }

    /// Undoes the count of a call.
    fn give_back(&self, held: &[Held]) {
        let now = Instant::now();
        let mut paid = lock(&self.paid);
        for Held { key, rate } in held {
            let Some(moment) = paid.get_mut(key) else { continue };
            match moment.checked_sub(rate.step()).filter(|moment| *moment > now) {
                Some(before) => *moment = before,
                None => drop(paid.remove(key)),
            }
        }
        drop(paid);
        self.keep(held, false);
    }

    /// Writes the counts of daily rates to disk, in the background.
    fn keep(&self, held: &[Held], is_more: bool) {
        let Some(file) = &self.file else { return };
        for Held { key, rate } in held.iter().filter(|held| held.rate.per == Per::Day) {
            let (text, now) = (key.text(), micros(SystemTime::now()));
            let step = u64::try_from(rate.step().as_micros()).unwrap_or(u64::MAX);
            file.push(move |days: &mut Days| days.count(text, step, is_more, now));
        }
    }

    /// Waits until the counts of daily rates are on disk.
    pub(super) async fn written(&self) {
        if let Some(file) = &self.file {
            file.written().await;
        }
    }

    /// Returns how many keys have a count.
    pub(crate) fn len(&self) -> usize {
        lock(&self.paid).len()
    }

    /// Returns the keys that are at the limit of their rate now, and how long until each may make one more call,
    /// longest first. `rate` returns the rate of a key.
    pub(crate) fn limited(&self, rate: impl Fn(&RateKey) -> Option<Rate>) -> Vec<Over> {
        let now = Instant::now();
        let over = |(key, paid): (&RateKey, &Instant)| {
            let held = Held { key: key.clone(), rate: rate(key)? };
            let after = early(Some(*paid), &held.rate, now);
            (!after.is_zero()).then_some(Over { held, after })
        };
        let mut all: Vec<Over> = lock(&self.paid).iter().filter_map(over).collect();
        all.sort_by_key(|over| std::cmp::Reverse(over.after));
        all
    }
}

impl Manager {
    /// Returns the counts of calls against their rates.
    pub(crate) fn rates(&self) -> &Arc<RateTable> {
        &self.0.rates
    }

    /// Returns the keys that are at the limit of their rate now.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status asks"))]
    pub(crate) fn limited(&self) -> Vec<Over> {
        let (settings, servers) = (self.settings(), self.servers());
        let rates = settings.rates;
        self.0.rates.limited(|key| match (&key.server, &key.tool) {
            (Some(label), Some(tool)) => {
                let server = servers.iter().find(|server| server.label == *label)?;
                server.config.tools.said(tool, |tool| tool.rate)
            }
            (None, Some(tool)) => settings.tools_in(key.view.as_deref()?)?.said(tool, |tool| tool.rate),
            (Some(_), None) => rates.server,
            (None, _) if key.view.is_some() => rates.view,
            (None, _) => rates.principal,
        })
    }
}

impl Ticket {
    /// Notes that the call was sent, so that it counts.
    pub(crate) fn is_sent(&mut self) {
        self.is_used = true;
    }

    /// Notes that the call did not reach the server after all.
    pub(crate) fn was_not_sent(&mut self) {
        self.is_used = false;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_used {
            self.table.give_back(&self.held);
        }
    }
}

impl RateKey {
    fn text(&self) -> String {
        let Self { principal, server, tool, view } = self;
        let mut parts = vec![principal.as_ref().map(Principal::as_str), server.as_deref(), tool.as_deref()];
        // Keys without a view stay as earlier versions wrote them, so that their counts survive an update.
        parts.extend(view.as_deref().map(Some));
        serde_json::json!(parts).to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = serde_json::from_str::<Vec<Option<String>>>(text).ok()?;
        parts.resize((3..=4).contains(&parts.len()).then_some(4)?, None);
        let [principal, server, tool, view] = <[Option<String>; 4]>::try_from(parts).ok()?;
        Some(Self {
            principal: principal.as_deref().map(Principal::recalled),
            server: server.map(Into::into),
            tool: tool.map(Into::into),
            view: view.map(Into::into),
        })
    }
}

impl Days {
    fn count(&mut self, key: String, step: u64, is_more: bool, now: u64) {
        let paid = self.paid.entry(key).or_default();
        *paid = if is_more { (*paid).max(now).saturating_add(step) } else { paid.saturating_sub(step) };
        self.paid.retain(|_, paid| *paid > now);
        if self.paid.len() > MOST {
            let mut moments: Vec<u64> = self.paid.values().copied().collect();
            let (_, least, _) = moments.select_nth_unstable(MOST / 16);
            let least = *least;
            self.paid.retain(|_, paid| *paid > least);
        }
    }
}

/// Returns how much too early one more call would be; 0 if it may be made.
fn early(paid: Option<Instant>, rate: &Rate, now: Instant) -> Duration {
    // The later calls of a burst may be paid for afterwards.
    let may_owe = rate.step().saturating_mul(rate.burst.saturating_sub(1));
    let owed = paid.map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
    owed.saturating_sub(may_owe)
}

/// Removes the keys that owe nothing. If that is not enough, also removes a sixteenth of `cap`: those that will be paid
/// for soonest.
fn make_room(paid: &mut HashMap<RateKey, Instant>, now: Instant, cap: usize) {
    paid.retain(|_, moment| *moment > now);
    let over = (paid.len() + 1).saturating_sub(cap);
    if over == 0 {
        return;
    }
    let goes = over.max(cap / 16);
    let mut moments: Vec<Instant> = paid.values().copied().collect();
    let last = goes.min(moments.len()).saturating_sub(1);
    let (_, last, _) = moments.select_nth_unstable(last);
    let (last, mut left) = (*last, goes);
    paid.retain(|_, moment| {
        let stays = *moment > last || left == 0;
        left -= usize::from(!stays);
        stays
    });
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Duration = Duration::ZERO;

    fn key(name: &str) -> RateKey {
        RateKey { principal: Some(Principal::named(name)), ..RateKey::default() }
    }

    fn held(name: &str, rate: Rate) -> Vec<Held> {
        vec![Held { key: key(name), rate }]
    }

    fn table() -> Arc<RateTable> {
        Arc::default()
    }

    /// Makes a call that is sent. Returns how long it waits, or when it may be made.
    fn call(table: &Arc<RateTable>, held: Vec<Held>, patience: Duration) -> Result<Duration, Duration> {
        let (mut ticket, wait) = table.take(held, patience, 100).map_err(|over| over.after)?;
        ticket.is_sent();
        Ok(wait)
    }

    #[tokio::test(start_paused = true)]
    async fn limit_rate_one_less_as_many_and_one_more() {
        let (table, rate) = (table(), Rate::new(3, Per::Minute));
        let again = || call(&table, held("a", rate), NEVER);
        assert_eq!([again(), again(), again()], [Ok(NEVER); 3]);
        assert_eq!(again(), Err(Duration::from_secs(20)));
        assert_eq!(call(&table, held("b", rate), NEVER), Ok(NEVER), "another key counts for itself");
        tokio::time::advance(Duration::from_millis(19_999)).await;
        assert_eq!(again(), Err(Duration::from_millis(1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((again(), again()), (Ok(NEVER), Err(Duration::from_secs(20))));
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!([again(), again(), again()], [Ok(NEVER); 3], "and never more than a burst");
        assert_eq!(again(), Err(Duration::from_secs(20)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_may_wait_takes_its_place_in_order() {
        let rate = Rate { burst: 1, on_limit: OnLimit::Wait, ..Rate::new(1, Per::Second) };
        let table = table();
        let patience = Duration::from_secs(2);
        let waits: Vec<_> = (0..4).map(|_| call(&table, held("a", rate), patience)).collect();
        let seconds = Duration::from_secs;
        assert_eq!(waits, [Ok(NEVER), Ok(seconds(1)), Ok(seconds(2)), Err(seconds(3))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_counts_for_all_of_its_rates_or_for_none() {
        let table = table();
        let (narrow, wide) = (Rate::new(1, Per::Hour), Rate::new(2, Per::Second));
        let both = || [held("wide", wide), held("narrow", narrow)].concat();
        assert_eq!(call(&table, both(), NEVER), Ok(NEVER));
        for _ in 0..10 {
            assert_eq!(call(&table, both(), NEVER), Err(Duration::from_secs(3600)));
        }
        assert_eq!(call(&table, held("wide", wide), NEVER), Ok(NEVER), "the refused calls left it alone");
        assert!(call(&table, held("wide", wide), NEVER).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_not_sent_gives_its_count_back() {
        let (table, rate) = (table(), Rate::new(1, Per::Day));
        for _ in 0..5 {
            let (mut ticket, _) = table.take(held("a", rate), NEVER, 100).unwrap();
            ticket.is_sent();
            ticket.was_not_sent();
        }
        assert_eq!(table.len(), 0);
        assert_eq!(call(&table, held("a", rate), NEVER), Ok(NEVER));
        assert!(call(&table, held("a", rate), NEVER).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn limit_rate_keys_the_idlest_goes() {
        let table = table();
        let take = |name: String, count: usize| {
            for _ in 0..count {
                table.take(held(&name, Rate::new(10, Per::Minute)), NEVER, 4).unwrap().0.is_sent();
            }
        };
        (0..4).for_each(|number| take(format!("k{number}"), 4 - number));
        assert_eq!(table.len(), 4);
        take("new".to_owned(), 1);
        let left = |name: &str| lock(&table.paid).contains_key(&key(name));
        assert_eq!((table.len(), left("k3"), left("k0"), left("new")), (4, false, true, true));
        tokio::time::advance(Duration::from_secs(60)).await;
        take("later".to_owned(), 1);
        assert_eq!(table.len(), 1, "what is as good as new goes first");
    }

    #[tokio::test]
    async fn counts_of_days_survive_a_restart_and_others_do_not() {
        let state = tempfile::tempdir().unwrap();
        let both = |name: &str| {
            [held(name, Rate::new(2, Per::Day)), held(&format!("{name} hourly"), Rate::new(2, Per::Hour))].concat()
        };
        let table = Arc::new(RateTable::load(Some(state.path())));
        assert_eq!(call(&table, both("a"), NEVER), Ok(NEVER));
        assert_eq!(call(&table, both("a"), NEVER), Ok(NEVER));
        drop(table.take(both("given back"), NEVER, 100).unwrap());
        table.written().await;

        let table = Arc::new(RateTable::load(Some(state.path())));
        assert_eq!(table.len(), 1);
        let after = call(&table, both("a"), NEVER).unwrap_err();
        let half = Duration::from_secs(12 * 60 * 60);
        assert!(after <= half && after > half - Duration::from_secs(60), "{after:?}");
        assert_eq!(call(&table, both("given back"), NEVER), Ok(NEVER));
    }

    #[test]
    fn a_key_is_read_as_it_was_written_by_this_version_or_an_earlier_one() {
        let view = RateKey { view: Some("review".into()), ..RateKey::default() };
        for key in [key("a"), view.clone(), RateKey { server: Some("s".into()), tool: Some("t".into()), ..key("a") }] {
            assert_eq!(RateKey::parse(&key.text()), Some(key));
        }
        assert_eq!(
            (key("a").text(), view.text()),
            (r#"["a",null,null]"#.into(), r#"[null,null,null,"review"]"#.into())
        );
        for text in ["[]", r#"["a"]"#, "[null,null,null,null,null]", "{}", "[1,2,3]"] {
            assert_eq!(RateKey::parse(text), None, "{text}");
        }
    }
}
