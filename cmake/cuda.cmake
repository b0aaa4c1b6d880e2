# libmlxx_cuda, which libmlxx-impl loads where MLX computes on an NVIDIA device:
# .cu files by nvcc, without MLX's headers, and host files by the C++ compiler.
# Nothing links it, and a build without it runs MLX's own operations there.
set(MLXX_CUDA AUTO CACHE STRING "Build libmlxx_cuda: ON, OFF, or AUTO if nvcc 13 is found")
set(MLXX_CUDA_ARCHITECTURES "80;86;89;90;100;120" CACHE STRING
    "Compute capabilities that libmlxx_cuda holds machine code for")
set(MLXX_NVCC "" CACHE FILEPATH "nvcc; empty: .deps/nvcc (scripts/install_nvcc.sh), PATH, /usr/local/cuda")

function(mlxx_find_nvcc)
  set(mlxx_nvcc "" PARENT_SCOPE)
  foreach(candidate "${MLXX_NVCC}" ${CMAKE_SOURCE_DIR}/.deps/nvcc/nvidia/cu13/bin/nvcc nvcc
                    /usr/local/cuda/bin/nvcc)
    unset(path)
    find_program(path NAMES "${candidate}" NO_CACHE)
    if(NOT candidate OR NOT path)
      continue()
    endif()
    execute_process(COMMAND ${path} --version RESULT_VARIABLE result OUTPUT_VARIABLE output
                    ERROR_QUIET)
    if(result EQUAL 0 AND output MATCHES "release ([0-9.]+)")
      if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 13)
        get_filename_component(path ${path} REALPATH)
        get_filename_component(root ${path}/../.. ABSOLUTE)
        set(mlxx_nvcc ${path} PARENT_SCOPE)
        set(mlxx_cuda_root ${root} PARENT_SCOPE)
        message(STATUS "nvcc ${CMAKE_MATCH_1}: ${path}")
        return()
      endif()
      message(STATUS "nvcc ${CMAKE_MATCH_1} at ${path} is too old for libmlxx_cuda, 13 is needed")
    endif()
  endforeach()
endfunction()

set(mlxx_nvcc "")
# Builds under a sanitizer are for what runs on the CPU.
if(NOT MLXX_CUDA STREQUAL "OFF" AND NOT APPLE AND NOT MLXX_SANITIZE)
  mlxx_find_nvcc()
endif()
if(MLXX_CUDA STREQUAL "ON" AND NOT mlxx_nvcc)
  message(FATAL_ERROR "MLXX_CUDA=ON, but no nvcc 13 was found; scripts/install_nvcc.sh fetches one")
endif()

# Machine code for every architecture, and PTX of the first for all others.
set(mlxx_cuda_codes "")
set(mlxx_cuda_names "")
foreach(architecture ${MLXX_CUDA_ARCHITECTURES})
  list(APPEND mlxx_cuda_codes -gencode arch=compute_${architecture},code=sm_${architecture})
  string(APPEND mlxx_cuda_names "sm_${architecture} ")
endforeach()
list(GET MLXX_CUDA_ARCHITECTURES 0 mlxx_cuda_first)
list(APPEND mlxx_cuda_codes -gencode arch=compute_${mlxx_cuda_first},code=compute_${mlxx_cuda_first})
string(APPEND mlxx_cuda_names "compute_${mlxx_cuda_first}")

# mlxx_compile_cuda(<variable> <flags>... SOURCES <.cu>...): the objects of
# sources, whose paths are from here.
function(mlxx_compile_cuda variable)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(objects "")
  foreach(source ${ARG_SOURCES})
    string(REPLACE "/" "_" name ${source})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/cuda
      COMMAND
        ${mlxx_nvcc} -c -O3 -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} -I${CMAKE_SOURCE_DIR}
        -compress-mode=size ${ARG_UNPARSED_ARGUMENTS} ${mlxx_cuda_codes} -MD -MF ${object}.d -o
        ${object} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      DEPFILE ${object}.d
      COMMENT "Building CUDA object ${source}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

# The CUDA runtime, statically: it needs nothing but a driver.
function(mlxx_link_cuda_runtime target)
  find_library(cudart NAMES libcudart_static.a PATHS ${mlxx_cuda_root}/lib64 ${mlxx_cuda_root}/lib
               NO_DEFAULT_PATH NO_CACHE REQUIRED)
  target_link_libraries(${target} PRIVATE ${cudart} ${CMAKE_DL_LIBS} Threads::Threads rt)
endfunction()

# mlxx_add_cuda_plugin(<target> CUDA <.cu>... HOST <.cpp>...): paths from here.
function(mlxx_add_cuda_plugin target)
  cmake_parse_arguments(ARG "" "" "CUDA;HOST" ${ARGN})
  mlxx_compile_cuda(objects -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra -Werror
                    all-warnings SOURCES ${ARG_CUDA})
  set_property(GLOBAL PROPERTY MLXX_CUDA_OBJECTS ${objects})
  add_library(${target} SHARED ${ARG_HOST} ${objects})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(${target} SYSTEM PRIVATE ${mlxx_cuda_root}/include)
  # MLX's headers but not the library: the process has it, and which one it has
  # is decided when it starts.
  target_include_directories(
    ${target} SYSTEM PRIVATE $<TARGET_PROPERTY:mlx,INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(${target} PRIVATE mlxx_base mlxx_options)
  mlxx_link_cuda_runtime(${target})
  set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
  target_compile_definitions(
    ${target} PRIVATE MLXX_VERSION="${PROJECT_VERSION}" MLXX_MLX_VERSION="${MLXX_MLX_VERSION}"
                      MLXX_CUDA_ARCHITECTURES="${mlxx_cuda_names}")
endfunction()

# mlxx_add_cuda_program(<name> <.cu>): a program of its own with the plug-in's
# kernels and without MLX, in tests/.
function(mlxx_add_cuda_program name source)
  mlxx_compile_cuda(object SOURCES ${source})
  get_property(objects GLOBAL PROPERTY MLXX_CUDA_OBJECTS)
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_executable(${name} ${object} ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY
                                                               ${CMAKE_BINARY_DIR}/tests)
  mlxx_link_cuda_runtime(${name})
  add_dependencies(${name} mlxx_cuda)
endfunction()
