//! tokenizer.json of a BPE model, read in one pass. `tokenizers` itself copies
//! the model into a tree, that into another one and all strings once more,
//! which takes four times as long as building the model.

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use tokenizers::models::bpe::{BpeBuilder, BPE};
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PaddingParams,
    PostProcessorWrapper, PreTokenizerWrapper, Tokenizer, TokenizerBuilder, TruncationParams,
};

/// What converters write today. A file with anything else is left to
/// `tokenizers`, which also words its errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: String,
    #[serde(default, rename = "truncation")]
    _truncation: Option<TruncationParams>,
    #[serde(default, rename = "padding")]
    _padding: Option<PaddingParams>,
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Option<NormalizerWrapper>,
    #[serde(default)]
    pre_tokenizer: Option<PreTokenizerWrapper>,
    #[serde(default)]
    post_processor: Option<PostProcessorWrapper>,
    #[serde(default)]
    decoder: Option<DecoderWrapper>,
    model: Model,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    #[serde(rename = "id")]
    _id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    dropout: Option<f32>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: Option<bool>,
    #[serde(default)]
    byte_fallback: Option<bool>,
    #[serde(default)]
    ignore_merges: Option<bool>,
    vocab: Vocabulary,
    merges: Vec<Merge>,
}

struct Vocabulary(ahash::AHashMap<String, u32>);

/// Room for a usual vocabulary, so that it is not moved while it grows.
const USUAL_TOKENS: usize = 56_000;

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("tokens with their ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut all = ahash::AHashMap::with_capacity(USUAL_TOKENS);
                while let Some((token, id)) = map.next_entry::<String, u32>()? {
                    all.insert(token, id);
                }
                Ok(Vocabulary(all))
            }
        }
        from.deserialize_map(Entries)
    }
}

/// `["a", "b"]`, or `"a b"` in older files.
struct Merge {
    left: String,
    right: String,
    is_line: bool,
}

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Merge;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("two tokens")
            }
            fn visit_str<E: Error>(self, line: &str) -> Result<Merge, E> {
                let parts = line.split_once(' ');
                match parts {
                    Some((left, right))
                        if !right.contains(' ') && !line.starts_with("#version") =>
                    {
                        Ok(Merge {
                            left: left.into(),
                            right: right.into(),
                            is_line: true,
                        })
                    }
                    _ => Err(E::custom("not two tokens")),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Merge, A::Error> {
                match (parts.next_element()?, parts.next_element()?) {
                    (Some(left), Some(right)) => Ok(Merge {
                        left,
                        right,
                        is_line: false,
                    }),
                    _ => Err(A::Error::custom("not two tokens")),
                }
            }
        }
        from.deserialize_any(Pair)
    }
}

fn build_model(model: Model) -> Option<BPE> {
    // Without merges a caller has more to check.
    let is_line = model.merges.first()?.is_line;
    if model.kind != "BPE" || model.merges.iter().any(|m| m.is_line != is_line) {
        return None;
    }
    let merges = model
        .merges
        .into_iter()
        .map(|m| (m.left, m.right))
        .collect();
    let mut builder = BpeBuilder::new()
        .vocab_and_merges(model.vocab.0, merges)
        .fuse_unk(model.fuse_unk.unwrap_or(false))
        .byte_fallback(model.byte_fallback.unwrap_or(false))
        .ignore_merges(model.ignore_merges.unwrap_or(false));
    if let Some(dropout) = model.dropout {
        builder = builder.dropout(dropout);
    }
    if let Some(token) = model.unk_token {
        builder = builder.unk_token(token);
    }
    if let Some(prefix) = model.continuing_subword_prefix {
        builder = builder.continuing_subword_prefix(prefix);
    }
    if let Some(suffix) = model.end_of_word_suffix {
        builder = builder.end_of_word_suffix(suffix);
    }
    builder.build().ok()
}

/// The tokenizer with its largest id, or None if the file is not one that
/// this reads.
pub fn read(json: &str) -> Option<(Tokenizer, u32)> {
    let file: File = serde_json::from_str(json).ok()?;
    if file.version != "1.0" {
        return None;
    }
    let largest = file.model.vocab.0.values().copied().max().unwrap_or(0);
    let model = build_model(file.model)?;
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(ModelWrapper::BPE(model))
        .with_normalizer(file.normalizer)
        .with_pre_tokenizer(file.pre_tokenizer)
        .with_post_processor(file.post_processor)
        .with_decoder(file.decoder)
        .build()
        .ok()?;
    let added = file.added_tokens.into_iter().map(|t| AddedToken {
        content: t.content,
        single_word: t.single_word,
        lstrip: t.lstrip,
        rstrip: t.rstrip,
        normalized: t.normalized,
        special: t.special,
    });
    tokenizer.add_tokens(added).ok()?;
    let tokenizer = Tokenizer::from(tokenizer);
    // Added tokens may lie past the vocabulary.
    let largest = tokenizer
        .get_added_tokens_decoder()
        .into_keys()
        .fold(largest, u32::max);
    Some((tokenizer, largest))
}
