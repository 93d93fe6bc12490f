//! A farcall server that acts as an instrument (VXI-11), and programs that ask instruments for their
//! identity: lxi, and Python's pyvisa.

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use farcall::Result;
use farcall_onc::Server;
use farcall_onc::rpcbind::Mapper;

use crate::is_inside;
use crate::languages::python;
use crate::programs::{has, run, shown};

#[allow(dead_code)]
mod vxi11 {
    farcall::include_x!("x/vxi11.x");
}

use vxi11::*;

/// The errors "operation not supported" and "invalid link identifier" (VXI-11 table B.2).
const NOT_SUPPORTED: DeviceError = DeviceError { error: 8 };
const NO_LINK: i32 = 4;
/// The reason why a read ended: the message has ended (VXI-11 table B.3).
const END: i32 = 4;

/// Keeps the answer to what was written to each link, until it is read.
#[derive(Default)]
struct Instrument(Mutex<HashMap<DeviceLink, Vec<u8>>>);

impl DeviceCoreVersion for Instrument {
    fn create_link(&self, _: &CreateLinkParms) -> Result<CreateLinkResp> {
        let mut links = self.0.lock().unwrap();
        let lid = links.len() as i32 + 1;
        links.insert(lid, Vec::new());
        Ok(CreateLinkResp { error: 0, lid, abort_port: 0, max_recv_size: 1 << 16 })
    }

    fn device_write(&self, write: &DeviceWriteParms) -> Result<DeviceWriteResp> {
        let mut links = self.0.lock().unwrap();
        let Some(answer) = links.get_mut(&write.lid) else {
            return Ok(DeviceWriteResp { error: NO_LINK, size: 0 });
        };
        *answer = match write.data.trim_ascii() {
            b"*IDN?" => b"farcall,an instrument of memory,1,1\n".to_vec(),
            other => other.to_vec(),
        };
        Ok(DeviceWriteResp { error: 0, size: write.data.len() as u32 })
    }

    fn device_read(&self, read: &DeviceReadParms) -> Result<DeviceReadResp> {
        let mut links = self.0.lock().unwrap();
        let Some(answer) = links.get_mut(&read.lid) else {
            return Ok(DeviceReadResp { error: NO_LINK, reason: 0, data: Vec::new() });
        };
        let rest = answer.split_off(answer.len().min(read.request_size as usize));
        let data = std::mem::replace(answer, rest);
        Ok(DeviceReadResp { error: 0, reason: if answer.is_empty() { END } else { 0 }, data })
    }

    fn destroy_link(&self, link: DeviceLink) -> Result<DeviceError> {
        let known = self.0.lock().unwrap().remove(&link);
        Ok(DeviceError { error: if known.is_some() { 0 } else { NO_LINK } })
    }

    fn device_readstb(&self, _: &DeviceGenericParms) -> Result<DeviceReadStbResp> {
        Ok(DeviceReadStbResp { error: NOT_SUPPORTED.error, stb: 0 })
    }

    fn device_trigger(&self, _: &DeviceGenericParms) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_clear(&self, _: &DeviceGenericParms) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_remote(&self, _: &DeviceGenericParms) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_local(&self, _: &DeviceGenericParms) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_lock(&self, _: &DeviceLockParms) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_unlock(&self, _: DeviceLink) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_enable_srq(&self, _: &DeviceEnableSrqParms) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn device_docmd(&self, _: &DeviceDocmdParms) -> Result<DeviceDocmdResp> {
        Ok(DeviceDocmdResp { error: NOT_SUPPORTED.error, data_out: Vec::new() })
    }

    fn create_intr_chan(&self, _: &DeviceRemoteFunc) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }

    fn destroy_intr_chan(&self) -> Result<DeviceError> {
        Ok(NOT_SUPPORTED)
    }
}

#[test]
fn who_asks_instruments_asks_ours() {
    if !is_inside("instruments::who_asks_instruments_asks_ours") {
        return;
    }
    let mapper = Mapper::default();
    let builder = Server::builder().mapper(&mapper).address("0.0.0.0:111".parse().unwrap());
    let builder = builder.program::<dyn DeviceCoreVersion>(Arc::new(Instrument::default()));
    let _server = builder.register_at(&mapper).start().unwrap();
    if has("lxi") {
        let said = run(Command::new("lxi").args(["scpi", "-a", "127.0.0.1", "*IDN?"])).unwrap();
        assert_eq!(said.trim(), "farcall,an instrument of memory,1,1");
        shown("lxi (VXI-11)", "tcp", "serve");
    }
    if let Some(mut python) = python() {
        let program = "from pyvisa_py.protocols import vxi11\n\
            link = vxi11.CoreClient('127.0.0.1')\n\
            error, lid, port, most = link.create_link(1, 0, 1000, 'inst0')\n\
            assert error == 0, error\n\
            assert link.device_write(lid, 1000, 1000, 8, b'*IDN?') == (0, 5)\n\
            print(link.device_read(lid, 7, 1000, 1000, 0, 0))\n\
            print(link.device_read(lid, 100, 1000, 1000, 0, 0))\n\
            print(link.destroy_link(lid))\n";
        let said = run(python.args(["-c", program])).unwrap();
        let expected = "(0, 0, b'farcall')\n(0, 4, b',an instrument of memory,1,1\\n')\n0\n";
        assert_eq!(said, expected);
        shown("Python: pyvisa_py's vxi11", "tcp", "serve");
    }
}
