//! Text of strangers (names, commands) made safe to show.

/// The text with [what does not show](hides) written out, so that it keeps to its line, does nothing to a terminal, and
/// looks like what it is.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match hides(c) {
            true if c.is_control() => safe.extend(c.escape_default()),
            true => safe.extend(c.escape_unicode()),
            false => safe.push(c),
        }
    }
    safe
}

/// Control characters, and those that take no room, turn the direction of what follows, or break a line: the categories Cf,
/// Zl and Zp, and letters that are blank. Variation selectors are left alone: they are part of many an emoji.
pub fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_is_written_out() {
        // case 57
        assert_eq!(
            escaped("a\u{1b}[31m\n\u{9b}z\u{7f}"),
            "a\\u{1b}[31m\\n\\u{9b}z\\u{7f}"
        );
        for (text, safe) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}", "a\\u{200b}"),
            ("\u{feff}\u{2066}", "\\u{feff}\\u{2066}"),
            ("\u{2028}\u{e0041}", "\\u{2028}\\u{e0041}"),
            ("\u{ad}", "\\u{ad}"),
        ] {
            assert_eq!(escaped(text), safe);
        }
        for text in [
            "d\u{e9}j\u{e0} vu",
            "e\u{301}",
            "\u{2764}\u{fe0f}",
            "\u{5e2}\u{5d1}",
            "\u{fffd}\u{3000}\u{a0}",
        ] {
            assert_eq!(escaped(text), text);
        }
    }
}
