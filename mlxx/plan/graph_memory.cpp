#include "mlxx/plan/graph_memory.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <unordered_map>

#include <mlx/primitives.h>

namespace mlxx::plan {

namespace {

// Operations whose result shows the memory of their first input. Reshape
// copies sometimes; that is for arrays of another order, which are small here.
bool is_view(std::string_view name) {
  static const std::set<std::string_view> kViews = {
      "AsStrided",
      "Broadcast",
      "BroadcastAxes",
      "Copy",
      "Depends",
      "ExpandDims",
      "Flatten",
      "Reshape",
      "Slice",
      "Split",
      "Squeeze",
      "StopGradient",
      "Transpose",
      "Unflatten",
      "View"};
  return kViews.contains(name);
}

// Operations that write their result elsewhere than into an input.
bool needs_own_memory(std::string_view name) {
  static const std::set<std::string_view> kOwn = {
      "Concatenate",
      "Gather",
      "GatherMM",
      "GatherQMM",
      "Matmul",
      "Addmm",
      "QuantizedMatmul",
      "Convolution",
      "Contiguous",
      "CpuTextAttention",
      "CpuTextAttentionGradient",
      "DenseMatmul",
      "Full",
      "PackedScores",
      "PanelMatmul"};
  return kOwn.contains(name);
}

// What is handed to the device before the first of it is done; what it reads is
// held until then. MLX's evaluation on the CPU goes on until more than ten
// tasks of ten dispatches wait: one for a view, two for another operation. GPUs
// are given some tens of operations in one command buffer.
constexpr size_t kDispatchesAhead = 120;

struct Use {
  int readers = 0;
  std::uintptr_t memory = 0;  // of which array it shows
};

struct Block {
  size_t bytes = 0;
  int holders = 0;        // arrays alive that show it
  size_t held_until = 0;  // in dispatches: when its last reader is done
};

// Every array with a primitive, inputs first. Siblings come with the first of
// them that is met.
class Tape {
 public:
  Tape(
      const std::vector<mx::array>& outputs,
      const std::vector<mx::array>& before) {
    for (const auto& array : before) {
      seen_.insert(array.id());
    }
    for (const auto& output : outputs) {
      visit(output);
    }
  }
  const std::vector<mx::array>& arrays() const {
    return arrays_;
  }

 private:
  // By a stack of its own: graphs are thousands of operations deep.
  void visit(const mx::array& root) {
    std::vector<std::pair<mx::array, size_t>> stack;
    auto enter = [&](const mx::array& a) {
      if (a.has_primitive() && !a.is_available() &&
          seen_.insert(a.id()).second) {
        stack.emplace_back(a, 0);
      }
    };
    enter(root);
    while (!stack.empty()) {
      auto& [array, next] = stack.back();
      const auto& inputs = array.inputs();
      if (next < inputs.size()) {
        const mx::array input = inputs[next++];
        enter(input);
        continue;
      }
      for (const auto& sibling : array.siblings()) {
        seen_.insert(sibling.id());
      }
      arrays_.push_back(array);
      stack.pop_back();
    }
  }

  std::set<std::uintptr_t> seen_;
  std::vector<mx::array> arrays_;
};

class Run {
 public:
  explicit Run(size_t ahead) : ahead_(ahead) {}

  size_t peak(
      const std::vector<mx::array>& outputs,
      const std::vector<mx::array>& before) {
    const Tape tape(outputs, before);
    for (const auto& array : before) {
      allocate(array);
    }
    for (const auto& array : tape.arrays()) {
      for (const auto& input : array.inputs()) {
        ++uses_[input.id()].readers;
      }
    }
    for (const auto& output : outputs) {
      ++uses_[output.id()].readers;
    }
    for (const auto& array : before) {
      if (uses_[array.id()].readers == 0) {
        release(array.id());
      }
    }
    peak_ = live_;
    for (const auto& array : tape.arrays()) {
      step(array);
    }
    return peak_;
  }

 private:
  void step(const mx::array& array) {
    const std::string_view name = array.primitive().name();
    const auto& inputs = array.inputs();
    if (inputs.empty()) {
      return;  // a constant, or a weight
    }
    if (is_view(name)) {
      for (const auto& output : array.outputs()) {
        show(output, uses_[inputs[0].id()].memory);
      }
    } else {
      for (const auto& output : array.outputs()) {
        const auto donor =
            needs_own_memory(name) ? 0 : donor_of(inputs, output.nbytes());
        if (donor) {
          uses_[output.id()].memory = donor;
          donated_ = donor;
        } else {
          allocate(output);
        }
      }
    }
    peak_ = std::max(peak_, live_);
    for (const auto& input : inputs) {
      auto block = blocks_.find(uses_[input.id()].memory);
      if (block != blocks_.end()) {
        block->second.held_until = ends_.size() + ahead_;
      }
      drop_reader(input.id());
    }
    donated_ = 0;
    for (const auto& output : array.outputs()) {
      if (uses_[output.id()].readers == 0) {
        release(uses_[output.id()].memory);
      }
    }
    ends_.insert(ends_.end(), is_view(name) ? 1 : 2, waiting_.size());
    if (ends_.size() > ahead_) {
      const size_t end = ends_[ends_.size() - 1 - ahead_];
      for (; released_ < end; ++released_) {
        release_now(waiting_[released_]);
      }
    }
  }

  // Memory that one array alone holds, of which this is the only reader left.
  std::uintptr_t donor_of(const std::vector<mx::array>& inputs, size_t bytes) {
    for (const auto& input : inputs) {
      const Use& use = uses_[input.id()];
      auto block = blocks_.find(use.memory);
      if (block != blocks_.end() && use.readers == 1 &&
          block->second.holders == 1 &&
          block->second.held_until <= ends_.size() &&
          block->second.bytes >= bytes &&
          block->second.bytes <= bytes + bytes / 8) {
        return use.memory;
      }
    }
    return 0;
  }

  void allocate(const mx::array& array) {
    blocks_[array.id()] = {array.nbytes(), 1, 0};
    live_ += array.nbytes();
    uses_[array.id()].memory = array.id();
  }
  void show(const mx::array& array, std::uintptr_t memory) {
    uses_[array.id()].memory = memory;
    auto block = blocks_.find(memory);
    if (block != blocks_.end()) {
      ++block->second.holders;
    }
  }
  void drop_reader(std::uintptr_t id) {
    Use& use = uses_[id];
    if (--use.readers == 0 && use.memory != donated_) {
      release(use.memory);
    }
  }
  // Once those operations that were handed out are done.
  void release(std::uintptr_t memory) {
    waiting_.push_back(memory);
  }
  void release_now(std::uintptr_t memory) {
    auto block = blocks_.find(memory);
    if (block != blocks_.end() && --block->second.holders == 0) {
      live_ -= block->second.bytes;
      blocks_.erase(block);
    }
  }

  size_t ahead_;
  std::unordered_map<std::uintptr_t, Use> uses_;
  std::unordered_map<std::uintptr_t, Block> blocks_;
  // Memory to be released, in the order of the operations, how much of it
  // there was after each dispatch, and what has been.
  std::vector<std::uintptr_t> waiting_;
  std::vector<size_t> ends_;
  size_t released_ = 0;
  std::uintptr_t donated_ = 0;  // by an input of this operation to its output
  size_t live_ = 0;
  size_t peak_ = 0;
};

}  // namespace

size_t peak_of_graph(
    const std::vector<mx::array>& outputs,
    const std::vector<mx::array>& before,
    size_t ahead) {
  return Run(ahead == 0 ? kDispatchesAhead : ahead).peak(outputs, before);
}

}  // namespace mlxx::plan
