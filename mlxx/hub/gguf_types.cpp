#include "mlxx/hub/gguf_types.h"

namespace mlxx::hub {

namespace {

constexpr GgufType kTypes[] = {
    {kGgufF32, "F32", 1, 4},
    {kGgufF16, "F16", 1, 2},
    {kGgufQ4_0, "Q4_0", 32, 18},
    {kGgufQ4_1, "Q4_1", 32, 20},
    {kGgufQ5_0, "Q5_0", 32, 22},
    {kGgufQ5_1, "Q5_1", 32, 24},
    {kGgufQ8_0, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 36},
    {kGgufQ2K, "Q2_K", 256, 84},
    {kGgufQ3K, "Q3_K", 256, 110},
    {kGgufQ4K, "Q4_K", 256, 144},
    {kGgufQ5K, "Q5_K", 256, 176},
    {kGgufQ6K, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {kGgufIq4Nl, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {kGgufIq4Xs, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {kGgufBF16, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {kGgufMxfp4, "MXFP4", 32, 17},
};

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  for (const auto& type : kTypes) {
    if (type.id == id) {
      return &type;
    }
  }
  return nullptr;
}

}  // namespace mlxx::hub
