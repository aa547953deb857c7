//! What was typed, from the bytes of a raw terminal.
//!
//! Not by crossterm: its reader reads again where it has half a sequence, which blocks, and never returns from a terminal
//! that hung up.

use std::collections::VecDeque;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    /// With the Control key.
    Control(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Tab,
    BackTab,
    Backspace,
    Escape,
}

/// Bytes in, keys out.
#[derive(Default)]
pub struct Keys {
    bytes: VecDeque<u8>,
    /// Nothing follows what is there: half a sequence is all there is.
    complete: bool,
}

/// The longest escape sequence that is waited for.
const LONGEST: usize = 32;

impl Keys {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.complete = false;
    }

    /// Whether what is left may be the beginning of a sequence.
    pub fn is_unsure(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// What is left is all there is.
    pub fn nothing_followed(&mut self) {
        self.complete = true;
    }

    /// The next key; `None` if there is none, or only a part of one.
    pub fn next(&mut self) -> Option<Key> {
        loop {
            let bytes: Vec<u8> = self.bytes.iter().copied().take(LONGEST).collect();
            let (length, key) = match *bytes.first()? {
                0x1b => self.sequence(&bytes)?,
                b'\r' | b'\n' => (1, Some(Key::Enter)),
                b'\t' => (1, Some(Key::Tab)),
                0x08 | 0x7f => (1, Some(Key::Backspace)),
                0 => (1, None),
                control @ ..0x20 => (1, Some(Key::Control((control | 0x60) as char))),
                first => self.character(first, &bytes)?,
            };
            self.bytes.drain(..length);
            if key.is_some() {
                return key;
            }
        }
    }

    /// A character, of up to four bytes.
    fn character(&self, first: u8, bytes: &[u8]) -> Option<(usize, Option<Key>)> {
        let length = match first {
            ..0x80 => 1,
            0xc2..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf5 => 4,
            _ => return Some((1, None)),
        };
        if bytes.len() < length && !self.complete {
            return None;
        }
        let text = bytes
            .get(..length)
            .and_then(|bytes| str::from_utf8(bytes).ok());
        match text.and_then(|text| text.chars().next()) {
            Some(c) => Some((length, Some(Key::Char(c)))),
            None => Some((1, None)),
        }
    }

    /// What begins with Esc: `ESC [ parameters letter`, `ESC O letter`, Esc and a key (as Alt), or Esc alone.
    fn sequence(&self, bytes: &[u8]) -> Option<(usize, Option<Key>)> {
        let alone = Some((1, Some(Key::Escape)));
        let unfinished = match self.complete || bytes.len() == LONGEST {
            true => alone,
            false => None,
        };
        let from = match bytes.get(1) {
            None => return unfinished,
            Some(b'[' | b'O') => 2,
            Some(_) => return alone,
        };
        let Some(length) = bytes[from..]
            .iter()
            .position(|byte| (0x40..0x7f).contains(byte))
        else {
            return unfinished;
        };
        let (parameters, last) = (&bytes[from..from + length], bytes[from + length]);
        let key = match (parameters, last) {
            (_, b'A') => Some(Key::Up),
            (_, b'B') => Some(Key::Down),
            (_, b'H') | (b"1" | b"7", b'~') => Some(Key::Home),
            (_, b'F') | (b"4" | b"8", b'~') => Some(Key::End),
            (_, b'Z') => Some(Key::BackTab),
            (b"5", b'~') => Some(Key::PageUp),
            (b"6", b'~') => Some(Key::PageDown),
            _ => None,
        };
        Some((from + length + 1, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &mut Keys) -> Vec<Key> {
        std::iter::from_fn(|| keys.next()).collect()
    }

    fn typed(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys::default();
        keys.feed(bytes);
        let mut found = all(&mut keys);
        keys.nothing_followed();
        found.extend(all(&mut keys));
        assert!(!keys.is_unsure());
        found
    }

    #[test]
    fn keys_of_common_terminals() {
        use Key::*;
        assert_eq!(typed(b"q\x03\x1a"), [Char('q'), Control('c'), Control('z')]);
        assert_eq!(typed(b"\x1c"), [Control('|')]);
        assert_eq!(typed(b"\x1b[A\x1bOB\x1b[1;5A"), [Up, Down, Up]);
        assert_eq!(
            typed(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
            [PageUp, PageDown, Home, End]
        );
        assert_eq!(typed(b"\t\x1b[Z\r\x7f"), [Tab, BackTab, Enter, Backspace]);
        assert_eq!(
            typed("\u{e9}\u{1f600}".as_bytes()),
            [Char('\u{e9}'), Char('\u{1f600}')]
        );
        assert_eq!(typed(b"\x1b"), [Escape]);
        assert_eq!(typed(b"\x1bq"), [Escape, Char('q')]);
    }

    #[test]
    fn halves_wait_for_the_rest() {
        let mut keys = Keys::default();
        for (bytes, found) in [
            (&b"\x1b"[..], &[][..]),
            (b"[", &[]),
            (b"A\xc3", &[Key::Up]),
            (b"\xa9", &[Key::Char('\u{e9}')]),
        ] {
            keys.feed(bytes);
            assert_eq!(all(&mut keys), found);
        }
    }

    #[test]
    fn noise_is_nothing_and_ends() {
        assert_eq!(
            typed(b"\x00\xff\xc3x\x1b[200~\x1b[99;99R"),
            [Key::Char('x')]
        );
        assert_eq!(
            typed(&[&b"\x1b["[..], &[b'1'; 100]].concat())[0],
            Key::Escape
        );
        let mut chance = 1u64;
        for _ in 0..2_000 {
            let bytes: Vec<u8> = (0..chance % 40)
                .map(|_| {
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (chance >> 56) as u8
                })
                .collect();
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            typed(&bytes);
        }
    }
}
