//! A child that does what the test says, line by line.
//!
//! | line | answer | later |
//! |---|---|---|
//! | `try ID P K` | `= yes` or `= no` | |
//! | `wait ID P K [MS]` (a thread) or `task ID P K` (a tokio task) | `= on` | `got ID NS` or `failed ID WHY` |
//! | `cancel ID` (a task) | `= off` | |
//! | `drop ID` | `= NS` when it began, once it is done | |
//! | `forget ID` | `= forgotten` | |
//! | `work N P US TAG FILE`: N tasks that each append TAG to FILE and hold for US | `= on` | `worked TAG` |
//! | `loop N P US`: N threads that take a slot, hold it for US and give it back, for ever | `= on` | |
//! | `draw N`, `set N`, `pending`, `maps`, `look`, `leave` | see there | |

use crate::support::{Args, Child, hear, now, say};
use shmsched::{Changes, Deadline, Location, OwnedPermit, Priority, Scheduler, Segment};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The test's end of a puppet.
pub struct Puppet(pub Child);

impl Puppet {
    pub fn new(location: &Location) -> Puppet {
        Puppet::under(&[], location)
    }

    pub fn under(wrapper: &[&str], location: &Location) -> Puppet {
        let path = location.path();
        let mut child = Child::start_under(wrapper, "puppet", &[&path.to_string_lossy()]);
        child.expect("attached");
        Puppet(child)
    }

    /// Says a line, gives back the answer.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.0.tell(line);
        self.0.expect("=")
    }

    /// Takes slots at once; they must be free.
    #[track_caller]
    pub fn take(&mut self, id: &str, slots: u32) {
        assert_eq!(self.ask(&format!("try {id} 3 {slots}")), "yes");
    }

    /// Whether a try is granted; it is given back at once.
    #[track_caller]
    pub fn could_take(&mut self) -> bool {
        let yes = self.ask("try probe 3 1") == "yes";
        if yes {
            self.ask("drop probe");
        }
        yes
    }

    /// Begins a wait by a thread.
    #[track_caller]
    pub fn wait(&mut self, id: &str, priority: usize, slots: u32) {
        assert_eq!(self.ask(&format!("wait {id} {priority} {slots}")), "on");
    }

    /// When a wait was served, CLOCK_MONOTONIC ns.
    #[track_caller]
    pub fn got(&mut self, id: &str) -> u64 {
        self.0.expect(&format!("got {id}")).parse().unwrap()
    }

    /// Gives back; when.
    #[track_caller]
    pub fn drop(&mut self, id: &str) -> u64 {
        self.ask(&format!("drop {id}")).parse().unwrap()
    }
}

/// A wait that goes on, or what it brought.
enum Hand {
    Permit(OwnedPermit),
    Thread(Sender<()>, Receiver<u64>),
    Task(
        tokio::task::JoinHandle<()>,
        tokio::sync::mpsc::UnboundedSender<()>,
        Receiver<u64>,
    ),
}

fn priority(index: &str) -> Priority {
    Priority::from_index(index.parse().unwrap()).unwrap()
}

/// Role: PATH.
pub fn play(args: &Args) {
    let location = args.location();
    let segment = Segment::open(&location).unwrap();
    let scheduler = segment.scheduler().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut hands = HashMap::<String, Hand>::new();
    say("attached");
    loop {
        let line = hear();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["try", id, p, k] => {
                match scheduler.try_acquire_many_owned(k.parse().unwrap(), priority(p)) {
                    Ok(permit) => {
                        hands.insert(id.into(), Hand::Permit(permit));
                        say("= yes");
                    }
                    Err(shmsched::TryAcquireError::NoPermits) => say("= no"),
                    Err(error) => say(format!("= {error}")),
                }
            }
            ["wait", id, p, k, ref rest @ ..] => {
                let until = rest.first().map_or(Deadline::Never, |ms| {
                    Duration::from_millis(ms.parse().unwrap()).into()
                });
                let hand = wait(&scheduler, id, priority(p), k.parse().unwrap(), until);
                hands.insert(id.into(), hand);
                say("= on");
            }
            ["task", id, p, k] => {
                let hand = task(&runtime, &scheduler, id, priority(p), k.parse().unwrap());
                hands.insert(id.into(), hand);
                say("= on");
            }
            ["cancel", id] => {
                if let Some(Hand::Task(task, ..)) = hands.remove(id) {
                    task.abort();
                    let _ = runtime.block_on(task);
                }
                say("= off");
            }
            ["drop", id] => match hands.remove(id) {
                Some(Hand::Permit(permit)) => {
                    let at = now();
                    drop(permit);
                    say(format!("= {at}"));
                }
                Some(Hand::Thread(sender, at)) => {
                    sender.send(()).unwrap();
                    say(format!("= {}", at.recv().unwrap()));
                }
                Some(Hand::Task(_, sender, at)) => {
                    sender.send(()).unwrap();
                    say(format!("= {}", at.recv().unwrap()));
                }
                None => panic!("no {id}"),
            },
            ["forget", id] => {
                let Some(Hand::Permit(permit)) = hands.remove(id) else {
                    panic!("no {id}")
                };
                permit.forget();
                say("= forgotten");
            }
            ["work", n, p, us, tag, file] => {
                let hold = Duration::from_micros(us.parse().unwrap());
                let n = n.parse().unwrap();
                work(&runtime, &scheduler, n, priority(p), hold, tag, file);
                say("= on");
            }
            ["loop", n, p, us] => {
                let hold = Duration::from_micros(us.parse().unwrap());
                let p = priority(p);
                for _ in 0..n.parse().unwrap() {
                    let scheduler = scheduler.clone();
                    std::thread::spawn(move || {
                        while let Ok(permit) = scheduler.blocking_acquire(p) {
                            std::thread::sleep(hold);
                            drop(permit);
                        }
                    });
                }
                say("= on");
            }
            ["draw", n] => {
                scheduler.fix_draw(Some(n.parse().unwrap()));
                say("= drawn");
            }
            ["set", n] => {
                let changes = Changes::new().concurrency(Some(n.parse().unwrap()));
                segment.set(&changes).unwrap();
                say("= set");
            }
            ["pending"] => say(format!("= {}", scheduler.stats().pending)),
            ["look"] => {
                let looked = scheduler.look();
                say(format!("= {} {}", looked.dead, looked.reclaimed));
            }
            ["maps"] => say(format!("= {}", maps(&location))),
            ["leave"] => return,
            _ => panic!("what is {line:?}?"),
        }
    }
}

fn wait(scheduler: &Scheduler, id: &str, priority: Priority, slots: u32, until: Deadline) -> Hand {
    let (sender, wish) = channel();
    let (answer, at) = channel();
    let (scheduler, id) = (scheduler.clone(), id.to_owned());
    std::thread::spawn(
        move || match scheduler.blocking_acquire_until(slots, priority, until) {
            Ok(permit) => {
                say(format!("got {id} {}", now()));
                let told = wish.recv();
                let at = now();
                drop(permit);
                if told.is_ok() {
                    let _ = answer.send(at);
                }
            }
            Err(error) => say(format!("failed {id} {error:?}")),
        },
    );
    Hand::Thread(sender, at)
}

fn task(
    runtime: &tokio::runtime::Runtime,
    scheduler: &Scheduler,
    id: &str,
    priority: Priority,
    slots: u32,
) -> Hand {
    let (sender, mut wish) = tokio::sync::mpsc::unbounded_channel();
    let (answer, at) = channel();
    let (scheduler, id) = (scheduler.clone(), id.to_owned());
    let task = runtime.spawn(async move {
        match scheduler.acquire_many(slots, priority).await {
            Ok(permit) => {
                say(format!("got {id} {}", now()));
                let told = wish.recv().await;
                let at = now();
                drop(permit);
                if told.is_some() {
                    let _ = answer.send(at);
                }
            }
            Err(error) => say(format!("failed {id} {error:?}")),
        }
    });
    Hand::Task(task, sender, at)
}

fn work(
    runtime: &tokio::runtime::Runtime,
    scheduler: &Scheduler,
    n: usize,
    priority: Priority,
    hold: Duration,
    tag: &str,
    file: &str,
) {
    let tasks: Vec<_> = (0..n)
        .map(|_| {
            let (scheduler, tag) = (scheduler.clone(), tag.to_owned());
            let log = OpenOptions::new()
                .append(true)
                .create(true)
                .open(file)
                .unwrap();
            runtime.spawn(async move {
                let permit = scheduler.acquire(priority).await.unwrap();
                (&log).write_all(format!("{tag}\n").as_bytes()).unwrap();
                tokio::time::sleep(hold).await;
                drop(permit);
            })
        })
        .collect();
    let tag = tag.to_owned();
    runtime.spawn(async move {
        for task in tasks {
            task.await.unwrap();
        }
        say(format!("worked {tag}"));
    });
}

/// Where the segment is mapped: `start-end` in hex.
fn maps(location: &Location) -> String {
    let path = location.path();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_it: Vec<&str> = maps
        .lines()
        .filter(|line| line.ends_with(&*path.to_string_lossy()) && line.contains(" rw-s "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    of_it.join(" ")
}
