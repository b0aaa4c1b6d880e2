//! Text of a growing token sequence. The pieces concatenated are the full
//! decode; only an incomplete character is held back.

use crate::abi::{enter, Bytes, Failure};
use crate::byte_level;
use crate::tokenizer::{Spelling, Tokenizer};

enum State {
    /// Byte-level vocabularies: bytes that may still become a character.
    Bytes(Vec<u8>),
    /// Others decode a window of tokens again and again, since a token's text
    /// depends on its neighbours. `shown` is the decode of the window's first
    /// `settled` tokens.
    Window {
        ids: Vec<u32>,
        settled: usize,
        shown: String,
    },
}

pub struct Stream<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    state: State,
}

/// Splits off what is certain: everything but an incomplete sequence at the
/// end, ill-formed parts as U+FFFD.
fn take_certain(bytes: &mut Vec<u8>) -> String {
    let mut out = String::new();
    let mut rest: &[u8] = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                out.push_str(valid);
                rest = &[];
                break;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                out.push_str(std::str::from_utf8(valid).unwrap_or_default());
                rest = after;
                match error.error_len() {
                    Some(length) => {
                        out.push('\u{FFFD}');
                        rest = &rest[length..];
                    }
                    None => break,
                }
            }
        }
    }
    *bytes = rest.to_vec();
    out
}

/// A run of this many undecodable tokens is not the start of a character.
const LONGEST_PENDING: usize = 8;

impl<'a> Stream<'a> {
    pub fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Stream<'a> {
        let state = if tokenizer.spelling == Spelling::ByteLevel {
            State::Bytes(Vec::new())
        } else {
            State::Window {
                ids: Vec::new(),
                settled: 0,
                shown: String::new(),
            }
        };
        Stream {
            tokenizer,
            skip_special,
            state,
        }
    }

    pub fn step(&mut self, id: u32) -> Result<String, Failure> {
        match &mut self.state {
            State::Bytes(pending) => {
                if self.skip_special && self.tokenizer.is_special(id) {
                    return Ok(String::new());
                }
                // An id without a token decodes to nothing, as in `decode`.
                if let Some(token) = self.tokenizer.hf.id_to_token(id) {
                    pending.extend(byte_level::decode(&token));
                }
                Ok(take_certain(pending))
            }
            State::Window {
                ids,
                settled,
                shown,
            } => {
                ids.push(id);
                let hf = &self.tokenizer.hf;
                let now = hf.decode(ids, self.skip_special)?;
                let waiting = ids.len() - *settled;
                if now.len() <= shown.len()
                    || (now.ends_with('\u{FFFD}') && waiting < LONGEST_PENDING)
                {
                    return Ok(String::new());
                }
                let delta = now
                    .strip_prefix(shown.as_str())
                    .unwrap_or_default()
                    .to_string();
                ids.drain(..*settled);
                *settled = ids.len();
                *shown = hf.decode(ids, self.skip_special)?;
                Ok(delta)
            }
        }
    }

    pub fn flush(&mut self) -> Result<String, Failure> {
        match &mut self.state {
            State::Bytes(pending) => {
                let bytes = std::mem::take(pending);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            State::Window {
                ids,
                settled,
                shown,
            } => {
                let now = self.tokenizer.hf.decode(ids, self.skip_special)?;
                let delta = now
                    .strip_prefix(shown.as_str())
                    .unwrap_or_default()
                    .to_string();
                *settled = ids.len();
                *shown = now;
                Ok(delta)
            }
        }
    }
}

/// The stream borrows the tokenizer: the caller keeps that alive longer.
#[no_mangle]
pub unsafe extern "C" fn mlxx_stream_new(
    tokenizer: &'static Tokenizer,
    skip_special_tokens: bool,
) -> *mut Stream<'static> {
    Box::into_raw(Box::new(Stream::new(tokenizer, skip_special_tokens)))
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_stream_free(stream: *mut Stream<'static>) {
    if !stream.is_null() {
        drop(Box::from_raw(stream));
    }
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_stream_step(
    stream: &mut Stream<'static>,
    id: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(Bytes::from_vec(stream.step(id)?.into_bytes()))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_stream_flush(
    stream: &mut Stream<'static>,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(Bytes::from_vec(stream.flush()?.into_bytes()))
    })
}
