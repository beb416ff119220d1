//! Who has called on a connection: nobody, one client, or several. Over a pipe a question does not say during which call it
//! is asked, and a server may ask after the call has ended: so it is one client's only if no other has ever called.

use crate::upstream::Owner;

/// The clients that have called on a connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Callers {
    /// Nobody but the host itself.
    #[default]
    None,
    /// This client alone.
    One(Owner),
    /// Several, or one that has gone since.
    Many,
}

impl Callers {
    /// A request is made for that client.
    pub(super) fn note(&mut self, owner: Owner) {
        *self = match *self {
            _ if owner == Owner::HOST => return,
            Self::None => Self::One(owner),
            Self::One(one) if one == owner => return,
            Self::One(_) | Self::Many => Self::Many,
        };
    }
}
