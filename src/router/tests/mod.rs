//! The router over in-process servers, on a paused clock: parked calls, and the races around them.

mod again;
mod answers;
#[cfg(feature = "server")]
mod apart;
#[cfg(feature = "server")]
mod apps;
mod both;
mod counts;
mod crossing;
#[cfg(feature = "server")]
mod driven;
mod eras;
mod far;
#[cfg(feature = "server")]
mod greedy;
#[cfg(feature = "server")]
mod growth;
mod heart;
#[cfg(feature = "server")]
mod jobs;
#[cfg(feature = "server")]
mod knowing;
mod leaks;
#[cfg(feature = "server")]
mod levels;
mod limits;
mod listed;
mod losses;
mod mailbox;
mod marks;
mod news;
mod observed;
mod own;
mod parked;
mod passing;
mod pool;
mod races;
mod rates;
#[cfg(feature = "server")]
mod roster;
mod route;
#[cfg(feature = "server")]
mod sharing;
mod sight;
mod simulation;
mod support;
#[cfg(feature = "server")]
mod tasks;
mod valid;
#[cfg(feature = "server")]
mod views;
mod whole;
