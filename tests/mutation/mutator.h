#pragma once

#include <cstdint>
#include <string>

namespace mlxx {

// Damages texts and binary files. The same seed gives the same damage.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}

  // One to four changes: flipped bits, replaced bytes, cut or repeated parts,
  // numbers at the limits (binary and decimal), brackets and quotes, a shorter
  // file. Most fall into the first `head` bytes, where lengths and names are.
  std::string mutate(std::string content, size_t head);

  // As above for JSON; half of the files stay valid JSON with other numbers
  // and strings in it.
  std::string mutate_json(std::string content);

  uint64_t next();
  // In [0, bound).
  size_t below(size_t bound) {
    return bound == 0 ? 0 : static_cast<size_t>(next() % bound);
  }

 private:
  void change(std::string& content, size_t head);
  void replace_binary_number(std::string& content, size_t at);
  void replace_decimal_number(std::string& content, size_t at);
  void replace_string(std::string& content);

  uint64_t state_;
};

}  // namespace mlxx
