# Run by ctest. See CMakeLists.txt.
function(run)
  cmake_parse_arguments(ARG "FAILS" "OUTPUT;ERROR" "COMMAND" ${ARGN})
  execute_process(
    COMMAND ${ARG_COMMAND}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE error)
  if((result AND NOT ARG_FAILS) OR (ARG_FAILS AND NOT result))
    message(FATAL_ERROR "${ARG_COMMAND} gave ${result}\n${output}\n${error}")
  endif()
  if(ARG_OUTPUT AND NOT "${output}" MATCHES "${ARG_OUTPUT}")
    message(FATAL_ERROR "${ARG_COMMAND} printed\n${output}\nwithout ${ARG_OUTPUT}")
  endif()
  if(ARG_ERROR AND NOT "${error}" MATCHES "${ARG_ERROR}")
    message(FATAL_ERROR "${ARG_COMMAND} reported\n${error}\nwithout ${ARG_ERROR}")
  endif()
endfunction()

set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/empty)
# No model, no installed variant, no setting of the person who runs the test.
set(alone ${CMAKE_COMMAND} -E env --unset=MLXX_LIBMLX --unset=MLXX_BLAS --unset=MLXX_KERNEL
          MLXX_HOME=${WORK}/empty)

run(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
foreach(
  file
  bin/mlxx
  lib/libmlxx.so
  lib/libmlxx-impl.so
  lib/libmlxx_rust_text.a
  include/mlxx/capi/mlxx.h
  include/mlxx/generate/generate.h
  lib/cmake/mlxx/mlxx-config.cmake
  share/doc/mlxx/LICENSE
  share/doc/mlxx/THIRD_PARTY_NOTICES)
  if(NOT EXISTS ${prefix}/${file} AND NOT (APPLE AND file MATCHES "\\.so$"))
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()

# Moved away from where it was installed, it must still work.
file(RENAME ${prefix} ${WORK}/moved)
set(prefix ${WORK}/moved)

# Nothing installed may name the folders of the build.
file(GLOB installed ${prefix}/bin/mlxx ${prefix}/lib/libmlxx.so ${prefix}/lib/libmlxx-impl.so
     ${prefix}/lib/cmake/mlxx/*.cmake)
foreach(file ${installed})
  file(STRINGS ${file} found REGEX "${SOURCE}|${BUILD}")
  if(found AND NOT SANITIZE)
    message(FATAL_ERROR "${file} names the build: ${found}")
  endif()
endforeach()

# The program finds its libmlx beside it, or takes the one that is named.
if(EXISTS ${prefix}/lib/mlxx/mlx)
  run(COMMAND ${alone} ${prefix}/bin/mlxx doctor
      OUTPUT "libmlx +${prefix}/lib/mlxx/mlx/lib/libmlx")
  file(RENAME ${prefix}/lib/mlxx ${WORK}/mlx_away)
  run(COMMAND ${alone} ${prefix}/bin/mlxx --version OUTPUT "^mlxx [0-9.]+ ")
  run(COMMAND ${alone} MLXX_LIBMLX=${LIBMLX} ${prefix}/bin/mlxx doctor OUTPUT "libmlx +${LIBMLX}")
  file(RENAME ${WORK}/mlx_away ${prefix}/lib/mlxx)
else()
  run(COMMAND ${alone} MLXX_LIBMLX=${LIBMLX} ${prefix}/bin/mlxx doctor OUTPUT "libmlx +${LIBMLX}")
  set(mlx_hint -DMLX_DIR=${MLX_DIR})
endif()
run(COMMAND ${alone} MLXX_LIBMLX=${WORK}/no/libmlx.so ${prefix}/bin/mlxx doctor
    OUTPUT "problem +.*is not there" FAILS)

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()
run(COMMAND
    ${CMAKE_COMMAND} -S ${SOURCE}/examples -B ${WORK}/examples -G ${GENERATOR}
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_C_COMPILER=${CC}
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_FLAGS=${flags} -DCMAKE_C_FLAGS=${flags} ${mlx_hint})
run(COMMAND ${CMAKE_COMMAND} --build ${WORK}/examples)

file(WRITE ${WORK}/tokenizer.json
     [[{"version": "1.0", "added_tokens": [], "normalizer": null,
"pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
"model": {"type": "WordLevel", "vocab": {"hello": 0, "world": 1, "?": 2}, "unk_token": "?"}}]])
run(COMMAND ${WORK}/examples/tokenize ${WORK}/tokenizer.json "hello world"
    OUTPUT "0  hello\n +1  world\n2 tokens, decoded to the same text")
run(COMMAND ${alone} MLXX_LIBMLX=${LIBMLX} ${WORK}/examples/answer ${WORK}/no-model "hello"
    ERROR "not_found: .*no-model" FAILS)
run(COMMAND ${alone} ${WORK}/examples/generate ${WORK}/no-model "hello" ERROR "no-model" FAILS)
# The native layer's check their own results; tests/core/ runs all of them.
foreach(example custom_gradient segmented_backward custom_kernel compiled_function safetensors)
  run(COMMAND ${alone} ${WORK}/examples/core/${example})
endforeach()
message(STATUS "the installed package works")
