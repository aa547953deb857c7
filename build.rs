//! Links the command line, and only it, with the compiler's unwinder inside: one shared library less to load at each
//! start, about a twentieth of `shmsched run S -- true`. Where the archives are not found nothing changes.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let gnu = env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    if !gnu || env::var("HOST") != env::var("TARGET") {
        return;
    }
    let (Some(unwinder), Some(support)) = (archive("libgcc_eh.a"), archive("libgcc.a")) else {
        return;
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The standard library asks for gcc_s; found here first, that is a linker script which names the archives.
    let script = format!(
        "GROUP ( \"{}\" \"{}\" )\n",
        unwinder.display(),
        support.display()
    );
    if std::fs::write(out.join("libgcc_s.so"), script).is_ok() {
        println!("cargo::rustc-link-arg-bin=shmsched=-L{}", out.display());
    }
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
