//! `metrics`: what segments say, for Prometheus, once or over HTTP.

mod address;
mod answer;
mod connections;
mod page;
mod scrape;

use crate::cli::Metrics;
use crate::exit::{Failure, Outcome};
use crate::output::metrics::{Form, Page};
use crate::output::{self, Reader};

use self::scrape::Watched;

pub fn metrics(arguments: &Metrics) -> Outcome {
    let mut watched = Watched::all(&arguments.segments, arguments.trust_foreign)?;
    match &arguments.listen {
        Some(address) => address::serve(address, watched),
        None => once(&mut watched),
    }
}

/// All to stdout. Of the segments that cannot be read each has its line on stderr; the first decides the exit code.
fn once(watched: &mut [Watched]) -> Outcome {
    let mut failures = Vec::new();
    let scrapes = watched.iter_mut().map(|segment| {
        let (scrape, failure) = segment.scrape();
        failures.extend(failure);
        scrape
    });
    let page = Page::new(scrapes.collect()).text(Form::OpenMetrics);
    if output::print(&page)? == Reader::Gone {
        return Ok(0);
    }
    let codes: Vec<u8> = failures.iter().map(Failure::report).collect();
    Ok(codes.first().copied().unwrap_or(0))
}
