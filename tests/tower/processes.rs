use super::{run, sure};
use crate::support::{Args, Child, Recorder, Scene, hear, peak, quiet, say};
use shmsched::tower::ConcurrencyLayer;
use shmsched::{Location, Priority, Segment};
use std::sync::Arc;
use std::time::Duration;
use tower::{Layer, Service};

const SLOTS: u32 = 3;
const CLIENTS: usize = 6;
const REQUESTS: usize = 15;

/// A child: serves its clients, and stamps the begin and the end of each call.
pub fn server(args: &Args) {
    let scheduler = Segment::open(&args.location())
        .unwrap()
        .scheduler()
        .unwrap();
    let recorder = Arc::new(Recorder::open(args.text(1).as_ref()));
    let layer = ConcurrencyLayer::new(scheduler, |(): &()| Priority::Normal);
    let service = layer.layer(sure(move || {
        let recorder = recorder.clone();
        async move {
            recorder.start(1);
            tokio::time::sleep(Duration::from_millis(1)).await;
            recorder.end(1);
        }
    }));
    say("ready");
    hear();
    run(async {
        let clients = (0..CLIENTS).map(|_| {
            let mut service = service.clone();
            tokio::spawn(async move {
                for _ in 0..REQUESTS {
                    service.call(()).await.unwrap();
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
    });
    say("done");
    hear();
}

#[test]
fn the_limit_holds_over_three_processes() {
    let scene = Scene::new();
    let location: Location = scene.segment(SLOTS);
    let (segment, log) = (
        location.path().to_string_lossy().into_owned(),
        scene.path("log"),
    );
    let log_name = log.to_string_lossy().into_owned();
    let mut servers: Vec<_> = (0..3)
        .map(|_| Child::start("server", &[&segment, &log_name]))
        .collect();
    servers
        .iter_mut()
        .for_each(|server| drop(server.expect("ready")));
    servers.iter_mut().for_each(|server| server.tell("go"));
    servers
        .iter_mut()
        .for_each(|server| drop(server.expect("done")));
    let (most, started) = peak(&log);
    assert_eq!(started, 3 * CLIENTS * REQUESTS);
    assert_eq!(most, SLOTS, "never more, and at times all of them");
    drop(servers);
    quiet(&location, SLOTS);
}
