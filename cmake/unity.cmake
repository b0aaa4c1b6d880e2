# Several sources compiled as one, which takes half the time. For CI, whose
# release build still compiles the program and its libraries file by file, as
# users do. tools/unity_groups.py decides what goes together.
set(MLXX_UNITY OFF CACHE STRING "Compile several sources as one: OFF, TESTS or ALL")

# Kernels are long to optimise, not to read, and have flags of their own.
function(mlxx_list_unity_targets folder variable)
  set(lines "${${variable}}")
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "STATIC_LIBRARY|EXECUTABLE" OR target MATCHES "_pch")
      continue()
    endif()
    set(paths "")
    get_target_property(sources ${target} SOURCES)
    foreach(source ${sources})
      if(source MATCHES "\\.cpp$" AND NOT source MATCHES "[$]")
        get_filename_component(path ${source} ABSOLUTE BASE_DIR ${folder})
        string(APPEND paths "\t${path}")
      endif()
    endforeach()
    if(paths)
      string(APPEND lines "${folder}\t${target}${paths}\n")
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below ${folders})
    mlxx_list_unity_targets(${below} lines)
  endforeach()
  set(${variable} "${lines}" PARENT_SCOPE)
endfunction()

if(MLXX_UNITY)
  set(mlxx_unity_list "")
  mlxx_list_unity_targets(${CMAKE_SOURCE_DIR}/tests mlxx_unity_list)
  if(MLXX_UNITY STREQUAL "ALL")
    mlxx_list_unity_targets(${CMAKE_SOURCE_DIR}/mlxx mlxx_unity_list)
    mlxx_list_unity_targets(${CMAKE_SOURCE_DIR}/apps/mlxx mlxx_unity_list)
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/unity_targets.txt "${mlxx_unity_list}")
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/unity_groups.py
    INPUT_FILE ${CMAKE_BINARY_DIR}/unity_targets.txt
    OUTPUT_FILE ${CMAKE_BINARY_DIR}/unity_groups.cmake COMMAND_ERROR_IS_FATAL ANY)
  include(${CMAKE_BINARY_DIR}/unity_groups.cmake)
  # It takes a .cpp's types for a header's once another file includes it.
  target_compile_options(
    mlxx_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
