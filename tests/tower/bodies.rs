use super::{run, sure};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::Response;
use hyper::body::{Body, Bytes, Frame};
use shmsched::tower::{ConcurrencyLayer, UntilBody};
use shmsched::{Priority, Scheduler};
use tower::{Layer, Service};

/// A body of as many frames, of which the last one fails if it is to.
fn body(frames: usize, fails: bool) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
    let frames = (1..=frames).map(move |at| match fails && at == frames {
        true => Err(std::io::Error::other("cut off")),
        false => Ok(Frame::data(Bytes::from_static(b"chunk"))),
    });
    StreamBody::new(futures_util::stream::iter(frames))
}

#[test]
fn the_slot_is_held_until_the_body_has_ended() {
    let scheduler = Scheduler::local(1).unwrap();
    let free = || scheduler.available_permits() == 1;
    let plain = ConcurrencyLayer::new(scheduler.clone(), |(): &()| Priority::Normal);
    run(async {
        let answer = sure(|| async { Response::new(body(2, false)) });
        let response = plain.layer(answer.clone()).call(()).await.unwrap();
        assert!(free(), "else it ends where the body begins");
        drop(response);

        let layer = plain.clone().holding::<UntilBody>();
        let mut response = layer.layer(answer.clone()).call(()).await.unwrap();
        for _ in 0..2 {
            let frame = response.body_mut().frame().await;
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "chunk");
            assert!(!free());
        }
        assert!(response.body_mut().frame().await.is_none());
        assert!(free(), "though the body is still there");

        // The client hangs up.
        let response = layer.layer(answer).call(()).await.unwrap();
        assert!(!free());
        drop(response);
        assert!(free());

        let fails = sure(|| async { Response::new(body(1, true)) });
        let mut response = layer.layer(fails).call(()).await.unwrap();
        assert!(!free() && response.body_mut().frame().await.unwrap().is_err());
        assert!(free());

        let empty = sure(|| async { Response::new(Empty::<Bytes>::new()) });
        let response = layer.layer(empty).call(()).await.unwrap();
        assert!(free() && response.body().is_end_stream());

        // Nobody asks a body again that says that it has ended.
        let whole = sure(|| async { Response::new(http_body_util::Full::new(Bytes::from("all"))) });
        let mut response = layer.layer(whole).call(()).await.unwrap();
        assert_eq!(response.body().size_hint().exact(), Some(3));
        assert!(!free() && response.body_mut().frame().await.is_some());
        assert!(free() && response.body().is_end_stream());
    });
}
