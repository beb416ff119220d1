//! Processes many things in pieces, so that other tasks of the runtime, such as calls, get a turn in between.

use tokio::task::yield_now;

/// Calls `work` for each item, and yields to other tasks after every `piece` items.
///
/// # Cancel safety
/// Dropping the future drops the results so far.
pub(crate) async fn in_pieces<T, U>(all: &[T], piece: usize, mut work: impl FnMut(&T) -> U) -> Vec<U> {
    let mut done = Vec::with_capacity(all.len());
    for some in all.chunks(piece) {
        done.extend(some.iter().map(&mut work));
        yield_now().await;
    }
    done
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn others_have_their_turn_between_two_pieces() {
        let done = Cell::new(0);
        let all: Vec<usize> = (0..2 * 64 + 1).collect();
        let work = |number: &usize| {
            done.set(done.get() + 1);
            *number
        };
        let other = async {
            let mut seen = Vec::new();
            while done.get() < all.len() {
                seen.push(done.get());
                yield_now().await;
            }
            seen
        };
        let (result, seen) = futures_util::future::join(in_pieces(&all, 64, work), other).await;
        assert_eq!((result, seen), (all.clone(), vec![64, 128]));
    }
}
