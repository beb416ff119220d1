//! `mcp-host show`: what the registry has about a server.

use mcp_host::install::{Answers, Choice, Kind, Manifest, Status, Wanted};
use serde::Serialize;

use super::failures::failed;
use super::search::status;
use super::{named, open, tell_age};
use crate::args::{Common, Show};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text::{self, quoted};

/// A server, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    name: &'a str,
    version: &'a str,
    title: Option<&'a str>,
    description: &'a str,
    status: &'static str,
    status_message: Option<&'a str>,
    published_at: Option<&'a str>,
    repository: Option<&'a str>,
    website: Option<&'a str>,
    forms: Vec<Form>,
}

/// A form, as `--json` prints it.
#[derive(Serialize)]
struct Form {
    form: String,
    /// The command or the URL, with placeholders for missing values.
    target: Option<String>,
    inputs: Vec<Input>,
    /// Why it cannot be installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    key: String,
    description: Option<String>,
    default: Option<String>,
    required: bool,
    secret: bool,
    choices: Vec<String>,
}

pub(super) async fn run(args: &Show, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let index = open(&servers::request(common, None))?;
    let (name, version) = named(&args.name);
    let (server, freshness) = index.server(name, version).await.map_err(|error| failed(&error))?;
    tell_age(freshness, &index, output);
    let forms: Vec<Form> = words(&server).into_iter().map(|word| form(&server, word)).collect();
    if output.json {
        let told = Told {
            name: &server.name,
            version: &server.version,
            title: server.title.as_deref(),
            description: &server.description,
            status: status(server.status),
            status_message: server.status_message.as_deref(),
            published_at: server.published_at.as_deref(),
            repository: server.repository.as_deref(),
            website: server.website.as_deref(),
            forms,
        };
        output.value(&told)?;
        return Ok(Exit::Ok);
    }
    let mut lines = head(&server);
    for form in &forms {
        lines.push(String::new());
        lines.push(text::line(&form.form).into_owned());
        match (&form.target, &form.unusable) {
            (_, Some(why)) => lines.push(format!("  cannot be installed: {}", text::line(why))),
            (Some(target), None) => lines.push(format!("  {}", text::line(target))),
            (None, None) => {}
        }
        lines.extend(form.inputs.iter().map(|input| format!("  {}", said(input))));
    }
    output.lines(lines)?;
    output.remark(&format!("mcp-host install {} adds it to the config", quoted(&args.name)));
    Ok(Exit::Ok)
}

/// Returns the lines about a server as a whole. Its texts are escaped.
pub(super) fn head(server: &Manifest) -> Vec<String> {
    let title = server.title.as_ref().map(|title| format!(": {}", text::headline(title))).unwrap_or_default();
    let mut lines = vec![format!("{} {}{title}", text::line(&server.name), text::line(&server.version))];
    lines.push(format!("  {}", text::headline(&server.description)));
    if server.status != Status::Active {
        let why = server.status_message.as_ref().map(|why| format!(": {}", text::headline(why))).unwrap_or_default();
        lines.push(format!("  {}{why}", status(server.status)));
    }
    let mut add = |key: &str, value: Option<&str>| {
        lines.extend(value.map(|value| format!("  {key:<11}{}", text::line(value))));
    };
    add(
        "namespace",
        Some(&format!("{} (the registry has checked who owns this name, and nothing else)", server.namespace())),
    );
    add("source", server.repository.as_deref());
    add("page", server.website.as_deref());
    add("published", server.published_at.as_deref());
    lines
}

/// Returns the words for the server's forms, each once.
fn words(server: &Manifest) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    for form in server.forms() {
        if !words.contains(&form) {
            words.push(form);
        }
    }
    words
}

fn form(server: &Manifest, word: &str) -> Form {
    let read = server.choose(Some(word)).and_then(|choice| {
        if let Choice::Package(Kind::Mcpb, package) = choice {
            return Ok((package.identifier.clone(), Vec::new()));
        }
        let wanted = choice.wanted()?;
        Ok((target(&choice, &wanted)?, wanted))
    });
    match read {
        Ok((target, wanted)) => Form {
            form: word.to_owned(),
            target: Some(target),
            inputs: wanted.into_iter().map(input).collect(),
            unusable: None,
        },
        Err(error) => {
            Form { form: word.to_owned(), target: None, inputs: Vec::new(), unusable: Some(error.to_string()) }
        }
    }
}

/// Returns the command or the URL, with `<KEY>` for missing values.
fn target(choice: &Choice<'_>, wanted: &[Wanted]) -> Result<String, mcp_host::install::Error> {
    let mut answers = Answers::default();
    // A placeholder may not fit some formats, so it is used only where any text fits.
    for wanted in wanted.iter().filter(|wanted| wanted.is_required && wanted.default.is_none()) {
        if wanted.choices.is_empty()
            && wanted.format.as_deref().is_none_or(|format| format == "string" || format == "filepath")
        {
            answers.add(&wanted.key, &format!("<{}>", wanted.key));
        }
    }
    let server = choice.plan(&answers)?.server;
    Ok(match server.url {
        Some(url) => url,
        None => command(&server.command),
    })
}

/// Returns a command as the user would type it.
pub(super) fn command(words: &[String]) -> String {
    let word = |word: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@:=+,<>".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word.clone() } else { quoted(word) }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn input(wanted: Wanted) -> Input {
    Input {
        key: wanted.key,
        description: wanted.description,
        default: wanted.default,
        required: wanted.is_required,
        secret: wanted.is_secret,
        choices: wanted.choices,
    }
}

/// Describes an input in one line: `TOKEN  a secret, required. The token of your account.`
fn said(input: &Input) -> String {
    let mut words = Vec::new();
    if input.secret {
        words.push("a secret".to_owned());
    }
    match &input.default {
        Some(default) => words.push(format!("default {}", text::line(default))),
        None if input.required => words.push("required".to_owned()),
        None => words.push("optional".to_owned()),
    }
    if !input.choices.is_empty() {
        words.push(format!("one of {}", text::line(&input.choices.join(", "))));
    }
    let description = input.description.as_ref().map(|text| format!(". {}", text::headline(text))).unwrap_or_default();
    format!("{}  {}{description}", text::line(&input.key), words.join(", "))
}
