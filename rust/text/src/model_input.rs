//! What an encoder reads: one text or a pair, with the special tokens and the
//! token types that the tokenizer's post-processor gives them, cut to a length.

use crate::abi::{enter, failure, text, Bytes, Failure};
use crate::tokenizer::Tokenizer;
use tokenizers::utils::truncation::{
    truncate_encodings, TruncationDirection, TruncationParams, TruncationStrategy,
};
use tokenizers::PostProcessor;

pub struct ModelInput {
    pub ids: Vec<u32>,
    pub types: Vec<u32>,
    /// Tokens that were cut off.
    pub dropped: usize,
}

/// `longest` 0 means no limit. Of a pair the longer text is cut first, as
/// transformers' truncation=True does. Special tokens are never cut.
pub fn encode(
    tokenizer: &Tokenizer,
    first: &str,
    second: Option<&str>,
    longest: usize,
) -> Result<ModelInput, Failure> {
    let hf = &tokenizer.hf;
    let mut a = hf.encode_fast(first, false)?;
    let mut b = second.map(|s| hf.encode_fast(s, false)).transpose()?;
    let before = a.len() + b.as_ref().map_or(0, |b| b.len());
    let added = hf
        .get_post_processor()
        .map_or(0, |processor| processor.added_tokens(b.is_some()));
    if longest > 0 && before + added > longest {
        if longest <= added {
            return failure(format!(
                "{longest} tokens leave no room beside {added} special ones"
            ));
        }
        let cut = TruncationParams {
            max_length: longest - added,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: TruncationDirection::Right,
        };
        (a, b) = truncate_encodings(a, b, &cut)?;
    }
    let after = a.len() + b.as_ref().map_or(0, |b| b.len());
    let whole = hf.post_process(a, b, true)?;
    Ok(ModelInput {
        ids: whole.get_ids().to_vec(),
        types: whole.get_type_ids().to_vec(),
        dropped: before - after,
    })
}

/// `out` gets, as native-endian u32: the number dropped, the ids, as many types.
/// A null `second` means one text.
#[allow(clippy::too_many_arguments)] // two texts, their options, two results
#[no_mangle]
pub unsafe extern "C" fn mlxx_tokenizer_encode_input(
    tokenizer: &Tokenizer,
    first: *const u8,
    first_len: usize,
    second: *const u8,
    second_len: usize,
    lower_case: bool,
    longest: usize,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let cased = |given: &str| match lower_case {
            true => given.to_lowercase(),
            false => given.to_string(),
        };
        let a = cased(text(first, first_len)?);
        let b = match second.is_null() {
            true => None,
            false => Some(cased(text(second, second_len)?)),
        };
        let input = encode(tokenizer, &a, b.as_deref(), longest)?;
        let numbers = [input.dropped as u32]
            .into_iter()
            .chain(input.ids)
            .chain(input.types);
        Ok(Bytes::from_vec(
            numbers.flat_map(|n| n.to_ne_bytes()).collect(),
        ))
    })
}
