//! The frames on a script's pipes: the length of a JSON text in four bytes, lowest first, then the text.

use bytes::{Buf as _, Bytes, BytesMut};
use serde::Serialize;

/// The number of bytes of the length.
pub(crate) const HEAD: usize = 4;

/// Writes a frame.
///
/// # Errors
/// Fails if the text has more than 4 GiB, or JSON cannot represent the value.
pub(crate) fn framed<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut frame = vec![0; HEAD];
    serde_json::to_writer(&mut frame, value)?;
    let length = u32::try_from(frame.len() - HEAD).map_err(|_| serde::ser::Error::custom("too long"))?;
    frame[..HEAD].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Finds frames in bytes that arrive in pieces.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Bytes that have arrived but do not form a whole frame yet.
    pub(crate) buffer: BytesMut,
    /// The most bytes that a text may have.
    most: usize,
}

/// A text is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Frames {
    pub(crate) fn new(most: usize) -> Self {
        Self { buffer: BytesMut::new(), most }
    }

    /// Removes the next frame and returns its text; `None` if it is not complete yet.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let Some(head) = self.buffer.first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.most {
            return Err(TooLong);
        }
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        self.buffer.advance(HEAD);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_whole_however_their_bytes_are_cut(texts in prop::collection::vec("\\PC{0,20}", 1..6), cut in 1..7_usize) {
            let bytes: Vec<u8> = texts.iter().flat_map(|text| framed(text).unwrap()).collect();
            let (mut frames, mut found) = (Frames::new(1000), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.buffer.extend_from_slice(piece);
                while let Some(text) = frames.next().unwrap() {
                    found.push(serde_json::from_slice::<String>(&text).unwrap());
                }
            }
            prop_assert_eq!(found, texts);
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_refused_by_its_length_alone() {
        let mut frames = Frames::new(5);
        frames.buffer.extend_from_slice(&6_u32.to_le_bytes());
        assert_eq!(frames.next(), Err(TooLong));
    }
}
