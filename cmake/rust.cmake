# The text crate (rust/text) as the imported static library mlxx_rust_text.
# Any cargo that really runs is taken, then Debian's of cargo-web: a rustup
# proxy on PATH without a toolchain in this HOME answers no `--version`.
set(MLXX_RUST_TARGET_DIR ${CMAKE_BINARY_DIR}/rust CACHE PATH "Where cargo builds")
set(mlxx_cargo_oldest 1.87)

set(mlxx_cargo_seen "")
foreach(candidate ${MLXX_CARGO} cargo /usr/bin/cargo)
  unset(mlxx_cargo_path)
  find_program(mlxx_cargo_path NAMES ${candidate} NO_CACHE)
  if(NOT mlxx_cargo_path)
    continue()
  endif()
  execute_process(
    COMMAND ${mlxx_cargo_path} --version
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_QUIET)
  if(result EQUAL 0 AND output MATCHES "cargo ([0-9.]+)")
    set(mlxx_cargo_version ${CMAKE_MATCH_1})
    get_filename_component(mlxx_cargo_folder ${mlxx_cargo_path} DIRECTORY)
    execute_process(
      COMMAND ${CMAKE_COMMAND} -E env PATH=${mlxx_cargo_folder}:$ENV{PATH} rustc --version
      RESULT_VARIABLE result
      OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0 AND mlxx_cargo_version VERSION_GREATER_EQUAL mlxx_cargo_oldest)
      set(mlxx_cargo ${mlxx_cargo_path})
      message(STATUS "cargo ${mlxx_cargo_version}: ${mlxx_cargo}")
      break()
    endif()
  endif()
  list(APPEND mlxx_cargo_seen ${mlxx_cargo_path})
endforeach()
if(NOT mlxx_cargo)
  message(
    FATAL_ERROR
      "No cargo >= ${mlxx_cargo_oldest} that runs (looked at: ${mlxx_cargo_seen}). "
      "Debian 12: apt-get install cargo-web")
endif()
# cargo finds rustc on PATH: its own folder comes first, so that Debian's pair
# does not meet the proxy.

set(MLXX_RUST_TEXT_LIBRARY ${MLXX_RUST_TARGET_DIR}/release/libmlxx_text.a)
add_custom_command(
  OUTPUT ${MLXX_RUST_TEXT_LIBRARY}
  COMMAND
    ${CMAKE_COMMAND} -E env PATH=${mlxx_cargo_folder}:$ENV{PATH}
    CARGO_TARGET_DIR=${MLXX_RUST_TARGET_DIR} ${mlxx_cargo} build --release --locked --quiet
    --manifest-path ${CMAKE_SOURCE_DIR}/rust/text/Cargo.toml
  DEPFILE ${MLXX_RUST_TARGET_DIR}/release/libmlxx_text.d
  DEPENDS ${CMAKE_SOURCE_DIR}/rust/text/Cargo.toml ${CMAKE_SOURCE_DIR}/rust/text/Cargo.lock
  COMMENT "Building the text crate"
  VERBATIM)
add_custom_target(mlxx_rust_text_build DEPENDS ${MLXX_RUST_TEXT_LIBRARY})

# Rust's standard library needs these; macOS keeps iconv apart.
set(MLXX_RUST_TEXT_NEEDS "Threads::Threads;${CMAKE_DL_LIBS};m")
if(APPLE)
  list(APPEND MLXX_RUST_TEXT_NEEDS iconv)
endif()
add_library(mlxx_rust_text STATIC IMPORTED GLOBAL)
set_target_properties(
  mlxx_rust_text
  PROPERTIES IMPORTED_LOCATION ${MLXX_RUST_TEXT_LIBRARY}
             INTERFACE_LINK_LIBRARIES "${MLXX_RUST_TEXT_NEEDS}")
add_dependencies(mlxx_rust_text mlxx_rust_text_build)
