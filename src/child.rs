//! What the server's child processes have in common: they take time only where nobody else wants it, and do not outlive their server.

use std::io;

use anyhow::Context as _;

/// The lowest priority there is: nobody waits for a person's set from second to second.
pub(crate) const BAKING: i32 = 19;
/// Whoever moves a slider looks on: a preview gets most of what calls leave, and a bake the rest.
pub(crate) const DRAWING: i32 = 14;

/// Steps back behind every other program, calls above all, for this thread and all that it starts. To be called before other threads are
/// started.
pub(crate) fn step_back(nice: i32) -> anyhow::Result<()> {
    rustix::process::setpriority_process(None, nice).context("the priority cannot be lowered")
}

/// Ends this process when its standard input ends: the server holds the other end, and whatever becomes of it closes that.
pub(crate) fn end_with_input() -> anyhow::Result<()> {
    let watch = || {
        // Broken or at its end, nobody is there any more.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    };
    engine::thread::spawn("parent", watch).context("no thread is left")?;
    Ok(())
}
