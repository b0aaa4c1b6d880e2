#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mlxx/core/mlx.h"

namespace mlxx {

// An explicit input of a function, and what was passed to it in its place: a
// node of its own (or `given` itself), so that what depends on it can be told
// from what was there before.
struct StandIn {
  mx::array passed;
  mx::array given;
};

// The graph below a function's outputs, with the links between its arrays taken
// out, to find what the function has made. MLX does not tell when an array was
// made, so that is taken to be ("inside")
// - whatever depends on a `passed` that is not `given`, and
// - what nobody but the outputs holds any more;
// not inside is what was there before, is held by somebody, or has been
// evaluated. Without the links each array has one handle here, and one more for
// each holder elsewhere. The destructor puts the graph together again.
class TakenApart {
 public:
  // An output of a producer.
  struct Part {
    int producer;
    int position;
  };
  // A primitive with all its outputs, or one array that needs no computing.
  struct Producer {
    std::vector<mx::array> arrays;
    std::vector<Part> inputs;  // if inside
    bool fixed = false;        // known to be outside
    bool inside = false;
    bool waiting = false;  // to be looked at (again)
  };

  explicit TakenApart(const std::vector<StandIn>& inputs);
  ~TakenApart();
  TakenApart(const TakenApart&) = delete;
  TakenApart& operator=(const TakenApart&) = delete;

  // Takes the caller's handle: `root` must be its last one.
  Part add_root(mx::array root);
  void find_inside();

  const Producer& operator[](int producer) const {
    return producers_[producer];
  }
  const mx::array& array_of(Part part) const {
    return producers_[part.producer].arrays[part.position];
  }

 private:
  Part know(const mx::array& a, bool fixed);
  void look_at(int producer);
  bool is_only_ours(Producer& producer);
  void take_apart(int producer);
  void take_apart_all_only_ours();
  bool depends_on_stand_in(const mx::array& a);
  static void link_siblings(std::vector<mx::array>& arrays);

  std::vector<Producer> producers_;
  std::unordered_map<std::uintptr_t, Part> known_;  // by array id
  std::vector<int> waiting_;
  std::unordered_set<std::uintptr_t> stand_ins_;
  std::unordered_set<std::uintptr_t> independent_;  // of stand-ins, for sure
};

}  // namespace mlxx
