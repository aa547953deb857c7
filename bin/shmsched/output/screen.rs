//! What the terminal can show, as the environment says.

use std::env;

/// Whether the terminal is known to have no colours, by its name: the older DEC ones, and what says so of itself.
pub fn is_monochrome() -> bool {
    env::var("TERM").is_ok_and(|term| monochrome(&term))
}

/// Whether other letters than ASCII can be shown: the locale's encoding is UTF-8.
pub fn is_utf8() -> bool {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    utf8(&locale.unwrap_or_default())
}

fn monochrome(term: &str) -> bool {
    // vt52, vt100 to vt420; the vt525 has colours.
    let dec = term.strip_prefix("vt").unwrap_or_default();
    dec.starts_with(|c| matches!(c, '1'..='4'))
        || dec.starts_with("52") && !dec.starts_with("525")
        || term.ends_with("-mono")
        || term.ends_with("-m")
}

fn utf8(locale: &str) -> bool {
    let encoding = locale
        .split('@')
        .next()
        .and_then(|locale| locale.split_once('.'));
    encoding
        .is_some_and(|(_, name)| ["utf-8", "utf8"].contains(&name.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_without_colours() {
        for term in [
            "vt52",
            "vt100",
            "vt102",
            "vt220-8bit",
            "vt320",
            "xterm-mono",
            "ansi-m",
            "linux-m",
        ] {
            assert!(monochrome(term), "{term}");
        }
        for term in [
            "xterm",
            "xterm-256color",
            "ansi",
            "vt525",
            "linux",
            "screen",
            "tmux-256color",
            "vte",
        ] {
            assert!(!monochrome(term), "{term}");
        }
    }

    #[test]
    fn locales() {
        for locale in ["C.UTF-8", "en_GB.utf8", "de_DE.UTF-8@euro"] {
            assert!(utf8(locale), "{locale}");
        }
        for locale in ["", "C", "POSIX", "de_DE", "de_DE.ISO-8859-1", "de_DE@euro"] {
            assert!(!utf8(locale), "{locale}");
        }
    }
}
