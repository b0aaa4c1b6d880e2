//! A BPE vocabulary as one block of bytes that is used as it lies: nothing is
//! built when it is loaded, and a copy of the tokenizer shares it.
//!
//! All numbers are little-endian u32:
//!   magic, 8 bytes; then `Header`;
//!   the other parts of tokenizer.json, and the tokens' text, each padded to 4;
//!   ends of the tokens in that text; their ids, rising;
//!   hash table of texts -> token + 1, 0 for an empty place;
//!   merges (left id, right id, new id) in the order of their rank;
//!   hash table of pairs -> rank + 1.

use crate::bpe_words::KnownWords;

pub const MAGIC: &[u8; 8] = b"mlxx-bpe";
/// Counts up whenever anything about the bytes or their use changes.
pub const FORMAT: u32 = 1;
pub const HEADER_WORDS: usize = 9;
pub const NONE: u32 = u32::MAX;

pub const IGNORE_MERGES: u32 = 1;
pub const BYTE_FALLBACK: u32 = 2;
pub const FUSE_UNKNOWN: u32 = 4;

#[derive(Clone, Copy, Default)]
pub struct Header {
    pub tokens: usize,
    pub text: usize,
    pub table: usize,
    pub merges: usize,
    pub merge_table: usize,
    pub parts: usize,
    pub flags: u32,
    pub unknown: u32,
}

/// Where each section starts.
#[derive(Clone, Copy)]
pub struct Sections {
    pub parts: usize,
    pub text: usize,
    pub ends: usize,
    pub ids: usize,
    pub table: usize,
    pub merges: usize,
    pub merge_table: usize,
    pub end: usize,
}

pub fn padded(len: usize) -> usize {
    len.div_ceil(4) * 4
}

impl Header {
    pub fn words(&self) -> [u32; HEADER_WORDS] {
        [
            FORMAT,
            self.tokens as u32,
            self.text as u32,
            self.table as u32,
            self.merges as u32,
            self.merge_table as u32,
            self.parts as u32,
            self.flags,
            self.unknown,
        ]
    }

    fn read(bytes: &[u8]) -> Option<Header> {
        if bytes.len() < MAGIC.len() + HEADER_WORDS * 4 || !bytes.starts_with(MAGIC) {
            return None;
        }
        let at = |i: usize| word(bytes, MAGIC.len() / 4 + i);
        let size = |i: usize| at(i) as usize;
        (at(0) == FORMAT).then(|| Header {
            tokens: size(1),
            text: size(2),
            table: size(3),
            merges: size(4),
            merge_table: size(5),
            parts: size(6),
            flags: at(7),
            unknown: at(8),
        })
    }

    /// None if a length overflows.
    pub fn sections(&self) -> Option<Sections> {
        let mut at = MAGIC.len() + HEADER_WORDS * 4;
        let mut next = |bytes: usize| {
            let start = at;
            at = at.checked_add(bytes)?;
            Some(start)
        };
        let words = |n: usize| n.checked_mul(4);
        Some(Sections {
            parts: next(padded(self.parts))?,
            text: next(padded(self.text))?,
            ends: next(words(self.tokens)?)?,
            ids: next(words(self.tokens)?)?,
            table: next(words(self.table)?)?,
            merges: next(words(self.merges.checked_mul(3)?)?)?,
            merge_table: next(words(self.merge_table)?)?,
            end: next(0)?,
        })
    }
}

/// Word `index` of the bytes.
fn word(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

pub fn hash_text(text: &[u8]) -> usize {
    let mut hash = (text.len() as u64).wrapping_mul(MIX);
    for part in text.chunks(8) {
        let mut eight = [0; 8];
        eight[..part.len()].copy_from_slice(part);
        hash = (hash ^ u64::from_le_bytes(eight)).wrapping_mul(MIX);
        hash ^= hash >> 32;
    }
    hash as usize
}

pub fn hash_pair(left: u32, right: u32) -> usize {
    let both = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(MIX);
    (both ^ (both >> 29)).wrapping_mul(MIX) as usize >> 20
}

pub struct PackedBpe {
    bytes: Vec<u8>,
    header: Header,
    at: Sections,
    /// Whether token i has the id i.
    dense: bool,
    /// Ids of <0x00> to <0xFF>.
    byte_ids: [u32; 256],
    pub known: KnownWords,
}

impl PackedBpe {
    /// None if anything in `bytes` could lead a later look-up astray: they may
    /// come from a damaged file.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<PackedBpe> {
        let header = Header::read(&bytes)?;
        let at = header.sections()?;
        let tables = [
            (header.table, header.tokens),
            (header.merge_table, header.merges),
        ];
        if at.end != bytes.len()
            || tables
                .iter()
                .any(|(size, used)| !size.is_power_of_two() || size <= used)
        {
            return None;
        }
        let mut packed = PackedBpe {
            bytes,
            header,
            at,
            dense: true,
            byte_ids: [NONE; 256],
            known: KnownWords::default(),
        };
        (packed.check_tokens() && packed.check_tables()).then(|| {
            for byte in 0..256 {
                let id = packed.id_of(&format!("<0x{byte:02X}>"));
                packed.byte_ids[byte] = id.unwrap_or(NONE);
            }
            packed
        })
    }

    fn check_tokens(&mut self) -> bool {
        let Ok(text) = std::str::from_utf8(self.text()) else {
            return false;
        };
        let mut start = 0;
        let mut previous = None;
        let mut dense = true;
        for entry in 0..self.header.tokens {
            let end = self.words(self.at.ends, entry) as usize;
            let id = self.words(self.at.ids, entry);
            if end < start || !text.is_char_boundary(end) || previous >= Some(id) || id == NONE {
                return false;
            }
            dense &= id as usize == entry;
            start = end;
            previous = Some(id);
        }
        let sound = std::str::from_utf8(self.parts_bytes()).is_ok() && start == text.len();
        self.dense = dense;
        sound
    }

    fn check_tables(&self) -> bool {
        let within = |table: usize, size: usize, limit: usize| {
            let used = (0..size).filter(|&i| self.words(table, i) != 0).count();
            used == limit && (0..size).all(|i| self.words(table, i) as usize <= limit)
        };
        let (at, header) = (&self.at, &self.header);
        within(at.table, header.table, header.tokens)
            && within(at.merge_table, header.merge_table, header.merges)
            && (0..header.merges * 3).all(|i| self.entry_of(self.words(at.merges, i)).is_some())
            && (header.unknown == NONE || self.entry_of(header.unknown).is_some())
    }

    fn words(&self, section: usize, index: usize) -> u32 {
        word(&self.bytes, section / 4 + index)
    }

    fn text(&self) -> &[u8] {
        &self.bytes[self.at.text..self.at.text + self.header.text]
    }

    fn parts_bytes(&self) -> &[u8] {
        &self.bytes[self.at.parts..self.at.parts + self.header.parts]
    }

    /// A JSON object: what the file holds beside the model.
    pub fn parts(&self) -> &str {
        std::str::from_utf8(self.parts_bytes()).unwrap_or_default()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.header.tokens
    }

    pub fn largest_id(&self) -> u32 {
        match self.header.tokens {
            0 => 0,
            n => self.words(self.at.ids, n - 1),
        }
    }

    fn entry_of(&self, id: u32) -> Option<usize> {
        if self.dense {
            return ((id as usize) < self.header.tokens).then_some(id as usize);
        }
        let (mut low, mut high) = (0, self.header.tokens);
        while low < high {
            let middle = (low + high) / 2;
            if self.words(self.at.ids, middle) < id {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < self.header.tokens && self.words(self.at.ids, low) == id).then_some(low)
    }

    fn entry_text(&self, entry: usize) -> &[u8] {
        let start = match entry {
            0 => 0,
            _ => self.words(self.at.ends, entry - 1) as usize,
        };
        &self.text()[start..self.words(self.at.ends, entry) as usize]
    }

    /// Every token with its id, by rising ids.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        (0..self.header.tokens).map(|entry| {
            let text = std::str::from_utf8(self.entry_text(entry)).unwrap_or_default();
            (text, self.words(self.at.ids, entry))
        })
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        let mask = self.header.table - 1;
        let mut place = hash_text(text.as_bytes()) & mask;
        loop {
            let entry = match self.words(self.at.table, place) {
                0 => return None,
                found => found as usize - 1,
            };
            if self.entry_text(entry) == text.as_bytes() {
                return Some(self.words(self.at.ids, entry));
            }
            place = (place + 1) & mask;
        }
    }

    pub fn token_of(&self, id: u32) -> Option<&str> {
        let entry = self.entry_of(id)?;
        std::str::from_utf8(self.entry_text(entry)).ok()
    }

    /// Rank and new id.
    pub fn merge_of(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let mask = self.header.merge_table - 1;
        let mut place = hash_pair(left, right) & mask;
        loop {
            let rank = match self.words(self.at.merge_table, place) {
                0 => return None,
                found => found - 1,
            };
            let at = rank as usize * 3;
            if self.words(self.at.merges, at) == left && self.words(self.at.merges, at + 1) == right
            {
                return Some((rank, self.words(self.at.merges, at + 2)));
            }
            place = (place + 1) & mask;
        }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.header.flags & flag != 0
    }

    pub fn unknown(&self) -> Option<u32> {
        (self.header.unknown != NONE).then_some(self.header.unknown)
    }

    /// The token that stands for a byte of a character without one.
    pub fn byte_id(&self, byte: u8) -> Option<u32> {
        let id = self.byte_ids[byte as usize];
        (id != NONE).then_some(id)
    }
}
