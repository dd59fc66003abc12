//! The samples in `vectors.json` decode to messages and encode to the same bytes again, here as in
//! `harness/tests/guests/test_wire.py`. MessagePack of both sides puts `type` first, fields in the
//! order of their declaration, and integers into the shortest form, so the bytes themselves can be
//! compared: an unknown, missing, misspelt or moved field on either side fails the test. So do words and limits.

use std::collections::{BTreeMap, BTreeSet};

use powercut_protocol::{
    decode, limits, AgentReply, AgentRequest, Call, ChangeKind, DifferenceKind, DiskReply,
    DiskRequest, ExtentKind, FileKind, HoldOrder, OperationFlag, OperationKind, PROTOCOL_VERSION,
};
use serde::{de::DeserializeOwned, Deserialize, Serialize};

#[derive(Deserialize)]
struct Vectors {
    protocol: u32,
    limits: BTreeMap<String, usize>,
    words: BTreeMap<String, Vec<String>>,
    messages: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    hex: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors.json")).expect("vectors.json is readable")
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

/// Decode, encode, compare, and return the number of the variant.
fn check<T: DeserializeOwned + Serialize>(vector: &Vector, variant: fn(&T) -> usize) -> usize {
    let body = bytes(&vector.hex);
    let message: T = decode(&body).unwrap_or_else(|e| panic!("{}: {e:?}", vector.name));
    let again = rmp_serde::to_vec_named(&message).expect("encodes");
    assert_eq!(again, body, "{}", vector.name);
    variant(&message)
}

// The matches have no wildcard: a new variant does not compile until it has a number, and the test
// fails until it has a sample.

fn agent_request(message: &AgentRequest) -> usize {
    use AgentRequest as M;
    match message {
        M::RecordStart { .. } => 0,
        M::RunOperations { .. } => 1,
        M::RecordFinish {} => 2,
        M::Recover { .. } => 3,
        M::RunProgram { .. } => 4,
        M::Unmount {} => 5,
        M::PutFile { .. } => 6,
        M::Use { .. } => 7,
        M::RunBeside { .. } => 8,
        M::NoteCalls { .. } => 9,
        M::TryTrees { .. } => 10,
        M::Remember { .. } => 11,
        M::Wake { .. } => 12,
    }
}

fn agent_reply(message: &AgentReply) -> usize {
    use AgentReply as M;
    match message {
        M::Hello { .. } => 0,
        M::RecordStarted {} => 1,
        M::OperationsDone { .. } => 2,
        M::RecordFinished { .. } => 3,
        M::Recovered(_) => 4,
        M::ProgramDone { .. } => 5,
        M::Unmounted { .. } => 6,
        M::Done {} => 7,
        M::Failed { .. } => 8,
        M::Used { .. } => 9,
        M::TreesTried { .. } => 10,
        M::OutsideSeen(_) => 11,
    }
}

fn disk_request(message: &DiskRequest) -> usize {
    use DiskRequest as M;
    match message {
        M::Open { .. } => 0,
        M::Switch { .. } => 1,
        M::Image { .. } => 2,
        M::Hashes { .. } => 3,
        M::Compare { .. } => 4,
        M::Stats {} => 5,
        M::AlsoRead { .. } => 6,
        M::BlockHashes { .. } => 7,
        M::Explore { .. } => 8,
        M::Completions { .. } => 9,
        M::Snapshot {} => 10,
        M::RollBack {} => 11,
        M::Reads {} => 12,
        M::Learn { .. } => 13,
        M::NoteWrites {} => 14,
        M::LogWrites { .. } => 15,
        M::Requests {} => 16,
        M::Inject { .. } => 17,
        M::EndFault {} => 18,
    }
}

fn disk_reply(message: &DiskReply) -> usize {
    use DiskReply as M;
    match message {
        M::Opened { .. } => 0,
        M::Switched {} => 1,
        M::Imaged { .. } => 2,
        M::Hashed { .. } => 3,
        M::Compared { .. } => 4,
        M::Counted(_) => 5,
        M::Noted {} => 6,
        M::Remembered { .. } => 7,
        M::BlocksHashed { .. } => 8,
        M::Explored { .. } => 9,
        M::Failed { .. } => 10,
        M::RolledBack { .. } => 11,
        M::WereRead { .. } => 12,
        M::Logged { .. } => 13,
        M::RequestsSeen { .. } => 14,
        M::FaultEnded { .. } => 15,
    }
}

#[test]
fn every_message_has_a_sample_that_survives() {
    let mut seen = [const { BTreeSet::new() }; 4];
    for vector in vectors().messages {
        match vector.kind.as_str() {
            "AgentRequest" => seen[0].insert(check(&vector, agent_request)),
            "AgentReply" => seen[1].insert(check(&vector, agent_reply)),
            "DiskRequest" => seen[2].insert(check(&vector, disk_request)),
            "DiskReply" => seen[3].insert(check(&vector, disk_reply)),
            other => panic!("{}: no message is called {other}", vector.name),
        };
    }
    for (found, count) in seen.iter().zip([13, 12, 19, 16]) {
        assert_eq!(*found, (0..count).collect(), "each variant has a sample");
    }
}

fn words<T: Serialize>(all: &[T]) -> Vec<String> {
    let word = |one: &T| serde_json::to_value(one).expect("encodes");
    all.iter()
        .map(|one| word(one).as_str().expect("a word").to_owned())
        .collect()
}

/// A kind that only one side knows would fail in mid-run, on the first file that has it.
#[test]
fn words_limits_and_version_are_those_of_the_host() {
    let vectors = vectors();
    assert_eq!(vectors.protocol, PROTOCOL_VERSION);
    let ours = limits::ALL.iter().map(|(name, n)| ((*name).to_owned(), *n));
    assert_eq!(vectors.limits, ours.collect());
    let ours = [
        ("Call", words(Call::ALL)),
        ("ChangeKind", words(ChangeKind::ALL)),
        ("DifferenceKind", words(DifferenceKind::ALL)),
        ("FileKind", words(FileKind::ALL)),
        ("HoldOrder", words(HoldOrder::ALL)),
        ("OperationFlag", words(OperationFlag::ALL)),
        ("OperationKind", words(OperationKind::ALL)),
        ("ExtentKind", words(ExtentKind::ALL)),
    ];
    let ours = ours.map(|(name, words)| (name.to_owned(), words));
    assert_eq!(vectors.words, ours.into());
}

#[test]
fn an_unknown_message_is_refused() {
    let body = rmp_serde::to_vec_named(&serde_json::json!({"type": "explode"})).expect("encodes");
    assert!(decode::<DiskRequest>(&body).is_err());
}

/// splitmix64 (Steele, Lea, Flood 2014): the same run every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    /// `body` with a few bytes changed, removed, inserted or cut off.
    fn damage(&mut self, body: &[u8]) -> Vec<u8> {
        let mut bytes = body.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len().max(1));
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 => bytes.insert(at, self.below(256) as u8),
                _ => bytes.truncate(at),
            }
        }
        bytes
    }
}

/// How often each sample is damaged; `POWERCUT_FUZZ` raises it.
fn rounds() -> usize {
    let named = std::env::var("POWERCUT_FUZZ").ok();
    named.and_then(|n| n.parse().ok()).unwrap_or(400)
}

#[test]
fn a_damaged_frame_is_refused_or_decoded_and_never_panics() {
    let mut random = Random(1);
    let vectors = vectors().messages;
    for vector in &vectors {
        let body = bytes(&vector.hex);
        for _ in 0..rounds() {
            let damaged = random.damage(&body);
            let _ = decode::<AgentRequest>(&damaged);
            let _ = decode::<AgentReply>(&damaged);
            let _ = decode::<DiskRequest>(&damaged);
            let _ = decode::<DiskReply>(&damaged);
        }
    }
}

#[test]
fn every_cut_of_a_frame_is_refused() {
    for vector in vectors().messages {
        let body = bytes(&vector.hex);
        for end in 0..body.len() {
            assert!(decode::<AgentRequest>(&body[..end]).is_err());
            assert!(decode::<AgentReply>(&body[..end]).is_err());
            assert!(decode::<DiskRequest>(&body[..end]).is_err());
            assert!(decode::<DiskReply>(&body[..end]).is_err());
        }
    }
}
