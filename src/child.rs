//! Common code of the server's child processes: they run at low priority and exit with their
//! server.

use std::io;

use anyhow::Context as _;

/// The lowest priority there is: a bake is not interactive.
pub(crate) const BAKING: i32 = 19;
/// Previews are interactive, so they run at a higher priority than bakes: they get most of the time
/// that calls leave, and a bake gets the rest.
pub(crate) const DRAWING: i32 = 14;

/// Lowers the priority of this thread, and of every thread and process that it starts, below calls
/// and all other programs. To be called before other threads are started.
pub(crate) fn step_back(nice: i32) -> anyhow::Result<()> {
    rustix::process::setpriority_process(None, nice).context("cannot lower the priority")
}

/// Exits this process when its standard input closes. The server holds the other end, which closes
/// however the server ends.
pub(crate) fn end_with_input() -> anyhow::Result<()> {
    let watch = || {
        // After an error or the end of input, the server is gone.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    };
    engine::thread::spawn("parent", watch).context("cannot start a thread")?;
    Ok(())
}
