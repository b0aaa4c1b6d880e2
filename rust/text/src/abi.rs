//! The C boundary: handles, byte strings, codes. No panic crosses it.

use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::sync::Once;

pub const OK: i32 = 0;
pub const ERROR: i32 = 1;
/// A template called raise_exception; the text is its bare message.
pub const RAISED: i32 = 2;
pub const PANIC: i32 = 3;

/// Bytes owned by this library, given back through `mlxx_text_free`.
#[repr(C)]
pub struct Bytes {
    pub data: *mut u8,
    pub len: usize,
    pub capacity: usize,
}

impl Bytes {
    pub fn from_vec(mut vec: Vec<u8>) -> Bytes {
        let bytes = Bytes {
            data: vec.as_mut_ptr(),
            len: vec.len(),
            capacity: vec.capacity(),
        };
        std::mem::forget(vec);
        bytes
    }
}

#[no_mangle]
pub extern "C" fn mlxx_text_free(bytes: Bytes) {
    if !bytes.data.is_null() {
        // SAFETY: made by Bytes::from_vec, and the caller gives it back once.
        drop(unsafe { Vec::from_raw_parts(bytes.data, bytes.len, bytes.capacity) });
    }
}

/// What a call fails with: a code and a text.
pub struct Failure {
    pub code: i32,
    pub message: String,
}

impl<T: std::fmt::Display> From<T> for Failure {
    fn from(error: T) -> Failure {
        Failure {
            code: ERROR,
            message: error.to_string(),
        }
    }
}

pub fn failure<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure {
        code: ERROR,
        message: message.into(),
    })
}

/// A library does not print: the message of a panic goes to the caller only.
static QUIET: Once = Once::new();

/// Runs one entry point: its value goes to `out`, its failure to `error`.
///
/// # Safety
/// `out` and `error` point to writable places.
pub unsafe fn enter<T>(
    out: *mut T,
    error: *mut Bytes,
    body: impl FnOnce() -> Result<T, Failure>,
) -> i32 {
    QUIET.call_once(|| set_hook(Box::new(|_| {})));
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            out.write(value);
            OK
        }
        Ok(Err(failure)) => {
            error.write(Bytes::from_vec(failure.message.into_bytes()));
            failure.code
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_else(|| "unknown panic".into());
            error.write(Bytes::from_vec(text.into_bytes()));
            PANIC
        }
    }
}

/// # Safety
/// `data` points to `len` readable bytes (or `len` is 0).
pub unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, len)
    }
}

/// # Safety
/// As for `bytes`.
pub unsafe fn text<'a>(data: *const u8, len: usize) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes(data, len))
        .or_else(|e| failure(format!("not valid UTF-8 at byte {}", e.valid_up_to())))
}
