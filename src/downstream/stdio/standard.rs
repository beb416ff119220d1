//! Our own stdin and stdout as pipes that the runtime can wait on.
//!
//! `tokio::io::stdin` reads on a separate thread: every message costs two context switches, and a pending read keeps
//! the process from exiting. Where stdin and stdout are pipes or sockets, as every client sets them up, this module
//! avoids both.

use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

pub(super) type Input = Pin<Box<dyn AsyncRead + Send>>;
pub(super) type Output = Pin<Box<dyn AsyncWrite + Send>>;

/// Returns our stdin and stdout; where the runtime cannot wait on them, Tokio's own.
pub(super) fn pipes() -> (Input, Output) {
    #[cfg(unix)]
    {
        let input = unix::input().unwrap_or_else(|_| Box::pin(tokio::io::stdin()));
        let output = unix::output().unwrap_or_else(|_| Box::pin(tokio::io::stdout()));
        (input, output)
    }
    #[cfg(not(unix))]
    (Box::pin(tokio::io::stdin()), Box::pin(tokio::io::stdout()))
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::FileTypeExt as _;
    use std::os::unix::net::UnixStream;

    use tokio::net::unix::pipe;

    use super::{Input, Output, io};

    pub(super) fn input() -> io::Result<Input> {
        Ok(match Kind::of(io::stdin())? {
            Kind::Pipe(end) => Box::pin(pipe::Receiver::from_owned_fd(end)?),
            Kind::Socket(socket) => Box::pin(socket),
        })
    }

    pub(super) fn output() -> io::Result<Output> {
        Ok(match Kind::of(io::stdout())? {
            Kind::Pipe(end) => Box::pin(pipe::Sender::from_owned_fd(end)?),
            Kind::Socket(socket) => Box::pin(socket),
        })
    }

    /// The kinds of file that the runtime can wait on. Terminals and regular files are not among them: setting a
    /// terminal nonblocking would affect the shell behind it, and regular files cannot be waited on.
    enum Kind {
        Pipe(OwnedFd),
        Socket(tokio::net::UnixStream),
    }

    impl Kind {
        fn of(stream: impl AsFd) -> io::Result<Self> {
            let file = File::from(stream.as_fd().try_clone_to_owned()?);
            let kind = file.metadata()?.file_type();
            if kind.is_fifo() {
                return Ok(Self::Pipe(file.into()));
            }
            if kind.is_socket() {
                let socket = UnixStream::from(OwnedFd::from(file));
                socket.set_nonblocking(true)?;
                return tokio::net::UnixStream::from_std(socket).map(Self::Socket);
            }
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
