//! Files of every client and syntax, times every edit, compared from outside: bytes beyond the touched entry, comments,
//! the order of servers, line ends and the byte order mark stay as before.
//!
//! The comparison knows nothing of how edits are made. Only the lines of an entry come from the reader of configs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::clients::TEXTS;
use super::*;

/// Files that people have worked on: comments at every place, servers of several kinds, and other settings around them.
const MORE: &[(&str, &str)] = &[
    (
        "mcp.json",
        "// who: ada\n{\n  // before\n  \"mcpServers\": { // head\n    // a is slow\n    \"a\": {\n      \"command\": \"npx\", // the runner\n      \"args\": [\n        \"-y\", // yes\n        \"@x/a@1.0.0\", /* pinned */\n      ],\n      // \"env\": { \"OLD\": \"1\" },\n      \"package\": { \"type\": \"npm\", \"name\": \"@x/a\", \"version\": \"1.0.0\" }, // from the registry\n    }, // end of a\n\n    /* b is\n       remote */\n    \"b\": { \"url\": \"https://b.example/mcp#x\", \"headers\": { \"A\": \"${B}\" } },\n\n    // c comes last\n    \"c\": { \"command\": \"c\" }\n    // nothing follows\n  },\n  // after\n  \"host\": { \"startupWait\": \"1s\" }, // of the host\n}\n// the end\n",
    ),
    (
        ".config/Code/User/mcp.json",
        "{\n\t// asked once\n\t\"inputs\": [\n\t\t{ \"type\": \"promptString\", \"id\": \"token\", \"description\": \"Token // of ada\", \"password\": true },\n\t],\n\t\"servers\": {\n\t\t\"a\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"npx\",\n\t\t\t\"args\": [\"-y\", \"a@1.0.0\"],\n\t\t\t\"env\": { \"TOKEN\": \"${input:token}\" }, // asked\n\t\t},\n\t\t// the team's\n\t\t\"b\": { \"type\": \"http\", \"url\": \"https://b.example/mcp\" },\n\t},\n}\n",
    ),
    (
        ".claude.json",
        "{\n  \"numStartups\": 41,\n  \"tipsHistory\": { \"new-user\": 3 },\n  \"mcpServers\": {\n    \"a\": {\n      \"type\": \"stdio\",\n      \"command\": \"uvx\",\n      \"args\": [\n        \"a==1.0.0\"\n      ],\n      \"env\": {}\n    },\n    \"b\": {\n      \"type\": \"http\",\n      \"url\": \"https://b.example/mcp\"\n    }\n  },\n  \"oauthAccount\": { \"emailAddress\": \"ada@example.com\" },\n  \"projects\": {\n    \"/home/ada/a\": { \"allowedTools\": [], \"mcpServers\": { \"a\": { \"command\": \"other\" } }, \"history\": [ { \"display\": \"\\\"mcpServers\\\": {\" } ] }\n  }\n}",
    ),
    (
        ".codex/config.toml",
        "# codex\nmodel = \"x\" # the model\n\n[tui]\nnotifications = true # yes\n\n# ---- servers ----\n# a: from npm\n[mcp_servers.a]\ncommand = \"npx\" # the runner\nargs = [\"-y\", \"a@1.0.0\"] # pinned\nstartup_timeout_sec = 60\n# variables of a\n[mcp_servers.a.env]\nTOKEN = \"x # y\" # mine\n\n# b: remote\n[mcp_servers.b] # b\nurl = 'https://b.example/mcp' # literal\n\n[mcp_servers.b.http_headers]\n\"X-Team\" = \"core\"\n\n# the rest\n[profiles.fast]\nmodel = \"y\"\n# the end\n",
    ),
    (
        "mcp-host.toml",
        "# the head\n[host] # first\nstartupWait = \"1s\"\n\n[host.limits]\n\n# a\n[mcpServers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"@x/a@1.0.0\"]\n\n[mcpServers.a.package]\ntype = \"npm\"\nname = \"@x/a\"\nversion = \"1.0.0\" # pinned\n\n[mcpServers.a.tools.read]\nhidden = true # not for agents\n\n# b\n[mcpServers.b]\nurl = \"https://b.example/mcp\"\ncallTimeout = \"30s\"\n",
    ),
    (
        "goose.yaml",
        "# goose\nGOOSE_PROVIDER: x # the provider\nextensions:\n    # built in\n    developer:\n        bundled: true\n        enabled: true\n        name: developer\n        timeout: 300\n        type: builtin\n    # a: mine\n    a:\n        args: # of a\n            - -y # yes\n            - a@1.0.0\n        cmd: npx # the runner\n        description: 'it''s # no comment'\n        enabled: true\n        env_keys: []\n        envs: {}\n        name: a\n        timeout: 300\n        type: stdio\n\n    # b: remote\n    b:\n        enabled: true\n        name: b\n        type: streamable_http\n        uri: https://b.example/mcp#x\n# after\nGOOSE_MODE: auto\n",
    ),
    (
        "config.yaml",
        "# continue\nname: Mine\nversion: 1.0.0 # the first\nmodels: &models\n  - name: x # local\nmcpServers:\n  # a: mine\n  - name: a # its name\n    command: npx\n    args:\n      - -y\n      - a@1.0.0 # pinned\n    env:\n      TOKEN: ${{ secrets.TOKEN }}\n  # b: remote\n  - { name: b, type: sse, url: \"https://b.example/sse\" } # in one line\n# after\nrules:\n  - \"be brief # really\"\nother: *models\n",
    ),
    (
        "mcp-host.yaml",
        "# ours\n---\nhost:\n  startupWait: 1s # short\n\nmcpServers:\n\n  # a: from npm\n  a:\n    command: npx\n    args: [-y, \"@x/a@1.0.0\"] # pinned\n    package:\n      type: npm\n      name: \"@x/a\"\n      version: \"1.0.0\"\n\n  # b: a text\n  b:\n    command: sh\n    args:\n      - -c\n      - |\n        # no comment\n        exec b\n\n  # nothing follows\n",
    ),
];

/// Each file in five variants.
fn all() -> Vec<(&'static str, String)> {
    let clients = TEXTS.iter().map(|(_, name, text)| (*name, *text));
    let files: BTreeSet<(&str, &str)> = FILES.iter().chain(MORE).copied().chain(clients).collect();
    assert!(files.len() >= 60, "{} files", files.len());
    let variants = |(name, text): (&'static str, &'static str)| {
        let crlf = text.replace('\n', "\r\n");
        let tabs = if name.ends_with("ml") { text.to_owned() } else { text.replace("  ", "\t") };
        [text.to_owned(), crlf.clone(), format!("\u{feff}{crlf}"), tabs, text.trim_end().to_owned()]
            .map(|text| (name, text))
    };
    files.into_iter().flat_map(variants).collect()
}

/// How an edit may change the bytes of its entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It adds text, and removes none.
    Comes,
    /// It removes text of the entry, and adds none.
    Goes,
    /// It replaces text of the entry.
    Changes,
}

/// An edit as a command makes it: its name, the server that it changes, its changes.
struct Made {
    word: &'static str,
    kind: Kind,
    server: String,
    changes: Vec<Change>,
}

fn edits(text: &str, name: &str) -> Vec<Made> {
    let package = crate::config::Package::new(crate::config::PackageKind::Npm, "@x/new", "1.0.0");
    let mut installed = NewServer::process("npx", ["-y", "@x/new@1.0.0"]);
    installed.package = Some(package);
    let linked = NewServer::process("/opt/mcp-host", ["stdio", "--config", "/home/ada/my host.json"]);
    let imported =
        NewServer { headers: vec![("A".to_owned(), "${A}".to_owned())], ..NewServer::at("https://i.example/mcp") };
    let put = |name: &str, server: &NewServer| Change::Put { name: name.to_owned(), entry: server.own_entry(name) };
    let made = |word, kind, server: &str, changes| Made { word, kind, server: server.to_owned(), changes };
    let comes = |word, change: Change| made(word, Kind::Comes, "", vec![change]);
    let mut all = vec![
        comes("add", add("new")),
        comes("link", Change::Add { name: "mcp-host".to_owned(), server: linked }),
        comes("install", put("new", &installed)),
        comes("import", put("new", &imported)),
    ];
    for server in names(text, &path(name), &request()) {
        let set = |at: &[&str], value: &str| Change::Text {
            name: server.clone(),
            at: at.iter().map(|word| (*word).to_owned()).collect(),
            value: value.to_owned(),
        };
        let update =
            vec![set(&["args", "1"], "@x/a@2.0.0"), set(&["package", "version"], "2.0.0"), set(&["env", "NEW"], "x")];
        all.extend([
            made("remove", Kind::Goes, &server, vec![remove(&server)]),
            made("disable", Kind::Changes, &server, vec![switch(&server, false)]),
            made("enable", Kind::Changes, &server, vec![switch(&server, false), switch(&server, true)]),
            made("rename", Kind::Changes, &server, vec![rename(&server, "other name")]),
            made("update", Kind::Changes, &server, update),
        ]);
    }
    all
}

/// The comments of a text in their order, each with its place.
fn comments(text: &str, name: &str) -> Vec<Range<usize>> {
    let is_json = !name.ends_with("ml");
    let (mut found, mut at, mut quote) = (Vec::new(), 0, None);
    let end_of_line = |at: usize| text[at..].find('\n').map_or(text.len(), |end| at + end);
    while let Some(c) = text[at..].chars().next() {
        let before = text[..at].chars().next_back().unwrap_or('\n');
        let end = match (quote, c) {
            (Some('"'), '\\') => at + 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            (Some(open), c) if c == open => {
                quote = None;
                at + 1
            }
            (Some(_), c) => at + c.len_utf8(),
            (None, '"') => {
                quote = Some('"');
                at + 1
            }
            // An apostrophe inside of a word opens nothing.
            (None, '\'') if !is_json && !before.is_alphanumeric() => {
                quote = Some('\'');
                at + 1
            }
            (None, '/') if is_json && text[at..].starts_with("//") => end_of_line(at),
            (None, '/') if is_json && text[at..].starts_with("/*") => at + text[at..].find("*/").unwrap() + 2,
            (None, '#') if !is_json && before.is_whitespace() => end_of_line(at),
            (None, c) => at + c.len_utf8(),
        };
        if quote.is_none() && end > at + c.len_utf8() && matches!(c, '/' | '#') {
            found.push(at..end);
        }
        at = end;
    }
    found
}

fn without_comments(text: &str, place: Range<usize>, name: &str) -> String {
    let mut rest = String::new();
    for (at, c) in text[place.clone()].char_indices() {
        if !comments(text, name).iter().any(|comment| comment.contains(&(place.start + at))) {
            rest.push(c);
        }
    }
    rest
}

fn is_blank(text: &str) -> bool {
    text.trim_matches([' ', '\t', '\r', '\n', ',']).is_empty()
}

/// Returns the bytes of the lines of an entry, from its name to its end.
fn lines_of(text: &str, name: &str, server: &str) -> Range<usize> {
    let (path, request) = (path(name), request());
    let file = File::open(text, &path, &request).unwrap();
    let shape = file.shape().unwrap();
    let entry = file.entry(&shape, server).unwrap();
    let mut last = entry.at.line;
    deepest(entry.node, &mut last);
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line = |number: usize| {
        let start = starts[number - 1];
        &text[start..starts.get(number).copied().unwrap_or(text.len())]
    };
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let first = indent(line(entry.at.line));
    // Lines that are indented more belong to the entry, and so does the bracket that closes it.
    while last < starts.len() {
        let next = line(last + 1);
        let mut below = (last + 1..=starts.len()).map(line).filter(|line| !line.trim().is_empty());
        let is_inside = file.syntax != Syntax::Toml && below.next().is_some_and(|line| indent(line) > first);
        let closes = indent(next) == first && next.trim_start().starts_with(['}', ']']);
        if !is_inside && !closes {
            break;
        }
        last += 1;
        if closes {
            break;
        }
    }
    let end = |last: usize| starts.get(last).copied().unwrap_or(text.len());
    let begin = starts[entry.at.line - 1];
    // A text of several lines ends with its quotes.
    while last < starts.len() && text[begin..end(last)].matches("\"\"\"").count() % 2 == 1 {
        last += 1;
    }
    begin..end(last)
}

fn deepest(node: &Node, last: &mut usize) {
    // An alias is read at the place of its anchor, which stands above.
    *last = (*last).max(node.at.line);
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| deepest(item, last)),
        Value::Object(members) => members.iter().for_each(|member| {
            *last = (*last).max(member.at.line);
            deepest(&member.node, last);
        }),
        _ => {}
    }
}

/// Returns how many bytes two texts have in common at their beginnings, and then at their ends.
fn common(before: &str, after: &str) -> (usize, usize) {
    let same = before.chars().zip(after.chars()).take_while(|(one, other)| one == other);
    let head: usize = same.map(|(c, _)| c.len_utf8()).sum();
    let ends = before[head..].chars().rev().zip(after[head..].chars().rev());
    (head, ends.take_while(|(one, other)| one == other).map(|(c, _)| c.len_utf8()).sum())
}

/// Returns what an edit changed beyond its entry.
fn lost(before: &str, after: &str, name: &str, made: &Made) -> Option<&'static str> {
    if before.starts_with('\u{feff}') != after.starts_with('\u{feff}') {
        return Some("the byte order mark");
    }
    let returns = if before.contains("\r\n") { after.matches('\n').count() } else { 0 };
    if after.matches('\r').count() != returns || after.matches("\r\n").count() != returns {
        return Some("the line ends");
    }
    let order = |text: &str| {
        let mut names = names(text, &path(name), &request());
        names.retain(|name| *name != made.server && !["new", "mcp-host", "other name"].contains(&name.as_str()));
        names
    };
    if order(before) != order(after) {
        return Some("the order of servers");
    }
    let (before, after) = (before.trim_start_matches('\u{feff}'), after.trim_start_matches('\u{feff}'));
    let (mut head, tail) = common(before, after);
    let (mut end, mut come_end) = (before.len() - tail, after.len() - tail);
    let entry = if made.kind == Kind::Comes { head..head } else { lines_of(before, name, &made.server) };
    // If the text before the removed part ends like that part itself, the removal may as well have started earlier.
    while made.kind != Kind::Comes && end > entry.end {
        let last = |text: &str| text.chars().next_back();
        let Some(c) = last(&before[..head]) else { break };
        let ends_alike = |text: &str| text.is_empty() || last(text) == Some(c);
        if !ends_alike(&before[head..end]) || !ends_alike(&after[head..come_end]) {
            break;
        }
        (head, end, come_end) = (head - c.len_utf8(), end - c.len_utf8(), come_end - c.len_utf8());
    }
    let (gone, come) = (&before[head..end], &after[head..come_end]);

    let texts =
        |text: &str, places: &[Range<usize>]| places.iter().map(|place| text[place.clone()].to_owned()).collect();
    let (was, is) = (comments(before, name), comments(after, name));
    let outside: Vec<_> = was.iter().filter(|place| !entry.contains(&place.start)).cloned().collect();
    let (all, rest, now): (Vec<String>, Vec<String>, Vec<String>) =
        (texts(before, &was), texts(before, &outside), texts(after, &is));
    let mut left = now.iter();
    let keeps_comments = match made.kind {
        Kind::Goes => rest.iter().all(|comment| left.any(|now| now == comment)),
        Kind::Comes | Kind::Changes => all == now,
    };
    if !keeps_comments {
        return Some("a comment");
    }
    let mut letters = gone.chars();
    let is_right = match made.kind {
        Kind::Comes => is_blank(gone) || ["null", "{}"].contains(&gone.trim()),
        Kind::Goes => come.chars().all(|c| letters.any(|gone| gone == c)) || ["{}", "[]"].contains(&come.trim()),
        Kind::Changes => true,
    };
    if !is_right {
        return Some("text that the edit is not about");
    }
    let ahead = head..entry.start.min(end).max(head);
    let behind = entry.end.max(head).min(end)..end;
    let is_more = [ahead, behind].into_iter().any(|place| !is_blank(&without_comments(before, place, name)));
    is_more.then_some("text beside the entry")
}

#[test]
fn every_edit_of_every_file_keeps_all_but_its_entry() {
    let mut made_of: BTreeMap<&str, usize> = BTreeMap::new();
    let mut refused: BTreeSet<String> = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, text) in all() {
        for made in edits(&text, name) {
            let mut now = text.clone();
            // One after the other: each has one place of its own.
            for wanted in &made.changes {
                match change(&now, name, wanted) {
                    Ok(after) => {
                        if let Some(what) = lost(&now, &after, name, &made) {
                            let Made { word, server, .. } = &made;
                            wrong.push(format!("{what}: {word} of {server:?} in {name}:\n{now}\n---->\n{after}"));
                        }
                        *made_of.entry(made.word).or_default() += 1;
                        now = after;
                    }
                    // Some entries do not have these values.
                    Err(_) if made.word == "update" => {}
                    Err(why) => drop(refused.insert(format!("{}: {name}: {why:?}", made.word))),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} edits lose something:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n====\n")
    );
    let known = [
        // Entries of our own format only fit into files of this format.
        "this config is written in the words of another client, and gets no entries of others",
        "is the last server of this file, which is not read without one",
        "cannot be edited here without changing something else",
    ];
    assert!(refused.iter().all(|why| known.iter().any(|known| why.contains(known))), "{refused:#?}");
    let unproven = refused.iter().filter(|why| why.contains(known[2])).count();
    assert!(unproven <= 5 && made_of.values().all(|count| *count >= 150), "{made_of:?}, {refused:#?}");
}
