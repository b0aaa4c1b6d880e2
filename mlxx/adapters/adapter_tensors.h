#pragma once

#include <map>
#include <string>

#include "mlxx/adapters/adapter_file.h"
#include "mlxx/core/safetensors.h"

// For the readers of the two formats.
namespace mlxx::adapters {

// The tensors of one module, by what they are.
struct ModuleTensors {
  const SafetensorsEntry* a = nullptr;
  const SafetensorsEntry* b = nullptr;
  const SafetensorsEntry* magnitude = nullptr;
};
using Modules = std::map<std::string, ModuleTensors>;

// [rows, columns] of a matrix of floating numbers; bad_file naming it else.
std::pair<int, int> matrix_shape(const SafetensorsEntry& entry);

// An evaluated array; bad_file if a number in it is not finite.
mx::array load_finite(
    const SafetensorsFile& file,
    const SafetensorsEntry& entry);

// The module with a and b as the file has them; `transposed`: a is [r, in] and
// b [out, r] there. Else three dimensions are a stack of experts. bad_file
// where shapes contradict one another or `rank`.
LowRank load_module(
    const SafetensorsFile& file,
    const std::string& module,
    const ModuleTensors& tensors,
    bool transposed,
    bool dora,
    int rank,
    double scale);

}  // namespace mlxx::adapters
