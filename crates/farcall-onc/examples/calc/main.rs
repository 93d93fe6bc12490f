//! A program of an `.x` file, both ends: `calc serve`, and `calc tcp://127.0.0.1:PORT` (or, of a host with a
//! port mapper, `calc HOST`).

use std::sync::Arc;

use calc::{CalcV1, Operands, Quotient};
use farcall_onc::Server;

#[allow(missing_docs)]
mod calc {
    farcall::include_x!("examples/calc/calc.x");
}

struct Calculator;

impl CalcV1 for Calculator {
    fn calc_add(&self, operands: &Operands) -> farcall::Result<i64> {
        Ok(i64::from(operands.a) + i64::from(operands.b))
    }

    fn calc_divide(&self, operands: &Operands) -> farcall::Result<Quotient> {
        Ok(operands.a.checked_div(operands.b))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = std::env::args().nth(1).filter(|word| word != "serve") else {
        let server = Server::builder().program::<dyn CalcV1>(Arc::new(Calculator));
        let server = server.address("127.0.0.1:0".parse()?).start()?; // UDP and TCP
        println!("{:?}", server.addresses());
        server.wait();
        return Ok(());
    };
    let calculator = farcall_onc::import::<dyn CalcV1>(&address)?;
    println!("{}", calculator.calc_add(&Operands { a: 40, b: 2 })?);
    println!("{:?}", calculator.calc_divide(&Operands { a: 1, b: 0 })?);
    Ok(())
}
