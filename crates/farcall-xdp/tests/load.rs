//! t
use aya::{Ebpf,programs::Xdp};
#[test]
fn loads() {
    let bytes = aya::include_bytes_aligned!("../program/read.o");
    let mut e = Ebpf::load(bytes).unwrap();
    let p: &mut Xdp = e.program_mut("farcall_read").unwrap().try_into().unwrap();
    p.load().unwrap_or_else(|why| { let s = format!("{why:?}").replace("\\n","\n"); let l: Vec<_> = s.lines().collect(); for x in &l[l.len().saturating_sub(60)..] { println!("{x}"); } panic!() });
}
