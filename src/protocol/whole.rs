//! A buffer that is filled piece by piece.
//!
//! A large buffer has its own memory mapping: the system provides memory page by page as it is filled, and takes all of
//! it back at once. On the heap, among many short-lived buffers, much of it would stay with the process.

use bytes::Bytes;
use memmap2::MmapMut;

/// The size from which a buffer is mapped. A mapping costs a page fault per page, so common sizes stay on the heap.
const LARGE: usize = 2 * 1024 * 1024;

/// A growing buffer.
#[derive(Debug)]
pub(crate) enum Whole {
    /// On the heap.
    Heap(Vec<u8>),
    /// A mapping, and how many of its bytes are filled.
    Mapped(MmapMut, usize),
}

impl Whole {
    /// Creates an empty buffer with room for `size` bytes.
    pub(crate) fn with_room(size: usize) -> Self {
        if size < LARGE { Self::Heap(Vec::with_capacity(size)) } else { Self::mapped(size) }
    }

    /// Creates an empty mapped buffer; memory is taken only as it is filled.
    pub(crate) fn mapped(size: usize) -> Self {
        match MmapMut::map_anon(size) {
            Ok(map) => Self::Mapped(map, 0),
            // The process has too many mappings.
            Err(_) => Self::Heap(Vec::new()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Heap(bytes) => bytes.len(),
            Self::Mapped(_, length) => *length,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Heap(heap) => heap.extend_from_slice(bytes),
            Self::Mapped(map, length) => match map.get_mut(*length..*length + bytes.len()) {
                Some(place) => {
                    place.copy_from_slice(bytes);
                    *length += bytes.len();
                }
                None => *self = Self::Heap([&map[..*length], bytes].concat()),
            },
        }
    }

    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Self::Heap(heap) => heap.into(),
            Self::Mapped(map, length) => Bytes::from_owner(map).slice(..length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_together_is_what_was_given() {
        for (room, pieces) in [(0, 3), (10, 3), (LARGE, 3), (LARGE, LARGE / 1000 + 2)] {
            for mut whole in [Whole::with_room(room), Whole::mapped(room)] {
                let given: Vec<u8> = (0..pieces * 1000).map(|at| (at % 251) as u8).collect();
                given.chunks(1000).for_each(|piece| whole.push(piece));
                assert_eq!(whole.len(), given.len());
                assert_eq!(whole.freeze(), given, "{pieces} pieces, room for {room}");
            }
        }
    }
}
