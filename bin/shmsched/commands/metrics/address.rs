//! Listens until a signal ends it.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::task::Wake;
use std::thread;

use super::connections;
use super::page::Pages;
use super::scrape::All;
use crate::commands::several;
use crate::exit::{self, Code, Failure, Outcome};
use crate::output;
use crate::signals::Signals;

/// Serves at that address, and says on stdout where that is once it is ready. Signals are for the main thread, so all the rest
/// is on others.
pub fn serve(address: &str, all: All, limit: usize) -> Outcome {
    let mut signals = Signals::catch().map_err(|error| Failure::new(Code::Io, error))?;
    let refused = |error: io::Error| exit::listening(&error, address);
    let listener = TcpListener::bind(address).map_err(refused)?;
    let at = listener.local_addr().map_err(refused)?;
    let alarm = signals.alarm().map_err(refused)?;
    let (sender, ended) = mpsc::channel();
    let server = thread::Builder::new().name("metrics".into());
    let server = server.spawn(move || {
        // The main thread is there as long as the process is.
        let _ = sender.send(run(listener, all, limit));
        alarm.wake();
    });
    server.map_err(refused)?;
    output::print(&format!("listening on http://{at}/metrics\n"))?;
    loop {
        if let Some(signal) = signals.ending() {
            return Err(Failure::signal(signal));
        }
        if let Ok(error) = ended.try_recv() {
            return Err(refused(error));
        }
        signals.sleep(None);
    }
}

fn run(listener: TcpListener, mut all: All, limit: usize) -> io::Error {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(1)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return error,
    };
    runtime.block_on(async {
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        match listener {
            Ok(listener) => {
                // Files are for clients and segments: neither may take all.
                let room = several::room(limit, 0);
                let clients = (room / 2).clamp(1, connections::MOST);
                all.keep(room - clients);
                connections::serve(listener, clients, Arc::new(Pages::new(all))).await
            }
            Err(error) => error,
        }
    })
}
