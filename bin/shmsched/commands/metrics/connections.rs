//! Connections: so many at most, each for so long at most, whatever its client does.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::answer::answer;
use super::page::Pages;

/// So many at once, or fewer if few files may be open. One more, and the oldest is cut off: who holds them open without a
/// word keeps nobody out.
pub const MOST: usize = 64;
/// A request is complete within so long.
const REQUEST: Duration = Duration::from_secs(5);
/// A connection has ended within so long, the answer read or not.
const WHOLE: Duration = Duration::from_secs(15);
/// A request's head is no longer than this.
const LARGEST_HEAD: usize = 16 << 10;
/// If the system has no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts and answers, without end.
pub async fn serve(listener: TcpListener, most: usize, pages: Arc<Pages>) -> io::Error {
    let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(most);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if is_passing(&error) => {
                // Perhaps for want of a descriptor.
                if let Some(oldest) = open.pop_front() {
                    oldest.abort();
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return error,
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= most
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let pages = Arc::clone(&pages);
        let talk = tokio::spawn(async move {
            // Whatever goes wrong is the client's affair.
            let _ = tokio::time::timeout(WHOLE, talk(stream, pages)).await;
        });
        open.push_back(talk.abort_handle());
    }
}

/// One request and its answer.
async fn talk(stream: TcpStream, pages: Arc<Pages>) -> hyper::Result<()> {
    let service = service_fn(|request| answer(request, &pages));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .max_buf_size(LARGEST_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Whether the listener may go on after it: of a connection that broke, or for want of something.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let fatal = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::FAULT];
    !fatal
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
