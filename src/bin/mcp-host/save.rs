//! Writes images, audio and blobs of an answer to files that the user names with `--out`.
//!
//! **Invariant:** no existing file is ever touched, and no text from a server becomes part of a path.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::output::Output;
use crate::payload::Media;
use crate::report::{Exit, Failure};
use crate::text::quoted;

/// Where to save files.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// In this folder, under names that we choose.
    Folder(PathBuf),
    /// The first content at this path, the others beside it.
    File(PathBuf),
}

impl Target {
    /// Checks the path before any server is called.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        if path.is_dir() {
            return Ok(Self::Folder(path.to_path_buf()));
        }
        if shown.ends_with('/') {
            return Err(Failure::new(Exit::Usage, format!("--out {shown}: there is no such folder"))
                .help(format!("mkdir -p {}", quoted(&shown))));
        }
        if path.symlink_metadata().is_ok() {
            return Err(Failure::new(Exit::Usage, format!("--out {shown}: the file exists, and is not overwritten"))
                .help("name another file, or a folder: each file gets a name there"));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let folder = folder.display().to_string();
            return Err(Failure::new(Exit::Usage, format!("--out {shown}: there is no folder {folder}"))
                .help(format!("mkdir -p {}", quoted(&folder))));
        }
        Ok(Self::File(path.to_path_buf()))
    }

    /// Returns the path of a file by its number, which begins at one.
    fn path(&self, base: &str, number: usize, extension: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(format!("{base}-{number}.{extension}")),
            Self::File(file) if number == 1 => file.clone(),
            Self::File(file) => {
                let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
                let end = part(file.extension()).map(|end| format!(".{end}")).unwrap_or_default();
                file.with_file_name(format!("{}-{number}{end}", part(file.file_stem()).unwrap_or_default()))
            }
        }
    }
}

/// What was saved.
pub(crate) struct Saved {
    /// A note for each image, sound and blob, in the order of the answer.
    pub(crate) notes: Vec<String>,
    /// The first error.
    pub(crate) failure: Option<Failure>,
}

impl Saved {
    /// Prints the notes if stdout has JSON, or says that there was nothing to save.
    pub(crate) fn tell(&self, output: &Output) {
        if self.notes.is_empty() && self.failure.is_none() {
            output.remark("note: the answer holds nothing to save, only text");
        }
        self.notes.iter().filter(|_| output.json).for_each(|note| output.remark(&format!("note: {note}")));
    }
}

/// Saves all media of an answer. In a folder, file names begin with `base`.
pub(crate) async fn all(media: Vec<Media>, base: &str, to: Target) -> Saved {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let base: String = base.chars().map(|c| if allowed(c) { c } else { '-' }).take(NAME).collect();
    let write = move || {
        let mut saved = Saved { notes: Vec::new(), failure: None };
        let mut number = 1;
        for media in &media {
            match one(media, &base, &mut number, &to) {
                Ok(path) => saved.notes.push(format!("saved as {}", path.display())),
                Err(why) => {
                    saved.notes.push(format!("not saved: {why}"));
                    saved.failure.get_or_insert_with(|| {
                        Failure::new(Exit::Failed, format!("--out: {why}"))
                            .help("name another place: --out FILE or --out FOLDER")
                    });
                }
            }
        }
        saved
    };
    let lost = || Saved {
        notes: Vec::new(),
        failure: Some(Failure::new(Exit::Failed, "--out: nothing was saved").help("run it again")),
    };
    tokio::task::spawn_blocking(write).await.unwrap_or_else(|_| lost())
}

fn one(media: &Media, base: &str, number: &mut usize, to: &Target) -> Result<PathBuf, String> {
    let padding = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let digits: String = media.data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let decoded = GeneralPurpose::new(&STANDARD, padding).decode(digits);
    let bytes = decoded.map_err(|_| "its data is no base64".to_owned())?;
    for _ in 0..TRIES {
        let path = to.path(base, *number, extension(&media.mime));
        *number += 1;
        let failed = |error: std::io::Error| format!("{} cannot be written: {error}", path.display());
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => return file.write_all(&bytes).map_err(failed).map(|()| path.clone()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err("too many files have such a name".to_owned())
}

/// Returns the file extension for a media type.
fn extension(mime: &str) -> &'static str {
    match mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "image/avif" => "avif",
        "image/bmp" => "bmp",
        "image/tiff" => "tiff",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "audio/mp4" | "audio/aac" => "m4a",
        "audio/webm" | "video/webm" => "webm",
        "video/mp4" => "mp4",
        "application/pdf" => "pdf",
        "application/zip" => "zip",
        "application/json" => "json",
        "text/csv" => "csv",
        "text/html" => "html",
        mime if mime.starts_with("text/") => "txt",
        _ => "bin",
    }
}

/// How many file names to try before giving up.
const TRIES: usize = 10_000;
/// How many characters a name that we choose has at most.
const NAME: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn media(mime: &str, data: &str) -> Media {
        Media { mime: mime.to_owned(), data: data.to_owned() }
    }

    #[tokio::test]
    async fn first_hour_r2_files_are_never_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let here = home.path();
        std::fs::write(here.join("s__shot-1.png"), "mine").unwrap();
        let to = Target::of(here).unwrap();
        let answer = vec![media("image/png; q=1", "QUJD"), media("../x", "QUI"), media("audio/wav", "?")];
        let saved = all(answer.clone(), "s__shot", to).await;
        let names = |saved: &Saved| {
            saved.notes.iter().map(|note| note.replace(&here.display().to_string(), "~")).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&saved),
            ["saved as ~/s__shot-2.png", "saved as ~/s__shot-3.bin", "not saved: its data is no base64"]
        );
        assert!(saved.failure.is_some());
        assert_eq!(std::fs::read(here.join("s__shot-1.png")).unwrap(), b"mine");
        assert_eq!(std::fs::read(here.join("s__shot-2.png")).unwrap(), b"ABC");
        // With a named file, the second content goes beside it.
        let file = here.join("a.jpg");
        let saved = all(answer[..2].to_vec(), "../../etc", Target::of(&file).unwrap()).await;
        assert_eq!(names(&saved), ["saved as ~/a.jpg", "saved as ~/a-2.jpg"]);
        assert_eq!(Target::of(&file).unwrap_err().exit, Exit::Usage);
        assert_eq!(Target::of(&here.join("nope/a.jpg")).unwrap_err().exit, Exit::Usage);
        assert_eq!(Target::of(&here.join("nope/")).unwrap_err().exit, Exit::Usage);
    }
}
