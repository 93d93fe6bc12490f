//! Streams of items in segments.

use farcall_courier::codec::{ErrorKind, Limits, StreamOf};

fn words(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

#[test]
fn a_stream_has_as_many_segments_as_it_wants() {
    let names = StreamOf::<String>::new().unwrap();
    let all: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    for size in [1, 7, 1000] {
        let mut out = Vec::new();
        let segments = all.chunks(size);
        let last = segments.len() - 1;
        segments.enumerate().for_each(|(at, items)| names.write(items, at == last, &mut out).unwrap());
        assert_eq!(names.read(&out, Limits::default()).unwrap(), all, "{size} in a segment");
        for end in 0..out.len().min(200) {
            assert!(names.read(&out[..end], Limits::default()).is_err(), "{end} bytes");
        }
    }
    let mut empty = Vec::new();
    names.write(&[], true, &mut empty).unwrap();
    assert_eq!(empty, words(&[1, 0]));
    assert!(names.read(&empty, Limits::default()).unwrap().is_empty());
}

#[test]
fn a_stream_of_very_many_segments_does_not_nest() {
    let numbers = StreamOf::<u16>::new().unwrap();
    let stream = [words(&[0, 1, 7]).repeat(100_000), words(&[1, 0])].concat();
    assert_eq!(numbers.read(&stream, Limits::default()).unwrap().len(), 100_000);
}

#[test]
fn what_is_no_stream_is_refused() {
    let numbers = StreamOf::<u16>::new().unwrap();
    let refused = |stream: &[u16]| numbers.read(&words(stream), Limits::default()).unwrap_err().to_string();
    assert_eq!(refused(&[]), "stream: the message ends here: 2 bytes are needed, 0 are left");
    assert_eq!(refused(&[2, 0]), "stream: 2 is none of the numbers that the type has");
    assert_eq!(refused(&[1, 1, 7, 7]), "stream: 2 bytes follow the value");
    assert_eq!(refused(&[1, 3, 7]), "segment: 3 elements do not fit into the 2 bytes that are left");
    let names = StreamOf::<String>::new().unwrap();
    let why = names.read(&[0, 1, 0, 1, 0, 1, 0xff, 0], Limits::default()).unwrap_err();
    assert!(matches!(why.kind(), ErrorKind::NotOfItsType(_)), "{why}");
    assert!(StreamOf::<u64>::new().is_err());
    let mut out = vec![9];
    assert!(numbers.write(&[0; 65_536], true, &mut out).is_err());
    assert_eq!(out, [9]);
}
