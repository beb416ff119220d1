//! Support for clients that shut down their sending side and still read (`docs/hazards.md` H106). hyper treats the end
//! of a connection's input as a disconnect. So that end is hidden from hyper while a request that should survive it is
//! served.
//!
//! The [`HttpWire`] decides: the end is hidden from the head of a request until its answer is written, or until the
//! request turns out to be one that a disconnect withdraws. Errors are passed on at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wires::{HttpWire, Serving};

/// A connection's bytes, whose end the [`HttpWire`] may hold back.
pub(super) struct Halved<I> {
    io: I,
    wire: HttpWire,
}

impl<I> Halved<I> {
    pub(super) fn new(io: I, wire: HttpWire) -> Self {
        Self { io, wire }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Halved<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let is_end = buf.filled().len() == before && buf.remaining() > 0;
        if is_end && self.wire.holds_back(cx) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Halved<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// Flushes. hyper calls this when it has handed over all bytes that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ends = self.wire.writes();
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if ends {
            self.wire.wrote(flushed.is_ready());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The body of a request. Reading it fails if the client shuts down its sending side before the body is complete.
pub(super) struct Arriving {
    incoming: Source,
    wire: HttpWire,
    /// Whether the complete body marks its connection as proven.
    proves: bool,
}

/// Where a body comes from.
enum Source {
    Connection(Incoming),
    /// It was read before, to be handed to another replica, which is gone.
    #[cfg(feature = "cluster")]
    Memory(Bytes),
}

impl Body for Source {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Connection(incoming) => Pin::new(incoming).poll_frame(cx),
            #[cfg(feature = "cluster")]
            Self::Memory(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Connection(incoming) => incoming.is_end_stream(),
            #[cfg(feature = "cluster")]
            Self::Memory(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Connection(incoming) => incoming.size_hint(),
            #[cfg(feature = "cluster")]
            Self::Memory(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// The body of a request is incomplete.
#[derive(Debug)]
pub(super) struct BrokenOff;

impl Arriving {
    pub(super) fn new(incoming: Incoming, wire: HttpWire, proves: bool) -> Self {
        // The request has no body to wait for.
        if proves && incoming.is_end_stream() {
            wire.proves();
        }
        Self { incoming: Source::Connection(incoming), wire, proves }
    }

    /// Returns a body that was read before.
    #[cfg(feature = "cluster")]
    pub(super) fn of_whole(bytes: Bytes, wire: HttpWire) -> Self {
        Self { incoming: Source::Memory(bytes), wire, proves: false }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            // The client sends no more, so the rest never arrives.
            Poll::Pending if self.wire.was_left() => Poll::Ready(Some(Err(BrokenOff))),
            polled => {
                // The end may arrive with the last piece; the body is not polled again after it.
                if self.proves && (matches!(polled, Poll::Ready(None)) || self.incoming.is_end_stream()) {
                    self.wire.proves();
                }
                polled.map(|part| part.map(|part| part.map_err(|_| BrokenOff)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The body of a response. The request counts as being served while the body exists.
pub(super) struct Served<B> {
    body: B,
    _serving: Serving,
}

impl<B> Served<B> {
    pub(super) fn new(body: B, serving: Serving) -> Self {
        Self { body, _serving: serving }
    }
}

impl<B: Body + Unpin> Body for Served<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
