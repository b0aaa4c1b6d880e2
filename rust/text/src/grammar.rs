//! Masks that keep an answer inside a grammar: JSON schema, regex or Lark.

use crate::abi::{enter, failure, text, Bytes, Failure};
use crate::model::HfTokenizer;
use crate::tokenizer::Tokenizer;
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use std::sync::Arc;
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// llguidance's parsers recurse; deeper text than this might end the stack.
const DEEPEST: usize = 200;
const LONGEST: usize = 1 << 20;
/// Of a regex, or of all patterns of a schema. The time that an alternative of
/// n takes grows as n squared, and llguidance's own limits count it as one.
const LONGEST_REGEX: usize = 1 << 13;
/// A state takes 1 to 2 KiB.
const MOST_STATES: usize = 50_000;

struct Vocabulary {
    trie: TokTrie,
    /// Encodes the middle of a text: no prefix space, no control tokens.
    hf: HfTokenizer,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            match self.hf.encode_fast(text, false) {
                Ok(encoding) => encoding.get_ids().to_vec(),
                Err(_) => self.trie.greedy_tokenize(text.as_bytes()),
            }
        })
    }
}

/// Drops what puts a space before the first word: in the normalizer a Prepend,
/// in the pre-tokenizer Metaspace's scheme or ByteLevel's flag.
fn without_prefix(part: &mut Value) {
    if part["type"] == "Metaspace" {
        part["prepend_scheme"] = "never".into();
    }
    if part["type"] == "ByteLevel" {
        part["add_prefix_space"] = false.into();
    }
    for list in ["normalizers", "pretokenizers"] {
        if let Some(parts) = part[list].as_array_mut() {
            parts.retain(|p| p["type"] != "Prepend");
            parts.iter_mut().for_each(without_prefix);
        }
    }
}

fn middle_of_text(tokenizer: &Tokenizer) -> Result<HfTokenizer, Failure> {
    let mut hf = tokenizer.hf.clone();
    hf.set_encode_special_tokens(true);
    if let Some(normalizer) = hf.get_normalizer() {
        let mut json = serde_json::to_value(normalizer)?;
        if json["type"] == "Prepend" {
            hf.with_normalizer(None::<tokenizers::NormalizerWrapper>)?;
        } else {
            without_prefix(&mut json);
            hf.with_normalizer(Some(
                serde_json::from_value::<tokenizers::NormalizerWrapper>(json)?,
            ))?;
        }
    }
    if let Some(pre_tokenizer) = hf.get_pre_tokenizer() {
        let mut json = serde_json::to_value(pre_tokenizer)?;
        without_prefix(&mut json);
        hf.with_pre_tokenizer(Some(serde_json::from_value::<
            tokenizers::PreTokenizerWrapper,
        >(json)?));
    }
    Ok(hf)
}

/// What grammars of one model share: its tokens as a trie of bytes.
pub struct GrammarTokens {
    factory: ParserFactory,
    vocabulary_size: usize,
}

/// One answer's way through a grammar.
pub struct Walk {
    matcher: Matcher,
    /// End-of-text tokens behind a complete answer: llguidance stops by itself
    /// when nothing can follow, and takes no token from then on.
    ends: usize,
}

impl GrammarTokens {
    fn new(tokenizer: &Tokenizer, size: usize, eos: &[u32]) -> Result<GrammarTokens, Failure> {
        let Some(first) = eos.first() else {
            return failure("a grammar needs an end-of-text token");
        };
        if let Some(id) = eos.iter().find(|id| **id as usize >= size) {
            return failure(format!(
                "the end-of-text id {id} is outside the vocabulary of {size}"
            ));
        }
        let words: Vec<Vec<u8>> = (0..size as u32)
            .map(|id| {
                let mut word = Vec::new();
                if tokenizer.is_special(id) {
                    word.push(TokTrie::SPECIAL_TOKEN_MARKER);
                }
                word.extend(tokenizer.token_bytes(id).unwrap_or_default());
                word
            })
            .collect();
        let info = TokRxInfo::new(size as u32, *first);
        let vocabulary = Vocabulary {
            trie: TokTrie::from(&info, &words).with_eos_tokens(eos),
            hf: middle_of_text(tokenizer)?,
        };
        let environment: TokEnv = Arc::new(vocabulary);
        let mut factory = ParserFactory::new_simple(&environment)?;
        factory.quiet();
        factory.limits_mut().max_lexer_states = MOST_STATES;
        Ok(GrammarTokens {
            factory,
            vocabulary_size: size,
        })
    }

    fn walk(&self, kind: u32, text: &str) -> Result<Walk, Failure> {
        check_depth(text)?;
        let grammar = match kind {
            0 => {
                let schema: Value = serde_json::from_str(text)?;
                check_regex("patterns have", pattern_bytes(&schema))?;
                TopLevelGrammar::from_json_schema(compact(schema))
            }
            1 => {
                check_regex("regex has", text.len())?;
                TopLevelGrammar::from_regex(text)
            }
            2 => TopLevelGrammar::from_lark(text.to_string()),
            _ => return failure(format!("unknown kind of grammar {kind}")),
        };
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(message) => failure(message),
            None => Ok(Walk { matcher, ends: 0 }),
        }
    }
}

fn check_regex(what: &str, bytes: usize) -> Result<(), Failure> {
    if bytes > LONGEST_REGEX {
        return failure(format!(
            "the {what} {bytes} bytes, the limit is {LONGEST_REGEX}"
        ));
    }
    Ok(())
}

/// Of all patterns in a schema; serde_json has limited its depth.
fn pattern_bytes(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(pattern_bytes).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                ("pattern", Value::String(pattern)) => pattern.len(),
                ("patternProperties", Value::Object(by_pattern)) => {
                    by_pattern.keys().map(String::len).sum::<usize>() + pattern_bytes(value)
                }
                _ => pattern_bytes(value),
            })
            .sum(),
        _ => 0,
    }
}

fn check_depth(text: &str) -> Result<(), Failure> {
    if text.len() > LONGEST {
        return failure(format!(
            "the grammar has {} bytes, the limit is {LONGEST}",
            text.len()
        ));
    }
    let mut depth = 0usize;
    for c in text.bytes() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return failure(format!("the grammar is nested deeper than {DEEPEST}"));
        }
    }
    Ok(())
}

/// A weak model can write white space for ever where any amount is allowed:
/// without the schema's own wish, one space after separators.
fn compact(mut schema: Value) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.entry("x-guidance").or_insert_with(|| {
            serde_json::json!({
                "whitespace_flexible": false,
                "item_separator": ", ",
                "key_separator": ": "
            })
        });
    }
    schema
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn sent<T: Send>() {}
    shared::<GrammarTokens>();
    shared::<Tokenizer>();
    sent::<Walk>();
};

unsafe fn ids<'a>(data: *const u32, count: usize) -> &'a [u32] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_grammar_tokens_new(
    tokenizer: &Tokenizer,
    vocabulary_size: usize,
    eos: *const u32,
    eos_count: usize,
    out: *mut *mut GrammarTokens,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let tokens = GrammarTokens::new(tokenizer, vocabulary_size, ids(eos, eos_count))?;
        Ok(Box::into_raw(Box::new(tokens)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_grammar_tokens_free(tokens: *mut GrammarTokens) {
    if !tokens.is_null() {
        drop(Box::from_raw(tokens));
    }
}

/// `kind`: 0 JSON schema, 1 regex, 2 Lark.
#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_new(
    tokens: &GrammarTokens,
    kind: u32,
    grammar: *const u8,
    len: usize,
    out: *mut *mut Walk,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(Box::into_raw(Box::new(
            tokens.walk(kind, text(grammar, len)?)?,
        )))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_clone(
    walk: &Walk,
    out: *mut *mut Walk,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(Box::into_raw(Box::new(Walk {
            matcher: walk.matcher.deep_clone(),
            ends: walk.ends,
        })))
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_free(walk: *mut Walk) {
    if !walk.is_null() {
        drop(Box::from_raw(walk));
    }
}

/// Bit i of word w allows the token 32 w + i. After the end only the
/// end-of-text tokens are allowed.
#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_mask(
    tokens: &GrammarTokens,
    walk: &mut Walk,
    mask: *mut u32,
    words: usize,
    error: *mut Bytes,
) -> i32 {
    let mut unused = ();
    enter(&mut unused, error, || {
        let needed = tokens.vocabulary_size.div_ceil(32);
        if words != needed {
            return failure(format!("the mask has {words} words instead of {needed}"));
        }
        let allowed = walk.matcher.compute_mask_or_eos()?;
        let out = std::slice::from_raw_parts_mut(mask, words);
        out.fill(0);
        let bits = allowed.as_slice();
        let count = bits.len().min(words);
        out[..count].copy_from_slice(&bits[..count]);
        if !tokens.vocabulary_size.is_multiple_of(32) {
            out[words - 1] &= (1u32 << (tokens.vocabulary_size % 32)) - 1;
        }
        Ok(())
    })
}

/// `out`: how many of the tokens, from the first on, the grammar takes.
#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_validate(
    walk: &mut Walk,
    tokens: *const u32,
    count: usize,
    out: *mut usize,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        Ok(walk.matcher.validate_tokens(ids(tokens, count))?)
    })
}

/// `out`: whether the token was taken; if not, nothing has changed. (A bad
/// token would leave llguidance's matcher in an error state for good.)
#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_commit(
    walk: &mut Walk,
    token: u32,
    out: *mut bool,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let matcher = &mut walk.matcher;
        if matcher.is_stopped() {
            let is_end = matcher.compute_mask_or_eos()?.is_allowed(token);
            walk.ends += usize::from(is_end);
            return Ok(is_end);
        }
        if matcher.validate_tokens(&[token])? == 0 {
            return Ok(false);
        }
        matcher.consume_token(token)?;
        Ok(true)
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_rollback(
    walk: &mut Walk,
    count: usize,
    error: *mut Bytes,
) -> i32 {
    let mut unused = ();
    enter(&mut unused, error, || {
        let ends = walk.ends.min(count);
        walk.ends -= ends;
        if count > ends {
            walk.matcher.rollback(count - ends)?;
        }
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_is_accepting(
    walk: &mut Walk,
    out: *mut bool,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || Ok(walk.matcher.is_accepting()?))
}

#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_is_stopped(walk: &Walk) -> bool {
    walk.matcher.is_stopped()
}

/// `out` gets the only possible next tokens as native-endian u32.
#[no_mangle]
pub unsafe extern "C" fn mlxx_matcher_forced(
    walk: &mut Walk,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    enter(out, error, || {
        let forced = walk.matcher.compute_ff_tokens();
        Ok(Bytes::from_vec(
            forced.iter().flat_map(|id| id.to_ne_bytes()).collect(),
        ))
    })
}
