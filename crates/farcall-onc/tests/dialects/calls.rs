//! Calls of the dialects' procedures, over UDP and TCP.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall::xdr::{ByteString, Chain};
use farcall_onc::{Client, Server};

use crate::bytes::a_caller;
use crate::many_arguments::{ArgumentsFirst, Pair};
use crate::pointers::{Jewel, JewelsFirst, RingItem};
use crate::preprocessed::{House, HouseFirst, HouseSecond, HouseThird, Storey};
use crate::zero_copy::{Page, PagesFirst};
use crate::{constants, headers, names};

struct Host;

impl ArgumentsFirst for Host {
    fn add(&self, number: i32, number_2: i32) -> farcall::Result<i32> {
        Ok(number + number_2)
    }

    fn join(&self, text: &ByteString, text_2: &ByteString) -> farcall::Result<ByteString> {
        Ok([&text[..], text_2].concat().into())
    }

    fn named(&self, before: &ByteString, count: i32, after: &ByteString) -> farcall::Result<ByteString> {
        Ok(format!("{before} {count} {after}").as_str().into())
    }

    fn sum(&self, number: f32, number_2: f64, last: i64) -> farcall::Result<f64> {
        Ok(f64::from(number) + number_2 + last as f64)
    }

    fn twice(&self, pair: &Option<Pair>, only: &Pair) -> farcall::Result<Pair> {
        Ok(pair.map_or(*only, |pair| Pair { first: pair.second, second: pair.first }))
    }

    fn nothing(&self) -> farcall::Result<bool> {
        Ok(true)
    }

    fn last(&self, _: &Pair) -> farcall::Result<()> {
        Ok(())
    }
}

impl HouseFirst for Host {
    fn build(&self, house: &House) -> farcall::Result<u32> {
        Ok(house.doors.len() as u32)
    }
}

impl HouseSecond for Host {
    fn highest(&self, house: &House) -> farcall::Result<Storey> {
        Ok(house.doors.iter().map(|room| room.on).max().unwrap_or_default())
    }
}

impl HouseThird for Host {}

impl JewelsFirst for Host {
    fn wear(&self, ring: &Chain<RingItem>, jewel: &Jewel) -> farcall::Result<Chain<RingItem>> {
        Ok(Chain(ring.0.iter().chain(&jewel.set_in).cloned().collect()))
    }
}

impl PagesFirst for Host {
    fn turn(&self, page: &Page) -> farcall::Result<Page> {
        Ok(page.clone())
    }

    fn length(&self, text: &ByteString) -> farcall::Result<u32> {
        Ok(text.len() as u32)
    }

    fn bounded(&self, text: &ByteString, flag: bool) -> farcall::Result<u32> {
        Ok(text.len() as u32 + u32::from(flag))
    }

    fn both(&self, page: &Page) -> farcall::Result<[i32; 2]> {
        Ok([page.whole.len() as i32, page.few.len() as i32])
    }

    fn bytes(&self, data: &[u8], items: &[i32]) -> farcall::Result<u64> {
        Ok((data.len() + items.len()) as u64)
    }
}

impl headers::HeadersFirst for Host {
    fn who(&self, caller: &headers::Caller) -> farcall::Result<headers::Flavour> {
        Ok(headers::Flavour::RpcsecGss(caller.cookie.clone()))
    }

    fn find(&self, _: &headers::Domain) -> farcall::Result<headers::Failure> {
        Ok(headers::Failure::Enoent("no".into()))
    }

    fn which(&self, status: i32) -> farcall::Result<headers::Callee> {
        Ok(headers::Callee { status, ..Default::default() })
    }
}

impl headers::HeadersSecond for Host {
    fn way(&self) -> farcall::Result<i32> {
        Ok(6)
    }

    fn other_way(&self) -> farcall::Result<i32> {
        Ok(17)
    }
}

impl names::NamesFirst for Host {
    fn clone_(&self, _: &names::Keywords, clash: &names::CLASH) -> farcall::Result<names::Result> {
        Ok(names::Result::High_2(*clash))
    }

    fn Clone(&self, self_: &[names::Option_]) -> farcall::Result<names::Result> {
        Ok(names::Result::Default(names::Tone::HIGH_, self_.to_vec()))
    }

    fn start_(&self, tone: names::Tone) -> farcall::Result<names::Tone> {
        Ok(tone)
    }
}

impl constants::ConstantsFirst for Host {
    fn ask(&self, _: &constants::Sized) -> farcall::Result<constants::Answer> {
        Ok(constants::Answer::Low(vec![1]))
    }
}

impl constants::ConstantsAgain for Host {
    fn ask(&self, _: &constants::Sized) -> farcall::Result<constants::Answer> {
        Ok(constants::Answer::High("again".into()))
    }
}

#[test]
fn procedures_of_each_dialect_are_called() {
    let (host, any) = (Arc::new(Host), SocketAddr::from(([127, 0, 0, 1], 0)));
    let builder = Server::builder().program::<dyn ArgumentsFirst>(host.clone());
    let builder = builder.program::<dyn HouseFirst>(host.clone()).program::<dyn HouseSecond>(host.clone());
    let builder = builder.program::<dyn HouseThird>(host.clone()).program::<dyn JewelsFirst>(host.clone());
    let builder = builder.program::<dyn PagesFirst>(host.clone());
    let builder = builder.program::<dyn headers::HeadersFirst>(host.clone());
    let builder = builder.program::<dyn headers::HeadersSecond>(host.clone());
    let builder = builder.program::<dyn names::NamesFirst>(host.clone());
    let builder = builder.program::<dyn constants::ConstantsFirst>(host.clone());
    let builder = builder.program::<dyn constants::ConstantsAgain>(host);
    let server = builder.udp(any).tcp(any).start().unwrap();
    for address in [format!("udp://{}", server.udp().unwrap()), format!("tcp://{}", server.tcp().unwrap())] {
        let client = Client::connect(&address).unwrap();
        several_arguments(&client);
        versions(&client);
        pointers_and_sizes(&client);
        names_and_constants(&client);
    }
}

fn several_arguments(client: &Client) {
    let calls = client.bind::<dyn ArgumentsFirst>();
    calls.null().unwrap();
    assert_eq!(calls.add(-3, 5).unwrap(), 2);
    assert_eq!(calls.join(&"a".into(), &"bc".into()).unwrap(), "abc");
    assert_eq!(calls.named(&"a".into(), 7, &"z".into()).unwrap(), "a 7 z");
    assert_eq!(calls.sum(0.5, 0.25, -2).unwrap(), -1.25);
    let pair = Pair { first: 1, second: 2 };
    assert_eq!(calls.twice(&Some(pair), &Pair::default()).unwrap(), Pair { first: 2, second: 1 });
    assert_eq!(calls.twice(&None, &pair).unwrap(), pair);
    assert!(calls.nothing().unwrap());
    calls.last(&pair).unwrap();
}

fn versions(client: &Client) {
    let mut house = House::default();
    house.doors[1].on = Storey::Attic;
    assert_eq!(client.bind::<dyn HouseFirst>().build(&house).unwrap(), 3);
    assert_eq!(client.bind::<dyn HouseSecond>().highest(&house).unwrap(), Storey::Attic);
    client.bind::<dyn HouseThird>().null().unwrap();
}

fn pointers_and_sizes(client: &Client) {
    let item = |text: &str| RingItem { engraved: text.into() };
    let jewel = Jewel { name: "opal".into(), set_in: vec![item("b")] };
    let worn = client.bind::<dyn JewelsFirst>().wear(&Chain(vec![item("a")]), &jewel).unwrap();
    assert_eq!(worn.0, [item("a"), item("b")]);
    let pages = client.bind::<dyn PagesFirst>();
    let page = Page { whole: vec![1; 300], few: vec![2; 6], ..Page::default() };
    assert_eq!(pages.turn(&page).unwrap(), page);
    assert_eq!(pages.both(&page).unwrap(), [300, 6]);
    assert_eq!(pages.length(&"seven".into()).unwrap(), 5);
    assert_eq!(pages.bounded(&"fives".into(), true).unwrap(), 6);
    assert!(pages.bounded(&"sixsix".into(), true).is_err());
    assert_eq!(pages.bytes(&[1; 7], &[1, 2]).unwrap(), 9);
    assert!(pages.bytes(&[], &[0; 6]).is_err());
}

fn names_and_constants(client: &Client) {
    use constants::{Answer, ConstantsAgain, ConstantsFirst, Sized};
    use headers::{Failure, Flavour, HeadersFirst, HeadersSecond};
    use names::{CLASH, Keywords, NamesFirst, Result, Tone};

    let calls = client.bind::<dyn NamesFirst>();
    let clash = CLASH::default();
    assert_eq!(calls.clone_(&Keywords::default(), &clash).unwrap(), Result::High_2(clash));
    assert_eq!(calls.Clone(&[3]).unwrap(), Result::Default(Tone::HIGH_, vec![3]));
    assert_eq!(calls.start_(Tone::High_2).unwrap(), Tone::High_2);

    let calls = client.bind::<dyn HeadersFirst>();
    assert_eq!(calls.who(&a_caller()).unwrap(), Flavour::RpcsecGss(vec![1, 2, 3]));
    assert_eq!(calls.find(&headers::Domain::default()).unwrap(), Failure::Enoent("no".into()));
    assert_eq!(calls.which(-4).unwrap().status, -4);
    let calls = client.bind::<dyn HeadersSecond>();
    assert_eq!((calls.way().unwrap(), calls.other_way().unwrap()), (6, 17));

    let ask = Sized::Default(constants::MILLION, 5);
    assert_eq!(client.bind::<dyn ConstantsFirst>().ask(&ask).unwrap(), Answer::Low(vec![1]));
    assert_eq!(client.bind::<dyn ConstantsAgain>().ask(&ask).unwrap(), Answer::High("again".into()));
}
