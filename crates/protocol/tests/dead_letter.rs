//! Headers of dead letters and marks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use starling_protocol::{
    Timestamp,
    dead_letter::{
        Burial, DeadReason, MAX_MARK_RANGES, Mark, OmittedValue, PREFIX, Settled, burials, own_headers,
    },
};

fn burial() -> Burial {
    Burial {
        code: DeadReason::Panic.name().to_owned(),
        reason: "the handler panicked: ouch".to_owned(),
        topic: "starling.worker".to_owned(),
        partition: 7,
        offset: 41,
        time: Timestamp(1_700_000_000_000),
        count: 2,
        group: "starling.worker".to_owned(),
        process: "worker-a-1".to_owned(),
        omitted: None,
    }
}

fn written(headers: Vec<(&'static str, String)>) -> Vec<(String, Vec<u8>)> {
    headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_bytes())).collect()
}

#[test]
fn what_is_written_is_read() {
    let omitted = Some(OmittedValue { bytes: Some(9), digest: Some("ab".to_owned()) });
    for burial in [burial(), Burial { omitted, ..burial() }] {
        let mut headers = written(burial.headers());
        assert!(headers.iter().all(|(name, _)| name.starts_with(PREFIX)));
        headers.insert(0, ("who".to_owned(), b"me".to_vec()));
        assert_eq!(Burial::read(&headers), Some(burial.clone()));
        assert_eq!(burials(&headers), 2);
        let own: Vec<_> = own_headers(&headers).map(|(name, _)| name.as_str()).collect();
        assert_eq!(own, ["who"]);
        assert_eq!(Mark::read(&headers), None);
    }
}

#[test]
fn letters_of_the_first_versions_are_read() {
    let old: Vec<_> = written(burial().headers())
        .into_iter()
        .filter(|(name, _)| !["code", "count", "group", "process"].iter().any(|new| name.ends_with(new)))
        .collect();
    let read = Burial::read(&old).unwrap();
    assert_eq!((read.code.as_str(), read.count, read.offset), ("", 1, 41));
    assert_eq!(burials(&old), 0);
    let no_letter: Vec<_> = old.into_iter().filter(|(name, _)| !name.ends_with("topic")).collect();
    assert_eq!(Burial::read(&no_letter), None);
    assert_eq!(Burial::read(&[("x".to_owned(), b"y".to_vec())]), None);
}

#[test]
fn marks_are_no_letters_and_nonsense_is_no_mark() {
    for (settled, offsets) in
        [(Settled::Replayed, vec![(3, 3)]), (Settled::Dropped, vec![(0, 4), (9, 9), (12, 70)])]
    {
        let mark = Mark { settled, offsets };
        let headers = written(mark.headers());
        assert_eq!(Mark::read(&headers), Some(mark));
        assert_eq!(Burial::read(&headers), None);
    }
    let many = Mark { settled: Settled::Dropped, offsets: vec![(1, 1); MAX_MARK_RANGES + 1] };
    assert_eq!(Mark::read(&written(many.headers())), None);
    for (mark, offsets) in
        [("burnt", "1"), ("dropped", ""), ("dropped", "5-3"), ("dropped", "-1"), ("dropped", "1,x")]
    {
        let headers = written(vec![
            (starling_protocol::dead_letter::MARK, mark.to_owned()),
            (starling_protocol::dead_letter::MARK_OFFSETS, offsets.to_owned()),
        ]);
        assert_eq!(Mark::read(&headers), None, "{mark} {offsets}");
        assert_eq!(Burial::read(&headers), None);
    }
}

#[test]
fn words_are_distinct() {
    let mut names: Vec<_> = DeadReason::ALL.iter().map(|reason| reason.name()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
