//! What a request is answered: GET and HEAD of two paths, everything else refused.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use super::page::Pages;
use crate::output::metrics::Form;

type Answer = Response<Full<Bytes>>;

const PLAIN: &str = "text/plain; charset=utf-8";

pub async fn answer<B>(request: Request<B>, pages: &Pages) -> Result<Answer, Infallible> {
    let path = request.uri().path();
    if !["/", "/metrics"].contains(&path) {
        return Ok(plain(StatusCode::NOT_FOUND, "not found; see /metrics\n"));
    }
    // The server sends no body after HEAD.
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        let headers = refused.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match path {
        "/metrics" => {
            let form = wanted(request.headers());
            match pages.get().await {
                Ok(texts) => of(StatusCode::OK, form.media_type(), texts.form(form)),
                Err(error) => plain(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("cannot read the segments: {error}\n"),
                ),
            }
        }
        _ => plain(StatusCode::OK, "shmsched metrics are at /metrics\n"),
    })
}

/// OpenMetrics, unless a client only knows the older text.
fn wanted(headers: &HeaderMap) -> Form {
    let mut accepted = String::new();
    for value in headers.get_all(ACCEPT) {
        accepted.push_str(value.to_str().unwrap_or_default());
        accepted.push(',');
    }
    let accepts = |media: &str| accepted.contains(media);
    match accepts("text/plain") && !accepts("application/openmetrics-text") {
        true => Form::Prometheus,
        false => Form::OpenMetrics,
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    of(status, PLAIN, text.into())
}

fn of(status: StatusCode, media_type: &'static str, text: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(text));
    *answer.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(CONTENT_TYPE, media_type);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_clients() {
        let of = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(ACCEPT, HeaderValue::from_static(value));
            }
            wanted(&headers)
        };
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for accept in [
            &[][..],
            &["*/*"],
            &[prometheus],
            &["text/plain", "application/openmetrics-text"],
        ] {
            assert_eq!(of(accept), Form::OpenMetrics, "{accept:?}");
        }
        for accept in [
            &["text/plain"][..],
            &["text/html", "text/plain;version=0.0.4"],
        ] {
            assert_eq!(of(accept), Form::Prometheus, "{accept:?}");
        }
    }
}
