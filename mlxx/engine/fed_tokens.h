#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mlxx/engine/model_row.h"

namespace mlxx::engine {

// The newest token of each row, [B] int32, from the device where it was not
// read yet.
mx::array fed_tokens(std::span<const std::shared_ptr<RowState>> rows);

// One of [B] int32; waits for it.
int32_t token_at(const mx::array& tokens, int index);

// Waits. What each of the rows chose.
std::vector<Chosen> read_chosen(
    const ChosenTokens& chosen,
    std::span<const std::shared_ptr<RowState>> rows);

}  // namespace mlxx::engine
