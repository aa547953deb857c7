//! Uploads from several processes that share one line: together they send so many bytes a second and no more, the urgent
//! ones first, however many there are.
//!
//! ```text
//! cargo run --example uploads             # three uploads of this machine to itself, in three seconds
//!
//! shmsched create line --rate 2MB/s
//! cargo run --example uploads -- sink 127.0.0.1:7070
//! cargo run --example uploads -- send line 127.0.0.1:7070 low < backup.tar
//! cargo run --example uploads -- send line 127.0.0.1:7070 high < mail.mbox    # in another terminal
//! ```
//!
//! `shmsched top line` shows who waits. `shmsched set line --rate 1MB/s` slows down all that are under way.

use shmsched::{Limiter, Location, OpenOptions, Priority, Segment, Settings};
use std::error::Error;
use std::io::{self, Seek};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, mpsc};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demo().await,
        ["sink", address] => sink(TcpListener::bind(address).await?).await,
        ["send", segment, address, priority] => {
            let location = Location::resolve(Some(segment.as_ref()))?;
            let options = OpenOptions::new().command("uploads");
            let limiter = Segment::open_with(&location, &options)?.limiter()?;
            send(&limiter, address, priority.parse()?).await
        }
        _ => {
            eprintln!("usage: uploads [sink ADDRESS | send SEGMENT ADDRESS PRIORITY]");
            std::process::exit(2)
        }
    }
}

/// Sends the standard input at the pace that is left to this priority.
async fn send(limiter: &Limiter, address: &str, priority: Priority) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{priority}\n").as_bytes()).await?;
    // The other side says when.
    stream.read_u8().await?;
    let mut paced = limiter.async_writer(stream, priority);
    tokio::io::copy(&mut tokio::io::stdin(), &mut paced).await?;
    paced.shutdown().await?;
    // What it answers now is the end: it has all of it.
    paced.into_inner().read_u8().await?;
    Ok(())
}

/// What came in one upload.
struct Upload {
    priority: String,
    bytes: u64,
    took: Duration,
}

impl Upload {
    fn print(&self) {
        let (mb, seconds) = (self.bytes as f64 / 1e6, self.took.as_secs_f64());
        println!("{:<8}  {mb:.1} MB in {seconds:.2} s", self.priority);
    }
}

/// Takes an upload. All that wait at the barrier begin at once.
async fn take(stream: TcpStream, start: &Barrier) -> io::Result<Upload> {
    let mut stream = BufReader::new(stream);
    let mut priority = String::new();
    stream.read_line(&mut priority).await?;
    // All are there; and whoever counts them is ready too.
    start.wait().await;
    start.wait().await;
    let begun = Instant::now();
    stream.write_u8(b'!').await?;
    let bytes = tokio::io::copy_buf(&mut stream, &mut tokio::io::sink()).await?;
    stream.write_u8(b'.').await?;
    Ok(Upload {
        priority: priority.trim().to_owned(),
        bytes,
        took: begun.elapsed(),
    })
}

/// Takes uploads as they come, for ever.
async fn sink(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            match take(stream, &Barrier::new(1)).await {
                Ok(upload) => upload.print(),
                Err(error) => eprintln!("an upload broke off: {error}"),
            }
        });
    }
}

/// Three processes that send as much each, at once, one of them in a hurry.
async fn demo() -> Result<(), Box<dyn Error>> {
    const RATE: u32 = 4_000_000;
    const EACH: u64 = 3_000_000;
    const PRIORITIES: [&str; 3] = ["low", "high", "low"];
    let name = format!("uploads-{}", std::process::id());
    let location = Location::resolve(Some(name.as_ref()))?;
    let segment = Segment::create(&location, &Settings::new().rate(RATE))?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();

    let start = Arc::new(Barrier::new(PRIORITIES.len() + 1));
    let (sender, mut uploads) = mpsc::channel(PRIORITIES.len());
    let mut processes = Vec::new();
    for priority in PRIORITIES {
        let mut file = tempfile::tempfile()?;
        file.set_len(EACH)?;
        file.rewind()?;
        let process = Command::new(std::env::current_exe()?)
            .args(["send", &name, &address, priority])
            .stdin(Stdio::from(file))
            .spawn()?;
        processes.push(process);
        let (stream, _) = listener.accept().await?;
        let (start, sender) = (start.clone(), sender.clone());
        tokio::spawn(async move { sender.send(take(stream, &start).await).await });
    }
    drop(sender);
    start.wait().await;
    // A second's worth is there after a pause. Without it, what is to be seen is the rate.
    let limiter = segment.limiter()?;
    let begun = Instant::now();
    limiter.acquire(RATE, Priority::Highest).await?;
    start.wait().await;

    println!("3 uploads share {:.1} MB/s", f64::from(RATE) / 1e6);
    let mut bytes = 0;
    while let Some(upload) = uploads.recv().await {
        let upload = upload?;
        upload.print();
        bytes += upload.bytes;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mb = bytes as f64 / 1e6;
    println!(
        "together  {mb:.1} MB in {seconds:.2} s: {:.2} MB/s",
        mb / seconds
    );

    for mut process in processes {
        process.wait()?;
    }
    drop((segment, limiter));
    Segment::remove(&location, false)?;
    Ok(())
}
