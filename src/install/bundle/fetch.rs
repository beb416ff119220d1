//! Downloads a bundle that a registry's entry names. The entry states the bundle's hash, so any source is safe.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{LOCATION, USER_AGENT};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::Bundle;
use super::unpack::LARGEST;
use crate::config::{Package as Pinned, PackageKind, Remote};
use crate::dial::{self, Dialer, Response};
use crate::hex;
use crate::install::Error;
use crate::install::manifest::Package;
use crate::install::tree::Work;
use crate::keep;
use crate::loopback::is_loopback;
use crate::trees::Store;

/// How many redirects are followed.
const REDIRECTS: usize = 5;
/// How long the download of a bundle may take.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

impl Bundle {
    /// Downloads the bundle of an entry, and reads it. The entry has to state its hash.
    ///
    /// # Errors
    /// Fails if the bundle cannot be downloaded, has another hash, or is not acceptable.
    ///
    /// # Cancel safety
    /// A dropped future may leave a folder in the store.
    pub async fn fetch(package: &Package) -> Result<Self, Error> {
        let wrong = |why: String| Error::Bundle { file: package.identifier.clone(), why };
        let hash = package.sha256.as_deref().map(str::to_ascii_lowercase);
        let hash = hash.filter(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let hash = hash.ok_or_else(|| wrong("its entry has no `fileSha256`, so it could be anything".to_owned()))?;
        let url = Url::parse(&package.identifier).map_err(|error| wrong(format!("its URL: {error}")))?;
        let store = Store::of_user().map_err(|error| wrong(error.to_string()))?;
        let work = Work::new(&store, &Pinned::new(PackageKind::Mcpb, &package.identifier, "")).await?;
        let file = work.tree.join("bundle.mcpb");
        let fetched = tokio::time::timeout(PATIENCE, download(url, file.clone())).await;
        let fetched = fetched.map_err(|_| wrong("it took longer than 15 minutes".to_owned()))?.map_err(wrong)?;
        if fetched != hash {
            return Err(wrong("it is not the file that its entry names: it hashes to something else".to_owned()));
        }
        let mut bundle = Self::open(file).await?;
        bundle.fetched = Some(std::sync::Arc::new(work));
        Ok(bundle)
    }
}

/// Downloads a file. Returns its SHA-256.
async fn download(mut url: Url, file: PathBuf) -> Result<String, String> {
    for _ in 0..=REDIRECTS {
        if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(&url)) {
            return Err("it is not at an https URL".to_owned());
        }
        let client = Dialer::default().client(&Remote::new(url.clone()))?;
        let request = Request::get(url.as_str()).header(USER_AGENT, dial::USER_AGENT).body(Bytes::new());
        let request = request.map_err(|error| error.to_string())?;
        let response = client.send(request).await.map_err(|error| error.to_string())?;
        match response.status().as_u16() {
            200 => return save(response, file).await,
            301 | 302 | 303 | 307 | 308 => {
                let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let to = to.and_then(|to| url.join(to).ok());
                url = to.ok_or("its address leads nowhere")?;
            }
            status => return Err(format!("HTTP status {status}")),
        }
    }
    Err(format!("its address redirects more than {REDIRECTS} times"))
}

async fn save(mut response: Response, file: PathBuf) -> Result<String, String> {
    let (mut hash, mut length) = (Sha256::new(), 0_u64);
    let opened = keep::done(move || File::create(&file).map_err(|error| error.to_string()));
    let mut opened = opened.await?;
    while let Some(piece) = response.chunk().await.map_err(|_| "the download broke off")? {
        length += piece.len() as u64;
        if length > LARGEST {
            return Err(format!("it is larger than {} MiB", LARGEST / (1024 * 1024)));
        }
        hash.update(&piece);
        let written = keep::done(move || {
            let written = opened.write_all(&piece);
            (opened, written)
        });
        let (file, done) = written.await;
        done.map_err(|error| error.to_string())?;
        opened = file;
    }
    Ok(hex::encode(&hash.finalize()))
}
