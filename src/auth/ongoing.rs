//! A browser or device login in progress, and the notices that it has begun and ended.
//!
//! **Invariant:** each login whose beginning is reported ends with one report. A login that is dropped counts as
//! failed.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// A notice that a login has begun or ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginNews<'a> {
    /// The server's name in the config.
    pub(crate) server: &'a str,
    /// When the login began.
    pub(crate) begun: SystemTime,
    /// Whether the user is signed in; `None` in the notice that the login begins.
    pub(crate) end: Option<bool>,
}

/// A login that has ended.
#[cfg(feature = "otel")]
#[derive(Clone, Debug)]
pub(crate) struct LoginEnd {
    /// The server's name in the config.
    pub(crate) server: String,
    pub(crate) begun: SystemTime,
    pub(crate) ended: SystemTime,
    /// Whether the user is signed in.
    pub(crate) is_done: bool,
}

type Tell = dyn Fn(LoginNews<'_>) + Send + Sync;

/// The callback that is notified of logins.
#[derive(Default)]
pub(super) struct Told(OnceLock<Box<Tell>>);

impl Told {
    /// Sets the callback. Only the first call has an effect.
    pub(super) fn set(&self, tell: impl Fn(LoginNews<'_>) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(tell));
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").field(&self.0.get().is_some()).finish()
    }
}

/// A login in progress, which reports its end. The default value reports nothing.
#[derive(Debug, Default)]
pub(super) struct Ongoing(Option<Telling>);

#[derive(Debug)]
struct Telling {
    told: Arc<Told>,
    server: Arc<str>,
    begun: SystemTime,
}

impl Ongoing {
    /// Reports that a login to this server begins.
    pub(super) fn begin(told: &Arc<Told>, server: &Arc<str>) -> Self {
        let telling = Telling { told: told.clone(), server: server.clone(), begun: SystemTime::now() };
        telling.tell(None);
        Self(Some(telling))
    }

    /// Reports that the login has ended; `is_done` says whether the user is signed in.
    pub(super) fn end(mut self, is_done: bool) {
        self.over(is_done);
    }

    fn over(&mut self, is_done: bool) {
        if let Some(telling) = self.0.take() {
            telling.tell(Some(is_done));
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.over(false);
    }
}

impl Telling {
    fn tell(&self, end: Option<bool>) {
        if let Some(tell) = self.told.0.get() {
            tell(LoginNews { server: &self.server, begun: self.begun, end });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_login_is_told_to_begin_and_to_end_once() {
        let (told, heard) = (Arc::<Told>::default(), Arc::<Mutex<Vec<(String, Option<bool>)>>>::default());
        let (server, hears) = (Arc::from("a"), heard.clone());
        told.set(move |news| hears.lock().unwrap().push((news.server.to_owned(), news.end)));
        Ongoing::begin(&told, &server).end(true);
        drop(Ongoing::begin(&told, &server));
        drop(Ongoing::default());
        let ends: Vec<_> = heard.lock().unwrap().iter().map(|(_, end)| *end).collect();
        assert_eq!(ends, [None, Some(true), None, Some(false)]);
    }
}
