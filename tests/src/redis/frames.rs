//! Finds where commands and replies end in a stream that passes by in pieces.

/// The longest name of a command that is told apart.
const LONGEST_NAME: usize = 64;

/// One direction of a connection, as far as it was seen.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The line that is being read.
    line: Vec<u8>,
    /// How much is to come of a string that is being read, with the line end behind it.
    payload: usize,
    /// How many values every open array lacks.
    open: Vec<u64>,
    /// The first byte of the frame.
    kind: u8,
    /// The first string of the frame, and whether it is complete.
    name: Vec<u8>,
    is_named: bool,
}

/// What ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A command by its name in capitals, or a reply.
    Whole(String),
    /// What a server says unasked.
    Push,
}

impl Frames {
    /// Takes in a piece, and gives what ended in it.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Vec<Frame> {
        piece.iter().filter_map(|byte| self.take(*byte)).collect()
    }

    fn take(&mut self, byte: u8) -> Option<Frame> {
        if self.payload == 0 {
            self.line.push(byte);
            return if byte == b'\n' { self.end_line() } else { None };
        }
        self.payload -= 1;
        if self.payload >= 2 && !self.is_named && self.name.len() < LONGEST_NAME {
            self.name.push(byte);
        }
        if self.payload > 0 {
            return None;
        }
        self.is_named = true;
        self.end_value()
    }

    fn end_line(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii_end();
        let (&kind, rest) = line.split_first()?;
        if self.open.is_empty() {
            self.kind = kind;
            self.name.clear();
            self.is_named = false;
        }
        let length = || str::from_utf8(rest).ok()?.parse::<u64>().ok();
        match kind {
            b'$' | b'=' | b'!' => match length().and_then(|length| usize::try_from(length).ok()) {
                Some(length) => {
                    self.payload = length.saturating_add(2);
                    None
                }
                None => self.end_value(),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match length() {
                Some(length @ 1..) => {
                    let is_of_pairs = matches!(kind, b'%' | b'|');
                    self.open.push(if is_of_pairs { length.saturating_mul(2) } else { length });
                    None
                }
                _ => self.end_value(),
            },
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => self.end_value(),
            // A command as a person types it.
            _ => {
                self.name = line.iter().copied().take_while(|byte| !byte.is_ascii_whitespace()).collect();
                self.end_value()
            }
        }
    }

    /// Ends a value and every array that it completes.
    fn end_value(&mut self) -> Option<Frame> {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return None;
            }
            self.open.pop();
        }
        Some(match self.kind {
            b'>' | b'|' => Frame::Push,
            _ => Frame::Whole(String::from_utf8_lossy(&self.name).to_uppercase()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(frames: Vec<Frame>) -> Vec<String> {
        let name = |frame| match frame {
            Frame::Whole(name) => name,
            Frame::Push => ">".to_owned(),
        };
        frames.into_iter().map(name).collect()
    }

    #[test]
    fn commands_are_named_however_the_stream_is_cut() {
        let stream: &[u8] =
            b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$6\r\n*1\r\n$1\r\nPING\r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nEXEC\r\n";
        for at in 0..=stream.len() {
            let (first, second) = stream.split_at(at);
            let mut frames = Frames::default();
            let mut seen = frames.feed(first);
            seen.extend(frames.feed(second));
            assert_eq!(names(seen), ["SET", "PING", "GET", "EXEC"], "cut at {at}");
        }
    }

    #[test]
    fn a_reply_ends_with_the_last_value_inside_it() {
        let whole: [&[u8]; 10] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":1\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n",
            b"%1\r\n+a\r\n*1\r\n,1.5\r\n",
            b"=5\r\ntxt:a\r\n",
            b"_\r\n",
        ];
        for reply in whole {
            let (last, most) = reply.split_last().unwrap();
            let mut frames = Frames::default();
            assert_eq!(frames.feed(most), [], "{reply:?}");
            assert_eq!(frames.feed(&[*last]).len(), 1, "{reply:?}");
        }
    }

    #[test]
    fn what_comes_unasked_is_no_reply() {
        let mut frames = Frames::default();
        let seen = frames.feed(b">2\r\n+invalidate\r\n*1\r\n+k\r\n+OK\r\n");
        assert_eq!(seen, [Frame::Push, Frame::Whole(String::new())]);
    }
}
