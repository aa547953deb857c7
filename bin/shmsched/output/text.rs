//! Names and commands of strangers, safe to show, and no longer than there is room.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ratatui::text::Span;
pub use shmsched::escaped;

/// As [`escaped`], backslashes too: no two texts look the same.
pub fn literal(text: &str) -> String {
    escaped(&text.replace('\\', r"\\"))
}

/// As [`literal`], and what is not UTF-8 byte by byte: `\xff`.
pub fn literal_os(text: &OsStr) -> String {
    let chunk = |chunk: std::str::Utf8Chunk| {
        let bytes = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        literal(chunk.valid()) + &bytes.collect::<String>()
    };
    text.as_bytes().utf8_chunks().map(chunk).collect()
}

/// A segment's name as [`literal_os`]: itself it is not exact if its file's is not UTF-8.
pub fn literal_name(name: &str, path: &Path) -> String {
    let exact = [Some(path.as_os_str()), path.file_name()];
    let mut exact = exact.into_iter().flatten();
    match exact.find(|text| text.to_string_lossy() == name) {
        Some(text) => literal_os(text),
        None => literal(name),
    }
}

/// At most `most` characters, with an ellipsis if there were more.
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text
            .chars()
            .take(most.saturating_sub(3))
            .chain("...".chars())
            .collect(),
    }
}

/// How many columns of a terminal it takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most `most` columns, with an ellipsis if there were more.
pub fn fitted(text: &str, most: usize) -> String {
    match width(text) > most {
        true => begin(text, most.saturating_sub(3)).to_owned() + "...",
        false => text.to_owned(),
    }
}

/// At most `most` columns, with an ellipsis in the middle if there were more: names often differ at their ends.
pub fn shortened_within(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(3);
    let backwards: String = text.chars().rev().collect();
    let end: String = begin(&backwards, room / 2).chars().rev().collect();
    format!("{}...{end}", begin(text, room - room / 2))
}

/// What of it takes at most `most` columns.
fn begin(text: &str, most: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(at, c)| {
        used += width(&text[*at..at + c.len_utf8()]);
        used > most
    });
    end.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_texts_look_the_same() {
        assert_eq!(literal("a\nb\u{202e}"), "a\\nb\\u{202e}");
        assert_eq!(literal(r"a\nb"), r"a\\nb");
        assert_eq!(
            literal_os(OsStr::from_bytes(b"a\xffb\\\xe2\x82")),
            r"a\xffb\\\xe2\x82"
        );
        let name = |name, path: &[u8]| literal_name(name, Path::new(OsStr::from_bytes(path)));
        assert_eq!(name("a\u{fffd}", b"/d/a\xff"), r"a\xff");
        assert_eq!(name("/d/a\u{fffd}", b"/d/a\xff"), r"/d/a\xff");
        assert_eq!(name("shm:a", b"/dev/shm/a"), "shm:a");
        assert_eq!(
            literal_os(OsStr::new("d\u{e9}j\u{e0}\u{fffd}")),
            "d\u{e9}j\u{e0}\u{fffd}"
        );
    }

    #[test]
    fn long_text_is_cut_at_characters() {
        assert_eq!(shortened("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 4), "\u{e9}...");
        assert_eq!(shortened("abcd", 4), "abcd");
        assert_eq!(fitted("abcd", 4), "abcd");
        assert_eq!(fitted("abcdefgh", 7), "abcd...");
        // Each takes two columns.
        assert_eq!(fitted("\u{4e00}\u{4e8c}\u{4e09}", 5), "\u{4e00}...");
        assert_eq!(shortened_within("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened_within("abcdefghij", 8), "abc...ij");
        assert_eq!(
            shortened_within("\u{4e00}\u{4e8c}\u{4e09}\u{56db}", 7),
            "\u{4e00}...\u{56db}"
        );
        assert_eq!(shortened_within("abc", 0), "...");
    }
}
