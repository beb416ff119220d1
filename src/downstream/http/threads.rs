//! Serves each connection on one of several threads, which all have a runtime of their own: a connection, and whatever
//! it spawns, stays on its thread.
//!
//! The first thread is the runtime in which the host was started. Servers and their pipes stay there, whichever thread
//! calls them. With one thread there is no other, and connections are just spawned.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::threads::{MOST, set_number};

/// How many task polls a thread makes between checks for I/O; the program's own runtime has the same number, and the
/// reason (`main.rs`).
const LOOK: u32 = 8;

/// The threads of one host. Dropping this ends all but the first.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// How many connections the first thread serves.
    first: Arc<AtomicUsize>,
    others: Vec<Other>,
}

#[derive(Debug)]
struct Other {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    end: CancellationToken,
}

/// A connection in the count of its thread.
struct Counted(Arc<AtomicUsize>);

impl Threads {
    /// Starts all of `count` threads but the first, which is the current runtime's. A runtime that has several threads
    /// needs none of ours.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let single = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let count = if single { count.min(MOST) } else { 1 };
        let others = (1..count).map(Other::start).collect::<io::Result<_>>()?;
        Ok(Self { first: Arc::default(), others })
    }

    /// Waits until each thread has run a task; the first is the caller's own.
    pub(crate) async fn turn(&self) {
        for other in &self.others {
            // A thread that has ended has nothing to do any more.
            let _ = other.runtime.spawn(async {}).await;
        }
    }

    /// Serves a connection on the thread with the fewest connections. If several have as few, prefers the first thread,
    /// where the answers of servers arrive.
    ///
    /// # Errors
    /// When the socket cannot be moved to another thread; it is closed then.
    pub(crate) fn serve<F>(
        &self,
        tasks: &TaskTracker,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.others.is_empty() {
            tasks.spawn(serve(stream));
            return Ok(());
        }
        let load = |connections: &AtomicUsize| connections.load(Ordering::Relaxed);
        let least = self.others.iter().min_by_key(|other| load(&other.connections));
        match least.filter(|other| load(&other.connections) < load(&self.first)) {
            None => {
                let counted = Counted::new(&self.first);
                tasks.spawn(counted.during(serve(stream)));
            }
            Some(other) => {
                let counted = Counted::new(&other.connections);
                let stream = stream.into_std()?;
                let _within = other.runtime.enter();
                let stream = TcpStream::from_std(stream)?;
                tasks.spawn_on(counted.during(serve(stream)), &other.runtime);
            }
        }
        Ok(())
    }
}

impl Other {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().event_interval(LOOK).build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        std::thread::Builder::new().name(format!("clients-{number}")).spawn(move || {
            set_number(number);
            runtime.block_on(ended.cancelled());
            // Blocking work that still runs is left behind.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, connections: Arc::default(), end })
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }

    async fn during(self, connection: impl Future<Output = ()>) {
        connection.await;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::lock::lock;
    use crate::threads::number;

    #[tokio::test]
    async fn threads_turn_only_while_none_is_blocked() {
        let threads = Threads::start(3).unwrap();
        threads.turn().await;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let blocked = threads.others[1].runtime.spawn(async move {
            begin.send(()).unwrap();
            // Blocks the thread, as no code of ours may.
            let _ = held.recv();
        });
        begun.await.unwrap();
        let mut turn = std::pin::pin!(threads.turn());
        assert!(futures_util::poll!(turn.as_mut()).is_pending());
        // The thread before it turns, so the wait is for the blocked one.
        threads.others[0].runtime.spawn(async {}).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert!(futures_util::poll!(turn.as_mut()).is_pending());
        }
        drop(release);
        turn.await;
        blocked.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_goes_to_the_thread_with_the_fewest_and_stays_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let threads = Threads::start(3).unwrap();
        let tasks = TaskTracker::new();
        let (seen, left) = <(Arc<Mutex<Vec<usize>>>, Arc<Mutex<Vec<[usize; 2]>>>)>::default();
        let (told, mut heard) = watch::channel(());
        let mut clients = Vec::new();
        for connection in 0..7 {
            // The second is gone by then, so the sixth takes its place.
            if connection == 5 {
                drop(clients.remove(1));
                let moved = || threads.others[0].connections.load(Ordering::Relaxed) == 1;
                while !moved() {
                    tokio::task::yield_now().await;
                }
            }
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
            let (seen, left, told) = (Arc::clone(&seen), Arc::clone(&left), told.clone());
            let serve = |mut stream: TcpStream| async move {
                let begun = number();
                lock(&seen).push(begun);
                told.send_replace(());
                // Until the client leaves.
                let _ = stream.read(&mut [0]).await;
                lock(&left).push([begun, number()]);
            };
            let (stream, _) = listener.accept().await.unwrap();
            threads.serve(&tasks, stream, serve).unwrap();
            heard.changed().await.unwrap();
        }
        assert_eq!(*lock(&seen), [0, 1, 2, 0, 1, 1, 2]);
        drop(clients);
        tasks.close();
        tasks.wait().await;
        let left = lock(&left);
        assert!(left.len() == 7 && left.iter().all(|[begun, ended]| begun == ended), "{left:?}");
    }
}
