//! How a vocabulary spells text, read from the decoder of the tokenizer's file.

use crate::abi::Failure;
use crate::model::HfTokenizer;
use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Spelling {
    /// GPT-2's printable stand-ins for bytes.
    ByteLevel,
    /// SentencePiece: a mark for a space, and bytes as <0xNN>.
    Pieces(Pieces),
    /// A decoder that looks at neighbours (WordPiece, CTC, ...) or none.
    Other,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pieces {
    pub space: char,
    pub byte_fallback: bool,
    /// Whether one space before the whole text is the encoder's own.
    pub drop_first_space: bool,
}

fn string_of<'a>(part: &'a Value, key: &str) -> &'a str {
    part[key].as_str().unwrap_or_default()
}

fn only_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Some(c),
        _ => None,
    }
}

/// The sequence that converters write for SentencePiece vocabularies; None if
/// there is any other step.
fn sentence_piece(steps: &[Value]) -> Option<Pieces> {
    let mut space = None;
    let mut byte_fallback = false;
    let mut drop_first_space = false;
    for step in steps {
        match string_of(step, "type") {
            "Replace" if string_of(step, "content") == " " => {
                space = Some(only_char(string_of(&step["pattern"], "String"))?);
            }
            "ByteFallback" => byte_fallback = true,
            "Fuse" => {}
            "Strip"
                if string_of(step, "content") == " " && step["start"] == 1 && step["stop"] == 0 =>
            {
                drop_first_space = true;
            }
            _ => return None,
        }
    }
    Some(Pieces {
        space: space?,
        byte_fallback,
        drop_first_space,
    })
}

pub fn spelling_of(hf: &HfTokenizer) -> Result<Spelling, Failure> {
    let Some(decoder) = hf.get_decoder() else {
        return Ok(Spelling::Other);
    };
    let json = serde_json::to_value(decoder)?;
    Ok(match string_of(&json, "type") {
        "ByteLevel" => Spelling::ByteLevel,
        "Metaspace" => match only_char(string_of(&json, "replacement")) {
            Some(space) => Spelling::Pieces(Pieces {
                space,
                byte_fallback: false,
                drop_first_space: string_of(&json, "prepend_scheme") != "never",
            }),
            None => Spelling::Other,
        },
        "Sequence" => match json["decoders"].as_array().map(Vec::as_slice) {
            Some([one]) if string_of(one, "type") == "ByteLevel" => Spelling::ByteLevel,
            Some(steps) => sentence_piece(steps).map_or(Spelling::Other, Spelling::Pieces),
            None => Spelling::Other,
        },
        _ => Spelling::Other,
    })
}
