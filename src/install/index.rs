//! The client of a server registry: requests version 0.1 of its API over HTTP, with limits on its answers.
//!
//! **Invariant:** requests go only to the configured origin, and no redirect is followed. An answer has at most 4 MiB
//! and takes at most 10 s; a search ends after 100 pages, or at a cursor that repeats. Answers are cached for an hour
//! in a folder of the user. Older ones are used only if the registry cannot be reached, and the user is told so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderName, HeaderValue, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::Error;
use super::manifest::{self, Manifest};
use crate::config::Registry;
use crate::config::Remote;
use crate::dial::{self, Client, Dialer};
use crate::hex;
use crate::keep;
use crate::loopback::is_loopback;
use crate::protocol::Theirs;

/// The largest answer.
const PAGE: usize = 4 * 1024 * 1024;
/// The most pages of one search.
const PAGES: usize = 100;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a cached answer is used before the registry is asked again.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// How many answers are cached.
const KEPT: usize = 500;
/// The most characters of a search text.
const WORDS: usize = 200;

/// All characters but letters, digits, and those that every URL may contain are encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A registry to ask.
#[derive(Debug)]
pub struct Index {
    registry: Registry,
    client: Client,
    /// The folder of cached answers; `None` caches none.
    folder: Option<PathBuf>,
}

/// How old an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It was received now, or within the last hour.
    Fresh,
    /// The registry cannot be reached, and the answer is this old.
    Offline(Duration),
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// The servers.
    pub servers: Vec<Manifest>,
    /// How many entries could not be read, and what is wrong with the first.
    pub skipped: Option<(usize, Error)>,
    /// Whether the search ended early because it had found enough servers.
    pub is_cut: bool,
    /// How old the oldest answer is.
    pub freshness: Freshness,
}

/// A cached answer.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// When it was received, in seconds since 1970.
    at: u64,
    url: String,
    status: u16,
    body: String,
}

impl Index {
    /// Returns the client of the registry in the config. Answers are cached in `folder`.
    ///
    /// # Errors
    /// Fails if TLS is not available, as without certificates.
    pub fn new(registry: &Registry, folder: Option<PathBuf>) -> Result<Self, Error> {
        let client = Dialer::default()
            .client(&Remote::new(registry.url.clone()))
            .map_err(|why| Error::Unreachable { registry: origin(&registry.url), why })?;
        Ok(Self { registry: registry.clone(), client, folder })
    }

    /// Finds servers whose name, title, or description has all of these words; at most `most`.
    ///
    /// # Errors
    /// Fails if the registry cannot be reached, or its answers are malformed.
    ///
    /// # Cancel safety
    /// A dropped future may have cached some answers.
    pub async fn search(&self, words: &[String], most: usize) -> Result<Found, Error> {
        let words: Vec<String> = words.iter().flat_map(|word| word.split_whitespace()).map(str::to_lowercase).collect();
        // The registry accepts one text, which it finds in names only. The other words are compared here.
        let longest = words.iter().max_by_key(|word| word.len()).cloned().unwrap_or_default();
        let longest: String = longest.chars().take(WORDS).collect();
        let mut found = Found { servers: Vec::new(), skipped: None, is_cut: false, freshness: Freshness::Fresh };
        let (mut cursor, mut seen) = (None::<String>, BTreeSet::new());
        for _ in 0..PAGES {
            let mut url = self.url(&["servers"])?;
            url.query_pairs_mut()
                .append_pair("search", &longest)
                .append_pair("version", "latest")
                .append_pair("limit", "100");
            if let Some(cursor) = &cursor {
                url.query_pairs_mut().append_pair("cursor", cursor);
            }
            let (status, body, freshness) = self.get(&url).await?;
            if status != 200 {
                return Err(self.status(status));
            }
            found.freshness = found.freshness.max(freshness);
            let page: Value = serde_json::from_str(&body).map_err(|error| self.wrong(format!("no JSON: {error}")))?;
            let servers = page.get("servers").and_then(Value::as_array);
            for server in servers.ok_or_else(|| self.wrong("it has no list `servers`"))? {
                match Manifest::of(server) {
                    Ok(server) if has_all(&server, &words) => found.servers.push(server),
                    Ok(_) => {}
                    Err(error) => found.skipped.get_or_insert((0, error)).0 += 1,
                }
                if found.servers.len() >= most {
                    found.is_cut = true;
                    return Ok(found);
                }
            }
            let meta = page.get("metadata");
            let next = meta.and_then(|meta| meta.get("nextCursor").or_else(|| meta.get("next_cursor")));
            match next.and_then(Value::as_str).filter(|next| !next.is_empty()) {
                None => return Ok(found),
                Some(next) if next.len() > 4096 => return Err(self.wrong("its cursor is longer than 4096 bytes")),
                Some(next) if !seen.insert(next.to_owned()) => {
                    return Err(self.wrong("its cursor comes again, so the list has no end"));
                }
                Some(next) => cursor = Some(next.to_owned()),
            }
        }
        Err(self.wrong(format!("the list has more than {PAGES} pages: search for something more special")))
    }

    /// Returns a server's entry in this version, or in the latest one.
    ///
    /// # Errors
    /// Fails if the registry has no such entry, cannot be reached, or sends a malformed answer.
    ///
    /// # Cancel safety
    /// A dropped future may have cached the answer.
    pub async fn server(&self, name: &str, version: Option<&str>) -> Result<(Manifest, Freshness), Error> {
        if !manifest::is_name(name) {
            let why = "a server of a registry is called NAMESPACE/NAME, as `mcp-host search` shows it".to_owned();
            return Err(Error::Value { input: name.to_owned(), why });
        }
        let url = self.url(&["servers", name, "versions", version.unwrap_or("latest")])?;
        let (status, body, freshness) = self.get(&url).await?;
        match status {
            200 => {}
            404 => {
                let what = match version {
                    Some(version) => format!("{} in version {}", Theirs(name), Theirs(version)),
                    None => format!("server {}", Theirs(name)),
                };
                return Err(Error::Unknown { registry: self.origin(), what });
            }
            status => return Err(self.status(status)),
        }
        let manifest = Manifest::parse(&body)?;
        // The user approves a server by its name, so the entry must have the requested name.
        if manifest.name != name {
            return Err(self.wrong(format!("it is about {}, not about {name}", Theirs(&manifest.name))));
        }
        if let Some(version) = version.filter(|version| *version != "latest" && *version != manifest.version) {
            return Err(self.wrong(format!("it is about version {}, not {version}", Theirs(&manifest.version))));
        }
        Ok((manifest, freshness))
    }

    /// Reads the `server.json` at a URL, which no registry has checked.
    ///
    /// # Errors
    /// Fails if it cannot be fetched, or is malformed.
    ///
    /// # Cancel safety
    /// A dropped future changes nothing.
    pub async fn at(url: &Url) -> Result<Manifest, Error> {
        let site = Self::new(&Registry { url: url.clone(), ..Registry::default() }, None)?;
        if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(url)) {
            return Err(site.wrong("only https URLs are read"));
        }
        match tokio::time::timeout(PATIENCE, site.ask(url)).await {
            Ok(Ok((200, body))) => {
                Manifest::parse(std::str::from_utf8(&body).map_err(|_| site.wrong("it is no UTF-8"))?)
            }
            Ok(Ok((300..=399, _))) => Err(site.wrong("it leads to another address, which is not followed")),
            Ok(Ok((status, _))) => Err(site.wrong(format!("HTTP status {status}"))),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(Error::Unreachable { registry: site.origin(), why: format!("no answer within {PATIENCE:?}") })
            }
        }
    }

    /// Returns the address of the registry in the form that is shown to people.
    #[must_use]
    pub fn origin(&self) -> String {
        origin(&self.registry.url)
    }

    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::Answer { registry: self.origin(), why: why.into() }
    }

    fn status(&self, status: u16) -> Error {
        self.wrong(match status {
            300..=399 => "it leads to another address, which is not followed: set host.registry.url to that".to_owned(),
            401 | 403 => format!("it wants a login (HTTP {status}): give it by host.registry.headers"),
            status => format!("HTTP status {status}"),
        })
    }

    fn url(&self, path: &[&str]) -> Result<Url, Error> {
        let base = self.registry.url.as_str().split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let path: Vec<String> = path.iter().map(|part| utf8_percent_encode(part, ENCODED).to_string()).collect();
        Url::parse(&format!("{base}/v0.1/{}", path.join("/"))).map_err(|error| self.wrong(format!("its URL: {error}")))
    }

    /// Returns an answer: a fresh one from the cache, else the registry's, else an old one from the cache.
    async fn get(&self, url: &Url) -> Result<(u16, String, Freshness), Error> {
        let place = self.folder.as_deref().map(|folder| self.place(folder, url));
        let kept = match place.clone() {
            Some(place) => keep::done(move || read(&place)).await.filter(|kept| kept.url == url.as_str()),
            None => None,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let age = |kept: &Kept| Duration::from_secs(now.saturating_sub(kept.at));
        let kept = match kept {
            Some(kept) if age(&kept) < FRESH && kept.at <= now => {
                return Ok((kept.status, kept.body, Freshness::Fresh));
            }
            kept => kept,
        };
        match tokio::time::timeout(PATIENCE, self.ask(url)).await {
            Ok(Ok((status, body))) => {
                let body = String::from_utf8(body.into()).map_err(|_| self.wrong("it is no UTF-8"))?;
                if let Some(place) = place.filter(|_| status == 200) {
                    let kept = Kept { at: now, url: url.as_str().to_owned(), status, body: body.clone() };
                    keep::done(move || write(&place, &kept)).await;
                }
                Ok((status, body, Freshness::Fresh))
            }
            // If the registry's answer is malformed, an older one from the cache is no substitute.
            Ok(Err(error @ Error::Answer { .. })) => Err(error),
            failed => match kept {
                Some(kept) => {
                    let age = age(&kept);
                    Ok((kept.status, kept.body, Freshness::Offline(age)))
                }
                None => Err(match failed {
                    Ok(Err(error)) => error,
                    _ => Error::Unreachable { registry: self.origin(), why: format!("no answer within {PATIENCE:?}") },
                }),
            },
        }
    }

    async fn ask(&self, url: &Url) -> Result<(u16, Bytes), Error> {
        let mut request =
            Request::get(url.as_str()).header(ACCEPT, "application/json").header(USER_AGENT, dial::USER_AGENT);
        for (name, value) in &self.registry.headers {
            let header = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value.expose()).ok());
            let (name, mut value) = header.ok_or_else(|| self.wrong(format!("{name} cannot be sent")))?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let request = request.body(Bytes::new()).map_err(|error| self.wrong(error.to_string()))?;
        let lost = |why: String| Error::Unreachable { registry: self.origin(), why };
        let mut response = self.client.send(request).await.map_err(|error| lost(error.to_string()))?;
        let too_large = || self.wrong(format!("it has more than {} MiB", PAGE / (1024 * 1024)));
        if response.content_length().is_some_and(|length| length > PAGE as u64) {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(piece) = response.chunk().await.map_err(|_| lost("the answer broke off".to_owned()))? {
            if body.len() + piece.len() > PAGE {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        Ok((response.status().as_u16(), body.freeze()))
    }

    /// Returns the cache file for an answer. Requests with other headers may get other answers, so they have other
    /// files.
    fn place(&self, folder: &Path, url: &Url) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(url.as_str());
        for (name, value) in &self.registry.headers {
            for text in [name.as_str(), value.expose()] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        }
        folder.join(format!("{}.json", hex::encode(&hash.finalize())))
    }
}

impl Freshness {
    fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::Offline(one), Self::Offline(other)) => Self::Offline(one.max(other)),
            (Self::Fresh, other) => other,
            (offline, Self::Fresh) => offline,
        }
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn has_all(server: &Manifest, words: &[String]) -> bool {
    let title = server.title.as_deref().unwrap_or_default();
    let text = format!("{}\n{title}\n{}", server.name, server.description).to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

/// Reads a cached answer; `None` if there is none that can be read.
fn read(place: &Path) -> Option<Kept> {
    let length = std::fs::metadata(place).ok()?.len();
    // The cached text is JSON in a JSON string, whose quotes are escaped.
    if length > 4 * PAGE as u64 {
        return None;
    }
    serde_json::from_slice(&std::fs::read(place).ok()?).ok()
}

/// Caches an answer. If that fails, the registry is only asked again, so the failure is ignored.
fn write(place: &Path, kept: &Kept) {
    let Some(folder) = place.parent() else { return };
    let Ok(text) = serde_json::to_vec(kept) else { return };
    if keep::make_folder(folder).is_ok() && keep::replace(place, &text).is_ok() {
        thin_out(folder);
    }
}

/// Removes the oldest cached answers if there are too many.
fn thin_out(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    let over = files.len().saturating_sub(KEPT);
    files.sort();
    for (_, file) in files.into_iter().take(over) {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(file);
    }
}
