//! Generates tonic's stubs from a description in Rust, so that protoc is not needed.
use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str, input: &str| {
        let method = Method::builder().name(name).route_name(route);
        let method = method.input_type(format!("crate::{input}")).output_type("crate::Payload");
        method.codec_path("tonic_prost::ProstCodec").build()
    };
    let items = Method::builder().name("items").route_name("Items").server_streaming();
    let items = items.input_type("crate::Size").output_type("crate::Payload");
    let items = items.codec_path("tonic_prost::ProstCodec").build();
    let echo = Service::builder().package("bench").name("Echo");
    let echo = echo.method(method("echo", "Echo", "Payload")).method(method("slow", "Slow", "Payload"));
    let member = Service::builder().package("bench").name("Member");
    let member = member.method(method("null", "Null", "Payload")).method(method("work", "Work", "Time"));
    Builder::new()
        .compile(&[echo.method(method("fetch", "Fetch", "Size")).method(items).build(), member.build()]);
    println!("cargo::rerun-if-changed=build.rs");
}
