//! The processes that extract documents and decode audio have access to nothing but their input.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use documents::{AudioError, PcmReader, Refusal, Sandbox};

use crate::harness::{TempFolder, wait_for};

const EXTRACTOR: &str = env!("CARGO_BIN_EXE_visavis-extract-under-test");

/// The sandbox features of this kernel. Fails if it has neither Landlock nor seccomp, because the
/// tests would prove nothing.
fn require_sandbox() -> Sandbox {
    let available = Sandbox::available();
    assert!(available.refuses_files(), "these tests need a kernel with Landlock or seccomp");
    available
}

#[test]
fn a_reader_that_is_taken_over_gets_at_no_file_socket_or_program() {
    let folder = TempFolder::new();
    let file = folder.0.join("token.key");
    std::fs::write(&file, "secret").unwrap();
    let output =
        Command::new(EXTRACTOR).arg(format!("escape:{}", file.display())).output().unwrap();
    let stdout_text = String::from_utf8(output.stdout).unwrap();
    let mut refused =
        vec!["read: refused", "list: refused", "make: refused", "remove: refused", "run: refused"];
    if require_sandbox().seccomp {
        refused.extend(["tcp: refused", "udp: refused", "unix: refused"]);
    }
    let results: Vec<&str> = stdout_text.lines().take(refused.len()).collect();
    assert_eq!(results, refused, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_reader_is_confined_before_its_document_comes() {
    let mut reader = Command::new(EXTRACTOR)
        .arg("txt")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut expected = vec!["NoNewPrivs:\t1"];
    if require_sandbox().seccomp {
        expected.push("Seccomp:\t2");
    }
    wait_for("the child process to be confined", async || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", reader.id())).unwrap();
        expected.iter().all(|line| status.lines().any(|l| l == *line)).then_some(())
    })
    .await;
    reader.stdin.take().unwrap().write_all(b"Open daily.").unwrap();
    let mut stdout_bytes = Vec::new();
    reader.stdout.take().unwrap().read_to_end(&mut stdout_bytes).unwrap();
    assert!(reader.wait().unwrap().success());
    assert_eq!(documents::parse_output(&stdout_bytes), Some(Ok("Open daily.".into())));
}

fn start_decoder() -> Child {
    Command::new(EXTRACTOR)
        .arg("decode-audio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The sound that a decoder gives for a file.
fn decode(decoder: &mut Child, file: Vec<u8>) -> Result<PcmReader<ChildStdout>, AudioError> {
    let mut input = decoder.stdin.take().unwrap();
    // A decoder that has read enough closes its end.
    std::thread::spawn(move || drop(input.write_all(&file)));
    PcmReader::new(decoder.stdout.take().unwrap())
}

/// A WAV file of 16 bits and 8 kHz.
fn wav(samples: &[i16]) -> Vec<u8> {
    let mut file =
        b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0".to_vec();
    file.extend(b"\x02\0\x10\0data\xff\xff\xff\xff");
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_decoder_is_confined_before_its_file_comes() {
    let mut decoder = start_decoder();
    let mut expected = vec!["NoNewPrivs:\t1"];
    if require_sandbox().seccomp {
        expected.push("Seccomp:\t2");
    }
    let read =
        |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", decoder.id())).unwrap();
    wait_for("the child process to be confined", async || {
        let status = read("status");
        expected.iter().all(|line| status.lines().any(|l| l == *line)).then_some(())
    })
    .await;
    let limits = read("limits");
    for (name, limit) in [
        ("Max cpu time", documents::AUDIO_LIMITS.cpu_seconds),
        ("Max address space", documents::AUDIO_LIMITS.memory_bytes),
        ("Max file size", 0),
        ("Max core file size", 0),
    ] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let values: Vec<&str> = line.split_whitespace().take(2).collect();
        assert_eq!(values, [limit.to_string(), limit.to_string()], "{name}");
    }
    let samples: Vec<i16> = (0..20_000).collect();
    let mut sound = decode(&mut decoder, wav(&samples)).unwrap();
    assert_eq!(sound.rate(), 8_000);
    let mut decoded: Vec<i16> = Vec::new();
    while let Some(block) = sound.next_block().unwrap() {
        decoded.extend(block);
    }
    assert_eq!(decoded, samples);
    assert!(decoder.wait().unwrap().success());
}

#[test]
fn a_decoder_that_needs_too_much_memory_is_ended_alone() {
    let mut decoder = start_decoder();
    let refused = decode(&mut decoder, vorbis_bomb()).err().unwrap();
    assert!(matches!(refused, AudioError::Refused(Refusal::Limits)), "{refused}");
    assert!(!decoder.wait().unwrap().success());
}

#[test]
fn the_largest_files_are_decoded_within_the_limits() {
    // 54 minutes. The file itself tells that they are too long, so no sound comes before.
    let mut file = wav(&[]);
    file.resize(50 << 20, 0x11);
    let mut decoder = start_decoder();
    let mut sound = decode(&mut decoder, file.clone());
    let refused = sound.as_mut().err().map(|error| error.to_string());
    assert_eq!(refused.as_deref(), Some("the audio is longer than 30 minutes"));
    decoder.wait().unwrap();
    // 27 minutes.
    file[24..28].copy_from_slice(&16_000u32.to_le_bytes());
    file[28..32].copy_from_slice(&32_000u32.to_le_bytes());
    let mut decoder = start_decoder();
    let mut sound = decode(&mut decoder, file).unwrap();
    let mut count = 0;
    while let Some(block) = sound.next_block().unwrap() {
        count += block.len();
    }
    assert_eq!(count, ((50 << 20) - 44) / 2);
    assert!(decoder.wait().unwrap().success());
}

/// A file of Vorbis of 200 bytes, whose code book has 65,536 entries of 65,535 numbers: 16 GB.
fn vorbis_bomb() -> Vec<u8> {
    let ident = b"\x01vorbis\0\0\0\0\x01\x40\x1f\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xb8\x01";
    let mut setup = Bits(b"\x05vorbis".to_vec(), 0);
    // One code book: its mark, numbers, entries, ordered by length, the length 16 of the first.
    for (value, bits) in [(0, 8), (0x56_4342, 24), (65_535, 16), (65_536, 24), (1, 1), (15, 5)] {
        setup.push(value, bits);
    }
    // All entries have that length. The numbers are products of one: its least value, step, size.
    for (value, bits) in [(65_536, 17), (1, 4), (0, 32), (0, 32), (0, 4), (0, 1), (0, 1)] {
        setup.push(value, bits);
    }
    let mut writer = ogg::PacketWriter::new(Vec::new());
    let end = ogg::PacketWriteEndInfo::EndPage;
    for packet in [&ident[..], b"\x03vorbis", &setup.0] {
        writer.write_packet(packet.to_vec(), 1, end, 0).unwrap();
    }
    writer.into_inner()
}

/// Bits in the order of Vorbis: the lowest first. The number of bits, and their bytes.
struct Bits(Vec<u8>, u32);

impl Bits {
    fn push(&mut self, value: u32, bits: u32) {
        for bit in 0..bits {
            if self.1.is_multiple_of(8) {
                self.0.push(0);
            }
            if value >> bit & 1 == 1
                && let Some(last) = self.0.last_mut()
            {
                *last |= 1 << (self.1 % 8);
            }
            self.1 += 1;
        }
    }
}
