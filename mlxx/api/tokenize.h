#pragma once

#include <string>
#include <vector>

#include "mlxx/api/answer.h"

namespace mlxx::api {

// {"tokens": [...], "count", "max_model_len"}; with_pieces: each token as
// {"id", "piece"}, where a piece that is no text is a list of bytes.
std::string tokenize(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored);

// {"content": text}, special tokens included.
std::string detokenize(
    const OrderedJson& body,
    const Context& context,
    std::vector<std::string>& ignored);

}  // namespace mlxx::api
