//! The samples in `vectors.json` decode to messages and encode to the same bytes again, here as in
//! `harness/tests/machines/test_wire.py`. MessagePack of both sides puts `type` first, fields in the
//! order of their declaration, and integers into the shortest form, so the bytes themselves can be
//! compared: an unknown, missing, misspelt or moved field on either side shows.

use powercut_protocol::{AgentReply, AgentRequest, DiskReply, DiskRequest};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Vector {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    hex: String,
}

fn vectors() -> Vec<Vector> {
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
    let message: T =
        rmp_serde::from_slice(&body).unwrap_or_else(|e| panic!("{}: {e}", vector.name));
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
        M::Remember { .. } => 7,
        M::Recall { .. } => 8,
        M::BlockHashes { .. } => 9,
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
        M::Recalled { .. } => 8,
        M::BlocksHashed { .. } => 9,
        M::Failed { .. } => 10,
    }
}

#[test]
fn every_message_has_a_sample_that_survives() {
    let mut seen = [const { BTreeSet::new() }; 4];
    for vector in vectors() {
        match vector.kind.as_str() {
            "AgentRequest" => seen[0].insert(check(&vector, agent_request)),
            "AgentReply" => seen[1].insert(check(&vector, agent_reply)),
            "DiskRequest" => seen[2].insert(check(&vector, disk_request)),
            "DiskReply" => seen[3].insert(check(&vector, disk_reply)),
            other => panic!("{}: no message is called {other}", vector.name),
        };
    }
    for (found, count) in seen.iter().zip([7, 9, 10, 11]) {
        assert_eq!(*found, (0..count).collect(), "each variant has a sample");
    }
}

#[test]
fn an_unknown_message_is_refused() {
    let body = rmp_serde::to_vec_named(&serde_json::json!({"type": "explode"})).expect("encodes");
    assert!(rmp_serde::from_slice::<DiskRequest>(&body).is_err());
}
