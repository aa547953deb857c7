//! What goes to stdout: text that is safe to show, and writing that never panics.

pub mod json;
pub mod metrics;
mod numbers;
pub mod pressure;
pub mod screen;
pub mod style;
pub mod table;
mod text;

use std::io::{self, ErrorKind, Write};

pub use self::numbers::{bytes, counted, fine_time, limit, percent, short, span, time};
pub use self::text::{escaped, fitted, literal, literal_name, literal_os};
pub use self::text::{shortened, shortened_within, width};
use crate::exit::{Code, Failure};

/// Whether the reader is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// It may read more.
    Listens,
    /// It has closed the pipe: stop, quietly, as after success.
    Gone,
}

/// Writes to stdout, at once.
pub fn print(text: &str) -> Result<Reader, Failure> {
    print_bytes(text.as_bytes())
}

/// As [`print`], of what need not be UTF-8.
pub fn print_bytes(bytes: &[u8]) -> Result<Reader, Failure> {
    let mut out = io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// What the outcome of a write to stdout means.
pub fn written(outcome: io::Result<()>) -> Result<Reader, Failure> {
    match outcome {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::new(
            Code::Io,
            format_args!("cannot write to standard output: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert_eq!(
            written(Err(ErrorKind::BrokenPipe.into())).unwrap(),
            Reader::Gone
        );
        assert_eq!(
            written(Err(ErrorKind::StorageFull.into()))
                .unwrap_err()
                .code,
            74
        );
    }
}
