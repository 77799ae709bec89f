//! Threads on which models compute.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How far behind the rest of the program models stand. A word or a voice that comes some milliseconds later is not heard; sound, pictures and
/// the control plane's answers that do are. No right is needed to step back.
const NICE: i32 = 5;
/// The lowest priority there is.
const LAST: i32 = 19;

/// Starts a thread under a name of at most 15 bytes (what Linux shows of it), behind the one that starts it.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(move || {
        // Without it the model is as near to the front as everything else, and works.
        if let Ok(own) = rustix::process::getpriority_process(None) {
            let _ = rustix::process::setpriority_process(None, (own + NICE).min(LAST));
        }
        run();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_s_thread_stands_behind_the_one_that_starts_it() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let own = nice();
        spawn("model-test".into(), move || tell.send(nice()).unwrap()).unwrap().join().unwrap();
        assert_eq!(told.recv().unwrap(), (own + 5).min(19));
        assert_eq!(nice(), own, "and nobody else does");
    }
}
