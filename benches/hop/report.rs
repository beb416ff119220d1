//! The tables that the user reads.
#![expect(clippy::print_stdout, reason = "the report is what a benchmark prints")]

use crate::hop::{Figured, Figures};
use crate::rows::{Bound, Row};
use crate::state::Values;

/// The outcome of a row.
#[derive(Debug)]
pub(crate) enum Outcome {
    Hop(Figured),
    State { unit: &'static str, values: Values },
    Failed(anyhow::Error),
}

/// Prints both tables, and what could not be measured.
pub(crate) fn print(outcomes: &[(&Row, Outcome)]) {
    let mut requests = vec![cells([
        "row",
        "direct p50",
        "floor p50",
        "host p50",
        "floor CPU",
        "host CPU",
        "host/floor",
        "gate",
        "",
        "goal",
        "",
    ])];
    let mut states = vec![cells(["row", "unit", "direct", "floor", "host", "gate", "", "goal", ""])];
    let mut failures = Vec::new();
    for (row, outcome) in outcomes {
        match outcome {
            Outcome::Hop(figured) => requests.push(request_line(row, figured)),
            Outcome::State { unit, values } => states.push(state_line(row, unit, values)),
            Outcome::Failed(cause) => failures.push(format!("{}: {cause:#}", row.name)),
        }
    }
    if requests.len() > 1 {
        println!("\nRequests: latency in microseconds; CPU of the program in the middle, seconds per 1,000 requests\n");
        table(&requests);
        println!(
            "\nhost/floor is of CPU, the median of the ratios of single rounds. In \"10 servers : 1\" the floor is the"
        );
        println!(
            "host itself with one server, in \"100 rules : 0\" the host itself without rules, in \"2 threads : 1\" the host"
        );
        println!("itself on one thread.");
    }
    if states.len() > 1 {
        println!("\nStates: the gate is on the host's own figure\n");
        table(&states);
    }
    for failure in failures {
        println!("\nnot measured: {failure}");
    }
}

fn request_line(row: &Row, figured: &Figured) -> Vec<String> {
    let p50 = |figures: Option<Figures>| number(figures.map(|figures| figures.p50.as_secs_f64() * 1e6), 1);
    let cpu = |figures: Option<Figures>| figures.and_then(|figures| figures.cpu);
    let (floor, host) = (cpu(figured.floor), cpu(figured.host));
    let mut line = vec![row.name.to_owned(), p50(figured.direct), p50(figured.floor), p50(figured.host)];
    line.extend([number(floor, 4), number(host, 4), number(figured.ratio, 2)]);
    line.extend(verdicts(row, figured.ratio));
    line
}

fn state_line(row: &Row, unit: &str, values: &Values) -> Vec<String> {
    let mut line = vec![row.name.to_owned(), unit.to_owned()];
    line.extend([values.direct, values.floor, values.host].map(|value| number(value, 2)));
    line.extend(verdicts(row, values.host));
    line
}

/// Returns the cells for the row's gate and goal: of each, the bound, and whether the figure meets it.
fn verdicts(row: &Row, figure: Option<f64>) -> Vec<String> {
    let verdict = |bound: Bound| {
        let (asked, most) = match bound {
            Bound::Times(most) => (format!("<= {most} x"), most),
            Bound::Most(most) => (format!("<= {most}"), most),
            Bound::Free => return ["-".to_owned(), String::new()],
        };
        let holds = figure.map_or("-", |figure| if figure <= most { "holds" } else { "FAILS" });
        [asked, holds.to_owned()]
    };
    [verdict(row.gate), verdict(row.goal)].concat()
}

pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

pub(crate) fn cells<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

/// Prints lines as a Markdown table; the first one is the head.
pub(crate) fn table(lines: &[Vec<String>]) {
    let width = |column: usize| lines.iter().filter_map(|line| Some(line.get(column)?.len())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    for (at, line) in lines.iter().enumerate() {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("| {} |", padded.join(" | "));
        if at == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            println!("|{}|", rule.join("|"));
        }
    }
}
