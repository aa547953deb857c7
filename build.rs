//! Links the command line, and only it, with everything it needs inside. Nothing is loaded and bound at each start
//! then, which is a tenth of `shmsched run S -- true`. It remains position-independent. Where that cannot be had, it
//! gets at least the compiler's unwinder; and where there is not even that, nothing changes. With
//! `SHMSCHED_LINK=dynamic` neither is done.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a program without shared libraries must be able to do. One that was linked half and half dies before its `main`.
const TRIAL: &str = r#"
fn main() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("/libc.so"), "it was linked with the shared one");
    let thread = std::thread::spawn(|| std::panic::catch_unwind(|| panic!("caught")).is_err());
    assert!(thread.join().unwrap());
}
"#;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SHMSCHED_LINK");
    let wanted = env::var_os("SHMSCHED_LINK").is_none_or(|how| how != "dynamic");
    let gnu = env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    let native = env::var("HOST") == env::var("TARGET");
    if !(wanted && gnu && native && env::var_os("CARGO_FEATURE_CLI").is_some()) {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arguments = everything(&out.join("everything")).or_else(|| unwinder(&out.join("unwinder")));
    for argument in arguments.unwrap_or_default() {
        println!("cargo::rustc-link-arg-bin=shmsched={argument}");
    }
}

/// The C library too, if such a program works here.
fn everything(directory: &Path) -> Option<Vec<String>> {
    // Before glibc 2.34 threads were a library of their own, of which a linker took only what it saw a use for.
    const EMPTY: &[u8] = b"!<arch>\n";
    let threads = fs::read(archive("libpthread.a")?).ok()?;
    if threads != EMPTY {
        return None;
    }
    let mut arguments = unwinder(directory)?;
    stand_in(directory, "libc.so", &["libc.a", "libgcc_eh.a", "libgcc.a"])?;
    stand_in(directory, "libm.so", &["libm.a"])?;
    arguments.push("-static-pie".into());
    works(directory, &arguments).then_some(arguments)
}

/// The standard library asks for gcc_s.
fn unwinder(directory: &Path) -> Option<Vec<String>> {
    fs::create_dir_all(directory).ok()?;
    stand_in(directory, "libgcc_s.so", &["libgcc_eh.a", "libgcc.a"])?;
    Some(vec![format!("-L{}", directory.display())])
}

/// A linker script that names archives, to be found before the shared library whose name it has.
fn stand_in(directory: &Path, name: &str, archives: &[&str]) -> Option<()> {
    let paths: Option<Vec<_>> = archives.iter().map(|name| archive(name)).collect();
    let quoted = paths?
        .iter()
        .map(|path| format!("\"{}\"", path.display()))
        .collect::<Vec<_>>();
    fs::write(
        directory.join(name),
        format!("GROUP ( {} )\n", quoted.join(" ")),
    )
    .ok()
}

/// Where the compiler that links keeps a library of its own.
fn archive(name: &str) -> Option<PathBuf> {
    let told = Command::new("cc")
        .arg(format!("-print-file-name={name}"))
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(told.stdout).ok()?.trim());
    (path.is_absolute() && Path::exists(&path)).then_some(path)
}

/// Whether a program that was linked so runs: built with the same compiler, flags and linker.
fn works(directory: &Path, arguments: &[String]) -> bool {
    let (source, program) = (directory.join("trial.rs"), directory.join("trial"));
    if fs::write(&source, TRIAL).is_err() {
        return false;
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let mut compile = Command::new(env::var_os("RUSTC").expect("cargo sets RUSTC"));
    compile.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("-Clinker=");
        option.push(linker);
        compile.arg(option);
    }
    compile.args(
        arguments
            .iter()
            .map(|argument| format!("-Clink-arg={argument}")),
    );
    compile
        .args(["--edition=2024", "--crate-type=bin", "-o"])
        .args([&program, &source]);
    succeeds(&mut compile) && succeeds(&mut Command::new(&program))
}

/// Whether a command ends well. What it says about failing is of no use to who builds.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
