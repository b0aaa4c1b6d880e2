#include "mlxx/hub/gguf_rows.h"

#include "mlxx/hub/gguf_blocks.h"

namespace mlxx::hub {

namespace {

// The exponent bits of a float16 are at most this if the number times
// 2^`power` is finite.
constexpr uint16_t largest_exponent(int power) {
  return static_cast<uint16_t>((30 - power) << 10);
}

constexpr uint16_t kExponent = 0x7c00;

template <typename Block>
constexpr bool kHasBias = Block::kZero == 0;

template <typename Block>
bool read_row(
    const uint8_t* source,
    int64_t blocks,
    uint32_t* words,
    uint16_t* scales,
    uint16_t* biases) {
  constexpr uint16_t kLargest = largest_exponent(
      kHasBias<Block>          ? 0
          : Block::kZero == -8 ? 3
                               : 7);
  bool finite = true;
  for (int64_t i = 0; i < blocks; ++i) {
    Block::pack(source, words);
    scales[i] = read_half(source);
    finite &= (scales[i] & kExponent) <= kLargest;
    if constexpr (kHasBias<Block>) {
      biases[i] = read_half(source + 2);
      finite &= (biases[i] & kExponent) <= kLargest;
    }
    source += Block::kBytes;
    words += Block::kBits;
  }
  return finite;
}

bool has_bytes(const GgufTensor& tensor) {
  return tensor.type->id == kGgufQ8_0 || tensor.type->id == kGgufIq4Nl;
}

class GgufRows : public QuantizedRows {
 public:
  GgufRows(
      const MappedFile& file,
      const GgufTensor& tensor,
      const RowOrder& order)
      : file_(file), tensor_(tensor), order_(order) {
    form_ = {
        .rows = tensor.shape[0],
        .columns = tensor.shape[1],
        .bits = has_bytes(tensor) ? 8 : 4,
        .symmetric = tensor.type->id != kGgufQ4_1};
  }
  ~GgufRows() override {
    file_.release(tensor_.offset, tensor_.nbytes);
  }
  GgufRows(const GgufRows&) = delete;
  GgufRows& operator=(const GgufRows&) = delete;

  const Form& form() const override {
    return form_;
  }

  bool read(
      int64_t first,
      int64_t count,
      uint32_t* words,
      uint16_t* scales,
      uint16_t* biases) const override {
    auto* read = tensor_.type->id == kGgufQ4_0 ? read_row<BlockQ4_0>
        : tensor_.type->id == kGgufQ4_1        ? read_row<BlockQ4_1>
        : tensor_.type->id == kGgufQ8_0        ? read_row<BlockQ8_0>
                                               : read_row<BlockIq4Nl>;
    int64_t blocks = form_.columns / kGroup;
    const auto* data =
        reinterpret_cast<const uint8_t*>(file_.bytes().data()) + tensor_.offset;
    uint64_t row_bytes = tensor_.nbytes / static_cast<uint64_t>(form_.rows);
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
      auto row = static_cast<uint64_t>(order_.source_row(first + i));
      finite &= read(data + row * row_bytes, blocks, words, scales, biases);
      words += blocks * form_.bits;
      scales += blocks;
      biases = form_.symmetric ? nullptr : biases + blocks;
    }
    return finite;
  }

 private:
  const MappedFile& file_;
  const GgufTensor& tensor_;
  RowOrder order_;
  Form form_;
};

}  // namespace

std::unique_ptr<const QuantizedRows> gguf_rows(
    const MappedFile& file,
    const GgufTensor& tensor,
    const RowOrder& order) {
  bool is_known = tensor.type->id == kGgufQ4_0 ||
      tensor.type->id == kGgufQ4_1 || has_bytes(tensor);
  if (!is_known || tensor.shape.size() != 2) {
    return nullptr;
  }
  file.check_size();
  return std::make_unique<GgufRows>(file, tensor, order);
}

}  // namespace mlxx::hub
