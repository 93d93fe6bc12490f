//! Prints the speed of encoding and decoding bulk data, compared with memcpy.
//!
//! `cargo run --release -p farcall-xdr --example speed`
//!
//! Each figure is the median of 61 rounds, with its 95 % interval. A round runs memcpy, farcall, farcall,
//! memcpy, one directly after the other, and compares the sums. memcpy copies the same number of bytes
//! between existing buffers, from or to the same place in a packet: after the count. Decoding makes a new
//! `Vec`. So the last column compares it with memcpy into a new one, which is what `to_vec` does. The
//! addresses of buffers, modulo a page, change the speed of memcpy itself by a third, so every round has
//! buffers of its own, at other distances from each other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use farcall_xdr::{Decode, Decoder, Encode, Encoder};

const ROUNDS: usize = 61;
/// The number of bytes that one block of a round moves.
const BLOCK: usize = 16 << 20;

fn main() {
    let heads = ["encode / memcpy", "decode / memcpy", "decode / to_vec"];
    println!("type        bytes  {:<22} {:<22} {:<22}", heads[0], heads[1], heads[2]);
    for bytes in [4 << 10, 64 << 10, 1 << 20] {
        row("opaque", &vec![7u8; bytes]);
        row("u32", &vec![7u32; bytes / 4]);
        row("u64", &vec![7u64; bytes / 8]);
        row("f64", &vec![7f64; bytes / 8]);
        println!();
    }
}

fn row<T: Copy + Encode + for<'a> Decode<'a>>(name: &str, items: &[T]) {
    let bytes = size_of_val(items);
    let mut ratios = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let samples = sample(items, 64 * (round * 37 % ROUNDS));
        ratios.iter_mut().zip(samples).for_each(|(ratios, sample)| ratios.push(sample));
    }
    let [encode, decode, decode_to_vec] = ratios.map(summary);
    println!("{name:<8} {bytes:>8}  {encode:<22} {decode:<22} {decode_to_vec:<22}");
}

/// Returns the three ratios of one measurement, with buffers `distance` further apart than they would be.
fn sample<T: Copy + Encode + for<'a> Decode<'a>>(items: &[T], distance: usize) -> [f64; 3] {
    let bytes = size_of_val(items);
    let repeats = BLOCK / bytes;
    let items = items.to_vec();
    let mut copy = vec![7u8; bytes];
    let spacer = vec![0u8; distance];
    let mut wire = Vec::with_capacity(bytes + 4);
    items.encode(&mut Encoder::new(&mut wire)).expect("it fits");
    let other_spacer = vec![0u8; distance];
    let packet = wire.clone();
    let mut other_packet = wire.clone();
    let _spacers = black_box((spacer, other_spacer));

    let encode = compare(
        repeats,
        || black_box(&mut other_packet)[4..].copy_from_slice(black_box(&copy)),
        || {
            wire.clear();
            let mut encoder = Encoder::new(black_box(&mut wire));
            black_box(&items).encode(&mut encoder).expect("it fits");
        },
    );
    let mut decode = || {
        let items = Vec::<T>::decode(&mut Decoder::new(black_box(&packet)));
        black_box(items.expect("encoded above"));
    };
    let memcpy = || black_box(&mut copy).copy_from_slice(&black_box(&packet)[4..]);
    let decode_to_memcpy = compare(repeats, memcpy, &mut decode);
    let to_vec = || drop(black_box(black_box(&packet)[4..].to_vec()));
    [encode, decode_to_memcpy, compare(repeats, to_vec, decode)]
}

/// Returns the speed of `ours` divided by that of `theirs`.
fn compare(repeats: usize, mut theirs: impl FnMut(), mut ours: impl FnMut()) -> f64 {
    let first = time(repeats, &mut theirs);
    let own = time(repeats, &mut ours) + time(repeats, &mut ours);
    (first + time(repeats, &mut theirs)).as_secs_f64() / own.as_secs_f64()
}

fn time(repeats: usize, work: &mut impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..repeats).for_each(|_| work());
    start.elapsed()
}

fn summary(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    // The ranks of a sign test: half the rounds, less and more 1.96 times half their root.
    let spread = (0.98 * (ROUNDS as f64).sqrt()).ceil() as usize;
    let middle = ROUNDS / 2;
    let (low, high) = (ratios[middle - spread], ratios[middle + spread]);
    format!("{:.2} ({low:.2} to {high:.2})", ratios[middle])
}
