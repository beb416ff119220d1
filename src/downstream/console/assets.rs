//! The files of the page, as they are in `page/`: the same for everybody, and without any data.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use crate::hex;

/// One file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    /// The path at which it is served.
    pub(crate) path: &'static str,
    /// Its media type.
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Names the files: `path at which a file is served => file in page/, media type`.
macro_rules! assets {
    ($($path:literal => $file:literal, $media_type:expr;)*) => {
        /// All files.
        pub(crate) static ASSETS: &[Asset] = &[
            $(Asset { path: $path, media_type: $media_type, bytes: include_bytes!(concat!("page/", $file)) },)*
        ];
    };
}

assets! {
    "/" => "index.html", HTML;
    "/console/app.css" => "app.css", CSS;
    "/console/icon.svg" => "icon.svg", SVG;
    "/console/api.js" => "api.js", SCRIPT;
    "/console/app.js" => "app.js", SCRIPT;
    "/console/approve.js" => "approve.js", SCRIPT;
    "/console/calls.js" => "calls.js", SCRIPT;
    "/console/config.js" => "config.js", SCRIPT;
    "/console/connect.js" => "connect.js", SCRIPT;
    "/console/diff.js" => "diff.js", SCRIPT;
    "/console/form.js" => "form.js", SCRIPT;
    "/console/h.js" => "h.js", SCRIPT;
    "/console/lines.js" => "lines.js", SCRIPT;
    "/console/parts.js" => "parts.js", SCRIPT;
    "/console/run.js" => "run.js", SCRIPT;
    "/console/schema.js" => "schema.js", SCRIPT;
    "/console/servers.js" => "servers.js", SCRIPT;
    "/console/state.js" => "state.js", SCRIPT;
    "/console/text.js" => "text.js", SCRIPT;
    "/console/tools.js" => "tools.js", SCRIPT;
    "/console/ui.js" => "ui.js", SCRIPT;
}

/// The tags of the files, in the same order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |asset: &Asset| format!("\"{}\"", hex::encode(&Sha256::digest(asset.bytes)[..16]));
    ASSETS.iter().map(tag).collect()
});

/// Returns the file at this path, and its entity tag.
pub(crate) fn asset(path: &str) -> Option<(&'static Asset, &'static str)> {
    let at = ASSETS.iter().position(|asset| asset.path == path)?;
    Some((&ASSETS[at], TAGS[at].as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_the_page_is_served_and_all_are_small() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/downstream/console/page");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_served = |name: &str| ["html", "css", "svg", "js"].iter().any(|end| name.ends_with(&format!(".{end}")));
        let path = |name: String| if name == "index.html" { "/".to_owned() } else { format!("/console/{name}") };
        let mut there: Vec<String> = names.filter(|name| is_served(name)).map(path).collect();
        let mut served: Vec<&str> = ASSETS.iter().map(|asset| asset.path).collect();
        there.sort();
        served.sort_unstable();
        assert_eq!(served, there);
        let bytes: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(bytes <= 150 * 1024, "{bytes} bytes");
        for asset in ASSETS {
            assert!(std::str::from_utf8(asset.bytes).is_ok(), "{}", asset.path);
        }
    }
}
