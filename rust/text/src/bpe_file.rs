//! tokenizer.json of a BPE model, read in one pass into a `PackedBpe`.
//! `tokenizers` itself copies the model into a tree, that into another one and
//! all strings once more, and then builds three hash tables.

use crate::model::{AnyModel, HfTokenizer};
use crate::pack_bpe::{pack, Source};
use crate::packed_bpe::{PackedBpe, BYTE_FALLBACK, FUSE_UNKNOWN, IGNORE_MERGES};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PaddingParams, PostProcessorWrapper,
    PreTokenizerWrapper, TokenizerBuilder, TruncationParams,
};

/// What converters write today. A file with anything else is left to
/// `tokenizers`, which also words its errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    version: String,
    #[serde(default, rename = "truncation")]
    _truncation: Option<TruncationParams>,
    #[serde(default, rename = "padding")]
    _padding: Option<PaddingParams>,
    #[serde(borrow)]
    added_tokens: &'a RawValue,
    #[serde(borrow, default)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    decoder: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Model<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model<'a> {
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
    #[serde(borrow)]
    vocab: Vocabulary<'a>,
    #[serde(borrow)]
    merges: Vec<Merge<'a>>,
}

/// What `PackedBpe` keeps beside the model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    added_tokens: Vec<Added>,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    post_processor: Option<PostProcessorWrapper>,
    decoder: Option<DecoderWrapper>,
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

/// A string, a part of the file if nothing in it is escaped.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        from.deserialize_str(Borrow).map(Text)
    }
}

struct Vocabulary<'a>(Vec<(Cow<'a, str>, u32)>);

/// Room for a usual vocabulary, so that it is not moved while it grows.
const USUAL_TOKENS: usize = 56_000;

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("tokens with their ids")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::with_capacity(USUAL_TOKENS);
                while let Some((token, id)) = map.next_entry::<Text, u32>()? {
                    all.push((token.0, id));
                }
                Ok(Vocabulary(all))
            }
        }
        from.deserialize_map(Entries)
    }
}

/// `["a", "b"]`, or `"a b"` in older files.
struct Merge<'a> {
    left: Cow<'a, str>,
    right: Cow<'a, str>,
    is_line: bool,
}

fn parts_of_line(line: &str) -> Option<(&str, &str)> {
    line.split_once(' ')
        .filter(|(_, right)| !right.contains(' ') && !line.starts_with("#version"))
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Merge<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("two tokens")
            }
            fn visit_borrowed_str<E: Error>(self, line: &'de str) -> Result<Self::Value, E> {
                let (left, right) =
                    parts_of_line(line).ok_or_else(|| E::custom("not two tokens"))?;
                Ok(Merge {
                    left: left.into(),
                    right: right.into(),
                    is_line: true,
                })
            }
            fn visit_str<E: Error>(self, line: &str) -> Result<Self::Value, E> {
                let (left, right) =
                    parts_of_line(line).ok_or_else(|| E::custom("not two tokens"))?;
                Ok(Merge {
                    left: left.to_owned().into(),
                    right: right.to_owned().into(),
                    is_line: true,
                })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                match (parts.next_element::<Text>()?, parts.next_element::<Text>()?) {
                    (Some(left), Some(right)) => Ok(Merge {
                        left: left.0,
                        right: right.0,
                        is_line: false,
                    }),
                    _ => Err(A::Error::custom("not two tokens")),
                }
            }
        }
        from.deserialize_any(Pair)
    }
}

fn parts_json(file: &File) -> String {
    let text = |part: Option<&RawValue>| part.map_or("null", RawValue::get).to_owned();
    format!(
        r#"{{"added_tokens":{},"normalizer":{},"pre_tokenizer":{},"post_processor":{},"decoder":{}}}"#,
        file.added_tokens.get(),
        text(file.normalizer),
        text(file.pre_tokenizer),
        text(file.post_processor),
        text(file.decoder)
    )
}

fn pack_file(file: File) -> Option<Vec<u8>> {
    let parts = parts_json(&file);
    let model = file.model;
    let is_empty = |part: &Option<String>| part.as_ref().is_none_or(String::is_empty);
    // Without merges a caller has more to check.
    let is_line = model.merges.first()?.is_line;
    if file.version != "1.0"
        || model.kind != "BPE"
        || model.merges.iter().any(|m| m.is_line != is_line)
        || model.dropout.is_some_and(|dropout| dropout != 0.0)
        || !is_empty(&model.continuing_subword_prefix)
        || !is_empty(&model.end_of_word_suffix)
    {
        return None;
    }
    let flag = |option: Option<bool>, bit: u32| if option == Some(true) { bit } else { 0 };
    let merges = model.merges.into_iter().map(|m| (m.left, m.right));
    pack(Source {
        tokens: model.vocab.0,
        merges: merges.collect(),
        flags: flag(model.ignore_merges, IGNORE_MERGES)
            | flag(model.byte_fallback, BYTE_FALLBACK)
            | flag(model.fuse_unk, FUSE_UNKNOWN),
        unknown: model.unk_token.as_deref(),
        parts: &parts,
    })
}

/// The tokenizer with its largest id, or None if the file is not one that
/// this reads.
pub fn read(json: &str) -> Option<(HfTokenizer, u32)> {
    unpack(pack_file(serde_json::from_str(json).ok()?)?)
}

/// The same from the bytes of a `PackedBpe`, which may be damaged.
pub fn unpack(bytes: Vec<u8>) -> Option<(HfTokenizer, u32)> {
    let bpe = PackedBpe::from_bytes(bytes)?;
    let parts: Parts = serde_json::from_str(bpe.parts()).ok()?;
    let largest = bpe.largest_id();
    let mut tokenizer: HfTokenizer = TokenizerBuilder::new()
        .with_model(AnyModel::Packed(Arc::new(bpe)))
        .with_normalizer(parts.normalizer)
        .with_pre_tokenizer(parts.pre_tokenizer)
        .with_post_processor(parts.post_processor)
        .with_decoder(parts.decoder)
        .build()
        .ok()?;
    let added = parts.added_tokens.into_iter().map(|t| AddedToken {
        content: t.content,
        single_word: t.single_word,
        lstrip: t.lstrip,
        rstrip: t.rstrip,
        normalized: t.normalized,
        special: t.special,
    });
    tokenizer.add_tokens(added).ok()?;
    // Added tokens may lie past the vocabulary.
    let largest = tokenizer
        .get_added_tokens_decoder()
        .into_keys()
        .fold(largest, u32::max);
    Some((tokenizer, largest))
}
