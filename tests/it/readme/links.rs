//! Links of the papers and the guide: each leads to a file, and to a heading of it, and each page is linked.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Page, guide, pages_of, root};

/// Returns the lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_block = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        !is_fence && !is_block
    })
}

/// Returns the targets of a page's links within the checkout, as written.
fn targets(page: &Page) -> Vec<&str> {
    let behind = prose(&page.text).flat_map(|line| line.split("](").skip(1));
    let targets = behind.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    targets.filter(|target| !target.contains("://")).collect()
}

/// Returns the anchors of a page's headings, as the usual renderers name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Reports whether a target exists, seen from a page.
fn is_there(page: &Page, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let here = root().join(&page.path);
    let file = if path.is_empty() { here } else { here.parent().unwrap_or(Path::new("")).join(path) };
    match anchor {
        "" => file.exists(),
        anchor => fs::read_to_string(file).is_ok_and(|text| anchors(&text).contains(anchor)),
    }
}

#[test]
fn headings_become_anchors() {
    let text = "# Why not\n\n```sh\n# no heading\n```\n\n## `host.tls`, and a login\n";
    let expected = ["why-not", "hosttls-and-a-login"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut followed = 0;
    for page in pages_of("").iter().chain(&pages_of("docs/")) {
        for target in targets(page) {
            followed += 1;
            if !is_there(page, target) {
                wrong.push(format!("{}: {target}", page.path));
            }
        }
    }
    assert!(followed > 50, "only {followed} links were found");
    assert!(wrong.is_empty(), "links that lead nowhere:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_page_of_the_guide_is_linked() {
    let papers: Vec<Page> = pages_of("").into_iter().chain(pages_of("docs/")).collect();
    for page in guide() {
        let name = page.path.trim_start_matches("docs/");
        let linked = papers.iter().filter(|other| other.path != page.path).any(|other| {
            let mut files = targets(other).into_iter().filter_map(|target| target.split('#').next());
            files.any(|file| file.rsplit('/').next() == Some(name))
        });
        assert!(linked, "no page links {}", page.path);
    }
}
