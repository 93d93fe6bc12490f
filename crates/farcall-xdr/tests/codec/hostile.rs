//! Tests invalid bytes. Each gives an error with a reason and a place, at a cost in proportion to the bytes'
//! length.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZero;
use std::time::Duration;

use bytes::Bytes;
use farcall_xdr::{Decode, Decoder, Encode, Encoder, ErrorKind, Limits, from_slice, to_vec};

/// Returns the error of decoding words as `T`.
#[track_caller]
fn error<T: for<'a> Decode<'a> + std::fmt::Debug>(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    from_slice::<T>(&bytes).unwrap_err().to_string()
}

#[track_caller]
fn lenient<T: for<'a> Decode<'a>>(bytes: &[u8]) -> T {
    let mut decoder = Decoder::new(bytes).lenient();
    let value = T::decode(&mut decoder).unwrap();
    decoder.finish().unwrap();
    value
}

#[test]
fn values_out_of_range() {
    assert_eq!(error::<u8>(&[256]), "at byte 0: 256 does not fit u8");
    assert_eq!(error::<i8>(&[128]), "at byte 0: 128 does not fit i8");
    assert_eq!(error::<(u32, u16)>(&[0, 65536]), "at byte 4, in .1: 65536 does not fit u16");
    assert_eq!(error::<i16>(&[0x8000]), "at byte 0: 32768 does not fit i16");
    assert_eq!(error::<bool>(&[2]), "at byte 0: 2 is not a boolean (0 or 1)");
    assert_eq!(error::<Option<u32>>(&[2, 0]), "at byte 0: 2 is not a boolean (0 or 1)");
    assert_eq!(error::<char>(&[0xd800]), "at byte 0: 0xd800 is not a Unicode scalar value");
    assert_eq!(error::<NonZero<u32>>(&[0]), "at byte 0: zero, where it must not be");
    let text = "at byte 8: nanoseconds make more than a second";
    assert_eq!(error::<Duration>(&[0, 0, 1_000_000_000]), text);
    assert_eq!(error::<std::net::IpAddr>(&[5]), "at byte 0: 5 is not a variant of IpAddr");
}

#[test]
fn strict_and_lenient() {
    let padded = [0, 0, 0, 1, 7, 0, 0, 1];
    let text = "at byte 5: padding is not zero";
    assert_eq!(from_slice::<Vec<u8>>(&padded).unwrap_err().to_string(), text);
    assert_eq!(lenient::<Vec<u8>>(&padded), [7]);
    assert!(from_slice::<Vec<u8>>(&padded[..5]).is_err());
    assert_eq!(lenient::<Vec<u8>>(&padded[..5]), [7]);
    assert!(lenient::<bool>(&[0, 0, 0, 2]));
    let text = "at byte 4: 1 bytes follow the value";
    assert_eq!(from_slice::<u32>(&[0; 5]).unwrap_err().to_string(), text);
    assert_eq!(lenient::<u32>(&[0; 5]), 0);
    let twice = to_vec(&vec![(1u32, 2u32), (1, 3)]).unwrap();
    let text = "at byte 12, in [1]: the same key stands twice";
    assert_eq!(from_slice::<BTreeMap<u32, u32>>(&twice).unwrap_err().to_string(), text);
    assert_eq!(lenient::<HashMap<u32, u32>>(&twice), HashMap::from([(1, 3)]));
    assert_eq!(error::<HashSet<u32>>(&[2, 1, 1]), "at byte 8, in [1]: the same key stands twice");
}

#[test]
fn false_counts_fail_before_the_first_element() {
    let text = "at byte 0: 4294967295 elements cannot be in the 8 bytes that are left";
    assert_eq!(error::<Vec<u32>>(&[u32::MAX, 1, 2]), text);
    assert_eq!(error::<Vec<f64>>(&[u32::MAX, 1, 2]), text);
    assert_eq!(error::<Vec<String>>(&[u32::MAX, 1, 2]), text);
    assert_eq!(error::<Vec<[u8; 32]>>(&[u32::MAX, 1, 2]), text);
    assert_eq!(error::<BTreeMap<u32, u32>>(&[u32::MAX, 1, 2]), text);
    let text = "at byte 4: 4294967295 bytes are needed, 8 are left";
    assert_eq!(error::<Vec<u8>>(&[u32::MAX, 1, 2]), text);
    assert_eq!(error::<String>(&[u32::MAX, 1, 2]), text);
    assert_eq!(error::<Bytes>(&[u32::MAX, 1, 2]), text);
}

#[test]
fn elements_of_no_bytes_are_few() {
    assert_eq!(from_slice::<Vec<()>>(&to_vec(&[(); 1000][..]).unwrap()).unwrap().len(), 1000);
    let text = "at byte 4: more than 65536 elements of no bytes";
    assert_eq!(error::<Vec<()>>(&[u32::MAX]), text);
    let lists = [vec![100_000], vec![1; 100_000]].concat();
    assert!(error::<Vec<Vec<[u64; 0]>>>(&lists).contains("more than 65536 elements of no bytes"));
}

#[test]
fn large_elements_are_limited_by_memory() {
    let nones = to_vec(&vec![None::<Box<u8>>; 1000]).unwrap();
    let limits = Limits { bytes: 100_000, ..Limits::default() };
    let mut decoder = Decoder::new(&nones).limits(limits);
    let error = Vec::<Option<[u64; 100]>>::decode(&mut decoder).unwrap_err();
    assert_eq!(error.to_string(), "at byte 4: takes more than 100000 bytes of memory");
    let mut decoder = Decoder::new(&nones).limits(limits);
    assert_eq!(Vec::<Option<u32>>::decode(&mut decoder).unwrap().len(), 1000);
}

#[test]
fn depth_is_a_setting() {
    type Nested = Vec<Vec<Vec<u32>>>;
    let value: Nested = vec![vec![vec![1]]];
    let bytes = to_vec(&value).unwrap();
    let decode = |depth| {
        let limits = Limits { depth, ..Limits::default() };
        Nested::decode(&mut Decoder::new(&bytes).limits(limits))
    };
    assert_eq!(decode(2).unwrap(), value);
    let text = "at byte 8, in [0]: nested deeper than 1";
    assert_eq!(decode(1).unwrap_err().to_string(), text);
}

#[test]
fn an_encoder_keeps_its_limit() {
    let mut packet = vec![9; 3];
    let mut encoder = Encoder::with_limit(&mut packet, 8);
    7u64.encode(&mut encoder).unwrap();
    let error = ().encode(&mut encoder).and(1u32.encode(&mut encoder)).unwrap_err();
    assert_eq!(error.to_string(), "at byte 8: the encoding is longer than 8 bytes");
    assert_eq!(error.kind(), &ErrorKind::BufferFull(8));
    assert!([1u32].encode(&mut encoder).is_err() && [1u8].encode(&mut encoder).is_err());
    assert_eq!(packet.len(), 11);
    for length in [1, 4] {
        let mut packet = Vec::new();
        let error = Encoder::with_limit(&mut packet, 3).opaque(&vec![7; length]).unwrap_err();
        assert_eq!((error.kind(), packet.len()), (&ErrorKind::BufferFull(3), 0), "{length} padded bytes");
    }
}

#[test]
fn bytes_share_a_packet_that_they_fill() {
    let share = |length: usize| {
        let packet = Bytes::from(to_vec(&(vec![1u8; length], vec![0u8; 1000])).unwrap());
        let (first, _) = <(Bytes, Bytes)>::decode(&mut Decoder::with_packet(&packet)).unwrap();
        assert_eq!(first, vec![1; length]);
        packet.as_ptr_range().contains(&first.as_ptr())
    };
    assert!(!share(0));
    assert!(!share(300));
    assert!(share(340));
    assert!(share(4000));
}

#[test]
fn an_error_is_one_word() {
    assert_eq!(size_of::<farcall_xdr::Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), farcall_xdr::Error>>(), size_of::<usize>());
}
