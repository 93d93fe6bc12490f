//! calc.x written as a Rust trait: a server, and a client that checks a server.

use std::sync::Arc;

use farcall::Calls;
use farcall_onc::Server;
use farcall_onc::server::ServerBuilder;

use crate::programs::at_each;

#[farcall::interface(program = 0x2000_0088, version = 3)]
pub trait Calc {
    #[procedure(1)]
    fn add(&self, a: i32, b: i32) -> farcall::Result<i32>;
    fn turn(&self, sample: Sample) -> farcall::Result<Sample>;
    fn count_down(&self, from: u32) -> farcall::Result<Listing>;
    fn total(&self, listing: Listing) -> farcall::Result<i64>;
    fn join(&self, first: &str, again: &str, times: i32) -> farcall::Result<String>;
    fn nothing(&self) -> farcall::Result<()>;
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub enum Shape {
    #[xdr(tag = 0)]
    Red,
    #[xdr(tag = 1)]
    Green(Point),
    #[xdr(tag = 5)]
    Blue(#[xdr(max = 64)] String),
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Entry {
    pub name: String,
    pub size: i64,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Listing {
    #[xdr(chain)]
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, farcall::Xdr)]
pub struct Sample {
    pub flag: bool,
    pub count: u32,
    pub total: u64,
    pub single: f32,
    pub twice: f64,
    pub digest: [u8; 16],
    pub data: Vec<u8>,
    pub numbers: Vec<i32>,
    pub fixed: [i32; 3],
    #[xdr(max = 8)]
    pub shapes: Vec<Shape>,
}

pub struct Calculator;

impl Calc for Calculator {
    fn add(&self, a: i32, b: i32) -> farcall::Result<i32> {
        Ok(a.wrapping_add(b))
    }

    fn turn(&self, mut sample: Sample) -> farcall::Result<Sample> {
        sample.flag = !sample.flag;
        sample.count = sample.count.wrapping_add(1);
        sample.total = sample.total.wrapping_sub(1);
        (sample.single, sample.twice) = (sample.single * 2.0, sample.twice * 2.0);
        sample.digest.reverse();
        sample.data.reverse();
        sample.numbers.reverse();
        sample.fixed.reverse();
        sample.shapes.reverse();
        for shape in &mut sample.shapes {
            if let Shape::Green(at) = shape {
                (at.x, at.y) = (at.y, at.x);
            }
        }
        Ok(sample)
    }

    fn count_down(&self, from: u32) -> farcall::Result<Listing> {
        let entry = |n: u32| Entry { name: n.to_string(), size: i64::from(n) << 32 };
        Ok(Listing { entries: (1..=from.min(1000)).rev().map(entry).collect() })
    }

    fn total(&self, listing: Listing) -> farcall::Result<i64> {
        Ok(listing.entries.iter().fold(0, |total, entry| total.wrapping_add(entry.size)))
    }

    fn join(&self, first: &str, again: &str, times: i32) -> farcall::Result<String> {
        Ok(first.to_string() + &again.repeat(times.clamp(0, 1000) as usize))
    }

    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }
}

/// Starts a farcall server of the program, at a port of each network.
pub fn serve(settings: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    let builder = Server::builder().program::<dyn Calc>(Arc::new(Calculator));
    settings(at_each(builder)).start().unwrap()
}

/// Calls each procedure of a server, in several ways, and checks the results.
pub fn check(calc: &CalcClient) {
    calc.nothing().unwrap();
    assert_eq!(calc.add(40, 2).unwrap(), 42);
    let shapes = vec![Shape::Red, Shape::Green(Point { x: 1, y: 2 }), Shape::Blue("sky".into())];
    let sample = Sample {
        flag: true,
        count: 7,
        total: 1 << 40,
        single: 1.5,
        twice: -2.25,
        digest: std::array::from_fn(|n| n as u8),
        data: vec![1, 2, 3, 4, 5],
        numbers: vec![-1, 0, 1],
        fixed: [1, 2, 3],
        shapes,
    };
    let turned = calc.turn(sample.clone()).unwrap();
    assert_eq!(turned.data, [5, 4, 3, 2, 1]);
    assert_eq!(turned.shapes[1], Shape::Green(Point { x: 2, y: 1 }));
    assert_eq!(calc.join("a", "bc", 3).unwrap(), "abcbcbc");
    let listing = calc.count_down(100).unwrap();
    assert_eq!((listing.entries.len(), &listing.entries[0].name[..]), (100, "100"));
    let entries = (1..=50).map(|n| Entry { name: format!("{n}"), size: n }).collect();
    assert_eq!(calc.total(Listing { entries }).unwrap(), 50 * 51 / 2);
    let started: Vec<_> = (0..20).map(|n| calc.start().add(n, n)).collect();
    for (n, pending) in started.into_iter().enumerate() {
        assert_eq!(pending.wait().unwrap(), 2 * n as i32);
    }
    let mut calls = Calls::new();
    (0..20).for_each(|n| calls.add(n, calc.start().add(n, 1)));
    while let Some((n, sum)) = calls.wait() {
        assert_eq!(sum.unwrap(), n + 1);
    }
}
