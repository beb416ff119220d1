//! Determines which user owns the process at the other end of a local connection, where the operating system can tell
//! (`docs/hazards.md` H80). Runs once, when a connection is accepted.
//!
//! On Linux the kernel looks up one socket by its addresses (`sock_diag`), in constant time however many sockets exist.

use tokio::net::TcpStream;

/// The user at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Perhaps the local user: it is this user or root, or the system cannot tell.
    Local,
    /// Another user of this machine, or the owner of a process that is gone and cannot be looked up.
    Stranger,
}

impl Peer {
    /// Asks the operating system for the user.
    #[cfg(target_os = "linux")]
    pub(super) fn of(stream: &TcpStream) -> Self {
        let (Ok(ours), Ok(theirs)) = (stream.local_addr(), stream.peer_addr()) else { return Self::Stranger };
        let me = rustix::process::geteuid().as_raw();
        linux::judge(linux::look(theirs, ours), || linux::look(ours, theirs), me)
    }

    /// Takes everyone for the local user: this system cannot tell.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_: &TcpStream) -> Self {
        Self::Local
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::OwnedFd;

    use rustix::io::{self, Errno};
    use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

    use super::Peer;

    /// One end of a connection, as the system describes it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct End {
        pub(super) state: u8,
        pub(super) user: u32,
        /// 0 if no process owns the socket any more.
        pub(super) inode: u32,
    }

    pub(super) const ESTABLISHED: u8 = 1;
    const LISTEN: u8 = 10;

    /// Judges a connection. A client that is gone has no owner and could have been anyone: sending a request and
    /// quitting must not gain more than staying. If the other end is unknown while our end is established, the other
    /// end is on another machine, and this system cannot tell.
    pub(super) fn judge(theirs: io::Result<Option<End>>, ours: impl Fn() -> io::Result<Option<End>>, me: u32) -> Peer {
        let is_local = match theirs {
            Ok(Some(end)) if end.state != LISTEN => end.inode != 0 && (end.user == me || end.user == 0),
            Ok(_) => match ours() {
                Ok(end) => end.is_some_and(|end| end.state == ESTABLISHED),
                Err(_) => true,
            },
            Err(_) => true,
        };
        if is_local { Peer::Local } else { Peer::Stranger }
    }

    const REQUEST: usize = 72;

    thread_local! {
        /// One socket for all questions of this thread: to open one costs more than the question.
        static ASKER: RefCell<Option<Asker>> = const { RefCell::new(None) };
    }

    /// Looks up the socket at the address `of` that is connected to `to`, or that listens there; `None` if there is
    /// none.
    pub(super) fn look(of: SocketAddr, to: SocketAddr) -> io::Result<Option<End>> {
        ASKER.with_borrow_mut(|kept| {
            // A socket that failed is not used again: its answer could still come, to a later question.
            if let Some(mut asker) = kept.take()
                && let Ok(end) = asker.ask(of, to)
            {
                *kept = Some(asker);
                return Ok(end);
            }
            let mut asker = Asker::open()?;
            let end = asker.ask(of, to)?;
            *kept = Some(asker);
            Ok(end)
        })
    }

    struct Asker {
        socket: OwnedFd,
        /// The number of the last question; its answer carries it.
        sequence: u32,
    }

    impl Asker {
        fn open() -> io::Result<Self> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
            Ok(Self { socket, sequence: 0 })
        }

        fn ask(&mut self, of: SocketAddr, to: SocketAddr) -> io::Result<Option<End>> {
            self.sequence = self.sequence.wrapping_add(1);
            let request = request(of, to, self.sequence);
            sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
            // The kernel answers within the `sendto` call.
            let mut answer = [0; 1024];
            let (_, length) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            read(answer.get(..length).unwrap_or_default(), self.sequence)
        }
    }

    fn request(of: SocketAddr, to: SocketAddr, sequence: u32) -> [u8; REQUEST] {
        const BY_FAMILY: u16 = 20;
        const IS_REQUEST: u16 = 1;
        const TCP: u8 = 6;
        let family: u8 = if of.is_ipv4() { 2 } else { 10 };
        let mut bytes = [0; REQUEST];
        let mut put = Writer(&mut bytes, 0);
        put.put(&72_u32.to_ne_bytes());
        put.put(&BY_FAMILY.to_ne_bytes());
        put.put(&IS_REQUEST.to_ne_bytes());
        put.put(&sequence.to_ne_bytes());
        put.put(&[0; 4]);
        put.put(&[family, TCP, 0, 0]);
        // Sockets in any state match.
        put.put(&[0xff; 4]);
        put.put(&of.port().to_be_bytes());
        put.put(&to.port().to_be_bytes());
        for address in [of.ip(), to.ip()] {
            match address {
                IpAddr::V4(ip) => put.put(&[ip.octets(), [0; 4], [0; 4], [0; 4]].concat()),
                IpAddr::V6(ip) => put.put(&ip.octets()),
            }
        }
        // Sockets on any interface match, and no cookie is compared.
        put.put(&[0; 4]);
        put.put(&[0xff; 8]);
        bytes
    }

    struct Writer<'a>(&'a mut [u8; REQUEST], usize);

    impl Writer<'_> {
        fn put(&mut self, part: &[u8]) {
            for (to, from) in self.0.iter_mut().skip(self.1).zip(part) {
                *to = *from;
            }
            self.1 += part.len();
        }
    }

    pub(super) fn read(answer: &[u8], sequence: u32) -> io::Result<Option<End>> {
        const ERROR: u16 = 2;
        let word = |at: usize| answer.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        if word(8) != Some(sequence) {
            return Err(Errno::BADMSG);
        }
        let kind = answer.get(4..).and_then(<[u8]>::first_chunk).map(|bytes| u16::from_ne_bytes(*bytes));
        if kind.ok_or(Errno::BADMSG)? == ERROR {
            let code = word(16).map(u32::cast_signed).ok_or(Errno::BADMSG)?;
            let error = Errno::from_raw_os_error(code.saturating_neg());
            return if error == Errno::NOENT { Ok(None) } else { Err(error) };
        }
        match (answer.get(17), word(80), word(84)) {
            (Some(state), Some(user), Some(inode)) => Ok(Some(End { state: *state, user, inode })),
            _ => Err(Errno::BADMSG),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::io::Errno;
    use tokio::net::{TcpListener, TcpSocket};

    use super::linux::{ESTABLISHED, End, judge, look, read};
    use super::*;

    #[test]
    fn h80_who_is_a_stranger() {
        let end = |state, user, inode| Ok(Some(End { state, user, inode }));
        let fine = end(ESTABLISHED, 1000, 7);
        let cases = [
            ("this user", end(ESTABLISHED, 1000, 7), fine, Peer::Local),
            ("root", end(ESTABLISHED, 0, 7), fine, Peer::Local),
            ("another user", end(ESTABLISHED, 1001, 7), fine, Peer::Stranger),
            ("has closed, and so is nobody's", end(5, 0, 0), end(8, 1000, 7), Peer::Stranger),
            ("has reset", Ok(None), Ok(None), Peer::Stranger),
            ("has closed long ago", Ok(None), end(8, 1000, 7), Peer::Stranger),
            ("another one listens at its port", end(10, 1000, 7), Ok(None), Peer::Stranger),
            ("of another system", Ok(None), fine, Peer::Local),
            ("it is not told", Err(Errno::PROTONOSUPPORT), fine, Peer::Local),
        ];
        for (what, theirs, ours, peer) in cases {
            assert_eq!(judge(theirs, || ours, 1000), peer, "{what}");
        }
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let mut answer = [0; 20];
        answer[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        answer[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        answer[16..].copy_from_slice(&(-Errno::NOENT.raw_os_error()).to_ne_bytes());
        assert_eq!(read(&answer, 7), Ok(None));
        assert_eq!(read(&answer, 8), Err(Errno::BADMSG));
        assert_eq!(read(&answer[..10], 7), Err(Errno::BADMSG));
    }

    #[tokio::test]
    async fn the_system_tells_of_both_families() {
        let me = rustix::process::geteuid().as_raw();
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("127.0.0.1:0", "::ffff:127.0.0.1")]
        {
            let listener = TcpListener::bind(listen).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let to = std::net::SocketAddr::new(connect.parse().unwrap(), port);
            let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
            let client = socket.connect(to).await.unwrap();
            let (stream, from) = listener.accept().await.unwrap();
            let end = look(from, stream.local_addr().unwrap()).unwrap().unwrap();
            assert_eq!((end.state, end.user, end.inode != 0), (ESTABLISHED, me, true), "{connect}");
            assert_eq!(Peer::of(&stream), Peer::Local);
            drop(client);
            assert_eq!(Peer::of(&stream), Peer::Stranger, "{connect}: it is gone");
        }
    }
}
