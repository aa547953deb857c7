//! The page that is served, which is made at most so often.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;

use super::scrape::Watched;
use crate::output::metrics::{Form, Page};

/// A page is served again for so long: so many clients cost no more than one.
const FRESH: Duration = Duration::from_millis(100);

/// A page in both forms.
#[derive(Clone)]
pub struct Texts {
    made: Instant,
    open_metrics: Bytes,
    prometheus: Bytes,
}

impl Texts {
    pub fn form(self, form: Form) -> Bytes {
        match form {
            Form::OpenMetrics => self.open_metrics,
            Form::Prometheus => self.prometheus,
        }
    }
}

/// Makes pages; at most one at a time.
pub struct Pages {
    watched: Arc<Mutex<Vec<Watched>>>,
    last: tokio::sync::Mutex<Option<Texts>>,
}

impl Pages {
    pub fn new(watched: Vec<Watched>) -> Pages {
        Pages {
            watched: Arc::new(Mutex::new(watched)),
            last: tokio::sync::Mutex::new(None),
        }
    }

    /// The page of now.
    pub async fn get(&self) -> io::Result<Texts> {
        let mut last = self.last.lock().await;
        if let Some(texts) = last.as_ref().filter(|texts| texts.made.elapsed() < FRESH) {
            return Ok(texts.clone());
        }
        // Reading a busy segment may take a while, during which others are answered.
        let watched = Arc::clone(&self.watched);
        let texts = tokio::task::spawn_blocking(move || make(&watched)).await?;
        *last = Some(texts.clone());
        Ok(texts)
    }
}

fn make(watched: &Mutex<Vec<Watched>>) -> Texts {
    let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
    let scrapes = watched.iter_mut().map(|segment| segment.scrape().0);
    let page = Page::new(scrapes.collect());
    Texts {
        made: Instant::now(),
        open_metrics: page.text(Form::OpenMetrics).into(),
        prometheus: page.text(Form::Prometheus).into(),
    }
}
