//! Edits on disk: undone, refused, and made by several programs at once.

use super::*;
use crate::config::edit::NewServer;

/// A home with one config and the edits of its user.
struct Home(tempfile::TempDir);

impl Home {
    fn new(text: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        fs::write(home.file(), text).unwrap();
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("mcp.json")
    }

    fn edits(&self) -> Edits {
        Edits::of(&self.0.path().join("state"))
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    async fn make(&self, change: Change) -> Result<Made, Error> {
        let seen = read(&self.file())?;
        self.edits().make(self.file(), seen, change, LoadRequest::default()).await
    }

    async fn undo(&self, id: Option<u64>) -> Result<Undone, Error> {
        self.edits().undo(id, LoadRequest::default()).await
    }
}

fn add(name: &str) -> Change {
    Change::Add { name: name.to_owned(), server: NewServer::process("x", [""; 0]) }
}

fn switch(name: &str, on: bool) -> Change {
    Change::Switch { name: name.to_owned(), on }
}

const TEXT: &str = "{ \"mcpServers\": { \"a\": { \"command\": \"a\" } } } // mine\n";

#[tokio::test]
async fn what_was_done_is_taken_back_byte_by_byte() {
    let home = Home::new(TEXT);
    let made = home.make(switch("a", false)).await.unwrap();
    let off = home.text();
    home.make(switch("a", true)).await.unwrap();
    assert_eq!((made.id, home.text().as_str()), (1, TEXT));
    // First the last edit is undone, then the one before, and then there is none left.
    let undone = home.undo(None).await.unwrap();
    assert_eq!((undone.record.id, undone.files[0].is_exact, home.text()), (2, true, off.clone()));
    assert_eq!(home.undo(None).await.unwrap().record.id, 1);
    assert_eq!(home.text(), TEXT);
    assert!(matches!(home.undo(None).await, Err(Error::None)));
    assert!(matches!(home.undo(Some(1)).await, Err(Error::Undone(1))));
    assert!(matches!(home.undo(Some(9)).await, Err(Error::Unknown(9))));
    // An undo can be undone, too.
    let again = home.undo(Some(4)).await.unwrap();
    assert_eq!((again.record.undoes, home.text()), (Some(1), off));
    let stand: Vec<(u64, bool)> =
        home.edits().list().await.unwrap().iter().map(|(record, stands)| (record.id, *stands)).collect();
    assert_eq!(stand, [(5, true), (4, false), (3, true), (2, false), (1, true)]);
}

#[tokio::test]
async fn an_edit_of_an_older_journal_is_taken_back() {
    let home = Home::new(TEXT);
    home.make(switch("a", false)).await.unwrap();
    let journal = home.0.path().join("state/backups/journal.json");
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&journal).unwrap()).unwrap();
    let record = stored["records"][0].as_object_mut().unwrap();
    let parts = record.remove("parts").unwrap();
    record.remove("command");
    for (key, value) in parts[0].as_object().unwrap().clone() {
        let value = if key == "done" { value[0].clone() } else { value };
        record.insert(key, value);
    }
    fs::write(&journal, stored.to_string()).unwrap();
    home.undo(None).await.unwrap();
    assert_eq!(home.text(), TEXT);
    assert_eq!(home.edits().list().await.unwrap().len(), 2);
}

/// Changes of two files: the one of the home, and one beside it.
fn two(home: &Home, second: &Path) -> Vec<FileChange> {
    let change = |file: PathBuf| FileChange {
        seen: read(&file).unwrap(),
        file,
        changes: vec![switch("a", false), add("b")],
        request: LoadRequest::default(),
    };
    vec![change(home.file()), change(second.to_owned())]
}

#[tokio::test]
async fn several_files_are_one_edit() {
    let home = Home::new(TEXT);
    let second = home.0.path().join("second.json");
    fs::write(&second, TEXT).unwrap();
    let made = home.edits().make_all(Some("link"), two(&home, &second)).await.unwrap();
    assert!(home.text().contains("disabled") && fs::read_to_string(&second).unwrap().contains("disabled"));
    // One file was changed since, and one of its two changes cannot be undone.
    fs::write(home.file(), home.text().replace("\"x\"", "\"y\"")).unwrap();
    let undone = home.undo(Some(made.id)).await.unwrap();
    let files: Vec<&PathBuf> = undone.files.iter().map(|file| &file.part.file).collect();
    let refused: Vec<&PathBuf> = undone.refused.iter().map(|(file, _)| file).collect();
    assert_eq!((files, refused), (vec![&second], vec![&home.file()]));
    assert_eq!(fs::read_to_string(&second).unwrap(), TEXT);
    // That edit is still in effect there, and is all that is undone once it can be.
    fs::write(home.file(), home.text().replace("\"y\"", "\"x\"")).unwrap();
    let undone = home.undo(None).await.unwrap();
    assert_eq!((undone.record.id, undone.files.len(), home.text().as_str()), (made.id, 1, TEXT));
    assert!(matches!(home.undo(Some(made.id)).await, Err(Error::Undone(_))));
}

#[tokio::test]
async fn files_get_back_what_they_had_if_one_cannot_be_written() {
    let home = Home::new(TEXT);
    let second = home.0.path().join("second.json");
    fs::write(&second, TEXT).unwrap();
    // A folder has the name of the temporary file for the new text.
    fs::create_dir(home.0.path().join(".second.json.new")).unwrap();
    let refused = home.edits().make_all(Some("link"), two(&home, &second)).await;
    assert!(matches!(&refused, Err(Error::Write { path, .. }) if *path == second), "{refused:?}");
    assert_eq!((home.text().as_str(), fs::read_to_string(&second).unwrap().as_str()), (TEXT, TEXT));
    assert!(matches!(home.undo(None).await, Err(Error::None)));
}

#[tokio::test]
async fn a_file_that_was_made_is_gone_again() {
    let home = Home::new("");
    fs::remove_file(home.file()).unwrap();
    let file = home.0.path().join("new/folder/config.toml");
    let edits = home.edits();
    edits.make(file.clone(), None, add("a"), LoadRequest::default()).await.unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }
    edits.undo(None, LoadRequest::default()).await.unwrap();
    assert!(!file.exists());
}

#[tokio::test]
async fn what_somebody_else_wrote_stays() {
    let home = Home::new(TEXT);
    home.make(switch("a", false)).await.unwrap();
    let theirs = home.text().replace("// mine", "// theirs");
    fs::write(home.file(), theirs).unwrap();
    let undone = home.undo(None).await.unwrap();
    assert_eq!((undone.files[0].is_exact, home.text()), (false, TEXT.replace("mine", "theirs")));
}

#[tokio::test]
async fn a_file_that_is_not_as_it_was_seen_is_not_written() {
    let home = Home::new(TEXT);
    let edits = home.edits();
    let seen = Some(TEXT.replace("mine", "yours"));
    let refused = edits.make(home.file(), seen, switch("a", false), LoadRequest::default()).await;
    assert!(matches!(refused, Err(Error::Changed { .. })));
    let refused = edits.make(home.file(), None, add("b"), LoadRequest::default()).await;
    assert!(matches!(refused, Err(Error::Changed { .. })));
    assert_eq!(home.text(), TEXT);
    // The edit has a record, but was not carried out.
    assert!(matches!(home.undo(None).await, Err(Error::None)));
}

#[tokio::test]
async fn a_record_of_an_edit_that_did_not_happen_hides_none_that_did() {
    let home = Home::new(TEXT);
    home.make(add("b")).await.unwrap();
    let before = home.text();
    home.make(add("c")).await.unwrap();
    // Killed before the file was replaced.
    fs::write(home.file(), &before).unwrap();
    home.make(add("d")).await.unwrap();
    assert_eq!(home.undo(None).await.unwrap().record.id, 3);
    assert_eq!(home.undo(None).await.unwrap().record.id, 1);
    assert_eq!(home.text(), TEXT);
}

#[tokio::test]
async fn only_the_last_edits_are_kept() {
    let home = Home::new(TEXT);
    for on in std::iter::repeat_n([false, true], KEPT / 2 + 1).flatten() {
        home.make(switch("a", on)).await.unwrap();
    }
    let files = fs::read_dir(home.0.path().join("state/backups")).unwrap().count();
    assert_eq!(files, 2 * KEPT + 3, "the journal and two locks");
    assert_eq!(home.undo(None).await.unwrap().record.id, KEPT as u64 + 2);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_stays_and_its_file_keeps_its_mode() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let home = Home::new(TEXT);
    let folder = home.0.path().join("dotfiles");
    fs::create_dir(&folder).unwrap();
    let target = folder.join("real.json");
    fs::rename(home.file(), &target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o664)).unwrap();
    symlink(&target, home.file()).unwrap();
    // An existing file with the name of the temporary file is not written to.
    let trap = home.0.path().join("trap");
    fs::write(&trap, "dear").unwrap();
    symlink(&trap, folder.join(".real.json.new")).unwrap();
    home.make(switch("a", false)).await.unwrap();
    assert!(fs::symlink_metadata(home.file()).unwrap().is_symlink());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o664);
    assert!(home.text().contains("disabled") && fs::read_to_string(&trap).unwrap() == "dear");
    home.undo(None).await.unwrap();
    assert_eq!((home.text().as_str(), fs::symlink_metadata(home.file()).unwrap().is_symlink()), (TEXT, true));
    // A broken link does not count as a missing file.
    fs::remove_file(&target).unwrap();
    assert!(matches!(home.make(add("b")).await, Err(Error::Read { .. })));
}

#[tokio::test]
async fn two_writers_lose_nothing() {
    let home = Home::new("{ \"mcpServers\": {} }\n");
    let writer = async |writer: usize| {
        for number in 0..5 {
            let change = || add(&format!("w{writer}-{number}"));
            loop {
                match home.make(change()).await {
                    Ok(_) => break,
                    Err(Error::Changed { .. }) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    tokio::join!(writer(0), writer(1), writer(2));
    let names = edit::names(&home.text(), &home.file(), &LoadRequest::default());
    assert_eq!(names.len(), 15);
}
