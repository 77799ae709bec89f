//! Common code of the server's child processes: they run at low priority and exit with their
//! server.

use std::io;

use anyhow::Context as _;

/// The lowest nice value, for work that nobody waits for.
const BATCH_NICENESS: i32 = 19;
/// Previews are interactive, so they run at a higher priority than bakes: they get most of the time
/// that calls leave, and a bake gets the rest.
const PREVIEW_NICENESS: i32 = 14;

/// Lowers the priority of this thread, and of every thread and process that it starts, below calls.
/// To be called before other threads are started.
pub(crate) fn run_as_preview() -> anyhow::Result<()> {
    rustix::process::setpriority_process(None, PREVIEW_NICENESS)
        .context("cannot lower the priority")
}

/// Lets this thread, and every thread and process that it starts, run only when no other thread of
/// the machine is ready to run. To be called before other threads are started.
///
/// A nice value alone lets a process finish its time slice of some milliseconds while a media thread
/// is due. A thread of the class `SCHED_IDLE` is preempted at once.
pub(crate) fn run_when_idle() -> anyhow::Result<()> {
    rustix::process::setpriority_process(None, BATCH_NICENESS)
        .context("cannot lower the priority")?;
    #[cfg(target_os = "linux")]
    set_idle_class().context("cannot select the idle scheduling class")?;
    Ok(())
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no crate in use has a safe function for it")]
fn set_idle_class() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is valid during the call, and 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Exits this process when its standard input closes. The server holds the other end, which closes
/// however the server ends.
pub(crate) fn exit_when_stdin_closes() -> anyhow::Result<()> {
    let wait_for_eof = || {
        // After an error or the end of input, the server is gone.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        eprintln!("the process ends, because its standard input is closed");
        std::process::exit(1);
    };
    engine::thread::spawn("parent", wait_for_eof).context("cannot start a thread")?;
    Ok(())
}
