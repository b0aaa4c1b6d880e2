# What `cmake --install` gives: bin/mlxx with its two libraries, the static
# libraries and headers as the CMake package mlxx, and licences. lib/ is fixed,
# since the program looks for libmlxx-impl and libmlx in ../lib.
include(CMakePackageConfigHelpers)

get_filename_component(mlxx_mlx_wheel ${MLX_DIR}/../../../.. ABSOLUTE)
string(FIND ${mlxx_mlx_wheel} ${CMAKE_SOURCE_DIR}/.deps/ mlxx_mlx_place)
if(mlxx_mlx_place EQUAL 0)
  set(mlxx_mlx_is_wheel ON)
else()
  set(mlxx_mlx_is_wheel OFF)
endif()
option(MLXX_INSTALL_MLX "Install the MLX wheel that mlxx was built with, under lib/mlxx"
       ${mlxx_mlx_is_wheel})

# mlxx::mlxx is all of the library.
get_property(mlxx_libraries GLOBAL PROPERTY MLXX_LIBRARIES)
add_library(mlxx_everything INTERFACE)
add_library(mlxx::mlxx ALIAS mlxx_everything)
set_target_properties(mlxx_everything PROPERTIES EXPORT_NAME mlxx)
target_compile_features(mlxx_everything INTERFACE cxx_std_20)
target_link_libraries(mlxx_everything INTERFACE ${mlxx_libraries})

install(
  TARGETS mlxx_everything mlxx_c ${mlxx_libraries}
  EXPORT mlxxTargets
  ARCHIVE DESTINATION lib
  LIBRARY DESTINATION lib)
install(TARGETS mlxx mlxx_impl RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
if(TARGET mlxx_cuda)
  install(TARGETS mlxx_cuda LIBRARY DESTINATION lib)
endif()
# The text crate is an imported target here, and again in the package.
install(FILES ${MLXX_RUST_TEXT_LIBRARY} DESTINATION lib RENAME libmlxx_rust_text.a)
install(DIRECTORY mlxx/ DESTINATION include/mlxx FILES_MATCHING PATTERN "*.h")

set(mlxx_package_folder lib/cmake/mlxx)
install(EXPORT mlxxTargets NAMESPACE mlxx:: DESTINATION ${mlxx_package_folder})
configure_package_config_file(
  cmake/mlxx-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/mlxx-config.cmake
  INSTALL_DESTINATION ${mlxx_package_folder})
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/mlxx-config-version.cmake
  VERSION ${PROJECT_VERSION}
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mlxx-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/mlxx-config-version.cmake
        DESTINATION ${mlxx_package_folder})
install(FILES LICENSE THIRD_PARTY_NOTICES DESTINATION share/doc/mlxx)

if(MLXX_INSTALL_MLX)
  if(NOT mlxx_mlx_is_wheel)
    message(FATAL_ERROR "MLXX_INSTALL_MLX=ON needs the wheel under .deps/, but MLX is ${MLX_DIR}")
  endif()
  # The loader finds libmlx there, and the package find_package(MLX).
  install(DIRECTORY ${mlxx_mlx_wheel}/ DESTINATION lib/mlxx)
endif()
