use super::*;
use crate::speak::AudioFrame;

fn line(rate: u32) -> (LineServer, Line) {
    let (mut server, line, _) = pair(rate, rate).unwrap();
    assert!(matches!(server.poll(), Some(TransportEvent::Connected)));
    (server, line)
}

fn feed(line: &mut Line, value: i16, samples: usize) {
    assert!(line.exchange(&vec![value; samples], &mut Vec::new()));
}

/// The first sample of each of the next blocks.
fn read(server: &mut LineServer, blocks: usize) -> Vec<i16> {
    let mut block = [-1; BLOCK_SAMPLES];
    (0..blocks)
        .map(|_| {
            assert!(server.read_audio(&mut block));
            block[0]
        })
        .collect()
}

#[test]
fn a_piece_that_is_late_by_less_than_a_block_leaves_no_hole() {
    let (mut server, mut line) = line(16_000);
    let mut heard = Vec::new();
    for n in 1..=100 {
        // Every third piece comes after the block that needs it.
        if n % 3 == 0 {
            heard.extend(read(&mut server, 1));
            feed(&mut line, n, 320);
        } else {
            feed(&mut line, n, 320);
            heard.extend(read(&mut server, 1));
        }
    }
    let first = heard.iter().position(|x| *x != 0).unwrap();
    assert!(first <= 1, "{heard:?}");
    let expected: Vec<i16> = (1..).take(heard.len() - first).collect();
    assert_eq!(heard[first..], expected);
    assert_eq!(server.take_dropped_blocks(), 0);
}

#[test]
fn a_pause_of_the_feed_is_silence_and_the_cushion_returns() {
    let (mut server, mut line) = line(16_000);
    feed(&mut line, 1, 320);
    assert_eq!(read(&mut server, 4), [0, 1, 0, 0]);
    feed(&mut line, 2, 320);
    feed(&mut line, 3, 320);
    assert_eq!(read(&mut server, 3), [2, 3, 0]);
    assert!(server.take_received() && !server.take_received());
    feed(&mut line, 0, 0);
    assert_eq!(read(&mut server, 1), [0]);
    assert!(server.take_received(), "an empty piece is a sign of life");
}

#[test]
fn the_oldest_audio_beyond_half_a_second_is_dropped_and_counted() {
    let (mut server, mut line) = line(16_000);
    for n in 1..=40 {
        feed(&mut line, 1_000 + n, 320);
    }
    assert_eq!(read(&mut server, 2), [1_016, 1_017]);
    assert_eq!(server.take_dropped_blocks(), 15);
    for _ in 0..200 {
        feed(&mut line, 1_000, 320);
    }
    read(&mut server, 1);
    let dropped = server.take_dropped_blocks();
    assert_eq!(dropped, 200 - 2, "some in the line, some in the call");
}

#[test]
fn a_burst_is_caught_up_with_in_silence() {
    let (mut server, mut line) = line(16_000);
    for n in 1..=5 {
        feed(&mut line, 1_000 * n, 320);
    }
    for _ in 0..10 {
        feed(&mut line, 0, 320);
    }
    assert_eq!(read(&mut server, 6), [1_000, 2_000, 3_000, 4_000, 5_000, 0]);
    assert!(server.waiting.len() <= MAX_SILENT_BLOCKS * BLOCK_SAMPLES);
    assert_eq!(server.take_dropped_blocks(), 0, "silence is no loss");
}

#[test]
fn what_was_sent_before_a_loss_is_still_heard() {
    let (mut server, mut line) = line(16_000);
    feed(&mut line, 1, 320);
    feed(&mut line, 2, 320);
    feed(&mut line, 3, 100);
    drop(line);
    assert!(matches!(server.poll(), Some(TransportEvent::Closed)));
    assert!(server.poll().is_none(), "reported once");
    assert_eq!(read(&mut server, 3), [1, 2, 3]);
    assert!(!server.read_audio(&mut [0; BLOCK_SAMPLES]));
    assert!(!server.is_listening());
}

fn frame(pcm: &[i16], is_speech: bool) -> AudioFrame<'_> {
    AudioFrame {
        timestamp: 0,
        due: crate::clock::now(),
        starts_talk_spurt: false,
        packet: &[],
        pcm,
        playout_position: None,
        is_within_segment: is_speech,
    }
}

#[test]
fn only_speech_is_spoken_with_20_ms_of_silence_behind_it() {
    for rate in [8_000_u32, 16_000, 24_000, 44_100, 48_000] {
        let (mut server, mut line) = line(rate);
        let mut spoken = Vec::new();
        for _ in 0..10 {
            server.send_audio(&frame(&[0; 960], false));
        }
        assert!(line.exchange(&[], &mut spoken) && spoken.is_empty());
        for _ in 0..5 {
            server.send_audio(&frame(&[3_000; 960], true));
        }
        for _ in 0..10 {
            server.send_audio(&frame(&[0; 480], false));
        }
        assert!(line.exchange(&[], &mut spoken));
        assert_eq!(spoken.len(), rate as usize * 120 / 1_000, "{rate}: 100 ms and 20 ms");
        assert_eq!(spoken.last(), Some(&0), "{rate}: the filter is empty");
        let loud = spoken.iter().filter(|s| **s > 1_500).count();
        assert!(loud.abs_diff(rate as usize / 10) <= 2, "{rate}: {loud}");
    }
}

#[test]
fn a_client_that_takes_nothing_is_no_listener_and_a_hang_up_ends_the_line() {
    let (mut server, mut line) = line(48_000);
    for _ in 0..QUEUE_CAPACITY {
        assert!(server.is_listening());
        server.send_audio(&frame(&[1; 480], true));
    }
    assert!(!server.is_listening());
    server.send_audio(&frame(&[1; 480], true));
    let mut spoken = Vec::new();
    assert!(line.exchange(&[], &mut spoken));
    assert_eq!(spoken.len(), QUEUE_CAPACITY * 480);
    assert!(server.is_listening());
    server.send_audio(&frame(&[1; 480], true));
    drop(server);
    spoken.clear();
    assert!(!line.exchange(&[], &mut spoken));
    assert_eq!(spoken.len(), 480, "what was said before is heard");
}
