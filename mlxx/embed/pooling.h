#pragma once

#include <string_view>

#include "mlxx/embed/token_rows.h"

namespace mlxx::embed {

// How the vectors of a text's tokens become one.
enum class Pooling { mean, cls, last_token };

// "mean", "cls", "lasttoken": the names of sentence-transformers.
std::string_view to_string(Pooling pooling);

// [T, E] -> [N, E]: the mean over the rows of each input in float32, or its
// first or last row.
mx::array pool(const mx::array& hidden, const TokenRows& rows, Pooling pooling);

}  // namespace mlxx::embed
