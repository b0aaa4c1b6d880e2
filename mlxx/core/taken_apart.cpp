#include "mlxx/core/taken_apart.h"

#include <algorithm>

namespace mlxx {
namespace {

// Whether it is still to be computed from other arrays.
bool is_lazy(const mx::array& a) {
  return a.status() == mx::array::Status::unscheduled && a.has_primitive();
}

// Whether `a` is the only handle of its array, which must be lazy. Of all that
// MLX makes public only is_donatable() looks at the count, and it wants to see
// a buffer too: one of no bytes is lent to it.
bool is_only_handle(mx::array& a) {
  if (a.data_shared_ptr()) {
    return false;
  }
  mx::Strides strides = a.strides();
  mx::array::Flags flags = a.flags();
  size_t data_size = a.data_size();
  a.set_data(mx::allocator::malloc(0));
  bool only = a.is_donatable();
  mx::array blank(mx::Shape{}, a.dtype(), nullptr, {});
  a.copy_shared_buffer(blank, strides, flags, data_size);
  return only;
}

}  // namespace

TakenApart::TakenApart(const std::vector<StandIn>& inputs) {
  for (const StandIn& input : inputs) {
    know(input.passed, true);
    if (input.passed.id() != input.given.id()) {
      stand_ins_.insert(input.passed.id());
    }
  }
}

TakenApart::~TakenApart() {
  // Nothing is allocated: clear() has kept the room.
  for (Producer& producer : producers_) {
    if (producer.inside) {
      for (mx::array& a : producer.arrays) {
        for (Part input : producer.inputs) {
          a.inputs().push_back(array_of(input));
        }
      }
      link_siblings(producer.arrays);
    }
  }
}

void TakenApart::link_siblings(std::vector<mx::array>& arrays) {
  for (mx::array& a : arrays) {
    for (const mx::array& other : arrays) {
      if (other.id() != a.id()) {
        a.siblings().push_back(other);
      }
    }
  }
}

TakenApart::Part TakenApart::add_root(mx::array root) {
  return know(root, false);
}

TakenApart::Part TakenApart::know(const mx::array& a, bool fixed) {
  if (auto it = known_.find(a.id()); it != known_.end()) {
    return it->second;
  }
  fixed = fixed || !is_lazy(a);
  int index = static_cast<int>(producers_.size());
  Producer& producer = producers_.emplace_back();
  producer.arrays = fixed ? std::vector<mx::array>{a} : a.outputs();
  producer.fixed = fixed;
  for (size_t i = 0; i < producer.arrays.size(); ++i) {
    // An output that is an input of the function is known already.
    known_.emplace(producer.arrays[i].id(), Part{index, static_cast<int>(i)});
  }
  look_at(index);
  return known_.at(a.id());
}

void TakenApart::look_at(int index) {
  Producer& producer = producers_[index];
  if (!producer.fixed && !producer.inside && !producer.waiting) {
    producer.waiting = true;
    waiting_.push_back(index);
  }
}

bool TakenApart::is_only_ours(Producer& producer) {
  if (producer.arrays.size() == 1) {
    return is_only_handle(producer.arrays[0]);
  }
  std::vector<mx::array>& arrays = producer.arrays;
  for (mx::array& a : arrays) {
    a.siblings().clear();
  }
  struct Relink {
    std::vector<mx::array>& arrays;
    ~Relink() {
      link_siblings(arrays);
    }
  } relink{arrays};
  return std::ranges::all_of(arrays, is_only_handle);
}

void TakenApart::take_apart(int index) {
  std::vector<Part> inputs;
  // By index: what know() adds may move the producers.
  for (size_t i = 0; i < producers_[index].arrays[0].inputs().size(); ++i) {
    mx::array input = producers_[index].arrays[0].inputs()[i];
    inputs.push_back(know(input, false));
  }
  Producer& producer = producers_[index];
  producer.inputs = inputs;
  producer.inside = true;
  for (mx::array& a : producer.arrays) {
    a.inputs().clear();
    a.siblings().clear();
  }
  for (Part input : inputs) {
    look_at(input.producer);
  }
}

void TakenApart::take_apart_all_only_ours() {
  while (!waiting_.empty()) {
    int index = waiting_.back();
    waiting_.pop_back();
    producers_[index].waiting = false;
    if (!producers_[index].inside && is_only_ours(producers_[index])) {
      take_apart(index);
    }
  }
}

bool TakenApart::depends_on_stand_in(const mx::array& root) {
  std::vector<const mx::array*> open = {&root};
  std::unordered_set<std::uintptr_t> seen;
  while (!open.empty()) {
    const mx::array& a = *open.back();
    open.pop_back();
    if (stand_ins_.contains(a.id())) {
      return true;
    }
    if (auto it = known_.find(a.id());
        it != known_.end() && producers_[it->second.producer].inside) {
      return true;
    }
    if (is_lazy(a) && !independent_.contains(a.id()) &&
        seen.insert(a.id()).second) {
      for (const mx::array& input : a.inputs()) {
        open.push_back(&input);
      }
    }
  }
  independent_.merge(seen);
  return false;
}

void TakenApart::find_inside() {
  take_apart_all_only_ours();
  // Then what the function has made and somebody holds.
  for (bool found = !stand_ins_.empty(); found;) {
    found = false;
    for (int i = 0; i < static_cast<int>(producers_.size()); ++i) {
      if (!producers_[i].fixed && !producers_[i].inside &&
          depends_on_stand_in(producers_[i].arrays[0])) {
        take_apart(i);
        found = true;
      }
    }
    take_apart_all_only_ours();
  }
}

}  // namespace mlxx
