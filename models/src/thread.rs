//! Threads that run models.

use std::io;
use std::sync::Weak;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::panic_isolation::run_until_done;
use crate::thread_health::ThreadHealth;

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
            let _ =
                rustix::process::setpriority_process(None, (own + NICE_INCREMENT).min(MAX_NICE));
        }
        run();
    })
}

/// Body of thread number `number` of a model: runs `work` until it returns `Ok`, and again after
/// each error and each panic. `work` calls its argument when it has loaded what it needs. `pause`
/// waits before a restart. The model owns `health`; a thread that fails after it is dropped ends.
pub(crate) fn run_with_health(
    health: &Weak<ThreadHealth>,
    number: usize,
    mut work: impl FnMut(&dyn Fn()) -> Result<(), String>,
    mut pause: impl FnMut(Duration),
) {
    let set_working = || {
        if let Some(health) = health.upgrade() {
            health.set_working(number);
        }
    };
    let fail = |reason: &str, delay| {
        let Some(health) = health.upgrade() else { return false };
        health.set_failed(number, reason);
        drop(health);
        pause(delay);
        true
    };
    run_until_done(Instant::now, || work(&set_working), fail);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_model_thread_has_a_lower_priority_than_the_one_that_starts_it() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let own = nice();
        spawn_low_priority("model-test".into(), move || sender.send(nice()).unwrap())
            .unwrap()
            .join()
            .unwrap();
        assert_eq!(receiver.recv().unwrap(), (own + 5).min(19));
        assert_eq!(nice(), own, "and no other thread has it");
    }

    #[test]
    fn a_thread_has_failed_from_its_failure_until_it_has_loaded() {
        let health = Arc::new(ThreadHealth::new(2));
        let (mut loads, mut pauses) = (0, 0);
        let work = |set_working: &dyn Fn()| {
            loads += 1;
            assert_eq!(health.is_failed(1), loads > 1, "until it has loaded");
            if loads % 2 == 0 {
                return Err("no memory".to_owned());
            }
            set_working();
            assert!(!health.is_failed(1));
            assert!(loads > 20, "the test's own panic");
            Ok(())
        };
        run_with_health(&Arc::downgrade(&health), 1, work, |_| {
            assert_eq!(health.failed_count(), 1);
            pauses += 1;
            assert!(pauses < 100, "an assertion of the work fails");
        });
        assert_eq!((loads, pauses, health.failed_count()), (21, 20, 0));
    }

    #[test]
    fn a_thread_that_fails_ends_with_its_model() {
        let health = Arc::new(ThreadHealth::new(1));
        let weak = Arc::downgrade(&health);
        let mut owner = Some(health);
        let mut loads = 0;
        let work = |_: &dyn Fn()| {
            loads += 1;
            if loads == 10 {
                drop(owner.take());
            }
            Err("broken".to_owned())
        };
        run_with_health(&weak, 0, work, |_| ());
        assert_eq!(loads, 10);
    }
}
