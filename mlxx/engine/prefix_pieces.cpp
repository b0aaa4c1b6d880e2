#include "mlxx/engine/prefix_pieces.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/cache/composite.h"
#include "mlxx/core/dtype.h"

namespace mlxx::engine {
namespace {

constexpr const char* kStates = "states";
constexpr size_t kMostArrays = 64;

void add_leaves(
    cache::LayerCache& layer,
    std::vector<cache::LayerCache*>& leaves) {
  auto* composite = dynamic_cast<cache::CompositeCache*>(&layer);
  if (!composite) {
    leaves.push_back(&layer);
    return;
  }
  for (int part = 0; part < composite->parts(); ++part) {
    add_leaves(composite->part(part), leaves);
  }
}

// Every layer, and every part of those that have parts.
std::vector<cache::LayerCache*> leaves_of(const cache::CacheList& caches) {
  std::vector<cache::LayerCache*> leaves;
  for (const auto& layer : caches) {
    add_leaves(*layer, leaves);
  }
  return leaves;
}

std::string array_name(size_t leaf, size_t array) {
  return fmt::format("{}:{}", leaf, array);
}

void add_array(
    StoredPiece& piece,
    size_t leaf,
    size_t index,
    const mx::array& value) {
  mx::array array = mx::contiguous(value);
  mx::eval(array);
  std::vector<int64_t> shape(array.shape().begin(), array.shape().end());
  StoredPiece::Array stored{
      array_name(leaf, index),
      std::string(dtype_info(array.dtype()).safetensors),
      std::move(shape),
      {}};
  if (array.size() > 0) {
    const auto* bytes = array.data<std::byte>();
    stored.bytes.assign(bytes, bytes + array.nbytes());
  }
  piece.arrays.push_back(std::move(stored));
}

// The arrays of one leaf, as many as there are.
std::vector<mx::array> arrays_of(const LoadedPiece& piece, size_t leaf) {
  std::vector<mx::array> arrays;
  for (size_t i = 0; i < kMostArrays; ++i) {
    auto found = piece.arrays.find(array_name(leaf, i));
    if (found == piece.arrays.end()) {
      break;
    }
    arrays.push_back(found->second);
  }
  return arrays;
}

const Json&
description_of(const Json& states, size_t leaf, const std::string& place) {
  auto found = states.find(std::to_string(leaf));
  if (found == states.end() || !found->is_object()) {
    fail(ErrorKind::bad_file, place, "layer {} has no state", leaf);
  }
  return *found;
}

cache::StoredState
state_of(const LoadedPiece& piece, const Json& states, size_t leaf) {
  const std::string place = "stored cache";
  JsonView view(description_of(states, leaf, place), place);
  cache::StoredState state;
  state.kind = view.string("kind");
  for (const Json& number : view.json().value("numbers", Json::array())) {
    if (!number.is_number_integer()) {
      view.fail_at("numbers", "must be whole numbers");
    }
    state.numbers.push_back(number.get<int64_t>());
  }
  state.arrays = arrays_of(piece, leaf);
  return state;
}

Json states_of(const LoadedPiece& piece) {
  auto found = piece.notes.find(kStates);
  if (found == piece.notes.end()) {
    fail(ErrorKind::bad_file, "stored cache", "has no states");
  }
  Json states = parse_json(found->second, "stored cache");
  if (!states.is_object()) {
    fail(ErrorKind::bad_file, "stored cache", "its states are damaged");
  }
  return states;
}

}  // namespace

bool has_blocks(const cache::CacheList& caches) {
  return std::ranges::any_of(leaves_of(caches), [](auto* leaf) {
    return leaf->is_in_blocks();
  });
}

bool has_states(const cache::CacheList& caches) {
  return std::ranges::any_of(leaves_of(caches), [](auto* leaf) {
    return !leaf->is_in_blocks();
  });
}

std::string layout_of(const cache::CacheList& empty) {
  std::string layout;
  for (auto* leaf : leaves_of(empty)) {
    cache::StoredState state = leaf->store();
    layout += fmt::format("{}({});", state.kind, fmt::join(state.numbers, ","));
  }
  return layout;
}

bool is_computed(const cache::CacheList& caches) {
  return std::ranges::all_of(caches, [](const auto& layer) {
    return std::ranges::all_of(layer->state(), [](const mx::array& array) {
      return array.status() != mx::array::Status::unscheduled &&
          array.is_available();
    });
  });
}

StoredPiece block_piece(const cache::CacheList& caches, int block) {
  StoredPiece piece;
  auto leaves = leaves_of(caches);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i]->is_in_blocks()) {
      auto arrays = leaves[i]->block(block);
      for (size_t j = 0; j < arrays.size(); ++j) {
        add_array(piece, i, j, arrays[j]);
      }
    }
  }
  return piece;
}

StoredPiece state_piece(const cache::CacheList& caches) {
  StoredPiece piece;
  Json states = Json::object();
  auto leaves = leaves_of(caches);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i]->is_in_blocks()) {
      continue;
    }
    cache::StoredState state = leaves[i]->store();
    if (!state.parts.empty() || state.arrays.size() > kMostArrays) {
      fail(
          ErrorKind::unsupported,
          "prompt cache",
          "a '{}' state has parts",
          state.kind);
    }
    states[std::to_string(i)] = {
        {"kind", state.kind},
        {"numbers", state.numbers}};
    for (size_t j = 0; j < state.arrays.size(); ++j) {
      add_array(piece, i, j, state.arrays[j]);
    }
  }
  piece.notes[kStates] = states.dump();
  return piece;
}

void restore_pieces(
    cache::CacheList& empty,
    std::span<const LoadedPiece> blocks,
    const LoadedPiece* state,
    int tokens) {
  auto leaves = leaves_of(empty);
  Json states = state ? states_of(*state) : Json::object();
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i]->is_in_blocks()) {
      std::vector<std::vector<mx::array>> arrays;
      for (const auto& block : blocks) {
        arrays.push_back(arrays_of(block, i));
      }
      leaves[i]->restore_blocks(arrays);
    } else if (state) {
      leaves[i]->restore(state_of(*state, states, i));
    }
    if (leaves[i]->offset() != tokens) {
      fail(
          ErrorKind::bad_file,
          "stored cache",
          "a layer's state is after {} tokens, not {}",
          leaves[i]->offset(),
          tokens);
    }
  }
}

}  // namespace mlxx::engine
