//! The wire format: JSON-RPC envelopes, ids, methods, revisions, framing.
//!
//! Bytes come in, [`Message`]s go out, and back. **Invariant:** pure: no Tokio, no file, no clock. Params and results
//! stay the bytes they arrived as ([`Raw`]); only `raw.rs` edits them, member by member. Start reading at `message.rs`.

mod capability;
mod error;
pub(crate) mod gather;
mod id;
mod items;
pub(crate) mod lines;
mod message;
#[doc(hidden)]
pub mod meta;
mod method;
mod nested;
mod notes;
mod opened;
pub(crate) mod ours;
mod part;
mod pointer;
pub(crate) mod raw;
mod scan;
pub(crate) mod sse;
mod strings;
mod trace;
pub(crate) mod value;
mod version;
pub(crate) mod whole;

pub use capability::Profile;
pub(crate) use error::{Address, Theirs, escape, escaped};
pub use error::{ErrorObject, code};
pub(crate) use id::ProgressToken;
#[doc(hidden)]
pub use id::RequestId;
pub(crate) use items::Items;
pub use message::Outcome;
#[doc(hidden)]
pub use message::{Frame, Malformed, Message, Notification, Request, Response};
pub(crate) use message::{batch, is_batch};
pub use method::Method;
pub(crate) use nested::Nested;
pub(crate) use notes::Names;
pub(crate) use opened::Opened;
pub(crate) use part::Part;
pub(crate) use pointer::Pointer;
pub(crate) use raw::{Edits, quoted};
pub use raw::{NoJson, Raw};
pub(crate) use scan::DEPTH;
pub(crate) use trace::{TraceParent, trace_of};
#[doc(hidden)]
pub use value::object;
pub(crate) use value::{member, string};
pub use version::{Era, ProtocolVersion};

#[cfg(test)]
mod tests;
