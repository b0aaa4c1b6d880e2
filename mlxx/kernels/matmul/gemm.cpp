#include "mlxx/kernels/matmul/gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "mlxx/kernels/cpu_variants.h"

namespace mlxx::kernels {
namespace {

// Columns of a block of the right matrix: 2 MiB, shared by all threads.
constexpr int64_t kBlockColumns = 1024;
// Rows of a block of the left matrix: 96 KiB, which a core's own cache holds.
constexpr int64_t kBlockRows = 48;
// Rows of which a block of columns is rounded at a time: 8 MiB of sums.
constexpr int64_t kRoundedRows = 2048;
// Up to here packing the right matrix costs more than it saves.
constexpr int64_t kFewRows = 24;

constexpr int64_t kLanesStride = kGemmDepth * kGemmLanes;

int64_t pieces(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// One product; the members are what its parts share.
class Product {
 public:
  Product(
      const GemmShape& shape,
      const GemmOperand& a,
      const GemmRight& b,
      const GemmResult& y,
      const GemmMachine& machine)
      : shape_(shape),
        a_(a),
        b_(b),
        y_(y),
        kernels_(*machine.kernels),
        threads_(*machine.threads),
        memory_(*machine.memory),
        // Rows of the block: whole tiles.
        block_rows_(kBlockRows / kernels_.tile_rows * kernels_.tile_rows),
        in_place_(
            b.rows && shape.rows <= kFewRows &&
            shape.columns % kGemmLanes == 0) {}

  void run() {
    int64_t columns = std::min(shape_.columns, kBlockColumns);
    int64_t right = in_place_ ? 0 : pieces(columns, kGemmLanes) * kLanesStride;
    int64_t left = block_rows_ * kGemmDepth;
    bool rounds = y_.type != NumberType::float32;
    int64_t all = rounds ? std::min(shape_.rows, kRoundedRows) : shape_.rows;
    auto lease = memory_.take(
        right + threads_.size() * left + (rounds ? all * columns : 0));
    right_ = lease.data();
    left_ = right_ + right;
    sums_ = rounds ? left_ + threads_.size() * left : nullptr;
    for (row_ = 0; row_ < shape_.rows; row_ += all) {
      rows_ = std::min(all, shape_.rows - row_);
      multiply_rows();
    }
  }

 private:
  void multiply_rows() {
    for (column_ = 0; column_ < shape_.columns; column_ += kBlockColumns) {
      columns_ = std::min(kBlockColumns, shape_.columns - column_);
      for (int64_t k = 0; k < shape_.depth; k += kGemmDepth) {
        k_ = k;
        depth_ = std::min(kGemmDepth, shape_.depth - k);
        if (!in_place_) {
          threads_.run([&](int thread) { pack_right(thread); });
        }
        threads_.run([&](int thread) { multiply(thread); });
      }
      if (sums_) {
        threads_.run([&](int thread) { round(thread); });
      }
    }
  }

  void pack_right(int thread) {
    auto range = threads_.split(pieces(columns_, kGemmLanes), thread);
    if (range.begin == range.end) {
      return;
    }
    int64_t before = column_ / kGemmLanes;
    auto begin = static_cast<int64_t>(range.begin);
    b_.pack(
        {k_,
         depth_,
         before + begin,
         before + static_cast<int64_t>(range.end),
         right_ + begin * kLanesStride,
         kLanesStride});
  }

  // This thread's part of the blocks of block_rows_ x 32 numbers: those of one
  // block of rows lie together, so that each thread packs its own rows.
  void multiply(int thread) {
    int64_t lanes = pieces(columns_, kGemmLanes);
    auto range = threads_.split(pieces(rows_, block_rows_) * lanes, thread);
    int64_t packed = -1;
    float* left = left_ + thread * block_rows_ * kGemmDepth;
    for (size_t i = range.begin; i < range.end; ++i) {
      int64_t block = static_cast<int64_t>(i) / lanes;
      int64_t row = block * block_rows_;
      int64_t rows = std::min(block_rows_, rows_ - row);
      if (packed != block) {
        kernels_.pack_left(a_, {row_ + row, rows, k_, depth_}, left);
        packed = block;
      }
      multiply_block(
          static_cast<int64_t>(i) % lanes * kGemmLanes,
          row,
          rows,
          left);
    }
  }

  void multiply_block(
      int64_t column,
      int64_t row,
      int64_t rows,
      const float* left) const {
    float* y = sums_ ? sums_ + row * columns_ + column
                     : static_cast<float*>(y_.data) +
            (row_ + row) * shape_.columns + column_ + column;
    kernels_.multiply(
        {.left = left,
         .left_by_rows = a_.column_stride == 1,
         .rows = rows,
         .right = in_place_ ? b_.rows + k_ * b_.stride + column_ + column
                            : right_ + column * kGemmDepth,
         .ldr = in_place_ ? b_.stride : kGemmLanes,
         .depth = depth_,
         .lanes = std::min(kGemmLanes, columns_ - column),
         .first = k_ == 0,
         .y = y,
         .ldy = sums_ ? columns_ : shape_.columns});
  }

  void round(int thread) {
    auto range = threads_.split(rows_, thread);
    auto* to = static_cast<uint16_t*>(y_.data);
    for (auto row = static_cast<int64_t>(range.begin);
         row < static_cast<int64_t>(range.end);
         ++row) {
      kernels_.round(
          sums_ + row * columns_,
          columns_,
          y_.type,
          to + (row_ + row) * shape_.columns + column_);
    }
  }

  GemmShape shape_;
  GemmOperand a_;
  const GemmRight& b_;
  GemmResult y_;
  const GemmKernels& kernels_;
  ThreadPool& threads_;
  GemmMemory& memory_;
  int64_t block_rows_;
  bool in_place_;
  float* right_ = nullptr;
  float* left_ = nullptr;  // a block for each thread
  float* sums_ = nullptr;  // [rows_, columns_], if they are rounded
  // The block at hand.
  int64_t row_ = 0;
  int64_t rows_ = 0;
  int64_t column_ = 0;
  int64_t columns_ = 0;
  int64_t k_ = 0;
  int64_t depth_ = 0;
};

}  // namespace

GemmMachine gemm_machine(const Selection& selection) {
  return {
      &gemm_kernels(selection.instruction_set),
      selection.threads ? selection.threads : std::make_shared<ThreadPool>(1),
      selection.gemm_memory ? selection.gemm_memory
                            : std::make_shared<GemmMemory>()};
}

GemmRight right_operand(
    const GemmOperand& b,
    int64_t columns,
    const GemmMachine& machine) {
  GemmRight right;
  right.pack =
      [b, columns, &kernels = *machine.kernels](const RightBlock& block) {
        float* to = block.to;
        for (int64_t i = block.first; i < block.last; ++i, to += block.stride) {
          int64_t column = i * kGemmLanes;
          int64_t count = std::min(kGemmLanes, columns - column);
          kernels.pack_right(b, {block.row, block.rows, column, count}, to);
        }
      };
  if (b.type == NumberType::float32 && b.column_stride == 1) {
    right.rows = static_cast<const float*>(b.data);
    right.stride = b.row_stride;
  }
  return right;
}

void gemm(
    const GemmShape& shape,
    const GemmOperand& a,
    const GemmRight& b,
    const GemmResult& y,
    const GemmMachine& machine) {
  if (shape.depth == 0) {
    size_t size = y.type == NumberType::float32 ? 4 : 2;
    std::memset(y.data, 0, shape.rows * shape.columns * size);
    return;
  }
  Product(shape, a, b, y, machine).run();
}

}  // namespace mlxx::kernels
