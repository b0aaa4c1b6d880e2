#include "mlxx/kernels/decode_step/cuda/decoder_steps_cuda.h"

#include <algorithm>
#include <bit>

#include "mlxx/base/error.h"

namespace mlxx::kernels {
namespace {

// Rows are padded to one of a few counts, each of which is captured once.
int padded(int rows) {
  for (int count : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48}) {
    if (rows <= count) {
      return count;
    }
  }
  return cuda::kMaxRows;
}

// Steps are captured for contexts up to powers of two.
int longest_of(std::span<const SequenceKv::Step> steps) {
  constexpr int kShortest = 512;
  int longest = kShortest;
  for (const auto& step : steps) {
    longest = std::max(longest, step.from + 1);
  }
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(longest)));
}

// What a prompt's layers take for the moment.
constexpr size_t kKeptBytes = size_t{2} << 30;

mx::array zero_array(mx::Shape shape, mx::Dtype dtype) {
  mx::array made = mx::zeros(std::move(shape), dtype);
  mx::eval(made);
  return made;
}

}  // namespace

DecoderSteps::DecoderSteps(
    cuda::Decoder decoder,
    const KvShape& shape,
    std::vector<mx::array> held,
    bool deterministic)
    : decoder_(std::move(decoder)),
      held_(std::move(held)),
      deterministic_(deterministic),
      padding_{std::make_shared<KvBlock>(shape)} {
  keep_freed_memory(kKeptBytes);
}

DecoderSteps::~DecoderSteps() {
  keep_freed_memory(0);
  if (capture_stream_) {
    cudaStreamDestroy(capture_stream_);
  }
}

size_t DecoderSteps::nbytes() const {
  size_t bytes = output_memory_->nbytes();
  for (const auto* buffer : {&workspace_, &logits_, &table_, &rows_}) {
    bytes += *buffer ? (*buffer)->nbytes() : 0;
  }
  return bytes;
}

void DecoderSteps::make_room(int rows, int blocks) {
  if (rows <= max_rows_ && blocks <= stride_) {
    return;
  }
  constexpr int kFewRows = 8;
  constexpr int kFewBlocks = 64;
  // Steps that were launched still use what is given up here.
  mx::synchronize(default_stream());
  captured_.clear();
  stride_ = std::max<int>(
      {stride_,
       kFewBlocks,
       static_cast<int>(std::bit_ceil(static_cast<unsigned>(blocks)))});
  max_rows_ = std::max(max_rows_, rows <= kFewRows ? kFewRows : cuda::kMaxRows);
  constexpr size_t kLine = 256;
  size_t bytes = cuda::workspace_bytes(
      decoder_,
      max_rows_,
      stride_ * cuda::kKvBlockLength);
  workspace_.reset();
  workspace_ = zero_array(
      {static_cast<int>((bytes + kLine - 1) / kLine), static_cast<int>(kLine)},
      mx::uint8);
  logits_ = zero_array({max_rows_, vocabulary()}, mx::float32);
  rows_ = zero_array({2, max_rows_}, mx::int32);
  table_ = zero_array({max_rows_, stride_}, mx::uint64);
  known_.assign(size_t(max_rows_) * stride_, nullptr);
}

void DecoderSteps::copy_shared(
    std::span<const SequenceKv::Step> steps,
    cuda::Stream stream) {
  for (const auto& step : steps) {
    for (const auto& [from, to] : step.copies) {
      check(
          cudaMemcpyAsync(
              device_pointer(to->array()),
              device_pointer(from->array()),
              from->array().nbytes(),
              cudaMemcpyDeviceToDevice,
              stream),
          "copying a shared block");
    }
  }
}

void DecoderSteps::set_table(
    std::span<const KvBlocks* const> rows,
    cuda::Stream stream) {
  cuda::TableChanges changes;
  auto* table = device_pointer_as<void*>(*table_);
  auto flush = [&] {
    if (changes.count > 0) {
      check(
          cuda::launch_table_changes(changes, table, stream),
          "writing the block table");
      changes.count = 0;
    }
  };
  for (size_t row = 0; row < rows.size(); ++row) {
    const KvBlocks& blocks = *rows[row];
    for (size_t i = 0; i < blocks.size(); ++i) {
      size_t at = row * stride_ + i;
      void* pointer = device_pointer(blocks[i]->array());
      if (known_[at] == pointer) {
        continue;
      }
      known_[at] = pointer;
      changes.where[changes.count] = static_cast<uint32_t>(at);
      changes.block[changes.count] = pointer;
      if (++changes.count == cuda::TableChanges::kMost) {
        flush();
      }
    }
  }
  flush();
}

void DecoderSteps::run(
    const int32_t* tokens,
    std::span<const SequenceKv::Step> steps,
    float* logits,
    cuda::Stream stream) {
  int count = static_cast<int>(steps.size());
  Key key{padded(count), longest_of(steps)};
  copy_shared(steps, stream);
  std::vector<const KvBlocks*> blocks;
  cuda::StepRows rows;
  rows.rows = count;
  rows.padded_rows = key.first;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(&steps[i].blocks);
    rows.lengths[i] = steps[i].from;
  }
  // Rows of padding write token 0 at position 0 of a block of nobody.
  while (std::ssize(blocks) < key.first) {
    blocks.push_back(&padding_);
  }
  set_table(blocks, stream);
  auto* fixed = device_pointer_as<int32_t>(*rows_);
  check(
      cuda::launch_step_rows(rows, tokens, fixed, fixed + max_rows_, stream),
      "writing a step's rows");
  launch(key, stream);
  check(
      cudaMemcpyAsync(
          logits,
          device_pointer(*logits_),
          size_t(count) * vocabulary() * sizeof(float),
          cudaMemcpyDeviceToDevice,
          stream),
      "copying logits");
}

void* const* DecoderSteps::table_of(
    std::span<const KvBlocks* const> rows,
    cuda::Stream stream) {
  set_table(rows, stream);
  return device_pointer_as<void*>(*table_);
}

cuda::StepInput DecoderSteps::input_of(const Key& key) const {
  auto* fixed = device_pointer_as<int32_t>(*rows_);
  return {
      .rows = key.first,
      .tokens = fixed,
      .lengths = fixed + max_rows_,
      .blocks = device_pointer_as<void*>(*table_),
      .blocks_stride = stride_,
      .longest = key.second,
      .deterministic = deterministic_};
}

void DecoderSteps::launch(const Key& key, cuda::Stream stream) {
  auto found = captured_.find(key);
  if (found == captured_.end()) {
    // Most counts of rows come once; and what runs once has its code loaded,
    // which a capture may not do.
    check(
        cuda::launch_step(
            decoder_,
            input_of(key),
            device_pointer(*workspace_),
            device_pointer_as<float>(*logits_),
            stream),
        "a decode step");
    captured_.emplace(key, nullptr);
    return;
  }
  if (!found->second) {
    found->second = capture(key);
  }
  check(cudaGraphLaunch(found->second->graph(), stream), "a decode step");
}

std::unique_ptr<CapturedStep> DecoderSteps::capture(const Key& key) {
  if (!capture_stream_) {
    check(
        cudaStreamCreateWithFlags(&capture_stream_, cudaStreamNonBlocking),
        "making a stream");
  }
  check(
      cudaStreamBeginCapture(capture_stream_, cudaStreamCaptureModeRelaxed),
      "capturing a step");
  cuda::Status status = cuda::launch_step(
      decoder_,
      input_of(key),
      device_pointer(*workspace_),
      device_pointer_as<float>(*logits_),
      capture_stream_);
  cudaGraph_t graph = nullptr;
  cudaError_t ended = cudaStreamEndCapture(capture_stream_, &graph);
  check(status, "capturing a step");
  check(ended, "capturing a step");
  cudaGraphExec_t runnable = nullptr;
  cudaError_t made = cudaGraphInstantiate(&runnable, graph, 0);
  cudaGraphDestroy(graph);
  check(made, "making a graph of a step");
  return std::make_unique<CapturedStep>(runnable);
}

}  // namespace mlxx::kernels
