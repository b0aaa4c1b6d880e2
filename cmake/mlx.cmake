# The MLX that mlxx is built against: an installed one of exactly this version
# if CMake finds it, else the pinned wheel under .deps/ (scripts/fetch_mlx.py
# puts it there by hash; nothing is installed into a Python environment).
set(MLXX_MLX_VERSION 0.32.4)
find_package(MLX ${MLXX_MLX_VERSION} EXACT CONFIG QUIET)
if(NOT MLX_FOUND)
  set(mlxx_mlx_root ${CMAKE_SOURCE_DIR}/.deps/mlx-${MLXX_MLX}-${MLXX_MLX_VERSION})
  if(NOT EXISTS ${mlxx_mlx_root}/mlx/share/cmake/MLX/MLXConfig.cmake)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/fetch_mlx.py ${MLXX_MLX}
              ${mlxx_mlx_root} RESULT_VARIABLE mlxx_fetch_result)
    if(mlxx_fetch_result)
      message(FATAL_ERROR "MLX ${MLXX_MLX_VERSION} was not found and could not be fetched")
    endif()
  endif()
  find_package(MLX ${MLXX_MLX_VERSION} EXACT REQUIRED CONFIG
               PATHS ${mlxx_mlx_root}/mlx/share/cmake/MLX NO_DEFAULT_PATH)
endif()
message(STATUS "MLX ${MLXX_MLX_VERSION}: ${MLX_DIR}")
