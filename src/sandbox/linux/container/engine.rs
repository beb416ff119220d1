//! What an engine of containers says: what it can limit, and which image a name means.
//!
//! It is asked by the launcher, so the host waits for none of that. What it says is JSON; podman and docker have other names for
//! the same.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::super::plan::Container;

/// The longest part of an engine's error that is told.
const SAID: usize = 300;

/// What an engine can do on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether its daemon runs as the user, so that root in a container is the user.
    pub(super) is_rootless: bool,
    /// The keys of `sandbox` that it can limit.
    pub(super) can: Vec<&'static str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct OfDocker {
    security_options: Option<Vec<String>>,
    memory_limit: bool,
    cpu_cfs_quota: bool,
    pids_limit: bool,
    server_errors: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct OfPodman {
    host: PodmanHost,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanHost {
    #[serde(default)]
    cgroup_controllers: Option<Vec<String>>,
    #[serde(default)]
    security: Security,
}

#[derive(Default, Deserialize)]
struct Security {
    #[serde(default)]
    rootless: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Image {
    id: String,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
}

impl Facts {
    /// Asks the engine.
    pub(super) fn of(container: &Container) -> Result<Self, String> {
        let format = if container.is_podman { "--format=json" } else { "--format={{json .}}" };
        let said = said(container, &["info", format])?;
        let facts = Self::read(&said, container.is_podman)?;
        facts.lacks(&container.limits, container.is_podman).map_or(Ok(facts), Err)
    }

    /// Reads what an engine says of itself.
    fn read(said: &[u8], is_podman: bool) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("what it says of itself cannot be read: {error}");
        if is_podman {
            let OfPodman { host } = serde_json::from_slice(said).map_err(wrong)?;
            let controllers = host.cgroup_controllers.unwrap_or_default();
            let can = [("memory", "memory"), ("cpu", "cpu"), ("processes", "pids")];
            let can = can.into_iter().filter(|(_, name)| controllers.iter().any(|own| own == name));
            return Ok(Self { is_rootless: host.security.rootless, can: can.map(|(key, _)| key).collect() });
        }
        let docker: OfDocker = serde_json::from_slice(said).map_err(wrong)?;
        if let Some(error) = docker.server_errors.unwrap_or_default().first() {
            return Err(format!("its daemon does not answer: {error}"));
        }
        let options = docker.security_options.unwrap_or_default();
        let can = [("memory", docker.memory_limit), ("cpu", docker.cpu_cfs_quota), ("processes", docker.pids_limit)];
        let can = can.into_iter().filter(|(_, can)| *can).map(|(key, _)| key).collect();
        Ok(Self {
            is_rootless: options.iter().any(|option| option.split(',').any(|part| part == "name=rootless")),
            can,
        })
    }

    /// Says which of these limits the engine would ignore.
    fn lacks(&self, limits: &[String], is_podman: bool) -> Option<String> {
        let lacking: Vec<String> =
            limits.iter().filter(|key| !self.can.contains(&key.as_str())).map(|key| format!("`{key}`")).collect();
        let engine = if is_podman { "podman" } else { "docker" };
        (!lacking.is_empty()).then(|| {
            format!(
                "{engine} cannot limit {} on this machine, since it has no such controller of cgroups; remove the key, or delegate the controller to this account",
                lacking.join(", ")
            )
        })
    }
}

/// Returns the image that is started, whatever its name means by now: the one of the first use, which is fetched if it is
/// not here.
pub(super) fn image(container: &Container) -> Result<String, String> {
    let Container { image, kept, .. } = container;
    let wrong = |error: io::Error| format!("{}: {error}", kept.display());
    let first = match fs::read_to_string(kept) {
        Ok(text) => Some(text.trim().to_owned()).filter(|text| is_reference(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(wrong(error)),
    };
    let wanted = first.as_deref().unwrap_or(image);
    let found = match said(container, &["image", "inspect", wanted]) {
        Ok(found) => found,
        // By its number alone it cannot be fetched.
        Err(error) if first.is_some() && !wanted.contains('@') => {
            let file = kept.display();
            return Err(format!(
                "the image {image} that was there at first use ({wanted}) is gone; remove {file} to take the one of now ({error})"
            ));
        }
        Err(_) => {
            fetch(container, wanted)?;
            said(container, &["image", "inspect", wanted])?
        }
    };
    if let Some(first) = first {
        return Ok(first);
    }
    let reference = reference(&found, image)?;
    let fresh = kept.with_extension(std::process::id().to_string());
    fs::write(&fresh, &reference).and_then(|()| fs::rename(&fresh, kept)).map_err(wrong)?;
    Ok(reference)
}

/// Returns by what an image is named that is never another one: by its digest in its registry, or by its own number.
fn reference(said: &[u8], image: &str) -> Result<String, String> {
    let found: Vec<Image> =
        serde_json::from_slice(said).map_err(|error| format!("what it says of {image} cannot be read: {error}"))?;
    let Image { id, repo_digests } = found.into_iter().next().ok_or(format!("it says nothing of {image}"))?;
    let digests = repo_digests.unwrap_or_default();
    // An image may be there under several names.
    let name = image.split('@').next().unwrap_or_default();
    let name = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name);
    let is_of = |digest: &&String| {
        let repository = digest.split('@').next().unwrap_or_default();
        repository == name || repository.ends_with(&format!("/{name}"))
    };
    let reference = digests.iter().find(is_of).or(digests.first()).cloned().unwrap_or(id);
    if is_reference(&reference) { Ok(reference) } else { Err(format!("it names {image} in a way that is none")) }
}

fn is_reference(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && text.chars().all(is_plain)
}

/// Fetches an image. What the engine says meanwhile goes to the log.
fn fetch(container: &Container, image: &str) -> Result<(), String> {
    let mut command = Command::new(&container.engine);
    command.args(["pull", image]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(|error| format!("{}: {error}", container.engine.display()))?;
    if status.success() { Ok(()) } else { Err(format!("the image {image} cannot be fetched")) }
}

/// Returns what an engine says.
fn said(container: &Container, words: &[&str]) -> Result<Vec<u8>, String> {
    let engine = container.engine.display();
    let output = Command::new(&container.engine).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{engine}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    let line: String = line.chars().filter(|letter| !letter.is_control()).take(SAID).collect();
    Err(format!("{engine} {}: {line}", words[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h108_what_an_engine_cannot_limit_is_named() {
        let docker = br#"{"SecurityOptions":["name=seccomp,profile=builtin","name=rootless"],"MemoryLimit":true,"CpuCfsQuota":false,"PidsLimit":true,"Containers":1}"#;
        let facts = Facts::read(docker, false).expect("facts");
        assert_eq!(facts, Facts { is_rootless: true, can: vec!["memory", "processes"] });
        let wanted = ["memory", "cpu"].map(str::to_owned);
        let lack = "docker cannot limit `cpu` on this machine, since it has no such controller of cgroups; remove the key, or delegate the controller to this account";
        assert_eq!(facts.lacks(&wanted, false).as_deref(), Some(lack));
        let podman =
            br#"{"host":{"cgroupControllers":["memory","pids","cpu"],"security":{"rootless":true}},"version":{}}"#;
        let facts = Facts::read(podman, true).expect("facts");
        assert_eq!((facts.is_rootless, facts.lacks(&wanted, true)), (true, None));
        let none = Facts::read(br#"{"host":{"cgroupControllers":null}}"#, true).expect("facts");
        assert!(none.lacks(&wanted, true).is_some_and(|lack| lack.contains("`memory`, `cpu`")));
        let away = br#"{"ServerErrors":["Cannot connect to the Docker daemon"]}"#;
        let told = "its daemon does not answer: Cannot connect to the Docker daemon".to_owned();
        assert_eq!(Facts::read(away, false), Err(told));
        assert!(Facts::read(b"hello", false).is_err());
    }

    #[test]
    fn h108_an_image_is_named_by_what_never_changes() {
        let digest = |name: &str| format!("{name}@sha256:{}", "a".repeat(64));
        let said =
            |digests: &[String]| serde_json::json!([{ "Id": "sha256:0123", "RepoDigests": digests }]).to_string();
        for (image, digests, expected) in [
            (
                "node:24",
                vec![digest("docker.io/library/other"), digest("docker.io/library/node")],
                digest("docker.io/library/node"),
            ),
            ("localhost:5000/a/b", vec![digest("x"), digest("localhost:5000/a/b")], digest("localhost:5000/a/b")),
            ("node", vec![digest("only")], digest("only")),
            ("local", vec![], "sha256:0123".to_owned()),
        ] {
            assert_eq!(reference(said(&digests).as_bytes(), image), Ok(expected), "{image}");
        }
        assert!(reference(b"[]", "a").is_err() && reference(b"{", "a").is_err());
        let option = serde_json::json!([{ "Id": "--privileged" }]).to_string();
        assert!(reference(option.as_bytes(), "a").is_err(), "an option is no image");
    }
}
