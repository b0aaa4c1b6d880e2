#include "tests/mutation/mutator.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>

namespace mlxx {

namespace {

constexpr uint64_t kLimits[] = {
    0,
    1,
    2,
    31,
    33,
    0x7f,
    0xff,
    0x7fffffff,
    0x80000000,
    0xffffffff,
    0x100000000,
    uint64_t{1} << 40,
    uint64_t{1} << 62,
    (uint64_t{1} << 63) - 1,
    uint64_t{1} << 63,
    UINT64_MAX - 31,
    UINT64_MAX};

constexpr const char* kTexts[] = {
    "0",
    "-1",
    "1e999",
    "0.5",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999999",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[[[[[[[[[[[[[[[[",
    "NaN"};

constexpr const char kPunctuation[] = "{}[]\",:\\/.-\0\n\xff\xef";

}  // namespace

uint64_t Mutator::next() {
  // xorshift64*
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545f4914f6cdd1d;
}

void Mutator::replace_binary_number(std::string& content, size_t at) {
  uint64_t value = kLimits[below(std::size(kLimits))];
  size_t width = size_t{1} << below(4);
  width = std::min(width, content.size() - at);
  std::memcpy(content.data() + at, &value, width);
}

// The run of digits or word at or after `at` becomes another value.
void Mutator::replace_decimal_number(std::string& content, size_t at) {
  auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  auto begin = std::find_if(
      content.begin() + static_cast<std::ptrdiff_t>(at),
      content.end(),
      is_digit);
  auto end = std::find_if_not(begin, content.end(), is_digit);
  content.replace(begin, end, kTexts[below(std::size(kTexts))]);
}

void Mutator::change(std::string& content, size_t head) {
  if (content.empty()) {
    content.push_back('x');
    return;
  }
  size_t bound =
      below(4) == 0 ? content.size() : std::min(head, content.size());
  size_t at = below(bound);
  switch (below(11)) {
    case 0:
      content[at] = static_cast<char>(content[at] ^ (1 << below(8)));
      break;
    case 1:
      content[at] = static_cast<char>(next());
      break;
    case 2:
      content.resize(at);
      break;
    case 3:
      content.erase(at, 1 + below(16));
      break;
    case 4: {
      std::string part = content.substr(below(bound), 1 + below(64));
      content.insert(at, part);
      break;
    }
    case 5: {
      std::string part = content.substr(below(bound), 1 + below(64));
      content.replace(at, part.size(), part);
      break;
    }
    case 6:
    case 7:
      replace_binary_number(content, at);
      break;
    case 8:
    case 9:
      replace_decimal_number(content, at);
      break;
    default:
      content.insert(at, 1, kPunctuation[below(sizeof(kPunctuation) - 1)]);
      break;
  }
}

// One quoted string becomes another one of the text, or a number.
void Mutator::replace_string(std::string& content) {
  auto quoted = [&](size_t from) {
    size_t begin = content.find('"', from);
    size_t end =
        begin == std::string::npos ? begin : content.find('"', begin + 1);
    return end == std::string::npos ? std::pair<size_t, size_t>(0, 0)
                                    : std::pair(begin, end + 1 - begin);
  };
  auto [source, source_length] = quoted(below(content.size()));
  std::string part = below(3) == 0 ? kTexts[below(std::size(kTexts))]
                                   : content.substr(source, source_length);
  auto [target, target_length] = quoted(below(content.size()));
  if (target_length > 0) {
    content.replace(target, target_length, part);
  }
}

std::string Mutator::mutate_json(std::string content) {
  if (below(2) == 0) {
    return mutate(std::move(content), SIZE_MAX);
  }
  size_t changes = 1 + below(3);
  for (size_t i = 0; i < changes; ++i) {
    if (below(3) == 0) {
      replace_string(content);
    } else {
      replace_decimal_number(content, below(content.size()));
    }
  }
  return content;
}

std::string Mutator::mutate(std::string content, size_t head) {
  size_t changes = 1 + below(4);
  for (size_t i = 0; i < changes; ++i) {
    change(content, head);
  }
  return content;
}

}  // namespace mlxx
