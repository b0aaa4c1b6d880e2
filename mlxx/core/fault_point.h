#pragma once

#include <string_view>

namespace mlxx {

// A step that a test can make fail. In the library it is nothing; the fault
// tests compile these sources once more with MLXX_FAULT_INJECTION, where the
// step that MLXX_FAULT names throws (tests/core/fault_point.cpp lists them).
// The namespaces keep the two from being taken for one function.
#ifdef MLXX_FAULT_INJECTION
inline namespace with_faults {
void fault_point(std::string_view step);
}
#else
inline namespace without_faults {
constexpr void fault_point(std::string_view) {}
}  // namespace without_faults
#endif

}  // namespace mlxx
