//! Denies files, sockets and other processes to the process that reads documents, because a
//! document may take over that process.
//!
//! Its standard input and output are already open, and it needs nothing else, so everything else is
//! denied. Landlock denies all files. seccomp denies all but a few system calls, including those
//! for sockets; Landlock covers some sockets only, and more with newer kernels.

use std::fmt;

/// Mechanisms that confine a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Landlock denies files.
    pub landlock: bool,
    /// seccomp denies all but a few system calls: files, sockets, processes.
    pub seccomp: bool,
}

impl Sandbox {
    /// Confines this thread, and those that it starts, permanently, as far as the kernel supports
    /// it.
    pub(crate) fn enter() -> Self {
        Self::enter_with(system::apply_landlock, system::apply_seccomp)
    }

    /// Landlock comes first: its system calls are among those that seccomp denies.
    fn enter_with(landlock: impl FnOnce() -> bool, seccomp: impl FnOnce() -> bool) -> Self {
        let landlock = landlock();
        Self { landlock, seccomp: seccomp() }
    }

    /// What the kernel supports. It is tested in a thread that then ends, because the files that
    /// would describe it are missing in many containers.
    #[must_use]
    pub fn available() -> Self {
        let probe = std::thread::Builder::new().name("sandbox".into()).spawn(Self::enter);
        probe.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    /// Whether either mechanism denies files.
    #[must_use]
    pub fn refuses_files(self) -> bool {
        self.landlock || self.seccomp
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.landlock, self.seccomp) {
            (true, true) => "Landlock and seccomp",
            (true, false) => "Landlock only, which does not block all sockets",
            (false, true) => "seccomp",
            (false, false) => "neither Landlock nor seccomp",
        })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetError,
        RulesetStatus, Scope,
    };
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    /// Landlock ABI whose rights are handled, as far as the kernel knows them: files, TCP, UDP,
    /// named and abstract sockets, signals.
    const LANDLOCK_ABI: ABI = ABI::V10;

    /// System calls for computing, for reading and writing open files, and for exiting. All others
    /// fail with EPERM.
    const ALLOWED_SYSCALLS: &[libc::c_long] = &[
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_lseek,
        libc::SYS_brk,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_clock_gettime,
        libc::SYS_getrandom,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];

    pub(super) fn apply_landlock() -> bool {
        let restrict = || -> Result<_, RulesetError> {
            Ruleset::default()
                .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
                .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
                .scope(Scope::from_all(LANDLOCK_ABI))?
                .create()?
                .restrict_self()
        };
        restrict().is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
    }

    pub(super) fn apply_seccomp() -> bool {
        syscall_filter().is_some_and(|filter| seccompiler::apply_filter(&filter).is_ok())
    }

    /// `None` for a processor that the library does not support.
    fn syscall_filter() -> Option<BpfProgram> {
        let rules = ALLOWED_SYSCALLS.iter().map(|call| (*call, Vec::new())).collect();
        let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let processor = std::env::consts::ARCH.try_into().ok()?;
        SeccompFilter::new(rules, denied, SeccompAction::Allow, processor).ok()?.try_into().ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn apply_landlock() -> bool {
        false
    }

    pub(super) fn apply_seccomp() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_sandbox_uses_all_kernel_features_and_landlock_first() {
        for (landlock, seccomp, files) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            let order = RefCell::new(Vec::new());
            let entered = |name, works| {
                order.borrow_mut().push(name);
                works
            };
            let sandbox = Sandbox::enter_with(
                || entered("landlock", landlock),
                || entered("seccomp", seccomp),
            );
            assert_eq!(sandbox, Sandbox { landlock, seccomp });
            assert_eq!(sandbox.refuses_files(), files);
            assert_eq!(*order.borrow(), ["landlock", "seccomp"]);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn landlock_and_seccomp_each_deny_files() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(std::fs::read(file).is_ok());
        let mut tried = 0;
        for enter in [system::apply_landlock, system::apply_seccomp] {
            // The kernel must support at least one of them.
            let read =
                std::thread::spawn(move || enter().then(|| std::fs::read(file))).join().unwrap();
            let Some(read) = read else { continue };
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            tried += 1;
        }
        assert!(tried > 0, "this test needs a kernel with Landlock or seccomp");
    }

    #[test]
    fn probing_the_sandbox_confines_no_other_thread() {
        let _ = Sandbox::available();
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        std::fs::read_dir(".").unwrap();
    }
}
