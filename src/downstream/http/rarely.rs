//! A future that is seldom ready, beside one that often is: it is polled only when something woke it.
//!
//! `select!` polls all its futures each time that one of them wakes the task. So each request of a connection would also
//! poll the futures that end it, which takes some hundred instructions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Polls `future` only when it was woken, and the first time.
pub(super) struct Rarely<F> {
    future: F,
    bell: Arc<Bell>,
    /// The waker that rings the bell.
    ring: Waker,
}

struct Bell {
    has_rung: AtomicBool,
    task: AtomicWaker,
}

impl<F: Future + Unpin> Rarely<F> {
    pub(super) fn new(future: F) -> Self {
        let bell = Arc::new(Bell { has_rung: AtomicBool::new(true), task: AtomicWaker::new() });
        let ring = Waker::from(Arc::clone(&bell));
        Self { future, bell, ring }
    }
}

impl<F: Future + Unpin> Future for Rarely<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        // Registered first: a bell that rings between the two wakes the task.
        this.bell.task.register(context.waker());
        if !this.bell.has_rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.ring))
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_once_and_then_for_each_wake() {
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let (tell, mut told) = oneshot::channel();
        let mut rarely = Rarely::new(std::future::poll_fn(move |context| {
            count.fetch_add(1, Ordering::Relaxed);
            told.poll_unpin(context)
        }));
        for _ in 0..3 {
            assert_eq!((&mut rarely).now_or_never(), None);
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        // The task that polled it last is woken, though another one polled it before.
        let waiting = tokio::spawn(rarely);
        tokio::task::yield_now().await;
        tell.send(7).unwrap();
        assert_eq!(waiting.await.unwrap(), Ok(7));
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
