//! Common code of the server's child processes: they run at low priority and exit with their
//! server.

use std::io;

use anyhow::Context as _;

/// The lowest priority there is: a bake is not interactive.
pub(crate) const BAKE_NICENESS: i32 = 19;
/// Previews are interactive, so they run at a higher priority than bakes: they get most of the time
/// that calls leave, and a bake gets the rest.
pub(crate) const PREVIEW_NICENESS: i32 = 14;

/// Lowers the priority of this thread, and of every thread and process that it starts, below calls
/// and all other programs. To be called before other threads are started.
pub(crate) fn lower_priority(nice: i32) -> anyhow::Result<()> {
    rustix::process::setpriority_process(None, nice).context("cannot lower the priority")
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
