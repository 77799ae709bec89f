//! Measures the adapters of hosted providers alone: their CPU time, and the time that
//! they add to each message.
//!
//! Two processes on two cores. The test `benches/tests/providers.rs` starts them.
//!
//! ```text
//! hosted-calls vendor CPU sockets|requests [CERTIFICATE]
//!           plays the vendors' servers, with TLS if a file for their certificate is named. Prints
//!           its port. Prints its latencies for each line `FROM TO` on standard input.
//! hosted-calls calls CPU URL STT LLM TTS [resampled]
//!           plays the engine of 50 calls. The LLM `none` is not asked. STT may be a provider, a
//!           blank and a model. Prints its figures.
//! ```
//!
//! Every message contains the time at which it was written, on the monotonic clock, which both
//! processes share ([`stamp`]). The receiver subtracts it from the time at which it has the
//! message. The difference contains the adapter, the sockets of both processes and the kernel
//! between them, and the fake server, so it is an upper bound of what the adapter adds.

#![allow(clippy::expect_used, reason = "a failure ends the measurement")]
#![allow(clippy::print_stdout, reason = "prints its results")]
#![allow(clippy::print_stderr, reason = "prints unexpected events")]

mod calls;
mod measured;
mod stamp;
mod vendor;

use calls::Providers;
use rustix::thread::{CpuSet, sched_setaffinity};
use vendor::Transport;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["vendor", cpu, kind] => vendor::run(cpu_number(cpu), transport(kind), None),
        ["vendor", cpu, kind, certificate] => {
            vendor::run(cpu_number(cpu), transport(kind), Some(certificate));
        }
        ["calls", cpu, url, stt, llm, tts] => {
            calls::run(cpu_number(cpu), url, &Providers { stt, llm, tts }, false);
        }
        ["calls", cpu, url, stt, llm, tts, "resampled"] => {
            calls::run(cpu_number(cpu), url, &Providers { stt, llm, tts }, true);
        }
        _ => panic!("the arguments are described in benches/providers/main.rs"),
    }
}

fn transport(kind: &str) -> Transport {
    match kind {
        "sockets" => Transport::Sockets,
        "requests" => Transport::Requests,
        _ => panic!("the transports are `sockets` and `requests`"),
    }
}

fn cpu_number(text: &str) -> usize {
    text.parse().expect("the number of a CPU")
}

/// Pins this thread, and the threads that it starts from now on, to one CPU.
fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("this CPU is one of the process");
}
