//! Threads that run models.

use std::io;
use std::thread::{Builder, JoinHandle};

/// How much the nice value of a model's thread is raised over that of its parent. Text or speech
/// that arrives some milliseconds later is not noticed; late audio, video and REST responses are.
/// Raising the nice value needs no privilege.
const NICE_INCREMENT: i32 = 5;
/// Maximum nice value, which is the lowest priority.
const MAX_NICE: i32 = 19;

/// Starts a thread at a lower priority than the one that starts it. Linux shows at most 15 bytes of
/// the name.
///
/// # Errors
/// The system cannot create another thread.
pub(crate) fn spawn_low_priority(
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(move || {
        // Without it, the model runs at normal priority and still works.
        if let Ok(own) = rustix::process::getpriority_process(None) {
            let _ = rustix::process::setpriority_process(None, (own + NICE_INCREMENT).min(MAX_NICE));
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
        let (sender, receiver) = std::sync::mpsc::channel();
        let own = nice();
        spawn_low_priority("model-test".into(), move || sender.send(nice()).unwrap())
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(receiver.recv().unwrap(), (own + 5).min(19));
        assert_eq!(nice(), own, "and nobody else does");
    }
}
