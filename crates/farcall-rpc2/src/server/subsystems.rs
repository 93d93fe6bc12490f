//! The subsystems of a server, and how a request to one is executed.

use std::collections::HashMap;
use std::sync::Arc;

use farcall::stub::{self, Dispatched, Interface};
use farcall::xdr::{Decoder, Encoder};
use farcall::{context, guard, idl};

use super::request::Request;
use crate::codec::{Layout, Part, Procedure, Refusal};
use crate::packet::{BAD_DATA, FAIL, INVALID_OPCODE, MAX_BODY_BYTES};

/// The number of a NEW_CONNECTION procedure in an interface.
const NEW_CONNECTION: u32 = 1 << 31;

/// The subsystems by their numbers.
#[derive(Default)]
pub(super) struct Subsystems(HashMap<u32, Subsystem>);

struct Subsystem {
    layout: Layout,
    service: Box<dyn Service>,
}

/// The implementation of a subsystem.
trait Service: Send + Sync {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

struct Direct<T: ?Sized>(Arc<T>);

impl<T: ?Sized + Interface> Service for Direct<T> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        self.0.dispatch(procedure, arguments, reply)
    }
}

impl Subsystems {
    pub fn add<T: ?Sized + Interface>(&mut self, number: u32, server: Arc<T>) -> Result<(), Refusal> {
        let interface: &idl::Interface = T::interface();
        let layout = Layout::new(interface)?;
        layout.check_results(&interface.name, MAX_BODY_BYTES)?;
        let subsystem = Subsystem { layout, service: Box::new(Direct(server)) };
        self.0.insert(number, subsystem);
        Ok(())
    }

    pub fn has(&self, number: u32) -> bool {
        self.0.contains_key(&number)
    }

    /// Returns whether a subsystem wants to know of each connection before its first request.
    pub fn wants_binds(&self, number: u32) -> bool {
        self.0.get(&number).is_some_and(|subsystem| subsystem.layout.procedure(NEW_CONNECTION).is_some())
    }

    /// Executes a request. Returns the return code and the body of the reply.
    pub fn execute(&self, request: &Request) -> (i32, Vec<u8>) {
        let number = if request.is_bind() { NEW_CONNECTION } else { request.opcode.cast_unsigned() };
        let Some(subsystem) = self.0.get(&request.subsystem) else { return (INVALID_OPCODE, Vec::new()) };
        match subsystem.layout.procedure(number).filter(|procedure| !procedure.has_bulk()) {
            Some(procedure) => subsystem.execute(procedure, request),
            None => (INVALID_OPCODE, Vec::new()),
        }
    }
}

impl Subsystem {
    fn execute(&self, procedure: &Procedure, request: &Request) -> (i32, Vec<u8>) {
        let mut arguments = Vec::new();
        let failed = |code: i32| (code, self.layout.empty_result(procedure));
        if self.layout.unpack(procedure, Part::Arguments, &request.body, &mut arguments).is_err() {
            return failed(BAD_DATA);
        }
        let mut reply = Vec::new();
        let dispatched = {
            let _serving = context::enter_elsewhere(request.from);
            let (mut decoder, mut encoder) = (Decoder::new(&arguments), Encoder::new(&mut reply));
            stub::catch(|| self.service.dispatch(procedure.number(), &mut decoder, &mut encoder))
        };
        let (code, xdr) = match (&dispatched, reply.split_first_chunk::<4>()) {
            (Dispatched::Result, _) => (0, &reply[..]),
            (Dispatched::Exception, Some((code, rest))) => match i32::from_be_bytes(*code) {
                // The client would believe that the call went well, or that it did not run.
                0 | INVALID_OPCODE => (FAIL, rest),
                code => (code, rest),
            },
            (Dispatched::BadArguments(_), _) => return failed(BAD_DATA),
            _ => {
                // The error may have a cause of the user's type, whose drop can panic.
                guard::run_alone("the drop of an error", || drop(dispatched));
                return failed(FAIL);
            }
        };
        let mut body = Vec::new();
        match self.layout.pack(procedure, Part::Result, xdr, &mut body) {
            Ok(()) if body.len() <= MAX_BODY_BYTES => (code, body),
            _ => failed(FAIL),
        }
    }
}

#[cfg(test)]
impl Service for () {
    fn dispatch(&self, _: u32, _: &mut Decoder<'_>, _: &mut Encoder<'_>) -> Dispatched {
        Dispatched::Result
    }
}

#[cfg(test)]
impl Subsystems {
    /// Returns one subsystem without procedures.
    pub fn without_procedures(number: u32) -> Subsystems {
        let interface = idl::Interface {
            name: "Nothing".into(),
            docs: String::new(),
            procedures: Vec::new(),
            signals: Vec::new(),
            types: Default::default(),
        };
        let layout = Layout::new(&interface).expect("nothing to refuse");
        Subsystems(HashMap::from([(number, Subsystem { layout, service: Box::new(()) })]))
    }
}
