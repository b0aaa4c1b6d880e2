# mlxx_add_library(<folder> SOURCES ... [DEPS ...] [PRIVATE_DEPS ...] [MLX])
# One static library per folder of mlxx/, named mlxx_<folder> with the alias
# mlxx::<folder>. MLX says that the folder sees MLX's headers; those folders
# share one precompiled header.
add_library(mlxx_options INTERFACE)
target_compile_options(mlxx_options INTERFACE -Wall -Wextra)
if(MLXX_WERROR)
  target_compile_options(mlxx_options INTERFACE -Werror)
endif()
if(MLXX_SANITIZE)
  target_compile_options(
    mlxx_options INTERFACE -fsanitize=${MLXX_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
  target_link_options(mlxx_options INTERFACE -fsanitize=${MLXX_SANITIZE})
endif()

function(mlxx_add_library folder)
  cmake_parse_arguments(ARG "MLX" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target mlxx_${folder})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(mlxx::${folder} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
  set_property(GLOBAL APPEND PROPERTY MLXX_LIBRARIES ${target})
  target_include_directories(
    ${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                     $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated>
                     $<INSTALL_INTERFACE:include>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:mlxx_options>)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${target} PUBLIC mlxx_${dep})
  endforeach()
  target_link_libraries(${target} PRIVATE ${ARG_PRIVATE_DEPS})
  if(ARG_MLX)
    target_link_libraries(${target} PUBLIC mlx)
    if(folder STREQUAL "core")
      target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/mlxx/core/pch.h)
    else()
      target_precompile_headers(${target} REUSE_FROM mlxx_core)
    endif()
  endif()
endfunction()

# mlxx_add_test(<name> LABEL <unit|model|...> SOURCES ... DEPS ...)
# A GoogleTest program, run by ctest as one test with that label.
function(mlxx_add_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;LIBS;ENVIRONMENT" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE mlxx_options GTest::gtest GTest::gtest_main ${ARG_LIBS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE MLXX_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
                                             MLXX_BINARY="${CMAKE_BINARY_DIR}/bin/mlxx")
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE mlxx_${dep})
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
                                          ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
