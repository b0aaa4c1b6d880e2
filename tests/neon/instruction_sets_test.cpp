// What else is run here must not pass for want of instruction sets.
#include <gtest/gtest.h>

#include "mlxx/kernels/instruction_set.h"

namespace mlxx::kernels {
namespace {

TEST(InstructionSets, AreAllFoundOnAnArmProcessorThatHasThem) {
  std::vector<InstructionSet> expected{
      InstructionSet::portable,
      InstructionSet::dotprod,
      InstructionSet::i8mm};
  EXPECT_EQ(available_instruction_sets(), expected);
}

}  // namespace
}  // namespace mlxx::kernels
