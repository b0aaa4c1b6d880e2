#include <algorithm>
#include <unordered_map>

#include "mlxx/hub/gguf_tokenizer.h"

namespace mlxx::hub {

namespace {

struct Merge {
  float score;  // of the merged token
  uint32_t left;
  uint32_t right;
  // Lengths in characters.
  uint16_t left_length;
  uint16_t right_length;
};

// Longer tokens are not words that merging builds up.
constexpr size_t kMaxTokenBytes = 1024;

bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

}  // namespace

// The order of transformers' conversion: score, then the longer left part,
// then the longer right part; equal ones stay in the order of the vocabulary.
std::vector<std::pair<uint32_t, uint32_t>> merges_from_scores(
    const GgufVocabulary& vocabulary,
    const std::vector<float>& scores) {
  std::unordered_map<std::string_view, uint32_t> ids;
  ids.reserve(vocabulary.tokens.size());
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.is_named(i)) {
      ids.emplace(vocabulary.tokens[i], static_cast<uint32_t>(i));
    }
  }
  std::vector<Merge> merges;
  std::vector<Merge> of_token;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    std::string_view token = vocabulary.tokens[i];
    if (!vocabulary.is_named(i) || token.size() > kMaxTokenBytes) {
      continue;
    }
    auto length =
        static_cast<uint16_t>(std::ranges::count_if(token, starts_character));
    of_token.clear();
    uint16_t left_length = 1;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (!starts_character(token[cut])) {
        continue;
      }
      auto left = ids.find(token.substr(0, cut));
      if (left != ids.end()) {
        auto right = ids.find(token.substr(cut));
        if (right != ids.end()) {
          of_token.push_back(
              {scores[i],
               left->second,
               right->second,
               left_length,
               static_cast<uint16_t>(length - left_length)});
        }
      }
      ++left_length;
    }
    std::ranges::stable_sort(of_token, [](const Merge& a, const Merge& b) {
      return std::pair(a.left, a.right) < std::pair(b.left, b.right);
    });
    merges.insert(merges.end(), of_token.begin(), of_token.end());
  }
  std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left_length, a.right_length) >
        std::tuple(b.score, b.left_length, b.right_length);
  });
  std::vector<std::pair<uint32_t, uint32_t>> out;
  out.reserve(merges.size());
  for (const Merge& merge : merges) {
    out.emplace_back(merge.left, merge.right);
  }
  return out;
}

}  // namespace mlxx::hub
