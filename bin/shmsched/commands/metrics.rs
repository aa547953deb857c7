//! `metrics`: what segments say, for Prometheus, once or over HTTP.

mod address;
mod answer;
mod connections;
mod page;
mod scrape;

use super::several;
use crate::cli::{Metrics, TextFormat};
use crate::exit::{Failure, Outcome};
use crate::output::metrics::{Form, Page};
use crate::output::{self, Reader};

use self::scrape::All;

pub fn metrics(arguments: &Metrics) -> Outcome {
    let all = All::new(&arguments.segments, arguments.trust_foreign)?;
    let limit = several::raise_limit();
    match &arguments.listen {
        Some(address) => address::serve(address, all, limit),
        None => once(all, limit, arguments.format),
    }
}

/// All to stdout. Of the segments that cannot be read each has its line on stderr; the first decides the exit code.
fn once(mut all: All, limit: usize, format: TextFormat) -> Outcome {
    all.keep(several::room(limit, 0));
    let form = match format {
        TextFormat::Openmetrics => Form::OpenMetrics,
        TextFormat::Text => Form::Prometheus,
    };
    let (scrapes, failures) = all.scrape();
    if output::print(&Page::new(scrapes).text(form))? == Reader::Gone {
        return Ok(0);
    }
    let codes: Vec<u8> = failures.iter().map(Failure::report).collect();
    Ok(codes.first().copied().unwrap_or(0))
}
