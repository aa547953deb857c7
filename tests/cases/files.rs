//! Files that are no segments, and file systems without room.

use crate::shell::{Play, create, names, script, shmsched, unshare};
use crate::support::{Scene, skipped};
use std::fs;
use std::time::Duration;

/// Where the header says that all is written.
const READY: u64 = 80;

#[test]
fn case_21_half_made_files_are_told_from_segments() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "3"]);
    let whole = fs::read(&segment).unwrap();
    let mut unready = whole.clone();
    unready[READY as usize] = 0;
    let planted: [(&str, Vec<u8>); 4] = [
        ("empty", Vec::new()),
        ("not a segment", whole[..100].to_vec()),
        ("not a segment", vec![0; whole.len()]),
        ("not a segment", unready),
    ];
    for (told, bytes) in planted {
        fs::write(&segment, &bytes).unwrap();
        // At once, which is the best of some: any may stand still on its way.
        let tries = [(); 3].map(|()| {
            let ended = shmsched!["run", &segment, "--", "true"].ended();
            let ended = ended.says(65, told);
            assert!(ended.err.contains("; "), "nothing to do: {ended:?}");
            ended.took
        });
        assert!(
            tries.iter().min() < Some(&Duration::from_secs(2)),
            "{tries:?}"
        );
        for verb in ["set", "create --if-missing", "run --no-wait"] {
            let mut words = verb.split(' ');
            let mut command = shmsched![words.next().unwrap()];
            command.args(words).arg(&segment);
            command.args(["--concurrency", "3"]);
            if verb.starts_with("run") {
                command.args(["--", "true"]);
            }
            command.ended().says(65, told);
        }
        for verb in ["inspect", "doctor", "wait", "rm"] {
            shmsched![verb, &segment].ended().says(65, told);
        }
        assert_eq!(fs::read(&segment).unwrap(), bytes, "it was changed");
        assert_eq!(names(&scene.path("")), ["S"]);
    }
}

#[test]
fn case_22_a_full_disk_is_an_error_at_creation() {
    let Some(wrapper) = unshare(&["--mount"]) else {
        skipped!("unshare --mount is not permitted");
    };
    let scene = Scene::new();
    // Without a slash at its end.
    let directory = scene.path("d");
    fs::create_dir(&directory).unwrap();
    let small = "mount -t tmpfs -o size=8k tmpfs \"$D\" || exit 99\n\
                 \"$B\" create \"$D/a\" --concurrency 3; code=$?\n\
                 ls -A \"$D\"; exit $code";
    let mut command = script(&wrapper, small);
    command.env("D", &directory);
    let ended = command.ended();
    if ended.code == Some(99) {
        skipped!("a tmpfs may not be mounted");
    }
    let ended = ended.says(73, "no space");
    assert!(
        ended
            .err
            .contains(&format!("{}", directory.join("a").display()))
    );
}

/// All was reserved when it was made.
#[test]
fn case_22_a_disk_that_fills_later_changes_nothing() {
    let Some(wrapper) = unshare(&["--mount"]) else {
        skipped!("unshare --mount is not permitted");
    };
    let scene = Scene::new();
    let full = "mount -t tmpfs -o size=4m tmpfs \"$D\" || exit 99\n\
                cd \"$D\"; \"$B\" create ./a --concurrency 2 || exit 1\n\
                cat /dev/zero > fill 2>/dev/null\n\
                printf x > more 2>/dev/null && { echo not full; exit 1; }\n\
                for n in $(seq 40); do \"$B\" run ./a -- true || exit 2; done\n\
                \"$B\" run ./a -- \"$B\" run ./a --nested wait -- \"$B\" inspect ./a | grep -q 'running  *2 of 2' || exit 3\n\
                \"$B\" set ./a --concurrency 1 --target low=1 || exit 4\n\
                \"$B\" run ./a --slots 2 -- true; [ $? = 69 ] || exit 5\n\
                \"$B\" create ./b --concurrency 1; [ $? = 73 ] || exit 6\n\
                \"$B\" doctor ./a || exit 7\n\
                ls -A; exit 0";
    let mut command = script(&wrapper, full);
    command.env("D", scene.path(""));
    let ended = command.ended();
    if ended.code == Some(99) {
        skipped!("a tmpfs may not be mounted");
    }
    let ended = ended.is(0);
    assert!(ended.out.ends_with("a\nfill\nmore\n"), "{ended:?}");
    assert!(ended.out.contains("healthy"), "{ended:?}");
}

#[test]
fn case_21_a_segment_cut_in_its_middle_is_damaged() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "3"]);
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    let long = file.metadata().unwrap().len();
    file.set_len(long / 2).unwrap();
    for verb in ["inspect", "doctor", "wait", "rm"] {
        shmsched![verb, &segment].ended().says(65, "damaged");
    }
    shmsched!["run", &segment, "--", "true"]
        .ended()
        .says(65, "damaged");
    // The way out that the message names.
    shmsched!["rm", "--force", &segment].ended().is(0);
    assert_eq!(names(&scene.path("")), [""; 0]);
}
