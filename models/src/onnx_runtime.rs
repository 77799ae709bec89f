//! ONNX Runtime, loaded at run time and shared by the models that use it.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;

use crate::manifest;

/// The environment of ONNX Runtime. There is one in each process, loaded from the path of the first
/// call. A failure is not stored, so that the next restart of a thread tries again.
///
/// # Errors
/// One sentence that says why the library cannot be loaded, and what to do.
pub(crate) fn environment(library: &Path) -> Result<Environment, String> {
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
    let mut loaded = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = &*loaded {
        return Ok(environment.clone());
    }
    let load = || {
        // The loader would first search for a relative path beside the program.
        let library = std::path::absolute(library).map_err(|error| error.to_string())?;
        // The loader maps the file into memory. It would end the process if the file is too short.
        let content = std::fs::read(&library).map_err(|error| error.to_string())?;
        manifest::model("onnxruntime")
            .verify("libonnxruntime.so", &content)
            .map_err(|found| format!("it is not the expected file: its SHA-256 is {found}"))?;
        drop(content);
        let builder = ort::init_from(&library).map_err(|error| error.to_string())?;
        builder
            .with_name("visavis")
            .with_telemetry(false)
            .build()
            .map_err(|error| error.to_string())
    };
    let environment = load().map_err(|why: String| {
        format!(
            "cannot load ONNX Runtime ({why}): remove {} and run `make setup`",
            library.display()
        )
    })?;
    Ok(loaded.insert(environment).clone())
}

/// Ends the process at once, without the destructors of libraries. Those of ONNX Runtime would free
/// what the threads of models still use, and a signal would end the process instead.
#[allow(unsafe_code, reason = "the standard library has no exit without destructors")]
pub fn exit_process(code: u8) -> ! {
    // The standard output is buffered; nothing can be done about a failure.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    // SAFETY: `_exit` ends the process without running any code of it.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Returns free memory to the system, after networks were loaded. The C library would keep that of
/// the files' copies: 30 MB.
#[allow(unsafe_code, reason = "the heap is the C library's")]
pub(crate) fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` has no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}
