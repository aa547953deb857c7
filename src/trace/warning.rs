//! What becomes of writers that panic.

use crate::words::U32;
use std::any::Any;
use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, RwLock};

/// A panic that was contained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// What the writer was told when it panicked.
    pub operation: &'static str,
    /// What the panic said, if it was text.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { operation, message } = self;
        write!(f, "a trace writer panicked at {operation}: {message}")
    }
}

/// Called for each panic of a writer: see [`set_warning_hook`].
pub type WarningHook = dyn Fn(&Warning) + Send + Sync;

static HOOK: RwLock<Option<Arc<WarningHook>>> = RwLock::new(None);
static TOLD_ONCE: U32 = U32::new(0);

/// Has `hook` called for each panic of a writer that was contained (O7), in the whole process and on the thread where it
/// happened. `None` is what there is at first: one line on standard error for the first of them, and none for the others;
/// the panic hook has its say in any case. A panic of `hook` is contained too.
pub fn set_warning_hook(hook: Option<Box<WarningHook>>) {
    let hook: Option<Arc<WarningHook>> = hook.map(Arc::from);
    let old = {
        let mut place = HOOK.write().unwrap_or_else(|poison| poison.into_inner());
        std::mem::replace(&mut *place, hook)
    };
    // Foreign code: outside the lock.
    drop(old);
}

/// Tells the hook, or standard error, of a writer that panicked.
#[cold]
pub(super) fn warn(operation: &'static str, panic: Box<dyn Any + Send>) {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| text.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    let warning = Warning {
        operation,
        message: text.unwrap_or_else(|| "no text".into()),
    };
    // Its drop is foreign code too.
    contain(|| drop(panic));
    // Not waited for: in a forked child nobody may be left to give it back.
    let hook = HOOK.try_read().ok().and_then(|hook| hook.clone());
    match hook {
        Some(hook) => contain(|| hook(&warning)),
        None if TOLD_ONCE.swap(1) == 0 => {
            let _ = writeln!(std::io::stderr(), "shmsched: {warning}");
        }
        None => {}
    }
}

fn contain(f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(panic);
    }
}
