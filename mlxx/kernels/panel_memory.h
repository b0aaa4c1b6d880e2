#pragma once

#include <cstddef>
#include <memory>

namespace mlxx::kernels {

// Memory for the packed matrices of one model, cut one after the other from
// large pieces for which the system is asked for huge pages. SmolLM2's
// matrices are 0.2 to 1 MB each: alone, none would lie in a huge page, and
// touching 90 MB in pages of 4 KiB for the first time takes longer than
// repacking them. Not thread-safe: one thread loads a model.
class PanelMemory {
 public:
  // `expected` bytes in all, so that the last piece is not much too large;
  // a guess that is too small only makes more pieces.
  explicit PanelMemory(size_t expected);
  ~PanelMemory();
  PanelMemory(const PanelMemory&) = delete;
  PanelMemory& operator=(const PanelMemory&) = delete;

  // `bytes` of memory, not zeroed, aligned to 64 bytes. It lives as long as
  // the pointer or a copy of it; a piece goes back to the system when nothing
  // in it is used any more, and this object may go before.
  std::shared_ptr<std::byte> take(size_t bytes);

 private:
  class Piece;
  std::shared_ptr<Piece> piece_;  // that is being cut
  size_t expected_;
  bool huge_pages_ = true;  // until they turn out to be no gain
};

// Such memory of its own, for a matrix that is not loaded with others.
std::shared_ptr<std::byte> take_panel_memory(size_t bytes);

}  // namespace mlxx::kernels
