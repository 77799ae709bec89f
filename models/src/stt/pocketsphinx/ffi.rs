//! Bindings to PocketSphinx's C library, opened at run time from the models' directory, where the
//! set-up built it.
//!
//! The library is opened, not linked. The binary therefore builds and starts before the set-up ran,
//! and `visavis check` can say what is missing. Debian's package of that name is another library
//! (0.8, without `ps_config_*` and `ps_get_cmn`).
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

/// Opaque pointers of the library.
type Config = *mut c_void;
type Handle = *mut c_void;

macro_rules! api {
    ($(fn $name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use, of a library that is never closed.
        #[derive(Clone, Copy)]
        struct Api { $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Api {
            /// # Safety
            /// `library` is PocketSphinx 5 and is never closed.
            unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of `pocketsphinx.h` 5.1.1; the library stays open.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                    })
                }
            }
        }
    };
}

api! {
    fn err_set_loglevel_str(*const c_char) -> *const c_char;
    fn ps_config_init(*const c_void) -> Config;
    fn ps_config_free(Config) -> c_int;
    fn ps_config_set_str(Config, *const c_char, *const c_char) -> *const c_void;
    fn ps_config_set_bool(Config, *const c_char, c_int) -> *const c_void;
    fn ps_init(Config) -> Handle;
    fn ps_free(Handle) -> c_int;
    fn ps_start_stream(Handle) -> c_int;
    fn ps_start_utt(Handle) -> c_int;
    fn ps_process_raw(Handle, *const i16, usize, c_int, c_int) -> c_int;
    fn ps_end_utt(Handle) -> c_int;
    fn ps_get_hyp(Handle, *mut i32) -> *const c_char;
    fn ps_get_cmn(Handle, c_int) -> *const c_char;
    fn ps_set_cmn(Handle, *const c_char) -> c_int;
}

/// The files that a decoder needs, with their sizes in PocketSphinx 5.1.1. The set-up creates
/// `en-us.dict`: the words of the dictionary that the language model knows. The library ends the
/// process on a damaged file, so a file of another size is never passed to it.
pub(super) const MODEL_FILES: [(&str, u64); 9] = [
    ("en-us.dict", 1_949_928),
    ("en-us.lm.bin", 27_114_385),
    ("en-us/feat.params", 164),
    ("en-us/mdef", 2_959_176),
    ("en-us/means", 838_732),
    ("en-us/noisedict", 56),
    ("en-us/sendump", 1_969_024),
    ("en-us/transition_matrices", 2_080),
    ("en-us/variances", 838_732),
];
/// File name of the library.
pub(super) const LIBRARY_FILE: &str = "libpocketsphinx.so";

/// Checks that all files exist and have the expected sizes.
pub(super) fn check_files(dir: &Path) -> Result<(), String> {
    for (file, size) in MODEL_FILES {
        let path = dir.join(file);
        let found = std::fs::metadata(&path)
            .map_err(|_| format!("{} is missing: run `make setup`", path.display()))?
            .len();
        if found != size {
            return Err(format!(
                "{} has {found} bytes and not {size}: remove it and run `make setup`",
                path.display()
            ));
        }
    }
    let library = dir.join(LIBRARY_FILE);
    if library.is_file() {
        Ok(())
    } else {
        Err(format!("{} is missing: run `make setup`", library.display()))
    }
}

/// One decoder: about 80 MiB. Used by one thread at a time.
pub(super) struct Decoder {
    api: Api,
    handle: NonNull<c_void>,
}

// SAFETY: decoders share nothing that is written after their creation (each has its own models),
// and a decoder has no thread of its own.
unsafe impl Send for Decoder {}

impl Decoder {
    /// Loads the models from `dir`: about .4 s. Only one decoder loads at a time: loading sets
    /// global state of the library, and one core remains free at start-up.
    pub(super) fn load(dir: &Path) -> Result<Self, String> {
        static LOADING: Mutex<()> = Mutex::new(());
        let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        check_files(dir)?;
        let path = dir.join(LIBRARY_FILE);
        // SAFETY: the library has no constructors.
        let library = unsafe { Library::new(&path) }
            .map_err(|e| format!("{} cannot be opened: {e}", path.display()))?;
        // Leaked: opening it again yields the same library, so this costs nothing, and no function
        // pointer can dangle.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: never closed, as it is leaked.
        let api = unsafe { Api::load(library) }
            .map_err(|e| format!("{} is not PocketSphinx 5: {e}", path.display()))?;
        // SAFETY: the order of the library's own documentation; strings are copied; the decoder
        // keeps the configuration alive by its own count.
        let handle = unsafe {
            let config = (api.ps_config_init)(std::ptr::null());
            if config.is_null() {
                return Err("PocketSphinx is out of memory".to_owned());
            }
            for (name, file) in
                [(c"hmm", "en-us"), (c"lm", "en-us.lm.bin"), (c"dict", "en-us.dict")]
            {
                let path = CString::new(dir.join(file).as_os_str().as_encoded_bytes())
                    .map_err(|e| e.to_string())?;
                (api.ps_config_set_str)(config, name.as_ptr(), path.as_ptr());
            }
            // By default the library writes to standard error, past the log.
            (api.ps_config_set_str)(config, c"loglevel".as_ptr(), c"FATAL".as_ptr());
            (api.err_set_loglevel_str)(c"FATAL".as_ptr());
            // The second and third pass start after the end of speech, while the user waits. They
            // correct more words, but take a second.
            (api.ps_config_set_bool)(config, c"fwdflat".as_ptr(), 0);
            (api.ps_config_set_bool)(config, c"bestpath".as_ptr(), 0);
            let handle = (api.ps_init)(config);
            (api.ps_config_free)(config);
            handle
        };
        let handle = NonNull::new(handle).ok_or_else(|| {
            format!("PocketSphinx could not load its models in {}", dir.display())
        })?;
        Ok(Self { api, handle })
    }

    /// The decoder's estimate of the channel (its cepstral mean).
    pub(super) fn cepstral_mean(&mut self) -> CString {
        // SAFETY: the string is the decoder's and copied at once.
        unsafe {
            let mean = (self.api.ps_get_cmn)(self.handle.as_ptr(), 0);
            if mean.is_null() { CString::default() } else { CStr::from_ptr(mean).to_owned() }
        }
    }

    /// Restores the value of [`Self::cepstral_mean`] for the next speaker.
    pub(super) fn set_cepstral_mean(&mut self, channel: &CStr) {
        // SAFETY: no utterance is under way, the string is copied. A rejected mean leaves the old
        // one, which is no failure.
        unsafe {
            (self.api.ps_start_stream)(self.handle.as_ptr());
            (self.api.ps_set_cmn)(self.handle.as_ptr(), channel.as_ptr());
        }
    }

    /// Starts an utterance.
    pub(super) fn start_utterance(&mut self) -> Result<(), String> {
        // SAFETY: the handle is a decoder; it rejects the call by itself if an utterance is under
        // way.
        let done = unsafe { (self.api.ps_start_utt)(self.handle.as_ptr()) };
        if done < 0 { Err("PocketSphinx could not start an utterance".to_owned()) } else { Ok(()) }
    }

    /// Decodes the next samples, mono at 16 kHz.
    pub(super) fn process(&mut self, pcm: &[i16]) -> Result<(), String> {
        // SAFETY: pointer and length are those of a slice, which is read until the call returns.
        let done = unsafe {
            (self.api.ps_process_raw)(self.handle.as_ptr(), pcm.as_ptr(), pcm.len(), 0, 0)
        };
        if done < 0 {
            Err("PocketSphinx failed in the middle of an utterance".to_owned())
        } else {
            Ok(())
        }
    }

    /// Ends the utterance. [`Self::hypothesis`] is final after it.
    pub(super) fn end_utterance(&mut self) -> Result<(), String> {
        // SAFETY: the handle is a decoder.
        let done = unsafe { (self.api.ps_end_utt)(self.handle.as_ptr()) };
        if done < 0 {
            Err("PocketSphinx failed at the end of an utterance".to_owned())
        } else {
            Ok(())
        }
    }

    /// The most likely words so far, including markers.
    pub(super) fn hypothesis(&mut self) -> String {
        // SAFETY: null or a string of the decoder, copied at once; the score may be null.
        unsafe {
            let words = (self.api.ps_get_hyp)(self.handle.as_ptr(), std::ptr::null_mut());
            if words.is_null() {
                String::new()
            } else {
                CStr::from_ptr(words).to_string_lossy().into_owned()
            }
        }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: ours since `ps_init`, and no longer used.
        unsafe {
            (self.api.ps_free)(self.handle.as_ptr());
        }
    }
}
