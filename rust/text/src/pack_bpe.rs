//! Makes the bytes of a `PackedBpe`.

use crate::packed_bpe::{hash_pair, hash_text, padded, Header, MAGIC, NONE};
use std::borrow::Cow;

pub struct Source<'a> {
    pub tokens: Vec<(Cow<'a, str>, u32)>,
    pub merges: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub flags: u32,
    pub unknown: Option<&'a str>,
    /// A JSON object.
    pub parts: &'a str,
}

/// Half of it stays empty at least, so that a look-up takes a step or two.
fn table_size(entries: usize) -> usize {
    (entries * 2).next_power_of_two().max(2)
}

/// A vocabulary made to collide is left to `tokenizers`, whose hashes nobody
/// can foresee.
const MOST_STEPS: usize = 256;

/// Puts `value` + 1 into the first free place from `hash` on. None if the
/// same key is there already or if there are too many others.
fn insert(
    table: &mut [u32],
    hash: usize,
    value: usize,
    same: impl Fn(usize) -> bool,
) -> Option<()> {
    let mask = table.len() - 1;
    for step in 0..MOST_STEPS {
        let place = (hash + step) & mask;
        match table[place] {
            0 => {
                table[place] = value as u32 + 1;
                return Some(());
            }
            found if same(found as usize - 1) => return None,
            _ => {}
        }
    }
    None
}

struct Texts<'a> {
    tokens: &'a [(Cow<'a, str>, u32)],
    table: Vec<u32>,
}

impl<'a> Texts<'a> {
    fn new(tokens: &'a [(Cow<'a, str>, u32)]) -> Option<Texts<'a>> {
        let mut table = vec![0; table_size(tokens.len())];
        for (entry, (text, _)) in tokens.iter().enumerate() {
            let hash = hash_text(text.as_bytes());
            insert(&mut table, hash, entry, |other| tokens[other].0 == *text)?;
        }
        Some(Texts { tokens, table })
    }

    fn id(&self, text: &str) -> Option<u32> {
        let mask = self.table.len() - 1;
        let mut place = hash_text(text.as_bytes()) & mask;
        loop {
            let entry = match self.table[place] {
                0 => return None,
                found => found as usize - 1,
            };
            if self.tokens[entry].0 == text {
                return Some(self.tokens[entry].1);
            }
            place = (place + 1) & mask;
        }
    }
}

/// The merges as ids, and their table.
fn pack_merges(source: &Source, texts: &Texts) -> Option<(Vec<[u32; 3]>, Vec<u32>)> {
    let mut merges: Vec<[u32; 3]> = Vec::with_capacity(source.merges.len());
    let mut table = vec![0; table_size(source.merges.len())];
    let mut joined = String::new();
    for (rank, (left, right)) in source.merges.iter().enumerate() {
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let merge = [texts.id(left)?, texts.id(right)?, texts.id(&joined)?];
        insert(&mut table, hash_pair(merge[0], merge[1]), rank, |other| {
            merges[other][..2] == merge[..2]
        })?;
        merges.push(merge);
    }
    Some((merges, table))
}

/// None for a vocabulary that has to be read by `tokenizers`: one that it
/// refuses, or one in which a text, an id or a pair stands twice.
pub fn pack(mut source: Source) -> Option<Vec<u8>> {
    source.tokens.sort_by_key(|(_, id)| *id);
    let tokens = &source.tokens;
    if tokens.windows(2).any(|pair| pair[0].1 == pair[1].1) {
        return None;
    }
    let texts = Texts::new(tokens)?;
    let (merges, merge_table) = pack_merges(&source, &texts)?;
    let unknown = match source.unknown {
        Some(text) => texts.id(text)?,
        None => NONE,
    };
    let header = Header {
        tokens: tokens.len(),
        text: tokens.iter().map(|(text, _)| text.len()).sum(),
        table: texts.table.len(),
        merges: merges.len(),
        merge_table: merge_table.len(),
        parts: source.parts.len(),
        flags: source.flags,
        unknown,
    };
    let size = header.sections()?.end;
    u32::try_from(size).ok()?;
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(MAGIC);
    put(&mut out, header.words());
    out.extend_from_slice(source.parts.as_bytes());
    out.resize(padded(out.len()), 0);
    tokens
        .iter()
        .for_each(|(text, _)| out.extend_from_slice(text.as_bytes()));
    out.resize(padded(out.len()), 0);
    let mut end = 0;
    put(
        &mut out,
        tokens.iter().map(|(text, _)| {
            end += text.len() as u32;
            end
        }),
    );
    put(&mut out, tokens.iter().map(|(_, id)| *id));
    put(&mut out, texts.table.iter().copied());
    put(&mut out, merges.into_iter().flatten());
    put(&mut out, merge_table);
    Some(out)
}

fn put(out: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    out.extend(words.into_iter().flat_map(u32::to_le_bytes));
}
