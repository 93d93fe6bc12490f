//! Serves the program, and calls it over TCP and UDP.

use std::sync::Arc;

use farcall_calculator::Calculator;
use farcall_calculator::protocol::{CalculatorV1, Operands};
use farcall_onc::server::Transport;
use farcall_onc::{Server, import};

#[test]
fn a_package_that_depends_on_farcall_onc_alone_serves_and_calls() {
    let server = Server::builder().program::<dyn CalculatorV1>(Arc::new(Calculator));
    let server = server.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    assert_eq!(server.addresses().len(), 2);
    for (transport, address) in server.addresses() {
        let transport = if *transport == Transport::Tcp { "tcp" } else { "udp" };
        let calculator = import::<dyn CalculatorV1>(&format!("{transport}://{address}")).unwrap();
        let operands = |left, right| Operands { left, right };
        assert_eq!(calculator.add(&operands(20, 22)).unwrap(), 42);
        assert_eq!(calculator.divide(&operands(84, 2)).unwrap(), Some(42));
        assert_eq!(calculator.start().divide(&operands(1, 0)).wait().unwrap(), None);
    }
}
