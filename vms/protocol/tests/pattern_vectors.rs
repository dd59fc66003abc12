//! The pattern matches `pattern_vectors.json`; `harness/tests/oracles/test_pattern.py` reads it too.

use powercut_protocol::pattern;
use serde_json::Value;

fn vectors(kind: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../pattern_vectors.json")).unwrap();
    all[kind].as_array().unwrap().clone()
}

fn number(vector: &Value, name: &str) -> u64 {
    vector[name].as_u64().unwrap()
}

#[test]
fn words_agree_with_the_vectors() {
    for v in vectors("words") {
        let writer = u16::try_from(number(&v, "writer")).unwrap();
        let place = u32::try_from(number(&v, "place")).unwrap();
        assert_eq!(
            format!("{:016x}", pattern::word(writer, place)),
            v["word"],
            "{v}"
        );
    }
}

#[test]
fn fills_agree_with_the_vectors() {
    for v in vectors("fills") {
        let writer = u16::try_from(number(&v, "writer")).unwrap();
        let expected = v["bytes"].as_str().unwrap();
        let mut bytes = vec![0; expected.len() / 2];
        pattern::fill(writer, number(&v, "offset"), &mut bytes);
        let found: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(found, expected, "{v}");
    }
}
