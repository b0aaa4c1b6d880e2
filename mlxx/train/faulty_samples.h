#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "mlxx/data/batch.h"
#include "mlxx/train/differentiate.h"

namespace mlxx::train {

// Which samples of a batch give numbers that are not finite: those whose own
// scores are not, or, if it is the gradient alone, all of the batch. "" if the
// batch is sound. `place` names a sample ("train.jsonl: line 7"); the first few
// are named, the others counted.
std::string faulty_samples(
    const Differentiator& differentiator,
    const data::Batch& batch,
    const ScoreLoss& loss,
    const std::function<std::string(int64_t sample)>& place);

}  // namespace mlxx::train
