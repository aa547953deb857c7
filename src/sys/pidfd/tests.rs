use super::*;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::null());
    command.spawn().unwrap()
}

fn in_ms(ms: u64) -> u64 {
    clock::now() + ms * 1_000_000
}

#[test]
fn the_end_of_a_process_ends_the_poll_before_it_is_waited_for() {
    let mut child = sleeper();
    let process = Process::open(child.id()).unwrap();
    assert!(poll(&[process.number()], in_ms(20)).is_empty());
    child.kill().unwrap();
    assert_eq!(poll(&[-1, process.number()], in_ms(20_000)), [1]);
    assert!(process.is_ours(), "a zombie's");
    child.wait().unwrap();
    assert!(process.is_ours(), "of one that was waited for");
    assert_eq!(Process::open(child.id()).err(), Some(Refusal::Nobody));
}

#[test]
fn a_pid_that_is_none_is_refused() {
    for pid in [0, u32::MAX] {
        assert_eq!(Process::open(pid).err(), Some(Refusal::Never));
    }
}

#[test]
fn a_waker_ends_the_poll_of_another_thread_or_the_next() {
    let waker = Arc::new(Waker::new().unwrap());
    let theirs = waker.clone();
    let sleeper = std::thread::spawn(move || poll(&[theirs.number()], in_ms(20_000)));
    std::thread::sleep(Duration::from_millis(20));
    waker.wake();
    assert_eq!(sleeper.join().unwrap(), [0]);
    assert!(waker.clear());
    assert!(poll(&[waker.number()], in_ms(1)).is_empty());
    // More than it holds.
    (0..10_000).for_each(|_| waker.wake());
    assert_eq!(poll(&[waker.number()], in_ms(20_000)), [0]);
    assert!(waker.clear());
    assert!(poll(&[waker.number()], in_ms(1)).is_empty());
}

/// Has the number of a descriptor lead to another file, as if the program had closed it and opened that one.
fn use_again(number: RawFd) -> OwnedFd {
    let file = File::open("/dev/null").unwrap();
    // SAFETY: the number is a descriptor of this test's; who held it is to find that it is another.
    let same = unsafe { libc::dup2(file.as_raw_fd(), number) };
    assert_eq!(same, number);
    // SAFETY: the number is open, and from here on this one's.
    unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) }
}

#[test]
fn a_number_that_is_used_again_is_neither_believed_nor_closed() {
    let mut child = sleeper();
    let process = Process::open(child.id()).unwrap();
    let another = use_again(process.number());
    assert_eq!(poll(&[process.number()], in_ms(20_000)), [0]);
    assert!(!process.is_ours());
    drop(process);
    assert!(leads_to(another.as_fd()).is_ok(), "it was closed");

    let waker = Waker::new().unwrap();
    let another = use_again(waker.number());
    waker.wake();
    assert!(!waker.clear());
    drop(waker);
    assert!(leads_to(another.as_fd()).is_ok(), "it was closed");

    // Also among those whose inode is that of a process before Linux 6.9.
    let process = Process::open(child.id()).unwrap();
    let file = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    // SAFETY: as above.
    let same = unsafe { libc::dup2(file.as_raw_fd(), process.number()) };
    assert_eq!(same, process.number());
    assert!(!process.is_ours());
    drop(process);
    // SAFETY: the number is open, and nobody else's.
    let another = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(same) };
    assert!(leads_to(another.as_fd()).is_ok(), "it was closed");
    child.kill().unwrap();
    child.wait().unwrap();
}
