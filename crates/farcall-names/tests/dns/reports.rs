//! Reports of the network that somebody forges, who knows addresses and ports alone, end no question.

use farcall_names::Registry;

use crate::forged_icmp::{self, Forger, UDP};
use crate::server::{Reply, Server, address, answer, label, shown, srv};

#[test]
fn a_server_answers_although_somebody_says_that_it_is_gone() {
    if !forged_icmp::enter("reports::a_server_answers_although_somebody_says_that_it_is_gone") {
        return;
    }
    let records =
        [srv("_store._udp.example.org", 0, 0, "a.example.org", 7000), address("a.example.org", "10.0.0.1")];
    let server = Server::of(Vec::new());
    let (forger, here) = (Forger::new(), server.address);
    server.behave(move |query| {
        for kind in forged_icmp::kinds(here.ip()) {
            forger.forge(kind, query.from, here, UDP);
        }
        vec![Reply::Message(answer(query, &records))]
    });
    for _ in 0..20 {
        let found = server.registry().instances(&label("Store")).unwrap();
        assert_eq!(shown(&found), ["a udp://10.0.0.1:7000"]);
    }
}
