//! A Hugging Face tokenizer: text to ids and back.

use crate::abi::{bytes, enter, failure, text, Bytes, Failure};
use crate::bpe_file;
use crate::byte_level;
use crate::marked::Marked;
use crate::model::{AnyModel, HfTokenizer};
use crate::packed_bpe::FORMAT;
use crate::spelling::{spelling_of, Spelling};
use crate::stream::Stream;
use std::collections::HashMap;
use std::sync::OnceLock;

pub struct AddedToken {
    pub content: String,
    pub special: bool,
}

pub struct Tokenizer {
    pub hf: HfTokenizer,
    /// The same with control tokens in the text taken as ordinary characters;
    /// made when the first such text comes, since it doubles the memory.
    plain: OnceLock<HfTokenizer>,
    /// For chats with such text, made at need too.
    marked: OnceLock<Result<Marked, String>>,
    pub spelling: Spelling,
    pub added: HashMap<u32, AddedToken>,
    pub vocab_size: u32,
}

/// No vocabulary is near this; masks and tries are as long as the largest id.
const LARGEST_ID: u32 = 1 << 24;

/// `"merges": []` somewhere in the file, found without reading it all as JSON.
fn has_empty_merges(json: &str) -> bool {
    json.match_indices("\"merges\"").any(|(at, key)| {
        let mut rest = json[at + key.len()..]
            .bytes()
            .filter(|b| !b.is_ascii_whitespace());
        [b':', b'[', b']'].iter().all(|b| rest.next() == Some(*b))
    })
}

/// A BPE model whose merges were lost turns every word into single bytes and
/// reports no error, so it is refused here.
fn check_merges(json: &str) -> Result<(), Failure> {
    if !has_empty_merges(json) {
        return Ok(());
    }
    let value: serde_json::Value = serde_json::from_str(json)?;
    let model = &value["model"];
    let merges = model["merges"].as_array();
    if (model["type"] != "BPE" && !model["type"].is_null()) || merges.is_none_or(|m| !m.is_empty())
    {
        return Ok(());
    }
    let added: Vec<&str> = value["added_tokens"]
        .as_array()
        .map(|list| list.iter().filter_map(|t| t["content"].as_str()).collect())
        .unwrap_or_default();
    let long = model["vocab"].as_object().and_then(|vocab| {
        vocab.keys().find(|k| {
            k.chars().count() > 1 && !byte_level::is_byte_token(k) && !added.contains(&k.as_str())
        })
    });
    match long {
        Some(token) => failure(format!(
            "the BPE model has tokens such as '{token}' and no merges to build them"
        )),
        None => Ok(()),
    }
}

/// Any file that `tokenizers` reads, with the largest id.
fn read_any(json: &str) -> Result<(HfTokenizer, u32), Failure> {
    check_merges(json)?;
    let hf = HfTokenizer::from_bytes(json.as_bytes())?;
    let largest = hf.get_vocab(true).into_values().max().unwrap_or(0);
    Ok((hf, largest))
}

impl Tokenizer {
    pub fn from_json(json: &str) -> Result<Tokenizer, Failure> {
        match bpe_file::read(json) {
            Some((hf, largest)) => Tokenizer::new(hf, largest),
            None => read_any(json).and_then(|(hf, largest)| Tokenizer::new(hf, largest)),
        }
    }

    /// From what `packed` gave, perhaps damaged since.
    fn from_packed(bytes: &[u8]) -> Result<Tokenizer, Failure> {
        match bpe_file::unpack(bytes.to_vec()) {
            Some((hf, largest)) => Tokenizer::new(hf, largest),
            None => failure("not a packed tokenizer, or a damaged one"),
        }
    }

    /// The tokenizer in the form that loads without being built; empty if it
    /// has none.
    fn packed(&self) -> &[u8] {
        match self.hf.get_model() {
            AnyModel::Packed(bpe) => bpe.bytes(),
            AnyModel::General(_) => &[],
        }
    }

    fn new(mut hf: HfTokenizer, largest: u32) -> Result<Tokenizer, Failure> {
        // A file may carry the truncation and padding of its training run.
        hf.with_truncation(None)?;
        hf.with_padding(None);
        let spelling = spelling_of(&hf)?;
        let added: HashMap<u32, AddedToken> = hf
            .get_added_tokens_decoder()
            .into_iter()
            .map(|(id, token)| {
                let added = AddedToken {
                    content: token.content,
                    special: token.special,
                };
                (id, added)
            })
            .collect();
        if largest >= LARGEST_ID {
            return failure(format!(
                "a token has the id {largest}, the limit is {LARGEST_ID}"
            ));
        }
        Ok(Tokenizer {
            hf,
            plain: OnceLock::new(),
            marked: OnceLock::new(),
            spelling,
            added,
            vocab_size: largest + 1,
        })
    }

    fn plain(&self) -> &HfTokenizer {
        self.plain.get_or_init(|| {
            let mut copy = self.hf.clone();
            copy.set_encode_special_tokens(true);
            copy
        })
    }

    pub fn marked(&self) -> Result<&Marked, Failure> {
        self.marked
            .get_or_init(|| Marked::new(self).map_err(|failure| failure.message))
            .as_ref()
            .map_err(Failure::from)
    }

    pub fn has_special_literal(&self, text: &str) -> bool {
        self.added
            .values()
            .any(|t| t.special && !t.content.is_empty() && text.contains(&t.content))
    }

    pub fn encode(&self, text: &str, add: bool, parse_special: bool) -> Result<Vec<u32>, Failure> {
        let hf = if parse_special || !self.has_special_literal(text) {
            &self.hf
        } else {
            self.plain()
        };
        let mut ids = hf.encode_fast(text, add)?.get_ids().to_vec();
        // The text may start with the very token that is added to it.
        if add && ids.len() > 1 && ids[0] == ids[1] && self.is_special(ids[0]) {
            let bare = hf.encode_fast(text, false)?;
            if bare.len() < ids.len() && bare.get_ids().first() == ids.first() {
                ids.remove(0);
            }
        }
        Ok(ids)
    }

    /// As the stream puts it together, which differs from `tokenizers` in two
    /// places: its Metaspace decoder drops all spaces of the first token, and
    /// one bad byte in a run of byte tokens spoils the whole run.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, Failure> {
        if !matches!(self.spelling, Spelling::Pieces(_)) {
            return Ok(self.hf.decode(ids, skip_special)?);
        }
        let mut stream = Stream::new(self, skip_special);
        let mut out = String::new();
        for id in ids {
            out.push_str(&stream.step(*id)?);
        }
        out.push_str(&stream.flush()?);
        Ok(out)
    }

    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(token) = self.added.get(&id) {
            return Some(token.content.clone().into_bytes());
        }
        let spelled = self.hf.id_to_token(id)?;
        Some(match self.spelling {
            Spelling::ByteLevel => byte_level::decode(&spelled),
            Spelling::Pieces(pieces) => match byte_level::byte_of(&spelled) {
                Some(byte) if pieces.byte_fallback => vec![byte],
                _ => spelled.replace(pieces.space, " ").into_bytes(),
            },
            Spelling::Other => spelled.into_bytes(),
        })
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.added.get(&id).is_some_and(|t| t.special)
    }
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_new(
    json: *const u8,
    len: usize,
    out: *mut *mut Tokenizer,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(Box::into_raw(Box::new(Tokenizer::from_json(text(
            json, len,
        )?)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_from_packed(
    data: *const u8,
    len: usize,
    out: *mut *mut Tokenizer,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let tokenizer = Tokenizer::from_packed(bytes(data, len))?;
        Ok(Box::into_raw(Box::new(tokenizer)))
    })
}

/// Valid while the tokenizer is.
#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_packed(
    tokenizer: &Tokenizer,
    len: *mut usize,
) -> *const u8 {
    let packed = tokenizer.packed();
    len.write(packed.len());
    packed.as_ptr()
}

/// Packed tokenizers are of use only to the same format.
#[no_mangle]
pub extern "C" fn mlxx_tokenizer_packed_format() -> Bytes {
    let name = format!("{} {FORMAT}", env!("CARGO_PKG_VERSION"));
    Bytes::from_vec(name.into_bytes())
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_vocab_size(tokenizer: &Tokenizer) -> u32 {
    tokenizer.vocab_size
}

/// `out` gets the ids as native-endian u32.
#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_encode(
    tokenizer: &Tokenizer,
    input: *const u8,
    len: usize,
    add_special_tokens: bool,
    parse_special: bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let ids = tokenizer.encode(text(input, len)?, add_special_tokens, parse_special)?;
        Ok(Bytes::from_vec(
            ids.iter().flat_map(|id| id.to_ne_bytes()).collect(),
        ))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_decode(
    tokenizer: &Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let ids = if count == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(ids, count)
        };
        let decoded = tokenizer.decode(ids, skip_special_tokens)?;
        Ok(Bytes::from_vec(decoded.into_bytes()))
    })
}

/// The id, or -1.
#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_token_to_id(
    tokenizer: &Tokenizer,
    token: *const u8,
    len: usize,
) -> i64 {
    std::str::from_utf8(bytes(token, len))
        .ok()
        .and_then(|token| tokenizer.hf.token_to_id(token))
        .map_or(-1, i64::from)
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_id_to_token(
    tokenizer: &Tokenizer,
    id: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || match tokenizer.hf.id_to_token(id) {
        Some(token) => Ok(Bytes::from_vec(token.into_bytes())),
        None => failure(format!("no token has the id {id}")),
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_token_bytes(
    tokenizer: &Tokenizer,
    id: u32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || match tokenizer.token_bytes(id) {
        Some(token) => Ok(Bytes::from_vec(token)),
        None => failure(format!("no token has the id {id}")),
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_is_special(tokenizer: &Tokenizer, id: u32) -> bool {
    tokenizer.is_special(id)
}
