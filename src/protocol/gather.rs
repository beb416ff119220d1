//! A buffer of incoming bytes from which frames (whole messages) are cut; HTTP bodies are read into it as well.
//!
//! A small frame is a slice of the read buffer; a larger one is the buffer itself, which doubles as it grows. An even
//! larger frame continues in pieces of fixed size, which are joined when its end is found. A buffer that keeps doubling
//! copies everything at once, holds the old and the new memory meanwhile, and ends with up to twice the size.
//! **Invariant:** a large frame has its own memory and almost no spare room, so counting its bytes counts the memory it
//! holds.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

use super::whole::Whole;

/// Bytes in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// The buffers in order. None is empty, unless it is the only one.
    pieces: VecDeque<BytesMut>,
    /// How many of the first bytes were searched without a match.
    searched: usize,
    /// The room that the last large frame took: the next is often as large.
    hint: usize,
}

/// The maximum size of the first piece, which grows: most responses fit and are never joined.
const FIRST: usize = 2 * STEP;
/// The size of each further piece.
const STEP: usize = 1024 * 1024;
/// The size from which a frame gets its own memory.
const LARGE: usize = 64 * 1024;
/// The largest hint for which memory is reserved as soon as the first bytes come.
const SOON: usize = 4 * LARGE;
/// The least free room for which a buffer is still read into.
const SPARE: usize = 4 * 1024;
/// The largest capacity that is kept for small frames.
const ROOM: usize = 2 * LARGE;
/// The most room that is asked for while small frames are expected.
const SMALL: usize = 8 * 1024;

thread_local! {
    /// A small buffer that was released. Most readers wait most of the time, so one is enough for all readers of a
    /// thread.
    static IDLE: Cell<BytesMut> = Cell::default();
}

impl Gather {
    /// Creates an empty buffer with room for `size` bytes in one piece.
    pub(crate) fn with_room(size: usize) -> Self {
        Self { pieces: [BytesMut::with_capacity(size)].into(), ..Self::default() }
    }

    /// The number of bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(BytesMut::len).sum()
    }

    /// Returns the first `count` bytes, or as many as are in the first piece.
    pub(crate) fn head(&self, count: usize) -> &[u8] {
        self.pieces.front().map_or(&[], |first| &first[..count.min(first.len())])
    }

    pub(crate) fn last(&self) -> Option<u8> {
        self.pieces.back()?.last().copied()
    }

    /// Returns the buffer for the next bytes. It has `room` bytes free; or fewer, if they are probably enough, because the
    /// frame before this one would have fitted, or small frames are expected.
    pub(crate) fn space(&mut self, room: usize) -> &mut BytesMut {
        if self.pieces.is_empty() && room <= SMALL {
            self.pieces.push_back(IDLE.take());
        }
        let free = self.pieces.back().map_or(0, |last| last.capacity() - last.len());
        let is_enough = (self.hint > 0 || room <= SMALL) && free >= SPARE.min(room);
        let ends_here = self.pieces.len() == 1 && is_enough;
        self.place(if ends_here { free } else { room })
    }

    /// Returns the buffer for the next bytes, with `room` bytes free.
    fn place(&mut self, room: usize) -> &mut BytesMut {
        let most = self.most();
        match self.pieces.back() {
            None => self.pieces.push_back(BytesMut::new()),
            Some(last) if last.is_empty() || last.len() + room <= last.capacity().max(most) => {}
            Some(_) => self.pieces.push_back(BytesMut::with_capacity(STEP)),
        }
        let at = self.pieces.len() - 1;
        let last = &mut self.pieces[at];
        let (length, hint) = (last.len(), self.hint);
        // A frame that proves to be large is moved once or twice, not at each doubling from here on.
        let wanted = match length + room {
            needed if at > 0 || needed <= last.capacity() => 0,
            needed if needed <= hint && (length >= LARGE || room >= LARGE && hint <= SOON) => hint,
            _ if length >= LARGE => STEP,
            _ => 0,
        };
        last.reserve(room.max(wanted.saturating_sub(length)));
        last
    }

    /// The maximum size of the last piece.
    fn most(&self) -> usize {
        if self.pieces.len() > 1 { STEP } else { FIRST }
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let most = self.most();
            let left = self.pieces.back().map_or(most, |last| last.capacity().max(most).saturating_sub(last.len()));
            let (now, later) = bytes.split_at(bytes.len().min(if left == 0 { STEP } else { left }));
            self.place(now.len()).extend_from_slice(now);
            bytes = later;
        }
    }

    /// Returns the first position that `search` finds. Bytes that were searched before are skipped.
    pub(crate) fn find(&mut self, search: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        let mut before = 0;
        for piece in &self.pieces {
            let from = self.searched.saturating_sub(before);
            if let Some(at) = piece.get(from..).and_then(&search) {
                return Some(before + from + at);
            }
            before += piece.len();
        }
        self.searched = before;
        None
    }

    /// Cuts off the first `count` bytes, or all if there are fewer.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        self.searched = 0;
        let Some(first) = self.pieces.front_mut() else { return Bytes::new() };
        if count >= LARGE {
            self.hint = (count + spare(count)).min(FIRST);
        }
        let whole = if count > first.len() { self.join(count) } else { cut(first, count) };
        self.tidy();
        whole
    }

    /// If little is left in a large buffer, moves it to a small one.
    fn tidy(&mut self) {
        let has_more = self.pieces.len() > 1;
        match self.pieces.front_mut() {
            Some(first) if first.is_empty() && has_more => drop(self.pieces.pop_front()),
            Some(first) if first.len() < LARGE && first.capacity() > ROOM => *first = first[..].into(),
            _ => {}
        }
    }

    /// Joins the first `count` bytes. Each copied piece is freed at once.
    fn join(&mut self, count: usize) -> Bytes {
        let mut whole = Whole::with_room(count.min(self.len()));
        while let Some(mut piece) = self.pieces.pop_front() {
            let mine = piece.len().min(count - whole.len());
            whole.push(&piece[..mine]);
            piece.advance(mine);
            if !piece.is_empty() {
                // The piece holds more memory than its remaining capacity shows.
                let is_little = piece.capacity() <= ROOM;
                self.pieces.push_front(if is_little { piece[..].into() } else { piece });
                break;
            }
        }
        whole.freeze()
    }

    /// Drops the first `count` bytes, at most those of the first piece.
    pub(crate) fn skip(&mut self, count: usize) {
        self.searched = 0;
        if let Some(first) = self.pieces.front_mut() {
            first.advance(count.min(first.len()));
        }
    }

    /// Gives back the memory, if there are no bytes.
    pub(crate) fn release(&mut self) {
        if self.len() == 0 {
            let last = self.pieces.pop_back().filter(|last| (SPARE..=SMALL).contains(&last.capacity()));
            if let Some(last) = last {
                IDLE.set(last);
            }
            self.pieces.clear();
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Cuts off a frame. A small one stays in place if the piece is small. Otherwise the smaller part is copied: the frame
/// or what follows it.
fn cut(piece: &mut BytesMut, count: usize) -> Bytes {
    if count < LARGE && piece.capacity() <= ROOM {
        return piece.split_to(count).freeze();
    }
    if count < LARGE || piece.len() - count > count {
        let whole = Bytes::copy_from_slice(&piece[..count]);
        piece.advance(count);
        if piece.capacity() <= ROOM {
            // From here on frames stay in place.
            *piece = piece[..].into();
        }
        return whole;
    }
    let rest = piece[count..].into();
    piece.truncate(count);
    let mut whole = Vec::from(std::mem::replace(piece, rest));
    // Memory that is freed in the size it was allocated in is soon reused.
    if whole.capacity() - count > spare(count) {
        whole.shrink_to_fit();
    }
    whole.into()
}

/// The spare room that a large frame may keep.
fn spare(count: usize) -> usize {
    count / 8
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Returns bytes that depend on their position.
    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at / 251 + at) as u8).collect()
    }

    #[test]
    fn what_goes_in_comes_out_wherever_it_is_cut() {
        let all = bytes(FIRST + 3 * STEP + 5);
        for (pushed, taken) in [
            (1000, 700),
            (65_536, 1 << 16),
            (300_000, 90_001),
            (5 << 20, STEP + 1),
            (77_777, 2 << 20),
            (99_999, FIRST + 5),
        ] {
            let (mut gather, mut out) = (Gather::default(), Vec::new());
            for part in all.chunks(pushed) {
                gather.push(part);
                while gather.len() >= taken {
                    out.extend_from_slice(&gather.take(taken));
                }
            }
            assert_eq!(gather.head(1), &all[out.len()..][..usize::from(out.len() < all.len())]);
            out.extend_from_slice(&gather.take(gather.len()));
            assert!(out == all && gather.len() == 0, "{pushed} and {taken}");
        }
    }

    #[test]
    fn h3_a_large_frame_holds_its_bytes_and_no_more() {
        let late = FIRST + STEP - LARGE;
        for size in [LARGE, 3 * LARGE, STEP - 1, STEP, STEP + 1, 3 * STEP + 7, FIRST, FIRST + STEP + 1, late] {
            for behind in [0, 10, 2 * LARGE] {
                let mut gather = Gather::default();
                for part in bytes(size + behind).chunks(LARGE) {
                    gather.space(LARGE).extend_from_slice(part);
                }
                let frame = gather.take(size);
                assert_eq!((frame.len(), gather.len()), (size, behind));
                match frame.try_into_mut() {
                    Ok(frame) => assert!(frame.capacity() <= size + size / 8, "{} for {size}", frame.capacity()),
                    // A mapping has no spare memory either.
                    Err(frame) => assert!(frame.len() >= 2 * STEP, "{size} bytes share their memory"),
                }
                // Nor does a small frame behind it hold the memory of the large one.
                let small = gather.take(behind.min(100));
                gather.take(gather.len());
                assert!(gather.pieces.iter().all(|rest| rest.capacity() <= ROOM), "{size} and {behind}");
                drop(gather);
                // The last user of a buffer sees all of the memory that it holds.
                let is_own = small.try_into_mut().is_ok_and(|mut small| {
                    small.clear();
                    !small.try_reclaim(ROOM + 1)
                });
                assert!(behind == 0 || is_own, "{size} and {behind}");
            }
        }
    }

    #[test]
    fn h3_h27_what_grows_has_a_step_to_spare_and_is_searched_once() {
        let (mut gather, searched) = (Gather::default(), Cell::new(0));
        let part = bytes(LARGE);
        for count in 1..=160 {
            gather.space(LARGE).extend_from_slice(&part);
            let found = gather.find(|bytes| {
                searched.set(searched.get() + bytes.len());
                None
            });
            let room: usize = gather.pieces.iter().map(BytesMut::capacity).sum();
            let most = if count * LARGE < FIRST { (2 * count * LARGE).max(STEP) } else { count * LARGE + STEP };
            assert!(found.is_none() && room <= most + LARGE, "{room} for {count}");
        }
        assert_eq!(searched.get(), gather.len());
        gather.push(b"\n");
        assert_eq!(gather.find(|bytes| memchr::memchr(b'\n', bytes)), Some(160 * LARGE));
    }
}
