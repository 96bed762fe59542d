use super::*;
use std::net::SocketAddr;
use std::time::Duration;

/// A fresh directory for one test.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("adverb-capture-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn flow(src: &str, dst: &str) -> Flow {
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 4791);
    Flow { src: at(src), dst: at(dst), traffic_class: 0x2a, hop_limit: 0 }
}

/// The kind and the body of each block; checks both length fields of each.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let len = word(bytes, 4) as usize;
        assert_eq!(len % 4, 0);
        assert_eq!(word(bytes, len - 4) as usize, len);
        all.push((word(bytes, 0), bytes[8..len - 4].to_vec()));
        bytes = &bytes[len..];
    }
    all
}

#[test]
fn blocks_are_whole_and_headers_add_up() {
    let directory = scratch("blocks");
    let path = directory.join("a.pcapng");
    let capture = Capture::create(&path, u64::MAX).unwrap();
    capture.sent(&flow("10.1.2.3", "10.1.2.4"), &[7; 16 + 16 + 13], 16, "sent");
    capture.received(&flow("fe80::1", "fe80::2"), 5, &[9; 20], "received");
    assert_eq!(blocks(&std::fs::read(&path).unwrap()).len(), 2, "written before it is flushed");
    capture.flush();
    let all = blocks(&std::fs::read(&path).unwrap());
    assert_eq!(all.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [0x0a0d_0d0a, 1, 6, 6, 6, 6]);
    let frames: Vec<&[u8]> = all[2..]
        .iter()
        .map(|(_, body)| {
            &body[20..20 + u32::from_le_bytes(body[12..16].try_into().unwrap()) as usize]
        })
        .collect();
    assert_eq!(frames.iter().map(|f| f.len()).collect::<Vec<_>>(), [44, 44, 41, 72]);
    for (id, frame) in frames[..3].iter().enumerate() {
        assert_eq!(ones_sum(&[&frame[..20]]), 0xffff, "IPv4 checksum");
        assert_eq!(&frame[4..6], &(id as u16).to_be_bytes(), "identification counts in a run");
        assert_eq!((frame[1], frame[8]), (0x2a, 64));
        let len = (frame.len() - 20) as u16;
        let pseudo = [&frame[12..20], &[0, 17], &len.to_be_bytes()].concat();
        assert_eq!(ones_sum(&[&pseudo, &frame[20..]]), 0xffff, "UDP checksum");
    }
    let frame = frames[3];
    assert_eq!((frame[0] >> 4, u16::from_be_bytes([frame[4], frame[5]])), (6, 32));
    let pseudo = [&frame[8..40], &[0, 17, 0, 32]].concat();
    assert_eq!(ones_sum(&[&pseudo, &frame[40..]]), 0xffff, "UDP checksum over IPv6");
    std::fs::remove_dir_all(directory).unwrap();
}

/// The sum of RFC 1071; all ones for valid data.
fn ones_sum(parts: &[&[u8]]) -> u32 {
    let mut sum = 0;
    for word in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(word[0]) << 8 | word.get(1).copied().map_or(0, u32::from);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[test]
fn no_file_is_written_to_that_exists() {
    let directory = scratch("names");
    let path = directory.join("a.pcapng");
    std::fs::write(&path, "mine").unwrap();
    let made: Vec<PathBuf> =
        (0..3).map(|_| Capture::create(&path, u64::MAX).unwrap().path().to_path_buf()).collect();
    let pid = std::process::id();
    let wanted =
        [format!("a.{pid}.pcapng"), format!("a.{pid}-1.pcapng"), format!("a.{pid}-2.pcapng")];
    assert_eq!(made, wanted.map(|name| directory.join(name)));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    assert!(Capture::create(&directory.join("no/such"), u64::MAX).is_err());
    std::fs::remove_dir_all(directory).unwrap();
}

/// TRU-1, TRU-4: only the own user may read a capture, and a pipe put in its place by another user
/// does not block this process.
#[test]
fn tru_1_captures_are_read_by_their_user() {
    use std::os::unix::fs::PermissionsExt;
    let directory = scratch("rights");
    let path = directory.join("a.pcapng");
    let capture = Capture::create(&path, u64::MAX).unwrap();
    let mode = std::fs::metadata(capture.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pipe = directory.join("b.pcapng");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(make_room(&pipe).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn room_is_made_by_removing_finished_captures_alone() {
    let directory = scratch("room");
    let path = directory.join("a.pcapng");
    make_room(&path).unwrap();
    let capture = Capture::create(&path, u64::MAX).unwrap();
    make_room(&path).unwrap();
    assert!(path.exists(), "removed while it is written");
    drop(capture);
    // A program being started by another test has the file, and so the lock, until its `exec`.
    for _ in 0..1000 {
        make_room(&path).unwrap();
        if !path.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!path.exists());
    for other in ["mine", "me"] {
        std::fs::write(&path, other).unwrap();
        assert!(make_room(&path).unwrap_err().to_string().contains("not overwritten"));
    }
    assert!(make_room(&directory).is_err());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_full_file_ends_with_a_whole_block() {
    let directory = scratch("full");
    let path = directory.join("a.pcapng");
    let capture = Capture::create(&path, 1500).unwrap();
    for _ in 0..20 {
        capture.sent(&flow("10.1.2.3", "10.1.2.4"), &[7; 200], 200, "sent");
        capture.flush();
    }
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() <= 1500);
    assert!(blocks(&bytes).len() > 4);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_device_without_room_ends_the_capture_only() {
    let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = Some(std::os::fd::OwnedFd::from(file).into());
    let output = Output { file, spare: Vec::new(), written: 0, limit: u64::MAX };
    let capture = Capture::of(PathBuf::new(), vec![0; 100], output);
    capture.flush();
    assert!(!capture.records());
    assert!(capture.output.lock().file.is_none());
    capture.sent(&flow("::1", "::1"), &[0; 20], 20, "");
    assert!(capture.buffer.lock().is_empty(), "it grows for nobody");
    capture.flush();
}

/// CAP-1: a packet through shared memory is recorded as an IP packet; the end of a longer packet is
/// left out.
#[test]
fn cap_1_packets_of_shared_memory_are_ip_packets() {
    let directory = scratch("near");
    let path = directory.join("a.pcapng");
    let capture = Capture::create(&path, u64::MAX).unwrap();
    for (ip, payload) in [("127.0.0.1", 5), ("127.0.0.1", 65_536), ("::1", 5), ("::1", 65_536)] {
        let ip = ip.parse().unwrap();
        let packet = NearPacket {
            time: 1,
            sent: true,
            comment: "sent",
            src: ip,
            dst: ip,
            headers: &[3; 28],
            payload,
        };
        capture.near(&packet, |out| out.fill(7));
    }
    assert_eq!(blocks(&std::fs::read(&path).unwrap()).len(), 2, "written by another thread");
    capture.flush();
    let all = blocks(&std::fs::read(&path).unwrap());
    let word =
        |body: &[u8], at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap()) as usize;
    for ((_, body), (ip, payload)) in
        all[2..].iter().zip([(20, 5), (20, 65_536), (40, 5), (40, 65_536)])
    {
        let frame = &body[20..20 + word(body, 12)];
        let short = payload == 5;
        let (kept, pad) = if short { (5, 3) } else { (frame.len() - ip - 8 - 28 - 4, 0) };
        assert_eq!(word(body, 16), ip + 8 + 28 + payload + pad + 4, "the whole length");
        let length = u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]);
        assert_eq!(usize::from(length), frame.len() - ip);
        let mut headers = [3; 28];
        headers[1] |= (pad as u8) << 4;
        assert_eq!(&frame[ip + 8..ip + 8 + 28], headers, "with the pad count");
        assert!(
            frame[ip + 36..ip + 36 + kept].iter().all(|byte| *byte == 7) && kept % 4 == payload % 4
        );
        assert_eq!(frame[ip + 36 + kept..], vec![0; pad + 4], "pad, and no ICRC");
        if ip == 20 {
            assert_eq!(ones_sum(&[&frame[..20]]), 0xffff, "IPv4 checksum");
        } else {
            let pseudo = [&frame[8..40], &[0, 17, frame[44], frame[45]]].concat();
            assert_eq!(ones_sum(&[&pseudo, &frame[40..]]), 0xffff, "UDP checksum over IPv6");
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}
