//! Text of a growing token sequence. The pieces concatenated are the full
//! decode; only an incomplete character is held back.

use crate::abi::{enter, Bytes, Failure};
use crate::byte_level;
use crate::spelling::{Pieces, Spelling};
use crate::tokenizer::Tokenizer;

enum State {
    /// Byte-level vocabularies: bytes that may still become a character.
    Bytes(Vec<u8>),
    /// SentencePiece vocabularies: the same, of a run of byte tokens.
    Pieces {
        spelling: Pieces,
        pending: Vec<u8>,
        started: bool,
    },
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
/// end. An ill-formed part is one U+FFFD, or one for each of its bytes.
fn take_certain(bytes: &mut Vec<u8>, mark_each_byte: bool) -> String {
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
                        let marks = if mark_each_byte { length } else { 1 };
                        out.extend(std::iter::repeat_n('\u{FFFD}', marks));
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

/// What an unfinished character becomes: `tokenizers` marks each byte token.
fn take_unfinished(pending: &mut Vec<u8>) -> String {
    let marks = pending.len();
    pending.clear();
    "\u{FFFD}".repeat(marks)
}

/// A run of this many undecodable tokens is not the start of a character.
const LONGEST_PENDING: usize = 8;

/// `now` beyond `shown`. If a later token changed earlier text, which cannot
/// be taken back, the rest starts where the two part.
fn beyond<'a>(now: &'a str, shown: &str) -> &'a str {
    let same: usize = now
        .chars()
        .zip(shown.chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len_utf8())
        .sum();
    &now[same..]
}

impl<'a> Stream<'a> {
    pub fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Stream<'a> {
        let state = match tokenizer.spelling {
            Spelling::ByteLevel => State::Bytes(Vec::new()),
            Spelling::Pieces(spelling) => State::Pieces {
                spelling,
                pending: Vec::new(),
                started: false,
            },
            Spelling::Other => State::Window {
                ids: Vec::new(),
                settled: 0,
                shown: String::new(),
            },
        };
        Stream {
            tokenizer,
            skip_special,
            state,
        }
    }

    /// An id without a token decodes to nothing.
    pub fn step(&mut self, id: u32) -> Result<String, Failure> {
        let hf = &self.tokenizer.hf;
        let skipped = self.skip_special && self.tokenizer.is_special(id);
        match &mut self.state {
            State::Bytes(pending) => {
                if skipped {
                    return Ok(String::new());
                }
                if let Some(token) = hf.id_to_token(id) {
                    pending.extend(byte_level::decode(&token));
                }
                Ok(take_certain(pending, false))
            }
            State::Pieces {
                spelling,
                pending,
                started,
            } => {
                let token = match hf.id_to_token(id) {
                    Some(token) if !skipped => token,
                    _ => return Ok(String::new()),
                };
                let byte = match byte_level::byte_of(&token) {
                    Some(byte) if spelling.byte_fallback => Some(byte),
                    _ => None,
                };
                let mut text = if let Some(byte) = byte {
                    pending.push(byte);
                    take_certain(pending, true)
                } else {
                    take_unfinished(pending) + &token.replace(spelling.space, " ")
                };
                if !*started && !text.is_empty() {
                    *started = true;
                    if spelling.drop_first_space && text.starts_with(' ') {
                        text.remove(0);
                    }
                }
                Ok(text)
            }
            State::Window {
                ids,
                settled,
                shown,
            } => {
                ids.push(id);
                let now = hf.decode(ids, self.skip_special)?;
                let waiting = ids.len() - *settled;
                if now.len() <= shown.len()
                    || (now.ends_with('\u{FFFD}') && waiting < LONGEST_PENDING)
                {
                    return Ok(String::new());
                }
                let delta = beyond(&now, shown).to_string();
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
            State::Pieces { pending, .. } => Ok(take_unfinished(pending)),
            State::Window {
                ids,
                settled,
                shown,
            } => {
                let now = self.tokenizer.hf.decode(ids, self.skip_special)?;
                let delta = beyond(&now, shown).to_string();
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
