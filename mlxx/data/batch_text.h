#pragma once

#include <string>

#include "mlxx/data/batch.h"

namespace mlxx::text {
class Tokenizer;
}

namespace mlxx::data {

// A batch for people to read: of each row or segment a line with its numbers
// of tokens and targets, then its text, in which what is to be predicted
// stands between ⟦ and ⟧. Control characters other than the ends of lines are
// escaped.
std::string batch_as_text(const Batch& batch, const text::Tokenizer& tokenizer);

}  // namespace mlxx::data
