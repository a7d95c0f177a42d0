//! The stream that the client reads from, checked to be AMQP frames of a size that was agreed on.
//!
//! The client reserves the memory that a frame's header asks for before it looks at anything else of the frame: what
//! a web server answers would cost it more than a gigabyte. In the clear only; the client wraps TLS itself.

use std::io::{self, Read, Write};

use mio::net::TcpStream;
use mio::{Evented, Poll, PollOpt, Ready, Token};

use crate::message::FRAME_MAX;

/// Type, channel and size: AMQP 0-9-1, section 4.2.3.
const HEADER: usize = 7;

/// The frame types: method, content header, body, heartbeat.
const TYPES: [u8; 4] = [1, 2, 3, 8];

pub(super) struct FrameGuard {
    stream: TcpStream,
    frames: Frames,
}

impl FrameGuard {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, frames: Frames::default() }
    }
}

/// Where in a frame the stream is.
#[derive(Default)]
struct Frames {
    header: Vec<u8>,
    /// Of the current frame, its end mark included.
    left: usize,
}

impl Frames {
    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            self.header.push(*first);
            bytes = rest;
            if let [kind, ..] = self.header.as_slice() {
                if !TYPES.contains(kind) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "what answers there does not speak AMQP 0-9-1",
                    ));
                }
            }
            if let [_, _, _, a, b, c, d] = self.header.as_slice() {
                let size = u32::from_be_bytes([*a, *b, *c, *d]);
                if size > FRAME_MAX {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a frame is larger than was agreed on",
                    ));
                }
                self.left = usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1);
                self.header.clear();
            }
            debug_assert!(self.header.len() < HEADER);
        }
        Ok(())
    }
}

impl Read for FrameGuard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.frames.follow(buffer.get(..count).unwrap_or_default())?;
        Ok(count)
    }
}

impl Write for FrameGuard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl amiquip::IoStream for FrameGuard {}

impl Evented for FrameGuard {
    fn register(&self, poll: &Poll, token: Token, interest: Ready, options: PollOpt) -> io::Result<()> {
        self.stream.register(poll, token, interest, options)
    }

    fn reregister(&self, poll: &Poll, token: Token, interest: Ready, options: PollOpt) -> io::Result<()> {
        self.stream.reregister(poll, token, interest, options)
    }

    fn deregister(&self, poll: &Poll) -> io::Result<()> {
        self.stream.deregister(poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: usize) -> Vec<u8> {
        let size = u32::try_from(body).unwrap().to_be_bytes();
        [&[kind, 0, 1][..], &size, &vec![b'x'; body], &[0xCE]].concat()
    }

    #[test]
    fn frames_pass_however_they_are_cut() {
        let stream =
            [frame(1, 0), frame(2, 30), frame(3, 500), frame(8, 0), frame(1, FRAME_MAX as usize)].concat();
        for piece in [1, 2, 6, 7, 8, 100, stream.len()] {
            let mut frames = Frames::default();
            assert!(stream.chunks(piece).all(|bytes| frames.follow(bytes).is_ok()), "{piece}");
            assert_eq!((frames.left, frames.header.len()), (0, 0), "{piece}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let too_large = frame(1, FRAME_MAX as usize + 1);
        for stream in
            [&b"HTTP/1.1 400 Bad Request"[..], b"AMQP\0\0\x09\x01", b"\x15\x03\x01\0\x02", &too_large]
        {
            assert!(Frames::default().follow(stream).is_err());
        }
        // Also behind a frame that is one.
        let mut frames = Frames::default();
        assert!(frames.follow(&[frame(1, 3), b"HTTP/1.1".to_vec()].concat()).is_err());
    }
}
