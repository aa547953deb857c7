//! The page that is served, which is made at most so often.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;

use super::scrape::All;
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
    all: Arc<Mutex<All>>,
    last: tokio::sync::Mutex<Option<Texts>>,
}

impl Pages {
    pub fn new(all: All) -> Pages {
        Pages {
            all: Arc::new(Mutex::new(all)),
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
        let all = Arc::clone(&self.all);
        let texts = tokio::task::spawn_blocking(move || make(&all)).await?;
        *last = Some(texts.clone());
        Ok(texts)
    }
}

fn make(all: &Mutex<All>) -> Texts {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    let page = Page::new(all.scrape().0);
    Texts {
        made: Instant::now(),
        open_metrics: page.text(Form::OpenMetrics).into(),
        prometheus: page.text(Form::Prometheus).into(),
    }
}
