//! GPT-2's spelling of bytes as printable characters, and SentencePiece's
//! spelling of single bytes.

/// The byte a character stands for in byte-level vocabularies: printable
/// Latin-1 stands for itself, the other 68 bytes for U+0100 onwards.
fn byte_of_char(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => Some(code as u8),
        0x100..=0x143 => {
            let index = code - 0x100;
            Some(match index {
                0..=32 => index as u8,
                33 => 0x7F,
                34..=66 => (0x80 + index - 34) as u8,
                _ => 0xAD,
            })
        }
        _ => None,
    }
}

/// The bytes of a byte-level token; a token with a character outside the
/// table stands for its own UTF-8, as in `tokenizers`.
pub fn decode(token: &str) -> Vec<u8> {
    token
        .chars()
        .map(byte_of_char)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte of a token spelled <0xNN>.
pub fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

pub fn is_byte_token(token: &str) -> bool {
    byte_of(token).is_some()
}
