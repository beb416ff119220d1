//! Keyrings that are locked, hang, are small, lie or are absent, and where tokens are stored then (`docs/hazards.md` H77).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zeroize::Zeroizing;

use super::choice::Chosen;
use super::keyring::{Patience, Ring};
use super::named::{read_by, write_by};
use super::{Kept, SecretStore, StoreError, lock};
use crate::config::{Approved, Config, LoadRequest, Secret, SecretKey, Secrets, StoreKind, Transport, Unread, load};

/// The limit of Windows.
const BYTES: usize = 2560;

/// How a keyring behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Locked,
    Absent,
    /// Answers only after its mood changes.
    Hangs,
    /// Claims to have stored what it has not.
    Forgets,
    /// Stores something else.
    Garbles,
    Panics,
    /// Takes its time to say that it has nothing.
    Slow,
}

/// A scripted keyring.
struct Fake {
    mood: Mutex<Mood>,
    changed: Condvar,
    kept: Mutex<HashMap<String, String>>,
    asked: AtomicUsize,
}

impl Fake {
    fn new(mood: Mood) -> Arc<Self> {
        let (changed, kept, asked) = (Condvar::new(), Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { mood: Mutex::new(mood), changed, kept, asked })
    }

    fn set_mood(&self, mood: Mood) {
        *lock(&self.mood) = mood;
        self.changed.notify_all();
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn enter(&self) -> Result<Mood, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mood = self.changed.wait_while(lock(&self.mood), |mood| *mood == Mood::Hangs).unwrap();
        match *mood {
            Mood::Locked => Err(StoreError::Locked),
            Mood::Absent => Err(StoreError::Absent("it was taken away".to_owned())),
            Mood::Panics => {
                drop(mood);
                panic!("on purpose");
            }
            mood => Ok(mood),
        }
    }
}

impl Ring for Fake {
    fn get(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreError> {
        let mood = self.enter()?;
        let kept = lock(&self.kept).get(name).cloned().map(Zeroizing::new);
        if mood == Mood::Slow && kept.is_none() {
            // Other threads that may ask meanwhile get the same answer.
            let _ = self.changed.wait_timeout_while(lock(&self.mood), Duration::from_millis(100), |_| true);
        }
        Ok(kept)
    }

    fn set(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let mood = self.enter()?;
        if text.encode_utf16().count() * 2 > BYTES {
            return Err(StoreError::Failed("it is too long".to_owned()));
        }
        let text = match mood {
            Mood::Forgets => return Ok(()),
            Mood::Garbles => text.to_uppercase(),
            _ => text.to_owned(),
        };
        lock(&self.kept).insert(name.to_owned(), text);
        Ok(())
    }
}

/// A machine with a state directory and a keyring.
struct Machine {
    folder: tempfile::TempDir,
    ring: Arc<Fake>,
}

impl Machine {
    fn new(mood: Mood) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), ring: Fake::new(mood) }
    }

    /// Returns the path of the default key file.
    fn key_file(&self) -> PathBuf {
        self.folder.path().join("config/mcp-host/secret.key")
    }

    /// Starts a program on this machine.
    fn start(&self, kind: StoreKind, key: Option<&str>) -> Chosen {
        let key = key.map(|first| SecretKey::parse(&format!("{first}{}", "07".repeat(31))).unwrap());
        let secrets = Secrets { store: kind, key, key_file: Some(self.key_file()) };
        // Short for a keyring that hangs, because that always runs out; ample for one that does not.
        let limit = if *lock(&self.ring.mood) == Mood::Hangs { 50 } else { 60_000 };
        let limit = Duration::from_millis(limit);
        let patience = Patience { read: limit, write: limit, rest: Duration::ZERO };
        Chosen::new(&secrets, self.folder.path(), Some(self.ring.clone()), patience)
    }

    fn auto(&self) -> Chosen {
        self.start(StoreKind::Auto, None)
    }

    /// Returns all files on its disk.
    fn bytes(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn collect(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    collect(&path, found)
                } else {
                    found.push((path.clone(), std::fs::read(path).unwrap()))
                }
            }
        }
        let mut found = Vec::new();
        collect(self.folder.path(), &mut found);
        found
    }

    fn has_in_the_clear(&self, text: &str) -> bool {
        self.bytes().iter().any(|(_, bytes)| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

fn write(store: &Chosen, text: &str) -> Result<(), StoreError> {
    store.write("token-1", &Secret::new(text))
}

fn read(store: &Chosen) -> Result<Option<String>, StoreError> {
    store.read("token-1").map(|found| found.map(|secret| secret.expose().to_owned()))
}

fn some(text: &str) -> Result<Option<String>, StoreError> {
    Ok(Some(text.to_owned()))
}

#[test]
fn h77_a_keyring_keeps_the_key_and_files_keep_the_tokens() {
    let machine = Machine::new(Mood::Well);
    let store = machine.auto();
    assert_eq!(read(&store), Ok(None));
    assert_eq!(machine.ring.asked(), 0, "nothing is kept, so nobody is asked");
    write(&store, "planted").unwrap();
    assert_eq!((read(&store), store.place("token-1")), (some("planted"), Kept::Keyring));
    let again = machine.auto();
    assert_eq!((read(&again), again.place("token-1")), (some("planted"), Kept::Keyring));
    assert!(!machine.has_in_the_clear("planted"));
    // One request to look, to write and to read back; one after the restart. Everything else needs none.
    for number in 0..10 {
        again.write(&format!("token-{number}"), &Secret::new("x")).unwrap();
    }
    assert_eq!(machine.ring.asked(), 4);
    again.remove("token-1").unwrap();
    assert_eq!(read(&machine.auto()), Ok(None));
}

#[test]
fn h77_no_token_is_too_long_for_a_small_keyring() {
    let machine = Machine::new(Mood::Well);
    let long = "x".repeat(64 * 1024);
    write(&machine.auto(), &long).unwrap();
    assert_eq!(read(&machine.auto()), some(&long));
    let kept: Vec<usize> = lock(&machine.ring.kept).values().map(|text| text.encode_utf16().count() * 2).collect();
    assert!(kept.len() == 1 && kept[0] < BYTES / 10, "{kept:?}");
}

#[test]
fn h77_a_locked_keyring_is_told_and_keeps_what_it_has() {
    let machine = Machine::new(Mood::Well);
    write(&machine.auto(), "planted").unwrap();
    let before = machine.bytes();
    machine.ring.set_mood(Mood::Locked);
    for key in [None, Some("01")] {
        let store = machine.start(StoreKind::Auto, key);
        assert_eq!(read(&store), Err(StoreError::Locked));
        // An existing login stays in its store, whatever other stores there are.
        assert_eq!((write(&store, "new"), store.place("token-1")), (Err(StoreError::Locked), Kept::Keyring));
    }
    assert_eq!(machine.bytes(), before);
    let store = machine.auto();
    assert_eq!(read(&store), Err(StoreError::Locked));
    machine.ring.set_mood(Mood::Well);
    assert_eq!(read(&store), some("planted"));
}

#[test]
fn h77_a_keyring_that_hangs_costs_its_time_and_one_thread() {
    let machine = Machine::new(Mood::Well);
    write(&machine.auto(), "planted").unwrap();
    let before = machine.ring.asked();
    machine.ring.set_mood(Mood::Hangs);
    let store = machine.auto();
    for _ in 0..5 {
        assert!(matches!(read(&store), Err(StoreError::Slow(_))));
        assert!(matches!(write(&store, "new"), Err(StoreError::Slow(_))));
    }
    assert_eq!(machine.ring.asked() - before, 1, "one is on its way, the others wait for it and go");
    machine.ring.set_mood(Mood::Well);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while read(&store).is_err() && std::time::Instant::now() < end {}
    assert_eq!(read(&store), some("planted"));
}

#[test]
fn h77_after_it_did_not_answer_it_is_left_alone_for_a_while() {
    let machine = Machine::new(Mood::Well);
    write(&machine.auto(), "planted").unwrap();
    machine.ring.set_mood(Mood::Locked);
    let patience = Patience::default();
    let store = Chosen::new(&Secrets::default(), machine.folder.path(), Some(machine.ring.clone()), patience);
    let before = machine.ring.asked();
    for _ in 0..100 {
        assert_eq!(read(&store), Err(StoreError::Locked));
    }
    assert_eq!(machine.ring.asked() - before, 1);
    assert_eq!((patience.read.as_secs(), patience.write.as_secs()), (2, 10));
}

#[test]
fn h77_a_keyring_that_lies_is_found_out_at_the_first_write() {
    for mood in [Mood::Forgets, Mood::Garbles, Mood::Panics] {
        let machine = Machine::new(mood);
        let only = machine.start(StoreKind::Keyring, None);
        assert!(matches!(write(&only, "planted"), Err(StoreError::Failed(_))), "{mood:?}");
        // Stores of other kinds hold the secret elsewhere, or else it is held in memory.
        let machine = Machine::new(mood);
        let store = machine.start(StoreKind::Auto, Some("01"));
        write(&store, "planted").unwrap();
        assert_eq!((read(&store), store.place("token-1")), (some("planted"), Kept::File), "{mood:?}");
        let machine = Machine::new(mood);
        let store = machine.auto();
        write(&store, "planted").unwrap();
        assert_eq!((read(&store), store.place("token-1")), (some("planted"), Kept::Memory), "{mood:?}");
        assert!(!machine.has_in_the_clear("planted"), "{mood:?}");
    }
}

#[test]
fn h77_without_a_keyring_a_token_goes_to_the_encrypted_file_or_to_memory() {
    let machine = Machine::new(Mood::Absent);
    let store = machine.start(StoreKind::Auto, Some("01"));
    write(&store, "planted").unwrap();
    assert_eq!(store.place("token-1"), Kept::File);
    assert_eq!(read(&machine.start(StoreKind::File, Some("01"))), some("planted"));
    assert!(!machine.has_in_the_clear("planted"));
    // Without its key, or with another, the file is reported and kept.
    for key in [None, Some("02")] {
        let wrong = read(&machine.start(StoreKind::Auto, key)).unwrap_err().to_string();
        assert!(wrong.contains("key"), "{wrong}");
    }
    assert_eq!(read(&machine.start(StoreKind::File, Some("01"))), some("planted"));

    let machine = Machine::new(Mood::Absent);
    let store = machine.auto();
    write(&store, "planted").unwrap();
    assert_eq!((read(&store), store.place("token-1")), (some("planted"), Kept::Memory));
    assert_eq!(read(&machine.auto()), Ok(None));
    assert!(!machine.has_in_the_clear("planted"));
}

#[test]
fn h77_a_login_is_in_one_place_and_moves_only_where_the_first_is_gone() {
    let machine = Machine::new(Mood::Well);
    write(&machine.auto(), "one").unwrap();
    machine.ring.set_mood(Mood::Absent);
    let store = machine.start(StoreKind::Auto, Some("01"));
    assert!(matches!(read(&store), Err(StoreError::Absent(_))));
    write(&store, "two").unwrap();
    assert_eq!((read(&store), store.place("token-1")), (some("two"), Kept::File));
    // The keyring is back: the login is still in its last place, and the next token goes to the keyring.
    machine.ring.set_mood(Mood::Well);
    let store = machine.start(StoreKind::Auto, Some("01"));
    assert_eq!(read(&store), some("two"));
    write(&store, "three").unwrap();
    assert_eq!((read(&store), store.place("token-1")), (some("three"), Kept::Keyring));
    assert_eq!(machine.bytes().iter().filter(|(path, _)| path.ends_with("token-1")).count(), 1);
}

#[test]
fn h77_the_store_that_is_asked_for_is_the_only_one() {
    let machine = Machine::new(Mood::Absent);
    let store = machine.start(StoreKind::Keyring, Some("01"));
    assert!(matches!(write(&store, "planted"), Err(StoreError::Absent(_))));
    let machine = Machine::new(Mood::Well);
    for (kind, want) in [(StoreKind::Memory, Kept::Memory), (StoreKind::File, Kept::File)] {
        let store = machine.start(kind, Some("01"));
        write(&store, "planted").unwrap();
        assert_eq!((store.place("token-1"), machine.ring.asked()), (want, 0));
    }
}

#[test]
fn h77_a_key_that_is_gone_from_the_keyring_is_told_and_made_anew_by_the_next_login() {
    let machine = Machine::new(Mood::Well);
    write(&machine.auto(), "one").unwrap();
    lock(&machine.ring.kept).clear();
    let store = machine.auto();
    let wrong = read(&store).unwrap_err().to_string();
    assert!(wrong.contains("not in the keyring any more"), "{wrong}");
    write(&store, "two").unwrap();
    assert_eq!(read(&machine.auto()), some("two"));
    // A key that another program stored under our name is not overwritten.
    lock(&machine.ring.kept).insert("file-key".to_owned(), "2:something newer".to_owned());
    assert!(write(&machine.start(StoreKind::Keyring, None), "three").is_err());
    assert_eq!(lock(&machine.ring.kept)["file-key"], "2:something newer");
}

#[test]
fn h77_programs_that_start_at_once_make_one_key() {
    let machine = Machine::new(Mood::Slow);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let store = machine.auto();
            scope.spawn(move || store.write(&format!("token-{number}"), &Secret::new("x")).unwrap());
        }
    });
    let store = machine.auto();
    for number in 0..6 {
        assert!(store.read(&format!("token-{number}")).unwrap().is_some(), "{number}");
    }
}

/// A file with servers that name entries of a keyring, and the request that loads it.
struct Named {
    ring: Arc<Fake>,
    request: LoadRequest,
    folder: tempfile::TempDir,
}

impl Named {
    fn new(mood: Mood, servers: &serde_json::Value) -> Self {
        let (ring, folder) = (Fake::new(mood), tempfile::tempdir().unwrap());
        let file = folder.path().join("mcp.json");
        std::fs::write(&file, serde_json::json!({ "mcpServers": servers }).to_string()).unwrap();
        let request = LoadRequest { keyring: read_by(ring.clone()), ..LoadRequest::default() }.file(file);
        Self { ring, request, folder }
    }

    fn put(&self, name: &str, text: &str) {
        lock(&self.ring.kept).insert(name.to_owned(), text.to_owned());
    }

    fn load(&self) -> Config {
        load(&self.request).unwrap()
    }
}

/// Returns the value of a server's header, or why the server cannot be started.
fn header(config: &Config, name: &str) -> Result<String, String> {
    let server = config.servers.iter().find(|server| server.name == name).unwrap();
    match (&server.transport, &server.unusable, &server.disabled) {
        (_, Some(why), _) => Err(why.to_string()),
        (_, _, Some(why)) => Err(why.clone()),
        (Transport::Http(remote), None, None) => Ok(remote.headers[0].1.expose().to_owned()),
        _ => panic!("it is no server over HTTP"),
    }
}

fn entry(value: &str) -> serde_json::Value {
    serde_json::json!({ "type": "http", "url": "https://example.com/mcp", "headers": { "X-Word": value } })
}

#[test]
fn h92_a_config_names_what_the_keyring_has() {
    let servers = serde_json::json!({
        "a": entry("Word ${keyring:api}"), "b": entry("${keyring:api}/${keyring:lined}"), "c": entry("${keyring:none}"),
        "d": entry("${keyring:empty}"), "e": entry("plain"), "f": entry("${keyring:api:-x}"),
    });
    let named = Named::new(Mood::Well, &servers);
    for (name, text) in [("api", "an-odd-canary"), ("lined", "another-canary\r\n"), ("empty", "\n")] {
        named.put(name, text);
    }
    let config = named.load();
    assert_eq!(header(&config, "a").as_deref(), Ok("Word an-odd-canary"));
    assert_eq!(header(&config, "b").as_deref(), Ok("an-odd-canary/another-canary"));
    let missing = header(&config, "c").unwrap_err();
    assert!(
        missing.starts_with("headers.X-Word: the keyring has no entry \"none\" for us; put it there: "),
        "{missing}"
    );
    assert!(header(&config, "d").unwrap_err().contains("\"empty\" of the keyring cannot be read: it is empty"));
    assert_eq!(header(&config, "e").as_deref(), Ok("plain"));
    assert!(header(&config, "f").unwrap_err().contains("no entry \"api:-x\""));
    // Each is requested once, and the values are scrubbed.
    assert_eq!(named.ring.asked(), 5);
    let said = "it said an-odd-canary, another-canary";
    assert_eq!(config.scrubber().without_known(said), "it said ***, ***");
    assert!(!format!("{config:?}").contains("canary"), "{config:?}");
}

#[test]
fn h77_a_keyring_that_is_locked_fails_those_that_name_it() {
    let servers = serde_json::json!({ "a": entry("${keyring:x}"), "b": entry("${keyring:y}"), "c": entry("plain") });
    for (mood, why) in
        [(Mood::Locked, "the keyring is locked"), (Mood::Absent, "there is no keyring: it was taken away")]
    {
        let named = Named::new(mood, &servers);
        let config = named.load();
        for (server, name) in [("a", "x"), ("b", "y")] {
            let told = header(&config, server).unwrap_err();
            assert!(told.contains(&format!("headers.X-Word: {name:?} of the keyring cannot be read: {why}")), "{told}");
        }
        assert_eq!((header(&config, "c").as_deref(), named.ring.asked()), (Ok("plain"), 1));
        named.ring.set_mood(Mood::Well);
        named.put("x", "back");
        assert_eq!(header(&named.load(), "a").as_deref(), Ok("back"));
        // Reloading the config does not take a secret from a server that has it.
        named.ring.set_mood(mood);
        let config = named.load();
        assert_eq!((header(&config, "a").as_deref(), header(&config, "b").is_err()), (Ok("back"), true));
    }
}

#[test]
fn a_secret_for_configs_is_in_the_keyring_or_nowhere() {
    let ring = Fake::new(Mood::Well);
    write_by(ring.clone(), "files/API_KEY", "value").unwrap();
    assert_eq!(lock(&ring.kept).get("files/API_KEY").map(String::as_str), Some("value"));
    for mood in [Mood::Locked, Mood::Absent, Mood::Forgets, Mood::Garbles, Mood::Panics] {
        let reason = write_by(Fake::new(mood), "files/API_KEY", "value").unwrap_err();
        assert!(!reason.is_empty() && !reason.contains("value"), "{mood:?}: {reason}");
    }
}

#[test]
fn h77_a_keyring_that_hangs_is_left_behind() {
    let ring = Fake::new(Mood::Hangs);
    let keyring = read_by(ring.clone());
    let answer = keyring.ask("x", Duration::from_millis(50)).unwrap();
    assert!(matches!(&answer, Err(Unread::All(reason)) if reason.contains("did not answer within 50ms")), "{answer:?}");
    ring.set_mood(Mood::Well);
    assert_eq!(keyring.ask("x", Duration::from_secs(60)).unwrap(), Ok(None));
}

#[test]
fn h93_a_project_takes_nothing_out_of_the_keyring_before_it_is_approved() {
    let servers = serde_json::json!({ "a": entry("${keyring:api}"), "b": entry("${keyring:api}") });
    let mut named = Named::new(Mood::Well, &servers);
    named.put("api", "canary");
    named.request.project = true;
    let config = named.load();
    assert_eq!((header(&config, "a"), named.ring.asked()), (Err("not approved".to_owned()), 0));
    let project = config.servers[0].project.clone().unwrap();
    assert!(
        project.shown.contains(&"! headers.X-Word: takes \"api\" out of your keyring".to_owned()),
        "{:?}",
        project.shown
    );
    let file = named.folder.path().join("mcp.json");
    named.request.approved = Approved::new(file.clone(), [((file, "a".to_owned()), project.hash)]);
    let config = named.load();
    assert_eq!((header(&config, "a").as_deref(), header(&config, "b").is_err()), (Ok("canary"), true));
    assert_eq!(named.ring.asked(), 1);
}

#[test]
fn h93_what_a_project_takes_out_of_the_keyring_is_told_however_it_is_written() {
    let mut listed = entry("${{ keyring:api }}");
    listed["name"] = "a".into();
    for config in [
        serde_json::json!({ "mcpServers": { "a": entry("${ keyring:api }") } }),
        serde_json::json!({ "mcpServers": [listed] }),
        serde_json::json!({ "extensions": { "a": entry("${keyring:api}") } }),
    ] {
        let mut named = Named::new(Mood::Well, &serde_json::json!({}));
        named.put("api", "canary");
        named.request.project = true;
        let file = named.folder.path().join("mcp.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let project = named.load().servers[0].project.clone().unwrap();
        let told = "! headers.X-Word: takes \"api\" out of your keyring".to_owned();
        assert!(project.shown.contains(&told), "{:?}", project.shown);
        named.request.approved = Approved::new(file.clone(), [((file, "a".to_owned()), project.hash)]);
        assert_eq!(header(&named.load(), "a").as_deref(), Ok("canary"));
    }
    let mut helped = entry("plain");
    helped["headersHelper"] = "show '$''{keyring:api}'".into();
    let mut named = Named::new(Mood::Well, &serde_json::json!({ "a": helped }));
    named.request.project = true;
    let shown = named.load().servers[0].project.clone().unwrap().shown;
    assert!(shown.contains(&"! headersHelper: takes \"api\" out of your keyring".to_owned()), "{shown:?}");
}

#[test]
fn nothing_is_asked_for_what_is_not_started() {
    let mut off = entry("${keyring:api}");
    off["disabled"] = true.into();
    let named = Named::new(Mood::Well, &serde_json::json!({ "a": off }));
    assert_eq!((named.load().servers[0].disabled.is_some(), named.ring.asked()), (true, 0));
    let text = r#"{ "mcpServers": {}, "host": { "listen": "${keyring:api}" } }"#;
    std::fs::write(named.folder.path().join("mcp.json"), text).unwrap();
    let told = load(&named.request).unwrap_err().to_string();
    assert!(told.contains("\"api\" from a keyring may only be used in server entries"), "{told}");
    assert_eq!(named.ring.asked(), 0);
}

#[test]
fn where_the_next_login_is_kept_is_told_before_anybody_signs_in() {
    let keeping = |mood, kind, key: Option<&str>| Machine::new(mood).start(kind, key).keeping();
    let kept = |mood, kind, key| keeping(mood, kind, key).kept;
    assert_eq!(kept(Mood::Well, StoreKind::Auto, None), Kept::Keyring);
    assert_eq!(kept(Mood::Absent, StoreKind::Auto, Some("00")), Kept::File);
    assert_eq!(kept(Mood::Well, StoreKind::File, Some("00")), Kept::File);
    let lost = keeping(Mood::Absent, StoreKind::Auto, None);
    assert_eq!(lost.reason.as_deref(), Some("there is no keyring: it was taken away"));
    assert!(lost.kept == Kept::Memory && lost.key_file.is_some());
    // A file does not help if the config wants another place.
    for kind in [StoreKind::Keyring, StoreKind::Memory] {
        let lost = keeping(Mood::Locked, kind, None);
        assert!(lost.kept == Kept::Memory && lost.key_file.is_none(), "{kind:?}");
    }
}

#[test]
fn h77_a_key_that_comes_while_a_program_runs_is_used_from_then_on() {
    let machine = Machine::new(Mood::Absent);
    let store = machine.start(StoreKind::Auto, None);
    store.write("token-1", &Secret::new("one")).unwrap();
    assert_eq!(store.place("token-1"), Kept::Memory);
    super::key_file::made(&machine.key_file()).unwrap();
    assert_eq!(store.keeping().kept, Kept::File);
    store.write("token-1", &Secret::new("two")).unwrap();
    assert_eq!(store.place("token-1"), Kept::File);
    // The user's next program finds the key without being told.
    let next = machine.start(StoreKind::Auto, None);
    assert_eq!(next.read("token-1").unwrap().unwrap().expose(), "two");
}
