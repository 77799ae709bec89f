//! SDP edits before and after str0m: the offer is restricted to what a call needs, and the answer
//! is completed.
//!
//! The edit is done on the *offer*, so that str0m's session and the answer it writes agree: a
//! section that is inactive in the offer is inactive in both.

/// Maximum size of an offer, bytes.
pub(super) const MAX_OFFER_BYTES: usize = 64 * 1024;
/// Maximum number of m-sections.
const MAX_SECTIONS: usize = 16;

/// Why an offer is rejected before str0m reads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SdpRejection {
    Invalid(&'static str),
    NoOpus,
}

/// Restricts the offer to the form that str0m reads.
///
/// - The first audio section with Opus carries the user's and the agent's audio. Further audio
///   sections become inactive.
/// - The first video section carries the avatar. The server never uses the user's video, so
///   `sendrecv` becomes `recvonly`. It is answered `sendonly`, which saves the upload of a camera.
///   `sendonly` becomes `inactive`. Further video sections (a screen) become inactive.
/// - The client's candidates are dropped. An ICE-lite server learns the client's addresses from its
///   checks, and `.local` names do not parse.
#[expect(clippy::expect_used, reason = "the list is never empty")]
pub(super) fn restrict_offer(offer: &str) -> Result<String, SdpRejection> {
    if offer.len() > MAX_OFFER_BYTES {
        return Err(SdpRejection::Invalid("too long"));
    }
    let mut sections: Vec<Vec<&str>> = vec![Vec::new()];
    for line in offer.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        if line.starts_with("m=") {
            sections.push(Vec::new());
        }
        if !line.starts_with("a=candidate:") && line != "a=end-of-candidates" {
            sections.last_mut().expect("the list is never empty").push(line);
        }
    }
    let mut sections = sections.into_iter();
    let head = sections.next().unwrap_or_default();
    if head.first() != Some(&"v=0") {
        return Err(SdpRejection::Invalid("it does not begin with v=0"));
    }
    let default = head.iter().rev().find_map(|line| direction(line)).unwrap_or("sendrecv");

    head.iter().try_for_each(|line| check_line(line))?;
    let mut text = String::with_capacity(offer.len());
    let push = |text: &mut String, line: &str| {
        text.push_str(line);
        text.push_str("\r\n");
    };
    head.iter().filter(|line| direction(line).is_none()).for_each(|line| push(&mut text, line));
    let (mut has_audio, mut has_video, mut section_count) = (false, false, 0);
    let mut payload_types = PayloadTypes::default();
    for section in sections {
        section_count += 1;
        if section_count > MAX_SECTIONS {
            return Err(SdpRejection::Invalid("too many sections"));
        }
        section.iter().try_for_each(|line| check_line(line))?;
        section.iter().try_for_each(|line| payload_types.check_line(line))?;
        let first = section[0];
        let offered = section.iter().rev().find_map(|line| direction(line)).unwrap_or(default);
        let wanted = if first.starts_with("m=audio") && !has_audio && has_opus(&section) {
            has_audio = true;
            Some(offered)
        } else if first.starts_with("m=video") && !has_video {
            has_video = true;
            Some(match offered {
                "sendrecv" | "recvonly" => "recvonly",
                _ => "inactive",
            })
        } else if first.starts_with("m=audio") || first.starts_with("m=video") {
            Some("inactive")
        } else {
            None
        };
        section
            .iter()
            .filter(|line| direction(line).is_none())
            .for_each(|line| push(&mut text, line));
        if let Some(wanted) = wanted {
            text.push_str("a=");
            push(&mut text, wanted);
        }
    }
    if section_count == 0 {
        return Err(SdpRejection::Invalid("it has no m= section"));
    }
    if has_audio { Ok(text) } else { Err(SdpRejection::NoOpus) }
}

/// What each payload type stands for. All sections share one transport, so a payload type has one
/// meaning in all of them (RFC 8843, section 9.1). str0m panics if it has two.
struct PayloadTypes<'a> {
    /// Codec and clock rate, by `a=rtpmap`.
    codecs: [Option<&'a str>; 128],
    /// The payload type that an RTX one repeats, by `a=fmtp`.
    repeated: [Option<&'a str>; 128],
}

impl Default for PayloadTypes<'_> {
    fn default() -> Self {
        Self { codecs: [None; 128], repeated: [None; 128] }
    }
}

impl<'a> PayloadTypes<'a> {
    fn check_line(&mut self, line: &'a str) -> Result<(), SdpRejection> {
        let (meanings, text) = if let Some(text) = line.strip_prefix("a=rtpmap:") {
            (&mut self.codecs, text)
        } else if let Some(text) = line.strip_prefix("a=fmtp:") {
            (&mut self.repeated, text)
        } else {
            return Ok(());
        };
        let Some((number, meaning)) = text.split_once(' ') else { return Ok(()) };
        if line.starts_with("a=fmtp:") && !meaning.starts_with("apt=") {
            return Ok(());
        }
        let known = number.parse::<usize>().ok().and_then(|number| meanings.get_mut(number));
        match known {
            Some(Some(known)) if !known.eq_ignore_ascii_case(meaning) => {
                Err(SdpRejection::Invalid("a payload type stands for two codecs"))
            }
            Some(known) => {
                *known = Some(meaning);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Rejects values that would fail only when the client's packets arrive. str0m accepts any number
/// as a port and any text as a fingerprint.
fn check_line(line: &str) -> Result<(), SdpRejection> {
    let (good, reason) = if let Some(media) = line.strip_prefix("m=") {
        if !is_media_line(media) {
            (false, "an m= line is not `media port protocol formats`")
        } else {
            // str0m leaves a section of another type out of its answer, so the sections of offer
            // and answer would no longer correspond.
            (has_known_type(media), "an m= line is neither audio, video nor application")
        }
    } else if let Some(fingerprint) = line.strip_prefix("a=fingerprint:") {
        (is_fingerprint(fingerprint), "a=fingerprint is not a hash and its bytes in hexadecimal")
    } else if let Some(ufrag) = line.strip_prefix("a=ice-ufrag:") {
        (is_ice_credential(ufrag, 4), "a=ice-ufrag is not 4 to 256 letters, digits, + and /")
    } else if let Some(password) = line.strip_prefix("a=ice-pwd:") {
        (is_ice_credential(password, 22), "a=ice-pwd is not 22 to 256 letters, digits, + and /")
    } else {
        // str0m reads no section from such a line on, and answers without them.
        (is_typed(line), "a line is not a letter, = and a value")
    };
    if good { Ok(()) } else { Err(SdpRejection::Invalid(reason)) }
}

/// A line by RFC 8866, section 5.
fn is_typed(line: &str) -> bool {
    matches!(line.as_bytes(), [kind, b'=', ..] if kind.is_ascii_lowercase())
}

/// Number of m-sections. An answer has as many as its offer (RFC 3264, section 6).
pub(super) fn count_sections(sdp: &str) -> usize {
    sdp.lines().filter(|line| line.starts_with("m=")).count()
}

/// An m-line by RFC 8866, section 5.14.
fn is_media_line(line: &str) -> bool {
    let mut fields = line.split(' ');
    let (kind, ports, protocol) = (fields.next(), fields.next(), fields.next());
    let (port, count) =
        ports.unwrap_or_default().split_once('/').unwrap_or((ports.unwrap_or_default(), "1"));
    kind.is_some_and(|kind| !kind.is_empty())
        && port.parse::<u16>().is_ok()
        && count.parse::<u16>().is_ok()
        && protocol.is_some_and(|protocol| !protocol.is_empty())
        && fields.next().is_some_and(|format| !format.is_empty())
}

fn has_known_type(line: &str) -> bool {
    line.split(' ').next().is_some_and(|kind| matches!(kind, "audio" | "video" | "application"))
}

/// A fingerprint by RFC 8122, section 5: two hexadecimal digits per byte, as many bytes as the hash
/// has.
fn is_fingerprint(text: &str) -> bool {
    let Some((hash, bytes)) = text.split_once(' ') else { return false };
    let wanted = match hash.to_ascii_lowercase().as_str() {
        "sha-1" => 20,
        "sha-224" => 28,
        "sha-256" => 32,
        "sha-384" => 48,
        "sha-512" => 64,
        _ => return false,
    };
    let byte = |byte: &str| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
    bytes.split(':').count() == wanted && bytes.split(':').all(byte)
}

/// An ICE credential by RFC 8839, section 5.4. Hyphen, underscore and equals sign are not
/// ice-chars, but some clients use them.
fn is_ice_credential(text: &str, min_len: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte);
    (min_len..=256).contains(&text.len()) && text.bytes().all(allowed)
}

fn direction(line: &str) -> Option<&str> {
    line.strip_prefix("a=")
        .filter(|word| matches!(*word, "sendrecv" | "sendonly" | "recvonly" | "inactive"))
}

fn has_opus(section: &[&str]) -> bool {
    section.iter().filter_map(|line| line.strip_prefix("a=rtpmap:")).any(|map| {
        map.split_once(' ')
            .is_some_and(|(_, codec)| codec.to_ascii_lowercase().starts_with("opus/48000"))
    })
}

/// Completes str0m's answer for the client. Both tracks join the media stream `stream`, because
/// browsers synchronize lips only within one stream. Every live section gets the server's
/// candidates and their end marker, because the first section may be rejected.
pub(super) fn complete_answer(answer: &str, stream: &str) -> String {
    let candidates: Vec<&str> =
        answer.lines().filter(|line| line.starts_with("a=candidate:")).collect();
    let mut text = String::with_capacity(answer.len() + 512);
    let mut section_live = false;
    let end = |text: &mut String, live: bool| {
        if live {
            for line in candidates.iter().copied().chain(["a=end-of-candidates"]) {
                text.push_str(line);
                text.push_str("\r\n");
            }
        }
    };
    for line in answer
        .lines()
        .filter(|line| !line.starts_with("a=candidate:") && *line != "a=end-of-candidates")
    {
        if let Some(media) = line.strip_prefix("m=") {
            end(&mut text, section_live);
            section_live = media.split(' ').nth(1) != Some("0");
        }
        if line.starts_with("a=msid-semantic:") {
            text.push_str("a=msid-semantic:WMS ");
            text.push_str(stream);
        } else if let Some(track) =
            line.strip_prefix("a=msid:").and_then(|rest| rest.split_once(' '))
        {
            text.push_str("a=msid:");
            text.push_str(stream);
            text.push(' ');
            text.push_str(track.1);
        } else if let Some((ssrc, rest)) =
            line.strip_prefix("a=ssrc:").and_then(|rest| rest.split_once(" msid:"))
        {
            text.push_str("a=ssrc:");
            text.push_str(ssrc);
            text.push_str(" msid:");
            text.push_str(stream);
            text.push(' ');
            text.push_str(rest.split_once(' ').map_or("", |(_, track)| track));
        } else {
            text.push_str(line);
        }
        text.push_str("\r\n");
    }
    end(&mut text, section_live);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION_LINES: &str = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n";
    const OPUS_SECTION: &str =
        "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=rtpmap:111 opus/48000/2\r\n";

    fn video_section(direction: &str) -> String {
        format!("m=video 9 UDP/TLS/RTP/SAVPF 96\r\na={direction}\r\na=rtpmap:96 VP8/90000\r\n")
    }

    #[test]
    fn the_face_is_only_ever_received_by_the_client_and_a_screen_is_inactive() {
        let offer = format!(
            "{SESSION_LINES}{OPUS_SECTION}a=sendrecv\r\n{}{}",
            video_section("sendrecv"),
            video_section("sendonly")
        );
        let narrowed = restrict_offer(&offer).unwrap();
        let directions: Vec<_> = narrowed.lines().filter_map(direction).collect();
        assert_eq!(directions, ["sendrecv", "recvonly", "inactive"]);
    }

    #[test]
    fn a_first_video_that_only_sends_is_not_the_face() {
        let narrowed =
            restrict_offer(&format!("{SESSION_LINES}{OPUS_SECTION}{}", video_section("sendonly")))
                .unwrap();
        assert_eq!(
            narrowed.lines().filter_map(direction).collect::<Vec<_>>(),
            ["sendrecv", "inactive"]
        );
    }

    #[test]
    fn a_direction_of_the_session_holds_for_its_sections() {
        let narrowed =
            restrict_offer(&format!("{SESSION_LINES}a=recvonly\r\n{OPUS_SECTION}")).unwrap();
        assert_eq!(narrowed.lines().filter_map(direction).collect::<Vec<_>>(), ["recvonly"]);
    }

    #[test]
    fn candidates_of_the_client_are_dropped() {
        let offer = format!(
            "{SESSION_LINES}{OPUS_SECTION}a=candidate:1 1 udp 1 abc.local 4 typ host\r\n\
             a=end-of-candidates\r\n"
        );
        assert!(!restrict_offer(&offer).unwrap().contains("candidate"));
    }

    #[test]
    fn an_offer_without_opus_is_told_from_a_bad_one() {
        let g722 = "m=audio 9 UDP/TLS/RTP/SAVPF 9\r\na=rtpmap:9 G722/8000\r\n";
        assert_eq!(restrict_offer(&format!("{SESSION_LINES}{g722}")), Err(SdpRejection::NoOpus));
        assert_eq!(
            restrict_offer(&format!("{SESSION_LINES}{}", video_section("sendrecv"))),
            Err(SdpRejection::NoOpus)
        );
        assert!(matches!(restrict_offer("hello"), Err(SdpRejection::Invalid(_))));
        assert!(matches!(restrict_offer(SESSION_LINES), Err(SdpRejection::Invalid(_))));
        assert!(matches!(restrict_offer(&"v=0\n".repeat(20_000)), Err(SdpRejection::Invalid(_))));
        assert!(matches!(
            restrict_offer(&format!("{SESSION_LINES}{}", OPUS_SECTION.repeat(17))),
            Err(SdpRejection::Invalid(_))
        ));
    }

    #[test]
    fn what_would_fail_only_later_is_refused_at_once() {
        let digits = ["AB"; 32].join(":");
        let offer = |port: &str, lines: &str| {
            format!(
                "{SESSION_LINES}m=audio {port} UDP/TLS/RTP/SAVPF 111\r\n\
                 a=rtpmap:111 opus/48000/2\r\n{lines}"
            )
        };
        let ice = "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789abcdefghijkl\r\n";
        assert!(
            restrict_offer(&offer("9", &format!("a=fingerprint:sha-256 {digits}\r\n{ice}")))
                .is_ok()
        );
        assert!(restrict_offer(&offer("9/2", "")).is_ok());
        for port in ["99999999999", "65536", "-1", "x", "", "9/x"] {
            assert!(
                matches!(restrict_offer(&offer(port, "")), Err(SdpRejection::Invalid(_))),
                "{port}"
            );
        }
        for line in [
            format!("a=fingerprint:sha-256 zz{}", &digits[2..]),
            format!("a=fingerprint:sha-256 {}", &digits[3..]),
            format!("a=fingerprint:sha-999 {digits}"),
            "a=fingerprint:sha-256".into(),
            "a=ice-ufrag:abc".into(),
            "a=ice-ufrag:a b c d".into(),
            "a=ice-pwd:0123456789abcdefghijk".into(),
            "a23".into(),
            "A=mid:0".into(),
            "=".into(),
        ] {
            assert!(
                matches!(restrict_offer(&offer("9", &line)), Err(SdpRejection::Invalid(_))),
                "{line}"
            );
        }
        for media in ["m=audio 9 UDP/TLS/RTP/SAVPF", "m=audio", "m=", "m=text 9 RTP/AVP 98"] {
            assert!(
                matches!(
                    restrict_offer(&format!("{SESSION_LINES}{OPUS_SECTION}{media}\r\n")),
                    Err(SdpRejection::Invalid(_))
                ),
                "{media}"
            );
        }
    }

    #[test]
    fn both_tracks_are_in_one_stream_and_every_live_section_has_the_candidates() {
        let answer = "v=0\r\na=msid-semantic:WMS a b\r\nm=audio 9 X 1\r\n\
                      a=candidate:1 1 udp 1 1.2.3.4 5 typ host\r\na=msid:a t0\r\n\
                      a=ssrc:7 msid:a t0\r\nm=video 0 X 0\r\na=inactive\r\n\
                      m=video 9 X 2\r\na=msid:b t1\r\n";
        assert_eq!(
            complete_answer(answer, "s"),
            "v=0\r\na=msid-semantic:WMS s\r\nm=audio 9 X 1\r\na=msid:s t0\r\na=ssrc:7 msid:s t0\r\n\
             a=candidate:1 1 udp 1 1.2.3.4 5 typ host\r\na=end-of-candidates\r\n\
             m=video 0 X 0\r\na=inactive\r\n\
             m=video 9 X 2\r\na=msid:s t1\r\na=candidate:1 1 udp 1 1.2.3.4 5 typ host\r\n\
             a=end-of-candidates\r\n"
        );
    }
}
