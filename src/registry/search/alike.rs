//! Groups of words with similar meaning for a person who looks for a tool. One table; pure.
//!
//! A word of a query also finds the other words of its groups, at a lower weight. The groups are about what tools do in
//! general, not about any server.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::words;

/// The groups. A word may be in several.
const GROUPS: [&str; 192] = [
    "create make new add generate",
    "delete remove erase drop clear forget",
    "list show enumerate display view",
    "get read fetch retrieve load obtain",
    "search find look query locate",
    "update edit modify change patch replace",
    "write save store put set",
    "send post push publish message notify",
    "run execute invoke launch trigger perform",
    "start open begin connect",
    "stop cancel abort terminate close end",
    "copy duplicate clone fork",
    "move rename relocate",
    "convert transform translate export",
    "download export fetch",
    "upload attach import attachment",
    "folder directory dir path",
    "file document text content",
    "repository repo project",
    "issue ticket bug task",
    "comment remark note annotation feedback",
    "reply answer respond response",
    "user person member people account profile",
    "group team organization",
    "permission policy access role grant allow",
    "password secret protect encrypt lock",
    "key token credential",
    "url link address website site web page",
    "browser tab window page",
    "click press tap button",
    "type fill enter input",
    "screenshot capture snapshot",
    "image picture photo icon draw",
    "chart plot graph diagram visualize",
    "map place location position coordinate geographic",
    "route direction travel journey drive",
    "distance far",
    "time date hour clock timezone",
    "price pricing cost fee expense billing",
    "report summary analysis",
    "test check verify validate",
    "error failure fail problem crash",
    "build compile ci pipeline workflow job",
    "deploy release rollout install",
    "undo revert rollback restore reset",
    "container pod",
    "cluster kubernetes k8s",
    "server host machine node",
    "database db sql postgres",
    "table sheet grid spreadsheet",
    "column field property attribute",
    "record row entry item",
    "count number length size many",
    "schema structure outline layout hierarchy",
    "log history output commit",
    "diff difference change compare",
    "status state health",
    "paper article publication research",
    "cite citation reference bibliography bibtex",
    "watch monitor subscribe alert follow",
    "pr pull merge",
    "library package documentation docs",
    "chat conversation talk channel room thread message",
    "emoji reaction like thumb",
    "remember memory memorize save store fact observation",
    "knowledge fact memory graph",
    "link relation relationship connect connection",
    "queue list stack",
    "first left head front begin",
    "last right tail end recent latest",
    "expire timeout ttl disappear",
    "photo image picture",
    "credential key token secret access",
    "right permission policy privilege",
    "colleague member user employee person",
    "internet web online",
    "street address location house",
    "latitude longitude coordinate geocode",
    "altitude elevation height",
    "hierarchy organization structure tree",
    "trend develop evolution history",
    "share proportion part percentage ratio",
    "intersection overlap common",
    "bold italic format style font",
    "previous back before",
    "next forward",
    "option choice choose pick select",
    "input field form box",
    "scale replica instance",
    "shell command terminal exec",
    "again rerun retry repeat restart",
    "intermittent flaky unstable",
    "succeed success pass status result",
    "version revision commit release",
    "proposal pull request review",
    "accept merge approve",
    "space vault workspace",
    "vector embedding similarity semantic nearest",
    "frontmatter metadata property",
    "subject topic",
    "abstract summary overview",
    "inform notify alert watch",
    "underline highlight emphasize",
    "protect password lock secure",
    "maintenance drain cordon",
    "context switch",
    "drawing diagram chart",
    "broadcast everyone all followers",
    "recent new latest",
    "unit test check",
    "patch diff change modification",
    "merge land integrate combine join",
    "branch line development",
    "version save snapshot checkpoint commit",
    "checkout switch change",
    "stage mark track",
    "history past log",
    "review approve inspect look",
    "reviewer approval opinion feedback",
    "author writer creator",
    "contribution pull request",
    "restaurant shop hotel cafe store station place",
    "distance kilometer mile far",
    "elevation altitude high height",
    "direction route drive walk bike car",
    "disk drive filesystem storage directory",
    "size big large bytes",
    "metadata detail info information property",
    "modify alter edit",
    "permitted allowed permission",
    "document letter report doc",
    "paragraph passage",
    "heading header headline",
    "footnote note bottom",
    "cell box square",
    "shading background fill color",
    "replace swap substitute exchange",
    "sheet page",
    "protect lock restrict",
    "message say talk tell write",
    "recently lately recent",
    "quota limit remaining",
    "meeting event appointment calendar schedule",
    "email mail inbox",
    "participant guest attendee invite",
    "query question ask select",
    "statement sql query",
    "transaction atomic together",
    "mapping type schema structure",
    "scale replica resize",
    "rollback rollout undo previous back",
    "log stdout output print",
    "package application app",
    "upgrade newer update",
    "forward tunnel local localhost",
    "namespace project environment",
    "artifact output file",
    "failure broken fail red wrong",
    "dialog popup alert modal confirm prompt",
    "resize smaller larger size bigger",
    "option dropdown choose pick menu",
    "wait pause until sleep",
    "network request call backend http",
    "hover mouse pointer cursor",
    "console log error warning",
    "attach give grant assign",
    "detach revoke remove take",
    "account login user",
    "share proportion percent",
    "funnel step stage conversion",
    "distribution spread quartile median statistic",
    "trend time month evolution",
    "category compare group",
    "queue list wait",
    "length count many long",
    "score rank ranking sorted",
    "expire ttl disappear lifetime",
    "client connection connected",
    "person entity people contact",
    "stored knowledge memory know",
    "outline chapter section heading content",
    "bill cost spending money",
    "source code program",
    "style lint rule",
    "note page entry journal diary",
    "daily day today",
    "subscribe listen",
    "publish broadcast announce",
    "underused idle unused oversized waste",
    "resource machine instance server",
    "flaky unstable sometimes random",
    "extract scrape text content",
];

/// Returns the other words of the groups that a word, given by its stem, is in.
pub(super) fn alike(stem: &str) -> &'static [String] {
    static TABLE: OnceLock<HashMap<String, Vec<String>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: HashMap<String, Vec<String>> = HashMap::new();
        for group in GROUPS {
            let stems = words::all(group);
            for stem in &stems {
                let others = stems.iter().filter(|other| *other != stem);
                table.entry(stem.clone()).or_default().extend(others.cloned());
            }
        }
        for others in table.values_mut() {
            others.sort_unstable();
            others.dedup();
        }
        table
    });
    table.get(stem).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_finds_those_of_all_its_groups() {
        assert_eq!(alike(&words::all("folders")[0]), ["dir", "directori", "path"]);
        let fetch = alike("fetch");
        assert!(["get", "download", "export"].iter().all(|word| fetch.iter().any(|other| other == word)), "{fetch:?}");
        assert!(alike("xyzzy").is_empty());
    }
}
