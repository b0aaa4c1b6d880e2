#pragma once

#include <string_view>

#include "mlxx/text/grammar.h"

namespace mlxx::text {

// invalid_request that names `place` if the grammar can't be followed. No
// model is needed: it is tried with the bytes as vocabulary.
void check_grammar(
    GrammarKind kind,
    std::string_view grammar,
    std::string_view place);

}  // namespace mlxx::text
