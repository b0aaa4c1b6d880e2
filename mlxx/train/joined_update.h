#pragma once

#include <map>
#include <string>
#include <vector>

#include "mlxx/train/optimizer.h"

namespace mlxx::train {

// Updates of many parameters as one of a long row, where a rule takes each
// number by itself: the same bits with a few operations instead of some for
// each parameter, which on a GPU take longer to launch than to compute.
class JoinedUpdate {
 public:
  // Largest row, in bytes: another copy of it is there for a moment.
  static constexpr size_t kMostBytes = size_t{1} << 30;

  // As UpdateRule::apply() for each, all float32 and of one rate. What is
  // returned and put into `states` shows parts of the rows, which are kept for
  // the next time.
  std::vector<mx::array> apply(
      const UpdateRule& rule,
      const std::vector<mx::array>& gradients,
      const std::vector<mx::array>& parameters,
      const std::vector<NamedArrays*>& states,
      const UpdateStep& step);

 private:
  struct Row {
    std::vector<mx::array> parts;  // of which it was made, or that it gave
    mx::array all;
  };
  mx::array row_of(const std::string& what, std::vector<mx::array> parts) const;

  std::map<std::string, Row> rows_;
};

// All numbers of some arrays one behind the other.
mx::array joined(const std::vector<mx::array>& arrays);

}  // namespace mlxx::train
