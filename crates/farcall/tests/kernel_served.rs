//! Segments that the kernel serves, between two network namespaces.

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use farcall::memory::{Memory, Rights, Settings};

const ROLE: &str = "FARCALL_KERNEL_ROLE";
const SERVER: &str = "10.78.0.1:7000";

#[test]
fn quick() {
    match env::var(ROLE).as_deref() {
        Ok("exporter") => {
            let runtime = farcall::Runtime::builder()
                .address(SERVER.parse().unwrap())
                .open()
                .kernel_served(env::var("IFACE").unwrap_or("far".into()))
                .advertise("10.78.0.1:0".parse().unwrap())
                .registry(farcall::names::Memory::new())
                .build()
                .unwrap();
            let segment = runtime.export_segment("Load", Settings::new(4096).anyone(Rights::ALL)).unwrap();
            segment.store(0, 42).unwrap();
            println!("\n{:?}", runtime.stats().kernel);
            println!("\nready {}", segment.url());
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            println!("{:?}", runtime.stats().exports);
            println!("{:?}", runtime.stats().server);
        }
        Ok("importer") => {
            let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap();
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            let remote = runtime.import_segment(line.trim()).unwrap();
            for _ in 0..5 { let t = Instant::now(); assert_eq!(remote.load(0).unwrap(), 42); println!("{:?}", t.elapsed()); }
            let t = Instant::now();
            for _ in 0..20000 { let mut b = [0;32]; remote.read(0, &mut b).unwrap(); }
            println!("\nmean {:?}", t.elapsed()/20000);
            println!("{:?}", runtime.stats().peers);
        }
        _ => {}
    }
}
