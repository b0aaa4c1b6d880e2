# Run at build time (cmake -P): writes OUTPUT with what --version prints, and
# leaves the file alone if nothing changed.
execute_process(
  COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE result)
if(result OR commit STREQUAL "")
  set(commit unknown)
endif()
set(content
    "#pragma once

namespace mlxx::apps {

inline constexpr const char* kBuildVersion = \"${VERSION}\";
inline constexpr const char* kBuildCommit = \"${commit}\";
inline constexpr const char* kBuildCompiler = \"${COMPILER}\";
inline constexpr const char* kBuildType = \"${TYPE}\";

}  // namespace mlxx::apps
")
set(previous "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} previous)
endif()
if(NOT previous STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
