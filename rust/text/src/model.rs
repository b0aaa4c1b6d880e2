//! The models of `tokenizers`, and our own of BPE.

use crate::packed_bpe::PackedBpe;
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizerWrapper, Result, Token, TokenizerImpl,
};

pub type HfTokenizer = TokenizerImpl<
    AnyModel,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

#[derive(Clone)]
pub enum AnyModel {
    General(Box<ModelWrapper>),
    Packed(Arc<PackedBpe>),
}

impl<'de> Deserialize<'de> for AnyModel {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Ok(AnyModel::General(Box::new(ModelWrapper::deserialize(
            from,
        )?)))
    }
}

impl Model for AnyModel {
    type Trainer = BpeTrainer;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        match self {
            AnyModel::General(model) => model.tokenize(text),
            AnyModel::Packed(bpe) => Ok(bpe.tokenize(text)),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            AnyModel::General(model) => model.token_to_id(token),
            AnyModel::Packed(bpe) => bpe.id_of(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            AnyModel::General(model) => model.id_to_token(id),
            AnyModel::Packed(bpe) => bpe.token_of(id).map(str::to_owned),
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            AnyModel::General(model) => model.get_vocab(),
            AnyModel::Packed(bpe) => bpe.tokens().map(|(t, id)| (t.to_owned(), id)).collect(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            AnyModel::General(model) => model.get_vocab_size(),
            AnyModel::Packed(bpe) => bpe.len(),
        }
    }

    fn save(&self, _: &Path, _: Option<&str>) -> Result<Vec<PathBuf>> {
        Err("a tokenizer is not saved".into())
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}
