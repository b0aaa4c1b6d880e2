#include "mlxx/engine/prefix_trie.h"

#include <algorithm>

namespace mlxx::engine {
namespace {

using cache::kBlockTokens;

int common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  size_t n = std::min(a.size(), b.size());
  auto [end, other] = std::mismatch(a.begin(), a.begin() + n, b.begin());
  return static_cast<int>(end - a.begin());
}

std::span<const int32_t> from(std::span<const int32_t> tokens, int first) {
  return tokens.subspan(std::min<size_t>(first, tokens.size()));
}

PrefixNode* child_of(const PrefixNode& node, std::span<const int32_t> tokens) {
  if (tokens.size() < kBlockTokens) {
    return nullptr;
  }
  for (const auto& child : node.children) {
    if (std::ranges::equal(child->tokens, tokens.first(kBlockTokens))) {
      return child.get();
    }
  }
  return nullptr;
}

// Of the node and of those above it, after a change.
void renew_shortest(PrefixNode* node) {
  for (; node; node = node->parent) {
    int shortest = INT_MAX;
    for (const auto& entry : node->entries) {
      shortest = std::min(shortest, entry->shortest);
    }
    for (const auto& child : node->children) {
      shortest = std::min(shortest, child->shortest);
    }
    node->shortest = shortest;
  }
}

// One that can be cut back to `length`; there is one.
PrefixEntry* entry_beneath(const PrefixNode& top, int length) {
  const PrefixNode* node = &top;
  while (true) {
    for (const auto& entry : node->entries) {
      if (entry->shortest <= length) {
        return entry.get();
      }
    }
    auto child = std::ranges::find_if(node->children, [&](const auto& next) {
      return next->shortest <= length;
    });
    if (child == node->children.end()) {
      return nullptr;
    }
    node = child->get();
  }
}

}  // namespace

PrefixTrie::PrefixTrie() : root_(std::make_unique<PrefixNode>()) {}
PrefixTrie::~PrefixTrie() = default;

PrefixTrie::Match PrefixTrie::find(
    std::span<const int32_t> tokens,
    bool any_state) const {
  Match best;
  auto offer = [&](const PrefixNode& node, int length) {
    int cut = any_state ? INT_MAX - 1 : length;
    if (length > best.length && node.shortest <= cut) {
      best = {entry_beneath(node, cut), length};
    }
  };
  const PrefixNode* node = root_.get();
  while (node) {
    offer(*node, node->depth);
    auto rest = from(tokens, node->depth);
    for (const auto& entry : node->entries) {
      int length =
          node->depth + common_length(from(entry->tokens, node->depth), rest);
      if (length > best.length && (any_state || entry->shortest <= length)) {
        best = {entry.get(), length};
      }
    }
    const PrefixNode* next = nullptr;
    for (const auto& child : node->children) {
      int common = common_length(child->tokens, rest);
      if (common == kBlockTokens) {
        next = child.get();
      } else {
        offer(*child, node->depth + common);
      }
    }
    node = next;
  }
  return best;
}

PrefixTrie::Match PrefixTrie::find(std::span<const int32_t> tokens) const {
  return find(tokens, false);
}

PrefixTrie::Match PrefixTrie::nearest(std::span<const int32_t> tokens) const {
  return find(tokens, true);
}

std::vector<PrefixEntry*> PrefixTrie::on_path(
    std::span<const int32_t> tokens) const {
  std::vector<PrefixEntry*> found;
  const PrefixNode* node = root_.get();
  while (node) {
    auto rest = from(tokens, node->depth);
    size_t first = found.size();
    for (const auto& entry : node->entries) {
      auto tail = from(entry->tokens, node->depth);
      if (common_length(tail, rest) == std::ssize(tail)) {
        found.push_back(entry.get());
      }
    }
    std::ranges::sort(found.begin() + first, found.end(), {}, [](auto* entry) {
      return entry->size();
    });
    node = child_of(*node, rest);
  }
  return found;
}

PrefixEntry* PrefixTrie::insert(std::unique_ptr<PrefixEntry> entry) {
  PrefixNode* node = root_.get();
  for (int depth = 0; depth + kBlockTokens <= entry->size();
       depth += kBlockTokens) {
    auto rest = from(entry->tokens, depth);
    PrefixNode* next = child_of(*node, rest);
    if (!next) {
      node->children.push_back(std::make_unique<PrefixNode>());
      next = node->children.back().get();
      next->parent = node;
      next->tokens.assign(rest.begin(), rest.begin() + kBlockTokens);
      next->depth = depth + kBlockTokens;
      next->used = entry->used;
    }
    node = next;
  }
  entry->node = node;
  node->entries.push_back(std::move(entry));
  PrefixEntry* inserted = node->entries.back().get();
  renew_shortest(node);
  return inserted;
}

std::unique_ptr<PrefixEntry> PrefixTrie::remove(PrefixEntry* entry) {
  PrefixNode* node = entry->node;
  auto at = std::ranges::find(node->entries, entry, [](const auto& held) {
    return held.get();
  });
  std::unique_ptr<PrefixEntry> removed = std::move(*at);
  node->entries.erase(at);
  removed->node = nullptr;
  while (node->parent && node->entries.empty() && node->children.empty()) {
    PrefixNode* parent = node->parent;
    std::erase_if(parent->children, [&](const auto& child) {
      return child.get() == node;
    });
    node = parent;
  }
  renew_shortest(node);
  return removed;
}

void PrefixTrie::touch(PrefixEntry* entry, int length, uint64_t now) {
  for (PrefixNode* node = entry->node; node->parent; node = node->parent) {
    if (node->parent->depth < length) {
      node->used = now;
    }
  }
  int last_block = (entry->size() - 1) / kBlockTokens * kBlockTokens;
  if (length > last_block) {
    entry->used = now;
  }
}

const PrefixNode* PrefixTrie::used_since(const PrefixEntry& entry) {
  for (const PrefixNode* node = entry.node; node->parent; node = node->parent) {
    if (node->used > entry.used) {
      return node;
    }
  }
  return nullptr;
}

std::vector<PrefixEntry*> PrefixTrie::entries() const {
  std::vector<PrefixEntry*> all;
  std::vector<const PrefixNode*> nodes{root_.get()};
  while (!nodes.empty()) {
    const PrefixNode* node = nodes.back();
    nodes.pop_back();
    for (const auto& entry : node->entries) {
      all.push_back(entry.get());
    }
    for (const auto& child : node->children) {
      nodes.push_back(child.get());
    }
  }
  return all;
}

}  // namespace mlxx::engine
