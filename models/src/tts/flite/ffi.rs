//! Bindings to flite's C library, opened at run time.
//!
//! The library is opened, not linked. The binary therefore builds and starts where flite is not
//! installed, and `visavis check` can say what is missing. A voice of 4 MB is mapped only on first
//! use. Debian's `libflite1` has one library for each voice, which depends on those of the language
//! and the lexicon.
//!
//! Sources for the layouts: `flite/cst_wave.h`, `cst_audio.h`, `cst_utterance.h` of flite 2.2,
//! whose soname is that of every 2.x.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_float, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

use super::super::{Phone, Voice};
use super::prosody::Prosody;
use super::stress::{self, Segment, Syllable};

/// Phones and tokens of an utterance, known before its first sample.
pub(super) struct SpeechMarks {
    /// Phones with their end, in seconds from the start of the utterance.
    pub(super) phones: Vec<Phone>,
    /// Tokens: a position in the text, at most one byte after the token's end, and the end of its
    /// audio in seconds (0 if it has none).
    pub(super) tokens: Vec<(usize, f32)>,
}

/// Receives the result of a synthesis in progress.
pub(super) trait SynthesisListener {
    /// Called once, before the first samples.
    fn on_marks(&mut self, marks: SpeechMarks);
    /// The next samples. `false` ends the synthesis here.
    fn on_samples(&mut self, pcm: &[i16]) -> bool;
}

#[repr(C)]
struct Utterance {
    features: *mut c_void,
}

#[repr(C)]
struct Wave {
    kind: *const c_char,
    sample_rate: c_int,
    num_samples: c_int,
    num_channels: c_int,
    samples: *const i16,
}

#[repr(C)]
struct StreamingInfo {
    min_buffsize: c_int,
    callback:
        Option<unsafe extern "C" fn(*const Wave, c_int, c_int, c_int, *mut StreamingInfo) -> c_int>,
    utterance: *const Utterance,
    item: *const c_void,
    userdata: *mut c_void,
}

const CONTINUE: c_int = 0;
const STOP: c_int = -1;

/// Opaque pointers of the library.
type Item = *const c_void;
type CVoice = *mut c_void;
type RegisterFn = unsafe extern "C" fn(*const c_char) -> CVoice;

macro_rules! api {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use.
        struct Api { $($name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Api {
            /// # Safety
            /// `library` is flite 2.x and is never closed.
            unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of flite's headers; the library stays open.
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
    fn flite_init() -> c_int;
    fn new_utterance() -> *mut Utterance;
    fn delete_utterance(*mut Utterance);
    fn utt_set_input_text(*mut Utterance, *const c_char) -> c_int;
    fn utt_init(*mut Utterance, CVoice) -> *mut Utterance;
    fn utt_synth(*mut Utterance) -> *mut Utterance;
    fn utt_relation_present(*const Utterance, *const c_char) -> c_int;
    fn utt_relation(*const Utterance, *const c_char) -> *mut c_void;
    fn relation_head(*mut c_void) -> Item;
    fn item_next(Item) -> Item;
    fn item_daughter(Item) -> Item;
    fn item_feat_string(Item, *const c_char) -> *const c_char;
    fn item_feat_float(Item, *const c_char) -> c_float;
    fn item_feat_int(Item, *const c_char) -> c_int;
    fn ffeature_float(Item, *const c_char) -> c_float;
    fn ffeature_string(Item, *const c_char) -> *const c_char;
    fn new_audio_streaming_info() -> *mut StreamingInfo;
    fn audio_streaming_info_val(*mut StreamingInfo) -> *mut c_void;
    fn feat_set(*mut c_void, *const c_char, *const c_void);
    fn feat_set_float(*mut c_void, *const c_char, c_float);
}

/// The library. One for the process, and never closed: its voices are static data of C.
pub(super) struct Engine {
    api: Api,
    voices: [OnceLock<Result<RegisteredVoice, String>>; Voice::ALL.len()],
}

/// A voice, registered once. The synthesizer only reads it.
struct RegisteredVoice(CVoice);

// SAFETY: flite copies a voice's features into each utterance and never writes to the voice after
// its registration.
unsafe impl Send for RegisteredVoice {}
// SAFETY: as above.
unsafe impl Sync for RegisteredVoice {}

impl Engine {
    /// The engine, opened at the first call.
    pub(super) fn shared() -> Result<&'static Self, String> {
        static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
        ENGINE.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
        let library = open_library("libflite.so.1")?;
        // SAFETY: the soname says flite, and the library is leaked.
        let api = unsafe { Api::load(library) }
            .map_err(|e| format!("libflite.so.1 is not flite 2: {e}"))?;
        // SAFETY: called once, before anything else of the library.
        unsafe { (api.flite_init)() };
        Ok(Self { api, voices: [const { OnceLock::new() }; Voice::ALL.len()] })
    }

    fn registered_voice(&self, voice: Voice) -> Result<CVoice, String> {
        let at = Voice::ALL.iter().position(|v| *v == voice).unwrap_or(0);
        // One registration at a time: two voices set up the same static language and lexicon.
        static REGISTERING: Mutex<()> = Mutex::new(());
        let registered = self.voices[at].get_or_init(|| {
            let _one = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
            let library = open_library(&format!("libflite_cmu_us_{}.so.1", voice.name()))?;
            // SAFETY: every voice's library exports this function with this type
            // (`register_cmu_us_slt(const char *)`). The cell runs it once; null means no directory
            // of voice data, which built-in voices do not have.
            let made = unsafe {
                let register = library
                    .get::<RegisterFn>(format!("register_cmu_us_{}\0", voice.name()).as_bytes());
                register.map_err(|e| e.to_string())?(std::ptr::null())
            };
            if made.is_null() {
                Err(format!("flite could not create the voice {}", voice.name()))
            } else {
                Ok(RegisteredVoice(made))
            }
        });
        registered.as_ref().map(|r| r.0).map_err(Clone::clone)
    }

    /// Checks that `voice` is installed; registers it.
    pub(super) fn check_voice(&self, voice: Voice) -> Result<(), String> {
        self.registered_voice(voice).map(drop)
    }

    /// Synthesizes `text` (ASCII). Blocks until the synthesis is complete or the listener stops it.
    /// `seed`: starts the C library's generator of random numbers, from which the noise comes.
    pub(super) fn synthesise(
        &self,
        voice: Voice,
        seed: Option<u32>,
        text: &str,
        listener: &mut dyn SynthesisListener,
    ) -> Result<(), String> {
        let prosody = Prosody::of(voice);
        let voice = self.registered_voice(voice)?;
        let text = CString::new(text).map_err(|_| "the text contains a NUL byte".to_owned())?;
        let mut call = CallbackState {
            api: &self.api,
            utterance: std::ptr::null(),
            listener,
            marks_sent: false,
            stopped: false,
            panicked: false,
        };
        // SAFETY: the order of flite's own `flite_synth_text`; the utterance is deleted on every
        // path below. `utt_set_input_text` copies the text. The streaming information belongs to
        // the utterance's features from `feat_set` on, and `call` outlives `utt_synth`, which is
        // the only caller of the callback. `srand` has no precondition.
        unsafe {
            let api = &self.api;
            let utterance = (api.new_utterance)();
            if utterance.is_null() {
                return Err("flite is out of memory".to_owned());
            }
            call.utterance = utterance;
            (api.utt_set_input_text)(utterance, text.as_ptr());
            (api.utt_init)(utterance, voice);
            let streaming = (api.new_audio_streaming_info)();
            (*streaming).callback = Some(callback);
            (*streaming).userdata = (&raw mut call).cast();
            // Set on the utterance, not on the voice, which all threads share.
            let features = (*utterance).features;
            for (name, value) in [
                (c"duration_stretch", prosody.duration_stretch),
                (c"int_f0_target_stddev", prosody.f0_deviation),
            ] {
                if let Some(value) = value {
                    (api.feat_set_float)(features, name.as_ptr(), value);
                }
            }
            (api.feat_set)(
                features,
                c"streaming_info".as_ptr(),
                (api.audio_streaming_info_val)(streaming),
            );
            if let Some(seed) = seed {
                libc::srand(seed);
            }
            let made = (api.utt_synth)(utterance);
            (api.delete_utterance)(utterance);
            if call.panicked {
                return Err("the audio callback of flite panicked".to_owned());
            }
            if made.is_null() && !call.stopped {
                return Err("flite could not synthesise the text".to_owned());
            }
        }
        Ok(())
    }
}

/// Opens a library for the lifetime of the process.
fn open_library(name: &str) -> Result<&'static Library, String> {
    // SAFETY: flite's libraries have no constructors that do anything of their own.
    let library = unsafe { Library::new(name) };
    library
        .map(|library| &*Box::leak(Box::new(library)))
        .map_err(|_| format!("{name} is missing: install libflite1 (`make setup` does)"))
}

/// The callback's state, to which `userdata` points.
struct CallbackState<'a> {
    api: &'a Api,
    utterance: *const Utterance,
    listener: &'a mut dyn SynthesisListener,
    marks_sent: bool,
    stopped: bool,
    panicked: bool,
}

unsafe extern "C" fn callback(
    wave: *const Wave,
    start: c_int,
    size: c_int,
    _last: c_int,
    streaming: *mut StreamingInfo,
) -> c_int {
    // SAFETY: `synthesise` put a `CallbackState` there that lives until `utt_synth` returns, and
    // nothing else uses it meanwhile.
    let call = unsafe { &mut *(*streaming).userdata.cast::<CallbackState<'_>>() };
    // A panic must not unwind through C.
    let go_on = catch_unwind(AssertUnwindSafe(|| {
        if !call.marks_sent {
            call.marks_sent = true;
            // SAFETY: the utterance is alive and its segments have their times before the first
            // sample is made.
            let marks = unsafe { read_marks(call.api, call.utterance) };
            call.listener.on_marks(marks);
        }
        let (Ok(start), Ok(size)) = (usize::try_from(start), usize::try_from(size)) else {
            return true;
        };
        if size == 0 {
            return true;
        }
        // SAFETY: flite says that samples start..start+size of its buffer are made.
        let pcm = unsafe { std::slice::from_raw_parts((*wave).samples.add(start), size) };
        call.listener.on_samples(pcm)
    }));
    call.panicked = go_on.is_err();
    call.stopped = !matches!(go_on, Ok(true));
    if call.stopped { STOP } else { CONTINUE }
}

/// # Safety
/// `utterance` is alive and synthesized up to its segments.
unsafe fn read_marks(api: &Api, utterance: *const Utterance) -> SpeechMarks {
    // SAFETY: the caller's; names are static, strings are copied before anything else is called.
    unsafe {
        let segments = relation_items(api, utterance, c"Segment")
            .map(|segment| {
                let name = copy_string((api.item_feat_string)(segment, c"name".as_ptr()));
                let end = (api.item_feat_float)(segment, c"end".as_ptr());
                let syllable = stress::is_vowel(&name).then(|| read_syllable(api, segment));
                Segment { name, end, syllable }
            })
            .collect();
        let tokens = relation_items(api, utterance, c"Token")
            .map(|token| {
                let at =
                    usize::try_from((api.item_feat_int)(token, c"file_pos".as_ptr())).unwrap_or(0);
                let words = std::iter::successors(non_null((api.item_daughter)(token)), |w| {
                    non_null((api.item_next)(*w))
                });
                // Word → last syllable → last segment; 0 for a word without audio.
                let path = c"R:SylStructure.daughtern.daughtern.R:Segment.end".as_ptr();
                (at, words.map(|word| (api.ffeature_float)(word, path)).fold(0.0, f32::max))
            })
            .collect();
        SpeechMarks { phones: stress::phones(segments), tokens }
    }
}

/// The syllable of a vowel.
///
/// # Safety
/// As [`read_marks`]; `segment` is an item of the utterance.
unsafe fn read_syllable(api: &Api, segment: Item) -> Syllable {
    // SAFETY: the caller's; each string is copied before anything else is called.
    let feature =
        |path: &CStr| unsafe { copy_string((api.ffeature_string)(segment, path.as_ptr())) };
    let position = feature(c"R:SylStructure.parent.position_type");
    Syllable {
        is_strong: feature(c"R:SylStructure.parent.stress") == "1",
        starts_word: matches!(position.as_str(), "single" | "initial"),
        word: feature(c"R:SylStructure.parent.parent.name"),
    }
}

/// # Safety
/// `text` is null or a string of C.
unsafe fn copy_string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// As [`read_marks`].
unsafe fn relation_items<'a>(
    api: &'a Api,
    utterance: *const Utterance,
    relation: &CStr,
) -> impl Iterator<Item = Item> + use<'a> {
    // SAFETY: a relation that is present is not null; flite reports an absent one on standard
    // error, therefore the check.
    let head = unsafe {
        let present = (api.utt_relation_present)(utterance, relation.as_ptr()) != 0;
        if present {
            (api.relation_head)((api.utt_relation)(utterance, relation.as_ptr()))
        } else {
            std::ptr::null()
        }
    };
    // SAFETY: items live as long as their utterance.
    std::iter::successors(non_null(head), |item| non_null(unsafe { (api.item_next)(*item) }))
}

fn non_null(item: Item) -> Option<Item> {
    (!item.is_null()).then_some(item)
}
