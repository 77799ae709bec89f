//! Common code of the server's child processes: they run at low priority and exit with their
//! server.

use std::io;

use anyhow::Context as _;
use rlimit::Resource;

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

/// Prepares this process for long work on files of users: it runs when idle, only the owner may read
/// what it writes, and the system ends it beyond these limits.
pub(crate) fn run_when_idle_within(cpu_seconds: u64, memory_bytes: u64) -> anyhow::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    run_when_idle()?;
    for (resource, limit) in [(Resource::CPU, cpu_seconds), (Resource::AS, memory_bytes)] {
        let (_, hard) = resource.get()?;
        resource.set(limit.min(hard), limit.min(hard))?;
    }
    Ok(())
}

/// CPU time of this process since its start, in user and kernel mode, in µs.
pub(crate) fn cpu_time_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
}

/// CPU time of the children that have ended, in µs.
#[allow(unsafe_code, reason = "no crate in use has a safe function for it")]
pub(crate) fn children_cpu_time_us() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid during the call. Zeros are a valid value, also after a failure.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |time: libc::timeval| u64::try_from(time.tv_sec * 1_000_000 + time.tv_usec);
    micros(usage.ru_utime).unwrap_or(0) + micros(usage.ru_stime).unwrap_or(0)
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
        // The log of a server that is gone is closed, too.
        let reason = b"the process ends, because its standard input is closed\n";
        let _ = io::Write::write_all(&mut io::stderr(), reason);
        // Destructors of the ONNX Runtime would wait for a voice that speaks.
        models::exit_process(1)
    };
    engine::thread::spawn("parent", wait_for_eof).context("cannot start a thread")?;
    Ok(())
}
