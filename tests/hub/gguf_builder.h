#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::hub {

// Writes GGUF files, right ones and wrong ones, for tests.
class GgufBuilder {
 public:
  template <typename T>
  static std::string raw(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string text(std::string_view value) {
    return raw<uint64_t>(value.size()) + std::string(value);
  }

  uint32_t version = 3;
  uint32_t alignment = 32;
  // Where not 0, announced instead of the real numbers.
  uint64_t claimed_tensors = 0;
  uint64_t claimed_values = 0;

  // `type` and the bytes of the value.
  void value(std::string_view key, uint32_t type, const std::string& bytes) {
    values_.push_back(text(key) + raw(type) + bytes);
  }
  void u32(std::string_view key, uint32_t v) {
    value(key, 4, raw(v));
  }
  void f32(std::string_view key, float v) {
    value(key, 6, raw(v));
  }
  void boolean(std::string_view key, bool v) {
    value(key, 7, raw<uint8_t>(v));
  }
  void string(std::string_view key, std::string_view v) {
    value(key, 8, text(v));
  }
  template <typename T>
  void list(std::string_view key, uint32_t type, const std::vector<T>& items) {
    std::string bytes = raw(type) + raw<uint64_t>(items.size());
    for (T item : items) {
      bytes += raw(item);
    }
    value(key, 9, bytes);
  }
  void strings(std::string_view key, const std::vector<std::string>& items) {
    std::string bytes = raw<uint32_t>(8) + raw<uint64_t>(items.size());
    for (const auto& item : items) {
      bytes += text(item);
    }
    value(key, 9, bytes);
  }

  struct Tensor {
    std::string name;
    std::vector<uint64_t> axes;  // fastest first, as in the file
    uint32_t type;
    std::string data;
    bool has_offset = false;
    uint64_t offset = 0;
  };
  Tensor& tensor(
      const std::string& name,
      const std::vector<uint64_t>& axes,
      uint32_t type,
      const std::string& data) {
    tensors_.push_back({name, axes, type, data});
    return tensors_.back();
  }

  std::string build() const {
    std::string out = "GGUF" + raw(version) +
        raw(claimed_tensors ? claimed_tensors : uint64_t{tensors_.size()}) +
        raw(claimed_values ? claimed_values : uint64_t{values_.size()});
    for (const auto& value : values_) {
      out += value;
    }
    std::string data;
    for (const auto& tensor : tensors_) {
      out += text(tensor.name) + raw<uint32_t>(tensor.axes.size());
      for (uint64_t axis : tensor.axes) {
        out += raw(axis);
      }
      out += raw(tensor.type) +
          raw(tensor.has_offset ? tensor.offset : uint64_t{data.size()});
      data += tensor.data;
      pad(data);
    }
    if (!tensors_.empty()) {
      pad(out);
    }
    return out + data;
  }

 private:
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  }

  std::vector<std::string> values_;
  std::vector<Tensor> tensors_;
};

// Bytes of `count` blocks: half-precision scales near one, everything else
// from a small fixed generator.
inline std::string
random_blocks(size_t count, size_t block_bytes, size_t halves, uint32_t seed) {
  std::string out;
  uint32_t state = seed * 2654435761u + 1;
  auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return state >> 16;
  };
  for (size_t i = 0; i < count; ++i) {
    for (size_t h = 0; h < halves; ++h) {
      // Exponents from 2^-9 to 2^-6, either sign.
      auto half =
          static_cast<uint16_t>((next() & 0x83ff) | ((6 + next() % 4) << 10));
      out += GgufBuilder::raw(half);
    }
    for (size_t b = halves * 2; b < block_bytes; ++b) {
      out += static_cast<char>(next());
    }
  }
  return out;
}

inline std::string floats(const std::vector<float>& values) {
  std::string out;
  for (float value : values) {
    out += GgufBuilder::raw(value);
  }
  return out;
}

// A llama of one layer: 64 wide, 4 heads of 16, 2 key-value heads, 96 tokens,
// with a byte-level vocabulary. Every kind of block is in it.
inline GgufBuilder tiny_llama() {
  GgufBuilder b;
  b.string("general.architecture", "llama");
  b.u32("llama.block_count", 1);
  b.u32("llama.context_length", 512);
  b.u32("llama.embedding_length", 64);
  b.u32("llama.feed_forward_length", 96);
  b.u32("llama.attention.head_count", 4);
  b.u32("llama.attention.head_count_kv", 2);
  b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.f32("llama.rope.freq_base", 10000.0f);
  b.string("tokenizer.ggml.model", "gpt2");
  b.string("tokenizer.ggml.pre", "smollm");
  std::vector<std::string> tokens{"<|endoftext|>", "<|im_end|>"};
  std::vector<int32_t> types{3, 3};
  for (char c = '!'; c <= '~'; ++c) {
    tokens.push_back(std::string(1, c));
    types.push_back(1);
  }
  tokens.resize(94);
  types.resize(94);
  tokens.push_back("ab");
  tokens.push_back("abc");
  types.insert(types.end(), {1, 1});
  b.strings("tokenizer.ggml.tokens", tokens);
  b.list<int32_t>("tokenizer.ggml.token_type", 5, types);
  b.strings("tokenizer.ggml.merges", {"a b", "ab c"});
  b.u32("tokenizer.ggml.bos_token_id", 0);
  b.u32("tokenizer.ggml.eos_token_id", 1);
  b.string("tokenizer.chat_template", "{{ messages[0].content }}");

  auto matrix = [&](const std::string& name,
                    uint64_t rows,
                    uint64_t columns,
                    uint32_t type) {
    size_t bytes = type == 2 ? 18 : type == 3 ? 20 : 34;
    b.tensor(
        name,
        {columns, rows},
        type,
        random_blocks(
            rows * columns / 32,
            bytes,
            type == 3 ? 2 : 1,
            static_cast<uint32_t>(name.size() + rows)));
  };
  auto ones = [&](const std::string& name) {
    b.tensor(name, {64}, 0, floats(std::vector<float>(64, 1.0f)));
  };
  matrix("token_embd.weight", 96, 64, 8);
  ones("blk.0.attn_norm.weight");
  matrix("blk.0.attn_q.weight", 64, 64, 3);
  matrix("blk.0.attn_k.weight", 32, 64, 2);
  matrix("blk.0.attn_v.weight", 32, 64, 8);
  matrix("blk.0.attn_output.weight", 64, 64, 3);
  ones("blk.0.ffn_norm.weight");
  matrix("blk.0.ffn_gate.weight", 96, 64, 2);
  matrix("blk.0.ffn_up.weight", 96, 64, 3);
  matrix("blk.0.ffn_down.weight", 64, 96, 3);
  ones("output_norm.weight");
  return b;
}

}  // namespace mlxx::hub
