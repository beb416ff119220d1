//! `sandbox` of a server: what its process can no longer do, what it still can, and what is told of it.

mod life;
mod support;
mod ways;
