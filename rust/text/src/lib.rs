//! Tokenizer, chat templates and grammars for mlxx, behind a C interface.
#![allow(clippy::missing_safety_doc)] // one rule for all: see abi.rs

mod abi;
mod bpe_file;
mod bpe_words;
mod byte_level;
mod grammar;
mod marked;
mod model;
mod model_input;
mod pack_bpe;
mod packed_bpe;
mod spelling;
mod stream;
mod template;
mod tokenizer;
