//! The ranking on the labelled queries of `tests/retrieval`, over the lists of real servers.
//!
//! `MCP_HOST_RETRIEVAL=1` prints what was found for each query; `tests/retrieval/run` reads that.

#![expect(clippy::print_stdout, reason = "`tests/retrieval/run` reads it")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::super::search::{Detail, Index, Plain, described, structured};
use super::*;

const RECORDED: &str = include_str!("../../../tests/fixtures/definitions/recorded.jsonl");
const SERVERS: &str = include_str!("../../../tests/retrieval/servers.txt");
const FROZEN: &str = include_str!("../../../tests/retrieval/frozen.tsv");
const TUNE: &str = include_str!("../../../tests/retrieval/tune.tsv");
const DEVELOP: &str = include_str!("../../../tests/retrieval/develop.tsv");
const SECOND: &str = include_str!("../../../tests/retrieval/second.tsv");

fn recorded() -> Catalog {
    let aliases: BTreeMap<&str, &str> = SERVERS.lines().filter_map(|line| line.split_once(' ')).collect();
    let packages: BTreeMap<String, Value> = RECORDED
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|mut server| (server["package"].as_str().unwrap().to_owned(), server["tools"].take()))
        .collect();
    let contribution = |(at, (alias, package)): (usize, (&&str, &&str))| {
        let tools: Vec<String> = packages[*package].as_array().unwrap().iter().map(Value::to_string).collect();
        server(at, alias, Prefix::Always, &offer(&[(Kind::Tools, &tools.join(","))]))
    };
    let all: Vec<Contribution> = aliases.iter().enumerate().map(contribution).collect();
    build(&all)
}

fn index() -> Arc<Index> {
    recorded().index()
}

/// Returns recall and hits within the first five tools, in percent of the queries.
fn measured(name: &str, queries: &str) -> (f64, f64) {
    let (index, prints) = (index(), std::env::var_os("MCP_HOST_RETRIEVAL").is_some());
    assert!(index.entries().len() >= 250);
    let (mut recall, mut hits, mut count) = (0.0, 0.0, 0.0);
    for line in queries.lines() {
        let mut parts = line.split('\t');
        let (kind, query, wanted) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let wanted: Vec<&str> = wanted.split(' ').collect();
        let ranks = index.rank(query, None);
        let found: Vec<String> = ranks
            .iter()
            .take(5)
            .map(|at| {
                let entry = &index.entries()[*at];
                format!("{}:{}", entry.server(), entry.raw_name())
            })
            .collect();
        let right = wanted.iter().filter(|tool| found.iter().any(|found| found == *tool)).count();
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let share = right as f64 / wanted.len() as f64;
        (recall, hits, count) = (recall + share, hits + f64::from(u8::from(right > 0)), count + 1.0);
        if prints {
            println!("\n{name}\t{kind}\t{query}\t{}", found.join(" "));
        }
    }
    (100.0 * recall / count, 100.0 * hits / count)
}

#[test]
fn retrieval_of_five_tools_costs_few_tokens() {
    let index = index();
    let (mut costs, mut objects): (Vec<usize>, Vec<usize>) = Default::default();
    for line in [TUNE, DEVELOP, SECOND, FROZEN].into_iter().flat_map(str::lines) {
        let ranks = index.rank(line.split('\t').nth(1).unwrap(), None);
        let lines = ranks.iter().take(5).map(|at| described(&index.entries()[*at], Detail::Signature));
        costs.push(tokens::estimate(&lines.collect::<Vec<_>>().join("\n")));
        let tools = ranks.iter().take(5).map(|at| structured(&index.entries()[*at], Detail::Signature).to_string());
        objects.push(tokens::estimate(&tools.collect::<Vec<_>>().join(",")));
    }
    // A client gives its model the lines or the objects.
    for (mut costs, most) in [(costs, 300), (objects, 400)] {
        costs.sort_unstable();
        let p95 = costs[costs.len() * 95 / 100];
        assert!(p95 <= most, "p95 {p95}, at most {:?}", costs.last());
    }
}

/// What a tokenizer of OpenAI (o200k) counts of each list: package, tokens. `tests/retrieval/tokens --write` writes it.
const COUNTED: &str = include_str!("../../../tests/retrieval/tokens.tsv");

#[test]
fn retrieval_of_tokens_is_near_what_a_tokenizer_counts() {
    let prints = std::env::var_os("MCP_HOST_RETRIEVAL").is_some();
    let counted: BTreeMap<&str, f64> = COUNTED
        .lines()
        .filter_map(|line| line.split_once('\t').map(|(package, tokens)| (package, tokens.parse().unwrap())))
        .collect();
    let (mut all, mut ours) = (0.0, 0.0);
    for server in RECORDED.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let (package, tools) = (server["package"].as_str().unwrap(), server["tools"].as_array().unwrap());
        let mut estimated = 0.0;
        for tool in tools.iter().map(Value::to_string) {
            if prints {
                println!("\ntokens\t{package}\t{}\t{tool}", tokens::estimate(&tool));
            }
            #[expect(clippy::cast_precision_loss, reason = "far less than 2^52")]
            let of_one = tokens::estimate(&tool) as f64;
            estimated += of_one;
        }
        (all, ours) = (all + counted[package], ours + estimated);
        let off = (estimated / counted[package] - 1.0).abs();
        assert!(tools.len() < 5 || off <= 0.2, "{package}: {estimated}, but it has {} tokens", counted[package]);
    }
    assert!((ours / all - 1.0_f64).abs() <= 0.05, "{ours}, but there are {all}");
}

#[test]
fn retrieval_of_the_queries_to_tune() {
    let (recall, hits) = measured("tune", TUNE);
    assert!(recall >= 85.0 && hits >= 85.0, "recall@5 {recall:.1}, hit@5 {hits:.1}");
}

#[test]
fn retrieval_of_the_queries_to_develop_on() {
    let (recall, hits) = measured("develop", DEVELOP);
    assert!(recall >= 74.0 && hits >= 77.0, "recall@5 {recall:.1}, hit@5 {hits:.1}");
    let (recall, hits) = measured("second", SECOND);
    assert!(recall >= 74.0 && hits >= 75.0, "recall@5 {recall:.1}, hit@5 {hits:.1}");
}

#[test]
fn retrieval_of_the_frozen_queries() {
    let (recall, hits) = measured("frozen", FROZEN);
    assert!(recall >= 83.0 && hits >= 86.0, "recall@5 {recall:.1}, hit@5 {hits:.1}");
}

/// Asserts that the index of a catalog ranks as the plain ranking does.
fn assert_as_plain<'a>(catalog: &Catalog, queries: impl Iterator<Item = &'a str>) {
    let (index, plain) = (catalog.index(), Plain::new(catalog.entries(Kind::Tools).to_vec()));
    for query in queries {
        for server in [None, Some("a"), Some("github")] {
            assert_eq!(index.rank(query, server), plain.rank(query, server), "{query:?} {server:?}");
        }
    }
}

#[test]
fn retrieval_ranks_as_the_plain_ranking_does() {
    let queries = [TUNE, DEVELOP, SECOND, FROZEN].into_iter().flat_map(str::lines);
    let queries = queries.filter_map(|line| line.split('\t').nth(1));
    // A few words are misspelt.
    let odd = ["", "_", "serach fiels", "kuberntes pdos", "get_file-contents", "搜索文件", "x".repeat(300).leak()];
    assert_as_plain(&recorded(), queries.chain(odd));
}

/// Returns a tool that says these words, in the places that the numbers choose.
fn saying(number: usize, words: &[(usize, &str)]) -> String {
    let said = |place: usize| {
        let its: Vec<&str> = words.iter().filter(|(of, _)| *of == place).map(|(_, word)| *word).collect();
        its.join(" ")
    };
    let inner = json!({ said(6): { "description": said(7) } });
    let mut tool = json!({
        "name": format!("t{number}_{}", said(0).replace(' ', "-")),
        "inputSchema": {
            "type": "object",
            "properties": { said(3): { "properties": inner, "description": said(4) }, said(5): {} },
        },
    });
    for (place, member) in [(1, "title"), (2, "description")] {
        if !said(place).is_empty() {
            tool[member] = said(place).into();
        }
    }
    tool.to_string()
}

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(WORDS.split(' ').collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn retrieval_of_any_tools_ranks_as_the_plain_ranking_does(
        tools in prop::collection::vec(prop::collection::vec((0_usize..8, word()), 0..30), 0..40),
        queries in prop::collection::vec(prop::collection::vec(word(), 0..6), 1..6),
    ) {
        let tools: Vec<String> = tools.iter().enumerate().map(|(at, words)| saying(at, words)).collect();
        let servers = tools.chunks(7).zip(["a", "b", "c", "d", "e", "f"]).enumerate();
        let all: Vec<Contribution> = servers
            .map(|(at, (its, alias))| server(at, alias, Prefix::Always, &offer(&[(Kind::Tools, &its.join(","))])))
            .collect();
        let queries: Vec<String> = queries.iter().map(|words| words.join(" ")).collect();
        assert_as_plain(&build(&all), queries.iter().map(String::as_str));
    }
}

/// Words that mean one another, that are spelled nearly alike, that say nothing, and that are no words.
const WORDS: &str = "file. files fiel folder directory Read reads fetch getFile list_open-PRs the of datei lesen 搜索文件 文件 名 \
    HTTPServer repository repo Repositorys kubernetes kubernets issue! über e.g. __ a_b_c searchable authentication authenticate \
    authorization x 42 ß İstanbul";

#[test]
fn retrieval_reads_only_the_tools_of_the_server_that_changed() {
    let naming = Arc::new(Naming::default());
    let part = |at: usize, alias: &str, names: &[&str]| {
        Arc::new(Part::new(server(at, alias, Prefix::Auto, &tools(names)), &naming))
    };
    let merge = |parts: &[Arc<Part>]| Catalog::merge(parts, &naming, &mut Owners::default());
    let mut parts = vec![part(0, "a", &["read_file"]), part(1, "b", &["write_file"]), part(2, "c", &["open_file"])];
    let before = merge(&parts).index();
    parts[1] = part(1, "b", &["write_file", "move_file"]);
    let catalog = merge(&parts);
    assert_eq!((catalog.index().shared(&before), before.shared(&before)), (2, 3));
    assert_as_plain(&catalog, ["file", "move", "write"].into_iter());
}
