//! Words to tokens by a `PackedBpe`. The order of the merges is that of
//! `tokenizers`, entry for entry of its queue.

use crate::packed_bpe::{PackedBpe, BYTE_FALLBACK, FUSE_UNKNOWN, IGNORE_MERGES};
use ahash::AHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;
use tokenizers::Token;

/// Ids and lengths of a word's tokens.
type Pieces = Box<[(u32, usize)]>;
type Words = AHashMap<Box<str>, Pieces>;

/// Words that were split before.
#[derive(Default)]
pub struct KnownWords(Mutex<Words>);

const MOST_WORDS: usize = 10_000;
const LONGEST_WORD: usize = 64;

impl KnownWords {
    /// While another thread looks, this one does without.
    fn with<T>(&self, look: impl FnOnce(&mut Words) -> Option<T>) -> Option<T> {
        look(&mut *self.0.try_lock().ok()?)
    }
}

/// A piece of the word; `len` 0 once it is part of the one before.
struct Symbol {
    id: u32,
    previous: usize,
    next: usize,
    len: usize,
}

const NOWHERE: usize = usize::MAX;

struct Word(Vec<Symbol>);

impl Word {
    fn add(&mut self, id: u32, len: usize) {
        let here = self.0.len();
        if let Some(last) = self.0.last_mut() {
            last.next = here;
        }
        self.0.push(Symbol {
            id,
            previous: here.wrapping_sub(1),
            next: NOWHERE,
            len,
        });
    }
}

impl PackedBpe {
    /// The word's characters as tokens, with what stands for unknown ones.
    fn split(&self, text: &str) -> Word {
        let mut word = Word(Vec::with_capacity(text.len()));
        let unknown = self.unknown();
        let mut unknown_len = 0;
        let add_unknown = |word: &mut Word, len: &mut usize| {
            if let (Some(id), true) = (unknown, *len > 0) {
                word.add(id, std::mem::take(len));
            }
        };
        for (start, c) in text.char_indices() {
            let len = c.len_utf8();
            let spelled = &text[start..start + len];
            if let Some(id) = self.id_of(spelled) {
                add_unknown(&mut word, &mut unknown_len);
                word.add(id, len);
                continue;
            }
            if self.has(BYTE_FALLBACK) {
                let ids: Option<Vec<u32>> = spelled.bytes().map(|b| self.byte_id(b)).collect();
                if let Some(ids) = ids {
                    // As in `tokenizers`, an unknown character before them
                    // comes after them.
                    ids.into_iter().for_each(|id| word.add(id, 1));
                    continue;
                }
            }
            if unknown.is_some() {
                if !self.has(FUSE_UNKNOWN) {
                    add_unknown(&mut word, &mut unknown_len);
                }
                unknown_len += len;
            }
        }
        add_unknown(&mut word, &mut unknown_len);
        word
    }

    fn merge(&self, word: &mut Word) {
        let symbols = &mut word.0;
        // The lowest rank first, the leftmost of equals.
        let mut queue: BinaryHeap<Reverse<(u32, usize, u32)>> = symbols
            .windows(2)
            .enumerate()
            .filter_map(|(at, pair)| {
                let (rank, id) = self.merge_of(pair[0].id, pair[1].id)?;
                Some(Reverse((rank, at, id)))
            })
            .collect();
        while let Some(Reverse((_, at, id))) = queue.pop() {
            let next = symbols[at].next;
            if symbols[at].len == 0 || next == NOWHERE {
                continue;
            }
            // The entry may be older than what stands here now.
            if self.merge_of(symbols[at].id, symbols[next].id).map(|m| m.1) != Some(id) {
                continue;
            }
            let after = symbols[next].next;
            symbols[at].id = id;
            symbols[at].len += symbols[next].len;
            symbols[at].next = after;
            symbols[next].len = 0;
            let before = symbols[at].previous;
            if after != NOWHERE {
                symbols[after].previous = at;
            }
            let mut push = |left: usize, right: usize| {
                if left == NOWHERE || right == NOWHERE {
                    return;
                }
                if let Some((rank, id)) = self.merge_of(symbols[left].id, symbols[right].id) {
                    queue.push(Reverse((rank, left, id)));
                }
            };
            push(before, at);
            push(at, after);
        }
        symbols.retain(|s| s.len != 0);
    }

    fn split_and_merge(&self, text: &str) -> Pieces {
        let mut word = self.split(text);
        self.merge(&mut word);
        word.0
            .iter()
            .map(|symbol| (symbol.id, symbol.len))
            .collect()
    }

    fn tokens_of(&self, pieces: &[(u32, usize)]) -> Vec<Token> {
        let mut end = 0;
        pieces
            .iter()
            .map(|&(id, len)| {
                let start = end;
                end += len;
                let text = self.token_of(id).unwrap_or_default();
                Token::new(id, text.to_owned(), (start, end))
            })
            .collect()
    }

    pub fn tokenize(&self, text: &str) -> Vec<Token> {
        if self.has(IGNORE_MERGES) {
            if let Some(id) = self.id_of(text) {
                return self.tokens_of(&[(id, text.len())]);
            }
        }
        if text.len() > LONGEST_WORD {
            return self.tokens_of(&self.split_and_merge(text));
        }
        if let Some(tokens) = self
            .known
            .with(|words| Some(self.tokens_of(words.get(text)?)))
        {
            return tokens;
        }
        let pieces = self.split_and_merge(text);
        let tokens = self.tokens_of(&pieces);
        self.known
            .with(|words| (words.len() < MOST_WORDS).then(|| words.insert(text.into(), pieces)));
        tokens
    }
}
