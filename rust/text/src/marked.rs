//! Encoding a rendered chat in which the control tokens of the template's own
//! text count and those that users wrote do not.
//!
//! Before rendering, the caller breaks each control-token literal inside a
//! message with a mark. Whole literals in the rendered text are then the
//! template's own. They are replaced by placeholders that a copy of the
//! tokenizer knows as ordinary added tokens, with the same strip flags, while
//! that copy takes all real control tokens as plain characters: one call of
//! the tokenizer then splits and normalises as it would for the real ones.

use crate::abi::{bytes, enter, failure, text, Bytes, Failure};
use crate::model::HfTokenizer;
use crate::tokenizer::Tokenizer;
use std::collections::HashMap;
use tokenizers::AddedToken;

/// A noncharacter: it may not stand in interchanged text.
const PLACEHOLDER: char = '\u{FDEF}';

pub struct Marked {
    hf: HfTokenizer,
    /// Literal -> placeholder, longest literal first.
    placeholders: Vec<(String, String)>,
    /// The bytes that literals start with.
    starts: [bool; 256],
    /// Placeholder id -> the real id.
    real: HashMap<u32, u32>,
}

impl Marked {
    pub fn new(tokenizer: &Tokenizer) -> Result<Marked, Failure> {
        let mut hf = tokenizer.hf.clone();
        hf.set_encode_special_tokens(true);
        let mut special: Vec<(u32, AddedToken)> = hf
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| token.special && !token.content.is_empty())
            .collect();
        special.sort_by_key(|(id, token)| (std::cmp::Reverse(token.content.len()), *id));
        let mut placeholders = Vec::new();
        let mut added = Vec::new();
        for (id, token) in &special {
            let placeholder = format!("{PLACEHOLDER}{id}{PLACEHOLDER}");
            placeholders.push((token.content.clone(), placeholder.clone()));
            let mut copy = token.clone();
            copy.content = placeholder;
            copy.special = false;
            added.push(copy);
        }
        hf.add_tokens(added)?;
        let mut starts = [false; 256];
        for (literal, _) in &placeholders {
            starts[literal.as_bytes()[0] as usize] = true;
        }
        let mut real = HashMap::new();
        for ((id, _), (_, placeholder)) in special.iter().zip(&placeholders) {
            match hf.token_to_id(placeholder) {
                Some(stand_in) => real.insert(stand_in, *id),
                None => return failure("a placeholder token was not added"),
            };
        }
        Ok(Marked {
            hf,
            placeholders,
            starts,
            real,
        })
    }

    fn encode(&self, text: &str, mark: char) -> Result<Vec<u32>, Failure> {
        if text.contains(PLACEHOLDER) && self.placeholders.iter().any(|(_, p)| text.contains(p)) {
            return failure("a message contains a placeholder of the tokenizer");
        }
        let mut replaced = String::with_capacity(text.len());
        let mut marked = false;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if !marked && self.starts[rest.as_bytes()[0] as usize] {
                let found = self.placeholders.iter().find(|(l, _)| rest.starts_with(l));
                if let Some((literal, placeholder)) = found {
                    replaced.push_str(placeholder);
                    rest = &rest[literal.len()..];
                    continue;
                }
            }
            marked = first == mark;
            if !marked {
                replaced.push(first);
            }
            rest = &rest[first.len_utf8()..];
        }
        let encoding = self.hf.encode_fast(replaced, false)?;
        let ids = encoding.get_ids().iter();
        Ok(ids.map(|id| *self.real.get(id).unwrap_or(id)).collect())
    }
}

/// A JSON list of the control tokens' literals.
#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_special_literals(
    tokenizer: &Tokenizer,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let mut literals: Vec<&str> = tokenizer
            .added
            .values()
            .filter(|token| token.special && !token.content.is_empty())
            .map(|token| token.content.as_str())
            .collect();
        literals.sort_unstable();
        Ok(Bytes::from_vec(serde_json::to_vec(&literals)?))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_encode_marked(
    tokenizer: &Tokenizer,
    input: *const u8,
    len: usize,
    mark: *const u8,
    mark_len: usize,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let input = text(input, len)?;
        let mark = std::str::from_utf8(bytes(mark, mark_len))?;
        let Some(mark) = mark.chars().next() else {
            return failure("no mark");
        };
        let ids = if input.contains(mark) {
            tokenizer.marked()?.encode(input, mark)?
        } else {
            tokenizer.encode(input, false, true)?
        };
        Ok(Bytes::from_vec(
            ids.iter().flat_map(|id| id.to_ne_bytes()).collect(),
        ))
    })
}
