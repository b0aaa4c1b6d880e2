#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "mlxx/eval/scored_rows.h"
#include "mlxx/generate/pipeline.h"

namespace mlxx::eval {

struct WindowOptions {
  int length = 512;  // tokens that are computed together
  // From one window's beginning to the next one's; 0: `length`. Tokens that
  // two windows have are predicted in the first one only.
  int stride = 0;
  bool mask_prompt = false;  // of JSON lines: only answers are predicted
};

// A text cut into windows; those without targets are left out. The first token
// of a window is never predicted, so that with a stride of `length` one in
// `length` is not, as in mlx-lm. invalid_request for options out of range.
std::vector<ScoredRow> windows_of(
    const ScoredRow& text,
    const WindowOptions& options);

// Windows of what a file holds: of JSON lines (.jsonl) each sample for itself,
// in the formats of training data; else one text, which begins with the BOS if
// the model wants one. not_found, bad_file naming file and line;
// invalid_request if there is nothing to predict.
std::vector<ScoredRow> windows_of_file(
    const std::filesystem::path& file,
    const generate::Pipeline& pipeline,
    const WindowOptions& options);

}  // namespace mlxx::eval
