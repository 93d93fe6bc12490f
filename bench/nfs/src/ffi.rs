//! Safe functions around the C side (`read.c`, `day.c`).
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};

unsafe extern "C" {
    fn bench_open(url: *const c_char, bytes: c_uint, length: c_uint) -> *mut c_void;
    fn bench_read(client: *mut c_void) -> *const c_char;
    fn bench_window(client: *mut c_void, outstanding: c_uint, reads: c_uint) -> c_int;
    fn day_mount(url: *const c_char) -> *mut c_void;
    fn day_do(day: *mut c_void, operation: c_int, path: *const c_char, file: c_uint, bytes: c_uint) -> c_int;
}

/// A client. It is never destroyed, because the process ends with it.
pub struct Client {
    handle: NonNull<c_void>,
    bytes: usize,
}

impl Client {
    /// Returns a client of the file at a URL. Each read is of `bytes` bytes, and after `length` bytes the
    /// reads begin again at the start of the file.
    pub fn open(url: &str, bytes: usize, length: usize) -> Result<Client> {
        let address = CString::new(url)?;
        // SAFETY: the string ends with a zero and lives until the call has returned.
        let handle = unsafe { bench_open(address.as_ptr(), bytes.try_into()?, length.try_into()?) };
        let handle =
            NonNull::new(handle).with_context(|| format!("libnfs does not read {bytes} bytes of {url}"))?;
        Ok(Client { handle, bytes })
    }

    /// Returns the next bytes of the file.
    #[inline]
    pub fn read(&mut self) -> Result<&[u8]> {
        // SAFETY: the handle came from `bench_open` and is used by this thread alone.
        let read = unsafe { bench_read(self.handle.as_ptr()) };
        ensure!(!read.is_null(), "a READ failed or was short");
        // SAFETY: `self.bytes` bytes have been read to that place. They stay until the next call, for which
        // `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(read.cast(), self.bytes) })
    }

    /// Makes many reads, with `outstanding` of them at any time.
    pub fn window(&mut self, outstanding: usize, reads: usize) -> Result<()> {
        // SAFETY: as in `read`.
        let failed =
            unsafe { bench_window(self.handle.as_ptr(), outstanding.try_into()?, reads.try_into()?) };
        ensure!(failed == 0, "a READ failed or was short");
        Ok(())
    }
}

/// A user of a mounted directory with the files `file-a` to `file-p`, which it has open. It is never
/// destroyed, because the process ends with it.
pub struct User(NonNull<c_void>);

/// An operation on a path, by its number in `day.c`.
#[derive(Clone, Copy, Debug)]
pub enum OnPath {
    Stat = 0,
    Readlink = 2,
    Readdir = 3,
    Statvfs = 4,
    Access = 7,
}

/// An operation on an open file, by its number in `day.c`.
#[derive(Clone, Copy, Debug)]
pub enum OnFile {
    Stat = 1,
    Read = 5,
    Write = 6,
}

impl User {
    /// Mounts the directory at a URL.
    pub fn mount(url: &str) -> Result<User> {
        let address = CString::new(url)?;
        // SAFETY: the string ends with a zero and lives until the call has returned.
        let handle = unsafe { day_mount(address.as_ptr()) };
        NonNull::new(handle).map(User).with_context(|| format!("libnfs does not mount {url}"))
    }

    /// Does something with a path.
    pub fn on_path(&mut self, operation: OnPath, path: &str) -> Result<()> {
        let failed = self.make(operation as c_int, path, 0, 0)?;
        ensure!(failed >= 0, "{operation:?} of {path} failed: {failed}");
        Ok(())
    }

    /// Does something with an open file and its first bytes.
    pub fn on_file(&mut self, operation: OnFile, file: u32, bytes: u32) -> Result<()> {
        let failed = self.make(operation as c_int, "", file, bytes)?;
        ensure!(failed >= 0, "{operation:?} of file {file} failed: {failed}");
        Ok(())
    }

    fn make(&mut self, operation: c_int, path: &str, file: u32, bytes: u32) -> Result<c_int> {
        let path = CString::new(path)?;
        // SAFETY: the handle came from `day_mount` and is used by this thread alone; the string lives until
        // the call has returned. The C side checks `file` and `bytes`.
        Ok(unsafe { day_do(self.0.as_ptr(), operation, path.as_ptr(), file, bytes) })
    }
}
