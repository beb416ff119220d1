//! The values that a server needs: those of `--set`, those that the user is asked for, and which of them are secrets.

use std::collections::BTreeSet;

use console::Term;
use mcp_host::install::{Answers, Choice, Wanted};
use mcp_host::redact::looks_secret;

use super::failures::failed;
use crate::commands::edits::secrets;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::text;

/// The values of a server.
pub(super) struct Values {
    pub(super) answers: Answers,
    /// The keys of values that are stored in the keyring.
    pub(super) secret: BTreeSet<String>,
}

impl Values {
    /// Collects the values. `is_asked` says whether a person can be asked for missing ones.
    pub(super) async fn collect(
        choice: &Choice<'_>,
        set: &[String],
        is_asked: bool,
        output: &Output,
    ) -> Result<Self, Failure> {
        let wanted = choice.wanted().map_err(|error| failed(&error))?;
        let mut answers = given(set, &wanted)?;
        if is_asked {
            for wanted in &wanted {
                if answers.of(&wanted.key).is_empty() {
                    ask(wanted, &mut answers, output).await?;
                }
            }
        }
        let missing = choice.plan(&answers).map_err(|error| failed(&error))?.missing;
        if !missing.is_empty() {
            return Err(lacking(&missing, &wanted));
        }
        let mut secret = BTreeSet::new();
        for wanted in &wanted {
            let said = answers.of(&wanted.key);
            let is_literal = |value: &String| !value.is_empty() && !value.contains("${");
            if !said.iter().any(|value| is_literal(value) && (wanted.is_secret || looks_secret(value))) {
                continue;
            }
            if said.len() > 1 {
                let error = format!("{} is a secret, and the keyring keeps one value of it", text::line(&wanted.key));
                let help = "keep each in a variable, and give ${env:NAME} as the value, in single quotes";
                return Err(Failure::new(Exit::Usage, error).help(help));
            }
            secret.insert(wanted.key.clone());
        }
        Ok(Self { answers, secret })
    }

    /// Returns the values as they will be in the config, with a reference to the keyring in place of each secret.
    pub(super) fn referring(&self, server: &str) -> Answers {
        let mut answers = self.answers.clone();
        for key in &self.secret {
            answers.put(key, secrets::reference_to(server, key));
        }
        answers
    }

    /// Stores the secrets in the keyring.
    pub(super) async fn keep(&self, server: &str) -> Result<(), Failure> {
        for key in &self.secret {
            let value = self.answers.of(key).first().map(String::as_str).unwrap_or_default();
            let help = "keep it in a variable, and give ${env:NAME} as its value, in single quotes";
            secrets::keep(server, key, value).await.map_err(|failure| failure.help(help))?;
        }
        Ok(())
    }
}

/// Reads the values of `--set`.
fn given(set: &[String], wanted: &[Wanted]) -> Result<Answers, Failure> {
    let mut answers = Answers::default();
    for pair in set {
        let Some((key, value)) = pair.split_once('=') else {
            // The word may itself be a secret whose key is missing, so it is not shown.
            return Err(Failure::new(Exit::Usage, "one value of --set has no key and no `=`").help("--set KEY=VALUE"));
        };
        if !wanted.iter().any(|wanted| wanted.key == key) {
            let error = format!("the server has no input `{}`", text::line(key));
            let known: Vec<_> = wanted.iter().map(|wanted| text::line(&wanted.key).into_owned()).collect();
            let help =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has: {}", known.join(", ")) };
            return Err(Failure::new(Exit::Usage, error).help(help));
        }
        answers.add(key, value);
    }
    Ok(answers)
}

/// Returns the failure for missing values: all of them at once.
fn lacking(missing: &[String], wanted: &[Wanted]) -> Failure {
    let line = |key: &String| {
        let described = wanted.iter().find(|wanted| wanted.key == *key).and_then(|wanted| wanted.description.as_ref());
        let what = described.map(|text| format!(": {}", text::headline(text))).unwrap_or_default();
        format!("{} has no value{what}", text::line(key))
    };
    let all: Vec<_> = missing.iter().map(|key| format!("--set {}=…", text::line(key))).collect();
    Failure::several(Exit::Usage, missing.iter().map(line)).help(all.join(" "))
}

/// Asks for one value until it fits. An empty answer takes the default, or leaves the value out.
async fn ask(wanted: &Wanted, answers: &mut Answers, output: &Output) -> Result<(), Failure> {
    if let Some(description) = &wanted.description {
        output.talk(&text::headline(description));
    }
    if !wanted.choices.is_empty() {
        output.talk(&format!("one of {}", wanted.choices.join(", ")));
    }
    let hint = match (&wanted.default, wanted.is_required) {
        (Some(default), _) => format!(" [{default}]"),
        (None, true) => String::new(),
        (None, false) => " (may be empty)".to_owned(),
    };
    loop {
        output.ask(&format!("{}{hint}:", wanted.key));
        let is_secret = wanted.is_secret;
        let typed = tokio::task::spawn_blocking(move || match is_secret {
            true => Term::stderr().read_secure_line(),
            false => {
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).and_then(|count| match count {
                    0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                    _ => Ok(line),
                })
            }
        });
        let Ok(Ok(typed)) = typed.await else { return Err(Failure::silent(Exit::Interrupted)) };
        let typed = typed.trim();
        if typed.is_empty() && (wanted.default.is_some() || !wanted.is_required) {
            return Ok(());
        }
        match wanted.check(typed) {
            Ok(()) => {
                answers.add(&wanted.key, typed);
                return Ok(());
            }
            Err(error) => output.talk(&error.to_string()),
        }
    }
}
